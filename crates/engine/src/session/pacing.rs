//! The rate limit of a whole transfer at the sending end: its streams share one token bucket in
//! turn.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_net::StreamWriter;
use longhaul_proto::message::{Message, Tuning};
use longhaul_system::queue::lock;
use longhaul_units::Moment;

use super::Transfer;
use super::bucket::TokenBucket;
use super::stages::WireBlock;

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

    /// Returns the number of bytes to write at once; `None` if unlimited.
    fn write_bytes(&self) -> Option<usize> {
        let bound = self.bound.load(Ordering::Relaxed);
        bound
            .then(|| lock(&self.turns).bucket.write_bytes())
            .flatten()
    }

    /// Returns the rate in bytes per second, and true if a writer waits; `None` if unlimited.
    fn look(&self) -> Option<(u64, bool)> {
        let turns = lock(&self.turns);
        Some((turns.bucket.rate()?, turns.next > turns.current))
    }

    /// Waits until this many bytes may be sent. Writers are served in order of arrival.
    fn wait_for(&self, bytes: usize, now: impl Fn() -> Moment) {
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

impl Transfer {
    /// Sets the maximum rate of all streams together in bytes per second, at the sending end;
    /// `None` removes the limit. In any span at most rate times span plus a twentieth of a second's
    /// worth (at least 1 KiB) is sent.
    pub fn limit(&self, rate: Option<u64>) {
        let mut shared = self.lock();
        if shared.machine.is_sending() {
            self.pacing.set(rate, self.now());
        } else {
            let tuning = Tuning {
                limit: Some(rate.unwrap_or(0)),
                ..shared.steering.tuning().clone()
            };
            shared.say(&Message::Tune(tuning));
            shared.wake_writers();
        }
    }

    /// Returns the rate limit in bytes per second, and true if a stream waits for it; `None` if
    /// unlimited.
    pub(crate) fn paced(&self) -> Option<(u64, bool)> {
        self.pacing.look()
    }

    /// Applies a rate limit from the other end or from the steering end.
    pub(super) fn limit_as(&self, tuning: &Tuning) {
        if let Some(limit) = tuning.limit {
            self.pacing
                .set(Some(limit).filter(|limit| *limit > 0), self.now());
        }
    }

    /// Releases all waiting writers, because the session is over.
    pub(super) fn end_pacing(&self) {
        if self.pacing.bound.load(Ordering::Relaxed) {
            self.pacing.set(None, self.now());
        }
    }

    /// Writes a block at the transfer's rate; returns the time spent writing. `room` is a buffer
    /// for reuse.
    pub(super) fn send_block(
        &self,
        writer: &mut dyn StreamWriter,
        block: &mut dyn WireBlock,
        room: &mut Vec<u8>,
    ) -> io::Result<Duration> {
        let (frame, payload) = (block.frame_bytes(), block.payload_bytes());
        let (mut framed, mut sent) = (0, 0);
        let mut spent = Duration::ZERO;
        while framed < frame || sent < payload {
            let most = self.pacing.write_bytes().unwrap_or(usize::MAX);
            let first = (frame - framed).min(most);
            let second = (payload - sent).min(most - first);
            if most < usize::MAX {
                self.pacing.wait_for(first + second, || self.now());
            }
            let began = Instant::now();
            block.send(writer, (framed, first), (sent, second), room)?;
            spent += began.elapsed();
            (framed, sent) = (framed + first, sent + second);
        }
        Ok(spent)
    }
}
