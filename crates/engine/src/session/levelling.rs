//! Keeps the streams of one transfer level, and their slow start from flooding
//! the path.
//!
//! Streams that begin together double together, and when the path is full they
//! send twice what it carries before any of them hears of it: most lose, one
//! does not, and for a minute one stream carries three quarters of everything.
//! The sending end sees earlier that the path is full: round trips grow. Then
//! it bounds each stream's pace to its share of what is acknowledged, for a few
//! round trips in which the queue stops growing; afterwards a stream may have
//! somewhat more than its share, and those that have less are given room to grow
//! by taking from the largest. Where no queue stands there is no bound: what one
//! stream does not carry another may.
//!
//! Each path is levelled by itself: another one has another round trip, another
//! queue and another share.
//!
//! The bound is a pace of sockets (`SO_MAX_PACING_RATE`). The congestion control
//! stays in charge: nobody sends more than it allows.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longhaul_proto::session::StreamId;
use longhaul_units::Moment;

use super::paths::Ends;

/// On shorter paths windows even out by themselves within moments.
const SHORTEST: Duration = Duration::from_millis(5);

/// A queue stands where round trips are longer than the path's by this part,
/// and what is acknowledged in the time between is so much for each stream: an
/// acknowledgement that was held back is no queue.
const QUEUED_PART: f64 = 1.125;
const QUEUED_BYTES: u64 = 6 << 10;

/// Round trips for which a path that was just filled is held at what it carries.
const HELD_ROUND_TRIPS: u32 = 2;

/// What all may send of what is acknowledged while that lasts.
const HELD: f64 = 1.02;

/// What a stream may send of its share afterwards: more than a window grows in
/// a round trip once it has met loss, so that equal streams are not bound.
const LEVEL: f64 = 1.15;

/// Where the rate grows so much in a round trip after that, the path was not
/// full: round trips are longer for another reason, and windows may double as
/// they would, until the rate has not grown for some of them.
const GROWS: f64 = 1.08;
const DOUBLE: f64 = 2.0;
const TRIED_ROUND_TRIPS: u32 = 3;

/// Unequal streams: all may send so much of what is acknowledged, of which each
/// small one is left room for so much of what it sends now.
const TOGETHER: f64 = 1.02;
const ROOM: f64 = 1.5;

/// What the path was seen to carry is believed for so long: a rate that fell
/// because of the bound must not lower the bound.
const BELIEVED: Duration = Duration::from_secs(20);

/// It is measured over so long and so many round trips: when a lost segment
/// arrives at last, much is acknowledged at once.
const MEASURED: Duration = Duration::from_millis(500);
const MEASURED_ROUND_TRIPS: u32 = 4;

/// A pace is changed by no less than this part.
const CHANGE: f64 = 0.03;

/// What the kernel tells of one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flow {
    /// Which.
    pub stream: StreamId,
    /// Bytes acknowledged since it began.
    pub acknowledged: u64,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// The least round trip.
    pub minimum_rtt: Duration,
}

/// What was seen at one moment.
#[derive(Clone, Debug)]
struct Look {
    at: Moment,
    flows: Vec<Flow>,
}

/// How far a path is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It was not full yet, or is not any more.
    Free,
    /// It was just filled, as it seems, and is held until then.
    Held(Moment),
    /// It is tried whether it was: the rate last grew then.
    Tried(Moment),
    /// It was filled before.
    Level,
}

/// One for each path.
#[derive(Clone, Debug, Default)]
pub(super) struct Levellers(BTreeMap<Ends, Leveller>);

impl Levellers {
    /// Bytes per second that each stream on a path may send at most; none
    /// without bound.
    pub fn pace(&self, path: Ends) -> Option<u64> {
        self.0.get(&path)?.pace()
    }

    /// How long until the next look is worth taking.
    pub fn interval(&self) -> Duration {
        let intervals = self.0.values().map(Leveller::interval);
        let least = intervals.min();
        least.unwrap_or_else(|| Leveller::default().interval())
    }

    /// Takes what is seen now; true where a pace changed.
    pub fn handle_look(&mut self, at: Moment, flows: Vec<(Ends, Flow)>) -> bool {
        let mut by_path: BTreeMap<Ends, Vec<Flow>> = BTreeMap::new();
        for (path, flow) in flows {
            by_path.entry(path).or_default().push(flow);
        }
        let bound = |leveller: &Leveller| leveller.pace().is_some();
        let left = self
            .0
            .iter()
            .any(|(path, leveller)| bound(leveller) && !by_path.contains_key(path));
        self.0.retain(|path, _| by_path.contains_key(path));
        let mut changed = left;
        for (path, flows) in by_path {
            changed |= self.0.entry(path).or_default().handle_look(at, flows);
        }
        changed
    }
}

/// Looks at a sending end's streams on one path, and says at which pace each may send.
#[derive(Clone, Debug)]
pub(super) struct Leveller {
    phase: Phase,
    looks: VecDeque<Look>,
    /// The most that all carried, in bytes per second, and when.
    peak: (f64, Moment),
    /// Where its next measurement began.
    began: Option<Look>,
    pace: Option<u64>,
}

impl Default for Leveller {
    fn default() -> Leveller {
        Leveller {
            phase: Phase::Free,
            looks: VecDeque::new(),
            peak: (0.0, Moment(0)),
            began: None,
            pace: None,
        }
    }
}

impl Leveller {
    /// Bytes per second that each stream may send at most; none without bound.
    pub fn pace(&self) -> Option<u64> {
        self.pace
    }

    /// How long until the next look is worth taking.
    pub fn interval(&self) -> Duration {
        const BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));
        let last = self.looks.back();
        let rtt = last.and_then(|look| least(&look.flows));
        rtt.map_or(BOUNDS.1, |rtt| (rtt / 4).clamp(BOUNDS.0, BOUNDS.1))
    }

    /// Takes what is seen now; true where [`Leveller::pace`] changed.
    pub fn handle_look(&mut self, at: Moment, flows: Vec<Flow>) -> bool {
        let Some(rtt) = least(&flows).filter(|rtt| *rtt >= SHORTEST) else {
            self.looks.clear();
            self.phase = Phase::Free;
            return self.set(None);
        };
        self.looks.push_back(Look { at, flows });
        // The first look that is two round trips old stays, to compare with.
        let old = |look: &Look| at - look.at >= rtt.saturating_mul(2);
        while self.looks.get(1).is_some_and(old) {
            self.looks.pop_front();
        }
        let Some(rates) = self.rates(rtt) else {
            return false;
        };
        self.measure_peak(rtt);
        let standing = self.looks.back().map(|look| queue(&look.flows, rtt));
        let bytes = rates.fastest * standing.unwrap_or_default().as_secs_f64();
        if bytes < (QUEUED_BYTES * rates.streams.len() as u64) as f64 {
            self.phase = match self.phase {
                Phase::Free => Phase::Free,
                _ => Phase::Level,
            };
            return self.set(None);
        }
        self.phase = match self.phase {
            Phase::Free => Phase::Held(at + rtt.saturating_mul(HELD_ROUND_TRIPS)),
            Phase::Held(until) if at >= until => Phase::Tried(at),
            Phase::Tried(_) if rates.grows => Phase::Tried(at),
            Phase::Tried(since) if at - since >= rtt.saturating_mul(TRIED_ROUND_TRIPS) => {
                Phase::Level
            }
            phase => phase,
        };
        let pace = match self.phase {
            Phase::Held(_) => rates.fastest * HELD / rates.streams.len() as f64,
            Phase::Tried(since) if since == at && rates.grows => {
                level(&rates.streams, self.peak.0, DOUBLE)
            }
            _ => level(&rates.streams, self.peak.0, LEVEL),
        };
        self.set(Some(pace as u64))
    }

    /// What is acknowledged per second.
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
        let grows =
            first.at < before.at && total >= between(first, before).iter().sum::<f64>() * GROWS;
        (fastest > 0.0).then_some(Rates {
            streams,
            fastest,
            grows,
        })
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
        let total = between(began, now).iter().sum();
        if total >= self.peak.0 || now.at - self.peak.1 > BELIEVED {
            self.peak = (total, now.at);
        }
        self.began = Some(now.clone());
    }

    fn set(&mut self, pace: Option<u64>) -> bool {
        let same = match (self.pace, pace) {
            (None, None) => true,
            (Some(old), Some(new)) => (new as f64 / old.max(1) as f64 - 1.0).abs() < CHANGE,
            _ => false,
        };
        if !same {
            self.pace = pace;
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
    /// More than in the round trip before.
    grows: bool,
}

/// The least round trip of all.
fn least(flows: &[Flow]) -> Option<Duration> {
    let known = flows.iter().map(|flow| flow.minimum_rtt);
    known.filter(|rtt| !rtt.is_zero()).min()
}

/// The time that most streams' segments wait in a queue; zero where it is too
/// short to tell.
fn queue(flows: &[Flow], rtt: Duration) -> Duration {
    let mut trips: Vec<Duration> = flows.iter().map(|flow| flow.rtt).collect();
    trips.sort_unstable();
    let middle = trips.get(trips.len() / 2).copied().unwrap_or(rtt);
    match middle >= rtt.mul_f64(QUEUED_PART) {
        true => middle - rtt,
        false => Duration::ZERO,
    }
}

/// Each stream's rate between two looks; a stream that is new has what it has.
fn between(before: &Look, now: &Look) -> Vec<f64> {
    let seconds = (now.at - before.at).as_secs_f64();
    let rate = |flow: &Flow| {
        let known = before.flows.iter().find(|old| old.stream == flow.stream);
        let old = known.map_or(0, |old| old.acknowledged);
        flow.acknowledged.saturating_sub(old) as f64 / seconds
    };
    now.flows.iter().map(rate).collect()
}

/// The pace that leaves small streams room and takes it from the largest: where
/// all send the less of it and [`ROOM`] times what they send now, they send
/// [`TOGETHER`] times what they do now. Never less than `factor` times a share of
/// what the path carried at its `peak`, in bytes per second.
fn level(rates: &[f64], peak: f64, factor: f64) -> f64 {
    let total: f64 = rates.iter().sum();
    let mut room: Vec<f64> = rates.iter().map(|rate| rate * ROOM).collect();
    room.sort_by(f64::total_cmp);
    let mut left = total * TOGETHER;
    let mut filled = 0.0;
    for (at, small) in room.iter().enumerate() {
        let share = left / (room.len() - at) as f64;
        if share <= *small {
            filled = share;
            break;
        }
        left -= small;
        filled = *small;
    }
    filled.max(peak.max(total) * factor / rates.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Streams that acknowledge at these rates in bytes per second.
    struct Path {
        now: Duration,
        acknowledged: Vec<f64>,
    }

    impl Path {
        fn new(streams: usize) -> Path {
            Path {
                now: Duration::ZERO,
                acknowledged: vec![0.0; streams],
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
                acknowledged: *bytes as u64,
                rtt: RTT + queue,
                minimum_rtt: RTT,
            };
            let flows = self.acknowledged.iter().enumerate().map(flow).collect();
            leveller.handle_look(Moment(0) + self.now, flows)
        }
    }

    #[test]
    fn an_empty_path_has_no_bound() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        for step in 0..50 {
            let rate = 1e5 * f64::from(step);
            assert!(!path.look(&mut leveller, &[rate; 4], Duration::ZERO));
            assert_eq!(leveller.pace(), None);
        }
    }

    #[test]
    fn a_path_that_was_just_filled_is_held_at_what_it_carries() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        for _ in 0..8 {
            path.look(&mut leveller, &[25e6; 4], Duration::ZERO);
        }
        path.look(&mut leveller, &[25e6; 4], RTT / 4);
        let held = leveller.pace().unwrap() as f64;
        assert!((25e6..26e6).contains(&held), "{held}");
        // Later each may have more than its share, and windows can grow.
        for _ in 0..40 {
            path.look(&mut leveller, &[25e6; 4], RTT / 4);
        }
        let level = leveller.pace().unwrap() as f64;
        assert!((28e6..30e6).contains(&level), "{level}");
        // The queue is gone: so is the bound.
        assert!(path.look(&mut leveller, &[20e6; 4], Duration::ZERO));
        assert_eq!(leveller.pace(), None);
    }

    #[test]
    fn the_largest_gives_way_to_the_small_and_all_together_lose_nothing() {
        let mut rates = [10e6; 8];
        rates[3] = 730e6;
        let pace = level(&rates, 0.0, LEVEL);
        let total: f64 = rates.iter().sum();
        assert!(pace < rates[3] && pace > total / 8.0, "{pace}");
        let may: f64 = rates.iter().map(|rate| (rate * ROOM).min(pace)).sum();
        assert!((may / total - TOGETHER).abs() < 1e-9, "{may} of {total}");
    }

    #[test]
    fn a_rate_that_falls_does_not_lower_the_bound_with_it() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        for _ in 0..40 {
            path.look(&mut leveller, &[25e6; 4], RTT / 4);
        }
        let mut rate = 25e6;
        for _ in 0..200 {
            path.look(&mut leveller, &[rate; 4], RTT / 2);
            rate *= 0.9;
            assert!(leveller.pace().is_none_or(|pace| pace >= 27_000_000));
        }
    }

    #[test]
    fn a_path_with_jitter_is_still_filled() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        // Round trips always seem to have a queue; the path carries 100 MB/s.
        let mut rate: f64 = 5e5;
        let mut looks = 0;
        while rate < 25e6 {
            for _ in 0..2 {
                path.look(&mut leveller, &[rate; 4], RTT / 3);
            }
            // Windows double in a round trip of four looks, or less by the pace.
            let pace = leveller.pace().map_or(f64::INFINITY, |pace| pace as f64);
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
                    acknowledged: acknowledged[number] as u64,
                    rtt: least + if first { queue } else { Duration::ZERO },
                    minimum_rtt: least,
                };
                (ends(u8::from(first)), flow)
            };
            levellers.handle_look(at, (0..4).map(flow).collect());
        }
        let pace = levellers.pace(ends(1)).unwrap() as f64;
        assert!((25e6..40e6).contains(&pace), "{pace}");
        assert_eq!(levellers.pace(ends(0)), None);
        // Its streams are gone, and so is the bound.
        assert!(levellers.handle_look(Moment(2_000_000_000), Vec::new()));
        assert_eq!(levellers.pace(ends(1)), None);
    }

    #[test]
    fn an_acknowledgement_that_was_held_back_is_no_queue() {
        let (mut path, mut leveller) = (Path::new(4), Leveller::default());
        for _ in 0..40 {
            path.look(&mut leveller, &[1e5; 4], Duration::from_millis(40));
            assert_eq!(leveller.pace(), None);
        }
    }

    #[test]
    fn silence_and_short_paths_have_no_bound() {
        assert_eq!(level(&[], 0.0, LEVEL), 0.0);
        let mut leveller = Leveller::default();
        for step in 1..20 {
            let flow = Flow {
                stream: StreamId(0),
                acknowledged: step << 20,
                rtt: Duration::from_millis(4),
                minimum_rtt: Duration::from_micros(400),
            };
            let at = Moment(step * 10_000_000);
            assert!(!leveller.handle_look(at, vec![flow]));
        }
        assert_eq!(leveller.pace(), None);
    }
}
