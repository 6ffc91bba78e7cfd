//! Tests of graphs as files.
#![allow(clippy::unwrap_used, clippy::panic)]

mod files;
