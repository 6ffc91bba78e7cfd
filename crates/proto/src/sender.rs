//! The end that has the sources: what to read next, onto which stream, and
//! what to do about whatever got lost.
//!
//! An entry's way: *asked* (where the destination is not empty) -> *queued* ->
//! a block, or many -> *done*, when the receiver said so. Blocks are named by
//! what they hold; a lost block is planned anew, perhaps cut otherwise. Memory
//! is bounded by the window of entries, whatever the size of the tree.

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

/// Entries that are asked for in the first batch: about 100 bytes each, of the
/// ten segments that a fresh connection may send at once.
const FIRST_QUESTIONS: u64 = 64;

/// Bytes of paths and attributes from which on a batch is full: one more entry still fits a frame.
const LISTED_BYTES: usize = 512 << 10;

/// A source that changes more often than this during its copy is given up.
const MAXIMUM_RESTARTS: u32 = 5;

/// A file with holes that is no larger goes into a pack, and gets its holes back at the other end.
/// File systems that compress, or store short files in the inode, use fewer bytes than a file has,
/// and files outside packs cost many times as much.
const SPARSE_APART_BYTES: u64 = 256 << 10;

/// Whether an entry goes in pieces of its own, and not packed with others.
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
    /// What they weigh.
    entry_bytes: usize,
    plan: Plan,
    comparing: Comparing,
    filtering: Filtering,
    naming: Naming,
    moving: Moving,
    searching: Searching,
    streams: Streams,
    /// Walked and not yet asked for.
    listing: Vec<Entry>,
    /// Bytes of their paths and attributes.
    listing_bytes: usize,
    /// Files whose front is to be read again.
    unchecked_fronts: VecDeque<EntryId>,
    /// Pieces of them that are.
    checks: BTreeMap<BlockId, PieceName>,
    messages: VecDeque<Message>,
    events: VecDeque<EntryEvent>,
    account: Account,
    walked: u64,
    walk_ended: bool,
    left_out: LeftOut,
    anchor: Option<Box<AnchorState>>,
    /// What the receiver holds back, counted.
    held: LeftOut,
    finished: Option<Totals>,
    notices: Vec<Notice>,
    still: Still,
}

impl Sender {
    /// A sender that has nothing to send yet.
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

    /// How many entries the walk may add now.
    pub fn entry_credit(&self) -> usize {
        if self.entry_bytes >= self.settings.window_bytes {
            return 0;
        }
        self.settings
            .window_entries
            .saturating_sub(self.entries.len() + self.moving.count())
    }

    /// The walk met an entry; its number is one higher than the last one's.
    pub fn handle_entry(&mut self, entry: Entry) {
        self.walked = entry.id.0 + 1;
        let directory = entry.kind == EntryKind::Directory;
        let id = entry.id;
        if self.settings.asks {
            self.listing_bytes += entry.text_bytes();
            self.listing.push(entry.clone());
            // The first questions fit into the first packets of a connection.
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

    /// The walk met something that cannot be sent.
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

    /// The walk left a directory with this many entries.
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

    /// What the destination itself gets; the first one counts.
    pub fn handle_anchor(&mut self, anchor: AnchorState) {
        self.anchor.get_or_insert_with(|| Box::new(anchor));
    }

    /// A source with these permission bits fills the destination. Of several, all count.
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

    /// The walk left so much out on purpose.
    pub fn handle_left_out(&mut self, left_out: LeftOut) {
        self.left_out = left_out;
    }

    /// The walk is over.
    pub fn handle_walk_end(&mut self) {
        self.flush_listing();
        self.walk_ended = true;
        self.messages.push_back(Message::WalkEnd {
            entries: self.walked,
            left_out: self.left_out,
            anchor: self.anchor.take(),
        });
    }

    /// What the walk left out on purpose, nothing before its end; and what the receiver holds
    /// back.
    pub fn left_out(&self) -> LeftOut {
        self.left_out.with_held(self.held)
    }

    /// The other end accepted the session: whether it has to be asked for every
    /// entry, the session's epoch, and how many large files it can have open.
    /// Until then a sender that dials asks, so
    /// that the first questions go with its request; where nothing is there, the
    /// answers are not waited for.
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

    /// Whether enough was walked to ask for, or all there is.
    pub fn has_first_questions(&self) -> bool {
        self.walked >= FIRST_QUESTIONS || self.walk_ended || self.entry_credit() == 0
    }

    /// Asks for what was walked, although the batch is not full: the walk
    /// pauses, or nothing else is left to do.
    pub fn flush_listing(&mut self) {
        if !self.listing.is_empty() {
            self.listing_bytes = 0;
            self.messages
                .push_back(Message::Entries(std::mem::take(&mut self.listing)));
        }
    }

    /// A stream can take blocks.
    pub fn handle_stream_up(&mut self, stream: StreamId, now: Moment) {
        self.streams.add(stream, now);
    }

    /// A round trip on a stream was measured, by its handshake or its kernel.
    /// Until blocks have arrived nothing else is known of a path.
    pub fn handle_round_trip(&mut self, stream: StreamId, span: Duration) {
        self.streams.handle_round_trip(stream, span);
    }

    /// A stream is lost, and with it all blocks on it that were not
    /// acknowledged: they are planned anew.
    pub fn handle_stream_down(&mut self, stream: StreamId) {
        self.plan.handle_stream_down(stream);
        for block in self.streams.remove(stream) {
            self.replan(block);
        }
    }

    /// The number of blocks that arrived on a stream.
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

    /// A stream that seems to hold the others up, so that [`Sender::poll_read`]
    /// would give one of its blocks to another. The driver may know better and
    /// says so with [`Sender::handle_judged`], then asks again.
    pub fn poll_suspect(&self, now: Moment) -> Option<StreamId> {
        let slow = self.hopeless(now)?.slow;
        (!self.streams.is_judged(slow, now)).then_some(slow)
    }

    /// Whether something of what a stream was given waits for its path: it has
    /// not left, or is not acknowledged although it should be. Else it is there
    /// before anything that is sent now, or the other end only has to read it.
    pub fn handle_judged(&mut self, stream: StreamId, guilty: bool, now: Moment) {
        self.streams.handle_judged(stream, guilty, now);
    }

    /// A message came.
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

    /// A pack was read: how it went, entry by entry. False where nobody needs
    /// the block any more, so that its buffer can be freed.
    pub fn handle_pack_read(
        &mut self,
        block: BlockId,
        results: Vec<(EntryId, PackedRead)>,
    ) -> bool {
        // A twin holds what the first one holds, or is of no use.
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

    /// Whether an entry is in a pack, or in the first one of a twin.
    fn is_packed_in(&self, id: EntryId, block: BlockId) -> bool {
        let stage = self.entries.get(&id).map(|tracked| &tracked.stage);
        matches!(stage, Some(Stage::Packed(at)) if *at == block || self.plan.twin(*at) == Some(block))
    }

    /// A piece was read. False as with [`Sender::handle_pack_read`].
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

    /// The next thing to read; `None` if there is nothing to do now.
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

    /// From now on a stream takes no new blocks, because better ones do; or it takes them again.
    /// Its current blocks continue.
    pub fn handle_reserve(&mut self, stream: StreamId, reserve: bool) {
        if reserve {
            self.plan.handle_stream_down(stream);
        }
        self.streams.handle_reserve(stream, reserve);
    }

    /// The next block for a stream that can take one.
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

    /// Whether [`Sender::poll_message`] gives something.
    pub fn has_message(&self) -> bool {
        !self.messages.is_empty() || self.comparing.has_digests() || self.ends_moves()
    }

    /// The next message to say.
    pub fn poll_message(&mut self) -> Option<Message> {
        let message = self.messages.pop_front();
        let message = message.or_else(|| self.comparing.take_digests().map(Message::Digests));
        message.or_else(|| self.take_moves_end())
    }

    /// What became of entries.
    pub fn poll_event(&mut self) -> Option<EntryEvent> {
        self.events.pop_front()
    }

    /// When [`Sender::poll_read`] or [`Sender::poll_control`] may give something
    /// although nothing happened: a stream may turn out to be slow.
    pub fn poll_timeout(&self, now: Moment) -> Option<Moment> {
        self.streams.poll_timeout(self.waits_for_streams(), now)
    }

    /// The stream that should carry this end's messages from now on, if the `current` one is slow
    /// or the other end has fallen silent. The driver calls
    /// [`crate::session::Session::move_control`] and
    /// [`crate::control::ControlChannel::handle_stream_change`].
    pub fn poll_control(&mut self, current: StreamId, now: Moment) -> Option<StreamId> {
        self.streams.better_than(current, now)
    }

    /// The receiver's totals, once everything is done and durable.
    pub fn finished(&self) -> Option<Totals> {
        // Sources that are to be removed are no longer than needed.
        self.finished.filter(|_| self.moving.count() == 0)
    }

    /// What the destination did not keep or refused, once everything is done.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Whether [`Sender::poll_dispatch`] would give this stream something.
    pub fn has_ready_for(&self, stream: StreamId) -> bool {
        let alone = self.streams.count() <= 1;
        self.streams.contains(stream)
            && !self.streams.is_reserve(stream)
            && self.plan.has_ready_for(stream, alone)
    }

    /// Whether the receiver has room for more, and how many times it had none.
    pub fn room(&self) -> (bool, u64) {
        (self.streams.has_room(), self.streams.chokes())
    }

    /// Whether a stream has blocks that have not arrived.
    pub fn carries_something(&self, stream: StreamId) -> bool {
        self.streams.carries_something(stream)
    }

    /// Since when a block that was sent on a stream has not arrived, or what was sent before it;
    /// `None` if everything has.
    pub fn waits_since(&self, stream: StreamId) -> Option<Moment> {
        self.streams.waits_since(stream)
    }

    /// Entries known and not done.
    pub fn tracked(&self) -> usize {
        self.entries.len()
    }

    /// Blocks being read, waiting for a stream, or sent and not acknowledged.
    pub fn blocks_under_way(&self) -> usize {
        self.plan.blocks()
    }

    /// Decides how an entry goes: packed with others, or in pieces.
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
            // What is there is of another run of the command.
            Answer::Resume(_) if self.filters(id) => self.route(id),
            Answer::Resume(ranges) => self.resume(id, &ranges),
            Answer::Planned(change) => self.end(id, Ending::Planned(change)),
            Answer::Compare => self.compare(id),
            Answer::Leave(held) => self.end(id, Ending::Left(held)),
        }
    }

    /// A dry run moves nothing, whatever the receiver asks for; and a receiver
    /// that only plans must not be taken for one that has the data.
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

    /// The receiver has these ranges: they are neither read nor sent.
    fn resume(&mut self, id: EntryId, ranges: &[(u64, u64)]) {
        let Some(tracked) = self.entries.get_mut(&id) else {
            return;
        };
        let size = tracked.entry.size();
        let mut resumed = 0;
        tracked.make_large(|large| {
            for &(offset, length) in ranges {
                let end = offset.saturating_add(length).min(size);
                // Between blocks only: what is left is cut into blocks.
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
        // It is open there: before any that is not.
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
        // Anything else would leave gaps that cannot be cut into blocks.
        if !is_block(piece.offset, piece.length, large.size) {
            return;
        }
        let end = piece.offset + piece.length;
        let fresh = large.durable.missing(piece.offset, end);
        large.durable.insert(piece.offset, end);
        // It may have been lost for us, and be waiting to be cut anew.
        large.planned.insert(piece.offset, end);
        // A block may have been acknowledged in parts, cut otherwise.
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

    /// An entry is done: everything about it is forgotten.
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

    /// The source changed: everything sent of it is void, it begins anew.
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
        match self.may_restart(id) {
            false => self.give_up(id),
            true if goes_as_front => self.begin_front(id),
            true => self.route(id),
        }
    }

    /// Says that an entry will not come; it ends when the receiver says how.
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
        // What is asked for in order must not be overtaken by its end.
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
