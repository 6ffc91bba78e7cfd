//! Tests with real servers, with scripted servers, and with the corpora of the fuzz targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod files;
mod fuzz_corpus;
mod hostile;
mod names;
mod servers;
mod ssh;
mod tls;
