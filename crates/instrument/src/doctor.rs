//! What is in the way of a copy, and what to do about it.
//!
//! - [`host`]: facts of a host, as a shell tells them
//! - [`mod@findings`]: what the facts mean

pub mod findings;
pub mod host;
