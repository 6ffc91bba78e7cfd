//! What tells one transfer from another, so that the same command, run again, goes on.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_engine::storage::origin::known_everywhere;

use super::here::Here;
use super::run::{host_name, owner};
use crate::endpoint::Endpoint;

/// A transfer's name on this host, and on every host that sees the same sources.
pub struct TransferKey {
    /// Hash of this host and the sources.
    pub source: [u8; 32],
    /// Hash of the sources; none where another host's would be other ones.
    pub anywhere: Option<[u8; 32]>,
}

impl TransferKey {
    /// Of these sources.
    ///
    /// # Errors
    ///
    /// Where a relative path is nowhere.
    pub fn new(sources: &[Endpoint], here: &Here) -> io::Result<TransferKey> {
        let host = host_name();
        let mut key = TransferKey {
            source: hash(host.as_bytes(), sources, here)?,
            anywhere: None,
        };
        let known = match sources.first() {
            Some(Endpoint::Local(path)) => here
                .path(path)
                // One that cannot be looked at is told of when it is opened.
                .and_then(|path| known_everywhere(path).ok().flatten()),
            Some(Endpoint::Daemon(_) | Endpoint::Ssh(_)) => Some(Vec::new()),
            Some(Endpoint::Standard | Endpoint::Null | Endpoint::Zero(_)) | None => None,
        };
        if let Some(known) = known {
            key.anywhere = Some(hash(&known, sources, here)?);
        }
        Ok(key)
    }
}

fn hash(place: &[u8], sources: &[Endpoint], here: &Here) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new_derive_key("longhaul 2026 source of a transfer");
    hasher.update(place);
    hasher.update(here.principal().unwrap_or_default().as_bytes());
    for source in sources {
        hasher.update(b"\0");
        match source {
            Endpoint::Local(path) => {
                let whole = std::path::absolute(Path::new(OsStr::from_bytes(path)))?;
                hasher.update(whole.as_os_str().as_bytes());
            }
            // Read once: no other run has the same source.
            Endpoint::Standard => {
                hasher.update(&owner().session);
            }
            other => {
                hasher.update(format!("{other:?}").as_bytes());
            }
        }
    }
    Ok(*hasher.finalize().as_bytes())
}
