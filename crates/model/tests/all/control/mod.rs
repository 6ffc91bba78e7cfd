//! Tests the controller with simulated paths, hosts and other transfers in virtual time.
//!
//! The path carries rates, not segments, so that a run of a minute takes milliseconds. `stream.rs`
//! lists the approximations.

mod layers;
mod path;
mod paths;
mod policer;
mod properties;
mod random;
mod reroute;
mod route;
mod scenarios;
mod stream;
mod switch;
