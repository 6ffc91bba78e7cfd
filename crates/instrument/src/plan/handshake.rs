//! Measures the round-trip time to another host by one TCP handshake, without a request
//! or login.

use std::time::Duration;

use longhaul_net::tcp::{self, TcpOptions};
use longhaul_net::tcp_info::TcpInfo;
use longhaul_transfer::endpoint::{Endpoint, HostAccess};
use longhaul_transfer::settings::SshSettings;
use longhaul_transfer::ssh::command::server_of;

/// Timeout: the user is waiting for the plan.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the round-trip time to an endpoint's daemon, or to its ssh server. Returns
/// `None` on this host, if the other host does not answer, or if ssh reaches it through a
/// jump host.
pub fn round_trip(endpoint: &Endpoint) -> Option<Duration> {
    let server = match endpoint.access()? {
        HostAccess::Daemon(remote) => remote.host.clone(),
        HostAccess::Login(remote) => server_of(&SshSettings::default(), &remote.destination)?,
    };
    let socket = tcp::connect(&server, PATIENCE, &TcpOptions::default()).ok()?;
    let info = TcpInfo::of(&socket).ok()?;
    Some(info.minimum_rtt.unwrap_or(info.rtt))
}
