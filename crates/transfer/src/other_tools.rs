//! Options and commands of rsync, scp and rclone that longhaul does not have, with what to write
//! instead; and values of their options that a command line would take for sources.

pub mod commands;
pub mod numbers;
pub mod options;
pub mod values;
