//! Files that go through a command at this end. The command's output is sent, and its size is known
//! only after the command ended.

use std::collections::{BTreeSet, VecDeque};

use super::track::Tracked;
use super::{Sender, Stage};
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::message::Failure;

/// Default of [`SenderSettings::filtered_files`](super::SenderSettings::filtered_files).
pub const MOST_FILTERED: usize = 64;

/// Next step for a file that goes through the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterStep {
    /// Run the command on the file and report to [`Sender::handle_filtered`].
    Filter(Entry),
    /// Discard the output of the file.
    Forget(EntryId),
}

/// Files that go through the command.
#[derive(Debug, Default)]
pub(super) struct Filtering {
    waiting: VecDeque<EntryId>,
    /// Files in the command or with an output.
    begun: BTreeSet<EntryId>,
    ended: VecDeque<EntryId>,
}

impl Filtering {
    fn has_room(&self, most: usize) -> bool {
        self.begun.len() < most.max(1)
    }

    /// Handles the end of an entry.
    pub fn end(&mut self, id: EntryId) {
        if self.begun.remove(&id) {
            self.ended.push_back(id);
        }
    }
}

impl Sender {
    /// True if an entry must go through the command first.
    pub(super) fn filters(&self, id: EntryId) -> bool {
        let tracked = self.entries.get(&id);
        let is_due = |entry: &Entry| matches!(entry.kind, EntryKind::File { .. });
        self.settings.filters
            && tracked.is_some_and(|tracked| !tracked.filtered && is_due(&tracked.entry))
    }

    pub(super) fn filter(&mut self, id: EntryId) {
        if let Some(tracked) = self.entries.get_mut(&id)
            && !matches!(tracked.stage, Stage::Filtering)
        {
            tracked.stage = Stage::Filtering;
            self.filtering.waiting.push_back(id);
        }
    }

    /// True if [`Sender::poll_filter`] may return a step.
    pub fn has_filter_step(&self) -> bool {
        let Filtering { waiting, ended, .. } = &self.filtering;
        let most = self.settings.filtered_files;
        !ended.is_empty() || !waiting.is_empty() && self.filtering.has_room(most)
    }

    /// Returns the next step for files that go through the command.
    pub fn poll_filter(&mut self) -> Option<FilterStep> {
        if let Some(id) = self.filtering.ended.pop_front() {
            return Some(FilterStep::Forget(id));
        }
        while self.filtering.has_room(self.settings.filtered_files) {
            let id = self.filtering.waiting.pop_front()?;
            let tracked = self.entries.get(&id);
            let waits = tracked.filter(|tracked| matches!(tracked.stage, Stage::Filtering));
            if let Some(tracked) = waits {
                self.filtering.begun.insert(id);
                return Some(FilterStep::Filter(tracked.entry.clone()));
            }
        }
        None
    }

    /// Handles the output of the command; `result` is the entry as it will be sent. The receiver's
    /// earlier state of the file is void, as after a change. Returns false if the output is not
    /// needed because the entry ended.
    pub fn handle_filtered(&mut self, id: EntryId, result: Result<Entry, Failure>) -> bool {
        let tracked = self.entries.get_mut(&id);
        let is_in_it = |tracked: &&mut Tracked| matches!(tracked.stage, Stage::Filtering);
        let Some(tracked) = tracked.filter(is_in_it) else {
            return false;
        };
        match result {
            Ok(entry) => {
                tracked.entry = entry;
                tracked.filtered = true;
                tracked.generation += 1;
                tracked.stage = Stage::Asked;
                self.route(id);
                true
            }
            Err(failure) => {
                self.abandon(id, failure);
                false
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use longhaul_units::Moment;

    use super::*;
    use crate::manifest::{SourceIdentity, Timestamp, TreePath};
    use crate::message::{Answer, FailureKind, Message, Outcome};
    use crate::sender::{SenderSettings, Work};
    use crate::session::StreamId;

    fn file(id: u64, size: u64) -> Entry {
        Entry {
            id: EntryId(id),
            parent: None,
            path: TreePath::new(format!("file {id}").as_bytes()).unwrap(),
            kind: EntryKind::File {
                identity: SourceIdentity {
                    size,
                    ..SourceIdentity::default()
                },
                sparse: false,
            },
            mode: 0o644,
            owner: Default::default(),
            modified: Timestamp::default(),
        }
    }

    /// Makes a sender of files of five bytes. The receiver has answered that it has all of them.
    fn asked(files: u64) -> Sender {
        let mut sender = Sender::new(SenderSettings {
            asks: true,
            filters: true,
            ..SenderSettings::default()
        });
        (0..files).for_each(|id| sender.handle_entry(file(id, 5)));
        sender.handle_walk_end();
        while sender.poll_message().is_some() {}
        sender.handle_stream_up(StreamId(0), Moment(0));
        let answers = (0..files).map(|id| (EntryId(id), Answer::Resume(vec![(0, 5)])));
        say(&mut sender, Message::Answers(answers.collect()));
        sender
    }

    fn say(sender: &mut Sender, message: Message) {
        sender.handle_message(message, Moment(0)).unwrap();
    }

    fn done(sender: &mut Sender, id: u64) {
        let entries = vec![(EntryId(id), Outcome::Committed { digest: None })];
        say(sender, Message::Done { epoch: 1, entries });
    }

    /// The receiver's earlier state of the file does not matter.
    #[test]
    fn the_output_is_sent_with_its_own_size() {
        let mut sender = asked(1);
        assert!(sender.poll_read(Moment(0)).is_none(), "before the command");
        assert_eq!(sender.poll_filter(), Some(FilterStep::Filter(file(0, 5))));
        assert_eq!(sender.poll_filter(), None, "twice");
        assert!(sender.poll_read(Moment(0)).is_none(), "during the command");
        sender.handle_filtered(EntryId(0), Ok(file(0, 3 << 20)));
        let work = sender.poll_read(Moment(0)).unwrap().work;
        let Work::Piece { entry, piece } = work else {
            panic!("{work:?}");
        };
        assert_eq!(
            (entry.size(), piece.generation, piece.offset),
            (3 << 20, 1, 0)
        );
        assert!(!sender.has_filter_step());
        done(&mut sender, 0);
        assert!(sender.has_filter_step());
        assert_eq!(sender.poll_filter(), Some(FilterStep::Forget(EntryId(0))));
        assert!(!sender.has_filter_step());
    }

    #[test]
    fn what_fails_is_told_and_ends_with_the_others() {
        let mut sender = asked(1);
        sender.poll_filter().unwrap();
        let failure = Failure::new(FailureKind::Other, "no");
        sender.handle_filtered(EntryId(0), Err(failure.clone()));
        let told = sender.poll_message();
        let is_that = |told: &Message| matches!(told, Message::Abandoned { failure: why, .. } if *why == failure);
        assert!(told.as_ref().is_some_and(is_that), "{told:?}");
        let entries = vec![(EntryId(0), Outcome::Failed(failure))];
        say(&mut sender, Message::Done { epoch: 1, entries });
        assert_eq!(sender.tracked(), 0);
        assert_eq!(sender.poll_filter(), Some(FilterStep::Forget(EntryId(0))));
    }

    /// The receiver ends the file while the command runs.
    #[test]
    fn an_output_that_comes_too_late_is_not_needed() {
        let mut sender = asked(2);
        sender.poll_filter().unwrap();
        done(&mut sender, 0);
        assert_eq!(sender.poll_filter(), Some(FilterStep::Forget(EntryId(0))));
        assert!(!sender.handle_filtered(EntryId(0), Ok(file(0, 1))));
        sender.poll_filter().unwrap();
        assert!(sender.handle_filtered(EntryId(1), Ok(file(1, 1))));
    }

    #[test]
    fn no_more_outputs_wait_than_have_room() {
        let mut sender = asked(100);
        let begun = std::iter::from_fn(|| sender.poll_filter()).count();
        assert_eq!(begun, MOST_FILTERED);
        for id in 0..64 {
            assert!(sender.handle_filtered(EntryId(id), Ok(file(id, 1))));
        }
        assert_eq!(sender.poll_filter(), None);
        done(&mut sender, 7);
        assert_eq!(sender.poll_filter(), Some(FilterStep::Forget(EntryId(7))));
        assert_eq!(sender.poll_filter(), Some(FilterStep::Filter(file(64, 5))));
        assert_eq!(sender.poll_filter(), None);
    }
}
