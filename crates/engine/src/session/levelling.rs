//! Keeps the streams of one transfer level, and their slow start from flooding
//! the path.
//!
//! Streams that begin together double together, and when the path is full they
//! send twice what it carries before any of them hears of it: most lose, one
//! does not, and for a minute one stream carries three quarters of everything.
//! The sending end sees earlier that the path fills: round trips grow. From then
//! on all together may send what it was seen to carry and somewhat more, the less
//! the longer the queue is, until that does not grow any more. Afterwards a stream
//! may have somewhat more than its share, and those that have less are given room
//! to grow by taking from the largest. Where no queue stands there is no bound: what
//! one stream does not carry another may. Only for some round trips after one stood,
//! and before anything was lost, it stays: windows are as large as the slow start left
//! them, and would overrun the queue at once.
//!
//! CUBIC's slow start ends by itself, and of several streams each at another window: HyStart takes
//! the train of acknowledgements that they make together for a full path, in one stream at 116
//! segments and in another at 2,000. So [`Levellers::begin`] says until when streams should have a
//! slow start that continues, Reno's: from the first sign of a queue they have their own, with
//! equal windows, before those are twice what the path takes.
//!
//! Where something was lost and the path is known, a stream that has lost nothing yet, as one
//! that is added, is given what the others leave of it, or a share: on its own it would
//! double until the queue overflows, and halve the others' windows with it. As long as there
//! are such streams they fill what losses take from the others.
//!
//! Streams that find the path's rate by themselves, as BBR's do, are filled in the same way;
//! afterwards they are coupled to one ([`coupled`]).
//!
//! Each path is levelled by itself: another one has another round trip, another
//! queue and another share.
//!
//! The bound is a pace of sockets (`SO_MAX_PACING_RATE`). The congestion control
//! stays in charge: nobody sends more than it allows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::paths::Ends;
use coupled::{Carried, Coupled};
use recent_rtt::RecentRtt;

mod coupled;
mod recent_rtt;

// tidy: long file because one bound is computed from several observations.

/// On shorter paths windows even out by themselves within moments.
const SHORTEST: Duration = Duration::from_millis(5);

/// A queue stands where round trips are longer than the path's by this part, or so much,
/// and what arrives in the time between is so much for each stream: an
/// acknowledgement that was held back is no queue.
const QUEUED_PART: f64 = 0.125;
const QUEUED_MOST: Duration = Duration::from_millis(16);
const QUEUED_BYTES: u64 = 6 << 10;

/// What all may send of what a path was seen to carry while it is being filled:
/// the most without a queue, once it with a queue of this part of the round trip,
/// the least with a longer one.
const APPROACH: (f64, f64) = (0.9, 1.3);
const QUEUE_AIMED_AT: f64 = 0.3;

/// It is full where what it carries has not grown by so much for some round trips.
const GROWS: f64 = 1.08;
const TRIED_ROUND_TRIPS: u32 = 3;

/// What a stream may send of its share afterwards: with a short queue more than a
/// window grows in a round trip once it has met loss, so that equal streams are not
/// bound; with one that is about to overflow, hardly more, so that it does so slowly
/// and few segments are lost. Between [`QUEUE_AIMED_AT`] and this part of the round
/// trip it goes from one to the other.
const LEVEL: (f64, f64) = (1.02, 1.15);
const LONG_QUEUE: f64 = 0.6;

/// But in a round trip always this many bytes more than its share: what it carries is measured
/// over four, and a window grows by a segment in each, whoever's the queue is.
const GROWTH: f64 = 24_576.0;

/// Windows that a slow start left are bound where no queue stands for this many round trips after
/// one did. A source that rests for longer is no reason to be slow.
const BOUND_ROUND_TRIPS: u32 = 10;

/// Unequal streams: all may send so much of what arrives, of which each
/// small one is left room for so much of what it sends now.
const TOGETHER: f64 = 1.02;
const ROOM: f64 = 1.5;

/// What the path was seen to carry is believed for so long: a rate that fell
/// because of the bound must not lower the bound. Of coupled streams it is for as long as nothing
/// speaks against it.
const BELIEVED: Duration = Duration::from_secs(20);

/// It is measured over so long and this many round trips: over less a rate goes up and down with
/// the windows, and the most of it is what is believed.
const MEASURED: Duration = Duration::from_millis(500);
const MEASURED_ROUND_TRIPS: u32 = 4;

/// What streams in their first slow start may fill it to, of what it carried at its peak:
/// with a long queue, and with none; more than [`GROWS`], so that a path that was not full
/// is found out.
const FILLING: (f64, f64) = (0.95, 1.15);

/// What is this many times less than a share is little: messages, or the rest of a file.
const LITTLE: f64 = 8.0;

/// A pace is changed by no less than this part.
const CHANGE: f64 = 0.03;

/// What the kernel reports about one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flow {
    /// Which.
    pub stream: StreamId,
    /// What arrived.
    pub delivered: Delivered,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// The least round trip.
    pub minimum_rtt: Duration,
    /// It has lost something since it began.
    pub lost: bool,
    /// Segments that were sent again since then, a count that begins anew after 2^32, and
    /// bytes of each.
    pub retransmitted: (u32, u64),
    /// It has more to send than its window lets it.
    pub waits: bool,
    /// Its window is below the threshold at which a slow start ends.
    pub in_slow_start: bool,
    /// There is no such threshold yet: it doubles until something is lost.
    pub first_slow_start: bool,
    /// Bytes per second at which its kernel lets segments go; `None` if it does not spread them.
    pub pacing: Option<f64>,
}

/// What arrived since a stream began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Delivered {
    /// Segments, a count that begins anew after 2^32, of this many bytes each.
    Segments(u32, u64),
    /// Where the kernel tells no more, bytes that are acknowledged: behind a gap much is at
    /// once when it is filled, as if the path had carried twice what it does.
    Acknowledged(u64),
}

impl Delivered {
    /// Bytes since then; of a stream that is new since it began.
    fn since(self, before: Option<Delivered>) -> u64 {
        match (self, before) {
            (Delivered::Segments(now, bytes), Some(Delivered::Segments(then, _))) => {
                bytes * u64::from(now.wrapping_sub(then))
            }
            (Delivered::Segments(now, bytes), _) => bytes * u64::from(now),
            (Delivered::Acknowledged(now), Some(Delivered::Acknowledged(then))) => {
                now.saturating_sub(then)
            }
            (Delivered::Acknowledged(now), _) => now,
        }
    }
}

/// What bounds streams, as their congestion control sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Governed {
    /// A window that grows until something is lost.
    #[default]
    ByWindow,
    /// A rate that is measured.
    ByRate,
}

/// What was seen at one moment.
#[derive(Clone, Debug)]
struct Look {
    at: Moment,
    flows: Vec<Flow>,
}

/// How far a path is known.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// It was not full yet.
    Free,
    /// It is being filled: the most that it carried so far, in bytes per second, and
    /// since when that is so.
    Tried(f64, Moment),
    /// It was filled.
    Level,
}

/// One for each path.
#[derive(Clone, Debug, Default)]
pub(super) struct Levellers(BTreeMap<Ends, Leveller>);

impl Levellers {
    /// Bytes per second that a stream on a path may send at most; none without bound.
    pub fn pace(&self, path: Ends, stream: StreamId) -> Option<u64> {
        self.0.get(&path)?.pace_of(stream)
    }

    /// The paths whose coupled streams may send more since this was asked last: they carried
    /// more than ever, or there are fewer.
    pub fn take_anew(&mut self) -> BTreeSet<Ends> {
        let take = |(path, leveller): (&Ends, &mut Leveller)| {
            std::mem::take(&mut leveller.anew).then_some(*path)
        };
        self.0.iter_mut().filter_map(take).collect()
    }

    /// Whether this path's streams are coupled, and bound.
    pub fn is_coupled(&self, path: Ends) -> bool {
        let leveller = self.0.get(&path);
        leveller.is_some_and(|known| known.coupled.is_some() && known.paces.each.is_some())
    }

    /// Whether streams are in the slow start that is to end for all at once: no queue
    /// was seen, nothing was lost, and all paths are watched.
    pub fn begin(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(Leveller::begins)
    }

    /// How long until the next look is worth taking.
    pub fn interval(&self) -> Duration {
        let intervals = self.0.values().map(Leveller::interval);
        let least = intervals.min();
        least.unwrap_or_else(|| Leveller::default().interval())
    }

    /// Takes what is seen now, `governed` telling of each path what bounds its streams; true
    /// where a pace changed.
    pub fn handle_look(
        &mut self,
        at: Moment,
        governed: &BTreeMap<Ends, Governed>,
        flows: Vec<(Ends, Flow)>,
    ) -> bool {
        let mut by_path: BTreeMap<Ends, Vec<Flow>> = BTreeMap::new();
        for (path, flow) in flows {
            by_path.entry(path).or_default().push(flow);
        }
        let bound = |leveller: &Leveller| leveller.paces != Paces::default();
        let left = self
            .0
            .iter()
            .any(|(path, leveller)| bound(leveller) && !by_path.contains_key(path));
        self.0.retain(|path, _| by_path.contains_key(path));
        let mut changed = left;
        for (path, flows) in by_path {
            let governed = governed.get(&path).copied().unwrap_or_default();
            let leveller = self.0.entry(path).or_default();
            changed |= leveller.handle_look(at, governed, flows);
        }
        changed
    }
}

/// Looks at a sending end's streams on one path, and says at which pace each may send.
#[derive(Clone, Debug)]
pub(super) struct Leveller {
    phase: Phase,
    looks: VecDeque<Look>,
    /// The least round trip that most streams had, smoothed: on a path whose delay
    /// wanders the least of single segments is far below what is usual.
    usual: Option<Duration>,
    /// The round trip of some seconds.
    recent_rtt: RecentRtt,
    /// When a queue last stood.
    queued: Moment,
    /// Streams lost something on it.
    lost: bool,
    /// The most that all carried, in bytes per second, and when.
    peak: (f64, Moment),
    /// Where its next measurement began.
    began: Option<Look>,
    paces: Paces,
    /// Streams in their first slow start.
    starting: BTreeSet<StreamId>,
    /// Where streams keep to a rate: how they do so together.
    coupled: Option<Coupled>,
    /// They may send more: they may begin anew to do so.
    anew: bool,
    /// When the last of those that are gone was.
    left: Option<Moment>,
    /// Looks since the last measurement, and those in which most streams had more to send.
    supplied: (u32, u32),
}

/// Bytes per second that a stream may send at most; none without bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Paces {
    /// Each.
    each: Option<u64>,
    /// Each in its first slow start, besides.
    starting: Option<u64>,
}

impl Default for Leveller {
    fn default() -> Leveller {
        Leveller {
            phase: Phase::Free,
            looks: VecDeque::new(),
            usual: None,
            recent_rtt: RecentRtt::default(),
            queued: Moment(0),
            lost: false,
            peak: (0.0, Moment(0)),
            began: None,
            paces: Paces::default(),
            starting: BTreeSet::new(),
            coupled: None,
            anew: false,
            left: None,
            supplied: (0, 0),
        }
    }
}

impl Leveller {
    /// Bytes per second that this stream may send at most; none without bound.
    fn pace_of(&self, stream: StreamId) -> Option<u64> {
        let starting = self
            .paces
            .starting
            .filter(|_| self.starting.contains(&stream));
        self.paces.each.into_iter().chain(starting).min()
    }

    /// How long until the next look is worth taking.
    pub fn interval(&self) -> Duration {
        const BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));
        let last = self.looks.back();
        let rtt = last.and_then(|look| least(&look.flows));
        rtt.map_or(BOUNDS.1, |rtt| (rtt / 4).clamp(BOUNDS.0, BOUNDS.1))
    }

    /// Whether its streams are in their slow start, as in [`Levellers::begin`].
    fn begins(&self) -> bool {
        let now = self.looks.back();
        let slow_starts = now.is_some_and(|look| look.flows.iter().all(|flow| flow.in_slow_start));
        slow_starts && !self.lost && self.phase == Phase::Free
    }

    /// Takes what is seen now; true where a stream's pace changed.
    pub fn handle_look(&mut self, at: Moment, governed: Governed, flows: Vec<Flow>) -> bool {
        let coupled = governed == Governed::ByRate;
        if coupled != self.coupled.is_some() {
            self.coupled = coupled.then(Coupled::default);
            // What was carried until now says nothing of it.
            (self.began, self.supplied) = (None, (0, 0));
        }
        let Some(rtt) = self.round_trip(at, &flows).filter(|rtt| *rtt >= SHORTEST) else {
            self.looks.clear();
            self.phase = Phase::Free;
            return self.set(Paces::default());
        };
        let others = self.take_look(at, rtt, flows);
        let standing = self.standing(rtt);
        let Some(rates) = self.rates(rtt) else {
            self.began = None;
            return others;
        };
        let queued = rates.fastest * standing.as_secs_f64()
            >= (QUEUED_BYTES * rates.streams.len() as u64) as f64;
        if queued {
            self.queued = at;
        }
        self.measure_peak(rtt);
        self.learn_phase(at, rtt, queued, &rates);
        let part = standing.as_secs_f64() / rtt.as_secs_f64();
        let bound = !self.lost && at - self.queued < rtt.saturating_mul(BOUND_ROUND_TRIPS);
        let grown = GROWTH / rtt.as_secs_f64();
        let fair = fair(&rates.streams, self.peak.0, part, grown);
        if self.coupled.is_some() && self.phase == Phase::Level {
            let each = self.coupled_pace(at, rtt, standing);
            let each = each.map(|pace| pace.max(grown) as u64);
            let starting = None;
            return self.set(Paces { each, starting }) || others;
        }
        let pace = match self.phase {
            Phase::Free => None,
            Phase::Tried(carried, _) => {
                Some(fill(&rates.streams, carried * by_queue(APPROACH, part)).max(grown))
            }
            Phase::Level if queued => Some(level(&rates.streams, fair)),
            Phase::Level if bound => {
                let carried = self.peak.0.max(rates.fastest);
                Some(fill(&rates.streams, carried * APPROACH.1))
            }
            Phase::Level => None,
        };
        let starting = self.lost && self.phase == Phase::Level && !self.starting.is_empty();
        let starting = starting.then(|| self.left_for_starting(&rates.streams, part, fair));
        let changed = self.set(Paces {
            each: pace.map(|pace| pace as u64),
            starting: starting.map(|pace| pace as u64),
        });
        changed || others
    }

    /// The path's round trip without a queue.
    fn round_trip(&mut self, at: Moment, flows: &[Flow]) -> Option<Duration> {
        let known = least(flows)?;
        if self.coupled.is_none() {
            self.recent_rtt = RecentRtt::default();
            return Some(known);
        }
        let seen = flows.iter().map(|flow| flow.rtt);
        self.recent_rtt.learn(at, seen.min().unwrap_or(known));
        Some(self.recent_rtt.round_trip(known))
    }

    /// Keeps what is seen; true where other streams are in their first slow start, which are
    /// bound.
    fn take_look(&mut self, at: Moment, rtt: Duration, flows: Vec<Flow>) -> bool {
        self.lost |= flows.iter().any(|flow| flow.lost);
        let starting = flows.iter().filter(|flow| flow.first_slow_start);
        let starting: BTreeSet<StreamId> = starting.map(|flow| flow.stream).collect();
        let waiting = flows.iter().filter(|flow| flow.waits).count();
        self.supplied.0 += 1;
        self.supplied.1 += u32::from(waiting * 2 >= flows.len());
        let others = self.paces.starting.is_some() && starting != self.starting;
        self.starting = starting;
        let last = self.looks.back().map_or(0, |last| last.flows.len());
        if flows.len() < last {
            self.left = Some(at);
        }
        let settled = |left: &mut Moment| at - *left >= rtt / 2;
        self.anew |= self.left.take_if(settled).is_some();
        self.looks.push_back(Look { at, flows });
        // The first look that is two round trips old stays, to compare with.
        let old = |look: &Look| at - look.at >= rtt.saturating_mul(2);
        while self.looks.get(1).is_some_and(old) {
            self.looks.pop_front();
        }
        others
    }

    /// How far the path is known now.
    fn learn_phase(&mut self, at: Moment, rtt: Duration, queued: bool, rates: &Rates) {
        self.phase = match self.phase {
            Phase::Free if queued => Phase::Tried(rates.fastest, at),
            Phase::Tried(carried, _) if rates.fastest >= carried * GROWS => {
                Phase::Tried(rates.fastest, at)
            }
            Phase::Tried(carried, since) if at - since >= rtt.saturating_mul(TRIED_ROUND_TRIPS) => {
                if carried > self.peak.0 {
                    self.peak = (carried, at);
                }
                Phase::Level
            }
            phase => phase,
        };
        if self.overflows(rtt) {
            self.phase = Phase::Level;
            self.peak = (self.peak.0.max(rates.streams.iter().sum()), at);
        }
    }

    /// What each coupled stream may send, in bytes per second; none without bound.
    fn coupled_pace(&mut self, at: Moment, rtt: Duration, standing: Duration) -> Option<f64> {
        let coupled = self.coupled.as_mut()?;
        let part = coupled.part(at, rtt, standing, &mut self.peak.0)?;
        let streams = self.looks.back().into_iter().flat_map(|look| &look.flows);
        let streams: Vec<StreamId> = streams.map(|flow| flow.stream).collect();
        Some(coupled.share(self.peak.0 * part, &streams))
    }

    /// Whether coupled streams that fill the path lose so much of what they send that it is
    /// full.
    fn overflows(&self, rtt: Duration) -> bool {
        let (Some(first), Some(now)) = (self.looks.front(), self.looks.back()) else {
            return false;
        };
        let filling = self.coupled.is_some() && self.phase != Phase::Level;
        filling && now.at - first.at >= rtt && {
            let arrived =
                between(first, now).iter().sum::<f64>() * (now.at - first.at).as_secs_f64();
            Coupled::is_flooded(lost_bytes(first, now), arrived)
        }
    }

    /// What each stream in its first slow start may send for all to fill the path, in bytes
    /// per second, `queue` being a part of the round trip, and no less than is `fair`. Those
    /// that have been there for two round trips and send little have no more to send.
    fn left_for_starting(&self, rates: &[f64], queue: f64, fair: f64) -> f64 {
        let (Some(first), Some(now)) = (self.looks.front(), self.looks.back()) else {
            return fair;
        };
        let is_old = |flow: &Flow| first.flows.iter().any(|old| old.stream == flow.stream);
        let mut left = self.peak.0 * by_queue(FILLING, queue);
        let mut among = 0_u32;
        for (flow, rate) in now.flows.iter().zip(rates) {
            if flow.first_slow_start {
                among += u32::from(!is_old(flow) || rate * LITTLE >= fair);
            } else {
                left -= rate;
            }
        }
        (left / f64::from(among.max(1))).max(fair)
    }

    /// The time that most streams' segments wait in a queue; zero where it is too
    /// short to tell.
    fn standing(&mut self, rtt: Duration) -> Duration {
        let Some(now) = self.looks.back() else {
            return Duration::ZERO;
        };
        let mut trips: Vec<Duration> = now.flows.iter().map(|flow| flow.rtt).collect();
        trips.sort_unstable();
        let middle = trips.get(trips.len() / 2).copied().unwrap_or(rtt);
        let usual = self
            .usual
            .map_or(middle, |usual| usual.min(middle))
            .max(rtt);
        self.usual = Some(usual);
        if middle >= usual + usual.mul_f64(QUEUED_PART).min(QUEUED_MOST) {
            middle - usual
        } else {
            Duration::ZERO
        }
    }

    /// What arrives per second.
    fn rates(&self, rtt: Duration) -> Option<Rates> {
        let now = self.looks.back()?;
        let first = self.looks.front().filter(|look| look.at < now.at)?;
        let since = |span: Duration| {
            let mut looks = self.looks.iter().rev();
            looks.find(|look| now.at - look.at >= span).unwrap_or(first)
        };
        let before = since(rtt);
        let streams: Vec<f64> = between(before, now);
        let recent: f64 = between(since(rtt / 3), now).iter().sum();
        let total: f64 = streams.iter().sum();
        let fastest = recent.max(total);
        (fastest > 0.0).then_some(Rates { streams, fastest })
    }

    fn measure_peak(&mut self, rtt: Duration) {
        let Some(now) = self.looks.back() else {
            return;
        };
        let began = self.began.get_or_insert_with(|| now.clone());
        let span = MEASURED.max(rtt.saturating_mul(MEASURED_ROUND_TRIPS));
        if now.at - began.at < span {
            return;
        }
        let rates = between(began, now);
        let total: f64 = rates.iter().sum();
        let (looks, supplied) = std::mem::take(&mut self.supplied);
        let bound = self.paces.each.map(|pace| pace as f64);
        if let Some(coupled) = &mut self.coupled {
            let found = coupled.handle_measure(&Carried {
                lost: lost_part(began, now, total),
                rates: now
                    .flows
                    .iter()
                    .map(|flow| flow.stream)
                    .zip(rates)
                    .collect(),
                before: self.peak.0,
                supplied: supplied * 2 >= looks,
                bound,
                held: bound.is_some_and(|bound| is_held(&now.flows, bound * coupled.kept())),
            });
            if found.full && self.phase == Phase::Free {
                // Its queue is too short to be seen.
                self.phase = Phase::Level;
            }
            if found.overflows && self.phase == Phase::Level {
                self.peak = (total, now.at);
            }
            self.anew |= found.more && self.phase == Phase::Level;
        }
        let by_window = self.coupled.is_none();
        if by_window && self.lost && total > self.peak.0 * GROWS && self.queued < began.at {
            // More than ever, and no queue: it was not full, or others have left.
            self.phase = Phase::Free;
        }
        // Less than the path carried before says something of it where a queue stood; of
        // coupled streams it is what they were allowed.
        let old = by_window && now.at - self.peak.1 > BELIEVED && self.queued >= began.at;
        if total >= self.peak.0 || old {
            self.peak = (total, now.at);
        }
        self.began = Some(now.clone());
    }

    fn set(&mut self, new: Paces) -> bool {
        let old = self.paces;
        let same = is_near(old.each, new.each) && is_near(old.starting, new.starting);
        if !same {
            self.paces = new;
        }
        !same
    }
}

/// Bytes per second.
struct Rates {
    /// Of each stream over the last round trip.
    streams: Vec<f64>,
    /// Of all together, the most in a part of it.
    fastest: f64,
}

/// Whether it is not worth changing one for the other.
fn is_near(old: Option<u64>, new: Option<u64>) -> bool {
    match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => (new as f64 / old.max(1) as f64 - 1.0).abs() < CHANGE,
        _ => false,
    }
}

/// The least round trip of all.
fn least(flows: &[Flow]) -> Option<Duration> {
    let known = flows.iter().map(|flow| flow.minimum_rtt);
    known.filter(|rtt| !rtt.is_zero()).min()
}

/// Each stream's rate between two looks; a stream that is new has what it has.
fn between(before: &Look, now: &Look) -> Vec<f64> {
    let seconds = (now.at - before.at).as_secs_f64();
    let rate = |flow: &Flow| {
        let known = before.flows.iter().find(|old| old.stream == flow.stream);
        flow.delivered.since(known.map(|old| old.delivered)) as f64 / seconds
    };
    now.flows.iter().map(rate).collect()
}

/// Whether the bound, in bytes per second, is what most of these streams keep to.
fn is_held(flows: &[Flow], bound: f64) -> bool {
    let keeps = |flow: &&Flow| {
        flow.pacing
            .is_some_and(|pace| pace >= bound * (1.0 - CHANGE))
    };
    flows.iter().filter(keeps).count() * 2 >= flows.len()
}

/// Bytes that were lost between two looks.
fn lost_bytes(before: &Look, now: &Look) -> f64 {
    let again = |flow: &Flow| {
        let known = before.flows.iter().find(|old| old.stream == flow.stream);
        let before = known.map_or(0, |old| old.retransmitted.0);
        let (segments, bytes) = flow.retransmitted;
        bytes as f64 * f64::from(segments.wrapping_sub(before))
    };
    now.flows.iter().map(again).sum()
}

/// Part of what was sent between two looks that was lost, `rate` being what arrived in bytes
/// per second.
fn lost_part(before: &Look, now: &Look, rate: f64) -> f64 {
    let lost = lost_bytes(before, now);
    lost / (lost + rate * (now.at - before.at).as_secs_f64()).max(1.0)
}

/// What all may send of what the path carries, the least and the most of it, by the
/// queue as a part of the round trip.
fn by_queue((least, most): (f64, f64), queue: f64) -> f64 {
    (1.0 + (most - 1.0) * (1.0 - queue / QUEUE_AIMED_AT)).clamp(least, most)
}

/// The pace with which all together send so much, in bytes per second: where each
/// sends the less of it and [`ROOM`] times what it sends now. At least an equal share.
fn fill(rates: &[f64], together: f64) -> f64 {
    let mut room: Vec<f64> = rates.iter().map(|rate| rate * ROOM).collect();
    room.sort_by(f64::total_cmp);
    let mut left = together;
    let mut filled = 0.0;
    for (at, small) in room.iter().enumerate() {
        let share = left / (room.len() - at) as f64;
        filled = share;
        if share <= *small {
            break;
        }
        left -= small;
    }
    filled.max(together / rates.len().max(1) as f64)
}

/// The pace that leaves small streams room and takes it from the largest: all
/// together send [`TOGETHER`] times what they do now. Never less than `fair`.
fn level(rates: &[f64], fair: f64) -> f64 {
    let total: f64 = rates.iter().sum();
    fill(rates, total * TOGETHER).max(fair)
}

/// What no stream is bound below: [`LEVEL`] times a share of what the path carried at its
/// `peak`, in bytes per second, by the `queue` as a part of the round trip, and no less than
/// that share and `grown`.
fn fair(rates: &[f64], peak: f64, queue: f64, grown: f64) -> f64 {
    let total: f64 = rates.iter().sum();
    let long = ((queue - QUEUE_AIMED_AT) / (LONG_QUEUE - QUEUE_AIMED_AT)).clamp(0.0, 1.0);
    let factor = LEVEL.1 - (LEVEL.1 - LEVEL.0) * long;
    let share = peak.max(total) / rates.len().max(1) as f64;
    (share * factor).max(share + grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Streams that acknowledge at these rates in bytes per second.
    struct Path {
        now: Duration,
        acknowledged: Vec<f64>,
        /// This many lost something, the first ones,
        lost: usize,
        /// and this many have their slow start behind them.
        grown: usize,
    }

    impl Path {
        fn new(streams: usize) -> Path {
            Path {
                now: Duration::ZERO,
                acknowledged: vec![0.0; streams],
                lost: 0,
                grown: 0,
            }
        }

        /// For one look's time.
        fn look(&mut self, leveller: &mut Leveller, rates: &[f64], queue: Duration) -> bool {
            let step = leveller.interval();
            self.now += step;
            for (bytes, rate) in self.acknowledged.iter_mut().zip(rates) {
                *bytes += rate * step.as_secs_f64();
            }
            let flow = |(at, bytes): (usize, &f64)| Flow {
                stream: StreamId(at as u32),
                delivered: Delivered::Acknowledged(*bytes as u64),
                rtt: RTT + queue,
                minimum_rtt: RTT,
                lost: at < self.lost,
                retransmitted: (0, 1448),
                waits: true,
                in_slow_start: at >= self.grown,
                first_slow_start: at >= self.grown,
                pacing: None,
            };
            let flows = self.acknowledged.iter().enumerate().map(flow).collect();
            leveller.handle_look(Moment(0) + self.now, Governed::ByWindow, flows)
        }
    }

    #[test]
    fn what_arrived_is_counted_whatever_the_counter_and_the_segments_do() {
        let segments = Delivered::Segments;
        assert_eq!(segments(7, 1000).since(None), 7000);
        assert_eq!(segments(7, 1000).since(Some(segments(5, 1000))), 2000);
        // The count began anew.
        assert_eq!(
            segments(1, 1000).since(Some(segments(u32::MAX, 1000))),
            2000
        );
        // Segments became larger: those before were not.
        assert_eq!(segments(12, 1448).since(Some(segments(10, 1024))), 2896);
        let acknowledged = Delivered::Acknowledged;
        assert_eq!(acknowledged(9).since(Some(acknowledged(4))), 5);
    }

    #[test]
    fn an_empty_path_has_no_bound() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        for step in 0..50 {
            let rate = 1e5 * f64::from(step);
            assert!(!path.look(&mut leveller, &[rate; 4], Duration::ZERO));
            assert_eq!(leveller.pace_of(StreamId(0)), None);
        }
    }

    #[test]
    fn what_waits_when_a_path_is_full_is_what_went_before_it_was_heard() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        // 100 MB/s, and windows that double in a round trip: each acknowledgement lets
        // two segments go. In the round trip that passes until the queue is heard of,
        // and a look, as much as the path carries goes too much.
        let (capacity, most) = (100e6, RTT * 5 / 4);
        let mut acknowledged = capacity;
        let (mut sent, mut queue) = (2e6, Duration::ZERO);
        let mut on_their_way: VecDeque<f64> = VecDeque::new();
        for looks in 0..200 {
            assert_eq!(
                leveller.begins(),
                leveller.pace_of(StreamId(0)).is_none() && looks > 0
            );
            let step = leveller.interval().as_secs_f64();
            sent *= 2f64.powf(step / RTT.as_secs_f64());
            let bound = leveller
                .pace_of(StreamId(0))
                .map_or(f64::INFINITY, |pace| 4.0 * pace as f64);
            sent = sent.min(bound).min(acknowledged * 2.0);
            on_their_way.push_back(sent);
            // What was sent a round trip ago is acknowledged now, as fast as the path is.
            let arrives = if on_their_way.len() > 4 {
                on_their_way.pop_front().unwrap()
            } else {
                sent
            };
            let grows = (arrives / capacity - 1.0) * step;
            let waits = (queue.as_secs_f64() + grows).max(0.0);
            queue = Duration::from_secs_f64(waits);
            assert!(queue < most, "{queue:?} after {looks} looks");
            acknowledged = if queue.is_zero() { arrives } else { capacity };
            path.look(&mut leveller, &[acknowledged / 4.0; 4], queue);
            if leveller.phase == Phase::Level {
                break;
            }
        }
        assert_eq!(leveller.phase, Phase::Level);
        assert!(!leveller.begins());
        assert!(sent >= capacity * APPROACH.0, "{sent}");
    }

    #[test]
    fn a_full_path_is_level_and_free_once_nothing_waits() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        for _ in 0..8 {
            path.look(&mut leveller, &[25e6; 4], Duration::ZERO);
        }
        for _ in 0..40 {
            path.look(&mut leveller, &[25e6; 4], RTT / 4);
        }
        // Each may have more than its share, and windows can grow,
        let level = leveller.pace_of(StreamId(0)).unwrap() as f64;
        assert!((28e6..30e6).contains(&level), "{level}");
        // but slowly where the queue is long.
        path.look(&mut leveller, &[25e6; 4], RTT * 3 / 4);
        let level = leveller.pace_of(StreamId(0)).unwrap() as f64;
        assert!((25e6..26e6).contains(&level), "{level}");
        // The queue is gone: what the slow start left is still bound, somewhat higher.
        path.look(&mut leveller, &[25e6; 4], Duration::ZERO);
        let free = leveller.pace_of(StreamId(0)).unwrap() as f64;
        assert!((32e6..33e6).contains(&free), "{free}");
        // A loss has set the windows: nothing is bound.
        (path.lost, path.grown) = (4, 4);
        assert!(path.look(&mut leveller, &[20e6; 4], Duration::ZERO));
        assert_eq!(leveller.pace_of(StreamId(0)), None);
    }

    /// Six streams of 100 MB/s together, of which four lost something.
    fn level_after_losses() -> (Path, Leveller) {
        let (mut path, mut leveller) = (Path::new(6), Leveller::default());
        let rates = [25e6, 25e6, 25e6, 25e6, 0.0, 0.0];
        path.look(&mut leveller, &rates, Duration::ZERO);
        for _ in 0..60 {
            path.look(&mut leveller, &rates, RTT / 4);
        }
        (path.lost, path.grown) = (4, 4);
        (path, leveller)
    }

    #[test]
    fn who_begins_after_a_loss_takes_what_the_others_leave() {
        let (mut path, mut leveller) = level_after_losses();
        // The second has nothing to send, or messages alone.
        for (others, second, among) in [
            (12e6, 4e6, 2.0),
            (12e6, 0.0, 1.0),
            (12e6, 1e4, 1.0),
            (24e6, 4e6, 2.0),
        ] {
            let rates = [others, others, others, others, 4e6, second];
            for _ in 0..80 {
                path.look(&mut leveller, &rates, Duration::ZERO);
            }
            let left = (100e6 * FILLING.1 - 4.0 * others) / among;
            let wanted = left.max(100e6 * LEVEL.1 / 6.0);
            for stream in [4, 5] {
                let pace = leveller.pace_of(StreamId(stream)).unwrap() as f64;
                let near = (pace / wanted - 1.0).abs() < 2.0 * CHANGE;
                assert!(near, "{pace} of {wanted}");
            }
            assert_eq!(leveller.pace_of(StreamId(0)), None);
        }
        path.grown = 5;
        assert!(path.look(&mut leveller, &[12e6; 6], Duration::ZERO));
        assert_eq!(leveller.pace_of(StreamId(4)), None);
        assert!(leveller.pace_of(StreamId(5)).is_some());
    }

    #[test]
    fn where_all_have_lost_something_nothing_changes_with_their_rates() {
        let (mut path, mut leveller) = level_after_losses();
        (path.lost, path.grown) = (6, 6);
        path.look(&mut leveller, &[15e6; 6], Duration::ZERO);
        for look in 0..100 {
            let rate = 10e6 + 1e5 * f64::from(look * 37 % 50);
            assert!(!path.look(&mut leveller, &[rate; 6], Duration::ZERO));
        }
    }

    #[test]
    fn a_path_that_carries_more_than_ever_without_a_queue_was_not_full() {
        let (mut path, mut leveller) = level_after_losses();
        // Others leave, who had nine tenths of it.
        let mut rate = 1e6;
        let mut looks = 0;
        while rate < 450e6 {
            path.look(
                &mut leveller,
                &[25e6, 25e6, 25e6, 25e6, rate, rate],
                Duration::ZERO,
            );
            let pace = leveller.pace_of(StreamId(5));
            let pace = pace.map_or(f64::INFINITY, |pace| pace as f64);
            rate = (rate * 2f64.powf(0.25)).min(pace);
            looks += 1;
            // Nine round trips of doubling, some to see that it is so.
            assert!(looks < 80, "{rate} after {looks} looks");
        }
    }

    #[test]
    fn a_source_that_rests_does_not_make_the_path_slow() {
        for rests in [0.0, 1e3, 1e5] {
            let (mut path, mut leveller) = (Path::new(4), Leveller::default());
            path.look(&mut leveller, &[25e6; 4], Duration::ZERO);
            for _ in 0..60 {
                path.look(&mut leveller, &[25e6; 4], RTT / 4);
            }
            assert!(leveller.pace_of(StreamId(0)).is_some());
            for _ in 0..2000 {
                path.look(&mut leveller, &[rests; 4], Duration::ZERO);
            }
            path.look(&mut leveller, &[1e6; 4], Duration::ZERO);
            assert_eq!(leveller.pace_of(StreamId(0)), None, "{rests}");
            // And when a queue stands again a share is what it was.
            for _ in 0..4 {
                path.look(&mut leveller, &[20e6; 4], RTT / 4);
            }
            assert!(
                leveller.pace_of(StreamId(0)).unwrap() >= 25_000_000,
                "{rests}"
            );
        }
    }

    #[test]
    fn a_queue_of_others_leaves_windows_room_to_grow() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        path.look(&mut leveller, &[2e5; 4], Duration::ZERO);
        for lost in [0, 1] {
            path.lost = lost;
            for _ in 0..60 {
                path.look(&mut leveller, &[2e5; 4], RTT);
            }
            // A segment in a round trip, and it is measured over four; in a slow start too.
            let pace = leveller.pace_of(StreamId(3)).unwrap() as f64;
            assert!(pace >= 2e5 + 4.0 * 1448.0 / RTT.as_secs_f64(), "{pace}");
        }
    }

    #[test]
    fn a_loss_or_a_short_path_ends_the_slow_start_that_goes_on() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        assert!(!leveller.begins());
        path.look(&mut leveller, &[1e6; 4], Duration::ZERO);
        assert!(leveller.begins());
        // One whose window has met its threshold, as where ECN tells of a queue.
        path.grown = 1;
        path.look(&mut leveller, &[1e6; 4], Duration::ZERO);
        assert!(!leveller.begins());
        path.grown = 0;
        path.look(&mut leveller, &[1e6; 4], Duration::ZERO);
        assert!(leveller.begins());
        path.lost = 1;
        path.look(&mut leveller, &[1e6; 4], Duration::ZERO);
        assert!(!leveller.begins());
        assert!(!Levellers::default().begin());
    }

    #[test]
    fn the_largest_gives_way_to_the_small_and_all_together_lose_nothing() {
        let mut rates = [10e6; 8];
        rates[3] = 730e6;
        let pace = level(&rates, fair(&rates, 0.0, 0.0, 0.0));
        let total: f64 = rates.iter().sum();
        assert!(pace < rates[3] && pace > total / 8.0, "{pace}");
        let may: f64 = rates.iter().map(|rate| (rate * ROOM).min(pace)).sum();
        assert!((may / total - TOGETHER).abs() < 1e-9, "{may} of {total}");
    }

    #[test]
    fn a_rate_that_falls_does_not_lower_the_bound_with_it() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        path.look(&mut leveller, &[25e6; 4], Duration::ZERO);
        for _ in 0..40 {
            path.look(&mut leveller, &[25e6; 4], RTT / 4);
        }
        let mut rate = 25e6;
        for _ in 0..200 {
            path.look(&mut leveller, &[rate; 4], RTT / 2);
            rate *= 0.9;
            assert!(
                leveller
                    .pace_of(StreamId(0))
                    .is_none_or(|pace| pace >= 26_000_000)
            );
        }
    }

    #[test]
    fn a_path_with_jitter_is_still_filled() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        // Round trips wander, and always seem to have a queue; the path carries 100 MB/s.
        let mut rate: f64 = 5e5;
        let mut looks = 0;
        while rate < 25e6 {
            for wander in [RTT / 5, RTT / 3] {
                path.look(&mut leveller, &[rate; 4], wander);
            }
            // Windows double in a round trip of four looks, or less by the pace.
            let pace = leveller
                .pace_of(StreamId(0))
                .map_or(f64::INFINITY, |pace| pace as f64);
            rate = (rate * 2f64.sqrt()).min(pace.max(rate));
            looks += 2;
            assert!(looks < 80, "{rate} after {looks} looks");
        }
    }

    #[test]
    fn each_path_has_its_own_pace() {
        let ends = |last: u8| -> Ends { ([10, 0, 0, last].into(), [10, 0, 1, last].into()) };
        let mut levellers = Levellers::default();
        let mut acknowledged = [0.0; 4];
        for step in 1..40 {
            let queue = if step < 9 { Duration::ZERO } else { RTT / 4 };
            let at = Moment(step * 25_000_000);
            // Two streams of 25 MB/s on a path that fills; two of 2 on one five
            // times as long that does not.
            for (at, bytes) in acknowledged.iter_mut().enumerate() {
                *bytes += if at < 2 { 25e6 } else { 2e6 } * 0.025;
            }
            let flow = |number: usize| {
                let first = number < 2;
                let least = if first { RTT } else { RTT * 5 };
                let flow = Flow {
                    stream: StreamId(number as u32),
                    delivered: Delivered::Acknowledged(acknowledged[number] as u64),
                    rtt: least + if first { queue } else { Duration::ZERO },
                    minimum_rtt: least,
                    lost: false,
                    retransmitted: (0, 1448),
                    waits: true,
                    in_slow_start: true,
                    first_slow_start: true,
                    pacing: None,
                };
                (ends(u8::from(first)), flow)
            };
            levellers.handle_look(at, &BTreeMap::new(), (0..4).map(flow).collect());
        }
        let pace = levellers.pace(ends(1), StreamId(0)).unwrap() as f64;
        assert!((25e6..40e6).contains(&pace), "{pace}");
        assert_eq!(levellers.pace(ends(0), StreamId(3)), None);
        // Its streams are gone, and so is the bound.
        assert!(levellers.handle_look(Moment(2_000_000_000), &BTreeMap::new(), Vec::new()));
        assert_eq!(levellers.pace(ends(1), StreamId(0)), None);
    }

    #[test]
    fn an_acknowledgement_that_was_held_back_is_no_queue() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        path.look(&mut leveller, &[1e5; 4], Duration::ZERO);
        for _ in 0..40 {
            path.look(&mut leveller, &[1e5; 4], Duration::from_millis(40));
            assert_eq!(leveller.pace_of(StreamId(0)), None);
        }
    }

    #[test]
    fn silence_and_short_paths_have_no_bound() {
        assert_eq!(level(&[], fair(&[], 0.0, 0.0, 0.0)), 0.0);
        let mut leveller = Leveller::default();
        for step in 1..20 {
            let flow = Flow {
                stream: StreamId(0),
                delivered: Delivered::Acknowledged(step << 20),
                rtt: Duration::from_millis(4),
                minimum_rtt: Duration::from_micros(400),
                lost: false,
                retransmitted: (0, 1448),
                waits: true,
                in_slow_start: true,
                first_slow_start: true,
                pacing: None,
            };
            let at = Moment(step * 10_000_000);
            assert!(!leveller.handle_look(at, Governed::ByWindow, vec![flow]));
        }
        assert_eq!(leveller.pace_of(StreamId(0)), None);
    }
}
