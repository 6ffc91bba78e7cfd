//! Life of a session at this end: its live streams, the signs of life of the other end, and the end
//! of the session.

use std::time::Duration;

use longhaul_proto::message::{Farewell, Totals};
use longhaul_proto::session::{Life, Session, StreamId};
use longhaul_units::Moment;

/// Life of a session at this end.
pub(crate) struct Lifetime {
    session: Session,
    heard: Moment,
    /// Time of the last message or block of the session. Unlike `heard`, it does not count a stream
    /// that joined.
    told: Moment,
    /// Totals, once everything is done.
    totals: Option<Totals>,
    /// Time when everything was done.
    done: Option<Moment>,
    /// If true, a failure of this host ended the session.
    failed_here: bool,
    /// True once the session is over and the flows of this end have stopped.
    left: bool,
}

impl Lifetime {
    /// Creates the life of a session that stays alive for `linger` after its last stream was lost.
    pub fn new(linger: Duration) -> Lifetime {
        Lifetime {
            session: Session::new(linger, Moment(0)),
            heard: Moment(0),
            told: Moment(0),
            totals: None,
            done: None,
            failed_here: false,
            left: false,
        }
    }

    /// True if the session is over.
    pub fn is_over(&self) -> bool {
        matches!(self.session.life(), Life::Over(_))
    }

    /// True if the session has a stream and is not over.
    pub fn is_active(&self) -> bool {
        *self.session.life() == Life::Active
    }

    /// True once everything is done.
    pub fn is_done(&self) -> bool {
        self.totals.is_some()
    }

    /// True if the session is over or everything is done.
    pub fn is_ending(&self) -> bool {
        self.is_over() || self.is_done()
    }

    /// Returns the totals, once everything is done.
    pub fn totals(&self) -> Option<Totals> {
        self.totals
    }

    /// Records that everything is done.
    pub fn finish(&mut self, totals: Totals) {
        self.totals = Some(totals);
    }

    /// Records the time of the end of all work, if it is not known yet.
    pub fn note_end_of_work(&mut self, now: Moment) {
        self.done.get_or_insert(now);
    }

    /// Returns the time of the end of all work; `None` before it.
    pub fn end_of_work(&self) -> Option<Moment> {
        self.done
    }

    /// Ends the session, unless it is over.
    pub fn end(&mut self, farewell: Farewell) {
        self.session.end(farewell);
    }

    /// Ends the session because of a failure at one of the ends, unless it is over.
    pub fn break_off(&mut self, text: String) {
        self.session.end(Farewell::Broken(text));
    }

    /// Ends the session for the reason that the other end gave.
    pub fn handle_goodbye(&mut self, farewell: &Farewell) {
        // A sender that knows that all is done accepts the farewell as it is.
        if *farewell == Farewell::Complete && !self.is_done() {
            self.break_off("the other end left before everything was done".to_owned());
        } else {
            self.session.end(farewell.clone());
        }
    }

    /// Returns the reason for the end of the session.
    pub fn farewell(&self) -> Farewell {
        match self.session.life() {
            Life::Over(_) if self.is_done() => Farewell::Complete,
            Life::Over(farewell) => farewell.clone(),
            Life::Active | Life::Lingering(_) => Farewell::Complete,
        }
    }

    /// Records that a failure of this host ends the session, unless the session is over.
    pub fn note_failure_here(&mut self) {
        self.failed_here |= !self.is_over();
    }

    /// Returns the reason if a failure of this host ended the session.
    pub fn failure_here(&self) -> Option<String> {
        match self.session.life() {
            Life::Over(Farewell::Broken(text)) if self.failed_here => Some(text.clone()),
            _ => None,
        }
    }

    /// Records that the flows of this end have stopped.
    pub fn leave(&mut self) {
        self.left = true;
    }

    /// True once the session is over and the flows of this end have stopped.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Sets the time that the session stays alive after its last stream was lost.
    pub fn set_linger(&mut self, linger: Duration) {
        self.session.set_linger(linger);
    }

    /// Adds a stream; false if the session does not accept it. The stream counts as a sign of life
    /// only if it is the first one, because an end that accepts streams but sends nothing is
    /// silent.
    pub fn handle_stream_up(&mut self, stream: StreamId, now: Moment) -> bool {
        let was_alone = !self.is_active();
        let joins = self.session.handle_stream_up(stream);
        if joins && was_alone {
            self.heard = now;
        }
        joins
    }

    /// Removes a lost stream; true if messages move to another stream.
    pub fn handle_stream_down(&mut self, stream: StreamId, now: Moment) -> bool {
        self.session.handle_stream_down(stream, now)
    }

    /// Returns the live streams.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.session.streams()
    }

    /// True if a stream is live.
    pub fn has_stream(&self, stream: StreamId) -> bool {
        self.session.streams().any(|live| live == stream)
    }

    /// True if the session has no live stream.
    pub fn is_alone(&self) -> bool {
        self.session.streams().next().is_none()
    }

    /// Returns the stream that carries this end's messages, out of those that may.
    pub fn control_stream(&mut self, may: impl Fn(StreamId) -> bool) -> Option<StreamId> {
        self.session.control_stream(may)
    }

    /// Moves messages to a stream; true if they were on another one.
    pub fn move_control(&mut self, stream: StreamId) -> bool {
        self.session.move_control(stream)
    }

    /// Ends a session that timed out.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.session.handle_timeout(now);
    }

    /// Returns the time of the next timeout.
    pub fn poll_timeout(&self) -> Option<Moment> {
        self.session.poll_timeout()
    }

    /// Records that data of the session arrived, or that this end can read again.
    pub fn note_heard(&mut self, now: Moment) {
        (self.heard, self.told) = (now, now);
    }

    /// Records that this end does not read, so that silence is no evidence about the other end.
    pub fn note_deaf(&mut self, now: Moment) {
        self.told = now;
    }

    /// Returns the time since this end last received data.
    pub fn silence(&self, now: Moment) -> Duration {
        now - self.heard
    }

    /// Returns the time when data of the session last arrived.
    pub fn told(&self) -> Moment {
        self.told
    }

    /// Ends the session if no data of it arrived for a long time, although streams join.
    pub fn end_untold(&mut self, silence: Duration, now: Moment) {
        let span = silence.saturating_mul(2) + self.session.linger();
        if now - self.told > span {
            let text = format!(
                "the other end accepted connections, but said nothing on them for {} s",
                span.as_secs_f64().ceil()
            );
            self.break_off(text);
        }
    }

    /// Shifts times after a pause of this process, which is not counted as silence of the other
    /// end.
    pub fn handle_pause(&mut self, span: Duration, later: impl Fn(Moment) -> Moment) {
        self.heard = later(self.heard);
        self.told = later(self.told);
        self.session.handle_pause(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Moment {
        Moment(0) + Duration::from_secs(second)
    }

    #[test]
    fn streams_that_join_and_carry_nothing_are_no_sign_of_life() {
        let (silence, linger) = (Duration::from_secs(60), Duration::from_secs(30));
        let mut lifetime = Lifetime::new(linger);
        assert!(lifetime.handle_stream_up(StreamId(0), at(5)));
        assert!(lifetime.handle_stream_up(StreamId(1), at(9)));
        assert_eq!(lifetime.silence(at(10)), Duration::from_secs(5));
        lifetime.note_heard(at(20));
        // The other end could have sent a message: this is more than twice the time after which a
        // stream is closed.
        let end = at(20) + silence * 2 + linger;
        lifetime.end_untold(silence, end);
        assert!(lifetime.is_active());
        lifetime.end_untold(silence, end + Duration::from_millis(1));
        let Farewell::Broken(text) = lifetime.farewell() else {
            panic!("it goes on");
        };
        assert!(text.contains("said nothing"), "{text}");
    }

    #[test]
    fn a_pause_of_this_process_is_no_silence() {
        let mut lifetime = Lifetime::new(Duration::from_secs(60));
        lifetime.note_heard(at(10));
        let (stopped, now) = (Duration::from_secs(65), at(75));
        let later = |moment: Moment| now.min(moment + stopped);
        lifetime.handle_pause(stopped, later);
        assert_eq!(lifetime.silence(now), Duration::ZERO);
        assert_eq!(lifetime.told(), now);
        // Times of data that arrived meanwhile are not shifted.
        lifetime.handle_pause(stopped, later);
        assert_eq!(lifetime.told(), now);
    }

    #[test]
    fn a_complete_goodbye_before_the_end_of_the_work_is_a_failure() {
        let mut lifetime = Lifetime::new(Duration::ZERO);
        lifetime.handle_goodbye(&Farewell::Complete);
        assert!(matches!(lifetime.farewell(), Farewell::Broken(_)));
        let mut lifetime = Lifetime::new(Duration::ZERO);
        lifetime.finish(Totals::default());
        lifetime.handle_goodbye(&Farewell::Cancelled);
        assert_eq!(lifetime.farewell(), Farewell::Complete);
    }
}
