//! The sending end of a transfer: decides what to read next, which stream carries it, and how to
//! replace lost data.
//!
//! Stages of an entry: *asked* (if the destination is not empty) -> *queued* -> one block or many
//! -> *done*, when the receiver reports it. Blocks are named by their content. The content of a
//! lost block is planned again, perhaps cut differently. The window of entries bounds the memory
//! for any size of the tree.

mod account;
mod again;
mod compare;
mod filtering;
mod front;
mod lost;
mod moving;
mod names;
mod plan;
mod searching;
mod settings;
mod streams;
mod told;
mod track;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use longhaul_units::Moment;

use crate::account::Account;
use crate::block::PieceName;
use crate::digest::{SMALLEST_BLOCK_BYTES, is_block};
use crate::filter::LeftOut;
use crate::manifest::{AnchorState, Entry, EntryId, EntryKind};
use crate::message::{Answer, Failure, FailureKind, Message, Outcome, Totals};
use crate::notice::Notice;
use crate::session::StreamId;

use compare::Comparing;
pub use compare::DigestRead;

pub use account::{Ending, EntryEvent};
use filtering::Filtering;
pub use filtering::{FilterStep, MOST_FILTERED};
use lost::Still;
pub use moving::Moved;
use moving::Moving;
use names::Naming;
use plan::Plan;
pub use plan::{PackedJob, ReadJob, Work};
use searching::Searching;
pub use settings::{MOST_LARGE_FILES, SenderSettings};
use streams::Streams;
pub use told::{Dispatch, PackedRead, PieceRead, SenderError};
use track::{Stage, Tracked};

// tidy: long file because it is one state machine, whose steps share its state.

/// Number of entries in the first batch of questions. Each takes about 100 bytes of the ten
/// segments that a new connection may send at once.
const FIRST_QUESTIONS: u64 = 64;

/// Bytes of paths and attributes at which a batch is full. One more entry still fits into a frame.
const LISTED_BYTES: usize = 512 << 10;

/// Maximum number of changes of a source during its copy. After more, the copy of the source fails.
const MAXIMUM_RESTARTS: u32 = 5;

/// Maximum size in bytes of a sparse file in a pack. The other end restores its holes. File systems
/// that compress, or store short files in the inode, use fewer bytes than a file has, and files
/// outside packs cost many times as much.
const SPARSE_APART_BYTES: u64 = 256 << 10;

/// True if an entry is sent in pieces of its own and not packed with others.
pub fn is_large(entry: &Entry, block_bytes: u64) -> bool {
    let size = entry.size();
    size > block_bytes || entry.is_sparse() && size > SPARSE_APART_BYTES
}

/// Number of a block on its way through the sending end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

/// The sending end of a transfer.
#[derive(Debug)]
pub struct Sender {
    settings: SenderSettings,
    entries: BTreeMap<EntryId, Tracked>,
    /// Memory of `entries` in bytes.
    entry_bytes: usize,
    plan: Plan,
    comparing: Comparing,
    filtering: Filtering,
    naming: Naming,
    moving: Moving,
    searching: Searching,
    streams: Streams,
    /// Walked entries that were not yet asked for.
    listing: Vec<Entry>,
    /// Bytes of the paths and attributes in `listing`.
    listing_bytes: usize,
    /// Files whose front must be read again.
    unchecked_fronts: VecDeque<EntryId>,
    /// Pieces of fronts that are being read again.
    checks: BTreeMap<BlockId, PieceName>,
    messages: VecDeque<Message>,
    events: VecDeque<EntryEvent>,
    account: Account,
    walked: u64,
    walk_ended: bool,
    left_out: LeftOut,
    anchor: Option<Box<AnchorState>>,
    /// Numbers of entries that the receiver leaves unchanged on purpose.
    held: LeftOut,
    finished: Option<Totals>,
    notices: Vec<Notice>,
    still: Still,
}

impl Sender {
    /// Makes a sender without entries.
    pub fn new(settings: SenderSettings) -> Sender {
        Sender {
            settings,
            entries: BTreeMap::new(),
            entry_bytes: 0,
            plan: Plan::default(),
            comparing: Comparing::default(),
            filtering: Filtering::default(),
            naming: Naming::default(),
            moving: Moving::default(),
            searching: Searching::default(),
            streams: Streams::default(),
            listing: Vec::new(),
            listing_bytes: 0,
            unchecked_fronts: VecDeque::new(),
            checks: BTreeMap::new(),
            messages: VecDeque::new(),
            events: VecDeque::new(),
            account: Account::default(),
            walked: 0,
            walk_ended: false,
            left_out: LeftOut::default(),
            anchor: None,
            held: LeftOut::default(),
            finished: None,
            notices: Vec::new(),
            still: Still::default(),
        }
    }

    /// Returns the number of entries that the walk may add now.
    pub fn entry_credit(&self) -> usize {
        if self.entry_bytes >= self.settings.window_bytes {
            return 0;
        }
        self.settings
            .window_entries
            .saturating_sub(self.entries.len() + self.moving.count())
    }

    /// Adds an entry that the walk found. Its number is one higher than the previous one.
    pub fn handle_entry(&mut self, entry: Entry) {
        self.walked = entry.id.0 + 1;
        let directory = entry.kind == EntryKind::Directory;
        let id = entry.id;
        if self.settings.asks {
            self.listing_bytes += entry.text_bytes();
            self.listing.push(entry.clone());
            // The first questions must fit into the first packets of a connection.
            let most = match id.0 {
                0..FIRST_QUESTIONS => FIRST_QUESTIONS as usize,
                _ => crate::message::MAXIMUM_LISTED_ENTRIES,
            };
            if self.listing.len() >= most || self.listing_bytes >= LISTED_BYTES {
                self.flush_listing();
            }
        }
        let stage = if directory {
            Stage::Directory
        } else {
            Stage::Asked
        };
        self.track(id, Tracked::new(entry, stage));
        if !self.settings.asks && !directory {
            self.route(id);
        }
    }

    /// Adds an entry that cannot be read.
    pub fn handle_unreadable(&mut self, entry: Entry, failure: Failure) {
        self.walked = entry.id.0 + 1;
        let id = entry.id;
        self.track(id, Tracked::new(entry, Stage::Asked));
        self.abandon(id, failure);
    }

    fn track(&mut self, id: EntryId, tracked: Tracked) {
        self.entry_bytes += tracked.weighs;
        self.entries.insert(id, tracked);
    }

    /// Handles the end of a directory with this number of entries.
    pub fn handle_directory_end(&mut self, entry: Entry, children: u64) {
        if let Some(tracked) = self.entries.get_mut(&entry.id) {
            let weighs = entry.text_bytes();
            self.entry_bytes = self.entry_bytes - tracked.weighs + weighs;
            tracked.weighs = weighs;
        }
        self.flush_listing();
        self.messages
            .push_back(Message::DirectoryEnd { entry, children });
    }

    /// Sets the state that the destination itself gets. Only the first call has an effect.
    pub fn handle_anchor(&mut self, anchor: AnchorState) {
        self.anchor.get_or_insert_with(|| Box::new(anchor));
    }

    /// Handles a source that fills the destination and has these permission bits. The destination
    /// is limited to the bits that all such sources share.
    pub fn handle_filling(&mut self, mode: u32) {
        let state = || {
            Box::new(AnchorState {
                mode,
                modified: Default::default(),
                owner: None,
                is_limit: true,
            })
        };
        self.anchor.get_or_insert_with(state).mode &= mode;
    }

    /// Sets the numbers of names that the walk left out on purpose.
    pub fn handle_left_out(&mut self, left_out: LeftOut) {
        self.left_out = left_out;
    }

    /// Handles the end of the walk.
    pub fn handle_walk_end(&mut self) {
        self.flush_listing();
        self.walk_ended = true;
        self.messages.push_back(Message::WalkEnd {
            entries: self.walked,
            left_out: self.left_out,
            anchor: self.anchor.take(),
        });
    }

    /// Returns the numbers of names that the walk left out on purpose (zero before its end) and of
    /// entries that the receiver leaves unchanged.
    pub fn left_out(&self) -> LeftOut {
        self.left_out.with_held(self.held)
    }

    /// Handles the acceptance of the session: `asks` is true if every entry must be asked for, and
    /// `large_files` is the number of large files that the receiver can keep open. Before that, a
    /// sender that dials asks, so that the first questions travel with its request. If the
    /// destination is empty, the sender does not wait for the answers.
    pub fn handle_welcome(&mut self, asks: bool, epoch: u64, large_files: usize) {
        self.settings.epoch = epoch;
        self.settings.large_files = large_files.max(1);
        if asks || !self.settings.asks {
            return;
        }
        self.settings.asks = false;
        self.listing.clear();
        self.listing_bytes = 0;
        let question = |message: &Message| matches!(message, Message::Entries(_));
        self.messages.retain(|message| !question(message));
        let waiting = self.entries.iter();
        let waiting = waiting.filter(|(_, tracked)| matches!(tracked.stage, Stage::Asked));
        let waiting: Vec<EntryId> = waiting.map(|(id, _)| *id).collect();
        for id in waiting {
            self.route(id);
        }
    }

    /// True if the first batch of questions is complete or cannot grow.
    pub fn has_first_questions(&self) -> bool {
        self.walked >= FIRST_QUESTIONS || self.walk_ended || self.entry_credit() == 0
    }

    /// Asks for the walked entries although the batch is not full, because the walk pauses or no
    /// other work is left.
    pub fn flush_listing(&mut self) {
        if !self.listing.is_empty() {
            self.listing_bytes = 0;
            self.messages
                .push_back(Message::Entries(std::mem::take(&mut self.listing)));
        }
    }

    /// Adds a stream that can take blocks.
    pub fn handle_stream_up(&mut self, stream: StreamId, now: Moment) {
        self.streams.add(stream, now);
    }

    /// Handles a round trip that a stream's handshake or its kernel measured. It is the only
    /// knowledge of a path before blocks have arrived.
    pub fn handle_round_trip(&mut self, stream: StreamId, span: Duration) {
        self.streams.handle_round_trip(stream, span);
    }

    /// Handles the loss of a stream: all its blocks that have not arrived are planned again.
    pub fn handle_stream_down(&mut self, stream: StreamId) {
        self.plan.handle_stream_down(stream);
        for block in self.streams.remove(stream) {
            self.replan(block);
        }
    }

    /// Handles the number of blocks that arrived on a stream since it began.
    pub fn handle_arrived(&mut self, stream: StreamId, blocks: u64, now: Moment) {
        let (plan, mut races) = (&mut self.plan, Vec::new());
        let bytes = self.streams.handle_arrived(stream, blocks, now, |block| {
            races.extend(plan.end_race(block));
        });
        self.account.arrived_bytes = self.account.arrived_bytes.saturating_add(bytes);
        for twin_won in races {
            self.streams.handle_race(twin_won);
        }
    }

    /// Returns a stream that seems to delay the others, so that [`Sender::poll_read`] would give
    /// one of its blocks to another stream. A driver with better knowledge calls
    /// [`Sender::handle_judged`] and then calls this method again.
    pub fn poll_suspect(&self, now: Moment) -> Option<StreamId> {
        let slow = self.hopeless(now)?.slow;
        (!self.streams.is_judged(slow, now)).then_some(slow)
    }

    /// Handles the driver's judgement of a stream. `guilty` is true if data of the stream waits for
    /// its path: it has not left, or its acknowledgement is overdue. Otherwise the data will arrive
    /// before any data sent now, or the other end has yet to read it.
    pub fn handle_judged(&mut self, stream: StreamId, guilty: bool, now: Moment) {
        self.streams.handle_judged(stream, guilty, now);
    }

    /// Handles a message.
    ///
    /// # Errors
    ///
    /// [`SenderError`]: the session is over.
    pub fn handle_message(&mut self, message: Message, now: Moment) -> Result<(), SenderError> {
        match message {
            Message::Answers(answers) => {
                for (id, answer) in answers {
                    self.check_operation(&answer)?;
                    self.handle_answer(id, answer);
                }
            }
            Message::Durable { epoch, pieces } if epoch == self.settings.epoch => {
                let files: BTreeSet<EntryId> = pieces.iter().map(|piece| piece.file).collect();
                for piece in pieces {
                    self.handle_durable(piece);
                }
                self.report_durable(files);
            }
            Message::Done { epoch, entries } if epoch == self.settings.epoch => {
                for (id, outcome) in entries {
                    if self.settings.moves && matches!(outcome, Outcome::Planned(_)) {
                        return Err(SenderError::DryRun);
                    }
                    self.handle_done(id, outcome);
                }
            }
            Message::Again { content, reason } => self.handle_again(content, reason),
            Message::Arrived { streams, room } => {
                self.streams.handle_room(room, now);
                for (stream, blocks) in streams {
                    self.handle_arrived(StreamId(stream), blocks, now);
                }
            }
            Message::Finished(totals, notices) if self.walk_ended && self.entries.is_empty() => {
                self.finished = Some(totals);
                self.notices = notices;
            }
            Message::Finished(..) => return Err(SenderError::TooEarly),
            Message::Durable { .. } | Message::Done { .. } => {}
            Message::Entries(_) => return Err(SenderError::WrongRole("entries")),
            Message::Sealed { .. } => return Err(SenderError::WrongRole("a seal")),
            Message::WalkEnd { .. } => return Err(SenderError::WrongRole("the walk's end")),
            Message::AskNames => self.handle_ask_names()?,
            Message::OmittedTaken => self.handle_omitted_taken(),
            Message::NamesTaken(batches) => self.handle_names_taken(batches),
            Message::Removed(removed) => self.handle_removed(removed)?,
            Message::Digests(_) => return Err(SenderError::WrongRole("digests")),
            Message::Probes(probes) => self.handle_probes(probes)?,
            Message::Distinct(results) => self.handle_distinct(results)?,
            Message::AskSources(question) => self.handle_ask_sources(question)?,
            _ => {}
        }
        Ok(())
    }

    /// Handles the result of reading a pack, entry by entry. Returns false if the block is no
    /// longer needed, so that its buffer can be freed.
    pub fn handle_pack_read(
        &mut self,
        block: BlockId,
        results: Vec<(EntryId, PackedRead)>,
    ) -> bool {
        // A twin must have the same content as its original.
        let changed = |read: &(_, PackedRead)| matches!(read.1, PackedRead::Ready(Some(_)));
        let useless = self.plan.is_twin(block) && results.iter().any(changed);
        for (id, result) in results {
            if !self.is_packed_in(id, block) {
                continue;
            }
            match result {
                PackedRead::Ready(_) if useless => {}
                PackedRead::Ready(None) => {}
                PackedRead::Ready(Some(entry)) => {
                    if let Some(tracked) = self.entries.get_mut(&id) {
                        tracked.entry = entry;
                    }
                }
                PackedRead::Grown(entry) => {
                    self.plan.drop_from_pack(block, id);
                    self.restart(id, entry);
                }
                PackedRead::Failed(failure) => {
                    self.plan.drop_from_pack(block, id);
                    self.abandon(id, failure);
                }
            }
        }
        if useless {
            self.replan(block);
            return false;
        }
        self.plan.make_ready(block)
    }

    /// True if the entry is in this pack, or in the pack of which this is a twin.
    fn is_packed_in(&self, id: EntryId, block: BlockId) -> bool {
        let stage = self.entries.get(&id).map(|tracked| &tracked.stage);
        matches!(stage, Some(Stage::Packed(at)) if *at == block || self.plan.twin(*at) == Some(block))
    }

    /// Handles the result of reading a piece. Returns false under the same condition as
    /// [`Sender::handle_pack_read`].
    pub fn handle_piece_read(&mut self, block: BlockId, result: PieceRead) -> bool {
        if let Some(piece) = self.checks.remove(&block) {
            self.handle_checked(piece, result == PieceRead::Same);
            return false;
        }
        let Some(piece) = self.plan.piece(block) else {
            return false;
        };
        match result {
            PieceRead::Front(checksum) => self.handle_front_read(block, checksum),
            PieceRead::Same => false,
            PieceRead::Ready => {
                self.mark_read(piece);
                self.plan.make_ready(block)
            }
            PieceRead::Changed(entry) => {
                self.restart(piece.file, entry);
                false
            }
            PieceRead::Failed(failure) => {
                self.abandon(piece.file, failure);
                false
            }
        }
    }

    /// Returns the next data to read; `None` if no data can be read now.
    pub fn poll_read(&mut self, now: Moment) -> Option<ReadJob> {
        if let Some(check) = self.next_check() {
            return Some(check);
        }
        if self.plan.blocks() >= self.settings.unacknowledged_blocks {
            return self.next_twin(now);
        }
        let packs_first = self.plan.prefers_packs();
        let job = if packs_first {
            self.next_pack().or_else(|| self.next_piece())
        } else {
            self.next_piece().or_else(|| self.next_pack())
        };
        job.or_else(|| self.next_twin(now))
    }

    /// Sets if a stream takes new blocks. A stream in reserve takes no new blocks, because better
    /// streams do. Its current blocks continue.
    pub fn handle_reserve(&mut self, stream: StreamId, reserve: bool) {
        if reserve {
            self.plan.handle_stream_down(stream);
        }
        self.streams.handle_reserve(stream, reserve);
    }

    /// Returns the next block for a stream that can take one.
    pub fn poll_dispatch(&mut self, stream: StreamId, now: Moment) -> Option<Dispatch> {
        if self.streams.is_reserve(stream) {
            return None;
        }
        let alone = self.streams.count() <= 1;
        let dispatch = self.plan.next_ready(stream, alone)?;
        if let Dispatch::Send(block) = dispatch {
            let bytes = self.plan.handle_sent(block);
            self.streams.handle_sent(stream, block, bytes, now);
            self.count_moved(block, bytes);
        }
        Some(dispatch)
    }

    /// True if [`Sender::poll_message`] returns a message.
    pub fn has_message(&self) -> bool {
        !self.messages.is_empty() || self.comparing.has_digests() || self.ends_moves()
    }

    /// Returns the next message for the receiver.
    pub fn poll_message(&mut self) -> Option<Message> {
        let message = self.messages.pop_front();
        let message = message.or_else(|| self.comparing.take_digests().map(Message::Digests));
        message.or_else(|| self.take_moves_end())
    }

    /// Returns the next event of an entry.
    pub fn poll_event(&mut self) -> Option<EntryEvent> {
        self.events.pop_front()
    }

    /// Returns the time at which [`Sender::poll_read`] and [`Sender::poll_control`] must be called
    /// even without an event, because a stream may have turned out to be slow.
    pub fn poll_timeout(&self, now: Moment) -> Option<Moment> {
        self.streams.poll_timeout(self.waits_for_streams(), now)
    }

    /// Returns the stream that should carry this end's messages from now on, if the `current` one
    /// is slow or the other end has become silent. The driver then calls
    /// [`crate::session::Session::move_control`] and
    /// [`crate::control::ControlChannel::handle_stream_change`].
    pub fn poll_control(&mut self, current: StreamId, now: Moment) -> Option<StreamId> {
        self.streams.better_than(current, now)
    }

    /// Returns the receiver's totals after everything is done and durable.
    pub fn finished(&self) -> Option<Totals> {
        // Sources that must be removed remain tracked until their removal ends.
        self.finished.filter(|_| self.moving.count() == 0)
    }

    /// Returns the properties that the destination lost or refused, after everything is done.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// True if [`Sender::poll_dispatch`] would return a block for this stream.
    pub fn has_ready_for(&self, stream: StreamId) -> bool {
        let alone = self.streams.count() <= 1;
        self.streams.contains(stream)
            && !self.streams.is_reserve(stream)
            && self.plan.has_ready_for(stream, alone)
    }

    /// Returns true if the receiver has room for more, and the number of times that it ran out of
    /// room.
    pub fn room(&self) -> (bool, u64) {
        (self.streams.has_room(), self.streams.chokes())
    }

    /// True if the stream has blocks that have not arrived.
    pub fn carries_something(&self, stream: StreamId) -> bool {
        self.streams.carries_something(stream)
    }

    /// Returns the time since which the stream's oldest block has been expected; `None` if all its
    /// blocks have arrived or the receiver has no room.
    pub fn waits_since(&self, stream: StreamId) -> Option<Moment> {
        self.streams.waits_since(stream)
    }

    /// Returns the number of entries that are known and not done.
    pub fn tracked(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of blocks that are being read, wait for a stream, or are sent and not
    /// acknowledged.
    pub fn blocks_under_way(&self) -> usize {
        self.plan.blocks()
    }

    /// Decides if an entry is packed with others or sent in pieces.
    fn route(&mut self, id: EntryId) {
        if self.filters(id) {
            self.filter(id);
            return;
        }
        let Some(tracked) = self.entries.get_mut(&id) else {
            return;
        };
        let size = tracked.entry.size();
        if is_large(&tracked.entry, self.settings.block_bytes) {
            tracked.make_large(|_| {});
            self.plan.queue_large(id);
        } else {
            tracked.stage = Stage::Small;
            self.plan.queue_small(id, size, tracked.entry.text_bytes());
        }
    }

    fn handle_answer(&mut self, id: EntryId, answer: Answer) {
        let Some(tracked) = self.entries.get(&id) else {
            return;
        };
        if !matches!(tracked.stage, Stage::Asked | Stage::Compared) {
            return;
        }
        match answer {
            Answer::Send => self.route(id),
            Answer::Skip {
                digest,
                mended: false,
            } => self.end(id, Ending::Skipped(digest)),
            Answer::Skip {
                digest,
                mended: true,
            } => self.end(id, Ending::Mended(digest)),
            Answer::Refuse(failure) => self.end(id, Ending::Failed(failure)),
            // The existing data comes from another run of the command.
            Answer::Resume(_) if self.filters(id) => self.route(id),
            Answer::Resume(ranges) => self.resume(id, &ranges),
            Answer::Planned(change) => self.end(id, Ending::Planned(change)),
            Answer::Compare => self.compare(id),
            Answer::Leave(held) => self.end(id, Ending::Left(held)),
        }
    }

    /// Checks that an answer fits the operation. A dry run sends no data on any request, and a
    /// receiver that only plans must not be taken for one that has the data.
    fn check_operation(&self, answer: &Answer) -> Result<(), SenderError> {
        let fits = match answer {
            Answer::Send | Answer::Resume(_) => self.settings.moves,
            Answer::Compare => self.settings.moves || self.settings.compares,
            Answer::Planned(_) => !self.settings.moves,
            Answer::Skip { .. } | Answer::Refuse(_) | Answer::Leave(_) => true,
        };
        if fits {
            Ok(())
        } else {
            Err(SenderError::DryRun)
        }
    }

    /// Marks ranges that the receiver has as durable, so that they are neither read nor sent.
    fn resume(&mut self, id: EntryId, ranges: &[(u64, u64)]) {
        let Some(tracked) = self.entries.get_mut(&id) else {
            return;
        };
        let size = tracked.entry.size();
        let mut resumed = 0;
        tracked.make_large(|large| {
            for &(offset, length) in ranges {
                let end = offset.saturating_add(length).min(size);
                // Only ranges that end at block boundaries count, because the rest is cut into
                // blocks.
                let aligned = |at: u64| at == size || at.is_multiple_of(SMALLEST_BLOCK_BYTES);
                if !aligned(offset) || !aligned(end) {
                    continue;
                }
                large.planned.insert(offset, end);
                large.read.insert(offset, end);
                large.durable.insert(offset, end);
            }
            resumed = large.durable.total();
        });
        self.count_resumed(id, resumed);
        // The receiver already has the file open, so it comes before files that are not open.
        self.plan.begin_large(id);
        self.plan.queue_large_first(id);
        self.seal_if_read(id);
    }

    fn handle_durable(&mut self, piece: PieceName) {
        let Some(tracked) = self.entries.get_mut(&piece.file) else {
            return;
        };
        if tracked.generation != piece.generation {
            return;
        }
        tracked.corruptions = 0;
        let Some(large) = tracked.large_mut() else {
            return;
        };
        // Other ranges would leave gaps that cannot be cut into blocks.
        if !is_block(piece.offset, piece.length, large.size) {
            return;
        }
        let end = piece.offset + piece.length;
        let fresh = large.durable.missing(piece.offset, end);
        large.durable.insert(piece.offset, end);
        // The sender may have taken the piece for lost and queued it again.
        large.planned.insert(piece.offset, end);
        // A block may have been acknowledged in parts that were cut differently.
        if let Some((start, end)) = large.durable.range_around(piece.offset, end) {
            for block in large.take_covered(start, end) {
                self.plan.forget(block);
            }
        }
        self.count_durable(piece.file, fresh);
    }

    fn handle_done(&mut self, id: EntryId, outcome: Outcome) {
        match outcome {
            Outcome::Committed { digest } => self.end(id, Ending::Committed(digest)),
            Outcome::Failed(failure) => self.end(id, Ending::Failed(failure)),
            Outcome::Planned(Some(change)) => self.end(id, Ending::Planned(change)),
            Outcome::Planned(None) | Outcome::Unchanged => self.end(id, Ending::Skipped(None)),
            Outcome::Mended => self.end(id, Ending::Mended(None)),
            Outcome::LeftOut => self.end(id, Ending::LeftOut),
            Outcome::Left(held) => self.end(id, Ending::Left(held)),
        }
    }

    /// Ends an entry and forgets its blocks.
    fn end(&mut self, id: EntryId, ending: Ending) {
        if let Some(mut tracked) = self.entries.remove(&id) {
            self.entry_bytes -= tracked.weighs;
            self.plan.end_large(id);
            self.filtering.end(id);
            self.forget_blocks(&tracked.stage);
            match ending {
                Ending::Left(held) => self.held.count(held.reason()),
                Ending::Failed(_) => self.naming.failed += 1,
                _ => {}
            }
            let grew = |failure: &Failure| failure.kind == FailureKind::Grew;
            if matches!(&ending, Ending::Committed(_))
                || matches!(&ending, Ending::Failed(failure) if grew(failure))
            {
                self.count_committed(&mut tracked);
            }
            self.move_away(&tracked.entry, &ending);
            self.events.push_back(EntryEvent::Ended {
                entry: tracked.entry,
                ending,
            });
        }
    }

    fn forget_blocks(&mut self, stage: &Stage) {
        let blocks = match stage {
            Stage::Packed(block) => self.plan.entry_done(*block),
            Stage::Large(large) => large.all_blocks(),
            Stage::Asked
            | Stage::Compared
            | Stage::Filtering
            | Stage::Directory
            | Stage::Small
            | Stage::Abandoned => Vec::new(),
        };
        for block in blocks {
            self.plan.forget(block);
        }
    }

    /// Starts an entry again after its source changed. All data sent for it is void.
    fn restart(&mut self, id: EntryId, entry: Entry) {
        let Some(tracked) = self.entries.remove(&id) else {
            return;
        };
        self.plan.end_large(id);
        self.forget_blocks(&tracked.stage);
        self.account.void(tracked.share);
        let mut fresh = Tracked::new(entry, Stage::Asked);
        fresh.generation = tracked.generation + 1;
        fresh.weighs = tracked.weighs;
        fresh.filtered = tracked.filtered;
        fresh.only_grew = tracked.only_grew && fresh.entry.size() > tracked.entry.size();
        let goes_as_front = self.goes_as_front(&fresh);
        self.entries.insert(id, fresh);
        if !self.may_restart(id) {
            self.give_up(id);
        } else if goes_as_front {
            self.begin_front(id);
        } else {
            self.route(id);
        }
    }

    /// Announces that an entry will not be sent. The entry ends when the receiver reports its
    /// outcome.
    fn abandon(&mut self, id: EntryId, failure: Failure) {
        let Some(tracked) = self.entries.get_mut(&id) else {
            return;
        };
        let stage = std::mem::replace(&mut tracked.stage, Stage::Abandoned);
        if matches!(stage, Stage::Abandoned) {
            return;
        }
        let parent = tracked.entry.parent;
        self.plan.end_large(id);
        self.forget_blocks(&stage);
        // The receiver must learn of the entry before it learns of its end.
        self.flush_listing();
        self.messages.push_back(Message::Abandoned {
            id,
            parent,
            failure,
        });
    }

    fn mark_read(&mut self, piece: PieceName) {
        if let Some(tracked) = self.entries.get_mut(&piece.file)
            && let Some(large) = tracked.large_mut()
        {
            large.read.insert(piece.offset, piece.offset + piece.length);
            large.doubted = false;
        }
        self.seal_if_read(piece.file);
    }

    fn seal_if_read(&mut self, file: EntryId) {
        let is_read = |large: &mut track::Large| large.read.contains(0, large.size);
        let large = self.entries.get_mut(&file).and_then(Tracked::large_mut);
        if !large.is_some_and(is_read) || !self.is_front_checked(file) {
            return;
        }
        let Some(tracked) = self.entries.get_mut(&file) else {
            return;
        };
        let generation = tracked.generation;
        let Some(large) = tracked.large_mut() else {
            return;
        };
        if !large.sealed {
            large.sealed = true;
            let (size, grew) = (large.size, large.front.is_some());
            self.messages.push_back(Message::Sealed {
                file,
                generation,
                size,
                grew,
            });
        }
    }
}
