//! Lists a path for a principal with read access.

use std::time::Duration;

use longhaul_engine::listing::{Depth, Found, ListError, list, list_each};
use longhaul_engine::send::wildcards::{Room, above_wildcards, expand};
use longhaul_engine::session::opening::{self, OpenError};
use longhaul_net::Stream;
use longhaul_proto::handshake::{Answer, Refusal, Refused};
use longhaul_proto::listing::{Gathered, ListRequest, Listed, ListedEntry, ListedKind};
use longhaul_proto::manifest::TreePath;
use longhaul_storage::roots::{Anywhere, OpenRoot};

use serde_json::json;

use super::Daemon;
use super::admission::{Visitor, authenticate, not_permitted, open_root, path_beneath, refused};
use super::audit::name_of;
use super::quotas::{Held, Most};

/// Limit on simultaneous listings. A listing whose reader waits, such as a pager, occupies a
/// thread.
const MOST_LISTINGS: Most = Most::shared(64);

/// Maximum time for the client to read the end of a listing.
const LAST_WORDS: Duration = Duration::from_secs(10);

impl Daemon {
    /// Answers a listing request and closes the stream.
    pub(super) fn list(&self, mut stream: Stream, asked: &ListRequest, visitor: Visitor) {
        let who = self.described(asked.credential.as_ref(), &stream, &visitor.peer);
        let shown = String::from_utf8_lossy(&asked.path);
        let refused_as = format!("{who}, listing {shown},");
        let opened = self.open_listed(asked, &stream, visitor.owner);
        let (root, path, _place) = match opened {
            Ok(Opened::Path(root, path, place)) => (root, path, place),
            Ok(Opened::Roots(names)) => {
                drop(visitor);
                tracing::info!("{who}: listed {shown}, {} roots", names.len());
                let told = tell_roots(&mut stream, &names);
                if told.and_then(|()| send(&mut stream, Listed::End)).is_ok() {
                    opening::close(&mut stream, LAST_WORDS);
                }
                return;
            }
            Err(refused) => return self.refuse(&mut stream, refused, &refused_as),
        };
        drop(visitor);
        let depth = Depth {
            recursive: asked.recursive,
            details: asked.details,
        };
        let paths = match expand(&*root, &path, false, Room::WHOLE) {
            Ok(paths) => paths,
            Err(error) => {
                let refused = refused(Refusal::Path, error.to_string());
                return self.refuse(&mut stream, refused, &refused_as);
            }
        };
        let mut gathered = Gathered::default();
        let mut entries = 0_u64;
        let mut tell = |found| {
            entries += 1;
            tell(&mut stream, &mut gathered, found)
        };
        let told = match paths.as_slice() {
            [only] if *only == path => list(&*root, &path, depth, &mut tell),
            _ => {
                let matches = (above_wildcards(&path), &paths[..]);
                list_each(&*root, matches, depth, &mut tell).map_err(ListError::Told)
            }
        };
        let log = |ended: &str| {
            if let Some(audit) = &self.audit {
                let path = name_of(&asked.path);
                let fields = json!({ "client": who, "path": path, "entries": entries });
                audit.note("listed", &fields);
            }
            tracing::info!(entries, "{who}: listed {shown}, {entries} entries{ended}");
        };
        match told {
            Ok(()) => {
                let last = gathered.take();
                let ended = last.map_or(Ok(()), |listed| send(&mut stream, listed));
                if ended.and_then(|()| send(&mut stream, Listed::End)).is_ok() {
                    opening::close(&mut stream, LAST_WORDS);
                }
                log("");
            }
            Err(error @ ListError::Open { .. }) => {
                self.refuse(
                    &mut stream,
                    refused(Refusal::Path, error.to_string()),
                    &refused_as,
                );
            }
            // A client that disconnects needs no further entries.
            Err(ListError::Told(OpenError::Io(_))) => log("; the client left before the end"),
            Err(ListError::Told(error)) => log(&format!("; {error}")),
        }
    }

    /// Opens the root of the requested path and returns the path relative to it.
    fn open_listed(
        &self,
        asked: &ListRequest,
        stream: &Stream,
        owner: bool,
    ) -> Result<Opened, Refused> {
        if !asked.is_valid() {
            return Err(refused(
                Refusal::Malformed,
                "the request for a listing is invalid",
            ));
        }
        if self
            .client
            .as_ref()
            .is_some_and(|client| client.allowed.is_some())
        {
            return Err(not_permitted("read"));
        }
        let principals = self.principals();
        let principal = match principals.owning().filter(|_| owner) {
            Some(principal) => principal,
            None => authenticate(&principals, asked.credential.as_ref(), stream)?,
        };
        let place = || {
            let text = "the daemon makes as many listings as it may: try again later";
            let place = self.listings.take(principal.name(), MOST_LISTINGS);
            place.ok_or_else(|| refused(Refusal::Busy, text))
        };
        if principal.is_owner() {
            let path = asked.path.clone();
            return Ok(Opened::Path(Box::new(Anywhere), path, place()?));
        }
        let resolved = match principal.resolve(&asked.path) {
            Ok(resolved) => resolved,
            Err(_) => {
                let names = principal.steps_to_roots(&asked.path);
                let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
                return if names.is_empty() {
                    Err(not_permitted("read"))
                } else {
                    Ok(Opened::Roots(names))
                };
            }
        };
        if !resolved.rights.read {
            return Err(not_permitted("read"));
        }
        let place = place()?;
        let root = open_root(&resolved)?;
        let path = path_beneath(&resolved, &asked.path);
        Ok(Opened::Path(Box::new(root), path, place))
    }
}

/// Subject of a listing.
enum Opened {
    /// A root, a path relative to it, and the reservation of a listing.
    Path(Box<dyn OpenRoot>, Vec<u8>, Held),
    /// Names that lead to the principal's roots, if the path is above them.
    Roots(Vec<String>),
}

/// Lists the names from the principals file without accessing the file system.
fn tell_roots(stream: &mut Stream, names: &[String]) -> Result<(), OpenError> {
    let mut gathered = Gathered::default();
    for name in names {
        let Ok(path) = TreePath::new(name.as_bytes()) else {
            continue;
        };
        let entry = ListedEntry {
            path,
            kind: ListedKind::Directory,
            details: None,
        };
        tell(stream, &mut gathered, Found::Entry(entry))?;
    }
    gathered
        .take()
        .map_or(Ok(()), |listed| send(stream, listed))
}

fn send(stream: &mut Stream, listed: Listed) -> Result<(), OpenError> {
    opening::send(stream, &Answer::Listed(listed))
}

fn tell(stream: &mut Stream, gathered: &mut Gathered, found: Found) -> Result<(), OpenError> {
    match found {
        Found::Entry(entry) => match gathered.push(entry) {
            Some(listed) => send(stream, listed),
            None => Ok(()),
        },
        Found::Failed(failure) => {
            if let Some(listed) = gathered.take() {
                send(stream, listed)?;
            }
            send(stream, Listed::Failed(failure))
        }
    }
}
