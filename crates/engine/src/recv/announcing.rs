//! Announces commits and deletions at the destination before they are made.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use longhaul_proto::manifest::{Entry, TreePath};
use longhaul_proto::message::Failure;
use longhaul_storage::StoredFile;

use super::landing::Destination;
use crate::intents::{Intent, IntentKind, unannounced};

/// Returns the path on this host of a path beneath the anchor.
pub(super) fn host_path(destination: &Destination, path: &TreePath) -> Option<PathBuf> {
    if destination.is_sink {
        return None;
    }
    let anchor = destination.anchor.location()?;
    Some(anchor.join(OsStr::from_bytes(path.as_bytes())))
}

/// Announces the commit of a large file, or of a stream without a `file`.
pub(super) fn announce_commit(
    destination: &Destination,
    entry: &Entry,
    file: Option<&dyn StoredFile>,
) -> Result<(), Failure> {
    let Some(intents) = &destination.intents else {
        return Ok(());
    };
    let status = file.and_then(|file| file.status().ok());
    let intent = Intent {
        kind: IntentKind::Commit,
        host_path: host_path(destination, &destination.path_of(&entry.path)),
        path: entry.path.clone(),
        size: status
            .as_ref()
            .map_or_else(|| entry.size(), |status| status.size),
        inode: status.map(|status| status.inode),
    };
    let announced = intents.announce(&[intent]);
    announced.map_err(|error| unannounced(&entry.path, &error))
}

/// Announces the deletion of a name with this size and inode.
pub(super) fn announce_deletion(
    destination: &Destination,
    path: &TreePath,
    (size, inode): (u64, u64),
) -> Result<(), Failure> {
    let Some(intents) = &destination.intents else {
        return Ok(());
    };
    let intent = Intent {
        kind: IntentKind::Delete,
        path: path.clone(),
        host_path: host_path(destination, path),
        size,
        inode: Some(inode),
    };
    let announced = intents.announce(&[intent]);
    announced.map_err(|error| unannounced(path, &error))
}
