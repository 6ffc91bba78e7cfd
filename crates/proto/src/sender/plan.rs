//! Cuts files into blocks, packs small entries, and keeps the blocks that are
//! on their way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use longhaul_units::Moment;

use super::streams::Hopeless;
use super::{BlockId, Dispatch, Sender, Stage};
use crate::block::{ContentName, PieceName};
use crate::digest::{Checksum, longest_block};
use crate::manifest::{Entry, EntryId};
use crate::session::StreamId;

// tidy: long file because the plan of what is read next is one structure.

/// Longest paths of a pack together: half of what a frame's body may be.
const MAXIMUM_PACK_PATH_BYTES: usize = 256 << 10;

/// Places for small entries that an empty queue keeps.
const SMALL_KEPT: usize = 256;

/// At the end, each stream should have at least this many blocks of what is left, of at least this
/// many bytes. The copy waits for the last block of a stream, or another stream sends it again,
/// and on a slow path a full block takes seconds. ("Guided self-scheduling" of loops has one for
/// each processor.)
const LAST_BLOCKS: usize = 2;
const SHORT_BLOCK_BYTES: u64 = 64 << 10;

/// This many pieces for each stream are short at first, until as many have arrived as there are
/// streams. On a slow path, a surplus stream ends no sooner than its block.
const FIRST_PIECES: usize = 4;

/// Something to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadJob {
    /// The block it becomes.
    pub block: BlockId,
    /// What to read.
    pub work: Work,
}

/// What to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A piece of a large file.
    Piece {
        /// The file as it was when the walk met it, or when it changed last.
        entry: Entry,
        /// The piece.
        piece: PieceName,
    },
    /// A piece of the front of a file that grows.
    Front {
        /// The front as the file was when it changed last.
        entry: Entry,
        /// The piece.
        piece: PieceName,
        /// What it was when it was sent: it is only compared. Else it is sent.
        earlier: Option<Checksum>,
    },
    /// Small entries.
    Pack(Vec<PackedJob>),
}

/// An entry of a pack to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedJob {
    /// The entry as it was when the walk met it.
    pub entry: Entry,
    /// How often it changed under the copy.
    pub generation: u32,
}

/// Where a block is: being read -> ready -> sent.
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
    /// Entries of a pack that are not done.
    remaining: usize,
    /// The same content on its way once more.
    twin: Option<BlockId>,
    /// Of a twin: where it goes.
    help: Option<Help>,
}

/// Where a twin goes: to the stream it was read for while that lives, else to
/// any but the slow one.
#[derive(Clone, Copy, Debug)]
struct Help {
    slow: StreamId,
    helper: Option<StreamId>,
}

/// Queues of what is to be cut and packed, and the blocks under way.
#[derive(Debug, Default)]
pub(super) struct Plan {
    small: VecDeque<(EntryId, u64, usize)>,
    small_bytes: u64,
    large: VecDeque<EntryId>,
    large_queued: BTreeSet<EntryId>,
    /// Large files that the receiver has open. In the queue they stand before
    /// all others, so that they come to an end.
    begun: BTreeSet<EntryId>,
    blocks: BTreeMap<BlockId, Block>,
    ready: VecDeque<BlockId>,
    packed_entries: usize,
    last_was_pack: bool,
    next: u64,
    /// Blocks read or being read that no stream has taken.
    unsent: usize,
    /// Bytes of those that were forgotten.
    discarded_bytes: u64,
    /// Twins of which neither has arrived.
    racing: BTreeSet<BlockId>,
    /// Most bytes of a block for now, where that is less than of others.
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

    /// The receiver has a large file open, or will.
    pub fn begin_large(&mut self, id: EntryId) {
        self.begun.insert(id);
    }

    /// It has not any more.
    pub fn end_large(&mut self, id: EntryId) {
        self.begun.remove(&id);
        self.large_queued.remove(&id);
    }

    /// Whether the next large file waits until one of those that are begun is
    /// done.
    fn large_waits(&self, most: usize) -> bool {
        let next = self.large.front();
        // One that came to its end meanwhile is only to be taken out.
        let waits = |next| self.large_queued.contains(next) && !self.begun.contains(next);
        self.begun.len() >= most && next.is_some_and(waits)
    }

    /// Packs and pieces take turns where there are both.
    pub fn prefers_packs(&self) -> bool {
        !self.last_was_pack
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of blocks that were forgotten before a stream took them.
    pub fn discarded_bytes(&self) -> u64 {
        self.discarded_bytes
    }

    pub fn has_ready_for(&self, stream: StreamId, alone: bool) -> bool {
        self.first_ready(stream, alone).is_some()
    }

    /// The first block that this stream may take: one that was given up on a
    /// slow stream waits for another.
    fn first_ready(&self, stream: StreamId, alone: bool) -> Option<usize> {
        self.ready.iter().position(|block| {
            let help = self.blocks.get(block).and_then(|known| known.help);
            help.is_none_or(|help| match help.helper {
                Some(helper) => helper == stream,
                None => alone || help.slow != stream,
            })
        })
    }

    /// What a block holds.
    pub fn content(&self, block: BlockId) -> Option<&ContentName> {
        Some(&self.blocks.get(&block)?.content)
    }

    pub fn piece(&self, block: BlockId) -> Option<PieceName> {
        match self.blocks.get(&block)?.content {
            ContentName::Piece(piece) => Some(piece),
            ContentName::Pack(_) => None,
        }
    }

    /// The block was read; false where nobody needs it any more.
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

    /// One entry of a pack is done, or leaves it; gives the blocks that have
    /// none left.
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

    /// An entry could not be read into its pack.
    pub fn drop_from_pack(&mut self, block: BlockId, id: EntryId) {
        if let Some(Block {
            content: ContentName::Pack(ids),
            ..
        }) = self.blocks.get_mut(&block)
        {
            ids.retain(|&other| other != id);
        }
    }

    /// The other block with the same content.
    pub fn twin(&self, block: BlockId) -> Option<BlockId> {
        self.blocks.get(&block)?.twin
    }

    /// Whether a block was read because another one was slow.
    pub fn is_twin(&self, block: BlockId) -> bool {
        self.blocks
            .get(&block)
            .is_some_and(|known| known.help.is_some())
    }

    /// A block arrived; where it raced with one of the same content, whether
    /// it was the twin.
    pub fn end_race(&mut self, block: BlockId) -> Option<bool> {
        if self.racing.remove(&block) {
            return Some(true);
        }
        let twin = self.twin(block)?;
        self.racing.remove(&twin).then_some(false)
    }

    /// The number of entries of a twin, now that its first one is lost.
    pub fn inherit(&mut self, twin: BlockId, entries: usize) {
        if let Some(known) = self.blocks.get_mut(&twin) {
            known.remaining = entries;
        }
    }

    /// Forgets a block and gives what it held. Where it waits for a stream,
    /// that will be told to discard it.
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

    /// The next block that this stream may take.
    pub fn next_ready(&mut self, stream: StreamId, alone: bool) -> Option<Dispatch> {
        let at = self.first_ready(stream, alone)?;
        let block = self.ready.remove(at)?;
        Some(if self.blocks.contains_key(&block) {
            Dispatch::Send(block)
        } else {
            Dispatch::Discard(block)
        })
    }

    /// A stream is lost: twins that were read for it go elsewhere.
    pub fn handle_stream_down(&mut self, stream: StreamId) {
        let twins = self.blocks.values_mut();
        for help in twins.filter_map(|known| known.help.as_mut()) {
            help.helper = help.helper.filter(|helper| *helper != stream);
        }
    }

    /// A stream took the block; gives its bytes.
    pub fn handle_sent(&mut self, block: BlockId) -> u64 {
        self.unsent = self.unsent.saturating_sub(1);
        self.blocks.get_mut(&block).map_or(0, |known| {
            known.state = State::Sent;
            known.bytes
        })
    }

    /// Blocks that a stream took and that are not done.
    pub fn sent(&self) -> Vec<BlockId> {
        let blocks = self.blocks.iter();
        let sent = blocks.filter(|(_, known)| known.state == State::Sent);
        sent.map(|(block, _)| *block).collect()
    }

    /// A number that no block has.
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
            // A walk that ran ahead once need not be paid for until the end.
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
    /// Has blocks cut and packed of at most this many bytes from now on: rounded down to a power of
    /// two, at least 64 KiB, and never more than the settings' block.
    pub fn bound_blocks(&mut self, bytes: u64) {
        let power = 1 << bytes.max(SHORT_BLOCK_BYTES).ilog2();
        self.plan.most_bytes = Some(power);
    }

    /// Bytes of a block, a power of two, where there is enough for it.
    fn full_block_bytes(&self) -> u64 {
        let block = self.settings.block_bytes;
        self.plan.most_bytes.map_or(block, |most| most.min(block))
    }

    /// Whether a pack is worth its while: full, or nothing better to wait for.
    fn pack_is_due(&self) -> bool {
        let plan = &self.plan;
        !plan.small.is_empty()
            && plan.packed_entries < self.settings.unacknowledged_entries
            && (plan.small_bytes >= self.full_block_bytes()
                || plan.small.len() >= self.settings.pack_entries
                || self.walk_ended
                || plan.unsent == 0)
    }

    /// Bytes of the next piece, a power of two: fewer than of others until it is known that
    /// blocks arrive, and once little is left.
    fn next_piece_bytes(&self) -> u64 {
        let first = (self.streams.count() * FIRST_PIECES) as u64;
        let early = self.plan.next < first && !self.streams.are_proven();
        if early {
            self.full_block_bytes().min(SHORT_BLOCK_BYTES)
        } else {
            self.next_block_bytes()
        }
    }

    /// Bytes of the next block, a power of two: fewer than of others once little is left.
    fn next_block_bytes(&self) -> u64 {
        let block = self.full_block_bytes();
        if !self.walk_ended {
            return block;
        }
        let parts = self.streams.count().max(1) * LAST_BLOCKS;
        // Each of these has at most what comes behind its first gap.
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

    /// Packs what waits, as much as fits into one block.
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

    /// Cuts the next piece off the first large file that has one left.
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

    /// Whether nothing new can be read before something is acknowledged: the
    /// walk is over, or a window is full.
    fn is_held_up(&self) -> bool {
        self.walk_ended
            || self.entry_credit() == 0
            || self.plan.packed_entries >= self.settings.unacknowledged_entries
            || self.plan.blocks.len() >= self.settings.unacknowledged_blocks
            || self.plan.large_waits(self.settings.large_files)
    }

    /// Whether slow streams are worth looking for now.
    pub(super) fn waits_for_streams(&self) -> bool {
        self.plan.unsent == 0 && self.is_held_up()
    }

    /// If nothing new can be read, a block that another stream would deliver sooner than the slow
    /// one that holds it.
    pub(super) fn hopeless(&self, now: Moment) -> Option<Hopeless> {
        // Where the receiver has no room, no stream is to blame.
        let waits = self.waits_for_streams() && self.streams.has_room();
        if !waits || self.plan.racing.len() >= self.streams.most_twins() {
            return None;
        }
        let blocks = &self.plan.blocks;
        let single = |block| blocks.get(&block).is_some_and(|known| known.twin.is_none());
        self.streams.hopeless(now, single)
    }

    /// Nothing new can be read, but a stream is so slow that the others would
    /// have its last block there sooner: read that block once more for them.
    /// The first one durable wins.
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

    /// What of a block's content is still needed.
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
