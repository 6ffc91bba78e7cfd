//! Copies between two remote hosts. One of them, which SSH reaches, runs the
//! copy as a *job*: it is the dialer of a session with the other one, and goes
//! on when whoever started it is gone.
//!
//! - [`job_protocol`]: the messages between a job and its followers
//! - [`steer`]: starts a job and brings both hosts together, from here
//! - [`watch`]: shows here what a job says, to its end
//! - [`supply`]: carries channels through this host, where that is asked for
//! - [`daemons`]: the same between two daemons, of which one runs the job
//! - [`channels`]: where channels come to a job at a daemon
//! - [`dialing`]: which hosts a daemon connects to
//! - [`confined`]: what a job may that a daemon runs for a principal
//! - [`vouch`]: has a daemon let in the host that runs a job
//! - [`started`]: the jobs that were started from here
//! - [`words`]: the command line of the job
//! - [`drive`]: runs a job, there
//! - [`met`]: the job's other end, that it was introduced to
//! - [`job`]: what is kept of a job, and who follows it
//! - [`follower`]: tells one who follows

pub mod channels;
pub mod confined;
pub mod daemons;
pub mod dialing;
pub mod drive;
pub mod follower;
pub mod job;
pub mod met;
pub use longhaul_transfer::third_party::job_protocol;
pub mod started;
pub mod steer;
pub mod supply;
pub mod vouch;
pub mod watch;
pub mod words;
