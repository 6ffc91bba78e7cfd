//! Sends the names at the source for deletion at the destination.

use std::collections::VecDeque;

use crate::deletion::{NAMES_WINDOW, NamesOf, REMOVED_AT_ONCE};
use crate::filter::{OMITTED_WINDOW, Omitted};
use crate::message::{Failure, FailureKind, Message, Removal};
use crate::sender::results::{EntryEvent, SenderError};
use crate::sender::settings::SenderSettings;

/// The names at the source, and the windows for messages about them.
#[derive(Debug, Default)]
pub struct Names {
    /// True if the receiver may ask for names.
    deletes: bool,
    /// True if extra names are only reported as differences.
    names_only: bool,
    wanted: bool,
    credit: u32,
    /// Number of unacknowledged messages about omitted names.
    omitted: u32,
    /// Number of entries that failed at either end.
    failed: u64,
    messages: VecDeque<Message>,
    events: VecDeque<EntryEvent>,
}

impl Names {
    pub(super) fn new(settings: SenderSettings) -> Names {
        Names {
            deletes: settings.deletes,
            names_only: settings.names_only,
            ..Names::default()
        }
    }

    /// Counts an entry that failed.
    pub(super) fn count_failed(&mut self) {
        self.failed += 1;
    }

    /// Handles the receiver's request for names; `is_done` is true if all entries are done.
    pub(super) fn handle_ask(&mut self, is_done: bool) -> Result<(), SenderError> {
        if !self.deletes || !is_done || self.wanted {
            return Err(SenderError::Deletion);
        }
        self.wanted = true;
        self.credit = NAMES_WINDOW;
        Ok(())
    }

    pub(super) fn handle_names_taken(&mut self, batches: u32) -> Result<(), SenderError> {
        self.credit = self.credit.saturating_add(batches).min(NAMES_WINDOW);
        Ok(())
    }

    pub(super) fn handle_removed(&mut self, removed: Vec<Removal>) -> Result<(), SenderError> {
        if !self.deletes || removed.len() > REMOVED_AT_ONCE {
            return Err(SenderError::Deletion);
        }
        let events = removed.into_iter().map(EntryEvent::Removed);
        self.events.extend(events);
        self.messages.push_back(Message::RemovedTaken);
        Ok(())
    }

    pub(super) fn handle_omitted_taken(&mut self) -> Result<(), SenderError> {
        self.omitted = self.omitted.saturating_sub(1);
        Ok(())
    }

    /// True if the receiver asked for the names at the source.
    pub fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// Returns the reason why the names are not listed; `None` if they are.
    pub fn withheld(&self) -> Option<Failure> {
        let failed = self.failed;
        (failed > 0 && !self.names_only).then(|| {
            let text = format!("nothing was deleted at the destination: {failed} entries failed");
            Failure::new(FailureKind::Other, text)
        })
    }

    /// True if [`Names::handle_omitted`] may be called.
    pub fn has_omitted_credit(&self) -> bool {
        self.omitted < OMITTED_WINDOW
    }

    /// Reports names that the walk left out on purpose to the receiver.
    pub fn handle_omitted(&mut self, omitted: Vec<Omitted>) {
        self.omitted += 1;
        self.messages.push_back(Message::Omitted(omitted));
    }

    /// True if [`Names::handle_names`] may be called.
    pub fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Sends the next names at the source to the receiver.
    pub fn handle_names(&mut self, names: Vec<NamesOf>) {
        self.credit = self.credit.saturating_sub(1);
        self.messages.push_back(Message::Names(names));
    }

    /// Reports the end of the names, or the reason why they could not be listed.
    pub fn handle_end(&mut self, failure: Option<Failure>) {
        self.messages.push_back(Message::NamesEnd(failure));
    }

    pub(super) fn has_message(&self) -> bool {
        !self.messages.is_empty()
    }

    pub(super) fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    pub(super) fn poll_event(&mut self) -> Option<EntryEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(SenderSettings {
            deletes: true,
            ..SenderSettings::default()
        })
    }

    #[test]
    fn names_are_requested_once_after_all_entries_are_done() {
        let mut names = names();
        assert!(names.handle_ask(false).is_err());
        assert!(!names.are_wanted() && !names.has_credit());
        names.handle_ask(true).unwrap();
        assert!(names.are_wanted());
        assert!(names.handle_ask(true).is_err());
        let sent =
            std::iter::from_fn(|| names.has_credit().then(|| names.handle_names(Vec::new())));
        assert_eq!(sent.count(), NAMES_WINDOW as usize);
        names.handle_names_taken(u32::MAX).unwrap();
        assert!(names.has_credit());
        assert!(Names::default().handle_ask(true).is_err(), "no deletion");
    }

    #[test]
    fn removals_are_reported_and_acknowledged() {
        let removal = || Removal {
            path: None,
            size: 1,
            directory: false,
            failure: None,
        };
        let mut names = names();
        names.handle_removed(vec![removal()]).unwrap();
        assert_eq!(names.poll_event(), Some(EntryEvent::Removed(removal())));
        assert_eq!(names.poll_message(), Some(Message::RemovedTaken));
        assert!(!names.has_message());
        let many = vec![removal(); REMOVED_AT_ONCE + 1];
        assert!(names.handle_removed(many).is_err());
        assert!(Names::default().handle_removed(vec![removal()]).is_err());
    }

    #[test]
    fn names_are_withheld_after_a_failure() {
        let mut names = names();
        assert_eq!(names.withheld(), None);
        names.count_failed();
        assert!(names.withheld().is_some());
    }
}
