//! What the sender counts of file data, and what it reports of large files
//! that are not done.

use std::collections::BTreeSet;

use super::track::{Stage, Tracked};
use super::{BlockId, Sender};
use crate::account::Account;
use crate::block::{ContentName, PieceName};
use crate::criteria::Held;
use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::message::{Change, Failure, Removal};

/// What became of an entry, for observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryEvent {
    /// It is done.
    Ended {
        /// The entry.
        entry: Entry,
        /// How it ended.
        ending: Ending,
    },
    /// The bytes of it that an earlier session left durable.
    Resumed {
        /// The entry.
        entry: Entry,
        /// Bytes, neither read nor sent again.
        bytes: u64,
    },
    /// More of it is durable, still without its name.
    Durable {
        /// The entry.
        entry: Entry,
        /// Bytes in all, those of earlier sessions too.
        bytes: u64,
    },
    /// A block arrived wrong: it is sent again.
    Damaged {
        /// The entry; of a pack the first one that arrived wrong.
        entry: Entry,
        /// Of a large file, offset and length of the block.
        piece: Option<(u64, u64)>,
        /// Entries that arrived wrong.
        entries: usize,
    },
    /// What became of a name that the source does not have.
    Removed(Removal),
}

/// How an entry ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Moved.
    Committed(Option<Checksum>),
    /// Was there.
    Skipped(Option<Checksum>),
    /// Was there, and its owner, mode, time or attributes were corrected.
    Mended(Option<Checksum>),
    /// Would be moved, were this no dry run.
    Planned(Change),
    /// The destination does without it.
    LeftOut,
    /// Stays as it is at the destination.
    Left(Held),
    /// Failed.
    Failed(Failure),
}

impl Sender {
    /// What became of file data so far.
    pub fn account(&self) -> Account {
        Account {
            // A block without data counts a byte where rates are measured.
            arrived_bytes: self.account.arrived_bytes.min(self.account.moved_bytes),
            discarded_bytes: self.plan.discarded_bytes(),
            ..self.account
        }
    }

    /// A stream took a block. Of a twin of a pack some entries may be done
    /// meanwhile: their bytes move again, and `bytes` has them.
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

    /// The receiver reported further bytes of a large file.
    pub(super) fn count_durable(&mut self, id: EntryId, bytes: u64) {
        if let Some(tracked) = self.entries.get_mut(&id) {
            self.account.add_durable(&mut tracked.share, bytes);
        }
    }

    /// Bytes of a large file that were there already.
    pub(super) fn count_resumed(&mut self, id: EntryId, bytes: u64) {
        if let Some(tracked) = self.entries.get_mut(&id).filter(|_| bytes > 0) {
            self.account.add_resumed(&mut tracked.share, bytes);
            self.events.push_back(EntryEvent::Resumed {
                entry: tracked.entry.clone(),
                bytes,
            });
        }
    }

    /// An entry has its name.
    pub(super) fn count_committed(&mut self, tracked: &mut Tracked) {
        let size = tracked.entry.size();
        self.account.complete(&mut tracked.share, size);
    }

    /// Reports what is durable of files of which a message told.
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

    /// Reports a block that arrived wrong, by what it held.
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
