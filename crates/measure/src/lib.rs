//! Records of runs and their evaluation: statistics, throughput profiles with coefficients and
//! confidence intervals, and doubts.
//!
//! A sweep writes one JSON line for each run ([`record`]). [`runs`] collects the values that
//! figures need, [`analysis`] computes the figures with their intervals and the doubts, and
//! [`report`] writes the page. These modules use [`stats`] to reduce repetitions to a figure,
//! [`profile`] to form Θ(τ) and the coefficients of paper 001, [`doubt`] for the reasons to
//! mistrust a measurement, and [`plot`] to draw. [`host`] describes the hosts that records name.
//! [`compressed`] reads compressed files. [`sources`] reads measurements of other instruments, and
//! [`import`] makes records of them.
//!
//! This crate has no I/O of its own, no clock and no threads. Readers accept any `BufRead`. Random
//! numbers come from a seed, so the same records give the same report.

pub mod analysis;
pub mod best;
pub mod compressed;
pub mod doubt;
pub mod export;
pub mod host;
pub mod import;
pub mod plot;
pub mod profile;
pub mod random;
pub mod record;
pub mod report;
pub mod runs;
pub mod samples;
pub mod scope;
pub mod sources;
pub mod stats;
pub mod streams;
