//! Tests of the receiver as a whole.

mod comparing;
mod deletion;
mod links;
mod memory;
mod probing;
mod resuming;
