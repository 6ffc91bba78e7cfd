//! Of several sources with something in common, what the ones before have: of two
//! files with one name the first source's is copied, whatever threads do, and the other one
//! is a failure.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use longhaul_proto::manifest::TreePath;
use longhaul_storage::beneath::open_beneath;
use longhaul_storage::{FileKind, Status};

use super::source::{Source, What};

/// Paths that are remembered, in some 20 MB. With more, each further one is
/// looked for where the earlier sources lie.
const MOST_REMEMBERED: usize = 1 << 20;

/// What becomes of a name that earlier sources may have.
pub(super) enum Settled<'a> {
    /// It is reported with this status: its own; of a directory the first one's, so that it does
    /// not matter which is done last.
    Told(Status),
    /// It is the very file that was reported already.
    Same,
    /// This source has the name for something else, or for a file of its own.
    Taken(&'a Source),
}

/// What was told of, where sources may have something in common: only what is
/// in there has to be looked for.
pub(super) struct Earlier {
    /// Sources with names of their own have nothing in common: such are refused.
    merges: bool,
    hashes: RandomState,
    told: HashSet<u64>,
    /// Not all of them are in it.
    overflowed: bool,
}

impl Earlier {
    /// Nothing was told of these yet.
    pub(super) fn new(sources: &[Source]) -> Earlier {
        let fills = |source: &Source| source.what == What::Contents;
        Earlier {
            merges: sources.len() > 1 && sources.iter().any(fills),
            hashes: RandomState::new(),
            told: HashSet::new(),
            overflowed: false,
        }
    }

    /// This was told of.
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

    /// What becomes of a path that the sources `before` may have too.
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

/// What a source has at a path beneath the anchor; none also where it cannot be
/// looked at, or is not copied.
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
