//! `[user@]host:path`: the other end is started over the user's own ssh.

pub mod greeting;
