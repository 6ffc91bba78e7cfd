//! Detects stalled streams. The kernel retransmits after ever longer times (16 s and more after an
//! outage of a minute), so a new connection is faster. Without selective acknowledgements only one
//! lost segment is retransmitted per round trip; a new connection is faster than hundreds of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::tcp_info::TcpInfo;
use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::dial::Dialer;
use super::{Slot, StreamSet, Streams};
use crate::session::Shared;

/// Time and number of round trips without movement on any stream after which the path may be cut.
/// The other end sends a message four times a second.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_ROUND_TRIPS: u32 = 4;

/// Interval of new connection attempts while no data move. Each attempt begins with a new packet,
/// independently of the timers of other streams.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Time limit of an attempt, in addition to the round trips that joining takes.
const TRY_SPAN: Duration = Duration::from_secs(2);
const TRY_ROUND_TRIPS: u32 = 5;

/// Number of consecutive timeouts that show that a stream waits for a retransmission, rather than
/// for the other end's window or for data.
const TIMEOUTS: u8 = 2;

/// Number of probes of the other end's closed window that may be unanswered yet.
const PROBES: u8 = 2;

/// Time after which a stream counts as stalled while others move.
const STILL: Duration = Duration::from_secs(2);

/// Time and number of round trips for which a stream retransmits lost segments one by one until it
/// is replaced. It may have many more to retransmit.
const MENDING: Duration = Duration::from_secs(1);
const MENDING_ROUND_TRIPS: u32 = 10;

/// Divisor for the maximum number of streams replaced at a time (at least one). No more are
/// replaced until the new ones have joined: the others continue, and new ones need round trips to
/// grow.
const REPLACED_PART: usize = 4;

/// Factor for the waiting time after which streams that did not join are no longer expected.
const REPLACED_PATIENCE: u32 = 10;

/// Number of round trips of retransmissions after which a stream has more to retransmit.
const MENDS_MANY_ROUND_TRIPS: u32 = 2;

/// Times of the measures against streams on which no data move.
pub(super) struct Stalls {
    /// Time since when no data move on any stream.
    quiet_since: Moment,
    /// Time of the last connection attempt because of that.
    tried: Moment,
    /// Time of the last replacement of streams that retransmit too slowly, and the number of
    /// streams then.
    replaced: (Moment, usize),
}

impl Default for Stalls {
    fn default() -> Stalls {
        Stalls {
            quiet_since: Moment(0),
            tried: Moment(0),
            replaced: (Moment(0), 0),
        }
    }
}

impl Stalls {
    /// Returns the time since when no data move on any stream.
    pub fn quiet_since(&self) -> Moment {
        self.quiet_since
    }

    /// Counts the time without movement from now on.
    pub fn note_moved(&mut self, now: Moment) {
        self.quiet_since = now;
    }
}

/// State of a stream at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    /// Time when bytes were last acknowledged or received.
    pub moved: Moment,
    /// Time when bytes were last acknowledged.
    pub acked: Moment,
    /// True if the kernel may find a smaller packet size by itself.
    pub probes: bool,
    /// Number of consecutive timeouts.
    pub timeouts: u8,
    /// Time since when the lost segments of one loss are retransmitted one by one.
    pub mends: Option<Moment>,
    /// Smoothed round trip.
    pub rtt: Duration,
}

/// Action for a set of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No action.
    Fine,
    /// No stream moves.
    Quiet,
    /// Some streams move, these do not. The values are indices in the list.
    Still(Vec<usize>),
}

/// Returns the time without movement after which a path may be cut.
fn quiet_span(rtt: Duration) -> Duration {
    QUIET.max(rtt.saturating_mul(QUIET_ROUND_TRIPS))
}

/// Judges all streams with kernel data. `silent` is true if there are streams without them. `since`
/// is the time when the session began or last had a stream.
pub(super) fn judge(pulses: &[Pulse], silent: bool, since: Moment, now: Moment) -> Verdict {
    if pulses.is_empty() && silent {
        // All streams are channels of other processes: their paths cannot be observed, and each new
        // channel is another process that logs in.
        return Verdict::Fine;
    }
    let moved = pulses.iter().map(|pulse| pulse.moved).max();
    let rtt = pulses.iter().map(|pulse| pulse.rtt).min();
    if now - moved.unwrap_or(since) > quiet_span(rtt.unwrap_or_default()) {
        return Verdict::Quiet;
    }
    let is_still = |pulse: &Pulse| {
        let patience = STILL.max(pulse.rtt.saturating_mul(QUIET_ROUND_TRIPS));
        // Received data do not show that sent data arrive.
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

/// Returns the indices of streams to replace because they retransmit too slowly, slowest first,
/// never all of them. Some of `there` streams were last replaced at `before`.
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

/// True if lost segments are retransmitted one by one. When all have arrived, the kernel leaves
/// that state only with the next acknowledgement.
fn mends_now(info: &TcpInfo) -> bool {
    info.mends_singly && info.unacknowledged_segments > 0
}

/// Returns the start of the current loss and the acknowledged byte count that ends it, for a stream
/// that retransmits. An observation may miss the end of one loss before the next begins.
fn mending(
    known: Option<(Moment, u64)>,
    (acknowledged, under_way): (u64, u64),
    now: Moment,
) -> (Moment, u64) {
    let same = known.filter(|(_, until)| acknowledged < *until);
    same.unwrap_or((now, acknowledged.saturating_add(under_way)))
}

impl Streams<'_> {
    /// Closes streams that stand still while others move, and opens a new stream if no stream
    /// moves. Called by the timer.
    pub(in crate::session) fn watch_streams(&self) {
        self.end_if_no_data_pass();
        let handles = self.transfer.measurements().handles();
        let infos: Vec<_> = handles
            .iter()
            .map(|(id, handle)| (*id, handle.tcp_info()))
            .collect();
        let now = self.transfer.now();
        let mut shared = self.transfer.lock();
        if shared.lifetime.is_ending() || self.transfer.settings.local {
            return;
        }
        let mut pulses = Vec::new();
        for (id, info) in infos {
            match (shared.streams.slots.get_mut(&id), info) {
                (Some(slot), Some(info)) => pulses.push((id, slot.pulse(&info, now))),
                (Some(slot), None) => slot.note_taken(now),
                (None, _) => {}
            }
        }
        let silent = shared.streams.slots.len() > pulses.len();
        let known: Vec<Pulse> = pulses.iter().map(|(_, pulse)| *pulse).collect();
        match judge(&known, silent, shared.streams.stalls.quiet_since(), now) {
            Verdict::Fine => {
                shared.streams.stalls.note_moved(now);
                let slow = slow_menders(&known, shared.streams.stalls.replaced, now);
                if !slow.is_empty() {
                    shared.streams.stalls.replaced = (now, known.len());
                }
                for place in slow {
                    shared.abort(pulses[place].0);
                }
            }
            Verdict::Still(places) => {
                shared.streams.stalls.note_moved(now);
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

    /// Closes streams on which nothing moves although the other end has room for more; the dialer
    /// replaces them. A slow stream still moves: the kernel reports acknowledged bytes, or a
    /// channel takes bytes, long before a block is complete.
    pub(crate) fn end_stalled(&self, shared: &Shared) {
        let now = self.transfer.now();
        let Some(sender) = shared.machine.sender() else {
            return;
        };
        if self.transfer.settings.local {
            // Within a host no path can fail, and the stream would not be replaced.
            return;
        }
        for (id, slot) in &shared.streams.slots {
            let moved = slot.moved.1;
            let waits = sender.streams().waits_since(*id);
            if waits.is_some_and(|since| now - since.max(moved) > self.transfer.settings.silence) {
                slot.shutdown();
            }
        }
    }

    /// Finds data that were lost on a stream in clear, where an attacker can drop bytes. The
    /// receiver closes a stream that stopped in the middle of a block, because the sender does not
    /// close streams that wait for room at the receiver. The sender sends blocks again that were
    /// lost completely.
    pub(crate) fn find_lost(&self, shared: &mut Shared) {
        if !self.transfer.settings.is_clear() || !shared.lifetime.is_active() {
            return;
        }
        let (now, silence) = (self.transfer.now(), self.transfer.settings.silence);
        if let Some(sender) = shared.machine.sender_mut() {
            sender.handle_stillness(silence, now);
        } else {
            let streams = shared.streams.slots.values();
            for slot in streams.filter(|slot| slot.is_stuck_midway(silence, now)) {
                slot.shutdown();
            }
        }
    }

    /// Dials one stream in addition to stalled ones, if this end dials.
    fn try_anew(&self, shared: &mut Shared, rtt: Duration, now: Moment) {
        if now < shared.streams.stalls.tried + TRY_EVERY {
            return;
        }
        let Some(dialer) = shared.streams.dialing.dialer() else {
            return;
        };
        shared.streams.stalls.tried = now;
        let patience = TRY_SPAN + rtt.saturating_mul(TRY_ROUND_TRIPS);
        let transfer = Arc::clone(self.transfer);
        // Without a thread the next try comes in a second.
        let _ = std::thread::Builder::new()
            .name("dial anew".into())
            .spawn(move || transfer.streams().replace_all(&dialer, patience, now));
    }

    /// Dials a stream and, once it joined, closes those that still stand still.
    fn replace_all(&self, dialer: &Dialer, patience: Duration, began: Moment) {
        let id = self.next_stream();
        if !self.dial_one(dialer, id, patience) {
            return;
        }
        let mut shared = self.transfer.lock();
        let streams = shared.streams.slots.iter();
        let is_still = |slot: &Slot| slot.moved.1 < began && slot.handle().tcp_info().is_some();
        let probes = |slot: &Slot| slot.may_probe(self.transfer.now());
        let dead = streams.filter(|(known, slot)| **known != id && is_still(slot) && !probes(slot));
        let dead: Vec<_> = dead.map(|(id, _)| *id).collect();
        for id in dead {
            shared.abort(id);
        }
    }
}

impl StreamSet {
    /// Shifts times after a pause of this process, in which no data could move.
    pub(crate) fn handle_pause(&mut self, later: impl Fn(Moment) -> Moment) {
        self.stalls.quiet_since = later(self.stalls.quiet_since);
        self.passage.pause(&later);
        for slot in self.slots.values_mut() {
            slot.moved.1 = later(slot.moved.1);
            slot.acked.1 = later(slot.acked.1);
        }
    }

    /// True if new connections are being tried because no data move.
    pub(crate) fn tries_anew(&self, now: Moment) -> bool {
        let tried = self.stalls.tried;
        self.dials() && tried > Moment(0) && now - tried <= 2 * TRY_EVERY
    }
}

impl Shared {
    /// Ends a stream without waiting until its kernel has sent its data.
    fn abort(&mut self, id: StreamId) {
        // A receiver would lose data that it has not read, and they would be sent again.
        if let Some(slot) = self.streams.slots.get(&id) {
            if self.machine.is_sending() {
                slot.handle().abort();
            } else {
                slot.handle().shutdown();
            }
        }
    }

    /// Decides for each stream that seems to delay the others if its path is the cause, rather than
    /// the other end or the threads of this end.
    pub(crate) fn judge_suspects(&mut self, now: Moment) {
        let Some(sender) = self.machine.sender_mut() else {
            return;
        };
        while let Some(suspect) = sender.poll_suspect(now) {
            let slots = &self.streams.slots;
            let slot = slots.get(&suspect);
            let guilty = slot.is_some_and(|slot| {
                slot.waits_for_path(now) && !(slot.lost_nothing() && share_a_queue(slots))
            });
            sender.streams_mut().handle_judged(suspect, guilty, now);
        }
    }
}

/// True if all streams have a long queue: data on another stream would wait in it as well.
fn share_a_queue(streams: &BTreeMap<StreamId, Slot>) -> bool {
    let mut infos = streams.values().filter_map(|slot| slot.handle().tcp_info());
    infos.all(|info| info.is_queued())
}

impl Slot {
    /// True if it has no lost segments to send again, as far as the kernel reports.
    fn lost_nothing(&self) -> bool {
        let info = self.handle().tcp_info();
        info.is_some_and(|info| !info.mends())
    }

    /// True if data on it wait for its path, according to the kernel. A channel of another process
    /// has no kernel data; the bootstrap channel always counts as slow.
    fn waits_for_path(&self, now: Moment) -> bool {
        let info = self.handle().tcp_info();
        info.map_or(self.is_bootstrap(), |info| {
            info.waits_for_path() || self.mends_many(&info, now)
        })
    }

    /// True if it retransmits many lost segments, each in a round trip of its own: another stream
    /// is faster.
    pub(super) fn mends_many(&self, info: &TcpInfo, now: Moment) -> bool {
        let patience = info.rtt.saturating_mul(MENDS_MANY_ROUND_TRIPS);
        mends_now(info) && self.mends.is_some_and(|(since, _)| now - since > patience)
    }

    /// True if its sent data are not being acknowledged.
    pub(super) fn stands_still(&self, now: Moment) -> bool {
        self.handle().tcp_info().is_some_and(|info| {
            info.unacknowledged_segments > 0 && now - self.moved.1 > quiet_span(info.rtt)
        })
    }

    /// Records if the channel took bytes, for a stream without kernel data.
    fn note_taken(&mut self, now: Moment) {
        let taken = self.handle().bytes_taken().0;
        if taken != self.moved.0 {
            self.moved = (taken, now);
        }
    }

    /// Records if bytes moved since the last call, and if lost segments are retransmitted one by
    /// one.
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
            // A live peer answers probes of its closed window.
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
        // The third one waits for the other end's window, or has no data to send.
        assert_eq!(
            judge(&pulses, false, at(0), at(10_000)),
            Verdict::Still(vec![1])
        );
        assert_eq!(judge(&pulses, false, at(0), at(9_000)), Verdict::Fine);
    }

    #[test]
    fn data_of_the_other_end_do_not_keep_a_stalled_stream() {
        let heard = Pulse {
            moved: at(9_900),
            ..pulse(7_000, 3)
        };
        let still = Verdict::Still(vec![0]);
        assert_eq!(judge(&[heard], false, at(0), at(10_000)), still);
        // The kernel first tries smaller packets.
        let probing = Pulse {
            probes: true,
            ..heard
        };
        assert_eq!(judge(&[probing], false, at(0), at(10_000)), Verdict::Fine);
    }

    #[test]
    fn silence_on_all_streams_is_a_cut() {
        let pulses = [pulse(5_000, 1), pulse(5_100, 2)];
        assert_eq!(judge(&pulses, false, at(0), at(6_000)), Verdict::Fine);
        assert_eq!(judge(&pulses, false, at(0), at(6_200)), Verdict::Quiet);
        assert_eq!(judge(&[], false, at(0), at(1_500)), Verdict::Quiet);
        assert_eq!(judge(&[], false, at(1_000), at(1_500)), Verdict::Fine);
    }

    #[test]
    fn a_long_path_gets_more_time() {
        let long = Pulse {
            rtt: Duration::from_millis(800),
            ..pulse(0, 5)
        };
        assert_eq!(judge(&[long], false, at(0), at(3_000)), Verdict::Fine);
        assert_eq!(judge(&[long], false, at(0), at(3_300)), Verdict::Quiet);
    }

    #[test]
    fn losses_after_the_repaired_window_are_a_new_loss() {
        let first = mending(None, (1000, 500), at(100));
        assert_eq!(first, (at(100), 1500));
        assert_eq!(mending(Some(first), (1499, 900), at(900)), first);
        assert_eq!(mending(Some(first), (1500, 900), at(900)), (at(900), 2400));
    }

    #[test]
    fn few_streams_with_single_repairs_are_replaced_at_a_time() {
        let mends = |since: u64| Pulse {
            mends: Some(at(since)),
            ..pulse(9_900, 0)
        };
        let never = (at(0), 0);
        let pulses = [7, 3, 5, 9, 8, 6, 4, 7].map(|second| mends(second * 1000));
        let none = [0; 0];
        assert_eq!(slow_menders(&pulses, never, at(10_000)), [1, 6]);
        // Streams whose loss just began are assumed to have few segments to retransmit.
        assert_eq!(slow_menders(&pulses[3..5], never, at(9_900)), [1]);
        assert_eq!(slow_menders(&pulses[3..4], never, at(20_000)), none);
        assert_eq!(slow_menders(&pulses, (at(9_500), 8), at(10_000)), none);
        // No more are replaced before the new streams have joined, or are overdue.
        assert_eq!(slow_menders(&pulses, (at(8_500), 10), at(10_000)), none);
        assert_eq!(slow_menders(&pulses, (at(8_500), 10), at(18_600)).len(), 2);
        assert_eq!(slow_menders(&[pulse(9_900, 0); 4], never, at(10_000)), none);
        assert_eq!(slow_menders(&[], never, at(10_000)), none);
    }

    #[test]
    fn channels_without_statistics_are_not_replaced_for_their_silence() {
        assert_eq!(judge(&[], true, at(0), at(60_000)), Verdict::Fine);
        // Stalled streams beside such channels are replaced.
        let pulses = [pulse(5_000, 1)];
        assert_eq!(judge(&pulses, true, at(0), at(60_000)), Verdict::Quiet);
    }
}
