//! Fronts that must be read again before they are sealed.

use std::collections::{BTreeMap, VecDeque};

use super::blocks::Blocks;
use super::tasks::Tasks;
use crate::block::PieceName;
use crate::manifest::EntryId;
use crate::sender::results::{BlockId, ReadData, ReadJob};

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
        front.begin_second_read();
        // Data that was lost and read again may be cut differently and must also be checked.
        if front.has_unchecked() && !self.unchecked.contains(&id) {
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
