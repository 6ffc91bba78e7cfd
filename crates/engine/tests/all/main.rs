//! Whole transfers between two real ends, and the storage below them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crashes;
mod deletion;
mod filesystems;
mod filters;
mod fuzz_corpus;
mod pipeline;
mod sparse;
#[path = "../support/mod.rs"]
mod support;
