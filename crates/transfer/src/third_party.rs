//! Copies between two remote hosts. One of them, which SSH reaches, runs the copy as a *job*: it
//! is the dialer of a session with the other one, and continues when its client is gone.
//!
//! - [`starting`]: starts a job and brings both hosts together, from here
//! - [`sides`]: what is asked for, and what each host is asked for
//! - [`daemons`]: the same between two daemons, of which one runs the job
//! - [`relay_channels`]: carries channels through this host, where that is asked for
//! - [`vouch`]: has a daemon let in the host that runs a job
//! - [`job_protocol`]: the messages between a job and its followers
//! - [`viewer`]: what shows a job, and what a job shows itself with
//! - [`watch`]: follows a job from here, to its end
//! - [`hosts`]: asks hosts for their jobs, and finds one again
//! - [`started`]: the jobs that were started from here
//! - [`drive`]: runs a job, there
//! - [`own_job`]: has this host run one, between it and another host
//! - [`introduced_peer`]: the job's other end, that it was introduced to
//! - [`job`]: what is kept of a job
//! - [`follower`]: tells one who follows
//! - [`confined`]: what a job may that a daemon runs for a principal
//! - [`channels`]: where channels come to a job at a daemon
//! - [`dialing`]: which hosts a daemon connects to

pub mod channels;
pub mod confined;
pub mod daemons;
pub mod dialing;
pub mod drive;
pub mod follower;
pub mod hosts;
pub mod introduced_peer;
pub mod job;
pub mod job_protocol;
pub mod own_job;
pub mod relay_channels;
pub mod sides;
pub mod started;
pub mod starting;
pub mod viewer;
pub mod vouch;
pub mod watch;
