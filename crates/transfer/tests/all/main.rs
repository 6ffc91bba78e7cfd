//! Tests the library's interface, and the corpora of the fuzz targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod assembly;
mod copy_tree;
mod fuzz_corpus;
