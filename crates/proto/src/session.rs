//! How long a session lives.
//!
//! A session outlives all its streams for a stated time. Next states: `Active` -> `Lingering`
//! (last stream lost) -> `Active` (one joined) or `Over` (time is up); any -> `Over`.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul_units::Moment;

use crate::ledger::RangeSet;
use crate::message::Farewell;

/// Most gaps in the numbers of the streams of a session: each is a dial that
/// never joined. Beyond, a peer wastes our memory and is refused.
const MAXIMUM_GAPS: usize = 65_536;

/// Number of a stream within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// What a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has a stream.
    Active,
    /// It has none, and ends at this moment.
    Lingering(Moment),
    /// It ended.
    Over(Farewell),
}

/// A session's life at one end.
#[derive(Debug)]
pub struct Session {
    linger: Duration,
    life: Life,
    streams: BTreeSet<StreamId>,
    control: Option<StreamId>,
    /// Numbers that were used; streams join in any order.
    used: RangeSet,
    /// Number of the next stream that this end dials.
    next: u32,
}

impl Session {
    /// A session without a stream yet that will wait `linger` for one.
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

    /// How long the session outlives its streams, now that both ends know.
    pub fn set_linger(&mut self, linger: Duration) {
        self.linger = linger;
    }

    /// How long the session outlives its streams.
    pub fn linger(&self) -> Duration {
        self.linger
    }

    /// A stream joined. False where its number was used before or the session
    /// is over: the stream is to be refused.
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

    /// A stream was lost. True where the control channel has to move.
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

    /// Time passed.
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

    /// Nothing ran at this end for so long: that time is no fault of the other's.
    pub fn handle_pause(&mut self, span: Duration) {
        if let Life::Lingering(end) = &mut self.life {
            *end = *end + span;
        }
    }

    /// The session ends; a later reason does not replace an earlier one.
    pub fn end(&mut self, farewell: Farewell) {
        if !matches!(self.life, Life::Over(_)) {
            self.life = Life::Over(farewell);
        }
    }

    /// When [`Session::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Moment> {
        match self.life {
            Life::Lingering(end) => Some(end),
            Life::Active | Life::Over(_) => None,
        }
    }

    /// The stream that carries control messages: the same as long as it lives,
    /// `allowed` says which may (streams in clear may not).
    pub fn control_stream(&mut self, allowed: impl Fn(StreamId) -> bool) -> Option<StreamId> {
        if self.control.is_none() {
            self.control = self.streams.iter().copied().find(|&stream| allowed(stream));
        }
        self.control
    }

    /// Control messages move to another stream: because that is faster, or at
    /// the receiving end because the sender talks there now. False where they
    /// are there already, or it is no stream of the session.
    pub fn move_control(&mut self, stream: StreamId) -> bool {
        let moves = self.control != Some(stream) && self.streams.contains(&stream);
        if moves {
            self.control = Some(stream);
        }
        moves
    }

    /// What it is.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Live streams.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.streams.iter().copied()
    }

    /// A number for a stream that is about to be dialed, given once only: many
    /// are dialed at the same time, and join in any order or not at all.
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
    fn it_outlives_its_streams_for_the_stated_time() {
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
