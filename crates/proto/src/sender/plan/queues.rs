//! Queues of entries of which data must be read.

use std::collections::{BTreeSet, VecDeque};

use super::sizes::SHORT_BLOCK_BYTES;
use super::tasks::Tasks;
use crate::manifest::{Entry, EntryId};

/// Capacity that an empty queue of small entries keeps.
const SMALL_KEPT: usize = 256;

/// Minimum number of remaining blocks per stream at the end. The copy waits for the last block of a
/// stream, or another stream sends it again, and on a slow path a full block takes seconds.
/// ("Guided self-scheduling" of loops has one for each processor.)
const LAST_BLOCKS: usize = 2;

/// A small entry that waits for a pack.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallEntry {
    pub id: EntryId,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of its path and attributes.
    pub path_bytes: usize,
}

impl SmallEntry {
    /// Returns the place of an entry in the queue.
    pub fn of(entry: &Entry) -> SmallEntry {
        SmallEntry {
            id: entry.id,
            size: entry.size(),
            path_bytes: entry.text_bytes(),
        }
    }
}

/// Queues of entries to cut and pack.
#[derive(Debug, Default)]
pub(super) struct Queues {
    small: VecDeque<SmallEntry>,
    small_bytes: u64,
    large: VecDeque<EntryId>,
    large_queued: BTreeSet<EntryId>,
    /// Large files that the receiver has open. They stand first in the queue, so that they are
    /// completed.
    begun: BTreeSet<EntryId>,
    last_was_pack: bool,
}

impl Queues {
    pub fn queue_small(&mut self, entry: SmallEntry) {
        self.small_bytes += entry.size;
        self.small.push_back(entry);
    }

    pub fn queue_small_first(&mut self, entry: SmallEntry) {
        self.small_bytes += entry.size;
        self.small.push_front(entry);
    }

    pub fn queue_large(&mut self, id: EntryId) {
        if self.large_queued.insert(id) {
            self.large.push_back(id);
        }
    }

    pub fn queue_large_first(&mut self, id: EntryId) {
        if self.large_queued.insert(id) {
            self.large.push_front(id);
        }
    }

    /// Notes that the receiver has a large file open, or will soon.
    pub fn begin_large(&mut self, id: EntryId) {
        self.begun.insert(id);
    }

    /// Notes that the receiver has closed a large file.
    pub fn end_large(&mut self, id: EntryId) {
        self.begun.remove(&id);
        self.large_queued.remove(&id);
    }

    /// True if the next large file must wait until an open one is done.
    pub fn large_waits(&self, most: usize) -> bool {
        let next = self.large.front();
        // A file that ended meanwhile needs no place: it is only removed from the queue.
        let waits = |next| self.large_queued.contains(next) && !self.begun.contains(next);
        self.begun.len() >= most && next.is_some_and(waits)
    }

    /// True if the next block should be a pack. Packs and pieces alternate if there are both.
    pub fn prefers_packs(&self) -> bool {
        !self.last_was_pack
    }

    /// Takes the first small entry.
    pub fn next_small(&mut self) -> Option<SmallEntry> {
        let next = self.small.pop_front()?;
        self.small_bytes = self.small_bytes.saturating_sub(next.size);
        if self.small.is_empty() {
            // The memory that a fast walk once needed is released before the end.
            self.small.shrink_to(SMALL_KEPT);
        }
        Some(next)
    }

    /// Returns the first small entry.
    pub fn first_small(&self) -> Option<SmallEntry> {
        self.small.front().copied()
    }

    /// Returns the number of small entries.
    pub fn small_count(&self) -> usize {
        self.small.len()
    }

    /// Returns the total bytes of the small entries.
    pub fn small_bytes(&self) -> u64 {
        self.small_bytes
    }

    /// Returns the first large file.
    pub fn first_large(&self) -> Option<EntryId> {
        self.large.front().copied()
    }

    /// Removes the first large file.
    pub fn drop_large(&mut self) {
        if let Some(id) = self.large.pop_front() {
            self.large_queued.remove(&id);
        }
    }

    /// Notes the kind of the block that was read last.
    pub fn note_block(&mut self, is_pack: bool) {
        self.last_was_pack = is_pack;
    }

    /// Returns the maximum bytes of the next block if no further tasks follow: `most`, or a smaller
    /// power of two if little data is left for `streams` streams.
    pub fn last_block_bytes(&self, most: u64, streams: usize, tasks: &Tasks) -> u64 {
        let parts = streams.max(1) * LAST_BLOCKS;
        // The remaining data of a file is at most the data behind its first gap.
        let behind = |id: &EntryId| {
            let large = tasks.large(*id)?;
            let (gap, _) = large.planned.first_gap(0, large.size)?;
            Some(large.size - gap)
        };
        let mut left = self.small_bytes;
        for bytes in self.large.iter().take(parts).filter_map(behind) {
            left = left.saturating_add(bytes);
            if left / parts as u64 >= most {
                return most;
            }
        }
        let part = left / parts as u64;
        let mut bytes = most;
        while bytes > SHORT_BLOCK_BYTES && bytes > part {
            bytes /= 2;
        }
        bytes
    }
}
