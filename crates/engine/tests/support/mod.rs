//! Shared by the tests of whole transfers: trees as values, and both ends of a transfer in one
//! process.
#![allow(dead_code)]

pub mod ends;
pub mod tree;

pub use longhaul_units::Random;

/// Returns a number of repetitions from the environment, or the default.
pub fn times(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}
