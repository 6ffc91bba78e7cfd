//! Transfers between clusters: several hosts of one site send to several hosts of another site.
//! All hosts of a site see the same files.
//!
//! A coordinator starts a worker on each host. One session lists the files to copy, tasks copy
//! them, and a last session over the whole tree proves that the copy is complete. Each task is an
//! ordinary session of [`longhaul_transfer`].
//!
//! - [`site`]: hosts of a site, and how a worker starts on each
//! - [`task`]: files that one session copies
//! - [`queue`]: tasks that wait or run, with leases
//! - [`ledger`]: the tasks that are complete
//! - [`protocol`]: messages between the coordinator and a worker
//! - [`worker`]: the process on each host
//! - [`coordinator`]: starts the workers and distributes the tasks
//! - `private`: a directory that only this user can access
//! - `moment`: the clock of leases

pub mod coordinator;
pub mod ledger;
pub mod moment;
mod private;
pub mod protocol;
pub mod queue;
pub mod site;
pub mod task;
pub mod worker;
