//! A small seeded generator. The seed determines a schedule.

use std::time::Duration;

/// Mixes a word bijectively.
pub fn mix(word: u64) -> u64 {
    longhaul_units::number_at(word, 1)
}

/// A random generator: `longhaul_units::Random` from a mixed seed.
#[derive(Clone, Debug)]
pub struct Random(longhaul_units::Random);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = longhaul_units::Random::new(mix(seed));
        // The schedules of recorded seeds begin with the second number.
        random.bits();
        Random(random)
    }

    pub fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// Returns a number from 0 to `n` - 1. Requires `n` > 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.between(low, high)
    }

    /// Returns true in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    pub fn span(&mut self, (low, high): (Duration, Duration)) -> Duration {
        Duration::from_nanos(self.between(low.as_nanos() as u64, high.as_nanos() as u64))
    }
}
