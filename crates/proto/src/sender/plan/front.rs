//! The front of a file that keeps growing, such as a log. The front is read, sent, and read again
//! before it is sealed. It is one state of the file if both reads agree.

use std::collections::{BTreeMap, VecDeque};

use crate::block::PieceName;
use crate::digest::Checksum;

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

    /// Begins the second read of all pieces, unless it has begun.
    pub fn begin_second_read(&mut self) {
        if !self.begun {
            self.begun = true;
            self.unchecked.extend(self.read.keys().copied());
        }
    }

    /// True if pieces must be read again.
    pub fn has_unchecked(&self) -> bool {
        !self.unchecked.is_empty()
    }

    /// True if all pieces were read again.
    pub fn is_checked(&self) -> bool {
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
