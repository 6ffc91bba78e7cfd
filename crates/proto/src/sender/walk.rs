//! The walk of the sources as the source of tasks.
//!
//! Stages of an entry: *asked* (if the destination is not empty), perhaps *compared* or in a
//! command (*filtering*), then *sending*, in which it is a task. The entry ends when the receiver
//! reports its outcome. The window of entries bounds the memory for any size of the tree.

mod digests;
mod extent;
mod filtering;
mod listing;
mod moves;
mod names;
mod searches;
mod walked;

use std::collections::{BTreeMap, VecDeque};

use super::results::{DigestRead, Ending, EntryEvent, FilterStep, SenderError};
use super::settings::SenderSettings;
use super::task::{Part, Supply, Task, TaskId, TaskResult, Work};
use crate::filter::LeftOut;
use crate::manifest::{AnchorState, Entry, EntryId, EntryKind};
use crate::message::{Answer, Failure, FailureKind, Message, Outcome};
use digests::Digests;
use extent::Extent;
use filtering::Filtering;
use listing::{FIRST_QUESTIONS, Listing};
pub use moves::{Moved, Moves};
pub use names::Names;
pub use searches::Searches;
use walked::{Stage, Walked};

/// Number of growths of a file after which its front is sent.
const MOST_GROWTHS: u32 = 2;

/// The walk of the sources.
#[derive(Debug)]
pub struct Walk {
    settings: SenderSettings,
    entries: BTreeMap<EntryId, Walked>,
    /// Memory of `entries` in bytes.
    entry_bytes: usize,
    listing: Listing,
    digests: Digests,
    filtering: Filtering,
    names: Names,
    moves: Moves,
    searches: Searches,
    /// Tasks that were not yet taken.
    ready: VecDeque<Task>,
    messages: VecDeque<Message>,
    events: VecDeque<EntryEvent>,
    extent: Extent,
    /// Numbers of entries that the receiver leaves unchanged on purpose.
    held: LeftOut,
}

impl Walk {
    /// Makes a walk without entries.
    pub(super) fn new(settings: SenderSettings) -> Walk {
        Walk {
            settings,
            entries: BTreeMap::new(),
            entry_bytes: 0,
            listing: Listing::default(),
            digests: Digests::default(),
            filtering: Filtering::new(settings.filtered_files),
            names: Names::new(settings),
            moves: Moves::new(settings.moves_away),
            searches: Searches::new(settings.moves),
            ready: VecDeque::new(),
            messages: VecDeque::new(),
            events: VecDeque::new(),
            extent: Extent::default(),
            held: LeftOut::default(),
        }
    }

    /// Returns the names at the source for deletion at the destination.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the names at the source for deletion at the destination.
    pub fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Returns the sources that must be removed.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Returns the sources that must be removed.
    pub fn moves_mut(&mut self) -> &mut Moves {
        &mut self.moves
    }

    /// Returns the searches for probes.
    pub fn searches(&self) -> &Searches {
        &self.searches
    }

    /// Returns the searches for probes.
    pub fn searches_mut(&mut self) -> &mut Searches {
        &mut self.searches
    }

    /// Returns the number of entries that may be added now.
    pub fn entry_credit(&self) -> usize {
        if self.entry_bytes >= self.settings.window_bytes {
            return 0;
        }
        self.settings
            .window_entries
            .saturating_sub(self.entries.len() + self.moves.count())
    }

    /// Adds an entry. Its number is one higher than the previous one.
    pub fn handle_entry(&mut self, entry: Entry) {
        self.extent.count(entry.id);
        let id = entry.id;
        let is_directory = entry.kind == EntryKind::Directory;
        if self.settings.asks && self.listing.push(&entry) {
            self.flush_listing();
        }
        if is_directory {
            self.track(id, 0, Stage::Directory(entry));
            return;
        }
        self.track(id, entry.text_bytes(), Stage::Asked(entry));
        if !self.settings.asks {
            self.route(id);
        }
    }

    /// Adds an entry that cannot be read.
    pub fn handle_unreadable(&mut self, entry: Entry, failure: Failure) {
        self.extent.count(entry.id);
        let id = entry.id;
        self.track(id, entry.text_bytes(), Stage::Asked(entry));
        self.abandon(id, failure);
    }

    fn track(&mut self, id: EntryId, weighs: usize, stage: Stage) {
        self.entry_bytes += weighs;
        let walked = Walked::new(weighs, stage);
        self.entries.insert(id, walked);
    }

    /// Handles the end of a directory with this number of entries.
    pub fn handle_directory_end(&mut self, entry: Entry, children: u64) {
        if let Some(walked) = self.entries.get_mut(&entry.id) {
            let weighs = entry.text_bytes();
            self.entry_bytes = self.entry_bytes - walked.weighs + weighs;
            walked.weighs = weighs;
        }
        self.flush_listing();
        self.messages
            .push_back(Message::DirectoryEnd { entry, children });
    }

    /// Sets the state that the destination itself gets. Only the first call has an effect.
    pub fn handle_anchor(&mut self, anchor: AnchorState) {
        self.extent.anchor_or(|| anchor);
    }

    /// Handles a source that fills the destination and has these permission bits. The destination
    /// is limited to the bits that all such sources share.
    pub fn handle_filling(&mut self, mode: u32) {
        let state = || AnchorState {
            mode,
            modified: Default::default(),
            owner: None,
            is_limit: true,
        };
        self.extent.anchor_or(state).mode &= mode;
    }

    /// Sets the numbers of names that the walk left out on purpose.
    pub fn handle_left_out(&mut self, left_out: LeftOut) {
        self.extent.set_left_out(left_out);
    }

    /// Handles the end of the walk.
    pub fn handle_walk_end(&mut self) {
        self.flush_listing();
        self.messages.push_back(self.extent.end());
    }

    /// Returns the numbers of names that the walk left out on purpose (zero before its end) and of
    /// entries that the receiver leaves unchanged.
    pub fn left_out(&self) -> LeftOut {
        self.extent.left_out().with_held(self.held)
    }

    /// True if the first batch of questions is complete or cannot grow.
    pub fn has_first_questions(&self) -> bool {
        self.extent.entries() >= FIRST_QUESTIONS
            || self.extent.has_ended()
            || self.entry_credit() == 0
    }

    /// Asks for the walked entries although the batch is not full, because the walk pauses or no
    /// other work is left.
    pub fn flush_listing(&mut self) {
        self.messages
            .extend(self.listing.take().map(Message::Entries));
    }

    /// Returns the number of entries that are known and not done.
    pub fn tracked(&self) -> usize {
        self.entries.len()
    }

    /// Makes an entry a task, or gives it to the command first.
    fn route(&mut self, id: EntryId) {
        let Some(walked) = self.entries.get_mut(&id) else {
            return;
        };
        if let Some(entry) = walked.stage.take() {
            self.route_entry(entry);
        }
    }

    fn route_entry(&mut self, entry: Entry) {
        let id = entry.id;
        let filters = self.settings.filters && is_file(&entry);
        if filters
            && let Some(walked) = self.entries.get_mut(&id)
            && !walked.filtered
        {
            walked.stage = Stage::Filtering(entry);
            self.filtering.wait(id);
        } else {
            self.submit(entry, Part::Whole);
        }
    }

    fn submit(&mut self, entry: Entry, part: Part) {
        let Some(part) = self.limited(&entry, part) else {
            let text = "it has become shorter than the part that is to be copied";
            if let Some(walked) = self.entries.get_mut(&entry.id) {
                walked.stage = Stage::Asked(entry.clone());
            }
            self.abandon(entry.id, Failure::new(FailureKind::Changing, text));
            return;
        };
        if let Some(walked) = self.entries.get_mut(&entry.id) {
            walked.stage = Stage::Sending;
            self.ready.push_back(Task {
                id: TaskId(entry.id.0),
                entry,
                generation: walked.generation,
                part,
            });
        }
    }

    /// Limits a task to the session's part of a file; `None` if the file ends before it.
    fn limited(&self, entry: &Entry, part: Part) -> Option<Part> {
        let Some((start, end)) = self.settings.part.filter(|_| is_file(entry)) else {
            return Some(part);
        };
        let end = end.min(entry.size());
        let held = match part {
            Part::Rest(held) => held,
            _ => Vec::new(),
        };
        (start < end).then_some(Part::Only { start, end, held })
    }

    /// Starts an entry again after its source changed.
    fn restart(&mut self, entry: Entry, grew: bool) {
        let Some(walked) = self.entries.get_mut(&entry.id) else {
            return;
        };
        walked.generation += 1;
        walked.only_grew &= grew;
        if self.settings.fronts
            && self.settings.part.is_none()
            && walked.only_grew
            && walked.generation >= MOST_GROWTHS
        {
            self.submit(entry, Part::Front);
        } else {
            self.route_entry(entry);
        }
    }

    /// Announces that an entry will not be sent. The entry ends when the receiver reports its
    /// outcome.
    fn abandon(&mut self, id: EntryId, failure: Failure) {
        let Some(walked) = self.entries.get_mut(&id) else {
            return;
        };
        let Some(entry) = walked.stage.take() else {
            return;
        };
        let parent = entry.parent;
        walked.stage = Stage::Abandoned(entry);
        // The receiver must learn of the entry before it learns of its end.
        self.flush_listing();
        self.messages.push_back(Message::Abandoned {
            id,
            parent,
            failure,
        });
    }

    /// Ends an entry. `sent` is its state if it was a task.
    fn end(&mut self, id: EntryId, sent: Option<Entry>, ending: Ending) {
        let Some(mut walked) = self.entries.remove(&id) else {
            return;
        };
        self.entry_bytes -= walked.weighs;
        self.filtering.end(id);
        match &ending {
            Ending::Left(held) => self.held.count(held.reason()),
            Ending::Failed(_) => self.names.count_failed(),
            _ => {}
        }
        let entry = sent.or_else(|| walked.stage.take());
        let Some(entry) = entry.or_else(|| self.take_ready(id)) else {
            return;
        };
        self.moves.handle_ended(&entry, &ending);
        self.events.push_back(EntryEvent::Ended { entry, ending });
    }

    /// Takes back a task that was not yet taken.
    fn take_ready(&mut self, id: EntryId) -> Option<Entry> {
        let at = self.ready.iter().position(|task| task.entry.id == id)?;
        Some(self.ready.remove(at)?.entry)
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

    /// Queues a file whose digest the receiver requested.
    fn compare(&mut self, id: EntryId) {
        let Some(walked) = self.entries.get_mut(&id) else {
            return;
        };
        match &walked.stage {
            Stage::Asked(entry) if is_file(entry) => {
                walked.stage = Stage::Compared(entry.clone());
                self.digests.request(id);
            }
            // The entry has no digest.
            Stage::Asked(_) => self.route(id),
            _ => {}
        }
    }

    /// True if [`Walk::poll_digest`] may return a file.
    pub fn has_unread_digest(&self) -> bool {
        self.digests.has_unread()
    }

    /// Returns the next file to read for its digest. Its reader reports to
    /// [`Walk::handle_digest_read`].
    pub fn poll_digest(&mut self) -> Option<Entry> {
        while let Some(id) = self.digests.take_unread() {
            let walked = self.entries.get(&id);
            if let Some(Stage::Compared(entry)) = walked.map(|walked| &walked.stage) {
                return Some(entry.clone());
            }
        }
        None
    }

    /// Handles a file that was read for its digest.
    pub fn handle_digest_read(&mut self, id: EntryId, read: DigestRead) {
        let Some(Stage::Compared(before)) = self.entries.get(&id).map(|walked| &walked.stage)
        else {
            return;
        };
        match read {
            DigestRead::Ready(digest) => self.digests.push(id, digest),
            DigestRead::Changed(entry) => {
                let grew = entry.size() > before.size();
                self.restart(entry, grew);
            }
            DigestRead::Failed(failure) => self.abandon(id, failure),
        }
    }

    /// True if [`Walk::poll_filter`] may return a step.
    pub fn has_filter_step(&self) -> bool {
        self.filtering.has_step()
    }

    /// Returns the next step for files that go through the command.
    pub fn poll_filter(&mut self) -> Option<FilterStep> {
        if let Some(id) = self.filtering.take_ended() {
            return Some(FilterStep::Forget(id));
        }
        while let Some(id) = self.filtering.take_waiting() {
            let walked = self.entries.get(&id);
            if let Some(Stage::Filtering(entry)) = walked.map(|walked| &walked.stage) {
                self.filtering.begin(id);
                return Some(FilterStep::Filter(entry.clone()));
            }
        }
        None
    }

    /// Handles the output of the command; `result` is the entry as it will be sent. The receiver's
    /// earlier state of the file is void, as after a change. Returns false if the output is not
    /// needed because the entry ended.
    pub fn handle_filtered(&mut self, id: EntryId, result: Result<Entry, Failure>) -> bool {
        let walked = self.entries.get_mut(&id);
        let is_in_it = |walked: &&mut Walked| matches!(walked.stage, Stage::Filtering(_));
        let Some(walked) = walked.filter(is_in_it) else {
            return false;
        };
        match result {
            Ok(entry) => {
                walked.filtered = true;
                walked.generation += 1;
                self.submit(entry, Part::Whole);
                true
            }
            Err(failure) => {
                self.abandon(id, failure);
                false
            }
        }
    }
}

impl Work for Walk {
    fn next_task(&mut self) -> Option<Task> {
        self.ready.pop_front()
    }

    fn handle_result(&mut self, _task: TaskId, result: TaskResult) {
        match result {
            TaskResult::Ended { entry, ending } => self.end(entry.id, Some(entry), ending),
            TaskResult::Changed { entry, grew } => self.restart(entry, grew),
        }
    }

    fn supply(&self) -> Supply {
        if self.extent.has_ended() {
            Supply::Ended
        } else if self.entry_credit() == 0 {
            Supply::Paused
        } else {
            Supply::More
        }
    }

    fn is_done(&self) -> bool {
        self.extent.has_ended() && self.entries.is_empty()
    }

    fn handle_welcome(&mut self, asks: bool) {
        if asks || !self.settings.asks {
            return;
        }
        self.settings.asks = false;
        self.listing.take();
        let question = |message: &Message| matches!(message, Message::Entries(_));
        self.messages.retain(|message| !question(message));
        let waiting = self.entries.iter();
        let waiting = waiting.filter(|(_, walked)| matches!(walked.stage, Stage::Asked(_)));
        let waiting: Vec<EntryId> = waiting.map(|(id, _)| *id).collect();
        for id in waiting {
            self.route(id);
        }
    }

    fn progress(&self) -> u64 {
        let entries = self.extent.entries();
        let ended = entries.saturating_sub(self.entries.len() as u64);
        entries.saturating_add(ended)
    }

    fn handle_answer(&mut self, id: EntryId, answer: Answer) -> Result<(), SenderError> {
        self.check_operation(&answer)?;
        let Some(walked) = self.entries.get_mut(&id) else {
            return Ok(());
        };
        let (Stage::Asked(entry) | Stage::Compared(entry)) = &walked.stage else {
            return Ok(());
        };
        match answer {
            Answer::Send => self.route(id),
            Answer::Skip { digest, mended } => {
                let ending = if mended {
                    Ending::Mended(digest)
                } else {
                    Ending::Skipped(digest)
                };
                self.end(id, None, ending);
            }
            Answer::Refuse(failure) => self.end(id, None, Ending::Failed(failure)),
            // The existing data comes from another run of the command.
            Answer::Resume(_) if self.settings.filters && is_file(entry) => self.route(id),
            Answer::Resume(ranges) => {
                if let Some(entry) = walked.stage.take() {
                    self.submit(entry, Part::Rest(ranges));
                }
            }
            Answer::Planned(change) => self.end(id, None, Ending::Planned(change)),
            Answer::Compare => self.compare(id),
            Answer::Leave(held) => self.end(id, None, Ending::Left(held)),
        }
        Ok(())
    }

    fn handle_outcome(&mut self, id: EntryId, ending: Ending) {
        self.end(id, None, ending);
    }

    fn check_outcome(&self, outcome: &Outcome) -> Result<(), SenderError> {
        if self.settings.moves && matches!(outcome, Outcome::Planned(_)) {
            return Err(SenderError::DryRun);
        }
        Ok(())
    }

    fn handle_message(&mut self, message: Message) -> Result<(), SenderError> {
        match message {
            Message::AskNames => self.names.handle_ask(self.is_done()),
            Message::OmittedTaken => self.names.handle_omitted_taken(),
            Message::NamesTaken(batches) => self.names.handle_names_taken(batches),
            Message::Removed(removed) => self.names.handle_removed(removed),
            Message::Probes(probes) => self.moves.handle_probes(probes),
            Message::Distinct(results) => self.moves.handle_distinct(results),
            Message::AskSources(question) => self.searches.handle_ask(question),
            _ => Ok(()),
        }
    }

    fn has_message(&self) -> bool {
        !self.messages.is_empty()
            || self.digests.has_digests()
            || self.names.has_message()
            || self.searches.has_message()
            || self.moves.has_message(self.is_done())
    }

    fn poll_message(&mut self) -> Option<Message> {
        // Omitted names precede the end of the walk, after which the receiver may finish.
        let message = self.names.poll_message();
        let message = message.or_else(|| self.messages.pop_front());
        let message = message.or_else(|| self.digests.take().map(Message::Digests));
        let message = message.or_else(|| self.searches.poll_message());
        let is_done = self.is_done();
        message.or_else(|| self.moves.poll_message(is_done))
    }

    fn poll_event(&mut self) -> Option<EntryEvent> {
        let event = self.events.pop_front();
        let event = event.or_else(|| self.names.poll_event());
        event.or_else(|| self.moves.poll_event())
    }

    fn is_settled(&self) -> bool {
        self.is_done() && self.moves.count() == 0
    }
}

fn is_file(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::File { .. })
}
