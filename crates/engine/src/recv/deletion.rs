//! Removes what the source does not have, once everything is copied. One directory at a time,
//! the source's names are compared with a listing of the destination (`plan`); only when the
//! source was listed to its end without an error is anything removed (`carry`).
//!
//! - A name at either end is present, absent, or could not be looked at. What is absent at the
//!   source, as its listing says, and present here is removed. Everything else stays.
//! - A rule that leaves a name out protects it here (`protection`).
//! - All paths lead through the directories of the session, beneath the anchor, never through a
//!   link. Other file systems are not entered.
//! - What changed since it was listed stays.

mod carry;
mod inner;
mod plan;
mod protection;
mod record;
mod replaced;

use std::sync::Mutex;

use longhaul_proto::handshake::Operation;
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::receiver::StorageJob;

use super::ReceiveSide;
use crate::session::Transfer;
use carry::Carry;
use longhaul_system::queue::lock;
use plan::Plan;
use protection::Protection;

/// How far a session's deletion is. One thread at a time works on it.
#[derive(Default)]
pub(crate) struct Deletions(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Before,
    Planning(Box<Plan>),
    Carrying(Box<Carry>),
    Over,
}

impl Transfer {
    /// A step of deletion, on the comparer's thread.
    pub(super) fn delete(&self, side: &ReceiveSide, job: StorageJob) {
        let mut state = lock(&side.deletions.0);
        match job {
            StorageJob::Names(names) => {
                if let State::Before = *state {
                    *state = self.begin_plan(side);
                }
                if let State::Planning(plan) = &mut *state {
                    plan.take(self, side, names);
                }
                drop(state);
                self.tell_receiver(|receiver| receiver.handle_names_taken());
            }
            StorageJob::EndNames(failure) => {
                let before = std::mem::replace(&mut *state, State::Over);
                let planned = match (failure, before) {
                    (Some(failure), _) if self.names_only() => Err(as_unnamed(failure)),
                    (Some(failure), _) => Err(as_undeleted(failure)),
                    (None, State::Planning(plan)) => {
                        plan.finish((self, side), self.deletion_maximum())
                    }
                    // Nothing in the source is a directory.
                    (None, _) => match self.begin_plan(side) {
                        State::Planning(plan) => plan.finish((self, side), self.deletion_maximum()),
                        _ => Plan::new(Default::default()).finish((self, side), None),
                    },
                };
                let result = planned.map(|carry| *state = State::Carrying(Box::new(carry)));
                drop(state);
                self.tell_receiver(|receiver| receiver.handle_names_compared(result));
            }
            StorageJob::Remove => {
                let (removed, ended) = match &mut *state {
                    State::Carrying(carry) => carry.step(self, side),
                    State::Before | State::Planning(_) | State::Over => (Vec::new(), true),
                };
                drop(state);
                self.tell_receiver(|receiver| receiver.handle_removed(removed, ended));
            }
            _ => {}
        }
    }

    fn begin_plan(&self, side: &ReceiveSide) -> State {
        // A single file lands in a directory of which nothing else is the copy's. Of two trees that
        // are compared, either may have any name.
        if side.destination.rename.is_some() && !self.names_only() {
            return State::Over;
        }
        let asked = self.settings.deletion.as_deref();
        // What stays as it is does not become what the source has.
        let are_copied = self.settings.criteria.is_usual();
        let foresees = !self.copies() && are_copied;
        let shows_lines = side.destination.keeper.may_compare();
        let protection =
            asked.map(|asked| Protection::new(asked, (foresees, are_copied), shows_lines));
        match protection {
            Some(Ok(protection)) => State::Planning(Box::new(Plan::new(protection))),
            // Its rules were read before the session began.
            Some(Err(_)) | None => State::Over,
        }
    }

    /// Whether names are differences, and nothing is deleted.
    fn names_only(&self) -> bool {
        self.settings.operation == Operation::Verify
    }

    fn deletion_maximum(&self) -> Option<u64> {
        self.settings.deletion.as_deref()?.maximum
    }
}

/// Why the source could not be listed, and what that means.
fn as_undeleted(failure: Failure) -> Failure {
    const MEANS: &str = "nothing was deleted at the destination";
    if failure.text.contains(MEANS) {
        failure
    } else {
        Failure::new(failure.kind, format!("{}; {MEANS}", failure.text))
    }
}

/// The same of a comparison.
fn as_unnamed(failure: Failure) -> Failure {
    let text = format!(
        "{}; what is only at the destination was not looked for",
        failure.text
    );
    Failure::new(failure.kind, text)
}

/// More than may be.
fn too_many(count: u64, most: u64) -> Failure {
    let text = format!(
        "nothing was deleted at the destination: {count} names are not at the source, and \
         --max-delete allows {most}; see which with --dry-run"
    );
    Failure::new(FailureKind::Other, text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::sync::Arc;

    use longhaul_proto::deletion::Deletion;
    use longhaul_proto::handshake::Landing;
    use longhaul_storage::roots::Anywhere;

    use super::*;
    use crate::recv::landing::{Arrival, Destination, Missing};
    use crate::session::TransferSettings;

    /// A peer that calls something a single file may name any directory of the destination.
    #[test]
    fn where_a_single_file_lands_nothing_is_deleted() {
        for (landing, operation, plans) in [
            (Landing::As, Operation::Copy, false),
            (Landing::As, Operation::DryRun, false),
            (Landing::As, Operation::Verify, true),
            (Landing::Within, Operation::Copy, true),
        ] {
            let place = tempfile::tempdir().unwrap();
            let arrival = Arrival::of_tests();
            let path = place.path().join("there");
            let path = path.as_os_str().as_bytes();
            let there = Destination::open(&Anywhere, path, landing, Missing::Make, arrival);
            let side = Arc::new(ReceiveSide::new(there.unwrap()));
            let settings = TransferSettings {
                operation,
                deletion: Some(Arc::new(Deletion::default())),
                ..TransferSettings::default()
            };
            let transfer = Transfer::receiving_into(settings, &side, Arc::new(|_| {}));
            let planned = matches!(transfer.begin_plan(&side), State::Planning(_));
            assert_eq!(planned, plans, "{landing:?} {operation:?}");
        }
    }
}
