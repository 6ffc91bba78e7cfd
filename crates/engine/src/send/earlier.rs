//! Of several sources with something in common, what the ones before have: of two
//! files with one name the first source's is copied, as rsync does, whatever
//! threads do.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use longhaul_proto::manifest::TreePath;

use super::source::{Source, What};
use crate::storage::beneath::open_beneath;
use crate::storage::{FileKind, Status};

/// Paths that are remembered, in some 20 MB. With more, each further one is
/// looked for where the earlier sources lie.
const MOST_REMEMBERED: usize = 1 << 20;

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
        match self.told.len() < MOST_REMEMBERED {
            true => drop(self.told.insert(hash)),
            false => self.overflowed |= !self.told.contains(&hash),
        }
    }

    /// With what status a path is told of that the sources `before` may have too:
    /// its own; of a directory the first one's, so that it does not matter which is
    /// done last. None where an earlier source has it for something else, or for
    /// a file of its own.
    pub(super) fn settle(
        &self,
        before: &[Source],
        path: &TreePath,
        status: Status,
    ) -> Option<Status> {
        if !self.merges || !self.overflowed && !self.told.contains(&self.hash(path)) {
            return Some(status);
        }
        let Some(first) = before.iter().find_map(|source| look_for(source, path)) else {
            return Some(status);
        };
        let both = [first.kind, status.kind] == [FileKind::Directory; 2];
        both.then_some(first)
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
