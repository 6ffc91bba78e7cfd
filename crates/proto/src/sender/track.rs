//! The sender's state of an entry that is not done.

use std::collections::BTreeMap;

use super::BlockId;
use super::front::Front;
use crate::account::Share;
use crate::ledger::RangeSet;
use crate::manifest::Entry;
use crate::message::AgainReason;

/// An entry that is not done.
#[derive(Debug)]
pub(super) struct Tracked {
    pub entry: Entry,
    /// Number of changes of the source during the copy.
    pub generation: u32,
    /// Number of times that the entry arrived corrupt.
    pub corruptions: u32,
    /// True if each change so far made the file longer.
    pub only_grew: bool,
    /// True if the file went through a command, so that its output is sent.
    pub filtered: bool,
    /// The entry's part of the account.
    pub share: Share,
    pub stage: Stage,
    /// Bytes of the entry in the window. A directory counts zero while the walk is in it, so that a
    /// deep tree cannot block the walk.
    pub weighs: usize,
}

/// Stage of an entry. `Asked` -> `Small` or `Large`, perhaps through `Compared` or `Filtering`;
/// `Small` -> `Packed`; `Packed` -> `Small` if it was lost; any -> `Abandoned`. The entry is
/// removed when the receiver reports its outcome.
#[derive(Debug)]
pub(super) enum Stage {
    /// The receiver has not answered yet.
    Asked,
    /// The file is read for its digest, with which the receiver compares its own file.
    Compared,
    /// The file waits for its command or is in it.
    Filtering,
    /// A directory. It is done after all its entries.
    Directory,
    /// The entry waits for a pack.
    Small,
    /// The entry is in a pack.
    Packed(BlockId),
    /// The file is sent in pieces.
    Large(Box<Large>),
    /// The entry will not be sent. The receiver still decides its outcome, because an earlier block
    /// of it may already be there.
    Abandoned,
}

/// A file that is sent in pieces.
#[derive(Debug)]
pub(super) struct Large {
    pub size: u64,
    /// Ranges in blocks that are under way or durable.
    pub planned: RangeSet,
    /// Ranges that were read from this generation of the source or need not be read.
    pub read: RangeSet,
    /// Ranges handed to streams.
    pub moved: RangeSet,
    /// Ranges that the receiver acknowledged as durable.
    pub durable: RangeSet,
    pub sealed: bool,
    /// True if pieces arrived corrupt and no piece was read since. If the source changed, all
    /// pieces under way can arrive corrupt before a read detects the change.
    pub doubted: bool,
    /// State of the front, if the file keeps growing.
    pub front: Option<Front>,
    /// Blocks under way by their first byte: the offset after their last byte, and their number. A
    /// twin adds a second block.
    blocks: BTreeMap<u64, Vec<(u64, BlockId)>>,
}

impl Tracked {
    pub fn new(entry: Entry, stage: Stage) -> Tracked {
        let weighs = match stage {
            Stage::Directory => 0,
            _ => entry.text_bytes(),
        };
        Tracked {
            weighs,
            entry,
            generation: 0,
            corruptions: 0,
            only_grew: true,
            filtered: false,
            share: Share::default(),
            stage,
        }
    }

    /// Makes the entry a file in pieces. `prepare` sets the ranges that are already known.
    pub fn make_large(&mut self, prepare: impl FnOnce(&mut Large)) {
        let size = self.entry.size();
        let mut large = Box::new(Large {
            size,
            planned: RangeSet::default(),
            read: RangeSet::default(),
            moved: RangeSet::default(),
            durable: RangeSet::default(),
            sealed: false,
            doubted: false,
            front: None,
            blocks: BTreeMap::new(),
        });
        prepare(&mut large);
        self.stage = Stage::Large(large);
    }

    /// Counts data that must be sent again.
    pub fn count_again(&mut self, reason: AgainReason) {
        if reason == AgainReason::Overlap {
            return;
        }
        let doubted = match self.large_mut() {
            Some(large) => std::mem::replace(&mut large.doubted, true),
            None => false,
        };
        self.corruptions += u32::from(!doubted);
    }

    pub fn large_mut(&mut self) -> Option<&mut Large> {
        match &mut self.stage {
            Stage::Large(large) => Some(large),
            _ => None,
        }
    }
}

impl Large {
    pub fn add_block(&mut self, offset: u64, end: u64, block: BlockId) {
        self.blocks.entry(offset).or_default().push((end, block));
    }

    /// Removes a block that begins at `offset`. Returns true if another block with the same first
    /// byte is under way.
    pub fn remove_block(&mut self, offset: u64, block: BlockId) -> bool {
        let Some(list) = self.blocks.get_mut(&offset) else {
            return false;
        };
        list.retain(|b| b.1 != block);
        let twin = !list.is_empty();
        if !twin {
            self.blocks.remove(&offset);
        }
        twin
    }

    /// Removes and returns the blocks within `[start, end)`.
    pub fn take_covered(&mut self, start: u64, end: u64) -> Vec<BlockId> {
        self.take(start, end, |stop| stop <= end)
    }

    /// Removes and returns the blocks that have a byte in `[start, end)`.
    pub fn take_overlapping(&mut self, start: u64, end: u64) -> Vec<BlockId> {
        let first = self.blocks.range(..start).next_back();
        let from = first.map_or(start, |(&offset, _)| offset);
        self.take(from, end, |stop| stop > start)
    }

    /// Removes and returns the blocks that begin in `[from, to)` and for which `wanted` is true,
    /// given the offset after their last byte.
    fn take(&mut self, from: u64, to: u64, wanted: impl Fn(u64) -> bool) -> Vec<BlockId> {
        let (mut taken, mut emptied) = (Vec::new(), Vec::new());
        for (&offset, list) in self.blocks.range_mut(from..to.max(from)) {
            list.retain(|&(stop, block)| {
                let goes = wanted(stop);
                if goes {
                    taken.push(block);
                }
                !goes
            });
            if list.is_empty() {
                emptied.push(offset);
            }
        }
        for offset in emptied {
            self.blocks.remove(&offset);
        }
        taken
    }

    pub fn all_blocks(&self) -> Vec<BlockId> {
        self.blocks.values().flatten().map(|b| b.1).collect()
    }
}
