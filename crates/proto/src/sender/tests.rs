//! Tests of the sender as a whole.

mod digests;
mod filtering;
mod lost;
mod queue;
