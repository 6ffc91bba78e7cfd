//! Keeps the streams of one transfer at equal rates, and keeps their slow start from flooding the
//! path.
//!
//! Streams that begin together double their windows together. When the path is full, they send
//! twice its capacity before the first loss is reported: most streams lose segments, one does not,
//! and for a minute one stream carries three quarters of all data. The sending end sees earlier
//! that the path fills, because round trips grow. From then on it limits the total rate to the
//! measured capacity and a bit more. The excess shrinks as the queue grows, until the measured rate
//! stops growing. Afterwards a stream may send slightly more than its equal share, and smaller
//! streams get room to grow at the expense of the largest. Without a queue there is no limit: one
//! stream may use capacity that another does not use. An exception is a number of round trips after
//! a queue, before the first loss: windows are still as large as the slow start left them and would
//! flood the queue at once.
//!
//! CUBIC's slow start ends by itself, and in each stream at another window: HyStart mistakes the
//! acknowledgement train of several streams for a full path, in one stream at 116 segments and in
//! another at 2,000. Therefore [`Levellers::begin`] says until when streams should use a slow start
//! that continues, Reno's. From the first sign of a queue they use CUBIC again, with equal windows,
//! before the windows reach twice the capacity.
//!
//! After a loss on a known path, a stream without losses (for example a new stream) gets the
//! capacity that the others leave, or an equal share. Without this limit it would double until the
//! queue overflows, and halve the other windows with its own. Such streams fill the capacity that
//! losses take from the others.
//!
//! Streams that measure the path's rate themselves, as BBR's do, are filled in the same way;
//! afterwards they are coupled ([`coupled`]).
//!
//! Each path is levelled separately, because paths differ in round trip, queue and share.
//!
//! The limit is a pacing rate of sockets (`SO_MAX_PACING_RATE`). Congestion control stays in
//! charge: no stream sends more than it allows.

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

/// Minimum round trip of a path that is levelled. On shorter paths windows become equal by
/// themselves quickly.
const SHORTEST: Duration = Duration::from_millis(5);

/// A queue stands if round trips exceed the path's by this fraction or by this time, whichever is
/// less, and if at least this many bytes per stream arrive in the excess time. A delayed
/// acknowledgement alone is no queue.
const QUEUED_PART: f64 = 0.125;
const QUEUED_MOST: Duration = Duration::from_millis(16);
const QUEUED_BYTES: u64 = 6 << 10;

/// Minimum and maximum of the total rate, as a multiple of the measured capacity, while a path is
/// being filled: the maximum without a queue, exactly 1 with a queue of this fraction of the round
/// trip, the minimum with a longer one.
const APPROACH: (f64, f64) = (0.9, 1.3);
const QUEUE_AIMED_AT: f64 = 0.3;

/// A path is full if its carried rate has not grown by this factor for this many round trips.
const GROWS: f64 = 1.08;
const TRIED_ROUND_TRIPS: u32 = 3;

/// Minimum and maximum rate of a stream as a multiple of its share, once the path is level. With a
/// short queue the factor exceeds the growth of a window per round trip after a loss, so equal
/// streams are not limited. With a long queue it is smaller, so that the queue overflows slowly and
/// few segments are lost. Between [`QUEUE_AIMED_AT`] and this fraction of the round trip it is
/// interpolated.
const LEVEL: (f64, f64) = (1.02, 1.15);
const LONG_QUEUE: f64 = 0.6;

/// Bytes per round trip that a stream may always send beyond its share. The rate is measured over
/// four round trips, and a window grows by a segment in each, even if other traffic causes the
/// queue.
const GROWTH: f64 = 24_576.0;

/// Number of round trips after a queue for which windows of a slow start stay limited. A source
/// that pauses longer is not slowed down.
const BOUND_ROUND_TRIPS: u32 = 10;

/// Total rate of unequal streams as a multiple of the arriving rate, and the rate reserved for each
/// small stream as a multiple of its current rate.
const TOGETHER: f64 = 1.02;
const ROOM: f64 = 1.5;

/// Time for which a measured capacity is valid: a rate that fell because of the limit must not
/// lower the limit. For coupled streams it stays valid until measurements contradict it.
const BELIEVED: Duration = Duration::from_secs(20);

/// Minimum time and number of round trips of a capacity measurement. Over shorter times rates
/// fluctuate with the windows, and the maximum would be too high.
const MEASURED: Duration = Duration::from_millis(500);
const MEASURED_ROUND_TRIPS: u32 = 4;

/// Target for streams in their first slow start, as a fraction of the peak rate: with a long queue,
/// and without one. The maximum exceeds [`GROWS`], so that a path that was not full is detected.
const FILLING: (f64, f64) = (0.95, 1.15);

/// A stream sends little (messages, or the rest of a file) if its rate is less than its share
/// divided by this.
const LITTLE: f64 = 8.0;

/// Minimum relative change of a pacing rate that is applied.
const CHANGE: f64 = 0.03;

/// The kernel's data about one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flow {
    /// The stream.
    pub stream: StreamId,
    /// Data that arrived at the other end.
    pub delivered: Delivered,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Minimum round trip.
    pub minimum_rtt: Duration,
    /// True if it has lost a segment since it began.
    pub lost: bool,
    /// Number of retransmitted segments since it began, modulo 2^32, and bytes per segment.
    pub retransmitted: (u32, u64),
    /// True if it has more data to send than its window allows.
    pub waits: bool,
    /// True if its window is below the threshold at which a slow start ends.
    pub in_slow_start: bool,
    /// True if it has no such threshold yet: its window doubles until a segment is lost.
    pub first_slow_start: bool,
    /// Pacing rate of its kernel in bytes per second; `None` if the kernel does not pace it.
    pub pacing: Option<f64>,
}

/// Data that arrived at the other end since a stream began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Delivered {
    /// Number of segments, modulo 2^32, and bytes per segment.
    Segments(u32, u64),
    /// Number of acknowledged bytes, if the kernel reports no segments. When a gap is filled, many
    /// bytes are acknowledged at once, so the path seems to carry twice its rate.
    Acknowledged(u64),
}

impl Delivered {
    /// Returns the bytes since `before`; for a new stream, since it began.
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

/// Kind of limit that the congestion control of streams sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Governed {
    /// A window that grows until a segment is lost.
    #[default]
    ByWindow,
    /// A measured rate.
    ByRate,
}

/// Kernel data about all streams of a path at one moment.
#[derive(Clone, Debug)]
struct Look {
    at: Moment,
    flows: Vec<Flow>,
}

/// State of knowledge about a path's capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// It has not been full yet.
    Free,
    /// It is being filled. The fields are the maximum rate carried so far, in bytes per second, and
    /// the time of that maximum.
    Tried(f64, Moment),
    /// It has been full.
    Level,
}

/// Levellers of all paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Levellers(BTreeMap<Ends, Leveller>);

impl Levellers {
    /// Returns the maximum rate of a stream on a path, in bytes per second; `None` if unlimited.
    pub fn pace(&self, path: Ends, stream: StreamId) -> Option<u64> {
        self.0.get(&path)?.pace_of(stream)
    }

    /// Returns, and clears, the paths whose coupled streams may send more since the last call: the
    /// path carried more than ever, or has fewer streams.
    pub fn take_anew(&mut self) -> BTreeSet<Ends> {
        let take = |(path, leveller): (&Ends, &mut Leveller)| {
            std::mem::take(&mut leveller.anew).then_some(*path)
        };
        self.0.iter_mut().filter_map(take).collect()
    }

    /// True if this path's streams are coupled and limited.
    pub fn is_coupled(&self, path: Ends) -> bool {
        let leveller = self.0.get(&path);
        leveller.is_some_and(|known| known.coupled.is_some() && known.paces.each.is_some())
    }

    /// True if streams should stay in the slow start that ends for all at once: no queue was seen,
    /// no segment was lost, and all paths are watched.
    pub fn begin(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(Leveller::begins)
    }

    /// Returns the time until the next observation.
    pub fn interval(&self) -> Duration {
        let intervals = self.0.values().map(Leveller::interval);
        let least = intervals.min();
        least.unwrap_or_else(|| Leveller::default().interval())
    }

    /// Processes new kernel data about all streams. `governed` has the kind of limit of each path's
    /// streams. Returns true if a pacing rate changed.
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

/// Observes a sending end's streams on one path and sets their pacing rates.
#[derive(Clone, Debug)]
pub(super) struct Leveller {
    phase: Phase,
    looks: VecDeque<Look>,
    /// Minimum over time of the median round trip. On a path with jitter the minimum of single
    /// segments is far below the usual value.
    usual: Option<Duration>,
    /// Minimum round trip of the last seconds.
    recent_rtt: RecentRtt,
    /// Time when a queue was last seen.
    queued: Moment,
    /// True if a stream has lost a segment.
    lost: bool,
    /// Maximum total rate, in bytes per second, and the time of its measurement.
    peak: (f64, Moment),
    /// Observation at which the current measurement began.
    began: Option<Look>,
    paces: Paces,
    /// Streams in their first slow start.
    starting: BTreeSet<StreamId>,
    /// State of coupled streams; `None` if windows limit the streams.
    coupled: Option<Coupled>,
    /// True if coupled streams may send more and may restart for that.
    anew: bool,
    /// Time when the last stream left.
    left: Option<Moment>,
    /// Number of observations since the last measurement, and number of those in which most streams
    /// had more to send.
    supplied: (u32, u32),
}

/// Maximum rates of a stream in bytes per second; `None` if unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Paces {
    /// Limit of each stream.
    each: Option<u64>,
    /// Additional limit of each stream in its first slow start.
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
    /// Returns the maximum rate of this stream in bytes per second; `None` if unlimited.
    fn pace_of(&self, stream: StreamId) -> Option<u64> {
        let starting = self
            .paces
            .starting
            .filter(|_| self.starting.contains(&stream));
        self.paces.each.into_iter().chain(starting).min()
    }

    /// Returns the time until the next observation.
    pub fn interval(&self) -> Duration {
        const BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));
        let last = self.looks.back();
        let rtt = last.and_then(|look| least(&look.flows));
        rtt.map_or(BOUNDS.1, |rtt| (rtt / 4).clamp(BOUNDS.0, BOUNDS.1))
    }

    /// True if its streams are in their slow start, as in [`Levellers::begin`].
    fn begins(&self) -> bool {
        let now = self.looks.back();
        let slow_starts = now.is_some_and(|look| look.flows.iter().all(|flow| flow.in_slow_start));
        slow_starts && !self.lost && self.phase == Phase::Free
    }

    /// Processes new kernel data; true if the pacing rate of a stream changed.
    pub fn handle_look(&mut self, at: Moment, governed: Governed, flows: Vec<Flow>) -> bool {
        let coupled = governed == Governed::ByRate;
        if coupled != self.coupled.is_some() {
            self.coupled = coupled.then(Coupled::default);
            // Rates of the other kind of congestion control are no basis.
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

    /// Returns the path's round trip without a queue.
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

    /// Stores an observation; true if the set of streams in their first slow start changed while
    /// these are limited.
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
        // Keep the first observation that is two round trips old, to compare with.
        let old = |look: &Look| at - look.at >= rtt.saturating_mul(2);
        while self.looks.get(1).is_some_and(old) {
            self.looks.pop_front();
        }
        others
    }

    /// Updates the phase of the path.
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

    /// Returns the maximum rate of each coupled stream in bytes per second; `None` if unlimited.
    fn coupled_pace(&mut self, at: Moment, rtt: Duration, standing: Duration) -> Option<f64> {
        let coupled = self.coupled.as_mut()?;
        let part = coupled.part(at, rtt, standing, &mut self.peak.0)?;
        let streams = self.looks.back().into_iter().flat_map(|look| &look.flows);
        let streams: Vec<StreamId> = streams.map(|flow| flow.stream).collect();
        Some(coupled.share(self.peak.0 * part, &streams))
    }

    /// True if coupled streams that are filling the path lose enough segments to show a full path.
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

    /// Returns the rate of each stream in its first slow start with which all streams fill the
    /// path, in bytes per second, but at least `fair`. `queue` is a fraction of the round trip.
    /// Streams that are two round trips old and send little are assumed to have no more to send.
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

    /// Returns the median time that segments wait in a queue; zero if it is too short to measure.
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

    /// Returns the rates at which data arrive.
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
                // The queue of the path is too short to be seen.
                self.phase = Phase::Level;
            }
            if found.overflows && self.phase == Phase::Level {
                self.peak = (total, now.at);
            }
            self.anew |= found.more && self.phase == Phase::Level;
        }
        let by_window = self.coupled.is_none();
        if by_window && self.lost && total > self.peak.0 * GROWS && self.queued < began.at {
            // The rate is higher than ever without a queue: the path was not full, or other traffic
            // ended.
            self.phase = Phase::Free;
        }
        // A rate below the peak is evidence only if there was a queue; coupled streams send only as
        // much as they may.
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

/// Rates in bytes per second.
struct Rates {
    /// Rate of each stream over the last round trip.
    streams: Vec<f64>,
    /// Maximum total rate, over a part of that round trip or all of it.
    fastest: f64,
}

/// True if the difference is too small to be applied.
fn is_near(old: Option<u64>, new: Option<u64>) -> bool {
    match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => (new as f64 / old.max(1) as f64 - 1.0).abs() < CHANGE,
        _ => false,
    }
}

/// Returns the minimum round trip of all streams.
fn least(flows: &[Flow]) -> Option<Duration> {
    let known = flows.iter().map(|flow| flow.minimum_rtt);
    known.filter(|rtt| !rtt.is_zero()).min()
}

/// Returns each stream's rate between two observations; for a new stream, all its data count.
fn between(before: &Look, now: &Look) -> Vec<f64> {
    let seconds = (now.at - before.at).as_secs_f64();
    let rate = |flow: &Flow| {
        let known = before.flows.iter().find(|old| old.stream == flow.stream);
        flow.delivered.since(known.map(|old| old.delivered)) as f64 / seconds
    };
    now.flows.iter().map(rate).collect()
}

/// True if the limit, in bytes per second, is the pacing rate of at least half of these streams.
fn is_held(flows: &[Flow], bound: f64) -> bool {
    let keeps = |flow: &&Flow| {
        flow.pacing
            .is_some_and(|pace| pace >= bound * (1.0 - CHANGE))
    };
    flows.iter().filter(keeps).count() * 2 >= flows.len()
}

/// Returns the bytes lost between two observations.
fn lost_bytes(before: &Look, now: &Look) -> f64 {
    let again = |flow: &Flow| {
        let known = before.flows.iter().find(|old| old.stream == flow.stream);
        let before = known.map_or(0, |old| old.retransmitted.0);
        let (segments, bytes) = flow.retransmitted;
        bytes as f64 * f64::from(segments.wrapping_sub(before))
    };
    now.flows.iter().map(again).sum()
}

/// Returns the lost fraction of the bytes sent between two observations. `rate` is the arriving
/// rate in bytes per second.
fn lost_part(before: &Look, now: &Look, rate: f64) -> f64 {
    let lost = lost_bytes(before, now);
    lost / (lost + rate * (now.at - before.at).as_secs_f64()).max(1.0)
}

/// Returns the factor for the total rate, from the minimum to the maximum, for a queue that is
/// given as a fraction of the round trip.
fn by_queue((least, most): (f64, f64), queue: f64) -> f64 {
    (1.0 + (most - 1.0) * (1.0 - queue / QUEUE_AIMED_AT)).clamp(least, most)
}

/// Returns the pacing rate with which all streams send `together` bytes per second, if each sends
/// the lesser of it and [`ROOM`] times its current rate. At least an equal share.
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

/// Returns the pacing rate that gives small streams room at the expense of the largest: the total
/// is [`TOGETHER`] times the current rate. Never less than `fair`.
fn level(rates: &[f64], fair: f64) -> f64 {
    let total: f64 = rates.iter().sum();
    fill(rates, total * TOGETHER).max(fair)
}

/// Returns the rate below which no stream is limited: [`LEVEL`] times an equal share of the `peak`
/// rate in bytes per second, depending on the `queue` as a fraction of the round trip. It is at
/// least that share plus `grown`.
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

    /// Simulates streams with given rates of acknowledgement, in bytes per second.
    struct Path {
        now: Duration,
        acknowledged: Vec<f64>,
        /// Number of streams, from the first, that lost segments.
        lost: usize,
        /// Number of streams, from the first, that have left their slow start.
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

        /// Advances by the time of one observation.
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
    fn arrived_bytes_are_counted_across_changes_of_the_counter() {
        let segments = Delivered::Segments;
        assert_eq!(segments(7, 1000).since(None), 7000);
        assert_eq!(segments(7, 1000).since(Some(segments(5, 1000))), 2000);
        // The count wrapped around.
        assert_eq!(
            segments(1, 1000).since(Some(segments(u32::MAX, 1000))),
            2000
        );
        // Segments became larger; the earlier ones keep their size.
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
    fn the_queue_of_a_full_path_is_the_data_sent_before_its_detection() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        // The path carries 100 MB/s, and windows double per round trip: each acknowledgement
        // releases two segments. In the round trip until the queue is seen, plus one observation,
        // the excess equals the capacity.
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
            // Data sent a round trip ago are acknowledged now, at the rate of the path.
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
    fn a_full_path_is_levelled_until_its_queue_is_empty() {
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
        // The queue is gone: the windows of the slow start are still limited, at a higher rate.
        path.look(&mut leveller, &[25e6; 4], Duration::ZERO);
        let free = leveller.pace_of(StreamId(0)).unwrap() as f64;
        assert!((32e6..33e6).contains(&free), "{free}");
        // A loss has set the windows: there is no limit.
        (path.lost, path.grown) = (4, 4);
        assert!(path.look(&mut leveller, &[20e6; 4], Duration::ZERO));
        assert_eq!(leveller.pace_of(StreamId(0)), None);
    }

    /// Returns six streams of 100 MB/s together, of which four lost segments.
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
    fn a_stream_added_after_a_loss_gets_the_unused_rate() {
        let (mut path, mut leveller) = level_after_losses();
        // The second new stream has no data to send, or messages alone.
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
    fn the_pace_is_constant_once_all_streams_have_lost_segments() {
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
        // Other traffic that had nine tenths of the path ends.
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
            // Nine round trips of doubling, and a few to detect it.
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
            // When a queue stands again, the share is as before.
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
            // A window grows by a segment per round trip, measured over four, also in a slow start.
            let pace = leveller.pace_of(StreamId(3)).unwrap() as f64;
            assert!(pace >= 2e5 + 4.0 * 1448.0 / RTT.as_secs_f64(), "{pace}");
        }
    }

    #[test]
    fn a_loss_or_a_short_path_ends_the_continued_slow_start() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        assert!(!leveller.begins());
        path.look(&mut leveller, &[1e6; 4], Duration::ZERO);
        assert!(leveller.begins());
        // One stream's window has met its threshold, as after an ECN signal.
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
    fn the_largest_stream_yields_to_the_small_ones_without_a_loss_of_rate() {
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
        // Round trips vary, and always seem to have a queue; the path carries 100 MB/s.
        let mut rate: f64 = 5e5;
        let mut looks = 0;
        while rate < 25e6 {
            for wander in [RTT / 5, RTT / 3] {
                path.look(&mut leveller, &[rate; 4], wander);
            }
            // Windows double in a round trip of four observations, unless the pacing rate is less.
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
            // Two streams of 25 MB/s use a path that fills; two of 2 MB/s use a path of five times
            // the length that does not fill.
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
        // Streams and limit of the first path are gone.
        assert!(levellers.handle_look(Moment(2_000_000_000), &BTreeMap::new(), Vec::new()));
        assert_eq!(levellers.pace(ends(1), StreamId(0)), None);
    }

    #[test]
    fn a_delayed_acknowledgement_is_not_a_queue() {
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
