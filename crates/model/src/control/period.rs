//! Statistics over several spans.

use super::measure::{Bound, Measure};

/// Minimum time in seconds over which later trials are judged, so that the variation of windows
/// averages out.
pub const LATER_SECONDS: f64 = 10.0;

/// Time in seconds after which older spans count less, because a path changes.
const REMEMBERED_SECONDS: f64 = 3.0 * LATER_SECONDS;

/// Minimum number of losses for a known probability, and number above which older losses count
/// half.
const FEW_LOSSES: f64 = 8.0;
const MANY_LOSSES: f64 = 64.0;

/// The time since the streams last changed and settled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Period {
    /// Length of the period in seconds.
    pub seconds: f64,
    bytes: f64,
    /// Seconds in spans in which more streams could have helped.
    asked: f64,
    /// Seconds in which the path was full.
    pub full: f64,
}

impl Period {
    /// Adds a span and its bottleneck.
    pub fn add(&mut self, bound: Bound, measure: &Measure) {
        self.seconds += measure.seconds;
        self.bytes += measure.bytes_per_second * measure.seconds;
        if bound.may_need_streams() {
            self.asked += measure.seconds;
        }
        if bound == Bound::Path {
            self.full += measure.seconds;
        }
        if self.seconds > REMEMBERED_SECONDS {
            for sum in [
                &mut self.seconds,
                &mut self.bytes,
                &mut self.asked,
                &mut self.full,
            ] {
                *sum /= 2.0;
            }
        }
    }

    /// True if more streams could have helped in at least 30 % of the period, and the period is
    /// long enough to compare with.
    pub fn is_wanting(&self) -> bool {
        self.seconds >= LATER_SECONDS && self.asked >= self.seconds * 0.3
    }

    /// Returns the mean rate in bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes / self.seconds.max(1e-9)
    }
}

/// Observations of random loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Number of times that a stream lost segments.
    pub events: f64,
    segments: f64,
}

impl Losses {
    /// Adds a span. Older spans count less.
    pub fn add(&mut self, measure: &Measure) {
        self.events += f64::from(measure.loss_events);
        self.segments += measure.segments;
        if self.events > MANY_LOSSES {
            self.events /= 2.0;
            self.segments /= 2.0;
        }
    }

    /// Returns the probability that a segment is lost, 0 to 1, or `None` if there were too few
    /// losses.
    pub fn probability(&self) -> Option<f64> {
        let known = self.events >= FEW_LOSSES && self.segments > 0.0;
        known.then(|| self.events / self.segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_spans_are_discarded() {
        let mut period = Period::default();
        let second = |rate| Measure {
            seconds: 1.0,
            bytes_per_second: rate,
            ..Measure::default()
        };
        for _ in 0..600 {
            period.add(Bound::Path, &second(1e9));
        }
        assert!(!period.is_wanting() && period.full >= period.seconds * 0.9);
        for _ in 0..20 {
            period.add(Bound::Window, &second(5e8));
        }
        assert!(period.is_wanting() && period.full < period.seconds * 0.9);
        assert!(period.rate() < 8e8, "{}", period.rate());
    }
}
