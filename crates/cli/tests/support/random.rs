//! Random numbers from a seed that is printed.

pub use longhaul_units::Random;

/// Returns a generator with the seed in `LONGHAUL_SEED`, or with a new one.
pub fn random_from_environment() -> Random {
    let seed = match std::env::var("LONGHAUL_SEED") {
        Ok(seed) => seed.parse().expect("LONGHAUL_SEED is a number"),
        Err(_) => {
            let since = std::time::UNIX_EPOCH.elapsed().unwrap();
            since.as_nanos() as u64
        }
    };
    println!("LONGHAUL_SEED={seed}");
    Random::new(seed)
}
