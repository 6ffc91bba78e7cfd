//! What a sender knows of an entry that is not done.

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
    /// How often the source changed under the copy.
    pub generation: u32,
    /// How often it arrived wrong.
    pub corruptions: u32,
    /// Each change so far made it longer.
    pub only_grew: bool,
    /// It went through a command: what is sent is the output.
    pub filtered: bool,
    /// What is counted of it.
    pub share: Share,
    pub stage: Stage,
    /// What it weighs in the window's bytes. A directory weighs nothing while the walk is in it,
    /// so that a deep tree cannot keep the walk from going on.
    pub weighs: usize,
}

/// Where it is on its way. `Asked` -> `Small` or `Large`, perhaps by way of `Compared` or
/// `Filtering`; `Small` ->
/// `Packed`; `Packed` -> `Small` when it was lost; any -> `Abandoned`. It leaves when the receiver
/// says how it ended.
#[derive(Debug)]
pub(super) enum Stage {
    /// The receiver has not answered yet.
    Asked,
    /// The receiver compares what it has with this file's digest, which is read for that.
    Compared,
    /// It waits for the command that it goes through, or is in it.
    Filtering,
    /// A directory; done after all it holds.
    Directory,
    /// Waits for a pack.
    Small,
    /// In a pack.
    Packed(BlockId),
    /// Goes in pieces.
    Large(Box<Large>),
    /// Will not come; the receiver has the last word, because an earlier block
    /// of it may be there already.
    Abandoned,
}

/// A file that goes in pieces.
#[derive(Debug)]
pub(super) struct Large {
    pub size: u64,
    /// Cut into blocks that are under way, or durable.
    pub planned: RangeSet,
    /// Read from this generation of the source, or not needed.
    pub read: RangeSet,
    /// Handed to streams.
    pub moved: RangeSet,
    /// Acknowledged.
    pub durable: RangeSet,
    pub sealed: bool,
    /// Pieces came wrong, and nothing was read since: where the source changed under
    /// what was under way, all of that comes wrong before reading finds it.
    pub doubted: bool,
    /// It keeps growing, and its front is sent.
    pub front: Option<Front>,
    /// Blocks under way by first byte: one past their last byte, and their
    /// number; more than one where a twin is under way too.
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

    /// It goes in pieces; what `prepare` says of it is known already.
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

    /// Some of it must come again.
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

    /// Removes a block that begins at `offset`; true where another one with
    /// the same first byte is under way.
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

    /// Takes out the blocks that lie within `[start, end)`.
    pub fn take_covered(&mut self, start: u64, end: u64) -> Vec<BlockId> {
        self.take(start, end, |stop| stop <= end)
    }

    /// Takes out the blocks that have a byte in `[start, end)`.
    pub fn take_overlapping(&mut self, start: u64, end: u64) -> Vec<BlockId> {
        let first = self.blocks.range(..start).next_back();
        let from = first.map_or(start, |(&offset, _)| offset);
        self.take(from, end, |stop| stop > start)
    }

    /// Takes out the blocks that begin in `[from, to)` and are `wanted` by
    /// one past their last byte.
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
