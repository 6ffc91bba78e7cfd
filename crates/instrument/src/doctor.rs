//! What is in the way of a copy, and what to do about it.
//!
//! - [`host`]: facts of a host, as a shell tells them
//! - [`gather`]: asks both ends, and tries what opens between them
//! - `shell`, `far_side`, `tries`, `measuring`: its parts
//! - [`rights`]: what a principal may do at a daemon
//! - [`mod@findings`]: what the facts mean
//! - [`output`]: findings for people and for programs

mod far_side;
pub mod findings;
pub mod gather;
pub mod host;
mod measuring;
pub mod output;
pub mod rights;
mod shell;
mod tries;
