//! The instrument: what is observed of hosts, paths and methods, as values and records.
//!
//! - [`mod@bench`]: what a host can do alone
//! - [`probe`]: what a path to a daemon can do
//! - [`doctor`]: what is in the way of a copy
//! - [`plan`]: a transfer that was not made yet, as the model's graph
//! - [`model_files`]: host profiles, fits and graphs, as files
//! - [`lab_copy`]: a copy across an emulated path, both ends on this machine
//! - [`mod@records`]: files of records: read, packed, exported, imported
//! - [`sweep`]: methods over paths, repeated in random order, one record a run
//! - [`sidecar`]: the files beside records: hosts, and samples of streams
//!
//! It takes plain settings and gives values; what happens meanwhile are events that the caller
//! renders. It knows no command line and no terminal.

pub mod bench;
pub mod doctor;
pub mod lab_copy;
pub mod model_files;
pub mod plan;
pub mod probe;
pub mod records;
pub mod sidecar;
pub mod sweep;
