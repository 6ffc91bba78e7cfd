//! Randomness from a seed that is printed (SplitMix64).

pub struct Random(u64);

impl Random {
    /// From `LONGHAUL_SEED`, or a new seed.
    pub fn new() -> Random {
        let seed = match std::env::var("LONGHAUL_SEED") {
            Ok(seed) => seed.parse().expect("LONGHAUL_SEED is a number"),
            Err(_) => {
                let since = std::time::UNIX_EPOCH.elapsed().unwrap();
                since.as_nanos() as u64
            }
        };
        println!("LONGHAUL_SEED={seed}");
        Random(seed)
    }

    pub fn from(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}
