//! Sources that are removed once they are durable at the destination (`--move`).

use std::collections::VecDeque;

use super::{Ending, EntryEvent, Sender};
use crate::manifest::{Entry, EntryKind};
use crate::message::{Failure, Message, Removal};

/// What is to be removed, and how much of that is under way.
#[derive(Debug, Default)]
pub(super) struct Moving {
    waiting: VecDeque<Entry>,
    under_way: usize,
}

impl Moving {
    /// Files and links whose removal waits or is under way: the walk waits for them, too.
    pub fn count(&self) -> usize {
        self.waiting.len() + self.under_way
    }
}

impl Sender {
    /// An entry is done. It is removed if all of it is durable at the destination, as it was read
    /// in this session.
    pub(super) fn move_away(&mut self, entry: &Entry, ending: &Ending) {
        let there = matches!(ending, Ending::Committed(_) | Ending::Skipped(_));
        if self.settings.moves_away && there && entry.kind != EntryKind::Directory {
            self.moving.waiting.push_back(entry.clone());
        }
    }

    /// Whether [`Sender::poll_moved`] gives something.
    pub fn has_moved(&self) -> bool {
        !self.moving.waiting.is_empty()
    }

    /// The next source to remove, if it still is this. [`Sender::handle_moved`] takes the result.
    pub fn poll_moved(&mut self) -> Option<Entry> {
        let entry = self.moving.waiting.pop_front()?;
        self.moving.under_way += 1;
        Some(entry)
    }

    /// A source was removed, or why not.
    pub fn handle_moved(&mut self, entry: Entry, result: Result<(), Failure>) {
        self.moving.under_way = self.moving.under_way.saturating_sub(1);
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
}

#[cfg(test)]
mod tests {
    use longhaul_units::Moment;

    use super::*;
    use crate::manifest::{EntryId, SourceIdentity, Timestamp, TreePath};
    use crate::message::{FailureKind, Outcome, Totals};
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
    fn only_what_is_durable_is_removed_and_the_end_waits_for_it() {
        let mut sender = Sender::new(SenderSettings {
            moves_away: true,
            ..SenderSettings::default()
        });
        for id in 0..3 {
            sender.handle_entry(file(id));
        }
        sender.handle_walk_end();
        assert!(sender.poll_moved().is_none());
        done(&mut sender, 0, Outcome::Committed { digest: None });
        let failure = Failure::new(FailureKind::Other, "no");
        done(&mut sender, 1, Outcome::Failed(failure.clone()));
        let held = crate::criteria::Held::Newer;
        done(&mut sender, 2, Outcome::Left(held));
        let end = Message::Finished(Totals::default(), Vec::new());
        sender.handle_message(end, Moment(0)).unwrap();
        assert_eq!(sender.finished(), None, "a removal waits");
        let moved = sender.poll_moved().unwrap();
        assert_eq!(moved, file(0));
        assert!(sender.poll_moved().is_none());
        assert_eq!(sender.finished(), None, "one is under way");
        while sender.poll_message().is_some() {}
        sender.handle_moved(moved, Err(failure.clone()));
        assert!(sender.finished().is_some());
        let said = Message::Unmoved(file(0).path, failure);
        assert_eq!(sender.poll_message(), Some(said));
    }
}
