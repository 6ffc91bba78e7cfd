//! Lifetime of a session.
//!
//! A session outlives all its streams for a set time. Next states: `Active` -> `Lingering` (last
//! stream lost) -> `Active` (a stream joined) or `Over` (time is up); any -> `Over`.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul_units::Moment;

use crate::ledger::RangeSet;
use crate::message::Farewell;

/// Maximum number of gaps in the stream numbers of a session. Each gap is a dialed stream that
/// never joined. A peer with more gaps wastes memory and is refused.
const MAXIMUM_GAPS: usize = 65_536;

/// Number of a stream within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// State of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// The session has a stream.
    Active,
    /// The session has no stream and ends at this time.
    Lingering(Moment),
    /// The session is over.
    Over(Farewell),
}

/// Lifetime of a session at one end.
#[derive(Debug)]
pub struct Session {
    linger: Duration,
    life: Life,
    streams: BTreeSet<StreamId>,
    control: Option<StreamId>,
    /// Used stream numbers. Streams join in any order.
    used: RangeSet,
    /// Number of the next stream that this end dials.
    next: u32,
}

impl Session {
    /// Makes a session without a stream that waits `linger` for one.
    pub fn new(linger: Duration, now: Moment) -> Session {
        Session {
            linger,
            life: Life::Lingering(now + linger),
            streams: BTreeSet::new(),
            control: None,
            used: RangeSet::default(),
            next: 0,
        }
    }

    /// Sets the time that the session outlives its streams, after both ends agreed on it.
    pub fn set_linger(&mut self, linger: Duration) {
        self.linger = linger;
    }

    /// Returns the time that the session outlives its streams.
    pub fn linger(&self) -> Duration {
        self.linger
    }

    /// Adds a stream that joined. Returns false if the stream must be refused, because its number
    /// was used before, there are too many gaps, or the session is over.
    pub fn handle_stream_up(&mut self, stream: StreamId) -> bool {
        let number = u64::from(stream.0);
        let fresh = !self.used.overlaps(number, number + 1);
        if matches!(self.life, Life::Over(_)) || !fresh || self.used.fragments() > MAXIMUM_GAPS {
            return false;
        }
        self.used.insert(number, number + 1);
        self.next = self.next.max(stream.0.saturating_add(1));
        self.life = Life::Active;
        self.streams.insert(stream);
        true
    }

    /// Handles the loss of a stream. Returns true if the control channel must move.
    pub fn handle_stream_down(&mut self, stream: StreamId, now: Moment) -> bool {
        self.streams.remove(&stream);
        if self.streams.is_empty() && self.life == Life::Active {
            self.life = Life::Lingering(now + self.linger);
        }
        let moved = self.control == Some(stream);
        if moved {
            self.control = None;
        }
        moved
    }

    /// Ends a lingering session whose time is up.
    pub fn handle_timeout(&mut self, now: Moment) {
        if let Life::Lingering(end) = self.life
            && now >= end
        {
            let text = format!(
                "every connection was lost or silent, and none came back within {} s",
                self.linger.as_secs_f64().ceil()
            );
            self.life = Life::Over(Farewell::Broken(text));
        }
    }

    /// Extends the lingering by a span in which this end did not run, because the other end did not
    /// cause it.
    pub fn handle_pause(&mut self, span: Duration) {
        if let Life::Lingering(end) = &mut self.life {
            *end = *end + span;
        }
    }

    /// Ends the session. A later reason does not replace an earlier one.
    pub fn end(&mut self, farewell: Farewell) {
        if !matches!(self.life, Life::Over(_)) {
            self.life = Life::Over(farewell);
        }
    }

    /// Returns the time at which [`Session::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Moment> {
        match self.life {
            Life::Lingering(end) => Some(end),
            Life::Active | Life::Over(_) => None,
        }
    }

    /// Returns the stream that carries control messages. It stays the same as long as it lives.
    /// `allowed` is true for streams that may carry them (streams in clear may not).
    pub fn control_stream(&mut self, allowed: impl Fn(StreamId) -> bool) -> Option<StreamId> {
        if self.control.is_none() {
            self.control = self.streams.iter().copied().find(|&stream| allowed(stream));
        }
        self.control
    }

    /// Moves control messages to another stream, because it is faster or, at the receiving end,
    /// because the sender uses it now. Returns false if they are already there, or if the stream is
    /// not part of the session.
    pub fn move_control(&mut self, stream: StreamId) -> bool {
        let moves = self.control != Some(stream) && self.streams.contains(&stream);
        if moves {
            self.control = Some(stream);
        }
        moves
    }

    /// Returns the state of the session.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Returns the live streams.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.streams.iter().copied()
    }

    /// Returns an unused number for a stream that is about to be dialed. Streams that are dialed at
    /// the same time join in any order or not at all.
    pub fn next_stream(&mut self) -> StreamId {
        let stream = StreamId(self.next);
        self.next = self.next.saturating_add(1);
        stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_outlives_its_streams_for_its_time() {
        let mut session = Session::new(SECOND, Moment(0));
        assert!(session.handle_stream_up(StreamId(0)));
        assert!(session.handle_stream_up(StreamId(1)));
        assert_eq!(session.control_stream(|_| true), Some(StreamId(0)));
        assert!(session.handle_stream_down(StreamId(0), Moment(5)));
        assert_eq!(session.control_stream(|_| true), Some(StreamId(1)));
        assert!(session.handle_stream_down(StreamId(1), Moment(5)));
        assert_eq!(session.poll_timeout(), Some(Moment(5) + SECOND));
        session.handle_timeout(Moment(4) + SECOND);
        assert!(session.handle_stream_up(StreamId(2)));
        assert_eq!(*session.life(), Life::Active);
        session.handle_stream_down(StreamId(2), Moment(7));
        session.handle_timeout(Moment(7) + SECOND);
        assert!(matches!(session.life(), Life::Over(_)));
        assert!(!session.handle_stream_up(StreamId(3)));
    }

    #[test]
    fn a_pause_does_not_count() {
        let mut session = Session::new(SECOND, Moment(0));
        session.handle_pause(65 * SECOND);
        session.handle_timeout(Moment(0) + 65 * SECOND);
        assert!(matches!(session.life(), Life::Lingering(_)));
        session.handle_timeout(Moment(0) + 66 * SECOND);
        assert!(matches!(session.life(), Life::Over(_)));
    }

    #[test]
    fn streams_dialed_together_join_in_any_order() {
        let mut dialer = Session::new(SECOND, Moment(0));
        let mut acceptor = Session::new(SECOND, Moment(0));
        let streams = [(); 3].map(|()| dialer.next_stream());
        for stream in streams.into_iter().rev() {
            assert!(acceptor.handle_stream_up(stream));
            assert!(dialer.handle_stream_up(stream));
            assert!(!acceptor.handle_stream_up(stream));
        }
        assert_eq!(dialer.next_stream(), StreamId(3));
        assert_eq!(acceptor.next_stream(), StreamId(3));
    }

    #[test]
    fn no_stream_joins_twice_and_the_first_end_stays() {
        let mut session = Session::new(SECOND, Moment(0));
        assert!(session.handle_stream_up(StreamId(0)));
        assert!(!session.handle_stream_up(StreamId(0)));
        session.end(Farewell::Complete);
        session.end(Farewell::Fenced);
        assert_eq!(*session.life(), Life::Over(Farewell::Complete));
    }
}
