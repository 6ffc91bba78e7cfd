//! Diagnoses obstacles to a copy and suggests remedies.
//!
//! - [`host`]: facts of a host, reported by a shell
//! - [`gather`]: collects facts from both ends and tries connections between them
//! - `shell`, `far_side`, `tries`, `measuring`: parts of the collection
//! - [`rights`]: permissions of a principal at a daemon
//! - [`mod@findings`]: conclusions from the facts
//! - [`output`]: findings as text and as JSON

mod far_side;
pub mod findings;
pub mod gather;
pub mod host;
mod measuring;
pub mod output;
pub mod rights;
mod shell;
mod tries;
