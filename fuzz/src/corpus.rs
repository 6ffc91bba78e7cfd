//! The committed corpora, as the crates' tests replay and make them.

use std::path::PathBuf;

fn directory(target: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus")).join(target)
}

/// Every input of a target through what the target does.
pub fn replay(target: &str, run: impl Fn(&[u8])) {
    let directory = directory(target);
    let mut count = 0;
    for name in std::fs::read_dir(&directory).expect("the corpus can be listed") {
        let path = name.expect("the corpus can be listed").path();
        println!("{}", path.display());
        run(&std::fs::read(&path).expect("an input can be read"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", directory.display());
}

/// Keeps an input.
pub fn save(target: &str, name: &str, bytes: &[u8]) {
    let directory = directory(target);
    std::fs::create_dir_all(&directory).expect("the corpus can be made");
    std::fs::write(directory.join(name), bytes).expect("an input can be written");
}

/// Bytes for a target that reads them as choices: any will do.
pub fn choices(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}
