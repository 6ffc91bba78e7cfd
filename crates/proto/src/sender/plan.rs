//! Cuts files into blocks, packs small entries, and tracks the blocks on their way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longhaul_units::Moment;

use super::streams::Hopeless;
use super::{BlockId, Dispatch, Sender, Stage};
use crate::block::{ContentName, PieceName};
use crate::digest::{Checksum, longest_block};
use crate::manifest::{Entry, EntryId};
use crate::session::StreamId;

// tidy: long file because the plan of what is read next is one structure.

/// Maximum total length of a pack's paths in bytes: half of the maximum body of a frame.
const MAXIMUM_PACK_PATH_BYTES: usize = 256 << 10;

/// Capacity that an empty queue of small entries keeps.
const SMALL_KEPT: usize = 256;

/// Minimum number of remaining blocks per stream at the end, and the minimum block size in bytes.
/// The copy waits for the last block of a stream, or another stream sends it again, and on a slow
/// path a full block takes seconds. ("Guided self-scheduling" of loops has one for each processor.)
const LAST_BLOCKS: usize = 2;
const SHORT_BLOCK_BYTES: u64 = 64 << 10;

/// Number of short first pieces per stream. Pieces stay short until as many blocks have arrived as
/// there are streams. On a slow path, a surplus stream ends no sooner than its block.
const FIRST_PIECES: usize = 4;

/// A job for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadJob {
    /// Number of the resulting block.
    pub block: BlockId,
    /// Data to read.
    pub work: Work,
}

/// Data to read for one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A piece of a large file.
    Piece {
        /// The file as the walk found it, or as it was after its last change.
        entry: Entry,
        /// The piece.
        piece: PieceName,
    },
    /// A piece of the front of a file that grows.
    Front {
        /// The front, as the file was after its last change.
        entry: Entry,
        /// The piece.
        piece: PieceName,
        /// Checksum of the piece if it was already sent, so that it is only compared; `None` if it
        /// must be sent.
        earlier: Option<Checksum>,
    },
    /// Small entries.
    Pack(Vec<PackedJob>),
}

/// An entry of a pack to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedJob {
    /// The entry as the walk found it.
    pub entry: Entry,
    /// Number of changes of the source during the copy.
    pub generation: u32,
}

/// State of a block: being read -> ready -> sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reading,
    Ready,
    Sent,
}

#[derive(Debug)]
struct Block {
    content: ContentName,
    state: State,
    bytes: u64,
    /// Number of the pack's entries that are not done.
    remaining: usize,
    /// Another block on its way with the same content.
    twin: Option<BlockId>,
    /// For a twin, the streams that may take it.
    help: Option<Help>,
}

/// Streams that may take a twin: the helper while it lives, otherwise any stream but the slow one.
#[derive(Clone, Copy, Debug)]
struct Help {
    slow: StreamId,
    helper: Option<StreamId>,
}

/// Queues of entries to cut and pack, and the blocks under way.
#[derive(Debug, Default)]
pub(super) struct Plan {
    small: VecDeque<(EntryId, u64, usize)>,
    small_bytes: u64,
    large: VecDeque<EntryId>,
    large_queued: BTreeSet<EntryId>,
    /// Large files that the receiver has open. They stand first in the queue, so that they are
    /// completed.
    begun: BTreeSet<EntryId>,
    blocks: BTreeMap<BlockId, Block>,
    ready: VecDeque<BlockId>,
    packed_entries: usize,
    last_was_pack: bool,
    next: u64,
    /// Number of blocks that are being read or were read and that no stream has taken.
    unsent: usize,
    /// Total bytes of blocks that were forgotten before a stream took them.
    discarded_bytes: u64,
    /// Twins whose race is undecided: neither the twin nor its original has arrived.
    racing: BTreeSet<BlockId>,
    /// Current maximum bytes of a block; `None` for the size in the settings.
    most_bytes: Option<u64>,
}

impl Plan {
    pub fn queue_small(&mut self, id: EntryId, size: u64, path_bytes: usize) {
        self.small.push_back((id, size, path_bytes));
        self.small_bytes += size;
    }

    pub fn queue_small_first(&mut self, id: EntryId, size: u64, path_bytes: usize) {
        self.small.push_front((id, size, path_bytes));
        self.small_bytes += size;
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
    fn large_waits(&self, most: usize) -> bool {
        let next = self.large.front();
        // A file that ended meanwhile needs no place: it is only removed from the queue.
        let waits = |next| self.large_queued.contains(next) && !self.begun.contains(next);
        self.begun.len() >= most && next.is_some_and(waits)
    }

    /// True if the next block should be a pack. Packs and pieces alternate if there are both.
    pub fn prefers_packs(&self) -> bool {
        !self.last_was_pack
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the total bytes of blocks that were forgotten before a stream took them.
    pub fn discarded_bytes(&self) -> u64 {
        self.discarded_bytes
    }

    pub fn has_ready_for(&self, stream: StreamId, alone: bool) -> bool {
        self.first_ready(stream, alone).is_some()
    }

    /// Returns the position of the first ready block that this stream may take. A twin waits for
    /// its helper or for any stream but the slow one.
    fn first_ready(&self, stream: StreamId, alone: bool) -> Option<usize> {
        self.ready.iter().position(|block| {
            let help = self.blocks.get(block).and_then(|known| known.help);
            help.is_none_or(|help| match help.helper {
                Some(helper) => helper == stream,
                None => alone || help.slow != stream,
            })
        })
    }

    /// Returns the content of a block.
    pub fn content(&self, block: BlockId) -> Option<&ContentName> {
        Some(&self.blocks.get(&block)?.content)
    }

    pub fn piece(&self, block: BlockId) -> Option<PieceName> {
        match self.blocks.get(&block)?.content {
            ContentName::Piece(piece) => Some(piece),
            ContentName::Pack(_) => None,
        }
    }

    /// Marks a block as read. Returns false if it is no longer needed.
    pub fn make_ready(&mut self, block: BlockId) -> bool {
        match self.blocks.get_mut(&block) {
            Some(known) if known.state == State::Reading => {
                known.state = State::Ready;
                self.ready.push_back(block);
                true
            }
            _ => false,
        }
    }

    /// Removes one entry from the count of a pack. Returns the pack and its twin if no entry is
    /// left.
    pub fn entry_done(&mut self, block: BlockId) -> Vec<BlockId> {
        self.packed_entries = self.packed_entries.saturating_sub(1);
        let Some(known) = self.blocks.get_mut(&block) else {
            return Vec::new();
        };
        known.remaining = known.remaining.saturating_sub(1);
        if known.remaining > 0 {
            return Vec::new();
        }
        [Some(block), known.twin].into_iter().flatten().collect()
    }

    /// Removes an entry that could not be read from its pack.
    pub fn drop_from_pack(&mut self, block: BlockId, id: EntryId) {
        if let Some(Block {
            content: ContentName::Pack(ids),
            ..
        }) = self.blocks.get_mut(&block)
        {
            ids.retain(|&other| other != id);
        }
    }

    /// Returns the other block with the same content.
    pub fn twin(&self, block: BlockId) -> Option<BlockId> {
        self.blocks.get(&block)?.twin
    }

    /// True if the block is a twin, read because the original was slow.
    pub fn is_twin(&self, block: BlockId) -> bool {
        self.blocks
            .get(&block)
            .is_some_and(|known| known.help.is_some())
    }

    /// Ends the race of a block that arrived. Returns true if the block is the twin, false if it is
    /// the original, and `None` if there was no race.
    pub fn end_race(&mut self, block: BlockId) -> Option<bool> {
        if self.racing.remove(&block) {
            return Some(true);
        }
        let twin = self.twin(block)?;
        self.racing.remove(&twin).then_some(false)
    }

    /// Sets the number of entries of a twin after its original is lost.
    pub fn inherit(&mut self, twin: BlockId, entries: usize) {
        if let Some(known) = self.blocks.get_mut(&twin) {
            known.remaining = entries;
        }
    }

    /// Removes a block and returns its content. A block that waits for a stream is discarded when a
    /// stream takes it.
    pub fn forget(&mut self, block: BlockId) -> Option<ContentName> {
        let known = self.blocks.remove(&block)?;
        if known.state != State::Sent {
            self.unsent = self.unsent.saturating_sub(1);
            self.discarded_bytes = self.discarded_bytes.saturating_add(known.bytes);
        }
        self.racing.remove(&block);
        if let Some(id) = known.twin
            && let Some(twin) = self.blocks.get_mut(&id)
        {
            twin.twin = None;
            self.racing.remove(&id);
        }
        Some(known.content)
    }

    /// Returns the next block for this stream, to send or to discard.
    pub fn next_ready(&mut self, stream: StreamId, alone: bool) -> Option<Dispatch> {
        let at = self.first_ready(stream, alone)?;
        let block = self.ready.remove(at)?;
        Some(if self.blocks.contains_key(&block) {
            Dispatch::Send(block)
        } else {
            Dispatch::Discard(block)
        })
    }

    /// Handles the loss of a stream: its twins may go to other streams.
    pub fn handle_stream_down(&mut self, stream: StreamId) {
        let twins = self.blocks.values_mut();
        for help in twins.filter_map(|known| known.help.as_mut()) {
            help.helper = help.helper.filter(|helper| *helper != stream);
        }
    }

    /// Notes that a stream took the block. Returns the block's bytes.
    pub fn handle_sent(&mut self, block: BlockId) -> u64 {
        self.unsent = self.unsent.saturating_sub(1);
        self.blocks.get_mut(&block).map_or(0, |known| {
            known.state = State::Sent;
            known.bytes
        })
    }

    /// Returns the blocks that a stream took and that are not done.
    pub fn sent(&self) -> Vec<BlockId> {
        let blocks = self.blocks.iter();
        let sent = blocks.filter(|(_, known)| known.state == State::Sent);
        sent.map(|(block, _)| *block).collect()
    }

    /// Returns an unused block number.
    pub fn take_number(&mut self) -> BlockId {
        let block = BlockId(self.next);
        self.next += 1;
        block
    }

    fn add(&mut self, content: ContentName, bytes: u64, help: Option<Help>) -> BlockId {
        let block = self.take_number();
        self.unsent += 1;
        let remaining = match &content {
            ContentName::Piece(_) => 1,
            ContentName::Pack(ids) => ids.len(),
        };
        let state = State::Reading;
        self.blocks.insert(
            block,
            Block {
                content,
                state,
                bytes,
                remaining,
                twin: None,
                help,
            },
        );
        block
    }

    fn next_small(&mut self) -> Option<(EntryId, u64, usize)> {
        let next = self.small.pop_front()?;
        self.small_bytes = self.small_bytes.saturating_sub(next.1);
        if self.small.is_empty() {
            // The memory that a fast walk once needed is released before the end.
            self.small.shrink_to(SMALL_KEPT);
        }
        Some(next)
    }
}

fn piece_work(entry: Entry, piece: PieceName, grows: bool) -> Work {
    if grows {
        Work::Front {
            entry,
            piece,
            earlier: None,
        }
    } else {
        Work::Piece { entry, piece }
    }
}

impl Sender {
    /// Sets the maximum size of new blocks to `bytes`, rounded down to a power of two. It is at
    /// least 64 KiB and at most the block size of the settings.
    pub fn bound_blocks(&mut self, bytes: u64) {
        let power = 1 << bytes.max(SHORT_BLOCK_BYTES).ilog2();
        self.plan.most_bytes = Some(power);
    }

    /// Returns the size of a full block in bytes, a power of two.
    fn full_block_bytes(&self) -> u64 {
        let block = self.settings.block_bytes;
        self.plan.most_bytes.map_or(block, |most| most.min(block))
    }

    /// True if a pack should be read now: it is full, or waiting would not help.
    fn pack_is_due(&self) -> bool {
        let plan = &self.plan;
        !plan.small.is_empty()
            && plan.packed_entries < self.settings.unacknowledged_entries
            && (plan.small_bytes >= self.full_block_bytes()
                || plan.small.len() >= self.settings.pack_entries
                || self.walk_ended
                || plan.unsent == 0)
    }

    /// Returns the maximum bytes of the next piece, a power of two. It is smaller before the first
    /// blocks arrive, and when little data is left.
    fn next_piece_bytes(&self) -> u64 {
        let first = (self.streams.count() * FIRST_PIECES) as u64;
        let early = self.plan.next < first && !self.streams.are_proven();
        if early {
            self.full_block_bytes().min(SHORT_BLOCK_BYTES)
        } else {
            self.next_block_bytes()
        }
    }

    /// Returns the maximum bytes of the next block, a power of two. It is smaller when little data
    /// is left.
    fn next_block_bytes(&self) -> u64 {
        let block = self.full_block_bytes();
        if !self.walk_ended {
            return block;
        }
        let parts = self.streams.count().max(1) * LAST_BLOCKS;
        // The remaining data of a file is at most the data behind its first gap.
        let behind = |id: &EntryId| {
            let Stage::Large(large) = &self.entries.get(id)?.stage else {
                return None;
            };
            let (gap, _) = large.planned.first_gap(0, large.size)?;
            Some(large.size - gap)
        };
        let mut left = self.plan.small_bytes;
        for bytes in self.plan.large.iter().take(parts).filter_map(behind) {
            left = left.saturating_add(bytes);
            if left / parts as u64 >= block {
                return block;
            }
        }
        let part = left / parts as u64;
        let mut bytes = block;
        while bytes > SHORT_BLOCK_BYTES && bytes > part {
            bytes /= 2;
        }
        bytes
    }

    /// Packs queued small entries, up to one block.
    pub(super) fn next_pack(&mut self) -> Option<ReadJob> {
        if !self.pack_is_due() {
            return None;
        }
        let room = self.settings.unacknowledged_entries - self.plan.packed_entries;
        let most = self.settings.pack_entries.min(room);
        let limit = self.next_block_bytes();
        let (mut jobs, mut ids, mut bytes, mut paths) = (Vec::new(), Vec::new(), 0, 0);
        let block = BlockId(self.plan.next);
        while let Some(&(id, size, path)) = self.plan.small.front() {
            let fits = bytes + size <= limit
                && paths + path <= MAXIMUM_PACK_PATH_BYTES
                && ids.len() < most;
            if !ids.is_empty() && !fits {
                break;
            }
            self.plan.next_small();
            let Some(tracked) = self.entries.get_mut(&id) else {
                continue;
            };
            if !matches!(tracked.stage, Stage::Small) {
                continue;
            }
            tracked.stage = Stage::Packed(block);
            jobs.push(PackedJob {
                entry: tracked.entry.clone(),
                generation: tracked.generation,
            });
            ids.push(id);
            bytes += size;
            paths += path;
        }
        if ids.is_empty() {
            return None;
        }
        self.plan.packed_entries += ids.len();
        self.plan.last_was_pack = true;
        let block = self.plan.add(ContentName::Pack(ids), bytes, None);
        Some(ReadJob {
            block,
            work: Work::Pack(jobs),
        })
    }

    /// Cuts the next piece off the first large file with unplanned data.
    pub(super) fn next_piece(&mut self) -> Option<ReadJob> {
        while let Some(&id) = self.plan.large.front() {
            if self.plan.large_waits(self.settings.large_files) {
                return None;
            }
            if let Some(job) = self.cut(id) {
                self.plan.last_was_pack = false;
                return Some(job);
            }
            self.plan.large.pop_front();
            self.plan.large_queued.remove(&id);
        }
        None
    }

    fn cut(&mut self, id: EntryId) -> Option<ReadJob> {
        let limit = self.next_piece_bytes();
        let tracked = self.entries.get_mut(&id)?;
        let (entry, generation) = (tracked.entry.clone(), tracked.generation);
        let large = tracked.large_mut()?;
        let grows = large.front.is_some();
        let (offset, end) = large.planned.first_gap(0, large.size)?;
        let length = longest_block(offset, end, large.size, limit);
        let piece = PieceName {
            file: id,
            generation,
            offset,
            length,
        };
        large.planned.insert(offset, offset + length);
        self.plan.begin_large(id);
        let block = self.plan.add(ContentName::Piece(piece), length, None);
        large.add_block(offset, offset + length, block);
        let work = piece_work(entry, piece, grows);
        Some(ReadJob { block, work })
    }

    /// True if no new data can be read before an acknowledgement, because the walk is over or a
    /// window is full.
    fn is_held_up(&self) -> bool {
        self.walk_ended
            || self.entry_credit() == 0
            || self.plan.packed_entries >= self.settings.unacknowledged_entries
            || self.plan.blocks.len() >= self.settings.unacknowledged_blocks
            || self.plan.large_waits(self.settings.large_files)
    }

    /// True if it is useful to search for slow streams now.
    pub(super) fn waits_for_streams(&self) -> bool {
        self.plan.unsent == 0 && self.is_held_up()
    }

    /// Returns a block that another stream would deliver sooner than the slow stream that carries
    /// it, if no new data can be read.
    pub(super) fn hopeless(&self, now: Moment) -> Option<Hopeless> {
        // If the receiver has no room, waiting is not the fault of a stream.
        let waits = self.waits_for_streams() && self.streams.has_room();
        if !waits || self.plan.racing.len() >= self.streams.most_twins() {
            return None;
        }
        let blocks = &self.plan.blocks;
        let single = |block| blocks.get(&block).is_some_and(|known| known.twin.is_none());
        self.streams.hopeless(now, single)
    }

    /// Returns a job that reads the last block of a slow stream once more for a faster stream, if
    /// no new data can be read. The first of the two blocks to become durable wins.
    pub(super) fn next_twin(&mut self, now: Moment) -> Option<ReadJob> {
        let Hopeless {
            slow,
            block,
            helper,
        } = self.hopeless(now)?;
        let bytes = self.plan.blocks.get(&block)?.bytes;
        let (content, work) = self.work_of(block)?;
        let helper = Some(helper);
        let twin = self
            .plan
            .add(content.clone(), bytes, Some(Help { slow, helper }));
        if let Some(known) = self.plan.blocks.get_mut(&block) {
            known.twin = Some(twin);
        }
        if let Some(known) = self.plan.blocks.get_mut(&twin) {
            known.twin = Some(block);
        }
        self.plan.racing.insert(twin);
        if let ContentName::Piece(piece) = content
            && let Some(large) = self
                .entries
                .get_mut(&piece.file)
                .and_then(|t| t.large_mut())
        {
            large.add_block(piece.offset, piece.offset + piece.length, twin);
        }
        Some(ReadJob { block: twin, work })
    }

    /// Returns the part of a block's content that is still needed.
    fn work_of(&self, block: BlockId) -> Option<(ContentName, Work)> {
        match &self.plan.blocks.get(&block)?.content {
            ContentName::Piece(piece) => {
                let tracked = self.entries.get(&piece.file)?;
                let grows = matches!(&tracked.stage, Stage::Large(large) if large.front.is_some());
                let work = piece_work(tracked.entry.clone(), *piece, grows);
                (tracked.generation == piece.generation)
                    .then_some((ContentName::Piece(*piece), work))
            }
            ContentName::Pack(ids) => {
                let jobs: Vec<PackedJob> = ids
                    .iter()
                    .filter_map(|id| self.entries.get(id))
                    .filter(|t| matches!(t.stage, Stage::Packed(at) if at == block))
                    .map(|t| PackedJob {
                        entry: t.entry.clone(),
                        generation: t.generation,
                    })
                    .collect();
                let ids = jobs.iter().map(|job| job.entry.id).collect();
                (!jobs.is_empty()).then_some((ContentName::Pack(ids), Work::Pack(jobs)))
            }
        }
    }
}
