//! Endpoints of the form `[user@]host:path`. The remote end is started over the user's own ssh.
//!
//! - [`command`]: command lines of the local ssh and of the remote end
//! - [`master`]: one login for several commands; `control_directory`: location of its socket
//! - [`process`]: a running ssh and the channel through it
//! - `prompt`: detects questions to the user
//! - [`greeting`]: the first line of each end
//! - [`remote_end`]: opens a session on the remote host and further streams of it
//! - [`direct`], [`callbacks`]: streams beside the channel, outward and inward
//! - [`further`]: additional ssh processes, used if no direct stream opens
//! - [`install`]: installs this release on the remote host; `image`: the binary without its
//!   unneeded sections
//! - [`route`]: describes the route of the data

pub mod callbacks;
pub mod command;
pub(crate) mod control_directory;
pub mod direct;
pub mod further;
pub mod greeting;
mod image;
pub mod install;
pub mod master;
pub mod process;
mod prompt;
pub mod remote_end;
pub mod route;

/// Name of the protection of a channel's bytes.
pub const PROTECTION: &str = "SSH";
