//! Finds names that several sources have. If two files have one name, the first source's file is
//! copied, independent of the order of threads, and the other one is a failure.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use longhaul_proto::manifest::TreePath;
use longhaul_storage::beneath::open_beneath;
use longhaul_storage::{FileKind, Status};

use super::source::{Source, What};

/// Maximum number of remembered paths, in about 20 MB. Beyond it, each path is looked up in the
/// earlier sources.
const MOST_REMEMBERED: usize = 1 << 20;

/// Result for a name that earlier sources may have.
pub(super) enum Settled<'a> {
    /// The entry is reported with this status: its own or, for a directory, the first source's, so
    /// that the order of completion does not matter.
    Told(Status),
    /// It is the same file that was already reported.
    Same,
    /// This source has another kind of entry, or another file, under the name.
    Taken(&'a Source),
}

/// Paths that were reported, if sources may share names. Only these need a lookup.
pub(super) struct Earlier {
    /// True if sources may share names. Duplicate names of sources are refused earlier.
    merges: bool,
    hashes: RandomState,
    told: HashSet<u64>,
    /// True if some paths are missing in the set.
    overflowed: bool,
}

impl Earlier {
    /// Creates an empty record for these sources.
    pub(super) fn new(sources: &[Source]) -> Earlier {
        let fills = |source: &Source| source.what == What::Contents;
        Earlier {
            merges: sources.len() > 1 && sources.iter().any(fills),
            hashes: RandomState::new(),
            told: HashSet::new(),
            overflowed: false,
        }
    }

    /// Records a reported path.
    pub(super) fn note(&mut self, path: &TreePath) {
        if !self.merges {
            return;
        }
        let hash = self.hash(path);
        if self.told.len() < MOST_REMEMBERED {
            self.told.insert(hash);
        } else {
            self.overflowed |= !self.told.contains(&hash);
        }
    }

    /// Decides about a path that the sources `before` may have too.
    pub(super) fn settle<'a>(
        &self,
        before: &'a [Source],
        path: &TreePath,
        status: Status,
    ) -> Settled<'a> {
        if !self.merges || !self.overflowed && !self.told.contains(&self.hash(path)) {
            return Settled::Told(status);
        }
        let found = before
            .iter()
            .find_map(|source| Some((source, look_for(source, path)?)));
        let place = |status: &Status| (status.device, status.inode);
        match found {
            None => Settled::Told(status),
            Some((_, first)) if [first.kind, status.kind] == [FileKind::Directory; 2] => {
                Settled::Told(first)
            }
            Some((_, first)) if place(&first) == place(&status) => Settled::Same,
            Some((source, _)) => Settled::Taken(source),
        }
    }

    fn hash(&self, path: &TreePath) -> u64 {
        self.hashes.hash_one(path.as_bytes())
    }
}

/// Returns the status of a path beneath the anchor in a source; `None` also if it cannot be
/// examined or is not copied.
fn look_for(source: &Source, path: &TreePath) -> Option<Status> {
    let inner = source.inner_path(path)?;
    let directory = source.directory.open().ok()?;
    let status = match inner {
        None => directory.status(),
        Some(inner) => match inner.parent() {
            None => directory.status_of(inner.name()),
            Some(parent) => open_beneath(&*directory, &parent)
                .and_then(|directory| directory.status_of(inner.name())),
        },
    };
    status
        .ok()
        .filter(|status| status.kind != FileKind::Special)
}
