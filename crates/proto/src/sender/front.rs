//! Sends the front of a file that keeps growing, such as a log. The front is read, sent, and read
//! again before it is sealed. It is one state of the file if both reads agree.

use std::collections::{BTreeMap, VecDeque};

use super::{BlockId, MAXIMUM_RESTARTS, ReadJob, Sender, Stage, Tracked, Work};
use crate::block::PieceName;
use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId};
use crate::message::{Failure, FailureKind};

/// Number of growths of a file after which its front is sent.
const MOST_GROWTHS: u32 = 2;

/// State of a front.
#[derive(Debug, Default)]
pub(super) struct Front {
    /// Checksums of the pieces at the first read, by offset and length.
    read: BTreeMap<(u64, u64), Checksum>,
    /// Pieces that must be read again, after all of the front was read.
    unchecked: VecDeque<(u64, u64)>,
    /// Number of pieces that are being read again.
    checking: usize,
    /// True if the second read has begun.
    begun: bool,
}

impl Front {
    /// Records a piece. Returns true unless an earlier read of it had another checksum.
    fn note(&mut self, piece: PieceName, checksum: Checksum) -> bool {
        let range = (piece.offset, piece.length);
        match self.read.insert(range, checksum) {
            Some(earlier) => earlier == checksum,
            None => {
                if self.begun {
                    self.unchecked.push_back(range);
                }
                true
            }
        }
    }

    fn is_checked(&self) -> bool {
        self.begun && self.unchecked.is_empty() && self.checking == 0
    }
}

impl Sender {
    /// True if a file that changed once more is sent as a front of its current size.
    pub(super) fn goes_as_front(&self, tracked: &Tracked) -> bool {
        self.settings.fronts && tracked.only_grew && tracked.generation >= MOST_GROWTHS
    }

    /// Makes a file a front.
    pub(super) fn begin_front(&mut self, id: EntryId) {
        if let Some(tracked) = self.entries.get_mut(&id) {
            let front = Some(Front::default());
            tracked.make_large(|large| large.front = front);
            self.plan.queue_large(id);
        }
    }

    /// Handles a piece of a front that was read. Returns false under the same condition as
    /// [`Sender::handle_pack_read`].
    pub(super) fn handle_front_read(&mut self, block: BlockId, checksum: Checksum) -> bool {
        let Some(piece) = self.plan.piece(block) else {
            return false;
        };
        let Some(large) = self
            .entries
            .get_mut(&piece.file)
            .and_then(Tracked::large_mut)
        else {
            return false;
        };
        let sealed = large.sealed;
        let Some(front) = &mut large.front else {
            return false;
        };
        let known = front.read.contains_key(&(piece.offset, piece.length));
        if !front.note(piece, checksum) || sealed && !known {
            self.give_up(piece.file);
            return false;
        }
        self.mark_read(piece);
        self.plan.make_ready(block)
    }

    /// True if a file that was read completely may be sealed. The second read of a front begins
    /// here and must finish first.
    pub(super) fn is_front_checked(&mut self, id: EntryId) -> bool {
        let Some(large) = self.entries.get_mut(&id).and_then(Tracked::large_mut) else {
            return false;
        };
        let Some(front) = &mut large.front else {
            return true;
        };
        if !front.begun {
            front.begun = true;
            front.unchecked.extend(front.read.keys().copied());
        }
        // Data that was lost and read again may be cut differently and must also be checked.
        if !front.unchecked.is_empty() && !self.unchecked_fronts.contains(&id) {
            self.unchecked_fronts.push_back(id);
        }
        front.is_checked()
    }

    /// Returns the next piece to read again.
    pub(super) fn next_check(&mut self) -> Option<ReadJob> {
        while let Some(&id) = self.unchecked_fronts.front() {
            if let Some((entry, piece, earlier)) = self.take_unchecked(id) {
                let block = self.plan.take_number();
                self.checks.insert(block, piece);
                let earlier = Some(earlier);
                let work = Work::Front {
                    entry,
                    piece,
                    earlier,
                };
                return Some(ReadJob { block, work });
            }
            self.unchecked_fronts.pop_front();
        }
        None
    }

    fn take_unchecked(&mut self, id: EntryId) -> Option<(Entry, PieceName, Checksum)> {
        let tracked = self.entries.get_mut(&id)?;
        let generation = tracked.generation;
        let Stage::Large(large) = &mut tracked.stage else {
            return None;
        };
        let front = large.front.as_mut()?;
        let (offset, length) = front.unchecked.pop_front()?;
        let earlier = *front.read.get(&(offset, length))?;
        front.checking += 1;
        let piece = PieceName {
            file: id,
            generation,
            offset,
            length,
        };
        Some((tracked.entry.clone(), piece, earlier))
    }

    /// Handles a piece that was read again.
    pub(super) fn handle_checked(&mut self, piece: PieceName, same: bool) {
        let Some(tracked) = self.entries.get_mut(&piece.file) else {
            return;
        };
        if tracked.generation != piece.generation {
            return;
        }
        let Some(front) = tracked.large_mut().and_then(|large| large.front.as_mut()) else {
            return;
        };
        front.checking = front.checking.saturating_sub(1);
        if same {
            self.seal_if_read(piece.file);
        } else {
            self.give_up(piece.file);
        }
    }

    /// Gives up a file that changes too often.
    pub(super) fn give_up(&mut self, id: EntryId) {
        let text = "it keeps changing while it is copied: copy it again when nobody writes to it";
        self.abandon(id, Failure::new(FailureKind::Changing, text));
    }

    /// True if an entry may change once more.
    pub(super) fn may_restart(&self, id: EntryId) -> bool {
        let tracked = self.entries.get(&id);
        tracked.is_some_and(|tracked| tracked.generation <= MAXIMUM_RESTARTS)
    }
}
