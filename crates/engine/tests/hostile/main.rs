//! A peer that breaks every rule, against a real end: no file outside the root is touched, memory
//! is bounded, and the session ends with a reason. Tests of bounded memory measure their whole
//! process, which has no other tests.
#![allow(clippy::unwrap_used, clippy::panic)]

mod kinds;
mod peer;
#[path = "../support/mod.rs"]
mod support;
mod to_receiver;
mod to_sender;
