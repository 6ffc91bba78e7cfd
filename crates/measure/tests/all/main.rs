//! Records, their analysis and what other instruments report.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod analysis;
mod confidence;
mod export;
mod fuzz_corpus;
mod import;
mod many_runs;
mod oracles;
mod paper_tables;
mod records;
mod sources;
