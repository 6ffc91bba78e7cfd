//! Detects that packets take a longer route than before.
//!
//! A longer round-trip time looks like a queue, and a path with a queue gets no more streams. The
//! differences: the length of a queue varies, and it does not exceed the queues that this transfer
//! filled before. A route has a constant delay, and carries less until the windows have grown.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use longhaul_units::Moment;

use super::least::LeastRoundTrips;
use super::measure::{Measure, RoundTrips};

/// Minimum time, and minimum number of round trips, for which the round-trip time of a new route
/// must be constant.
const STEADY: Duration = Duration::from_secs(4);
const STEADY_ROUND_TRIPS: u32 = 8;

/// Maximum variation of the round-trip time of a new route: its increase divided by this.
const WAVERS: u32 = 8;

/// Age of samples that represent the old route: minimum and maximum. A longer route is visible
/// within the minimum age or not at all. A later increase can be a queue.
const BEFORE: (Duration, Duration) = (Duration::from_secs(12), Duration::from_secs(72));

/// Interval of which only the highest sample is kept.
const MOMENT: Duration = Duration::from_millis(250);

/// Minimum increase of a longer route. A smaller increase does not make windows too small.
const LEAST_EXCESS: Duration = Duration::from_millis(5);

/// Ratio of the rate to the highest recent rate below which the rate has fallen.
const FALLEN: f64 = 0.8;

/// Half-life of the highest recent rate in seconds.
const HALF_LIFE_SECONDS: f64 = 60.0;

/// Maximum loss on a longer route. A full queue of few streams, whose length would also be
/// constant, loses more.
const MOST_LOSS: f64 = 0.005;

/// The smoothed round-trip time of one path over time.
#[derive(Clone, Debug)]
struct Trend {
    /// Time since when the round-trip time is between `low` and `high`.
    since: Moment,
    low: Duration,
    high: Duration,
    /// Highest value in each interval.
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

    /// Returns the highest value on the old route, or `None` if there are no samples of that age.
    fn highest_before(&self, at: Moment) -> Option<Duration> {
        let before = self.highest.iter().filter(|seen| at - seen.0 > BEFORE.0);
        before.map(|seen| seen.1).max()
    }

    /// Returns the round-trip time of the longer route, if there is one.
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

/// The routes of all paths.
#[derive(Clone, Debug, Default)]
pub struct Reroutes {
    paths: BTreeMap<u32, Trend>,
    /// Highest recent rate in bytes per second.
    carried: f64,
}

impl Reroutes {
    /// Adds the current round-trip times of the streams on each path. `least` has the least ones.
    pub fn look(&mut self, seen: &BTreeMap<u32, RoundTrips>, least: &LeastRoundTrips, at: Moment) {
        self.paths.retain(|path, _| seen.contains_key(path));
        for (path, trips) in seen {
            let known = least.get(*path).unwrap_or(trips.least);
            let trend = self.paths.entry(*path);
            let trend = trend.or_insert_with(|| Trend::new(trips.mean, at));
            trend.add(trips.mean, known, at);
        }
    }

    /// Adds the rate of a span.
    pub fn carry(&mut self, measure: &Measure) {
        let kept = 0.5_f64.powf(measure.seconds / HALF_LIFE_SECONDS);
        self.carried = (self.carried * kept).max(measure.bytes_per_second);
    }

    /// True if the rate of a span is below the recent rates.
    pub fn has_fallen(&self, measure: &Measure) -> bool {
        measure.bytes_per_second < self.carried * FALLEN
    }

    /// Returns paths with a longer route and their round-trip times. The caller calls this at the
    /// end of a span with an apparent queue.
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

    /// Discards the samples of a path, which belong to the old route.
    pub fn forget(&mut self, path: u32) {
        self.paths.remove(&path);
    }

    /// Returns the highest recent rate in bytes per second.
    pub fn carried(&self) -> f64 {
        self.carried
    }
}
