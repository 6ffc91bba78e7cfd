//! Sends the front of a file that keeps growing, such as a log. The front is read, sent, and read
//! again before it is sealed. It is one state of the file if both reads agree.

use std::collections::{BTreeMap, VecDeque};

use super::blocks::Blocks;
use super::tasks::Tasks;
use crate::block::PieceName;
use crate::digest::Checksum;
use crate::manifest::EntryId;
use crate::sender::results::{BlockId, ReadData, ReadJob};

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

    /// Records a piece of a front that is perhaps sealed. Returns true if the file has not changed,
    /// as far as the piece shows.
    pub fn accepts(&mut self, piece: PieceName, checksum: Checksum, sealed: bool) -> bool {
        let known = self.read.contains_key(&(piece.offset, piece.length));
        self.note(piece, checksum) && (known || !sealed)
    }

    /// Takes the next piece that must be read again: offset, length and earlier checksum.
    pub fn take_unchecked(&mut self) -> Option<(u64, u64, Checksum)> {
        let (offset, length) = self.unchecked.pop_front()?;
        let earlier = *self.read.get(&(offset, length))?;
        self.checking += 1;
        Some((offset, length, earlier))
    }

    /// Notes that a piece was read again.
    pub fn note_checked(&mut self) {
        self.checking = self.checking.saturating_sub(1);
    }
}

/// Fronts that must be read again.
#[derive(Debug, Default)]
pub(super) struct Fronts {
    /// Files with pieces that must be read again.
    unchecked: VecDeque<EntryId>,
    /// Pieces that are being read again.
    checks: BTreeMap<BlockId, PieceName>,
}

impl Fronts {
    /// True if a file that was read completely may be sealed. The second read of a front begins
    /// here and must finish first.
    pub fn is_checked(&mut self, id: EntryId, tasks: &mut Tasks) -> bool {
        let Some(large) = tasks.large_mut(id) else {
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
        if !front.unchecked.is_empty() && !self.unchecked.contains(&id) {
            self.unchecked.push_back(id);
        }
        front.is_checked()
    }

    /// Returns the next piece to read again.
    pub fn next_check(&mut self, tasks: &mut Tasks, blocks: &mut Blocks) -> Option<ReadJob> {
        while let Some(&id) = self.unchecked.front() {
            if let Some((entry, piece, earlier)) = tasks.take_unchecked(id) {
                let block = blocks.take_number();
                self.checks.insert(block, piece);
                let earlier = Some(earlier);
                let data = ReadData::Front {
                    entry,
                    piece,
                    earlier,
                };
                return Some(ReadJob { block, data });
            }
            self.unchecked.pop_front();
        }
        None
    }

    /// Takes a piece that was read again; `None` if the block is no such piece.
    pub fn take_check(&mut self, block: BlockId) -> Option<PieceName> {
        self.checks.remove(&block)
    }
}
