//! A transfer from this end: [`run`](run::run) executes a specification.
//!
//! - [`run`]: runs both ends here, or one here and one at another host
//! - `audited`: records of a daemon's job in its audit log
//! - `bounds`: number of streams and block size
//! - `foreseeing`: makes a forecast beside a transfer
//! - `task`: converts a specification into the task of this end
//! - [`observer`]: events for the caller, and its control of a running transfer
//! - [`peer`]: the other end: a daemon, a host reached over SSH, or an introduced host
//! - [`connection`]: opens an authenticated stream to a daemon's URL
//! - [`ahead`]: connections that start before their session exists
//! - [`retry`]: retries requests to a busy daemon
//! - `tries`: retries a whole transfer
//! - [`credentials`]: trust in daemons, and the user's credentials there
//! - [`steering`]: applies the model's controller to a running transfer
//! - `layering`: the same for the layers
//! - `keeping`: metadata to keep beyond data, mode and time
//! - [`identity`]: keys that identify a transfer
//! - [`local_paths`]: opens paths of this host
//! - [`self_copy`]: rejects a copy onto itself
//! - `destination`: opens the destination on this host
//! - `sources`, [`requested`], [`request`]: the entries requested here and of a peer
//! - `pipe`: reports of a copy from standard input
//! - [`owner`]: identity of this process

pub mod ahead;
mod audited;
mod bounds;
pub mod connection;
pub mod credentials;
mod destination;
mod foreseeing;
pub mod identity;
mod keeping;
mod layering;
pub mod local_paths;
pub mod observer;
pub mod owner;
pub mod peer;
mod pipe;
pub mod request;
pub mod requested;
pub mod retry;
pub mod run;
pub mod self_copy;
mod sources;
pub mod steering;
mod task;
mod tries;
