//! The client against servers on this host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod archives;
#[allow(dead_code)]
mod http_server;
