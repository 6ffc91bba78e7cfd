//! Streams that stand still. The kernel waits ever longer before it tries a
//! lost segment again (after a minute's cut, 16 s and more): a new connection
//! is faster than its timer. And without selective acknowledgements one of those
//! that were lost comes in a round trip: a new connection is faster than hundreds.

use std::sync::Arc;
use std::time::Duration;

use longhaul_net::tcp_info::TcpInfo;
use longhaul_units::Moment;

use super::dial::Dialer;
use super::{Machine, Shared, Transfer};

/// Nothing moved on any stream for so long, and this many round trips: the path may be cut. The
/// other end says something four times a second.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_ROUND_TRIPS: u32 = 4;

/// While nothing moves, a new connection is tried that often: each begins with a packet of its
/// own, whatever the others' timers do.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Beyond the round trips that it takes to join, each try is given this.
const TRY_SPAN: Duration = Duration::from_secs(2);
const TRY_ROUND_TRIPS: u32 = 5;

/// A stream whose timer ran out that often in a row waits for it, and not for the other end's
/// window or for data.
const TIMEOUTS: u8 = 2;

/// This many probes of the other end's closed window may be on their way to an answer.
const PROBES: u8 = 2;

/// A stream that stands still while others move is given so long.
const STILL: Duration = Duration::from_secs(2);

/// A stream that has sent lost segments again one by one for so long, and this many round trips,
/// may have many more to send.
const MENDING: Duration = Duration::from_secs(1);
const MENDING_ROUND_TRIPS: u32 = 10;

/// Of all streams this part, or one, is replaced at most in that time, and no more before as
/// many are there again: the others carry on, and new ones need round trips to grow.
const REPLACED_PART: usize = 4;

/// Where those do not come in this many times that time, there are fewer from then on.
const REPLACED_PATIENCE: u32 = 10;

/// A stream that has sent lost segments again for this many round trips has more of them.
const MENDS_MANY_ROUND_TRIPS: u32 = 2;

/// What is known of a stream at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    /// When bytes were last acknowledged or received.
    pub moved: Moment,
    /// When bytes were last acknowledged.
    pub acked: Moment,
    /// The kernel may find smaller packets by itself.
    pub probes: bool,
    /// Timeouts in a row.
    pub timeouts: u8,
    /// Since when the lost segments of one loss are sent again one by one.
    pub mends: Option<Moment>,
    /// Round trip.
    pub rtt: Duration,
}

/// What to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// Nothing moves at all.
    Quiet,
    /// Others move, these do not: their places in the list.
    Still(Vec<usize>),
}

/// After how long without anything that moves a path may be cut.
fn quiet_span(rtt: Duration) -> Duration {
    QUIET.max(rtt.saturating_mul(QUIET_ROUND_TRIPS))
}

/// Looks at all streams of which the kernel tells; `silent` says that there are
/// others. `since` is when the session began or last had one.
pub(super) fn judge(pulses: &[Pulse], silent: bool, since: Moment, now: Moment) -> Verdict {
    if pulses.is_empty() && silent {
        // Channels of other processes alone: no kernel tells of their paths,
        // and each that is dialed is another process that logs in.
        return Verdict::Fine;
    }
    let moved = pulses.iter().map(|pulse| pulse.moved).max();
    let rtt = pulses.iter().map(|pulse| pulse.rtt).min();
    if now - moved.unwrap_or(since) > quiet_span(rtt.unwrap_or_default()) {
        return Verdict::Quiet;
    }
    let is_still = |pulse: &Pulse| {
        let patience = STILL.max(pulse.rtt.saturating_mul(QUIET_ROUND_TRIPS));
        // What comes from the other end does not show that anything arrives there.
        pulse.timeouts >= TIMEOUTS && !pulse.probes && now - pulse.acked > patience
    };
    let still: Vec<usize> = (0..pulses.len())
        .filter(|&at| is_still(&pulses[at]))
        .collect();
    if still.is_empty() {
        Verdict::Fine
    } else {
        Verdict::Still(still)
    }
}

/// Streams that are worth replacing because they fix too slowly, the slowest first, where some of
/// `there` were replaced at `before`: their places in the list. Never all of them.
pub(super) fn slow_menders(
    pulses: &[Pulse],
    (before, there): (Moment, usize),
    now: Moment,
) -> Vec<usize> {
    let long = |rtt: Duration| MENDING.max(rtt.saturating_mul(MENDING_ROUND_TRIPS));
    let rtt = pulses.iter().map(|pulse| pulse.rtt).max();
    let span = long(rtt.unwrap_or_default());
    let patience = if pulses.len() < there {
        span.saturating_mul(REPLACED_PATIENCE)
    } else {
        span
    };
    if now - before < patience {
        return Vec::new();
    }
    let mut slow: Vec<(Moment, usize)> = pulses
        .iter()
        .enumerate()
        .filter_map(|(at, pulse)| Some((pulse.mends?, at)))
        .filter(|(since, at)| now - *since > long(pulses[*at].rtt))
        .collect();
    slow.sort_unstable();
    let most = (pulses.len() / REPLACED_PART).max(1);
    let most = most.min(pulses.len().saturating_sub(1));
    slow.into_iter().take(most).map(|(_, at)| at).collect()
}

/// Whether lost segments are sent again one by one: when all are there, the kernel leaves that
/// state only with the next acknowledgement.
fn mends_now(info: &TcpInfo) -> bool {
    info.mends_singly && info.unacknowledged_segments > 0
}

/// Since when what was lost is sent again, and until how much is acknowledged, of a stream that
/// does so now: a look may miss that one loss was corrected before the next came.
fn mending(
    known: Option<(Moment, u64)>,
    (acknowledged, under_way): (u64, u64),
    now: Moment,
) -> (Moment, u64) {
    let same = known.filter(|(_, until)| acknowledged < *until);
    same.unwrap_or((now, acknowledged.saturating_add(under_way)))
}

impl Transfer {
    /// Called by the timer: gives up streams that stand still while others
    /// move, and where nothing moves dials anew.
    pub(super) fn watch_streams(self: &Arc<Transfer>) {
        self.end_if_no_data_pass();
        let handles = self.handles();
        let infos: Vec<_> = handles
            .iter()
            .map(|(id, handle)| (*id, handle.tcp_info()))
            .collect();
        let now = self.now();
        let mut shared = self.lock();
        if shared.is_over() || shared.finished.is_some() || self.settings.local {
            return;
        }
        let mut pulses = Vec::new();
        for (id, info) in infos {
            match (shared.streams.get_mut(&id), info) {
                (Some(slot), Some(info)) => pulses.push((id, slot.pulse(&info, now))),
                (Some(slot), None) => slot.note_taken(now),
                (None, _) => {}
            }
        }
        let silent = shared.streams.len() > pulses.len();
        let known: Vec<Pulse> = pulses.iter().map(|(_, pulse)| *pulse).collect();
        match judge(&known, silent, shared.quiet_since, now) {
            Verdict::Fine => {
                shared.quiet_since = now;
                let slow = slow_menders(&known, shared.replaced, now);
                if !slow.is_empty() {
                    shared.replaced = (now, known.len());
                }
                for place in slow {
                    shared.abort(pulses[place].0);
                }
            }
            Verdict::Still(places) => {
                shared.quiet_since = now;
                for place in places {
                    shared.abort(pulses[place].0);
                }
            }
            Verdict::Quiet => {
                let rtt = known
                    .iter()
                    .map(|pulse| pulse.rtt)
                    .max()
                    .unwrap_or_default();
                self.try_anew(&mut shared, rtt, now);
            }
        }
    }

    /// Dials one stream beside those that stand still, if this end dials.
    fn try_anew(self: &Arc<Transfer>, shared: &mut Shared, rtt: Duration, now: Moment) {
        if now < shared.tried + TRY_EVERY {
            return;
        }
        let Some(dialer) = shared.dialer.clone() else {
            return;
        };
        shared.tried = now;
        let patience = TRY_SPAN + rtt.saturating_mul(TRY_ROUND_TRIPS);
        let transfer = Arc::clone(self);
        // Without a thread the next try comes in a second.
        let _ = std::thread::Builder::new()
            .name("dial anew".into())
            .spawn(move || transfer.replace_all(&dialer, patience, now));
    }

    /// A stream that joins replaces those that still stand still.
    fn replace_all(self: &Arc<Transfer>, dialer: &Dialer, patience: Duration, began: Moment) {
        let id = self.next_stream();
        if !self.dial_one(dialer, id, patience) {
            return;
        }
        let mut shared = self.lock();
        let streams = shared.streams.iter();
        let is_still =
            |slot: &super::Slot| slot.moved.1 < began && slot.handle().tcp_info().is_some();
        let probes = |slot: &super::Slot| slot.may_probe(self.now());
        let dead = streams.filter(|(known, slot)| **known != id && is_still(slot) && !probes(slot));
        let dead: Vec<_> = dead.map(|(id, _)| *id).collect();
        for id in dead {
            shared.abort(id);
        }
    }
}

impl Shared {
    /// This process did not run for a time, in which nothing could move: moments are later.
    pub(super) fn pause_streams(&mut self, later: impl Fn(Moment) -> Moment) {
        self.passage.pause(&later);
        for slot in self.streams.values_mut() {
            slot.moved.1 = later(slot.moved.1);
            slot.acked.1 = later(slot.acked.1);
        }
    }

    /// Whether new connections are tried because nothing moves.
    pub(super) fn tries_anew(&self, now: Moment) -> bool {
        self.dialer.is_some() && self.tried > Moment(0) && now - self.tried <= 2 * TRY_EVERY
    }

    /// Ends a stream without waiting for what its kernel still holds.
    fn abort(&mut self, id: longhaul_proto::session::StreamId) {
        // What a receiver has not read would be lost, and come again.
        if let Some(slot) = self.streams.get(&id) {
            match self.machine {
                Machine::Sending(_) => slot.handle().abort(),
                Machine::Receiving(_) => slot.handle().shutdown(),
            }
        }
    }
}

impl super::streams::Slot {
    /// Whether it sends many lost segments again, each in a round trip of its own: another
    /// stream overtakes that.
    pub(super) fn mends_many(&self, info: &TcpInfo, now: Moment) -> bool {
        let patience = info.rtt.saturating_mul(MENDS_MANY_ROUND_TRIPS);
        mends_now(info) && self.mends.is_some_and(|(since, _)| now - since > patience)
    }

    /// Whether nothing that was sent on it comes to be acknowledged.
    pub(super) fn stands_still(&self, now: Moment) -> bool {
        self.handle().tcp_info().is_some_and(|info| {
            info.unacknowledged_segments > 0 && now - self.moved.1 > quiet_span(info.rtt)
        })
    }

    /// Where no kernel tells what arrives: notes whether the channel took bytes.
    fn note_taken(&mut self, now: Moment) {
        let taken = self.handle().bytes_taken().0;
        if taken != self.moved.0 {
            self.moved = (taken, now);
        }
    }

    /// Notes whether bytes moved since the last look, and whether lost ones come singly.
    fn pulse(&mut self, info: &TcpInfo, now: Moment) -> Pulse {
        let acknowledged = info.acknowledged.unwrap_or_default().0;
        if acknowledged != self.acked.0 {
            self.acked = (acknowledged, now);
        }
        self.received = info.received.unwrap_or_default().0;
        self.stuck = info.unacknowledged_segments > 0 && info.timeouts >= TIMEOUTS;
        let bytes = acknowledged + self.received;
        if bytes != self.moved.0 {
            self.moved = (bytes, now);
        }
        let under_way = u64::from(info.unacknowledged_segments) * info.send_segment.0;
        let mends = mends_now(info).then(|| mending(self.mends, (acknowledged, under_way), now));
        self.mends = mends;
        Pulse {
            moved: self.moved.1,
            acked: self.acked.1,
            probes: self.may_probe(now),
            // A peer that lives answers probes of its closed window.
            timeouts: info.timeouts.max(info.probes.saturating_sub(PROBES)),
            mends: self.mends.map(|(since, _)| since),
            rtt: info.rtt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment(milliseconds * 1_000_000)
    }

    fn pulse(moved: u64, timeouts: u8) -> Pulse {
        Pulse {
            moved: at(moved),
            acked: at(moved),
            probes: false,
            timeouts,
            mends: None,
            rtt: Duration::from_millis(100),
        }
    }

    #[test]
    fn a_stream_that_waits_for_its_timer_is_given_up_while_others_move() {
        let pulses = [pulse(9_900, 0), pulse(7_000, 3), pulse(7_000, 0)];
        // The third waits for the other end's window, or has nothing to send.
        assert_eq!(
            judge(&pulses, false, at(0), at(10_000)),
            Verdict::Still(vec![1])
        );
        assert_eq!(judge(&pulses, false, at(0), at(9_000)), Verdict::Fine);
    }

    #[test]
    fn what_the_other_end_sends_does_not_keep_a_stream_that_stands_still() {
        let heard = Pulse {
            moved: at(9_900),
            ..pulse(7_000, 3)
        };
        let still = Verdict::Still(vec![0]);
        assert_eq!(judge(&[heard], false, at(0), at(10_000)), still);
        // Its kernel tries smaller packets first.
        let probing = Pulse {
            probes: true,
            ..heard
        };
        assert_eq!(judge(&[probing], false, at(0), at(10_000)), Verdict::Fine);
    }

    #[test]
    fn silence_everywhere_is_a_cut() {
        let pulses = [pulse(5_000, 1), pulse(5_100, 2)];
        assert_eq!(judge(&pulses, false, at(0), at(6_000)), Verdict::Fine);
        assert_eq!(judge(&pulses, false, at(0), at(6_200)), Verdict::Quiet);
        assert_eq!(judge(&[], false, at(0), at(1_500)), Verdict::Quiet);
        assert_eq!(judge(&[], false, at(1_000), at(1_500)), Verdict::Fine);
    }

    #[test]
    fn a_long_path_is_given_longer() {
        let long = Pulse {
            rtt: Duration::from_millis(800),
            ..pulse(0, 5)
        };
        assert_eq!(judge(&[long], false, at(0), at(3_000)), Verdict::Fine);
        assert_eq!(judge(&[long], false, at(0), at(3_300)), Verdict::Quiet);
    }

    #[test]
    fn what_is_lost_after_what_was_under_way_is_another_loss() {
        let first = mending(None, (1000, 500), at(100));
        assert_eq!(first, (at(100), 1500));
        assert_eq!(mending(Some(first), (1499, 900), at(900)), first);
        assert_eq!(mending(Some(first), (1500, 900), at(900)), (at(900), 2400));
    }

    #[test]
    fn of_streams_that_mend_singly_a_few_at_a_time_are_replaced() {
        let mends = |since: u64| Pulse {
            mends: Some(at(since)),
            ..pulse(9_900, 0)
        };
        let never = (at(0), 0);
        let pulses = [7, 3, 5, 9, 8, 6, 4, 7].map(|second| mends(second * 1000));
        let none = [0; 0];
        assert_eq!(slow_menders(&pulses, never, at(10_000)), [1, 6]);
        // Those that just began to mend have few to send, as far as is known.
        assert_eq!(slow_menders(&pulses[3..5], never, at(9_900)), [1]);
        assert_eq!(slow_menders(&pulses[3..4], never, at(20_000)), none);
        assert_eq!(slow_menders(&pulses, (at(9_500), 8), at(10_000)), none);
        // Not before those that were replaced are there again, or will not come.
        assert_eq!(slow_menders(&pulses, (at(8_500), 10), at(10_000)), none);
        assert_eq!(slow_menders(&pulses, (at(8_500), 10), at(18_600)).len(), 2);
        assert_eq!(slow_menders(&[pulse(9_900, 0); 4], never, at(10_000)), none);
        assert_eq!(slow_menders(&[], never, at(10_000)), none);
    }

    #[test]
    fn channels_that_tell_nothing_are_not_dialed_again_for_their_silence() {
        assert_eq!(judge(&[], true, at(0), at(60_000)), Verdict::Fine);
        // Streams beside them that stand still are.
        let pulses = [pulse(5_000, 1)];
        assert_eq!(judge(&pulses, true, at(0), at(60_000)), Verdict::Quiet);
    }
}
