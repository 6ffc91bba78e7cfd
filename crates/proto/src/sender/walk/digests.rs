//! Files that are read for their digests, because the receiver has files with the same size and
//! time. The receiver compares its contents with the digests.

use std::collections::VecDeque;

use crate::digest::Checksum;
use crate::manifest::EntryId;
use crate::message::MAXIMUM_LISTED_ENTRIES;

/// Files to read, and digests to send.
#[derive(Debug, Default)]
pub(super) struct Digests {
    unread: VecDeque<EntryId>,
    digests: Vec<(EntryId, Checksum)>,
}

impl Digests {
    /// Queues a file to be read.
    pub fn request(&mut self, id: EntryId) {
        self.unread.push_back(id);
    }

    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Takes the next file to read.
    pub fn take_unread(&mut self) -> Option<EntryId> {
        self.unread.pop_front()
    }

    /// Adds the digest of a file that was read.
    pub fn push(&mut self, id: EntryId, digest: Checksum) {
        self.digests.push((id, digest));
    }

    pub fn has_digests(&self) -> bool {
        !self.digests.is_empty()
    }

    /// Removes and returns the digests for one message.
    pub fn take(&mut self) -> Option<Vec<(EntryId, Checksum)>> {
        let count = self.digests.len().min(MAXIMUM_LISTED_ENTRIES);
        (count > 0).then(|| self.digests.drain(..count).collect())
    }
}
