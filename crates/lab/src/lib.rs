//! An emulated wide area on one machine: what the papers had in hardware.
//!
//! - [`link`]: one direction of a path as a pure queue in virtual time
//! - [`storage`]: a directory behind a modelled device
//! - [`random`]: the numbers that a seed repeats

pub mod link;
pub mod random;
pub mod storage;
