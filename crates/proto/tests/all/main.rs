//! Tests of the protocol with two simulated ends, and of the corpora of its fuzz targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fuzz_corpus;
mod parts;
mod simulation;
