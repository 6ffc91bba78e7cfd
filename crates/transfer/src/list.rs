//! Lists an endpoint and reports the entries as they are found.

use longhaul_engine::listing::Depth;
use longhaul_engine::send::wildcards::above_wildcards;
use longhaul_engine::session::TransferSettings;
use longhaul_proto::listing::{ListRequest, Listed, ListedEntry};

use crate::client::peer::Peer;
use crate::endpoint::{Endpoint, Host, ListsHosts, Tell};
use crate::settings::ConnectionSettings;
use crate::stop::{Exit, Stop};

/// Lists the entries at `endpoint`, on this host or another. Reports them in the order in which
/// they are found, possibly several at once. Entries that cannot be listed are reported as
/// failures.
///
/// # Errors
///
/// The endpoint cannot be listed, the other end violates the protocol, or `tell` fails.
pub fn list(
    endpoint: &Endpoint,
    connection: &ConnectionSettings,
    depth: Depth,
    tell: &mut dyn FnMut(Listed) -> Result<(), Stop>,
) -> Result<(), Stop> {
    endpoint.list(depth, &OverSession { connection }, tell)
}

/// Lists paths over sessions with the longhaul processes of other hosts.
struct OverSession<'a> {
    connection: &'a ConnectionSettings,
}

impl ListsHosts for OverSession<'_> {
    fn connection(&self) -> &ConnectionSettings {
        self.connection
    }

    fn list(
        &self,
        host: &dyn Host,
        path: &[u8],
        depth: Depth,
        tell: &mut Tell<'_>,
    ) -> Result<(), Stop> {
        let settings = TransferSettings::default();
        let peer = Peer::new(host, self.connection, &settings, None)?;
        let request = ListRequest {
            credential: None,
            path: path.to_vec(),
            recursive: depth.recursive,
            details: depth.details,
        };
        peer.list(request, &mut |listed| {
            if !depth.recursive {
                check_depth(&listed, levels(path))?;
            }
            tell(listed)
        })
    }
}

/// Returns the maximum depth of names in a flat listing: 1 for a directory, or one more than the
/// number of path components from the first wildcard on.
fn levels(path: &[u8]) -> usize {
    let matched = &path[above_wildcards(path).len()..];
    if matched.iter().any(|byte| b"*?[".contains(byte)) {
        matched.split(|&byte| byte == b'/').count() + 1
    } else {
        1
    }
}

/// Returns an error if a flat listing contains an entry deeper than `levels`.
fn check_depth(listed: &Listed, levels: usize) -> Result<(), Stop> {
    let Listed::Entries(entries) = listed else {
        return Ok(());
    };
    let below = |entry: &&ListedEntry| entry.path.names().nth(levels).is_some();
    match entries.iter().find(below) {
        None => Ok(()),
        Some(entry) => {
            let text = format!(
                "the other end listed {}, which the command did not ask for: it is broken or \
                 hostile",
                entry.path
            );
            Err(Stop::new(Exit::Integrity, text))
        }
    }
}
