//! Blocks on their way: being read, waiting for a stream, or sent and not acknowledged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::block::{ContentName, PieceName};
use crate::manifest::EntryId;
use crate::sender::results::{BlockId, Dispatch};
use crate::session::StreamId;

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
pub(in crate::sender) struct Help {
    pub slow: StreamId,
    pub helper: Option<StreamId>,
}

/// Blocks on their way.
#[derive(Debug, Default)]
pub(in crate::sender) struct Blocks {
    blocks: BTreeMap<BlockId, Block>,
    ready: VecDeque<BlockId>,
    /// Number of entries in packs that are not done.
    packed_entries: usize,
    next: u64,
    /// Number of blocks that are being read or were read and that no stream has taken.
    unsent: usize,
    /// Total bytes of blocks that were forgotten before a stream took them.
    discarded_bytes: u64,
    /// Twins whose race is undecided: neither the twin nor its original has arrived.
    racing: BTreeSet<BlockId>,
}

impl Blocks {
    pub fn count(&self) -> usize {
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

    /// Adds a block that is being read.
    pub fn add(&mut self, content: ContentName, bytes: u64, help: Option<Help>) -> BlockId {
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

    /// Adds a pack of entries that is being read.
    pub fn add_pack(&mut self, ids: Vec<EntryId>, bytes: u64) -> BlockId {
        self.packed_entries += ids.len();
        self.add(ContentName::Pack(ids), bytes, None)
    }

    /// Adds a twin of a block, with the part of its content that is still needed.
    pub fn add_twin(
        &mut self,
        block: BlockId,
        content: ContentName,
        help: Help,
    ) -> Option<BlockId> {
        let bytes = self.blocks.get(&block)?.bytes;
        let twin = self.add(content, bytes, Some(help));
        for (one, other) in [(block, twin), (twin, block)] {
            if let Some(known) = self.blocks.get_mut(&one) {
                known.twin = Some(other);
            }
        }
        self.racing.insert(twin);
        Some(twin)
    }

    /// True if a block is on its way and has no twin.
    pub fn is_single(&self, block: BlockId) -> bool {
        let known = self.blocks.get(&block);
        known.is_some_and(|known| known.twin.is_none())
    }

    /// Returns the number of twins whose race is undecided.
    pub fn races(&self) -> usize {
        self.racing.len()
    }

    /// Returns the number of entries in packs that are not done.
    pub fn packed_entries(&self) -> usize {
        self.packed_entries
    }

    /// True if no block is being read or waits for a stream.
    pub fn is_idle(&self) -> bool {
        self.unsent == 0
    }

    /// Returns the number of the next block.
    pub fn next(&self) -> BlockId {
        BlockId(self.next)
    }
}
