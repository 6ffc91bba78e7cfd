//! Copies that other hosts take part in: SSH, daemons and their rights, jobs between two remote
//! hosts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod audit;
mod between;
mod between_kills;
mod clusters;
mod daemons;
mod daemons_through;
mod detached;
mod doctor;
mod drain;
mod endpoints;
mod ftp;
#[path = "../../../gridftp/tests/all/servers.rs"]
#[allow(dead_code)]
mod ftp_servers;
mod hostile_daemon;
mod http;
#[path = "../../../stores/tests/all/http_server.rs"]
#[allow(dead_code)]
mod http_server;
mod metrics;
mod multipath;
mod ports;
mod revocation;
mod routes;
mod s3;
mod serve;
mod ssh;
mod ssh_hosts;
mod ssh_kills;
mod ssh_login;
mod ssh_round_trips;
mod ssh_start;
#[path = "../support/mod.rs"]
mod support;
