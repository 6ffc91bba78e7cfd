//! The end of a transfer, and the cleanup after it.
//!
//! The receiver reports that all is done; then the sender says goodbye and leaves, and the receiver
//! leaves when it receives the goodbye. Without a goodbye the sender may not know of the end and,
//! if it dials, may return. The receiver then stays as long as for any lost sender.

use std::sync::PoisonError;
use std::time::Duration;

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
        Leaving::WhenAllEnded.wait(self)
    }

    /// Waits like [`Transfer::wait`], for a process that exits next. A sender that knows that all
    /// is done says goodbye and does not wait for the round trip until the receiver has closed its
    /// streams. If the goodbye is lost, the receiver finds its streams gone, waits for the sender
    /// to return, and is done nevertheless.
    pub fn wait_to_exit(&self) -> Ending {
        Leaving::WhenAllSaid.wait(self)
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
            let waited = self.signals.living.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
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
            let waited = self.signals.living.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Leaving {
    /// Waits until the session is over, and leaves it.
    fn wait(self, transfer: &Transfer) -> Ending {
        let mut shared = transfer.lock();
        let mut patience = None;
        while !shared.is_over() {
            if !shared.lifetime.is_done() {
                shared = transfer
                    .signals
                    .living
                    .wait(shared)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // All is done, but the other end may not know yet.
            let comes_back = !shared.streams.dials() && !transfer.settings.local;
            let span = if comes_back {
                // A sender on a cut path notices the cut after `silence` and searches
                // for a path during `linger`. Without a stream the session ends after
                // `linger` in any case.
                GOODBYE_WAIT.max(transfer.settings.silence + transfer.settings.linger)
            } else {
                GOODBYE_WAIT
            };
            let until = *patience.get_or_insert(transfer.now() + span);
            let left = until - transfer.now();
            if left.is_zero() || shared.streams.count() == 0 && !comes_back {
                shared.lifetime.end(Farewell::Complete);
            } else {
                let waited = transfer.signals.living.wait_timeout(shared, left);
                shared = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        transfer.wake_everybody(&shared);
        drop(shared);
        // Read the counters of the paths while their sockets still exist.
        transfer.measurements().observe();
        stop_flows(transfer);
        self.wait_for_streams(transfer);
        let shared = transfer.lock();
        Ending {
            farewell: shared.lifetime.farewell(),
            totals: shared.lifetime.totals(),
            notices: shared.machine.notices().to_vec(),
        }
    }

    /// Waits until writers have sent their data; closes the streams of an end that does not read.
    fn wait_for_streams(self, transfer: &Transfer) {
        let until = transfer.now() + GOODBYE_WAIT;
        let mut shared = transfer.lock();
        while shared.streams.count() > 0 {
            let told = shared.lifetime.is_done() && shared.machine.is_sending();
            let said = || shared.streams.have_all_written();
            if self == Leaving::WhenAllSaid && told && said() {
                return;
            }
            let left = until - transfer.now();
            if left.is_zero() {
                shared.streams.shutdown();
                return;
            }
            shared = transfer
                .signals
                .living
                .wait_timeout(shared, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Stops the flows of this end and releases its locks.
fn stop_flows(transfer: &Transfer) {
    transfer.pool.close();
    transfer.coded.close();
    transfer.side().stages().stop();
    let mut shared = transfer.lock();
    shared.ready.clear();
    if let Side::Receiving(side) = transfer.side() {
        drop(shared);
        side.leave();
        shared = transfer.lock();
    }
    shared.lifetime.leave();
    transfer.signals.living.notify_all();
}
