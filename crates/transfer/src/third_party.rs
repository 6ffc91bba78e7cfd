//! Copies between two remote hosts.

pub mod job_protocol;
