//! Lists an endpoint and reports the entries as they are found.

use longhaul_engine::listing::{self, Depth, Found, ListError};
use longhaul_engine::send::wildcards::above_wildcards;
use longhaul_engine::session::TransferSettings;
use longhaul_proto::listing::{ListRequest, Listed, ListedEntry};
use longhaul_storage::roots::Anywhere;

use crate::client::peer::Peer;
use crate::endpoint::{Endpoint, RemotePath};
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
    match (endpoint, endpoint.remote_path()) {
        (Endpoint::Local(path), _) => list_here(path, depth, tell),
        (_, Some(RemotePath::Path(path))) => {
            let settings = TransferSettings::default();
            let peer = Peer::new(endpoint, connection, &settings, None)?;
            let request = ListRequest {
                credential: None,
                path: path.clone(),
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
        _ => {
            let text = "null:, zero: and - hold nothing that could be listed: name a path";
            Err(Stop::new(Exit::Usage, text))
        }
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

fn list_here(
    path: &[u8],
    depth: Depth,
    tell: &mut dyn FnMut(Listed) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let told = listing::list(&Anywhere, path, depth, &mut |found| match found {
        Found::Entry(entry) => tell(Listed::Entries(vec![entry])),
        Found::Failed(failure) => tell(Listed::Failed(failure)),
    });
    told.map_err(|error| match error {
        ListError::Open { .. } => Stop::because(Exit::Local, error),
        ListError::Told(stop) => stop,
    })
}
