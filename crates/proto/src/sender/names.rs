//! Sends the names at the source for deletion at the destination.

use super::{EntryEvent, Sender, SenderError};
use crate::deletion::{NAMES_WINDOW, NamesOf, REMOVED_AT_ONCE};
use crate::filter::{OMITTED_WINDOW, Omitted};
use crate::message::{Failure, FailureKind, Message, Removal};

/// Requests of the receiver and the windows for its messages.
#[derive(Debug, Default)]
pub(super) struct Naming {
    wanted: bool,
    credit: u32,
    /// Number of unacknowledged messages about omitted names.
    omitted: u32,
    /// Number of entries that failed at either end.
    pub failed: u64,
}

impl Sender {
    pub(super) fn handle_ask_names(&mut self) -> Result<(), SenderError> {
        let done = self.walk_ended && self.entries.is_empty();
        if !self.settings.deletes || !done || self.naming.wanted {
            return Err(SenderError::Deletion);
        }
        self.naming.wanted = true;
        self.naming.credit = NAMES_WINDOW;
        Ok(())
    }

    pub(super) fn handle_names_taken(&mut self, batches: u32) {
        let credit = self.naming.credit.saturating_add(batches);
        self.naming.credit = credit.min(NAMES_WINDOW);
    }

    pub(super) fn handle_removed(&mut self, removed: Vec<Removal>) -> Result<(), SenderError> {
        if !self.settings.deletes || removed.len() > REMOVED_AT_ONCE {
            return Err(SenderError::Deletion);
        }
        let events = removed.into_iter().map(EntryEvent::Removed);
        self.events.extend(events);
        self.messages.push_back(Message::RemovedTaken);
        Ok(())
    }

    /// True if the receiver asked for the names at the source.
    pub fn wants_names(&self) -> bool {
        self.naming.wanted
    }

    /// Returns the reason why the names are not listed; `None` if they are.
    pub fn withholds_names(&self) -> Option<Failure> {
        let failed = self.naming.failed;
        (failed > 0 && !self.settings.names_only).then(|| {
            let text = format!("nothing was deleted at the destination: {failed} entries failed");
            Failure::new(FailureKind::Other, text)
        })
    }

    /// True if [`Sender::handle_omitted`] may be called.
    pub fn has_omitted_credit(&self) -> bool {
        self.naming.omitted < OMITTED_WINDOW
    }

    /// Reports names that the walk left out on purpose to the receiver.
    pub fn handle_omitted(&mut self, omitted: Vec<Omitted>) {
        self.naming.omitted += 1;
        self.messages.push_back(Message::Omitted(omitted));
    }

    pub(super) fn handle_omitted_taken(&mut self) {
        self.naming.omitted = self.naming.omitted.saturating_sub(1);
    }

    /// True if [`Sender::handle_names`] may be called.
    pub fn has_names_credit(&self) -> bool {
        self.naming.credit > 0
    }

    /// Sends the next names at the source to the receiver.
    pub fn handle_names(&mut self, names: Vec<NamesOf>) {
        self.naming.credit = self.naming.credit.saturating_sub(1);
        self.messages.push_back(Message::Names(names));
    }

    /// Reports the end of the names, or the reason why they could not be listed.
    pub fn handle_names_end(&mut self, failure: Option<Failure>) {
        self.messages.push_back(Message::NamesEnd(failure));
    }
}
