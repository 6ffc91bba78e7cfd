//! The controller, the optimiser and the choice of codecs, in simulation.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod compression;
mod control;
mod graphs;
mod optimise;
