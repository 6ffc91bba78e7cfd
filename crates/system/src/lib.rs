//! The parts of the operating system that both disk and network code use.
//!
//! - [`limits`]: the threads, memory and open files that the system allows
//! - [`seats`]: the part of them that one session may use
//! - [`descriptors`]: limits and waits for open files
//! - [`idle`]: the number of idle cores
//! - [`queue`]: queues between threads, and how a mutex is locked
//! - [`clock`]: the time of day
//! - [`named_files`]: files that are not data of a copy
//! - [`process_identity`]: identifies a process beyond its end
//! - [`toml_errors`]: errors in such files, as one line
//! - [`refusals`]: errors that say that a file system does not support an operation

pub mod clock;
pub mod descriptors;
pub mod idle;
pub mod limits;
pub mod named_files;
pub mod process_identity;
pub mod queue;
pub mod refusals;
pub mod seats;
pub mod toml_errors;
