//! The queue of tasks. It may deliver a task more than once, and it never decides if a transfer is
//! complete: [`crate::ledger`] does.
//!
//! - `interface`: operations of every queue
//! - `here`: a queue in the memory of the coordinator

mod here;
mod interface;

pub use here::{Here, MOST_ATTEMPTS};
pub use interface::{Delivery, Ended, Queue, WorkerNumber};
