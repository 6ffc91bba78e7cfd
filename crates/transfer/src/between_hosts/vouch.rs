//! Makes a daemon accept the host that runs a job: the client vouches for that host's key, and its
//! token goes only to the daemon.

use longhaul_net::identity::Fingerprint;
use longhaul_proto::allowed::Allowed;
use longhaul_proto::handshake::PROTOCOL_VERSION;

use crate::client::connection::Daemon;
use crate::endpoint::Remote;
use crate::settings::ConnectionSettings;
use crate::ssh::command::RELEASE;
use crate::ssh::greeting::Greeting;
use crate::stop::{Exit, Stop};

/// Vouches for a host and the one session that it may open; returns what that host needs to know
/// about the daemon.
///
/// # Errors
///
/// Fails if the daemon cannot be reached, is not trusted, or refuses.
pub fn vouch(
    remote: &Remote,
    (host, allowed): (&Greeting, Allowed),
    arguments: &ConnectionSettings,
) -> Result<Greeting, Stop> {
    let key: Fingerprint = host
        .key
        .parse()
        .map_err(|error| Stop::because(Exit::Connection, error))?;
    let daemon = Daemon::new(remote, arguments)?;
    let own = daemon.vouch(*key.as_bytes(), allowed)?;
    Ok(Greeting {
        software: RELEASE.to_owned(),
        protocol: PROTOCOL_VERSION,
        key: own.to_string(),
        ..Greeting::default()
    })
}
