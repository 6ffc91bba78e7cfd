//! `[user@]host:path`: the other end is started over the user's own ssh.
//!
//! - [`command`]: what is started, here and there
//! - [`master`]: one login for several commands, `control_directory`: where its socket is
//! - [`process`]: a running ssh, and the channel through it
//! - `prompt`: whether it asks somebody something
//! - [`greeting`]: the first line of each end
//! - [`far`]: opens a session on the far side, and further streams of it
//! - [`direct`], [`callbacks`]: streams beside the channel, from here or to here
//! - [`further`]: more ssh processes, where there are none
//! - [`install`]: puts this release into the far side's cache, `image` without what
//!   does not help to run it
//! - [`route`]: how the data went, in words

pub mod callbacks;
pub mod command;
pub(crate) mod control_directory;
pub mod direct;
pub mod far;
pub mod further;
pub mod greeting;
mod image;
pub mod install;
pub mod master;
pub mod process;
mod prompt;
pub mod route;

/// How a channel's bytes are protected, in words.
pub const PROTECTION: &str = "SSH";
