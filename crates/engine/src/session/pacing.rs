//! The rate limit of a whole transfer at the sending end: its streams share one token bucket in
//! turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use longhaul_system::queue::lock;
use longhaul_units::Moment;

use super::bucket::TokenBucket;

/// Queue of the streams' writers for the token bucket.
pub(super) struct Pacing {
    /// True if there is a limit. Without one no writer takes the lock.
    bound: AtomicBool,
    turns: Mutex<Turns>,
    changed: Condvar,
}

struct Turns {
    bucket: TokenBucket,
    /// Number of the next writer to queue, and number of the writer whose turn it is.
    next: u64,
    current: u64,
}

impl Turns {
    /// Takes tokens like [`TokenBucket::take`], but at most for the bytes that the bucket keeps:
    /// the rate may have fallen since the size was chosen.
    fn take(&mut self, bytes: usize, now: Moment) -> Option<Duration> {
        let most = usize::try_from(self.bucket.kept_bytes()).unwrap_or(usize::MAX);
        self.bucket.take(bytes.min(most), now)
    }
}

impl Pacing {
    /// Creates a limit in bytes per second; `None` is unlimited.
    pub fn new(rate: Option<u64>) -> Pacing {
        Pacing {
            bound: AtomicBool::new(rate.is_some()),
            turns: Mutex::new(Turns {
                bucket: TokenBucket::new(rate, Moment(0)),
                next: 0,
                current: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Changes the rate from now on.
    pub fn set(&self, rate: Option<u64>, now: Moment) {
        lock(&self.turns).bucket.set_rate(rate, now);
        self.bound.store(rate.is_some(), Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Releases all waiting writers, because the session is over.
    pub fn end(&self, now: Moment) {
        if self.bound.load(Ordering::Relaxed) {
            self.set(None, now);
        }
    }

    /// Returns the number of bytes to write at once; `None` if unlimited.
    pub fn write_bytes(&self) -> Option<usize> {
        let bound = self.bound.load(Ordering::Relaxed);
        bound
            .then(|| lock(&self.turns).bucket.write_bytes())
            .flatten()
    }

    /// Returns the rate in bytes per second, and true if a writer waits; `None` if unlimited.
    pub fn look(&self) -> Option<(u64, bool)> {
        let turns = lock(&self.turns);
        Some((turns.bucket.rate()?, turns.next > turns.current))
    }

    /// Waits until this many bytes may be sent. Writers are served in order of arrival.
    pub fn wait_for(&self, bytes: usize, now: impl Fn() -> Moment) {
        let mut turns = lock(&self.turns);
        let own = turns.next;
        turns.next += 1;
        while turns.current != own {
            let waited = self.changed.wait(turns);
            turns = waited.unwrap_or_else(PoisonError::into_inner);
        }
        while let Some(wait) = turns.take(bytes, now()) {
            let waited = self.changed.wait_timeout(turns, wait);
            turns = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        turns.current += 1;
        self.changed.notify_all();
    }
}
