//! What happens in a transfer, as text and as JSON. Nothing is printed here.
//!
//! - [`mod@json`]: events, progress and outcomes, which FORMAT.md describes
//! - [`entries`]: what happens with an entry
//! - [`jobs`]: the list of jobs
//! - [`progress`]: the progress line
//! - [`summary`]: the lines at the end
//! - [`listing`]: what lies at an endpoint
//! - [`notices`]: what a destination did not keep
//! - [`options`]: what is wrong with a command, by its options

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
