//! The controller against paths, hosts and other transfers in virtual time.
//!
//! The path is a fluid: rates, not segments, so that a run of a minute takes
//! milliseconds. What that leaves out stands in `stream.rs`.

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
