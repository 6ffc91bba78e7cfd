//! Removes names at the destination, and reports what was removed.
//!
//! Once everything is copied, this end asks the sender for its names and removes all others. After
//! any failure at either end, no names are removed.

use std::collections::VecDeque;

use super::jobs::{ReceivedEvent, ReceiverError, StorageJob};
use super::load::{Load, MESSAGE_BYTES};
use super::settings::ReceiverSettings;
use crate::deletion::{NAMES_WINDOW, NamesOf, NamesOrder};
use crate::message::{Failure, FailureKind, Message, Removal, Totals};

/// Maximum number of unacknowledged messages about removals.
pub(super) const REMOVED_WINDOW: u32 = 8;

/// State of the deletion.
#[derive(Debug, Default)]
enum Step {
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

/// Removal of names at the destination.
#[derive(Debug, Default)]
pub struct Removals {
    /// True if deletion follows the copy.
    deletes: bool,
    /// True if extra names are only reported as differences.
    names_only: bool,
    step: Step,
    /// Number and bytes of removed names.
    removed: u64,
    removed_bytes: u64,
    /// Number of names that could not be removed or replaced.
    failed: u64,
    /// Number of these that were counted as committed before.
    uncommitted: u64,
    jobs: VecDeque<StorageJob>,
    messages: VecDeque<Message>,
    events: VecDeque<ReceivedEvent>,
}

impl Removals {
    pub(super) fn new(settings: &ReceiverSettings) -> Removals {
        Removals {
            deletes: settings.deletes,
            names_only: settings.names_only,
            ..Removals::default()
        }
    }

    /// Begins the deletion after all entries are done, of which `failed` failed. Later calls have
    /// no effect.
    pub(super) fn begin(&mut self, failed: u64) {
        if !self.deletes || !matches!(self.step, Step::Before) {
            return;
        }
        if failed > 0 && !self.names_only {
            let text = format!(
                "nothing was deleted at the destination: {failed} of the entries failed, and what \
                 could not be looked at may be there: run it again once that is fixed"
            );
            self.report_undeleted(Failure::new(FailureKind::Other, text));
            self.step = Step::Over;
        } else {
            self.step = Step::Asking;
        }
    }

    /// True if no deletion follows or it is over.
    pub(super) fn are_over(&self) -> bool {
        !self.deletes || matches!(self.step, Step::Over)
    }

    pub(super) fn handle_names(&mut self, names: Vec<NamesOf>) -> Result<(), ReceiverError> {
        let Step::Listing { order, untaken } = &mut self.step else {
            return Err(ReceiverError::Names);
        };
        if *untaken >= NAMES_WINDOW || !order.accepts(&names) {
            return Err(ReceiverError::Names);
        }
        *untaken += 1;
        self.jobs.push_back(StorageJob::Names(names));
        Ok(())
    }

    pub(super) fn handle_names_end(
        &mut self,
        failure: Option<Failure>,
    ) -> Result<(), ReceiverError> {
        let Step::Listing { order, .. } = &self.step else {
            return Err(ReceiverError::Names);
        };
        if failure.is_none() && !order.is_whole() {
            return Err(ReceiverError::Names);
        }
        self.step = Step::Listed;
        self.jobs.push_back(StorageJob::EndNames(failure));
        Ok(())
    }

    pub(super) fn handle_removed_taken(&mut self) {
        if let Step::Removing { untold, .. } = &mut self.step {
            *untold = untold.saturating_sub(1);
        }
        self.remove_more();
    }

    /// Handles a batch of names that was compared.
    pub fn handle_names_taken(&mut self) {
        if let Step::Listing { untaken, .. } = &mut self.step {
            *untaken = untaken.saturating_sub(1);
            self.messages.push_back(Message::NamesTaken(1));
        }
    }

    /// Handles the end of the comparison of names, or the reason why no names are removed.
    pub fn handle_names_compared(&mut self, result: Result<(), Failure>) {
        if !matches!(self.step, Step::Listed) {
            return;
        }
        match result {
            Ok(()) => {
                self.step = Step::Removing {
                    untold: 0,
                    busy: true,
                    ended: false,
                };
                self.jobs.push_back(StorageJob::Remove);
            }
            Err(failure) => {
                self.report_undeleted(failure);
                self.step = Step::Over;
            }
        }
    }

    /// Handles a batch of removals. `ended` is true if no names remain to be removed.
    pub fn handle_removed(&mut self, removed: Vec<Removal>, ended: bool) {
        let Step::Removing {
            untold,
            busy,
            ended: over,
        } = &mut self.step
        else {
            return;
        };
        *busy = false;
        *over = ended;
        if !removed.is_empty() {
            *untold += 1;
            for removal in &removed {
                if removal.failure.is_some() {
                    self.failed += 1;
                } else {
                    self.removed += 1;
                    self.removed_bytes += removal.size;
                }
            }
            self.report(removed);
        }
        self.remove_more();
    }

    /// Handles an entry that was removed to make room for a directory of the copy.
    pub fn handle_made_way(&mut self, removal: Removal) {
        self.removed += 1;
        self.removed_bytes += removal.size;
        self.report(vec![removal]);
    }

    /// Handles entries that could not take the place of a directory. They fail, even if they were
    /// counted as committed. At most [`crate::deletion::REMOVED_AT_ONCE`] entries.
    pub fn handle_unreplaced(&mut self, failed: Vec<Removal>, were_committed: bool) {
        let count = failed.len() as u64;
        self.failed += count;
        if were_committed {
            self.uncommitted += count;
        }
        self.report(failed);
    }

    /// Reports that no names are deleted.
    fn report_undeleted(&mut self, failure: Failure) {
        self.report(vec![Removal {
            path: None,
            size: 0,
            directory: false,
            failure: Some(failure),
        }]);
    }

    fn report(&mut self, removed: Vec<Removal>) {
        let events = removed.iter().cloned().map(ReceivedEvent::Removed);
        self.events.extend(events);
        self.messages.push_back(Message::Removed(removed));
    }

    /// Removes the next names if the sender read enough reports.
    fn remove_more(&mut self) {
        let Step::Removing {
            untold,
            busy,
            ended,
        } = &mut self.step
        else {
            return;
        };
        if *ended {
            self.step = Step::Over;
        } else if !*busy && *untold < REMOVED_WINDOW {
            *busy = true;
            self.jobs.push_back(StorageJob::Remove);
        }
    }

    /// Adds the counts of removals.
    pub(super) fn add_to(&self, totals: &mut Totals) {
        totals.deleted += self.removed;
        totals.deleted_bytes += self.removed_bytes;
        totals.failed += self.failed;
        totals.committed = totals.committed.saturating_sub(self.uncommitted);
    }

    pub(super) fn has_job(&self) -> bool {
        !self.jobs.is_empty()
    }

    pub(super) fn poll_job(&mut self) -> Option<StorageJob> {
        self.jobs.pop_front()
    }

    pub(super) fn has_message(&self) -> bool {
        !self.messages.is_empty() || matches!(self.step, Step::Asking)
    }

    /// Returns the next message, except the request for names.
    pub(super) fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    /// Returns the request for names if it is due. It must follow all other messages.
    pub(super) fn poll_ask(&mut self) -> Option<Message> {
        if !matches!(self.step, Step::Asking) {
            return None;
        }
        self.step = Step::Listing {
            order: NamesOrder::default(),
            untaken: 0,
        };
        Some(Message::AskNames)
    }

    pub(super) fn poll_event(&mut self) -> Option<ReceivedEvent> {
        self.events.pop_front()
    }

    /// Returns the memory. The windows for names bound the jobs.
    pub(super) fn load(&self) -> Load {
        Load::of(self.messages.len(), MESSAGE_BYTES)
    }
}
