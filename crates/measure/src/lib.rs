//! The record of a run, and what many of them say: statistics, throughput
//! profiles with their coefficients and confidence, doubts.
//!
//! A sweep writes one self-describing JSON line a run ([`record`]). From there it
//! is one way: [`runs`] keeps what figures are made of, [`analysis`] gives every
//! figure with its interval and every doubt, [`report`] the page. In between,
//! [`stats`] reduces repetitions to a figure, [`profile`] makes Θ(τ) of the figures
//! at several round-trip times, with the coefficients of paper 001, [`doubt`] says
//! what to mistrust, [`plot`] draws. [`host`] describes the hosts that records
//! name. [`compressed`] reads what was compressed. [`sources`] reads what other
//! instruments measured, [`import`] makes records of it.
//!
//! No I/O, no clock, no threads: readers take whatever can be read, and chance
//! comes from a seed, so that the same records give the same report.

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
