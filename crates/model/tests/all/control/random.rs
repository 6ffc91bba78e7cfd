//! A small seeded generator (xorshift64, Marsaglia 2003), so that a run can be repeated by its
//! seed.
//!
//! Does not use `longhaul_units::Random`: the limits of the scenarios were chosen with these
//! sequences, and some have less margin than the difference between two seeds.

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number from the uniform distribution on 0 to 1.
    pub fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
