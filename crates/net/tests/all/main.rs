//! Tests with the corpora of the fuzz targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fuzz_corpus;
