//! Outcomes of entries: which are done, which failed, and how many of each kind.

use super::load::{Load, NUMBER_BYTES};
use crate::filter::LeftOut;
use crate::ledger::RangeSet;
use crate::manifest::{EntryId, TreePath};
use crate::message::{Failure, FailureKind, Message, Outcome, Totals};

/// Maximum number of remembered ranges of failed entries. With more failures, no further links are
/// made.
const MOST_FAILED: usize = 32_768;

/// Maximum number of entries in one [`Message::Done`].
const MAXIMUM_DONE: usize = 1024;

/// Maximum number of unsent outcomes per entry under way. It bounds the memory for a sender that
/// does not read.
const UNSENT_PER_ENTRY: usize = 4;

/// Bytes of unsent outcomes' texts per entry under way.
const OUTCOME_BYTES_PER_ENTRY: usize = 1024;

/// Memory of an outcome in bytes without its text, slightly above the measured one.
const OUTCOME_BYTES: usize = 96;

/// Outcomes of entries.
#[derive(Debug, Default)]
pub struct Outcomes {
    done: RangeSet,
    /// Entries that failed. Hard links to them fail too.
    failed: RangeSet,
    /// Entries that were left out on purpose.
    omitted: RangeSet,
    /// True if more entries failed than are remembered.
    failed_beyond: bool,
    /// Numbers of entries that this end leaves unchanged on purpose.
    held: LeftOut,
    totals: Totals,
    /// Outcomes that were not yet sent.
    unsent: Vec<(EntryId, Outcome)>,
    /// Bytes of the texts in `unsent`.
    unsent_bytes: usize,
}

impl Outcomes {
    /// Counts an existing file of `bytes` bytes that was read for its digest.
    pub fn count_digest_read(&mut self, bytes: u64) {
        self.totals.digests_read += 1;
        self.totals.digest_bytes_read += bytes;
    }

    /// Adds to the number of removed leftovers of other copies.
    pub fn count_expired(&mut self, leftovers: u64) {
        self.totals.expired += leftovers;
    }

    /// Counts a file whose content was compared and differs.
    pub(super) fn count_differed(&mut self) {
        self.totals.differed += 1;
    }

    /// Returns the counts of outcomes.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the numbers of entries that this end leaves unchanged on purpose.
    pub(super) fn held(&self) -> LeftOut {
        self.held
    }

    pub(super) fn is_done(&self, id: EntryId) -> bool {
        self.done.contains(id.0, id.0.saturating_add(1))
    }

    /// True if all entries with lower numbers are done.
    pub(super) fn are_done(&self, entries: u64) -> bool {
        self.done.contains(0, entries)
    }

    pub(super) fn mark_done(&mut self, id: EntryId) {
        self.done.insert(id.0, id.0.saturating_add(1));
    }

    /// Counts an outcome; `None` if the entry already existed.
    pub(super) fn count(&mut self, outcome: Option<&Outcome>) {
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

    /// Notes the entries to which hard links cannot be made.
    pub(super) fn note(&mut self, id: EntryId, outcome: &Outcome) {
        let set = match outcome {
            Outcome::Failed(_) => &mut self.failed,
            Outcome::LeftOut => &mut self.omitted,
            _ => return,
        };
        if set.fragments() < MOST_FAILED {
            set.insert(id.0, id.0.saturating_add(1));
        } else {
            self.failed_beyond = true;
        }
    }

    /// Queues an outcome for the sender.
    pub(super) fn report(&mut self, id: EntryId, outcome: Outcome) {
        if let Outcome::Failed(failure) = &outcome {
            self.unsent_bytes += failure.text.len();
        }
        self.unsent.push((id, outcome));
    }

    /// Returns the outcome of a hard link at `path` to a done entry; `None` if the link can be
    /// made.
    pub(super) fn of_link(
        &self,
        path: &TreePath,
        target: &TreePath,
        first: EntryId,
    ) -> Option<Outcome> {
        let end = first.0.saturating_add(1);
        if self.omitted.contains(first.0, end) {
            return Some(Outcome::LeftOut);
        }
        let failed = self.failed.contains(first.0, end);
        if !failed && !self.failed_beyond {
            return None;
        }
        let which = if failed {
            "which failed"
        } else {
            "of which is not known whether it is among the many that failed"
        };
        let text =
            format!("{path}: is another name of {target}, {which}: see why, then copy again");
        Some(Outcome::Failed(Failure::new(FailureKind::Other, text)))
    }

    pub(super) fn has_message(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Takes the messages with the unsent outcomes.
    pub(super) fn take_messages(&mut self, epoch: u64) -> Vec<Message> {
        self.unsent_bytes = 0;
        let chunks = take_chunks(&mut self.unsent, MAXIMUM_DONE).into_iter();
        chunks
            .map(|entries| Message::Done { epoch, entries })
            .collect()
    }

    pub(super) fn load(&self) -> Load {
        let done = Load::of(self.done.fragments(), NUMBER_BYTES);
        let numbers = self.failed.fragments() + self.omitted.fragments();
        let loads = [
            done.with_bytes(numbers * NUMBER_BYTES),
            Load::of(self.unsent.len(), OUTCOME_BYTES).per_entry(UNSENT_PER_ENTRY),
            Load::of(self.unsent_bytes, 1).per_entry(OUTCOME_BYTES_PER_ENTRY),
        ];
        loads.into_iter().sum()
    }
}

/// Takes the items of a list in lists of at most `most` items.
pub(super) fn take_chunks<T>(list: &mut Vec<T>, most: usize) -> Vec<Vec<T>> {
    let mut chunks = Vec::new();
    let mut rest = std::mem::take(list);
    while !rest.is_empty() {
        let tail = rest.split_off(rest.len().min(most));
        chunks.push(std::mem::replace(&mut rest, tail));
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_failed_or_omitted_entries_have_that_outcome() {
        let mut outcomes = Outcomes::default();
        let failed = Outcome::Failed(Failure::new(FailureKind::Other, "x"));
        for (id, outcome) in [(1, failed), (2, Outcome::LeftOut), (3, Outcome::Unchanged)] {
            outcomes.note(EntryId(id), &outcome);
        }
        let (path, target) = (TreePath::new(b"a").unwrap(), TreePath::new(b"b").unwrap());
        let of_link = |first| outcomes.of_link(&path, &target, EntryId(first));
        assert!(matches!(of_link(1), Some(Outcome::Failed(_))));
        assert_eq!(of_link(2), Some(Outcome::LeftOut));
        assert_eq!(of_link(3), None);
    }

    #[test]
    fn no_link_is_made_after_more_failures_than_are_remembered() {
        let mut outcomes = Outcomes::default();
        let failed = Outcome::Failed(Failure::new(FailureKind::Other, "x"));
        for id in 0..=MOST_FAILED as u64 {
            outcomes.note(EntryId(2 * id), &failed);
        }
        let path = TreePath::new(b"a").unwrap();
        assert!(outcomes.of_link(&path, &path, EntryId(1)).is_some());
        assert_eq!(outcomes.failed.fragments(), MOST_FAILED);
    }

    #[test]
    fn outcomes_are_sent_in_messages_of_bounded_length() {
        let mut outcomes = Outcomes::default();
        for id in 0..2500 {
            outcomes.report(EntryId(id), Outcome::Unchanged);
        }
        let messages = outcomes.take_messages(7).into_iter();
        let lengths = messages.map(|message| match message {
            Message::Done { epoch: 7, entries } => entries.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [1024, 1024, 452]);
        assert!(!outcomes.has_message());
        assert_eq!(outcomes.load().bytes, 0);
    }
}
