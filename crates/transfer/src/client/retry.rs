//! Retries requests to a daemon that is busy.

use std::fmt::Display;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use longhaul_engine::session::opening::OpenError;
use longhaul_net::tls::TlsError;
use longhaul_proto::handshake::Refusal;

use crate::console::say;

/// First and longest pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Time after which a daemon closes unauthenticated connections, so that it can accept new ones.
pub const PLACE_FREE_WITHIN: Duration = Duration::from_secs(10);

/// Times of the first and the last connection for one request.
///
/// The acceptor's clock starts when it accepts a connection. Both times are therefore taken when a
/// connection opens, not when the request is sent: the duration of a handshake varies.
#[derive(Clone, Copy, Debug)]
pub struct Attempts {
    first: Instant,
    last: Instant,
}

impl Attempts {
    /// Records the first connection at the current time.
    pub fn begin() -> Attempts {
        let now = Instant::now();
        Attempts {
            first: now,
            last: now,
        }
    }

    /// Records a further connection at the current time.
    pub fn again(self) -> Attempts {
        Attempts {
            last: Instant::now(),
            ..self
        }
    }

    /// Returns the milliseconds between the first and the last connection; 0 for a single one.
    pub fn waited_milliseconds(self) -> u64 {
        let waited = self.last.saturating_duration_since(self.first);
        u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Retries until a deadline.
pub struct Tries {
    began: Instant,
    within: Duration,
    pause: Duration,
    told: bool,
}

impl Tries {
    /// Starts the time limit.
    pub fn within(within: Duration) -> Tries {
        Tries {
            began: Instant::now(),
            within,
            pause: FIRST_PAUSE,
            told: false,
        }
    }

    /// Waits until the next try. Reports the first retry. Returns false if the next try would come
    /// after the deadline.
    pub fn go_on(&mut self, cause: &dyn Display) -> bool {
        if self.began.elapsed() + self.pause >= self.within {
            return false;
        }
        if !std::mem::replace(&mut self.told, true) {
            let seconds = self.within.as_secs_f64();
            say(&format!("{cause}; it is tried again for up to {seconds} s"));
        }
        // tidy: reason: a daemon tells nobody when a place is free.
        std::thread::sleep(self.pause);
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
        true
    }
}

/// True if a daemon may have closed the connection to accept others. It sends no reason in that
/// case.
pub fn is_turned_out(error: &TlsError) -> bool {
    match error {
        TlsError::Closed { .. } => true,
        TlsError::Io { cause, .. } => matches!(
            cause.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
        ),
        _ => false,
    }
}

/// True if the daemon is busy.
pub fn is_busy(error: &OpenError) -> bool {
    match error {
        OpenError::Refused(refused) => refused.refusal == Refusal::Busy && !refused.superseded,
        OpenError::Io(_)
        | OpenError::Frame(_)
        | OpenError::LargePackets
        | OpenError::TooManyNames => false,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::handshake::Refused;

    use super::*;

    #[test]
    fn a_superseded_run_does_not_try_again() {
        let refused = |refusal, superseded| {
            OpenError::Refused(Refused {
                refusal,
                text: String::new(),
                superseded,
            })
        };
        assert!(is_busy(&refused(Refusal::Busy, false)));
        assert!(!is_busy(&refused(Refusal::Busy, true)));
        assert!(!is_busy(&refused(Refusal::Forbidden, false)));
    }

    #[test]
    fn a_single_attempt_has_not_waited() {
        let attempts = Attempts::begin();
        assert_eq!(attempts.waited_milliseconds(), 0);
        let first = attempts.first - Duration::from_secs(3);
        let once = Attempts { first, last: first };
        assert!(once.again().waited_milliseconds() >= 3000);
    }

    #[test]
    fn without_time_there_is_one_try() {
        assert!(!Tries::within(Duration::ZERO).go_on(&"no place"));
    }
}
