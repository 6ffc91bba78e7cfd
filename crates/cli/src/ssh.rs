//! `[user@]host:path`: the other end is started over the user's own ssh.
//!
//! - [`command`]: what is started, here and there
//! - [`process`]: a running ssh, and the channel through it
//! - [`greeting`]: the first line of each end
//! - [`far`]: opens a session on the far side, and further streams of it
//! - [`direct`], [`callbacks`]: streams beside the channel, from here or to here
//! - [`further`]: more ssh processes, where there are none
//! - [`install`]: puts this release into the far side's cache
//! - [`route`]: how the data went, in words

pub mod callbacks;
pub mod command;
pub mod direct;
pub mod far;
pub mod further;
pub mod greeting;
pub mod install;
pub mod process;
pub mod route;

/// How a channel's bytes are protected, in words.
pub const PROTECTION: &str = "SSH";
