//! Notices that packets take a longer way than before.
//!
//! A round trip that has become longer looks like a queue, and a path that has a queue gets no
//! more streams. What tells them apart: a queue wavers, and is no longer than what the path's
//! own transfers have filled before; a way does not waver, and less is carried over it until
//! windows have grown.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longhaul_units::Moment;

use super::least::LeastRoundTrips;
use super::measure::{Measure, RoundTrips};

/// The round trip stays between two bounds for this time, or this many of its own.
const STEADY: Duration = Duration::from_secs(4);
const STEADY_ROUND_TRIPS: u32 = 8;

/// And these are no further from each other than this part of what it has become longer by.
const WAVERS: u32 = 8;

/// What was seen so long ago, and no longer than that, was on the way before. A longer way shows
/// itself within the first time or not at all: what fills later may be a queue.
const BEFORE: (Duration, Duration) = (Duration::from_secs(12), Duration::from_secs(72));

/// Of what is seen within this only the highest is remembered.
const MOMENT: Duration = Duration::from_millis(250);

/// By less than this nobody's windows are too small.
const LEAST_EXCESS: Duration = Duration::from_millis(5);

/// Less than this part of what was carried is carried.
const FALLEN: f64 = 0.8;

/// What was carried counts for half after this.
const HALF_LIFE_SECONDS: f64 = 60.0;

/// The full queue of few streams, which would not waver either, loses more than this part.
const MOST_LOSS: f64 = 0.005;

/// One path's smoothed round trip.
#[derive(Clone, Debug)]
struct Trend {
    /// Since when it is between the two.
    since: Moment,
    low: Duration,
    high: Duration,
    /// The highest of each moment.
    highest: VecDeque<(Moment, Duration)>,
}

impl Trend {
    fn new(mean: Duration, at: Moment) -> Trend {
        Trend {
            since: at,
            low: mean,
            high: mean,
            highest: VecDeque::new(),
        }
    }

    fn add(&mut self, mean: Duration, known: Duration, at: Moment) {
        match self.highest.back_mut() {
            Some(last) if at - last.0 < MOMENT => last.1 = last.1.max(mean),
            _ => self.highest.push_back((at, mean)),
        }
        while self
            .highest
            .front()
            .is_some_and(|first| at - first.0 > BEFORE.1)
        {
            self.highest.pop_front();
        }
        let (low, high) = (self.low.min(mean), self.high.max(mean));
        if high - low > low.saturating_sub(known) / WAVERS {
            (self.since, self.low, self.high) = (at, mean, mean);
        } else {
            (self.low, self.high) = (low, high);
        }
    }

    /// The highest on the way before; `None` if nothing was seen for so long.
    fn highest_before(&self, at: Moment) -> Option<Duration> {
        let before = self.highest.iter().filter(|seen| at - seen.0 > BEFORE.0);
        before.map(|seen| seen.1).max()
    }

    /// The round trip of the longer way, where it is one.
    fn longer(&self, known: Duration, at: Moment) -> Option<Duration> {
        let steady = STEADY.max(self.low * STEADY_ROUND_TRIPS);
        let is_steady = at - self.since >= steady && self.low >= known + LEAST_EXCESS;
        let is_new = || {
            self.highest_before(at)
                .is_some_and(|highest| self.low > highest)
        };
        (is_steady && is_new()).then_some(self.low)
    }
}

/// The ways of all paths.
#[derive(Clone, Debug, Default)]
pub struct Reroutes {
    paths: BTreeMap<u32, Trend>,
    /// The most that was carried of late, in bytes per second.
    carried: f64,
}

impl Reroutes {
    /// Takes what streams on each path see now, whose `least` round trips are known.
    pub fn look(&mut self, seen: &BTreeMap<u32, RoundTrips>, least: &LeastRoundTrips, at: Moment) {
        self.paths.retain(|path, _| seen.contains_key(path));
        for (path, trips) in seen {
            let known = least.get(*path).unwrap_or(trips.least);
            let trend = self.paths.entry(*path);
            let trend = trend.or_insert_with(|| Trend::new(trips.mean, at));
            trend.add(trips.mean, known, at);
        }
    }

    /// Takes what a span carried.
    pub fn carry(&mut self, measure: &Measure) {
        let kept = 0.5_f64.powf(measure.seconds / HALF_LIFE_SECONDS);
        self.carried = (self.carried * kept).max(measure.bytes_per_second);
    }

    /// Whether a span carried less than others of late.
    pub fn has_fallen(&self, measure: &Measure) -> bool {
        measure.bytes_per_second < self.carried * FALLEN
    }

    /// Paths that are longer now, with their round trips, at the end of a span in which a queue
    /// seemed to stand.
    pub fn find(
        &self,
        measure: &Measure,
        least: &LeastRoundTrips,
        at: Moment,
    ) -> Vec<(u32, Duration)> {
        if !self.has_fallen(measure) || measure.loss > MOST_LOSS {
            return Vec::new();
        }
        let longer = |(path, trend): (&u32, &Trend)| {
            let longer = trend.longer(least.get(*path)?, at)?;
            Some((*path, longer))
        };
        self.paths.iter().filter_map(longer).collect()
    }

    /// What was seen of a path was of the way before.
    pub fn forget(&mut self, path: u32) {
        self.paths.remove(&path);
    }

    /// The most that was carried of late, in bytes per second.
    pub fn carried(&self) -> f64 {
        self.carried
    }
}
