//! Entries of which a part must be sent, and the state of each.

use std::collections::BTreeMap;

use super::front::Front;
use crate::account::Share;
use crate::block::{ContentName, PieceName};
use crate::digest::{Checksum, SMALLEST_BLOCK_BYTES, is_block};
use crate::ledger::RangeSet;
use crate::manifest::{Entry, EntryId};
use crate::message::AgainReason;
use crate::sender::results::{BlockId, EntryEvent};
use crate::sender::task::TaskId;

/// An entry of which a part must be sent.
#[derive(Debug)]
pub(super) struct Tracked {
    /// Number of the task.
    pub task: TaskId,
    pub entry: Entry,
    /// Number of changes of the source during the copy.
    pub generation: u32,
    /// Number of times that the entry arrived corrupt.
    pub corruptions: u32,
    /// The entry's part of the account.
    pub share: Share,
    pub stage: Stage,
}

/// Stage of an entry: `Small` or `Large`; `Small` -> `Packed`; `Packed` -> `Small` if it was lost;
/// any -> `Abandoned`. The entry is removed when the receiver reports its outcome.
#[derive(Debug)]
pub(super) enum Stage {
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

/// Entries of which a part must be sent.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    entries: BTreeMap<EntryId, Tracked>,
}

impl Tasks {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&self, id: EntryId) -> Option<&Tracked> {
        self.entries.get(&id)
    }

    pub fn get_mut(&mut self, id: EntryId) -> Option<&mut Tracked> {
        self.entries.get_mut(&id)
    }

    /// Returns a file that is sent in pieces.
    pub fn large(&self, id: EntryId) -> Option<&Large> {
        match &self.entries.get(&id)?.stage {
            Stage::Large(large) => Some(large),
            _ => None,
        }
    }

    /// Returns a file that is sent in pieces.
    pub fn large_mut(&mut self, id: EntryId) -> Option<&mut Large> {
        self.entries.get_mut(&id)?.large_mut()
    }

    /// Returns the file of a piece, unless the piece has another generation.
    pub fn large_of(&mut self, piece: PieceName) -> Option<&mut Large> {
        let tracked = self.entries.get_mut(&piece.file)?;
        if tracked.generation == piece.generation {
            tracked.large_mut()
        } else {
            None
        }
    }

    pub fn insert(&mut self, tracked: Tracked) {
        self.entries.insert(tracked.entry.id, tracked);
    }

    pub fn remove(&mut self, id: EntryId) -> Option<Tracked> {
        self.entries.remove(&id)
    }

    /// Returns the event of a block that arrived corrupt, by its content.
    pub fn damage(&self, content: &ContentName) -> Option<EntryEvent> {
        let (piece, ids) = match content {
            ContentName::Piece(piece) => (
                Some((piece.offset, piece.length)),
                std::slice::from_ref(&piece.file),
            ),
            ContentName::Pack(ids) => (None, &ids[..]),
        };
        let known: Vec<&Tracked> = ids.iter().filter_map(|id| self.get(*id)).collect();
        Some(EntryEvent::Damaged {
            entry: known.first()?.entry.clone(),
            piece,
            entries: known.len(),
        })
    }

    /// Returns the event of a file's durable bytes, if there are any of this session.
    pub fn durable_event(&self, id: EntryId) -> Option<EntryEvent> {
        let tracked = self.get(id).filter(|tracked| tracked.share.durable > 0)?;
        Some(EntryEvent::Durable {
            entry: tracked.entry.clone(),
            bytes: tracked.share.at_destination(),
        })
    }

    /// Takes the next piece of a front that must be read again, with its earlier checksum.
    pub fn take_unchecked(&mut self, id: EntryId) -> Option<(Entry, PieceName, Checksum)> {
        let tracked = self.entries.get_mut(&id)?;
        let generation = tracked.generation;
        let Stage::Large(large) = &mut tracked.stage else {
            return None;
        };
        let (offset, length, earlier) = large.front.as_mut()?.take_unchecked()?;
        let piece = PieceName {
            file: id,
            generation,
            offset,
            length,
        };
        Some((tracked.entry.clone(), piece, earlier))
    }
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
    /// Number of bytes that this session does not send because they are outside of its part. They
    /// count as planned, read and durable.
    pub left_out: u64,
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
    /// Makes an entry that waits for a pack.
    pub fn new(task: TaskId, entry: Entry, generation: u32) -> Tracked {
        Tracked {
            task,
            entry,
            generation,
            corruptions: 0,
            share: Share::default(),
            stage: Stage::Small,
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
            left_out: 0,
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

    /// Returns the number of bytes of the entry that are this session's work.
    pub fn bytes(&self) -> u64 {
        let left_out = match &self.stage {
            Stage::Large(large) => large.left_out,
            _ => 0,
        };
        self.entry.size().saturating_sub(left_out)
    }
}

impl Large {
    /// Notes that the receiver has this range (offset and length) from an earlier session. A range
    /// that does not end at block boundaries has no effect, because the rest is cut into blocks.
    pub fn resume(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.size);
        if is_aligned(offset, self.size) && is_aligned(end, self.size) {
            self.planned.insert(offset, end);
            self.read.insert(offset, end);
            self.durable.insert(offset, end);
        }
    }

    /// Does the same with several ranges.
    pub fn resume_all(&mut self, ranges: &[(u64, u64)]) {
        for (offset, length) in ranges {
            self.resume(*offset, *length);
        }
    }

    /// Leaves out all bytes outside of `[start, end)`.
    pub fn limit(&mut self, start: u64, end: u64) {
        for (from, to) in [(0, start), (end, self.size)] {
            self.durable.remove(from, to);
            self.resume(from, to.saturating_sub(from));
            self.left_out += to.saturating_sub(from);
        }
    }

    /// Returns the number of durable bytes of this session's part of the file.
    pub fn durable_bytes(&self) -> u64 {
        self.durable.total().saturating_sub(self.left_out)
    }

    /// Notes a durable piece. Returns the bytes that were not durable before, and the blocks under
    /// way that are no longer needed. A piece that is no block has no effect, because it would
    /// leave gaps that cannot be cut into blocks.
    pub fn note_durable(&mut self, piece: PieceName) -> (u64, Vec<BlockId>) {
        if !is_block(piece.offset, piece.length, self.size) {
            return (0, Vec::new());
        }
        let end = piece.offset + piece.length;
        let fresh = self.durable.missing(piece.offset, end);
        self.durable.insert(piece.offset, end);
        // The sender may have taken the piece for lost and queued it again.
        self.planned.insert(piece.offset, end);
        // A block may have been acknowledged in parts that were cut differently.
        let around = self.durable.range_around(piece.offset, end);
        let blocks = around.map_or_else(Vec::new, |(start, end)| self.take_covered(start, end));
        (fresh, blocks)
    }

    /// Plans a lost piece again. Returns the blocks under way that overlap it and must be
    /// forgotten; `None` if the piece is not needed.
    pub fn lose(&mut self, piece: PieceName) -> Option<Vec<BlockId>> {
        let (offset, end) = (piece.offset, piece.offset.saturating_add(piece.length));
        if !is_block(offset, piece.length, self.size) || self.durable.contains(offset, end) {
            return None;
        }
        self.planned.remove(offset, end);
        for (start, stop) in self.durable.within(offset, end) {
            self.planned.insert(start, stop);
        }
        Some(self.take_overlapping(offset, end))
    }

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

/// True if blocks of a file of `size` bytes may begin or end at this offset.
pub(super) fn is_aligned(at: u64, size: u64) -> bool {
    at == size || at.is_multiple_of(SMALLEST_BLOCK_BYTES)
}
