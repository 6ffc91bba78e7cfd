//! The protocol between two simulated ends, and the corpora of its fuzz targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fuzz_corpus;
mod simulation;
