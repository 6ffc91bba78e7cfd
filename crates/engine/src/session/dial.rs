//! The dialer's side of a session: opens streams until there are as many as
//! wanted, and again when some are lost, each on a thread of its own so that
//! many cost no more round trips than one.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use longhaul_proto::message::Farewell;
use longhaul_proto::session::StreamId;

use super::Transfer;
use crate::net::Stream;

/// First and longest pause before a failed dial is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Streams dialed at the same time at most.
const AT_ONCE: usize = 32;

/// Why a stream could not be dialed.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The network: to be tried again.
    #[error("{0}")]
    Network(String),
    /// The other end refused it for good.
    #[error("{0}")]
    Refused(String),
}

/// A stream that joined the session.
pub struct Joined {
    /// The stream.
    pub stream: Stream,
    /// It carries blocks in clear.
    pub clear: bool,
    /// Messages that the other end has received.
    pub received: u64,
}

/// Opens one stream and joins with it: gets its number and the messages
/// received so far.
pub type Dialer = Arc<dyn Fn(StreamId, u64) -> Result<Joined, DialError> + Send + Sync>;

/// The numbers and threads of a dialer.
struct Dialing {
    next: u32,
    pause: Duration,
}

impl Transfer {
    /// Keeps as many streams open as are wanted, until the session is over.
    /// `next` is the first number not used yet.
    ///
    /// # Errors
    ///
    /// Where the system gives no thread.
    pub fn keep_dialing(self: &Arc<Transfer>, dialer: Dialer, next: u32) -> std::io::Result<()> {
        let transfer = Arc::clone(self);
        let state = Dialing {
            next,
            pause: PAUSES.0,
        };
        std::thread::Builder::new()
            .name("dial".into())
            .spawn(move || transfer.dial(&dialer, state))
            .map(drop)
    }

    fn dial(self: &Arc<Transfer>, dialer: &Dialer, mut state: Dialing) {
        while let Some(missing) = self.missing_streams() {
            let failed = self.dial_together(dialer, &mut state, missing.min(AT_ONCE));
            if failed {
                state.pause = (state.pause * 2).min(PAUSES.1);
                self.pause(state.pause);
            } else {
                state.pause = PAUSES.0;
            }
        }
    }

    /// Dials so many streams at once; true where the network failed one.
    fn dial_together(
        self: &Arc<Transfer>,
        dialer: &Dialer,
        state: &mut Dialing,
        count: usize,
    ) -> bool {
        let first = state.next;
        state.next = state.next.saturating_add(count as u32);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (first..state.next)
                .map(|number| scope.spawn(move || self.dial_one(dialer, StreamId(number))))
                .collect();
            threads
                .into_iter()
                .any(|thread| !thread.join().unwrap_or(false))
        })
    }

    fn dial_one(self: &Arc<Transfer>, dialer: &Dialer, id: StreamId) -> bool {
        match dialer(id, self.received()) {
            Ok(Joined {
                stream,
                clear,
                received,
            }) => {
                let handle = stream.handle.clone();
                if !self.attach(stream, id, clear, received) {
                    handle.shutdown();
                }
                true
            }
            Err(DialError::Network(_)) => false,
            Err(DialError::Refused(text)) => {
                let mut shared = self.lock();
                // With streams left the session goes on with fewer.
                if shared.streams.is_empty() {
                    shared.life.end(Farewell::Broken(text));
                    self.wake_everybody(&shared);
                } else {
                    shared.wanted_streams = shared.streams.len();
                }
                true
            }
        }
    }

    /// Waits until streams are missing; none when the session is over.
    fn missing_streams(&self) -> Option<usize> {
        let mut shared = self.lock();
        loop {
            if shared.is_over() || shared.finished.is_some() {
                return None;
            }
            // With blocks in clear the first stream carries messages alone.
            let messages = usize::from(self.settings.clear);
            let live = shared.life.streams().count().saturating_sub(messages);
            if live < shared.wanted_streams {
                return Some(shared.wanted_streams - live);
            }
            if live > shared.wanted_streams {
                let last = shared.life.streams().last();
                if let Some(slot) = last.and_then(|id| shared.streams.get(&id)) {
                    slot.shutdown();
                }
            }
            shared = self
                .living
                .wait(shared)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn pause(&self, pause: Duration) {
        let until = self.now() + pause;
        let mut shared = self.lock();
        while !shared.is_over() && self.now() < until {
            let waited = self.living.wait_timeout(shared, until - self.now());
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
