//! Announces commits and deletions before they are made, for example to an audit log.

use std::fmt;
use std::io;
use std::path::PathBuf;

use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::Failure;
use longhaul_storage::failure::failure_of;

/// Kind of an announced change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentKind {
    /// An entry gets its name at the destination.
    Commit,
    /// A name is deleted at the destination.
    Delete,
    /// A source is removed after it was copied.
    RemoveSource,
}

/// A change that is about to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Kind of the change.
    pub kind: IntentKind,
    /// Path of the entry in the session.
    pub path: TreePath,
    /// Path on this host, if it is known.
    pub host_path: Option<PathBuf>,
    /// Size in bytes; 0 for entries that are not files.
    pub size: u64,
    /// Inode that gets or loses the name, if it is known.
    pub inode: Option<u64>,
}

/// Receives the intents of a session.
pub trait Intents: fmt::Debug + Send + Sync {
    /// Records changes durably. The changes are made only if this succeeds.
    ///
    /// # Errors
    ///
    /// The changes cannot be recorded.
    fn announce(&self, intents: &[Intent]) -> io::Result<()>;

    /// Records that a source was removed. Events of the session report all other outcomes.
    fn note_removed_source(&self, path: &TreePath);
}

/// Returns the failure of an entry whose change could not be announced.
pub(crate) fn unannounced(path: &TreePath, error: &io::Error) -> Failure {
    failure_of("record in the audit log", &path.to_string(), error)
}
