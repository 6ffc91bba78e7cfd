//! Commands that measure and plan: probes, labs, sweeps, profiles and forecasts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod analysis;
mod bench;
mod explain;
mod lab;
mod plan;
mod probe;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
