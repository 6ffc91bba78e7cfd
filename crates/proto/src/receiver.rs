//! The end that has the destination: what to keep of what arrives, when to
//! make it durable, when to give a file its name, and what to acknowledge.
//!
//! Pieces of a large file are *claimed* when they arrive, *written*, and *durable* after a
//! checkpoint. The file is committed when it is complete and the sender sealed it. The writer of
//! packed entries commits them. A directory gets its mode and time after everything in it is done.
//! Memory depends on what is under way, not on the size of the tree.

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

/// How a receiver works.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverSettings {
    /// How blocks are verified.
    pub integrity: Integrity,
    /// The session's epoch.
    pub epoch: u64,
    /// Most bytes of large files written and not durable. When half of them are,
    /// they are made durable and reported, while the other half comes.
    pub checkpoint_bytes: u64,
    /// Time after which they are.
    pub checkpoint_span: Duration,
    /// Digests go with the acknowledgements.
    pub digests: bool,
    /// Something may be there: questions are answered. Else the sender knows
    /// that nothing is, and what it asked before it knew is of no interest.
    pub compares: bool,
    /// Deletion follows the copy.
    pub deletes: bool,
    /// Nothing is deleted: names that would be are differences, whatever failed.
    pub names_only: bool,
    /// The sender removes its sources. This end finishes after that.
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

/// Most entries under way that a sender may have, a multiple of what ours
/// has. More is a fault of the other end, and ends the session.
const MAXIMUM_UNDER_WAY: usize = 65_536;

/// Ranges of claimed bytes that may be under way for each of those entries, on
/// average: a sender that leaves a gap after every block has no good reason.
const FRAGMENTS_PER_ENTRY: usize = 8;

/// Most entries in one [`Message::Done`].
const MAXIMUM_DONE: usize = 1024;

/// Most pieces in one [`Message::Durable`].
const MAXIMUM_DURABLE: usize = 4096;

/// Acknowledgements not yet said, for each of those entries: one that does not
/// listen is not to be received from.
const UNSAID_PER_ENTRY: usize = 4;

/// Bytes of their texts, for each of those entries.
const OUTCOME_BYTES_PER_ENTRY: usize = 1024;

/// Most bytes that a session remembers, whatever the host has; see
/// [`Receiver::remembered_bytes`]. Our sender's windows make it a few.
pub const MAXIMUM_REMEMBERED_BYTES: usize = 64 << 20;

/// What to do with a block that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Verify and write it.
    Keep,
    /// It is here already, or nobody needs it.
    Drop,
}

/// Something to do on the disk. The thread that does it reports with the method named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageJob {
    /// Compare with what is there: [`Receiver::handle_compared`].
    Compare(Vec<Entry>),
    /// Compare the contents of a file that is there with the source's digest:
    /// [`Receiver::handle_contents_compared`].
    CompareContents(Entry, Checksum),
    /// Make these blocks durable, journal them:
    /// [`Receiver::handle_checkpointed`].
    Checkpoint(Vec<Checkpoint>),
    /// Make the rest durable and give the file its name:
    /// [`Receiver::handle_committed`].
    Commit {
        /// The file's final state.
        entry: Entry,
        /// Its generation.
        generation: u32,
        /// Its digest; none without digests.
        digest: Option<Checksum>,
    },
    /// Remove what was written of a file; writes and checkpoints of it that are
    /// still under way are to leave nothing behind either.
    Discard {
        /// The file.
        file: EntryId,
        /// Its generation.
        generation: u32,
        /// What is durable of it stays for a later session.
        stays: bool,
    },
    /// Read what an earlier session left of a file, and compare it with its checksums:
    /// [`Receiver::handle_read_back`].
    ReadBack {
        /// The file.
        entry: Entry,
        /// Its generation.
        generation: u32,
        /// What is there.
        blocks: Vec<DurableBlock>,
    },
    /// Make another name of what an entry that is done is: [`Receiver::handle_packed`].
    Link(Entry),
    /// Give a directory its mode and time, make it if it is missing:
    /// [`Receiver::handle_directory_finished`].
    FinishDirectory(Entry),
    /// Compare what is there with the names that the source has:
    /// [`Receiver::handle_names_taken`].
    Names(Vec<NamesOf>),
    /// All of them came, or why not: [`Receiver::handle_names_compared`].
    EndNames(Option<Failure>),
    /// Remove the next of what the source does not have, at most
    /// [`crate::deletion::REMOVED_AT_ONCE`]: [`Receiver::handle_removed`].
    Remove,
    /// Make a probe in each of these directories: [`Receiver::handle_probes_made`].
    MakeProbes(Vec<Question>),
    /// Remove the probes, of which the sender saw these: [`Receiver::handle_probes_removed`].
    RemoveProbes(Vec<bool>),
    /// Everything is done: leave nothing behind, and
    /// [`Receiver::handle_finished`].
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

/// What became of an entry, for observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedEvent {
    /// It is done.
    Ended {
        /// The entry; `None` if only its number is known.
        entry: Option<Entry>,
        /// Its number.
        id: EntryId,
        /// How it ended; `None` if it was there already.
        outcome: Option<Outcome>,
        /// The digest of what was there, where it was asked for.
        digest: Option<Checksum>,
    },
    /// The bytes of it that an earlier session left durable.
    Resumed {
        /// The entry.
        entry: Entry,
        /// Bytes, not to be sent again.
        bytes: u64,
    },
    /// More of it is durable, still without its name.
    Durable {
        /// The entry.
        entry: Entry,
        /// Bytes in all, those of earlier sessions too.
        bytes: u64,
    },
    /// What became of a name that the source does not have.
    Removed(Removal),
    /// The sender left it out on purpose.
    Omitted(Omitted),
}

/// What a comparison found of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Nothing of use is there.
    Send,
    /// It is there, unchanged; its digest where that was asked for.
    Same(Option<Checksum>),
    /// It is there, and its owner, mode, time or attributes were corrected; its digest as of
    /// [`Compared::Same`].
    Mended(Option<Checksum>),
    /// A file of the same size and time is there: its contents are to be compared.
    Contents,
    /// Its contents were compared, and are not the source's.
    Differs,
    /// It is there, and something has to be done before that counts:
    /// [`Receiver::handle_contents_compared`] follows.
    Later,
    /// An earlier attempt left these durable blocks.
    Partial(Vec<DurableBlock>),
    /// It cannot go there.
    Refused(Failure),
    /// In a dry run: what a copy would do with it.
    Planned(Change),
    /// It stays as it is there.
    Left(Held),
}

/// What the other end did wrong; the session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverError {
    /// A message that only a receiver sends.
    #[error("the sender sent what only a receiver may send ({0})")]
    WrongRole(&'static str),
    /// More entries under way than can be.
    #[error("the sender has more than {MAXIMUM_UNDER_WAY} entries under way")]
    TooMany,
    /// More bytes of what is under way than can be.
    #[error(
        "the sender has more than {} MiB of entries, paths and texts under way",
        MAXIMUM_REMEMBERED_BYTES >> 20
    )]
    TooMuch,
    /// Names that were not asked for, or are out of order, or too many.
    #[error("the sender told names for deletion that it was not asked for, or out of order")]
    Names,
    /// Questions about directories that this copy does not ask, or too many at a time.
    #[error("the sender asks for probes in directories out of turn")]
    Probes,
    /// An entry that is none.
    #[error("the sender sent an entry with values out of their range")]
    InvalidEntry,
}

/// A packed entry that is being verified and written.
#[derive(Debug)]
struct Packing {
    parent: Option<EntryId>,
    generation: u32,
    /// What is counted of it.
    share: Share,
    /// The sender gave it up meanwhile.
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
    /// Further names of entries that are not done, by those, and how many there are.
    waiting_links: BTreeMap<EntryId, Vec<Entry>>,
    links: usize,
    /// Further names whose first one is done, and whether they are being made.
    released: Vec<Entry>,
    releasing: bool,
    /// Entries that failed: nothing becomes another name of them.
    failed: RangeSet,
    /// Entries that were left out on purpose.
    omitted: RangeSet,
    /// More failed than are remembered.
    failed_beyond: bool,
    /// What this end holds back, counted.
    held: LeftOut,
    /// What entries whose comparison is under way, or whose directory is looked at, weigh: in
    /// all, and each list of them.
    asked: usize,
    lists: VecDeque<(usize, usize)>,
    /// Files whose digests the sender was asked for, and what they weigh.
    comparing: BTreeMap<EntryId, Entry>,
    comparing_weight: usize,
    /// Bytes of the paths, targets and texts that are kept, except those of outcomes.
    texts: usize,
    /// Answers that were not said yet.
    unsaid: usize,
    jobs: VecDeque<StorageJob>,
    messages: VecDeque<Message>,
    events: VecDeque<ReceivedEvent>,
    outcomes: Vec<(EntryId, Outcome)>,
    /// Bytes of the texts among them.
    outcome_bytes: usize,
    durable: Vec<PieceName>,
    arrived: BTreeMap<u32, u64>,
    /// Streams on which something arrived that the sender was not told of.
    arrived_untold: BTreeSet<u32>,
    room: bool,
    room_told: bool,
    /// Entries that came in packs and were corrupt, by the generation that is to
    /// come again: nothing older of them is kept.
    expected: BTreeMap<EntryId, u32>,
    /// Files with blocks for a checkpoint, none of which is under way.
    dirty: BTreeSet<EntryId>,
    /// Bytes of those blocks, and when the first of them was written.
    dirty_bytes: u64,
    dirty_since: Option<Moment>,
    /// Bytes written and not known to be durable, those under a checkpoint too.
    unsynced: u64,
    /// Ranges that all files' claims take.
    fragments: usize,
    totals: Totals,
    notices: Vec<Notice>,
    account: Account,
    deleting: Deleting,
    probing: Probing,
    asking_sources: AskingSources,
    /// The sender removed its sources, as far as it does.
    moves_ended: bool,
    finishing: bool,
    finished: bool,
}

impl Receiver {
    /// A receiver to which nothing came yet.
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

    /// A message came.
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

    /// A block arrived on a stream, whatever becomes of it.
    pub fn handle_arrival(&mut self, stream: StreamId) {
        *self.arrived.entry(stream.0).or_default() += 1;
        self.arrived_untold.insert(stream.0);
    }

    /// There is room for more blocks at this end, or not.
    pub fn handle_room(&mut self, room: bool) {
        self.room = room;
    }

    /// A stream is lost: what arrived on it is not told any more.
    pub fn handle_stream_down(&mut self, stream: StreamId) {
        self.arrived.remove(&stream.0);
        self.arrived_untold.remove(&stream.0);
    }

    /// Whether a block of this content may still be of use when it comes.
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

    /// A pack arrived; it was proved valid before. One verdict for each entry.
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

    /// A block's checksum is wrong, or it cannot be decoded. Of a pack only the
    /// entries are named that were to be kept and are wrong: the others have
    /// come another way.
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

    /// A packed entry arrived damaged; true if the sender must send it again.
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
        // A file's older state went when this came, and stays away: what was
        // begun of it is discarded, and what ends of it later is not of another.
        self.expected.insert(id, packing.generation);
        // A newer state of it may have waited for this.
        self.commit_if_complete(id);
        true
    }

    /// Packed entries were committed, or failed.
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

    /// A file that was there had to be read for its digest; its bytes.
    pub fn handle_digest_read(&mut self, bytes: u64) {
        self.totals.digests_read += 1;
        self.totals.digest_bytes_read += bytes;
    }

    /// What the destination itself gets, once everything else is done.
    pub fn anchor(&self) -> Option<&AnchorState> {
        self.anchor.as_deref()
    }

    /// The number of leftovers of other copies that were removed.
    pub fn handle_expired(&mut self, leftovers: u64) {
        self.totals.expired += leftovers;
    }

    /// What the destination did not keep or refused, one of each kind; to be told
    /// before [`Receiver::handle_finished`].
    pub fn handle_notices(&mut self, notices: Vec<Notice>) {
        self.notices = notices;
    }

    /// A directory has its mode and time, or failed.
    pub fn handle_directory_finished(&mut self, entry: Entry, result: Result<(), Failure>) {
        let outcome = match result {
            Ok(()) => Outcome::Committed { digest: None },
            Err(failure) => Outcome::Failed(failure),
        };
        self.end_directory(entry, outcome);
    }

    /// Handles a directory that was there before.
    pub fn handle_directory_there(&mut self, entry: Entry) {
        self.end_directory(entry, Outcome::Unchanged);
    }

    /// A directory was there before, and its owner, mode, time or attributes were corrected.
    pub fn handle_directory_mended(&mut self, entry: Entry) {
        self.end_directory(entry, Outcome::Mended);
    }

    /// In a dry run: what a copy would do with a directory; `None` if it is there.
    pub fn handle_directory_planned(&mut self, entry: Entry, change: Option<Change>) {
        self.end_directory(entry, Outcome::Planned(change));
    }

    /// A directory is not made, on purpose.
    pub fn handle_directory_left(&mut self, entry: Entry, held: Held) {
        self.end_directory(entry, Outcome::Left(held));
    }

    fn end_directory(&mut self, entry: Entry, outcome: Outcome) {
        self.texts = self.texts.saturating_sub(entry.text_bytes());
        self.finish_entry(entry.id, entry.parent, Some(entry), outcome);
    }

    /// Nothing is left behind, everything is durable.
    pub fn handle_finished(&mut self) {
        self.finished = true;
        self.flush();
        let notices = self.notices.clone();
        self.push_message(Message::Finished(self.totals, notices));
    }

    /// The next thing to do on the disk.
    pub fn poll_storage(&mut self, now: Moment) -> Option<StorageJob> {
        match self.jobs.pop_front() {
            Some(job) => {
                self.texts -= weight::of_job(&job);
                Some(job)
            }
            None => self.due_checkpoint(now),
        }
    }

    /// Whether [`Receiver::poll_message`] gives something.
    pub fn has_message(&self) -> bool {
        !self.messages.is_empty()
            || !self.arrived_untold.is_empty()
            || self.room != self.room_told
            || !self.durable.is_empty()
            || !self.outcomes.is_empty()
            || self.asks_names()
    }

    /// Whether the sender may send more: what [`Receiver::handle_room`] was
    /// told last.
    pub fn has_room(&self) -> bool {
        self.room
    }

    /// The next message to say.
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

    /// What became of entries.
    pub fn poll_event(&mut self) -> Option<ReceivedEvent> {
        self.events.pop_front()
    }

    /// When [`Receiver::poll_storage`] is to be asked although nothing
    /// happened.
    pub fn poll_timeout(&self) -> Option<Moment> {
        self.dirty_since
            .map(|since| since + self.settings.checkpoint_span)
    }

    /// Whether everything is done and durable and was said.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// What [`Receiver::handle_notices`] was told.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// What became of file data so far.
    pub fn account(&self) -> Account {
        Account {
            arrived_bytes: self.account.moved_bytes,
            ..self.account
        }
    }

    /// Whether this generation of a file is what is being received of it.
    pub fn is_under_way(&self, file: EntryId, generation: u32) -> bool {
        let known = self.files.get(&file);
        known.is_some_and(|known| known.generation == generation)
    }

    /// The digest of a file that is whole.
    pub fn digest_of(&self, file: EntryId) -> Option<Checksum> {
        self.files.get(&file)?.ledger.digest()
    }

    /// Files and packed entries that have begun to arrive and are not done.
    pub fn under_way(&self) -> usize {
        self.files.len() + self.packed.len()
    }

    /// Everything that is remembered of entries not done: what is under way,
    /// open directories, early seals. Bounded by the sender's window.
    pub fn tracked(&self) -> usize {
        self.under_way() + self.folders.len() + self.seals.len()
    }

    fn duplicate(&mut self) {
        self.totals.duplicate_blocks += 1;
    }

    /// The sender gave an entry up. What is being given its name right now ends
    /// as that ends; both hear the same.
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

    /// Whether an entry failed so far.
    pub fn has_failed(&self) -> bool {
        self.totals.failed > 0
    }

    fn is_done(&self, id: EntryId) -> bool {
        self.done.contains(id.0, id.0.saturating_add(1))
    }

    /// Whether a newer state of an entry is to come.
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

    /// Turns what was collected into messages.
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
