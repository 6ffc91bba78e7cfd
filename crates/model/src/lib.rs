//! What longhaul knows of a transfer's parts, and what it decides from it. No
//! I/O, no clock, no threads: whoever asks brings the measurements and the
//! time.
//!
//! - [`control`]: decides while a transfer runs: observations in, stream counts
//!   out
//! - [`response`]: what loss leaves of a stream, by congestion control
//! - [`kernel`]: what a host's kernel lets one stream's window become
//! - [`advice`]: what to tell of a path, with the sysctls that would help

pub mod advice;
pub mod control;
pub mod kernel;
pub mod response;
