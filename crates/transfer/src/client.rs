//! A transfer from this end: [`run`](run::run) does what a specification says.
//!
//! - [`run`]: both ends here, or one here and one at another host
//! - `bounds`: how many streams, how large blocks
//! - `foreseeing`: has a forecast made beside a transfer
//! - `task`: from a specification to what this end does
//! - [`observer`]: what the caller hears, and how it changes a transfer that runs
//! - [`peer`]: the other end: a daemon, a host that SSH reaches, or one introduced
//! - [`connection`]: from a daemon's URL to an authenticated stream
//! - [`ahead`]: connections that begin before there is a session
//! - [`retry`]: tries again where a daemon has no place free
//! - `tries`: tries a whole transfer again
//! - [`credentials`]: which daemon is believed, and who the user is there
//! - [`steering`]: the model's controller at a running transfer
//! - `layering`: the same for the layers
//! - `keeping`: what is kept beyond data, mode and time
//! - [`identity`]: what tells one transfer from another
//! - [`local_paths`]: where paths of this host are opened
//! - [`self_copy`]: refuses a copy onto itself
//! - `sources`, [`requested`], [`request`]: what is asked for, here and of a peer
//! - [`pipe`]: standard input and output
//! - [`owner`]: who this process is

pub mod ahead;
mod bounds;
pub mod connection;
pub mod credentials;
mod foreseeing;
pub mod identity;
mod keeping;
mod layering;
pub mod local_paths;
pub mod observer;
pub mod owner;
pub mod peer;
pub mod pipe;
pub mod request;
pub mod requested;
pub mod retry;
pub mod run;
pub mod self_copy;
mod sources;
pub mod steering;
mod task;
mod tries;
