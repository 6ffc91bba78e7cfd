//! The receiving end of a transfer: decides which data to keep, when to make it durable, when to
//! give a file its name, and which acknowledgements to send.
//!
//! - [`Files`]: data of files and packed entries, with the [`Placement`] of each file and the
//!   [`Durability`] of written data
//! - [`Outcomes`]: results of entries
//! - [`Acks`]: reports about arrivals, durable pieces and room
//! - [`Removals`]: removal of names that the source does not have
//! - [`Probes`]: questions about directories
//!
//! An entry that ends in any of them goes through [`Receiver`], which counts it, releases its hard
//! links, and finishes its directory after the last entry. Memory depends on the entries under way,
//! not on the size of the tree.

mod acks;
mod answers;
mod comparisons;
mod durability;
mod ending;
mod files;
mod folders;
mod jobs;
mod links;
mod load;
mod outbox;
mod outcomes;
mod placement;
mod probes;
mod removals;
mod settings;
#[cfg(test)]
mod tests;

use longhaul_units::Moment;

use crate::block::{ContentName, PackedEntry, Piece, PieceName};
use crate::digest::Checksum;
use crate::filter::{LeftOut, MAXIMUM_OMITTED, MAXIMUM_RULE_SHOWN, Omitted};
use crate::manifest::{AnchorState, Entry, EntryId, EntryKind, TreePath};
use crate::message::{AgainReason, Failure, Message, Outcome, Removal, Totals};
use crate::notice::Notice;

pub use acks::Acks;
use comparisons::Comparisons;
pub use durability::Durability;
use ending::Ending;
pub use files::Files;
use files::Seal;
use folders::Folders;
pub use jobs::{Checkpoint, Compared, ReceivedEvent, ReceiverError, StorageJob, Verdict};
use links::Links;
pub use load::Load;
use outbox::Outbox;
pub use outcomes::Outcomes;
pub use placement::Placement;
pub use probes::Probes;
pub use removals::Removals;
pub use settings::{MAXIMUM_REMEMBERED_BYTES, ReceiverSettings};

/// End of the sender's walk.
#[derive(Debug)]
struct WalkEnd {
    /// Number of entries.
    entries: u64,
    left_out: LeftOut,
    anchor: Option<Box<AnchorState>>,
}

impl WalkEnd {
    /// True if all entries are done and the sender's sources were removed.
    fn is_complete(&self, outcomes: &Outcomes, probes: &Probes) -> bool {
        outcomes.are_done(self.entries) && probes.have_moves_ended()
    }

    /// Returns the walk's end if its values are valid.
    fn checked(self) -> Result<WalkEnd, ReceiverError> {
        if self.anchor.as_ref().is_none_or(|anchor| anchor.is_valid()) {
            Ok(self)
        } else {
            Err(ReceiverError::InvalidEntry)
        }
    }
}

/// Progress of the end of the session.
#[derive(Debug, Default)]
struct Finish {
    /// True if the last job was taken.
    begun: bool,
    /// Properties that the destination lost or refused; `None` before the end of the last job.
    notices: Option<Vec<Notice>>,
    /// True if the last message was sent.
    told: bool,
}

/// The receiving end of a transfer.
#[derive(Debug)]
pub struct Receiver {
    settings: ReceiverSettings,
    files: Files,
    outcomes: Outcomes,
    folders: Folders,
    links: Links,
    comparisons: Comparisons,
    acks: Acks,
    removals: Removals,
    probes: Probes,
    outbox: Outbox,
    walk_end: Option<WalkEnd>,
    finish: Finish,
}

impl Receiver {
    /// Makes a receiver without entries.
    pub fn new(settings: ReceiverSettings) -> Receiver {
        Receiver {
            settings,
            files: Files::new(&settings),
            outcomes: Outcomes::default(),
            folders: Folders::default(),
            links: Links::default(),
            comparisons: Comparisons::default(),
            acks: Acks::new(),
            removals: Removals::new(&settings),
            probes: Probes::new(settings.moves_away),
            outbox: Outbox::default(),
            walk_end: None,
            finish: Finish::default(),
        }
    }

    /// Returns the files that are being received.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Returns the files that are being received.
    pub fn files_mut(&mut self) -> &mut Files {
        &mut self.files
    }

    /// Returns the reports about arrivals and room.
    pub fn acks(&self) -> &Acks {
        &self.acks
    }

    /// Returns the reports about arrivals and room.
    pub fn acks_mut(&mut self) -> &mut Acks {
        &mut self.acks
    }

    /// Returns the counts of outcomes.
    pub fn outcomes_mut(&mut self) -> &mut Outcomes {
        &mut self.outcomes
    }

    /// Returns the questions about directories.
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Returns the questions about directories.
    pub fn probes_mut(&mut self) -> &mut Probes {
        &mut self.probes
    }

    /// Returns the removal of names.
    pub fn removals_mut(&mut self) -> &mut Removals {
        &mut self.removals
    }

    /// Handles a message.
    ///
    /// # Errors
    ///
    /// [`ReceiverError`]: the session is over.
    pub fn handle_message(&mut self, message: Message) -> Result<(), ReceiverError> {
        match message {
            Message::Entries(entries) => {
                let compares = self.settings.compares;
                let job = self.comparisons.handle_entries(entries, compares)?;
                job.into_iter().for_each(|job| self.outbox.push_job(job));
            }
            Message::Digests(digests) => {
                let jobs = self.comparisons.handle_digests(digests)?;
                jobs.into_iter().for_each(|job| self.outbox.push_job(job));
            }
            Message::DirectoryEnd { entry, children } => {
                let is_done = self.outcomes.is_done(entry.id);
                if let Some(entry) = self.folders.handle_end(entry, children, is_done)? {
                    self.outbox.push_job(StorageJob::FinishDirectory(entry));
                }
            }
            Message::WalkEnd {
                entries,
                left_out,
                anchor,
            } => {
                let walk_end = WalkEnd {
                    entries,
                    left_out,
                    anchor,
                };
                self.walk_end = Some(walk_end.checked()?);
            }
            Message::Sealed {
                file,
                generation,
                size,
                grew,
            } => {
                let seal = Seal {
                    generation,
                    size,
                    grew,
                };
                let is_done = self.outcomes.is_done(file);
                self.files
                    .handle_sealed(file, seal, is_done, &mut self.outbox);
            }
            Message::Abandoned {
                id,
                parent,
                failure,
            } => self
                .files
                .handle_abandoned(id, parent, failure, &mut self.outbox),
            Message::Names(names) => self.removals.handle_names(names)?,
            Message::NamesEnd(failure) => self.removals.handle_names_end(failure)?,
            Message::RemovedTaken => self.removals.handle_removed_taken(),
            Message::Omitted(omitted) => handle_omitted(omitted, &mut self.outbox)?,
            Message::Unmoved(path, failure) => self.outbox.push_event(unmoved(path, failure)),
            Message::AskDistinct(questions) => {
                self.outbox.push_job(self.probes.handle_ask(questions)?);
            }
            Message::Sighted(seen) => self.outbox.push_job(self.probes.handle_sighted(seen)?),
            Message::MovesEnd => self.probes.handle_moves_end(),
            Message::Sources(found) => self.probes.handle_sources(found)?,
            Message::Answers(_) => return Err(ReceiverError::WrongRole("answers")),
            Message::Durable { .. } => return Err(ReceiverError::WrongRole("acknowledgements")),
            Message::Done { .. } => return Err(ReceiverError::WrongRole("outcomes")),
            Message::Finished(..) => return Err(ReceiverError::WrongRole("the end")),
            _ => {}
        }
        self.settle();
        self.load().check()
    }

    /// True if a block with this content may still be needed.
    pub fn awaits(&self, content: &ContentName) -> bool {
        self.files.awaits(content, &self.outcomes)
    }

    /// Handles a valid pack that arrived. Returns one verdict for each entry.
    ///
    /// # Errors
    ///
    /// [`ReceiverError`]: the session is over.
    pub fn handle_pack(&mut self, pack: &[PackedEntry]) -> Result<Vec<Verdict>, ReceiverError> {
        let outbox = &mut self.outbox;
        let verdicts = self.files.handle_pack(pack, &self.outcomes, outbox);
        self.load().check()?;
        Ok(verdicts)
    }

    /// Handles a valid piece that arrived.
    ///
    /// # Errors
    ///
    /// [`ReceiverError`]: the session is over.
    pub fn handle_piece(&mut self, piece: &Piece) -> Result<Verdict, ReceiverError> {
        let outbox = &mut self.outbox;
        let verdict = self.files.handle_piece(piece, &self.outcomes, outbox);
        self.load().check()?;
        Ok(verdict)
    }

    /// Handles a block that is corrupt or cannot be decoded. For a pack, `content` names only the
    /// corrupt entries that were to be kept; other entries arrived another way.
    pub fn handle_corrupt(&mut self, content: ContentName, reason: AgainReason) {
        self.files.handle_corrupt(content, reason, &mut self.outbox);
        self.settle();
    }

    /// Handles packed entries that were committed or failed.
    pub fn handle_packed(&mut self, entries: Vec<(Entry, Outcome)>) {
        self.files.handle_packed(entries, &mut self.outbox);
        self.settle();
    }

    /// Handles a packed entry that is a hard link to an earlier entry. [`StorageJob::Link`] follows
    /// once the earlier entry is done. The link fails if the earlier entry failed.
    pub fn handle_link(&mut self, entry: Entry) {
        let EntryKind::HardLink { first, .. } = &entry.kind else {
            return;
        };
        let first = *first;
        if self.outcomes.is_done(first) {
            self.links.push_released(entry);
        } else {
            self.links.wait(first, entry);
        }
        self.settle();
    }

    /// Handles a piece that was verified and written but not synced, or the reason why it could not
    /// be written. Its file then fails.
    pub fn handle_written(
        &mut self,
        piece: PieceName,
        result: Result<Checksum, Failure>,
        now: Moment,
    ) {
        let outbox = &mut self.outbox;
        self.files.handle_written(piece, result, now, outbox);
        self.settle();
    }

    /// Handles a checkpoint. All its files are durable, except those with a failure.
    pub fn handle_checkpointed(&mut self, files: Vec<(Checkpoint, Option<Failure>)>) {
        self.files.handle_checkpointed(files, &mut self.outbox);
        self.settle();
    }

    /// Handles a file that has its name and is durable, or failed.
    pub fn handle_committed(
        &mut self,
        file: EntryId,
        generation: u32,
        result: Result<(), Failure>,
    ) {
        self.files.handle_committed(file, generation, result);
        self.settle();
    }

    /// Handles the result of reading the data that an earlier session left. A mismatch with its
    /// checksums fails the file.
    pub fn handle_read_back(
        &mut self,
        file: EntryId,
        generation: u32,
        result: Result<(), Failure>,
    ) {
        let outbox = &mut self.outbox;
        self.files
            .handle_read_back(file, generation, result, outbox);
        self.settle();
    }

    /// Handles the outcome of a directory: it got its mode and time, existed, was corrected, is not
    /// created on purpose, or failed. In a dry run, the change that a copy would make.
    pub fn handle_directory(&mut self, entry: Entry, outcome: Outcome) {
        self.folders.handle_finished(&entry);
        self.end(Ending {
            id: entry.id,
            parent: entry.parent,
            entry: Some(entry),
            outcome: Some(outcome),
            digest: None,
            is_answered: false,
        });
        self.settle();
    }

    /// Ends entries whose data arrived, and makes hard links to entries that are done.
    fn settle(&mut self) {
        loop {
            if let Some(ended) = self.files.take_ended() {
                self.end(Ending {
                    id: ended.id,
                    parent: ended.parent,
                    entry: ended.entry,
                    outcome: Some(ended.outcome),
                    digest: None,
                    is_answered: false,
                });
            } else if let Some(link) = self.links.pop_released() {
                let EntryKind::HardLink { target, first } = &link.kind else {
                    continue;
                };
                match self.outcomes.of_link(&link.path, target, *first) {
                    None => self.outbox.push_job(StorageJob::Link(link)),
                    Some(outcome) => {
                        let ended = vec![(link, outcome)];
                        self.files.handle_packed(ended, &mut self.outbox);
                    }
                }
            } else {
                break;
            }
        }
        self.acks.push_durable(self.files.take_durable());
        let (outcomes, probes) = (&self.outcomes, &self.probes);
        let walk_end = self.walk_end.as_ref();
        if walk_end.is_some_and(|end| end.is_complete(outcomes, probes)) {
            self.removals.begin(self.totals().failed);
        }
    }

    /// Ends an entry and reports it once. Later ends of the same entry are ignored.
    fn end(&mut self, ending: Ending) {
        let Ending {
            id,
            parent,
            entry,
            outcome,
            digest,
            is_answered,
        } = ending;
        if self.outcomes.is_done(id) {
            return;
        }
        self.outcomes.count(outcome.as_ref());
        if let Some(outcome) = &outcome {
            self.outcomes.note(id, outcome);
        }
        self.outbox.push_event(ReceivedEvent::Ended {
            entry,
            id,
            outcome: outcome.clone(),
            digest,
        });
        if let Some(outcome) = outcome.filter(|_| !is_answered) {
            self.outcomes.report(id, outcome);
        }
        self.outcomes.mark_done(id);
        self.files.forget(id);
        self.comparisons.forget(id);
        self.links.release(id);
        let folder = parent.and_then(|parent| self.folders.count_done(parent));
        if let Some(folder) = folder {
            self.outbox.push_job(StorageJob::FinishDirectory(folder));
        }
    }

    /// True if the last job is next.
    fn is_finish_due(&self) -> bool {
        let (outcomes, probes) = (&self.outcomes, &self.probes);
        let walk_end = self.walk_end.as_ref();
        !self.finish.begun
            && walk_end.is_some_and(|end| end.is_complete(outcomes, probes))
            && self.removals.are_over()
    }

    /// Returns the state that the destination itself gets after everything else is done.
    pub fn anchor(&self) -> Option<&AnchorState> {
        self.walk_end.as_ref()?.anchor.as_deref()
    }

    /// Returns the numbers of names that the sender's walk left out on purpose (zero before its
    /// end) and of entries that this end leaves unchanged.
    pub fn left_out(&self) -> LeftOut {
        let walk_end = self.walk_end.as_ref();
        let left_out = walk_end.map(|end| end.left_out).unwrap_or_default();
        left_out.with_held(self.outcomes.held())
    }

    /// Handles the end of all jobs: everything is durable, and temporary files are removed.
    /// `notices` are the properties that the destination lost or refused, one of each kind.
    pub fn handle_finished(&mut self, notices: Vec<Notice>) {
        self.finish.notices.get_or_insert(notices);
    }

    /// True if [`Receiver::poll_storage`] may return a job now.
    pub fn has_storage_job(&self, now: Moment) -> bool {
        self.outbox.has_job()
            || self.removals.has_job()
            || self.is_finish_due()
            || self.files.durability().is_due(now)
    }

    /// Returns the next job on the disk.
    pub fn poll_storage(&mut self, now: Moment) -> Option<StorageJob> {
        let job = self.outbox.poll_job();
        let job = job.or_else(|| self.removals.poll_job());
        if job.is_some() {
            return job;
        }
        if self.is_finish_due() {
            self.finish.begun = true;
            return Some(StorageJob::Finish);
        }
        self.files.due_checkpoint(now)
    }

    /// True if [`Receiver::poll_message`] returns a message.
    pub fn has_message(&self) -> bool {
        self.outbox.has_message()
            || self.acks.has_message()
            || self.outcomes.has_message()
            || self.probes.has_message()
            || self.removals.has_message()
            || self.is_finished() && !self.finish.told
    }

    /// Returns the next message for the sender.
    pub fn poll_message(&mut self) -> Option<Message> {
        let message = self.outbox.poll_message();
        let message = message.or_else(|| self.probes.poll_message());
        let message = message.or_else(|| self.removals.poll_message());
        if message.is_some() {
            return message;
        }
        // Reports of arrivals and outcomes are collected until no other message waits.
        let epoch = self.settings.epoch;
        let acks = self.acks.take_messages(epoch).into_iter();
        for message in acks.chain(self.outcomes.take_messages(epoch)) {
            self.outbox.push_message(message);
        }
        let message = self.outbox.poll_message();
        let message = message.or_else(|| self.removals.poll_ask());
        if message.is_some() || self.finish.told {
            return message;
        }
        let notices = self.finish.notices.clone()?;
        self.finish.told = true;
        Some(Message::Finished(self.totals(), notices))
    }

    /// Returns the next event for observers.
    pub fn poll_event(&mut self) -> Option<ReceivedEvent> {
        let event = self.outbox.poll_event();
        event.or_else(|| self.removals.poll_event())
    }

    /// True if everything is done and durable.
    pub fn is_finished(&self) -> bool {
        self.finish.notices.is_some()
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> Totals {
        let mut totals = self.outcomes.totals();
        self.files.add_to(&mut totals);
        self.removals.add_to(&mut totals);
        totals
    }

    /// Returns the notices given to [`Receiver::handle_finished`].
    pub fn notices(&self) -> &[Notice] {
        self.finish.notices.as_deref().unwrap_or_default()
    }

    /// Returns the number of tracked items: entries under way, open directories and early seals.
    /// The sender's window bounds it.
    pub fn tracked(&self) -> usize {
        self.files.under_way() + self.folders.len() + self.files.early_seals()
    }

    /// Returns the approximate memory for items that are not done or not sent.
    pub fn load(&self) -> Load {
        let loads = [
            self.files.load(),
            self.outcomes.load(),
            self.folders.load(),
            self.links.load(),
            self.comparisons.load(),
            self.acks.load(),
            self.removals.load(),
            self.probes.load(),
            self.outbox.load(),
        ];
        loads.into_iter().sum()
    }
}

/// Returns the event of a source that the sender could not remove.
fn unmoved(path: TreePath, failure: Failure) -> ReceivedEvent {
    ReceivedEvent::Removed(Removal {
        path: Some(path),
        size: 0,
        directory: false,
        failure: Some(failure),
    })
}

/// Reports names that the sender left out.
fn handle_omitted(omitted: Vec<Omitted>, outbox: &mut Outbox) -> Result<(), ReceiverError> {
    let long = |name: &Omitted| {
        let rule = name.rule.as_ref();
        rule.is_some_and(|rule| rule.len() > MAXIMUM_RULE_SHOWN)
    };
    if omitted.len() > MAXIMUM_OMITTED || omitted.iter().any(long) {
        return Err(ReceiverError::TooMuch);
    }
    for name in omitted {
        outbox.push_event(ReceivedEvent::Omitted(name));
    }
    outbox.push_message(Message::OmittedTaken);
    Ok(())
}
