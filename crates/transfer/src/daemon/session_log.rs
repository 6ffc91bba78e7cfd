//! Log line that each session gets when it ends, and sums over the sessions for the metrics.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_engine::session::{Progress, Transfer};
use longhaul_proto::handshake::{Operation, SessionId};
use longhaul_system::queue::lock;
use longhaul_units::ByteCount;

use super::audit::AuditSession;
use super::sums::{Ended, Sums};

/// Sessions without a log line so far.
#[derive(Default)]
pub struct SessionLog {
    due: Mutex<HashMap<SessionId, Due>>,
    written: Condvar,
    /// Sums over the sessions that have ended. Locked after `due`.
    ended: Mutex<Sums>,
}

struct Due {
    principal: String,
    peer: String,
    transfer: Arc<Transfer>,
    audit: Option<Arc<AuditSession>>,
}

impl SessionLog {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Due>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session that has started.
    pub fn begin(
        &self,
        id: SessionId,
        (principal, peer): (&str, &str),
        (transfer, audit): (&Arc<Transfer>, Option<Arc<AuditSession>>),
    ) {
        let due = Due {
            principal: principal.to_owned(),
            peer: peer.to_owned(),
            transfer: Arc::clone(transfer),
            audit,
        };
        self.lock().insert(id, due);
    }

    /// Writes the log line of a session that has ended, at most once.
    pub fn write(&self, id: SessionId, ended: Ended, outcome: &str) {
        // The lock is held while the line is written, so that `finish` waits for it.
        let mut all = self.lock();
        if let Some(due) = all.remove(&id) {
            due.log(outcome);
            due.add_to(&mut lock(&self.ended), Some(ended));
        }
        self.written.notify_all();
    }

    /// Returns the sums over all sessions, running ones included.
    pub fn sums(&self) -> Sums {
        let all = self.lock();
        let mut sums = lock(&self.ended).clone();
        for due in all.values() {
            due.add_to(&mut sums, None);
        }
        sums
    }

    /// Waits up to `within` until each session has its line, then writes the missing ones.
    pub fn finish(&self, within: Duration) {
        let until = Instant::now() + within;
        let mut all = self.lock();
        while !all.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.written.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        for (_, due) in all.drain() {
            due.log("it had not ended when the daemon was stopped");
        }
    }
}

impl Due {
    /// Adds the session to the sums of its principal. `ended` is `None` while it runs.
    fn add_to(&self, sums: &mut Sums, ended: Option<Ended>) {
        let summary = self.transfer.summary();
        let progress = self.transfer.measurements().progress();
        let of = sums.of(&self.principal);
        match ended {
            None => of.running += 1,
            Some(ended) => *of.ended.entry(ended).or_default() += 1,
        }
        let bytes = bytes_of(summary.operation(), summary.is_sending(), &progress);
        let files = match summary.operation() {
            Operation::Copy => progress.files,
            Operation::DryRun | Operation::Verify => 0,
        };
        match (summary.operation(), summary.is_sending()) {
            (Operation::Copy, true) => of.sent.add(bytes, files),
            (Operation::Copy, false) => of.received.add(bytes, files),
            (Operation::DryRun | Operation::Verify, _) => {}
        }
        of.deleted += match summary.operation() {
            Operation::Copy => progress.deleted_entries,
            Operation::DryRun | Operation::Verify => 0,
        };
        of.failed += progress.failed_entries;
    }

    fn log(&self, outcome: &str) {
        let Due {
            principal,
            peer,
            transfer,
            audit,
        } = self;
        let progress = transfer.measurements().progress();
        let seconds = progress.elapsed.as_secs_f64();
        let (operation, doing) = match transfer.summary().operation() {
            Operation::Copy => ("copy", ""),
            Operation::DryRun => ("dry_run", "dry run, "),
            Operation::Verify => ("verify", "compared "),
        };
        let entries = match transfer.summary().operation() {
            Operation::DryRun => progress.new_entries + progress.changed_entries,
            Operation::Copy | Operation::Verify => progress.done_entries,
        };
        let bytes = bytes_of(
            transfer.summary().operation(),
            transfer.summary().is_sending(),
            &progress,
        );
        if let Some(audit) = audit {
            audit.end(Some(&progress), bytes, outcome);
        }
        tracing::info!(
            %principal,
            %peer,
            operation,
            entries,
            bytes,
            unchanged = progress.unchanged_entries(),
            failed = progress.failed_entries,
            seconds,
            outcome,
            "{principal} from {peer}: {doing}{entries} entries, {}, {} there already, {} failed, {seconds:.1} s: \
             {outcome}",
            ByteCount(bytes),
            progress.skipped_entries,
            progress.failed_entries,
        );
    }
}

/// Returns the bytes of completed files. For incomplete files, a copy counts the bytes that a
/// sender has sent or that a receiver has made durable.
fn bytes_of(operation: Operation, is_sending: bool, progress: &Progress) -> u64 {
    let account = &progress.account;
    let under_way = match (operation, is_sending) {
        (Operation::DryRun | Operation::Verify, _) => 0,
        (Operation::Copy, true) => account
            .moved_bytes
            .saturating_sub(account.moved_again_bytes),
        (Operation::Copy, false) => progress.settled_bytes,
    };
    progress.done_bytes.max(under_way)
}

#[cfg(test)]
mod tests {
    use longhaul_proto::account::Account;

    use super::*;

    #[test]
    fn a_stopped_copy_counts_sent_or_durable_bytes() {
        let mut progress = Progress {
            done_bytes: 10,
            settled_bytes: 30,
            account: Account {
                moved_bytes: 100,
                moved_again_bytes: 20,
                ..Account::default()
            },
            ..Progress::default()
        };
        assert_eq!(bytes_of(Operation::Copy, true, &progress), 80);
        assert_eq!(bytes_of(Operation::Copy, false, &progress), 30);
        assert_eq!(bytes_of(Operation::Verify, true, &progress), 10);
        progress.done_bytes = 500;
        assert_eq!(bytes_of(Operation::Copy, true, &progress), 500);
    }
}
