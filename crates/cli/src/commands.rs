//! The commands that run on a user's host, one file each.

pub mod clean;
pub mod connection;
pub mod cp;
pub mod run;
pub mod verify;
