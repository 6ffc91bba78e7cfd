//! Formats the events and results of a transfer as text and as JSON. Prints nothing.
//!
//! - [`mod@json`]: events, progress and outcomes, which FORMAT.md describes
//! - [`entries`]: events of an entry
//! - [`jobs`]: the list of jobs
//! - [`progress`]: the progress line
//! - [`summary`]: the lines at the end
//! - [`listing`]: the entries of an endpoint
//! - [`notices`]: attributes that a destination did not preserve
//! - [`options`]: errors of a command, in terms of its options

pub mod entries;
pub mod failures;
pub mod jobs;
pub mod json;
pub mod listing;
pub mod notices;
pub mod options;
pub mod progress;
mod step_rate;
pub mod summary;
