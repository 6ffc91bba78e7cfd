//! A peer that breaks every rule, against a real end: nothing outside the root
//! is touched, memory is bounded, and the session ends with a reason.
#![allow(clippy::unwrap_used, clippy::panic)]

mod kinds;
mod peer;
mod to_receiver;
mod to_sender;
