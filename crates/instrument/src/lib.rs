//! Observations of hosts, paths and methods, as values and records.
//!
//! - [`mod@bench`]: benchmarks of a single host
//! - [`probe`]: measurements of a path to a daemon
//! - [`doctor`]: obstacles to a copy, with remedies
//! - [`plan`]: predictions for a transfer, from the model
//! - [`model_files`]: reads host profiles, fits and graphs from files
//! - [`lab_copy`]: a copy across an emulated path with both ends on this machine
//! - [`mod@records`]: reads, compresses, exports and imports files of records
//! - [`sweep`]: runs methods over paths in random order, one record per run
//! - [`sidecar`]: files next to records: descriptions of hosts, and samples of streams
//!
//! Functions take plain settings and return values. They report progress as events that
//! the caller renders. The crate has no command line and no terminal.

pub mod bench;
pub mod doctor;
pub mod lab_copy;
pub mod model_files;
pub mod plan;
pub mod probe;
pub mod records;
pub mod sidecar;
pub mod sweep;
