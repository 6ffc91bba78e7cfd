//! The record of a run, and what many of them say: statistics, throughput
//! profiles with their coefficients and confidence, doubts.
//!
//! A sweep writes one self-describing JSON line a run. From there it is one way:
//! [`stats`] reduces repetitions to a figure with its interval, [`profile`]
//! makes Θ(τ) of the figures at several round-trip times, with the coefficients
//! of paper 001, and [`doubt`] says what to mistrust.
//!
//! No I/O, no clock, no threads: readers take whatever can be read, and chance
//! comes from a seed, so that the same records give the same report.

pub mod doubt;
pub mod profile;
pub mod random;
pub mod stats;
