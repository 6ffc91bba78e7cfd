//! Counts file data at the sender and reports the progress of large files.

use std::collections::BTreeSet;

use super::track::{Stage, Tracked};
use super::{BlockId, Sender};
use crate::account::Account;
use crate::block::{ContentName, PieceName};
use crate::criteria::Held;
use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::message::{Change, Failure, Removal};

/// Event of an entry, for observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryEvent {
    /// The entry is done.
    Ended {
        /// The entry.
        entry: Entry,
        /// Result of the entry.
        ending: Ending,
    },
    /// An earlier session left durable bytes of the entry.
    Resumed {
        /// The entry.
        entry: Entry,
        /// Number of bytes that are neither read nor sent again.
        bytes: u64,
    },
    /// More of the entry is durable. It does not have its name yet.
    Durable {
        /// The entry.
        entry: Entry,
        /// Total durable bytes, including those of earlier sessions.
        bytes: u64,
    },
    /// A block arrived corrupt and is sent again.
    Damaged {
        /// The entry; for a pack the first corrupt one.
        entry: Entry,
        /// Offset and length of a large file's block.
        piece: Option<(u64, u64)>,
        /// Number of corrupt entries.
        entries: usize,
    },
    /// Result of deleting a name that the source does not have.
    Removed(Removal),
}

/// Result of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The entry was copied.
    Committed(Option<Checksum>),
    /// The entry already existed.
    Skipped(Option<Checksum>),
    /// The entry already existed, and its owner, mode, time or attributes were corrected.
    Mended(Option<Checksum>),
    /// In a dry run: the entry would be copied.
    Planned(Change),
    /// The destination omits the entry.
    LeftOut,
    /// The existing state at the destination remains.
    Left(Held),
    /// The entry failed.
    Failed(Failure),
}

impl Sender {
    /// Returns the account of file data so far.
    pub fn account(&self) -> Account {
        Account {
            // A block without data counts as one byte in the measurement of rates.
            arrived_bytes: self.account.arrived_bytes.min(self.account.moved_bytes),
            discarded_bytes: self.plan.discarded_bytes(),
            ..self.account
        }
    }

    /// Counts a block that a stream took. In a twin of a pack, some entries may be done meanwhile.
    /// `bytes` includes their bytes, which move again.
    pub(super) fn count_moved(&mut self, block: BlockId, bytes: u64) {
        match self.plan.content(block) {
            Some(&ContentName::Piece(piece)) => self.count_piece(piece),
            Some(ContentName::Pack(ids)) => {
                let mut left = bytes;
                for id in ids {
                    let Some(tracked) = self.entries.get_mut(id) else {
                        continue;
                    };
                    if !matches!(tracked.entry.kind, EntryKind::File { .. }) {
                        continue;
                    }
                    let (share, size) = (&mut tracked.share, tracked.entry.size());
                    let earlier = share.moved;
                    self.account.take_back(share, earlier);
                    self.account.add_moved(share, size, size);
                    left = left.saturating_sub(size);
                }
                self.account.add_unclaimed(left);
            }
            None => {}
        }
    }

    fn count_piece(&mut self, piece: PieceName) {
        let Some(tracked) = self.entries.get_mut(&piece.file) else {
            self.account.add_unclaimed(piece.length);
            return;
        };
        let (share, end) = (&mut tracked.share, piece.offset + piece.length);
        if let Stage::Large(large) = &mut tracked.stage {
            let fresh = large.moved.missing(piece.offset, end);
            large.moved.insert(piece.offset, end);
            self.account.add_moved(share, piece.length, fresh);
        }
    }

    /// Counts further durable bytes of a large file.
    pub(super) fn count_durable(&mut self, id: EntryId, bytes: u64) {
        if let Some(tracked) = self.entries.get_mut(&id) {
            self.account.add_durable(&mut tracked.share, bytes);
        }
    }

    /// Counts bytes of a large file that an earlier session left.
    pub(super) fn count_resumed(&mut self, id: EntryId, bytes: u64) {
        if let Some(tracked) = self.entries.get_mut(&id).filter(|_| bytes > 0) {
            self.account.add_resumed(&mut tracked.share, bytes);
            self.events.push_back(EntryEvent::Resumed {
                entry: tracked.entry.clone(),
                bytes,
            });
        }
    }

    /// Counts an entry that has its name.
    pub(super) fn count_committed(&mut self, tracked: &mut Tracked) {
        let size = tracked.entry.size();
        self.account.complete(&mut tracked.share, size);
    }

    /// Reports the durable bytes of these files.
    pub(super) fn report_durable(&mut self, files: BTreeSet<EntryId>) {
        for id in files {
            let tracked = self.entries.get(&id);
            if let Some(tracked) = tracked.filter(|tracked| tracked.share.durable > 0) {
                self.events.push_back(EntryEvent::Durable {
                    entry: tracked.entry.clone(),
                    bytes: tracked.share.at_destination(),
                });
            }
        }
    }

    /// Reports a block that arrived corrupt, by its content.
    pub(super) fn report_damaged(&mut self, content: &ContentName) {
        let (piece, ids) = match content {
            ContentName::Piece(piece) => (Some((piece.offset, piece.length)), vec![piece.file]),
            ContentName::Pack(ids) => (None, ids.clone()),
        };
        let known: Vec<EntryId> = ids
            .into_iter()
            .filter(|id| self.entries.contains_key(id))
            .collect();
        if let Some(first) = known.first().and_then(|id| self.entries.get(id)) {
            self.events.push_back(EntryEvent::Damaged {
                entry: first.entry.clone(),
                piece,
                entries: known.len(),
            });
        }
    }
}
