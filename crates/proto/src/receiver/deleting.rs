//! Deletes names once everything is copied. This end asks the sender for its names and removes all
//! others. After any failure at either end, no names are removed.

use super::{ReceivedEvent, Receiver, ReceiverError, StorageJob};
use crate::deletion::{NAMES_WINDOW, NamesOf, NamesOrder};
use crate::filter::{MAXIMUM_OMITTED, MAXIMUM_RULE_SHOWN, Omitted};
use crate::manifest::TreePath;
use crate::message::{Failure, FailureKind, Message, Removal};

/// Maximum number of unacknowledged messages about removals.
const REMOVED_WINDOW: u32 = 8;

/// State of the deletion.
#[derive(Debug, Default)]
pub(super) enum Deleting {
    /// Entries are still under way.
    #[default]
    Before,
    /// The names will be requested after all other messages were sent, which may include the last
    /// answers.
    Asking,
    /// Names arrive.
    Listing {
        order: NamesOrder,
        /// Number of batches received and not compared.
        untaken: u32,
    },
    /// All names arrived.
    Listed,
    /// Extra names are being removed, one batch at a time.
    Removing {
        /// Number of unacknowledged messages.
        untold: u32,
        /// True if a batch is being removed.
        busy: bool,
        /// True if no names remain to be removed.
        ended: bool,
    },
    /// The deletion is over or did not take place.
    Over,
}

impl Receiver {
    /// Begins the deletion after all entries are done. Returns true if it begins or is under way.
    pub(super) fn deletion_comes_first(&mut self) -> bool {
        match self.deleting {
            _ if !self.settings.deletes => return false,
            Deleting::Over => return false,
            Deleting::Before => {}
            Deleting::Asking
            | Deleting::Listing { .. }
            | Deleting::Listed
            | Deleting::Removing { .. } => return true,
        }
        let failed = self.totals.failed;
        if failed > 0 && !self.settings.names_only {
            let text = format!(
                "nothing was deleted at the destination: {failed} of the entries failed, and what \
                 could not be looked at may be there: run it again once that is fixed"
            );
            self.tell_undeleted(Failure::new(FailureKind::Other, text));
            self.deleting = Deleting::Over;
            return false;
        }
        self.deleting = Deleting::Asking;
        true
    }

    /// True if [`Receiver::ask_names`] returns a message.
    pub(super) fn asks_names(&self) -> bool {
        matches!(self.deleting, Deleting::Asking)
    }

    /// Returns the request for names if it is next. All other messages must have been sent.
    pub(super) fn ask_names(&mut self) -> Option<Message> {
        if !self.asks_names() {
            return None;
        }
        self.deleting = Deleting::Listing {
            order: NamesOrder::default(),
            untaken: 0,
        };
        Some(Message::AskNames)
    }

    pub(super) fn handle_names(&mut self, names: Vec<NamesOf>) -> Result<(), ReceiverError> {
        let Deleting::Listing { order, untaken } = &mut self.deleting else {
            return Err(ReceiverError::Names);
        };
        if *untaken >= NAMES_WINDOW || !order.accepts(&names) {
            return Err(ReceiverError::Names);
        }
        *untaken += 1;
        self.push_job(StorageJob::Names(names));
        Ok(())
    }

    pub(super) fn handle_names_end(
        &mut self,
        failure: Option<Failure>,
    ) -> Result<(), ReceiverError> {
        let Deleting::Listing { order, .. } = &self.deleting else {
            return Err(ReceiverError::Names);
        };
        if failure.is_none() && !order.is_whole() {
            return Err(ReceiverError::Names);
        }
        self.deleting = Deleting::Listed;
        self.push_job(StorageJob::EndNames(failure));
        Ok(())
    }

    /// Handles a batch of names that was compared.
    pub fn handle_names_taken(&mut self) {
        if let Deleting::Listing { untaken, .. } = &mut self.deleting {
            *untaken = untaken.saturating_sub(1);
            self.push_message(Message::NamesTaken(1));
        }
    }

    /// Handles the end of the comparison of names, or the reason why no names are removed.
    pub fn handle_names_compared(&mut self, result: Result<(), Failure>) {
        if !matches!(self.deleting, Deleting::Listed) {
            return;
        }
        match result {
            Ok(()) => {
                self.deleting = Deleting::Removing {
                    untold: 0,
                    busy: true,
                    ended: false,
                };
                self.push_job(StorageJob::Remove);
            }
            Err(failure) => {
                self.tell_undeleted(failure);
                self.end_deletion();
            }
        }
    }

    /// Handles a batch of removals. `ended` is true if no names remain to be removed.
    pub fn handle_removed(&mut self, removed: Vec<Removal>, ended: bool) {
        let Deleting::Removing {
            untold,
            busy,
            ended: over,
        } = &mut self.deleting
        else {
            return;
        };
        *busy = false;
        *over = ended;
        if !removed.is_empty() {
            *untold += 1;
            for removal in &removed {
                match &removal.failure {
                    Some(_) => self.totals.failed += 1,
                    None => {
                        self.totals.deleted += 1;
                        self.totals.deleted_bytes += removal.size;
                    }
                }
            }
            self.tell_removed(removed);
        }
        self.go_on_removing();
    }

    pub(super) fn handle_removed_taken(&mut self) {
        if let Deleting::Removing { untold, .. } = &mut self.deleting {
            *untold = untold.saturating_sub(1);
        }
        self.go_on_removing();
    }

    /// Handles an entry that was removed to make room for a directory of the copy.
    pub fn handle_made_way(&mut self, removal: Removal) {
        self.totals.deleted += 1;
        self.totals.deleted_bytes += removal.size;
        self.tell_removed(vec![removal]);
    }

    /// Handles entries that could not take the place of a directory. They fail, even if they were
    /// counted as committed. At most [`crate::deletion::REMOVED_AT_ONCE`] entries.
    pub fn handle_unreplaced(&mut self, failed: Vec<Removal>, were_committed: bool) {
        let count = failed.len() as u64;
        self.totals.failed += count;
        if were_committed {
            self.totals.committed = self.totals.committed.saturating_sub(count);
        }
        self.tell_removed(failed);
    }

    fn tell_removed(&mut self, removed: Vec<Removal>) {
        let events = removed.iter().cloned().map(ReceivedEvent::Removed);
        self.events.extend(events);
        self.push_message(Message::Removed(removed));
    }

    /// Handles a source that the sender could not remove.
    pub(super) fn handle_unmoved(&mut self, path: TreePath, failure: Failure) {
        self.events.push_back(ReceivedEvent::Removed(Removal {
            path: Some(path),
            size: 0,
            directory: false,
            failure: Some(failure),
        }));
    }

    /// Handles names that the sender left out, for a report.
    pub(super) fn handle_omitted(&mut self, omitted: Vec<Omitted>) -> Result<(), ReceiverError> {
        let long = |name: &Omitted| {
            let rule = name.rule.as_ref();
            rule.is_some_and(|rule| rule.len() > MAXIMUM_RULE_SHOWN)
        };
        if omitted.len() > MAXIMUM_OMITTED || omitted.iter().any(long) {
            return Err(ReceiverError::TooMuch);
        }
        let events = omitted.into_iter().map(ReceivedEvent::Omitted);
        self.events.extend(events);
        self.push_message(Message::OmittedTaken);
        Ok(())
    }

    fn go_on_removing(&mut self) {
        let Deleting::Removing {
            untold,
            busy,
            ended,
        } = &mut self.deleting
        else {
            return;
        };
        if *ended {
            return self.end_deletion();
        }
        if !*busy && *untold < REMOVED_WINDOW {
            *busy = true;
            self.push_job(StorageJob::Remove);
        }
    }

    fn end_deletion(&mut self) {
        self.deleting = Deleting::Over;
        self.finish_if_done();
    }

    fn tell_undeleted(&mut self, failure: Failure) {
        let removal = Removal {
            path: None,
            size: 0,
            directory: false,
            failure: Some(failure),
        };
        self.events
            .push_back(ReceivedEvent::Removed(removal.clone()));
        self.push_message(Message::Removed(vec![removal]));
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Moment;

    use super::*;
    use crate::filter::LeftOut;
    use crate::receiver::ReceiverSettings;

    fn receiver() -> Receiver {
        let mut receiver = Receiver::new(ReceiverSettings {
            deletes: true,
            ..ReceiverSettings::default()
        });
        let end = Message::WalkEnd {
            entries: 0,
            left_out: LeftOut::default(),
            anchor: None,
        };
        receiver.handle_message(end).unwrap();
        assert_eq!(receiver.poll_message(), Some(Message::AskNames));
        receiver
    }

    fn names(directory: &str) -> Message {
        Message::Names(vec![NamesOf {
            directory: TreePath::new(directory.as_bytes()).ok(),
            begins: true,
            ends: true,
            names: vec![b"a".to_vec().into()],
            rules: Vec::new(),
            is_empty_source: false,
        }])
    }

    fn job(receiver: &mut Receiver) -> Option<StorageJob> {
        receiver.poll_storage(Moment(0))
    }

    fn removal(path: &str) -> Removal {
        Removal {
            path: TreePath::new(path.as_bytes()).ok(),
            size: 3,
            directory: false,
            failure: None,
        }
    }

    #[test]
    fn names_are_asked_for_compared_and_what_is_too_much_removed() {
        let mut receiver = receiver();
        assert_eq!(job(&mut receiver), None, "it is not done yet");
        receiver.handle_message(names("")).unwrap();
        assert!(matches!(job(&mut receiver), Some(StorageJob::Names(_))));
        receiver.handle_names_taken();
        receiver.handle_message(Message::NamesEnd(None)).unwrap();
        assert_eq!(job(&mut receiver), Some(StorageJob::EndNames(None)));
        receiver.handle_names_compared(Ok(()));
        assert_eq!(job(&mut receiver), Some(StorageJob::Remove));
        receiver.handle_removed(vec![removal("x")], false);
        assert_eq!(job(&mut receiver), Some(StorageJob::Remove));
        receiver.handle_removed(vec![removal("y")], true);
        assert_eq!(job(&mut receiver), Some(StorageJob::Finish));
        let totals = receiver.totals();
        assert_eq!((totals.deleted, totals.deleted_bytes), (2, 6));
    }

    /// The last answers end the last entries, and the request for names follows them.
    #[test]
    fn names_are_asked_for_after_the_last_answers() {
        let mut receiver = Receiver::new(ReceiverSettings {
            deletes: true,
            ..ReceiverSettings::default()
        });
        let entry = crate::manifest::Entry {
            id: crate::manifest::EntryId(0),
            parent: None,
            path: TreePath::new(b"f").unwrap(),
            kind: crate::manifest::EntryKind::Symlink {
                target: b"t".to_vec(),
            },
            mode: 0,
            modified: Default::default(),
            owner: None,
        };
        let listed = Message::Entries(vec![entry.clone()]);
        receiver.handle_message(listed).unwrap();
        let end = Message::WalkEnd {
            entries: 1,
            left_out: LeftOut::default(),
            anchor: None,
        };
        receiver.handle_message(end).unwrap();
        assert!(job(&mut receiver).is_some());
        receiver.handle_compared(vec![(entry, crate::receiver::Compared::Same(None))]);
        let said: Vec<_> = std::iter::from_fn(|| receiver.poll_message()).collect();
        assert!(matches!(said[0], Message::Answers(_)), "{said:?}");
        assert_eq!(said.last(), Some(&Message::AskNames));
    }

    #[test]
    fn whoever_does_not_listen_is_not_deleted_for() {
        let mut receiver = receiver();
        receiver.handle_message(Message::NamesEnd(None)).unwrap();
        receiver.handle_names_compared(Ok(()));
        let mut steps = 0;
        while let Some(next) = job(&mut receiver) {
            if next == StorageJob::Remove {
                steps += 1;
                receiver.handle_removed(vec![removal("x")], false);
            }
        }
        assert_eq!(steps, REMOVED_WINDOW);
        receiver.handle_message(Message::RemovedTaken).unwrap();
        assert_eq!(job(&mut receiver), Some(StorageJob::Remove));
    }

    #[test]
    fn names_that_nobody_asked_for_end_the_session() {
        let mut early = Receiver::new(ReceiverSettings {
            deletes: true,
            ..ReceiverSettings::default()
        });
        assert!(early.handle_message(names("")).is_err());
        let mut unasked = Receiver::new(ReceiverSettings::default());
        assert!(unasked.handle_message(Message::NamesEnd(None)).is_err());
        let mut flooded = receiver();
        let taken = (0..1000).take_while(|_| flooded.handle_message(names("")).is_ok());
        assert_eq!(taken.count(), NAMES_WINDOW as usize);
        let mut half = receiver();
        let begun = Message::Names(vec![NamesOf {
            directory: None,
            begins: true,
            ends: false,
            names: Vec::new(),
            rules: Vec::new(),
            is_empty_source: false,
        }]);
        half.handle_message(begun).unwrap();
        assert!(half.handle_message(Message::NamesEnd(None)).is_err());
    }

    #[test]
    fn after_a_failure_nothing_is_deleted() {
        let failure = || Failure::new(FailureKind::Other, "no");
        let mut failed = Receiver::new(ReceiverSettings {
            deletes: true,
            ..ReceiverSettings::default()
        });
        let abandoned = Message::Abandoned {
            id: crate::manifest::EntryId(0),
            parent: None,
            failure: failure(),
        };
        failed.handle_message(abandoned).unwrap();
        let end = Message::WalkEnd {
            entries: 1,
            left_out: LeftOut::default(),
            anchor: None,
        };
        failed.handle_message(end).unwrap();
        let jobs: Vec<_> = std::iter::from_fn(|| job(&mut failed)).collect();
        assert!(jobs.contains(&StorageJob::Finish), "{jobs:?}");
        let said: Vec<_> = std::iter::from_fn(|| failed.poll_message()).collect();
        assert!(!said.contains(&Message::AskNames), "{said:?}");
        let undeleted =
            |message: &Message| matches!(message, Message::Removed(list) if list[0].path.is_none());
        assert!(said.iter().any(undeleted), "{said:?}");

        let mut unlisted = receiver();
        let end = Message::NamesEnd(Some(failure()));
        unlisted.handle_message(end).unwrap();
        assert!(matches!(
            job(&mut unlisted),
            Some(StorageJob::EndNames(Some(_)))
        ));
        unlisted.handle_names_compared(Err(failure()));
        assert_eq!(job(&mut unlisted), Some(StorageJob::Finish));
        assert_eq!(unlisted.totals().deleted, 0);
    }
}
