//! Removes names that the source lacks, after all data is copied. One directory at a time, the
//! source's names are compared with a listing of the destination (`plan`). Names are removed only
//! if the source was listed completely and without an error (`carry`).
//!
//! - A name at either end is present, absent, or unreadable. A name is removed if the source's
//!   listing shows that it is absent there and it is present here. All other names stay.
//! - A rule that leaves a name out protects it here (`protection`).
//! - All paths lead through the directories of the session, beneath the anchor, never through a
//!   symbolic link. Other file systems are not entered.
//! - Entries that changed since they were listed stay.

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

use super::Remover;
use carry::Carry;
use longhaul_system::queue::lock;
use plan::Plan;
use protection::Protection;

/// State of a session's deletion. One thread at a time works on it.
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

impl Remover<'_> {
    /// Runs a step of deletion on the comparer's thread.
    pub(super) fn delete(&self, job: StorageJob) {
        let mut state = lock(&self.side.deletions.0);
        match job {
            StorageJob::Names(names) => {
                if let State::Before = *state {
                    *state = self.begin_plan();
                }
                if let State::Planning(plan) = &mut *state {
                    plan.take(&self.receiving(), names);
                }
                drop(state);
                self.receiving()
                    .tell(|receiver| receiver.removals_mut().handle_names_taken());
            }
            StorageJob::EndNames(failure) => {
                let before = std::mem::replace(&mut *state, State::Over);
                let planned = match (failure, before) {
                    (Some(failure), _) if self.names_only() => Err(as_unnamed(failure)),
                    (Some(failure), _) => Err(as_undeleted(failure)),
                    (None, State::Planning(plan)) => {
                        plan.finish(&self.receiving(), self.deletion_maximum())
                    }
                    // The source has no directories.
                    (None, _) => match self.begin_plan() {
                        State::Planning(plan) => {
                            plan.finish(&self.receiving(), self.deletion_maximum())
                        }
                        _ => Plan::new(Default::default()).finish(&self.receiving(), None),
                    },
                };
                let result = planned.map(|carry| *state = State::Carrying(Box::new(carry)));
                drop(state);
                self.receiving()
                    .tell(|receiver| receiver.removals_mut().handle_names_compared(result));
            }
            StorageJob::Remove => {
                let (removed, ended) = match &mut *state {
                    State::Carrying(carry) => carry.step(&self.receiving()),
                    State::Before | State::Planning(_) | State::Over => (Vec::new(), true),
                };
                drop(state);
                self.receiving()
                    .tell(|receiver| receiver.removals_mut().handle_removed(removed, ended));
            }
            _ => {}
        }
    }

    fn begin_plan(&self) -> State {
        // The directory of a single file does not belong to the copy. Two trees that are compared
        // may have different names.
        if self.side.destination.rename.is_some() && !self.names_only() {
            return State::Over;
        }
        let asked = self.transfer.settings.deletion.as_deref();
        // With other criteria, existing rule files may differ from the source's after the copy.
        let are_copied = self.transfer.settings.criteria.is_usual();
        let foresees = !self.receiving().copies() && are_copied;
        let shows_lines = self.side.destination.keeper.may_compare();
        let protection =
            asked.map(|asked| Protection::new(asked, (foresees, are_copied), shows_lines));
        match protection {
            Some(Ok(protection)) => State::Planning(Box::new(Plan::new(protection))),
            // The rules were checked before the session began.
            Some(Err(_)) | None => State::Over,
        }
    }

    /// True if names are only compared, and no names are deleted.
    fn names_only(&self) -> bool {
        self.transfer.settings.operation == Operation::Verify
    }

    fn deletion_maximum(&self) -> Option<u64> {
        self.transfer.settings.deletion.as_deref()?.maximum
    }
}

/// Adds to a failure that no names were deleted.
fn as_undeleted(failure: Failure) -> Failure {
    const MEANS: &str = "nothing was deleted at the destination";
    if failure.text.contains(MEANS) {
        failure
    } else {
        Failure::new(failure.kind, format!("{}; {MEANS}", failure.text))
    }
}

/// Adds to a failure of a comparison that surplus names were not searched.
fn as_unnamed(failure: Failure) -> Failure {
    let text = format!(
        "{}; what is only at the destination was not looked for",
        failure.text
    );
    Failure::new(failure.kind, text)
}

/// Returns the failure for more surplus names than `--max-delete` allows.
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
    use crate::recv::ReceiveSide;
    use crate::recv::landing::{Arrival, Destination, Missing};
    use crate::session::{Transfer, TransferSettings};

    /// A peer that announces a single file could name any directory of the destination.
    #[test]
    fn a_copy_of_a_single_file_deletes_no_names() {
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
            let planned = matches!(
                side.at_work(&transfer).remover().begin_plan(),
                State::Planning(_)
            );
            assert_eq!(planned, plans, "{landing:?} {operation:?}");
        }
    }
}
