//! The round trip to another host, by one TCP handshake. Nothing is asked for, and nobody logs in.

use std::time::Duration;

use longhaul_engine::net::tcp::{self, TcpOptions};
use longhaul_engine::net::tcp_info::TcpInfo;
use longhaul_transfer::endpoint::Endpoint;
use longhaul_transfer::settings::SshSettings;
use longhaul_transfer::ssh::command::server_of;

/// A person waits for a plan.
const PATIENCE: Duration = Duration::from_secs(3);

/// The round trip to an endpoint's host: to its daemon, or to the server that ssh would reach.
/// `None` within this host, where it does not answer, or where ssh reaches it through others.
pub fn round_trip(endpoint: &Endpoint) -> Option<Duration> {
    let server = match endpoint {
        Endpoint::Daemon(remote) => remote.host.clone(),
        Endpoint::Ssh(remote) => server_of(&SshSettings::default(), &remote.destination)?,
        Endpoint::Local(_) | Endpoint::Null | Endpoint::Zero(_) | Endpoint::Standard => {
            return None;
        }
    };
    let socket = tcp::connect(&server, PATIENCE, &TcpOptions::default()).ok()?;
    let info = TcpInfo::of(&socket).ok()?;
    Some(info.minimum_rtt.unwrap_or(info.rtt))
}
