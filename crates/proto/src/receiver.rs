//! The receiving end of a transfer: decides which data to keep, when to make it durable, when to
//! give a file its name, and which acknowledgements to send.
//!
//! Pieces of a large file are *claimed* when they arrive, *written*, and *durable* after a
//! checkpoint. The file is committed when it is complete and the sender sealed it. The writer of
//! packed entries commits them. A directory gets its mode and time after all its entries are done.
//! Memory depends on the entries under way, not on the size of the tree.

mod deleting;
mod large;
mod links;
mod listed;
mod probing;
mod weight;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use longhaul_units::Moment;

use deleting::Deleting;
use large::Incoming;
use probing::{AskingSources, Probing};

use crate::account::{Account, Share};
use crate::block::{ContentName, PackedEntry, PieceName};
use crate::criteria::Held;
use crate::deletion::NamesOf;
use crate::digest::{Checksum, Integrity};
use crate::distinct::Question;
use crate::filter::{LeftOut, Omitted};
use crate::ledger::{DurableBlock, RangeSet};
use crate::manifest::{AnchorState, Entry, EntryId, EntryKind};
use crate::message::{AgainReason, Change, Failure, Message, Outcome, Removal, Totals};
use crate::notice::Notice;
use crate::session::StreamId;

// tidy: long file because it is one state machine, whose steps share its state.

/// Settings of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverSettings {
    /// Verification of blocks.
    pub integrity: Integrity,
    /// Number of this session among those of the transfer.
    pub epoch: u64,
    /// Maximum number of bytes of large files that are written and not durable. When half of them
    /// are written, they are made durable and reported while the other half arrives.
    pub checkpoint_bytes: u64,
    /// Time after which written bytes are made durable.
    pub checkpoint_span: Duration,
    /// True if acknowledgements carry digests.
    pub digests: bool,
    /// True if the destination may have entries, so that questions are answered. If false, the
    /// sender knows that it is empty, and early questions are ignored.
    pub compares: bool,
    /// True if deletion follows the copy.
    pub deletes: bool,
    /// True if extra names are only reported as differences, even after failures, and not deleted.
    pub names_only: bool,
    /// True if the sender removes its sources. This end finishes after that.
    pub moves_away: bool,
}

impl Default for ReceiverSettings {
    fn default() -> ReceiverSettings {
        ReceiverSettings {
            integrity: Integrity::Digest,
            epoch: 1,
            checkpoint_bytes: 256 << 20,
            checkpoint_span: Duration::from_secs(1),
            digests: false,
            compares: true,
            deletes: false,
            names_only: false,
            moves_away: false,
        }
    }
}

/// Maximum number of entries under way of a sender, a multiple of our own sender's. More is an
/// error of the other end and ends the session.
const MAXIMUM_UNDER_WAY: usize = 65_536;

/// Average number of ranges of claimed bytes per entry under way. A sender has no good reason to
/// leave a gap after every block.
const FRAGMENTS_PER_ENTRY: usize = 8;

/// Maximum number of entries in one [`Message::Done`].
const MAXIMUM_DONE: usize = 1024;

/// Maximum number of pieces in one [`Message::Durable`].
const MAXIMUM_DURABLE: usize = 4096;

/// Maximum number of unsent acknowledgements per entry under way. It bounds the memory for a sender
/// that does not read.
const UNSAID_PER_ENTRY: usize = 4;

/// Bytes of unsent outcomes' texts per entry under way.
const OUTCOME_BYTES_PER_ENTRY: usize = 1024;

/// Maximum number of bytes that a session remembers, independent of the host's memory; see
/// [`Receiver::remembered_bytes`]. Our own sender's windows need a small part of it.
pub const MAXIMUM_REMEMBERED_BYTES: usize = 64 << 20;

/// Decision about a block that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The block must be verified and written.
    Keep,
    /// The block already arrived or is not needed.
    Drop,
}

/// A job on the disk. The thread that does it reports the result with the named method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageJob {
    /// Compares entries with the destination: [`Receiver::handle_compared`].
    Compare(Vec<Entry>),
    /// Compares the content of an existing file with the source's digest:
    /// [`Receiver::handle_contents_compared`].
    CompareContents(Entry, Checksum),
    /// Makes blocks durable and journals them: [`Receiver::handle_checkpointed`].
    Checkpoint(Vec<Checkpoint>),
    /// Makes the rest of a file durable and gives the file its name:
    /// [`Receiver::handle_committed`].
    Commit {
        /// The file's final state.
        entry: Entry,
        /// Its generation.
        generation: u32,
        /// Digest of the file; `None` without [`Integrity::Digest`].
        digest: Option<Checksum>,
    },
    /// Removes the written data of a file. Writes and checkpoints of it that are still under way
    /// must leave no data behind.
    Discard {
        /// The file.
        file: EntryId,
        /// Its generation.
        generation: u32,
        /// If true, durable data remains for a later session.
        stays: bool,
    },
    /// Reads the data that an earlier session left and compares it with its checksums:
    /// [`Receiver::handle_read_back`].
    ReadBack {
        /// The file.
        entry: Entry,
        /// Its generation.
        generation: u32,
        /// Durable blocks of the earlier session.
        blocks: Vec<DurableBlock>,
    },
    /// Makes a hard link to an entry that is done: [`Receiver::handle_packed`].
    Link(Entry),
    /// Gives a directory its mode and time, and creates it if it is missing:
    /// [`Receiver::handle_directory_finished`].
    FinishDirectory(Entry),
    /// Compares the destination with names at the source: [`Receiver::handle_names_taken`].
    Names(Vec<NamesOf>),
    /// Handles the end of the names, or the reason why they are incomplete:
    /// [`Receiver::handle_names_compared`].
    EndNames(Option<Failure>),
    /// Removes the next names that the source does not have, at most
    /// [`crate::deletion::REMOVED_AT_ONCE`]: [`Receiver::handle_removed`].
    Remove,
    /// Makes a probe in each of the directories: [`Receiver::handle_probes_made`].
    MakeProbes(Vec<Question>),
    /// Removes the probes, given which of them the sender saw: [`Receiver::handle_probes_removed`].
    RemoveProbes(Vec<bool>),
    /// Removes all temporary files after everything is done: [`Receiver::handle_finished`].
    Finish,
}

/// Blocks of one file to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The file.
    pub file: EntryId,
    /// Its generation.
    pub generation: u32,
    /// Blocks written since the last checkpoint.
    pub blocks: Vec<DurableBlock>,
}

/// Result of an entry, for observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedEvent {
    /// The entry is done.
    Ended {
        /// The entry; `None` if only its number is known.
        entry: Option<Entry>,
        /// Number of the entry.
        id: EntryId,
        /// Outcome; `None` if the entry already existed.
        outcome: Option<Outcome>,
        /// Digest of the existing file, if requested.
        digest: Option<Checksum>,
    },
    /// An earlier session left durable bytes of the entry.
    Resumed {
        /// The entry.
        entry: Entry,
        /// Number of bytes that are not sent again.
        bytes: u64,
    },
    /// More of the entry is durable. It does not have its name yet.
    Durable {
        /// The entry.
        entry: Entry,
        /// Total durable bytes, including those of earlier sessions.
        bytes: u64,
    },
    /// Result of deleting a name that the source does not have.
    Removed(Removal),
    /// The sender left out an entry on purpose.
    Omitted(Omitted),
}

/// Result of comparing one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The entry must be sent.
    Send,
    /// The entry exists and is unchanged; its digest, if requested.
    Same(Option<Checksum>),
    /// The entry exists, and its owner, mode, time or attributes were corrected; its digest, if
    /// requested.
    Mended(Option<Checksum>),
    /// A file of the same size and time exists. Its content must be compared.
    Contents,
    /// The content was compared and differs from the source.
    Differs,
    /// The entry exists, but further work must finish first: [`Receiver::handle_contents_compared`]
    /// follows.
    Later,
    /// An earlier session left these durable blocks.
    Partial(Vec<DurableBlock>),
    /// The destination refuses the entry.
    Refused(Failure),
    /// In a dry run: the change that a copy would make.
    Planned(Change),
    /// The existing state remains.
    Left(Held),
}

/// Error of the other end that ends the session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverError {
    /// The sender sent a message that only a receiver sends.
    #[error("the sender sent what only a receiver may send ({0})")]
    WrongRole(&'static str),
    /// Too many entries are under way.
    #[error("the sender has more than {MAXIMUM_UNDER_WAY} entries under way")]
    TooMany,
    /// Entries under way need too many bytes.
    #[error(
        "the sender has more than {} MiB of entries, paths and texts under way",
        MAXIMUM_REMEMBERED_BYTES >> 20
    )]
    TooMuch,
    /// Names for deletion were not requested, are out of order, or are too many.
    #[error("the sender told names for deletion that it was not asked for, or out of order")]
    Names,
    /// Questions about directories are not part of this copy, or too many are open.
    #[error("the sender asks for probes in directories out of turn")]
    Probes,
    /// An entry is invalid.
    #[error("the sender sent an entry with values out of their range")]
    InvalidEntry,
}

/// A packed entry that is being verified and written.
#[derive(Debug)]
struct Packing {
    parent: Option<EntryId>,
    generation: u32,
    /// The packed entry's part of the account.
    share: Share,
    /// Failure, if the sender gave up the entry meanwhile.
    abandoned: Option<Failure>,
}

#[derive(Debug, Default)]
struct Folder {
    done: u64,
    end: Option<(Entry, u64)>,
}

/// The receiving end of a transfer.
#[derive(Debug)]
pub struct Receiver {
    settings: ReceiverSettings,
    done: RangeSet,
    files: BTreeMap<EntryId, Incoming>,
    packed: BTreeMap<EntryId, Packing>,
    folders: BTreeMap<EntryId, Folder>,
    seals: BTreeMap<EntryId, large::Seal>,
    walk_end: Option<u64>,
    left_out: LeftOut,
    anchor: Option<Box<AnchorState>>,
    /// Hard links that wait for their first name, by that entry, and their number.
    waiting_links: BTreeMap<EntryId, Vec<Entry>>,
    links: usize,
    /// Hard links whose first name is done, and true while a job makes some of them.
    released: Vec<Entry>,
    releasing: bool,
    /// Entries that failed. Hard links to them fail too.
    failed: RangeSet,
    /// Entries that were left out on purpose.
    omitted: RangeSet,
    /// True if more entries failed than are remembered.
    failed_beyond: bool,
    /// Numbers of entries that this end leaves unchanged on purpose.
    held: LeftOut,
    /// Bytes of the entries that are being compared or wait for the check of their directory: the
    /// total and each list.
    asked: usize,
    lists: VecDeque<(usize, usize)>,
    /// Files whose digests were requested from the sender, and their bytes.
    comparing: BTreeMap<EntryId, Entry>,
    comparing_weight: usize,
    /// Bytes of the stored paths, targets and texts, except those of outcomes.
    texts: usize,
    /// Number of unsent answers.
    unsaid: usize,
    jobs: VecDeque<StorageJob>,
    messages: VecDeque<Message>,
    events: VecDeque<ReceivedEvent>,
    outcomes: Vec<(EntryId, Outcome)>,
    /// Bytes of the texts in `outcomes`.
    outcome_bytes: usize,
    durable: Vec<PieceName>,
    arrived: BTreeMap<u32, u64>,
    /// Streams with arrivals that were not yet reported to the sender.
    arrived_untold: BTreeSet<u32>,
    room: bool,
    room_told: bool,
    /// Corrupt packed entries, with the generation that must be sent again. Older generations are
    /// dropped.
    expected: BTreeMap<EntryId, u32>,
    /// Files with blocks for a checkpoint while no checkpoint of them runs.
    dirty: BTreeSet<EntryId>,
    /// Bytes of the blocks in `dirty`, and the time at which the first of them was written.
    dirty_bytes: u64,
    dirty_since: Option<Moment>,
    /// Bytes written and not known to be durable, including those in a running checkpoint.
    unsynced: u64,
    /// Number of ranges in the claims of all files.
    fragments: usize,
    totals: Totals,
    notices: Vec<Notice>,
    account: Account,
    deleting: Deleting,
    probing: Probing,
    asking_sources: AskingSources,
    /// True if the sender reported the end of the removal of its sources.
    moves_ended: bool,
    finishing: bool,
    finished: bool,
}

impl Receiver {
    /// Makes a receiver without entries.
    pub fn new(settings: ReceiverSettings) -> Receiver {
        Receiver {
            settings,
            done: RangeSet::default(),
            files: BTreeMap::new(),
            packed: BTreeMap::new(),
            folders: BTreeMap::new(),
            seals: BTreeMap::new(),
            walk_end: None,
            left_out: LeftOut::default(),
            anchor: None,
            waiting_links: BTreeMap::new(),
            links: 0,
            released: Vec::new(),
            releasing: false,
            failed: RangeSet::default(),
            omitted: RangeSet::default(),
            failed_beyond: false,
            held: LeftOut::default(),
            asked: 0,
            lists: VecDeque::new(),
            comparing: BTreeMap::new(),
            comparing_weight: 0,
            texts: 0,
            unsaid: 0,
            jobs: VecDeque::new(),
            messages: VecDeque::new(),
            events: VecDeque::new(),
            outcomes: Vec::new(),
            outcome_bytes: 0,
            durable: Vec::new(),
            arrived: BTreeMap::new(),
            arrived_untold: BTreeSet::new(),
            room: true,
            room_told: true,
            expected: BTreeMap::new(),
            dirty: BTreeSet::new(),
            fragments: 0,
            dirty_bytes: 0,
            dirty_since: None,
            unsynced: 0,
            totals: Totals::default(),
            notices: Vec::new(),
            account: Account::default(),
            deleting: Deleting::default(),
            probing: Probing::default(),
            asking_sources: AskingSources::default(),
            moves_ended: false,
            finishing: false,
            finished: false,
        }
    }

    /// Handles a message.
    ///
    /// # Errors
    ///
    /// [`ReceiverError`]: the session is over.
    pub fn handle_message(&mut self, message: Message) -> Result<(), ReceiverError> {
        match message {
            Message::Entries(entries) => self.handle_entries(entries)?,
            Message::Digests(digests) => self.handle_digests(digests)?,
            Message::DirectoryEnd { entry, children } => {
                if !entry.is_valid() || entry.kind != EntryKind::Directory {
                    return Err(ReceiverError::InvalidEntry);
                }
                let id = entry.id;
                if !self.is_done(id) {
                    self.texts += entry.text_bytes();
                    let folder = self.folders.entry(id).or_default();
                    if let Some((before, _)) = folder.end.replace((entry, children)) {
                        self.texts -= before.text_bytes();
                    }
                    self.finish_folder_if_done(id);
                }
            }
            Message::WalkEnd {
                entries,
                left_out,
                anchor,
            } => {
                if !anchor.as_ref().is_none_or(|anchor| anchor.is_valid()) {
                    return Err(ReceiverError::InvalidEntry);
                }
                self.walk_end = Some(entries);
                self.left_out = left_out;
                self.anchor = anchor;
                self.finish_if_done();
            }
            Message::Sealed {
                file,
                generation,
                size,
                grew,
            } => self.handle_sealed(file, (generation, size, grew)),
            Message::Abandoned {
                id,
                parent,
                failure,
            } => self.handle_abandoned(id, parent, failure),
            Message::Names(names) => self.handle_names(names)?,
            Message::NamesEnd(failure) => self.handle_names_end(failure)?,
            Message::RemovedTaken => self.handle_removed_taken(),
            Message::Omitted(omitted) => self.handle_omitted(omitted)?,
            Message::Unmoved(path, failure) => self.handle_unmoved(path, failure),
            Message::AskDistinct(directories) => self.handle_ask_distinct(directories)?,
            Message::Sighted(seen) => self.handle_sighted(seen)?,
            Message::MovesEnd => self.handle_moves_end(),
            Message::Sources(found) => self.handle_sources(found)?,
            Message::Answers(_) => return Err(ReceiverError::WrongRole("answers")),
            Message::Durable { .. } => return Err(ReceiverError::WrongRole("acknowledgements")),
            Message::Done { .. } => return Err(ReceiverError::WrongRole("outcomes")),
            Message::Finished(..) => return Err(ReceiverError::WrongRole("the end")),
            _ => {}
        }
        self.check_bounds()
    }

    /// Counts a block that arrived on a stream, whether it is kept or dropped.
    pub fn handle_arrival(&mut self, stream: StreamId) {
        *self.arrived.entry(stream.0).or_default() += 1;
        self.arrived_untold.insert(stream.0);
    }

    /// Handles a change of the room for blocks at this end.
    pub fn handle_room(&mut self, room: bool) {
        self.room = room;
    }

    /// Handles the loss of a stream. Its arrivals are no longer reported.
    pub fn handle_stream_down(&mut self, stream: StreamId) {
        self.arrived.remove(&stream.0);
        self.arrived_untold.remove(&stream.0);
    }

    /// True if a block with this content may still be needed.
    pub fn awaits(&self, content: &ContentName) -> bool {
        match content {
            ContentName::Piece(piece) => match self.files.get(&piece.file) {
                Some(file) => {
                    let end = piece.offset.saturating_add(piece.length);
                    file.generation <= piece.generation && !file.claimed.contains(piece.offset, end)
                }
                None => !self.is_done(piece.file),
            },
            ContentName::Pack(ids) => ids.iter().any(|&id| !self.is_done(id)),
        }
    }

    /// Handles a valid pack that arrived. Returns one verdict for each entry.
    ///
    /// # Errors
    ///
    /// [`ReceiverError`]: the session is over.
    pub fn handle_pack(&mut self, pack: &[PackedEntry]) -> Result<Vec<Verdict>, ReceiverError> {
        let mut verdicts = Vec::with_capacity(pack.len());
        for PackedEntry {
            entry, generation, ..
        } in pack
        {
            let id = entry.id;
            let newer = self
                .files
                .get(&id)
                .is_none_or(|file| file.generation < *generation && !file.committing);
            let known = self.is_done(id) || self.packed.contains_key(&id);
            let newer = newer && !self.is_outdated(id, *generation);
            if known || !newer || entry.kind == EntryKind::Directory {
                self.account.add_unclaimed(entry.size());
                verdicts.push(Verdict::Drop);
                continue;
            }
            self.discard_file(id);
            let mut share = Share::default();
            if matches!(entry.kind, EntryKind::File { .. }) {
                let size = entry.size();
                self.account.add_moved(&mut share, size, size);
            }
            let packing = Packing {
                parent: entry.parent,
                generation: *generation,
                share,
                abandoned: None,
            };
            self.packed.insert(id, packing);
            verdicts.push(Verdict::Keep);
        }
        if verdicts.iter().all(|verdict| *verdict == Verdict::Drop) {
            self.duplicate();
        }
        self.check_bounds()?;
        Ok(verdicts)
    }

    /// Handles a block that is corrupt or cannot be decoded. For a pack, `content` names only the
    /// corrupt entries that were to be kept; other entries arrived another way.
    pub fn handle_corrupt(&mut self, content: ContentName, reason: AgainReason) {
        self.totals.corrupt_blocks += u64::from(reason.is_damage());
        let content = match content {
            ContentName::Piece(piece) => {
                let file = self.files.get(&piece.file);
                if file.is_some_and(|file| file.generation == piece.generation) {
                    let end = piece.offset.saturating_add(piece.length);
                    self.claim(piece.file, |claimed| claimed.remove(piece.offset, end));
                    self.take_back(piece);
                }
                ContentName::Piece(piece)
            }
            ContentName::Pack(mut ids) => {
                ids.retain(|&id| self.is_wanted_again(id));
                if ids.is_empty() {
                    return;
                }
                ContentName::Pack(ids)
            }
        };
        self.push_message(Message::Again { content, reason });
    }

    /// Removes a damaged packed entry. Returns true if the sender must send it again.
    fn is_wanted_again(&mut self, id: EntryId) -> bool {
        let Some(packing) = self.packed.remove(&id) else {
            return false;
        };
        self.account.void(packing.share);
        if let Some(failure) = packing.abandoned {
            self.discard_file(id);
            self.finish_entry(id, packing.parent, None, Outcome::Failed(failure));
            return false;
        }
        // The older state of the file was discarded when this entry arrived. With the generation
        // noted here, late results of that state are ignored.
        self.expected.insert(id, packing.generation);
        // A newer state of the file may have waited for this entry.
        self.commit_if_complete(id);
        true
    }

    /// Handles packed entries that were committed or failed.
    pub fn handle_packed(&mut self, entries: Vec<(Entry, Outcome)>) {
        for (entry, outcome) in entries {
            if let Some(mut packing) = self.packed.remove(&entry.id) {
                if let Outcome::Committed { .. } = outcome {
                    self.totals.bytes += entry.size();
                    self.account.complete(&mut packing.share, entry.size());
                }
                self.discard_file(entry.id);
                self.finish_entry(entry.id, packing.parent, Some(entry), outcome);
            }
        }
    }

    /// Counts an existing file of `bytes` bytes that was read for its digest.
    pub fn handle_digest_read(&mut self, bytes: u64) {
        self.totals.digests_read += 1;
        self.totals.digest_bytes_read += bytes;
    }

    /// Returns the state that the destination itself gets after everything else is done.
    pub fn anchor(&self) -> Option<&AnchorState> {
        self.anchor.as_deref()
    }

    /// Adds to the number of removed leftovers of other copies.
    pub fn handle_expired(&mut self, leftovers: u64) {
        self.totals.expired += leftovers;
    }

    /// Sets the properties that the destination lost or refused, one of each kind. Must be called
    /// before [`Receiver::handle_finished`].
    pub fn handle_notices(&mut self, notices: Vec<Notice>) {
        self.notices = notices;
    }

    /// Handles a directory that got its mode and time, or failed.
    pub fn handle_directory_finished(&mut self, entry: Entry, result: Result<(), Failure>) {
        let outcome = match result {
            Ok(()) => Outcome::Committed { digest: None },
            Err(failure) => Outcome::Failed(failure),
        };
        self.end_directory(entry, outcome);
    }

    /// Handles a directory that already existed.
    pub fn handle_directory_there(&mut self, entry: Entry) {
        self.end_directory(entry, Outcome::Unchanged);
    }

    /// Handles a directory that existed and whose owner, mode, time or attributes were corrected.
    pub fn handle_directory_mended(&mut self, entry: Entry) {
        self.end_directory(entry, Outcome::Mended);
    }

    /// In a dry run: handles the change that a copy would make to a directory; `None` if it exists.
    pub fn handle_directory_planned(&mut self, entry: Entry, change: Option<Change>) {
        self.end_directory(entry, Outcome::Planned(change));
    }

    /// Handles a directory that is not created on purpose.
    pub fn handle_directory_left(&mut self, entry: Entry, held: Held) {
        self.end_directory(entry, Outcome::Left(held));
    }

    fn end_directory(&mut self, entry: Entry, outcome: Outcome) {
        self.texts = self.texts.saturating_sub(entry.text_bytes());
        self.finish_entry(entry.id, entry.parent, Some(entry), outcome);
    }

    /// Handles the end of all jobs: everything is durable, and temporary files are removed.
    pub fn handle_finished(&mut self) {
        self.finished = true;
        self.flush();
        let notices = self.notices.clone();
        self.push_message(Message::Finished(self.totals, notices));
    }

    /// Returns the next job on the disk.
    pub fn poll_storage(&mut self, now: Moment) -> Option<StorageJob> {
        match self.jobs.pop_front() {
            Some(job) => {
                self.texts -= weight::of_job(&job);
                Some(job)
            }
            None => self.due_checkpoint(now),
        }
    }

    /// True if [`Receiver::poll_message`] returns a message.
    pub fn has_message(&self) -> bool {
        !self.messages.is_empty()
            || !self.arrived_untold.is_empty()
            || self.room != self.room_told
            || !self.durable.is_empty()
            || !self.outcomes.is_empty()
            || self.asks_names()
    }

    /// True if the sender may send more: the last value given to [`Receiver::handle_room`].
    pub fn has_room(&self) -> bool {
        self.room
    }

    /// Returns the next message for the sender.
    pub fn poll_message(&mut self) -> Option<Message> {
        if self.messages.is_empty() {
            self.flush();
        }
        let message = self.messages.pop_front().or_else(|| self.ask_names());
        self.texts -= message.as_ref().map_or(0, weight::of_message);
        if let Some(Message::Answers(answers)) = &message {
            self.unsaid = self.unsaid.saturating_sub(answers.len());
        }
        message
    }

    /// Returns the next event for observers.
    pub fn poll_event(&mut self) -> Option<ReceivedEvent> {
        self.events.pop_front()
    }

    /// Returns the time at which [`Receiver::poll_storage`] must be called even without an event.
    pub fn poll_timeout(&self) -> Option<Moment> {
        self.dirty_since
            .map(|since| since + self.settings.checkpoint_span)
    }

    /// True if everything is done and durable and the final message is queued.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the notices given to [`Receiver::handle_notices`].
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Returns the account of file data so far.
    pub fn account(&self) -> Account {
        Account {
            arrived_bytes: self.account.moved_bytes,
            ..self.account
        }
    }

    /// True if this generation of the file is being received.
    pub fn is_under_way(&self, file: EntryId, generation: u32) -> bool {
        let known = self.files.get(&file);
        known.is_some_and(|known| known.generation == generation)
    }

    /// Returns the digest of a complete file.
    pub fn digest_of(&self, file: EntryId) -> Option<Checksum> {
        self.files.get(&file)?.ledger.digest()
    }

    /// Returns the number of files and packed entries that have begun to arrive and are not done.
    pub fn under_way(&self) -> usize {
        self.files.len() + self.packed.len()
    }

    /// Returns the number of tracked items: entries under way, open directories and early seals.
    /// The sender's window bounds it.
    pub fn tracked(&self) -> usize {
        self.under_way() + self.folders.len() + self.seals.len()
    }

    fn duplicate(&mut self) {
        self.totals.duplicate_blocks += 1;
    }

    /// Records the outcome of an entry and reports it once. Later outcomes of the same entry are
    /// ignored.
    fn finish_entry(
        &mut self,
        id: EntryId,
        parent: Option<EntryId>,
        entry: Option<Entry>,
        outcome: Outcome,
    ) {
        if self.is_done(id) {
            return;
        }
        self.count(Some(&outcome));
        self.events.push_back(ReceivedEvent::Ended {
            entry,
            id,
            outcome: Some(outcome.clone()),
            digest: None,
        });
        if let Outcome::Failed(failure) = &outcome {
            self.outcome_bytes += failure.text.len();
            self.note_failed(id);
        }
        if outcome == Outcome::LeftOut {
            self.note_left_out(id);
        }
        self.outcomes.push((id, outcome));
        self.mark_done(id, parent);
    }

    fn count(&mut self, outcome: Option<&Outcome>) {
        if let Some(Outcome::Left(held)) = outcome {
            self.held.count(held.reason());
        }
        let totals = &mut self.totals;
        let counter = match outcome {
            Some(Outcome::Committed { .. }) => &mut totals.committed,
            Some(Outcome::Failed(_)) => &mut totals.failed,
            Some(Outcome::Left(_)) => &mut totals.left,
            Some(Outcome::Planned(Some(_))) => &mut totals.planned,
            Some(Outcome::Mended) => {
                totals.mended += 1;
                &mut totals.skipped
            }
            Some(Outcome::Planned(None) | Outcome::Unchanged) | None => &mut totals.skipped,
            Some(Outcome::LeftOut) => return,
        };
        *counter += 1;
    }

    /// True if an entry has failed.
    pub fn has_failed(&self) -> bool {
        self.totals.failed > 0
    }

    fn is_done(&self, id: EntryId) -> bool {
        self.done.contains(id.0, id.0.saturating_add(1))
    }

    /// True if a newer state of the entry is expected.
    fn is_outdated(&self, id: EntryId, generation: u32) -> bool {
        let expected = self.expected.get(&id);
        expected.is_some_and(|expected| generation < *expected)
    }

    fn mark_done(&mut self, id: EntryId, parent: Option<EntryId>) {
        self.seals.remove(&id);
        self.expected.remove(&id);
        self.take_compared(id);
        self.done.insert(id.0, id.0.saturating_add(1));
        self.release_links(id);
        if let Some(parent) = parent {
            self.folders.entry(parent).or_default().done += 1;
            self.finish_folder_if_done(parent);
        }
        self.finish_if_done();
    }

    fn finish_folder_if_done(&mut self, id: EntryId) {
        let finished = self.folders.get(&id).is_some_and(|folder| {
            folder
                .end
                .as_ref()
                .is_some_and(|(_, children)| folder.done >= *children)
        });
        if finished && let Some((entry, _)) = self.folders.remove(&id).and_then(|f| f.end) {
            self.push_job(StorageJob::FinishDirectory(entry));
        }
    }

    fn finish_if_done(&mut self) {
        let complete = self
            .walk_end
            .is_some_and(|entries| self.done.contains(0, entries))
            && (self.moves_ended || !self.settings.moves_away);
        let deletes = complete && !self.finishing && self.deletion_comes_first();
        if complete && !self.finishing && !deletes {
            self.finishing = true;
            self.jobs.push_back(StorageJob::Finish);
        }
    }

    /// Turns collected arrivals, acknowledgements and outcomes into messages.
    fn flush(&mut self) {
        let epoch = self.settings.epoch;
        if !self.arrived_untold.is_empty() || self.room != self.room_told {
            self.room_told = self.room;
            let untold = std::mem::take(&mut self.arrived_untold);
            let counts = untold.into_iter().filter_map(|stream| {
                let blocks = self.arrived.get(&stream)?;
                Some((stream, *blocks))
            });
            let (streams, room) = (counts.collect(), self.room);
            self.push_message(Message::Arrived { streams, room });
        }
        for pieces in take_chunks(&mut self.durable, MAXIMUM_DURABLE) {
            self.push_message(Message::Durable { epoch, pieces });
        }
        self.outcome_bytes = 0;
        for entries in take_chunks(&mut self.outcomes, MAXIMUM_DONE) {
            self.push_message(Message::Done { epoch, entries });
        }
    }
}

fn take_chunks<T>(list: &mut Vec<T>, most: usize) -> Vec<Vec<T>> {
    let mut chunks = Vec::new();
    let mut rest = std::mem::take(list);
    while !rest.is_empty() {
        let tail = rest.split_off(rest.len().min(most));
        chunks.push(std::mem::replace(&mut rest, tail));
    }
    chunks
}
