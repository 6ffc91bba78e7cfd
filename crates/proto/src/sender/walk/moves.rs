//! Removes sources once they are durable at the destination (`--move`) and the destination's
//! directory is known to be distinct from the source's ([`crate::distinct`]).

use std::collections::VecDeque;

use crate::distinct::{MAXIMUM_PROBES, Probe, Question};
use crate::manifest::{Entry, EntryKind};
use crate::message::{Failure, Message, Removal};
use crate::sender::results::{Ending, EntryEvent, SenderError};

/// Maximum number of sources in one batch for removal.
const REMOVED_AT_ONCE: usize = MAXIMUM_PROBES;

/// Maximum bytes of the paths in one batch.
const REMOVED_BYTES: usize = 256 << 10;

/// Sources to remove, and the number whose removal is under way.
#[derive(Debug, Default)]
pub struct Moves {
    /// True if sources are removed once they are durable at the destination.
    removes: bool,
    waiting: VecDeque<Moved>,
    under_way: usize,
    asking: Asking,
    end_told: bool,
    messages: VecDeque<Message>,
    events: VecDeque<EntryEvent>,
}

/// A source that must be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The entry as it was read.
    pub entry: Entry,
    /// True if this copy wrote the entry, false if it already was at the destination.
    pub written: bool,
}

/// State of the question about directories of the destination.
#[derive(Debug, Default)]
enum Asking {
    /// No question is open.
    #[default]
    Idle,
    /// The receiver was asked about this number of directories.
    Asked(usize),
    /// The receiver made these probes.
    Made(Vec<Option<Probe>>),
    /// This end searches for the probes.
    Looking,
    /// This end reported for this number of probes if it sees them.
    Looked(usize),
    /// The results.
    Told(Vec<Option<Failure>>),
}

impl Moves {
    pub(super) fn new(removes: bool) -> Moves {
        Moves {
            removes,
            ..Moves::default()
        }
    }

    /// Returns the number of files and links whose removal waits or is under way. The walk waits
    /// for them, too.
    pub(super) fn count(&self) -> usize {
        self.waiting.len() + self.under_way
    }

    /// Queues a done entry for removal if all of it is durable at the destination, as it was read
    /// in this session.
    pub(super) fn handle_ended(&mut self, entry: &Entry, ending: &Ending) {
        let there = matches!(
            ending,
            Ending::Committed(_) | Ending::Skipped(_) | Ending::Mended(_)
        );
        if self.removes && there && entry.kind != EntryKind::Directory {
            self.waiting.push_back(Moved {
                entry: entry.clone(),
                written: matches!(ending, Ending::Committed(_)),
            });
        }
    }

    /// True if [`Moves::poll_moved`], [`Moves::poll_probes`] or [`Moves::poll_distinct`] returns
    /// a value.
    pub fn has_step(&self) -> bool {
        let answered = matches!(self.asking, Asking::Made(_) | Asking::Told(_));
        answered || !self.waiting.is_empty()
    }

    /// Returns the next sources to remove. Each must be removed only if it is still the same entry
    /// and its copy is in another directory. [`Moves::handle_moved`] takes the result of each.
    pub fn poll_moved(&mut self) -> Option<Vec<Moved>> {
        let mut bytes = 0;
        let fits = |moved: &&Moved| {
            bytes += moved.entry.text_bytes();
            bytes <= REMOVED_BYTES
        };
        let waiting = self.waiting.iter().take(REMOVED_AT_ONCE);
        let count = waiting.take_while(fits).count().max(1);
        let count = count.min(self.waiting.len());
        let batch: Vec<Moved> = self.waiting.drain(..count).collect();
        self.under_way += batch.len();
        (!batch.is_empty()).then_some(batch)
    }

    /// Asks if these directories of the destination are distinct from those of the sources, at most
    /// [`MAXIMUM_PROBES`]. [`Moves::poll_probes`] follows.
    pub fn ask_distinct(&mut self, questions: Vec<Question>) {
        self.asking = Asking::Asked(questions.len());
        self.messages.push_back(Message::AskDistinct(questions));
    }

    pub(super) fn handle_probes(&mut self, probes: Vec<Option<Probe>>) -> Result<(), SenderError> {
        match self.asking {
            Asking::Asked(count) if count == probes.len() => {
                self.asking = Asking::Made(probes);
                Ok(())
            }
            _ => Err(SenderError::Probes),
        }
    }

    /// Returns the receiver's probes, in the order of the directories. [`Moves::handle_seen`]
    /// takes the result of the search for them.
    pub fn poll_probes(&mut self) -> Option<Vec<Option<Probe>>> {
        match std::mem::take(&mut self.asking) {
            Asking::Made(probes) => {
                self.asking = Asking::Looking;
                Some(probes)
            }
            other => {
                self.asking = other;
                None
            }
        }
    }

    /// Takes for each probe true if it was seen or may be there. [`Moves::poll_distinct`] follows.
    pub fn handle_seen(&mut self, seen: Vec<bool>) {
        if let Asking::Looking = self.asking {
            self.asking = Asking::Looked(seen.len());
            self.messages.push_back(Message::Sighted(seen));
        }
    }

    pub(super) fn handle_distinct(
        &mut self,
        results: Vec<Option<Failure>>,
    ) -> Result<(), SenderError> {
        match self.asking {
            Asking::Looked(count) if count == results.len() => {
                self.asking = Asking::Told(results);
                Ok(())
            }
            _ => Err(SenderError::Probes),
        }
    }

    /// Returns the result for each directory in the question; `None` in it if the directory is
    /// distinct and its contents are durable.
    pub fn poll_distinct(&mut self) -> Option<Vec<Option<Failure>>> {
        match std::mem::take(&mut self.asking) {
            Asking::Told(results) => Some(results),
            other => {
                self.asking = other;
                None
            }
        }
    }

    /// Handles the removal of a source, or the reason why it failed.
    pub fn handle_moved(&mut self, entry: Entry, result: Result<(), Failure>) {
        self.under_way = self.under_way.saturating_sub(1);
        let Err(failure) = result else { return };
        self.messages
            .push_back(Message::Unmoved(entry.path.clone(), failure.clone()));
        self.events.push_back(EntryEvent::Removed(Removal {
            path: Some(entry.path),
            size: 0,
            directory: false,
            failure: Some(failure),
        }));
    }

    /// True if all sources were removed and the receiver has not yet received the report. `is_done`
    /// is true if all entries are done.
    fn ends(&self, is_done: bool) -> bool {
        self.removes && is_done && self.count() == 0 && !self.end_told
    }

    pub(super) fn has_message(&self, is_done: bool) -> bool {
        !self.messages.is_empty() || self.ends(is_done)
    }

    pub(super) fn poll_message(&mut self, is_done: bool) -> Option<Message> {
        self.messages.pop_front().or_else(|| {
            let ends = self.ends(is_done);
            self.end_told |= ends;
            ends.then_some(Message::MovesEnd)
        })
    }

    pub(super) fn poll_event(&mut self) -> Option<EntryEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Moment;

    use super::*;
    use crate::manifest::{EntryId, SourceIdentity, Timestamp, TreePath};
    use crate::message::{FailureKind, Outcome, Totals};
    use crate::sender::Sender;
    use crate::sender::SenderSettings;

    fn file(id: u64) -> Entry {
        let identity = SourceIdentity::default();
        Entry {
            id: EntryId(id),
            parent: None,
            path: TreePath::new(format!("f{id}").as_bytes()).unwrap(),
            kind: EntryKind::File {
                identity,
                sparse: false,
            },
            mode: 0o644,
            modified: Timestamp::default(),
            owner: None,
        }
    }

    fn done(sender: &mut Sender, id: u64, outcome: Outcome) {
        let entries = vec![(EntryId(id), outcome)];
        let message = Message::Done { epoch: 1, entries };
        sender.handle_message(message, Moment(0)).unwrap();
    }

    #[test]
    fn only_durable_sources_are_removed_and_the_end_waits_for_them() {
        let mut sender = Sender::new(SenderSettings {
            moves_away: true,
            ..SenderSettings::default()
        });
        for id in 0..3 {
            sender.work_mut().handle_entry(file(id));
        }
        sender.work_mut().handle_walk_end();
        assert!(sender.work_mut().moves_mut().poll_moved().is_none());
        done(&mut sender, 0, Outcome::Committed { digest: None });
        let failure = Failure::new(FailureKind::Other, "no");
        done(&mut sender, 1, Outcome::Failed(failure.clone()));
        let held = crate::criteria::Held::Newer;
        done(&mut sender, 2, Outcome::Left(held));
        let end = Message::Finished(Totals::default(), Vec::new());
        sender.handle_message(end, Moment(0)).unwrap();
        assert_eq!(sender.finished(), None, "a removal waits");
        let mut batch = sender.work_mut().moves_mut().poll_moved().unwrap();
        let Moved { entry, written } = batch.pop().unwrap();
        assert_eq!((&entry, written, batch.len()), (&file(0), true, 0));
        assert!(sender.work_mut().moves_mut().poll_moved().is_none());
        assert_eq!(sender.finished(), None, "one is under way");
        while let Some(said) = sender.poll_message() {
            assert_ne!(said, Message::MovesEnd);
        }
        sender
            .work_mut()
            .moves_mut()
            .handle_moved(entry, Err(failure.clone()));
        assert!(sender.finished().is_some());
        let said = Message::Unmoved(file(0).path, failure);
        assert_eq!(sender.poll_message(), Some(said));
        assert_eq!(sender.poll_message(), Some(Message::MovesEnd));
        assert_eq!(sender.poll_message(), None);
    }

    #[test]
    fn questions_about_directories_are_answered_in_turn() {
        let say = |sender: &mut Sender, message| sender.handle_message(message, Moment(0));
        let mut sender = Sender::new(SenderSettings::default());
        assert!(say(&mut sender, Message::Probes(vec![None])).is_err());
        let questions = vec![Question {
            directory: None,
            probe: None,
        }];
        sender
            .work_mut()
            .moves_mut()
            .ask_distinct(questions.clone());
        assert_eq!(sender.poll_message(), Some(Message::AskDistinct(questions)));
        assert!(say(&mut sender, Message::Probes(vec![None, None])).is_err());
        assert!(say(&mut sender, Message::Distinct(vec![None])).is_err());
        say(&mut sender, Message::Probes(vec![None])).unwrap();
        assert!(sender.work_mut().moves_mut().has_step());
        assert!(say(&mut sender, Message::Distinct(vec![None])).is_err());
        assert_eq!(
            sender.work_mut().moves_mut().poll_probes(),
            Some(vec![None])
        );
        assert_eq!(sender.work_mut().moves_mut().poll_probes(), None);
        sender.work_mut().moves_mut().handle_seen(vec![false]);
        assert_eq!(sender.poll_message(), Some(Message::Sighted(vec![false])));
        assert!(say(&mut sender, Message::Distinct(Vec::new())).is_err());
        say(&mut sender, Message::Distinct(vec![None])).unwrap();
        assert_eq!(
            sender.work_mut().moves_mut().poll_distinct(),
            Some(vec![None])
        );
        assert_eq!(sender.work_mut().moves_mut().poll_distinct(), None);
    }
}
