//! The end of a transfer, and the cleanup after it.
//!
//! The receiver reports that all is done; then the sender says goodbye and leaves, and the receiver
//! leaves when it receives the goodbye. Without a goodbye the sender may not know of the end and,
//! if it dials, may return. The receiver then stays as long as for any lost sender.

use std::sync::PoisonError;
use std::time::Duration;

use longhaul_proto::digest::Integrity;
use longhaul_proto::handshake::Operation;
use longhaul_proto::message::{Farewell, Message, Totals};
use longhaul_proto::notice::Notice;

use super::{Side, Transfer};

/// Time that a receiver that is done waits for the goodbye of a sender that cannot dial.
const GOODBYE_WAIT: Duration = Duration::from_secs(5);

/// Conditions under which an end leaves a session that is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// All threads of the streams have ended.
    WhenAllEnded,
    /// Each stream has written its data.
    WhenAllSaid,
}

/// Result of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Reason for the end.
    pub farewell: Farewell,
    /// Totals that the receiver counted, if everything was done.
    pub totals: Option<Totals>,
    /// Notices about metadata that the destination dropped or refused, one of each kind, if
    /// everything was done.
    pub notices: Vec<Notice>,
}

impl Transfer {
    /// Waits until the session is over and its threads have ended.
    pub fn wait(&self) -> Ending {
        self.wait_as(Leaving::WhenAllEnded)
    }

    /// Waits like [`Transfer::wait`], for a process that exits next. A sender that knows that all
    /// is done says goodbye and does not wait for the round trip until the receiver has closed its
    /// streams. If the goodbye is lost, the receiver finds its streams gone, waits for the sender
    /// to return, and is done nevertheless.
    pub fn wait_to_exit(&self) -> Ending {
        self.wait_as(Leaving::WhenAllSaid)
    }

    fn wait_as(&self, leaving: Leaving) -> Ending {
        let mut shared = self.lock();
        let mut patience = None;
        while !shared.is_over() {
            if !shared.lifetime.is_done() {
                shared = self
                    .living
                    .wait(shared)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // All is done, but the other end may not know yet.
            let comes_back = !shared.streams.dials() && !self.settings.local;
            let span = if comes_back {
                // A sender on a cut path notices the cut after `silence` and searches
                // for a path during `linger`. Without a stream the session ends after
                // `linger` in any case.
                GOODBYE_WAIT.max(self.settings.silence + self.settings.linger)
            } else {
                GOODBYE_WAIT
            };
            let until = *patience.get_or_insert(self.now() + span);
            let left = until - self.now();
            if left.is_zero() || shared.streams.count() == 0 && !comes_back {
                shared.lifetime.end(Farewell::Complete);
            } else {
                let waited = self.living.wait_timeout(shared, left);
                shared = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        self.wake_everybody(&shared);
        drop(shared);
        // Read the counters of the paths while their sockets still exist.
        self.observe();
        self.stop_flows();
        self.wait_for_streams(leaving);
        let shared = self.lock();
        Ending {
            farewell: shared.lifetime.farewell(),
            totals: shared.lifetime.totals(),
            notices: shared.machine.notices().to_vec(),
        }
    }

    /// True if the other end sent entries that this end did not request.
    pub fn came_unasked(&self) -> bool {
        match self.side() {
            Side::Sending(_) => false,
            Side::Receiving(side) => side.came_unasked(),
        }
    }

    /// True if the session is over or everything is done.
    pub fn is_done(&self) -> bool {
        self.wait_for(Duration::ZERO)
    }

    /// True if everything is done and no stream is left: this end only waits for a sender that may
    /// not know and may return.
    pub fn is_left_alone(&self) -> bool {
        let shared = self.lock();
        shared.lifetime.is_done() && shared.streams.count() == 0
    }

    /// Waits for at most `span`; true if the session is over or done by then.
    pub fn wait_for(&self, span: Duration) -> bool {
        let until = self.now() + span;
        let mut shared = self.lock();
        loop {
            if shared.lifetime.is_ending() {
                return true;
            }
            let left = until - self.now();
            if left.is_zero() {
                return false;
            }
            let waited = self.living.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Describes for the summary how the data were verified and protected.
    pub fn describe_briefly(&self) -> String {
        let wire = match (self.is_clear(), self.settings.local) {
            (_, true) => "within this host",
            (true, false) => "blocks in clear",
            (false, false) => "encrypted",
        };
        format!("{}; {wire}", self.verified())
    }

    /// Returns [`Transfer::describe_briefly`] and the kind of I/O of this end.
    pub fn describe(&self) -> String {
        let direct = self.side().stages().is_direct();
        let disk = match (self.settings.direct, direct) {
            (false, false) => "buffered I/O",
            (false, true) => "direct I/O of large files",
            (true, true) => "direct I/O",
            (true, false) => "buffered I/O (this file system does no direct I/O)",
        };
        let stack = if self.is_paired() {
            "; each stream has one thread for all its work"
        } else {
            ""
        };
        format!("{}; {disk} at this end{stack}", self.describe_briefly())
    }

    /// Returns the operation of the transfer.
    pub fn operation(&self) -> Operation {
        self.settings.operation
    }

    /// True if this end sends.
    pub fn is_sending(&self) -> bool {
        matches!(self.side(), Side::Sending(_))
    }

    /// Describes how the contents were compared or verified.
    fn verified(&self) -> &'static str {
        let progress = self.progress();
        let compares = self.settings.operation == Operation::Verify;
        let touched = progress.files > 0 || compares && progress.failed_entries > 0;
        let moved_bytes = progress.account.moved_bytes;
        let durable_bytes = progress.account.durable_bytes;
        if !touched && !compares && moved_bytes + durable_bytes > 0 {
            // Data of a failed file are not part of a file that is still to be completed.
            let is_incomplete = durable_bytes == 0 && progress.failed_entries == 0;
            return match (is_incomplete, self.settings.integrity) {
                (true, _) => "no file is complete yet",
                (false, Integrity::Digest) => "verified by BLAKE3 of every block moved",
                (false, Integrity::Checksum) => "verified by XXH3 of every block moved",
            };
        }
        match (touched, compares, self.settings.integrity) {
            (false, true, _) => "no file was there to be compared",
            (false, false, _) if progress.skipped_entries > 0 => {
                "nothing was moved: size and time say what is there already"
            }
            (false, false, _) => "no file was moved",
            (true, true, Integrity::Digest) => {
                "compared by size and, where that is the same, by BLAKE3 of every block and file"
            }
            (true, true, Integrity::Checksum) => {
                "compared by size and, where that is the same, by XXH3 of every block"
            }
            (true, false, Integrity::Digest) => "verified by BLAKE3 of every block and file moved",
            (true, false, Integrity::Checksum) => {
                "verified by XXH3 of every block moved, no digest of files"
            }
        }
    }

    /// Sends a last observation before the goodbye of a finished session, since a short session has
    /// sent few or none. The other end does not wait for it, but receives it before the end.
    pub(crate) fn observe_at_last(&self) {
        let observation = self.observe();
        let mut shared = self.lock();
        if !shared.is_over() && shared.control.has_room() {
            shared.say(&Message::Observed(observation));
        }
    }

    /// Ends the session and sends the reason to the other end.
    pub fn end(&self, farewell: Farewell) {
        let mut shared = self.lock();
        if !shared.is_over() {
            shared.say(&Message::Goodbye(farewell.clone()));
            shared.lifetime.end(farewell);
        }
        self.wake_everybody(&shared);
    }

    /// Ends the session because of an error at this end.
    pub(crate) fn break_off(&self, error: &dyn std::fmt::Display) {
        self.end(Farewell::Broken(error.to_string()));
    }

    fn stop_flows(&self) {
        self.pool.close();
        self.coded.close();
        self.side().stages().stop();
        let mut shared = self.lock();
        shared.prepared.clear();
        if let Some(_) = shared.machine.receiver()
            && let Side::Receiving(side) = self.side()
        {
            drop(shared);
            side.leave();
            shared = self.lock();
        }
        shared.lifetime.leave();
        self.living.notify_all();
    }

    /// Waits for at most `span`; true if this end's flows have stopped by then, after the session
    /// was over. They neither read nor write any more. Another thread must be in
    /// [`Transfer::wait`].
    pub fn wait_until_left(&self, span: Duration) -> bool {
        let until = self.now() + span;
        let mut shared = self.lock();
        while !shared.lifetime.has_left() {
            let left = until - self.now();
            if left.is_zero() {
                return false;
            }
            let waited = self.living.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Waits until writers have sent their data; closes the streams of an end that does not read.
    fn wait_for_streams(&self, leaving: Leaving) {
        let until = self.now() + GOODBYE_WAIT;
        let mut shared = self.lock();
        while shared.streams.count() > 0 {
            let told = shared.lifetime.is_done() && shared.machine.is_sending();
            let said = || shared.streams.have_all_written();
            if leaving == Leaving::WhenAllSaid && told && said() {
                return;
            }
            let left = until - self.now();
            if left.is_zero() {
                shared.streams.shutdown();
                return;
            }
            shared = self
                .living
                .wait_timeout(shared, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}
