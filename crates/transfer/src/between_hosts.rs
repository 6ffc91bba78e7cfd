//! Copies between two remote hosts. One of them, which SSH reaches, runs the copy as a *job*: it
//! is the dialer of a session with the other one, and continues when its client is gone.
//!
//! - [`starting`]: starts a job from this host, and introduces the two hosts to each other
//! - [`sides`]: splits the user's request into the requests to each host
//! - [`daemons`]: starts a job at one of two daemons
//! - [`relay_channels`]: carries channels through this host, if the user asks for it
//! - [`vouch`]: makes a daemon accept the host that runs a job
//! - [`job_protocol`]: the messages between a job and its followers
//! - [`viewer`]: the interfaces for showing a job and its progress
//! - [`watch`]: follows a job from this host, to its end
//! - [`hosts`]: lists the jobs of hosts, and opens a channel to a job
//! - [`started`]: the jobs that were started from this host
//! - [`drive`]: runs a job, on the host that was asked to
//! - [`own_job`]: runs a job on this host, between it and another host
//! - [`introduced_peer`]: the job's other end, to which the client introduced it
//! - [`job`]: the stored state of a job
//! - [`follower`]: sends the events of a job to a follower
//! - [`confined`]: the limits of a job that a daemon runs for a principal
//! - [`channels`]: accepts channels for a job at a daemon
//! - [`dialing`]: the hosts to which a daemon may connect

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
