//! The names that the source has, told for deletion at the destination.

use super::{EntryEvent, Sender, SenderError};
use crate::deletion::{NAMES_WINDOW, NamesOf, REMOVED_AT_ONCE};
use crate::filter::{OMITTED_WINDOW, Omitted};
use crate::message::{Failure, FailureKind, Message, Removal};

/// What the receiver asked for, and what it has room for.
#[derive(Debug, Default)]
pub(super) struct Naming {
    wanted: bool,
    credit: u32,
    /// Messages about what was left out that were not heard.
    omitted: u32,
    /// Entries that failed at this end or the other.
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

    /// Whether the receiver wants to know the names that the source has.
    pub fn wants_names(&self) -> bool {
        self.naming.wanted
    }

    /// Why the names are not listed at all; `None` if they are.
    pub fn withholds_names(&self) -> Option<Failure> {
        let failed = self.naming.failed;
        (failed > 0 && !self.settings.names_only).then(|| {
            let text = format!("nothing was deleted at the destination: {failed} entries failed");
            Failure::new(FailureKind::Other, text)
        })
    }

    /// Whether [`Sender::handle_omitted`] may be called.
    pub fn has_omitted_credit(&self) -> bool {
        self.naming.omitted < OMITTED_WINDOW
    }

    /// The walk left these out on purpose, and the receiver is to hear of it.
    pub fn handle_omitted(&mut self, omitted: Vec<Omitted>) {
        self.naming.omitted += 1;
        self.messages.push_back(Message::Omitted(omitted));
    }

    pub(super) fn handle_omitted_taken(&mut self) {
        self.naming.omitted = self.naming.omitted.saturating_sub(1);
    }

    /// Whether [`Sender::handle_names`] may be called.
    pub fn has_names_credit(&self) -> bool {
        self.naming.credit > 0
    }

    /// The next names that the source has.
    pub fn handle_names(&mut self, names: Vec<NamesOf>) {
        self.naming.credit = self.naming.credit.saturating_sub(1);
        self.messages.push_back(Message::Names(names));
    }

    /// All names were told, or could not be.
    pub fn handle_names_end(&mut self, failure: Option<Failure>) {
        self.messages.push_back(Message::NamesEnd(failure));
    }
}
