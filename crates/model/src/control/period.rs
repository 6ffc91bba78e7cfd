//! What many spans together say.

use super::measure::{Bound, Measure};

/// Later tries are judged over so long, so that a window's ups and downs do
/// not count.
pub const LATER_SECONDS: f64 = 10.0;

/// What was longer ago counts for less: a path changes while it is used.
const REMEMBERED_SECONDS: f64 = 3.0 * LATER_SECONDS;

/// With fewer losses their rate is not known; beyond many, old ones are forgotten by half.
const FEW_LOSSES: f64 = 8.0;
const MANY_LOSSES: f64 = 64.0;

/// The time since streams changed last and settled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Period {
    /// How long it is.
    pub seconds: f64,
    bytes: f64,
    /// Seconds of spans that asked for streams.
    asked: f64,
    /// Seconds in which the path was full.
    pub full: f64,
}

impl Period {
    /// Adds a span and what bound it.
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

    /// Whether streams were asked for in a good part of it, and it is long
    /// enough to compare with.
    pub fn is_wanting(&self) -> bool {
        self.seconds >= LATER_SECONDS && self.asked >= self.seconds * 0.3
    }

    /// Mean rate in bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes / self.seconds.max(1e-9)
    }
}

/// Random loss, as far as it was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Times that a stream lost segments.
    pub events: f64,
    segments: f64,
}

impl Losses {
    /// Adds a span; what was long ago counts for less.
    pub fn add(&mut self, measure: &Measure) {
        self.events += f64::from(measure.loss_events);
        self.segments += measure.segments;
        if self.events > MANY_LOSSES {
            self.events /= 2.0;
            self.segments /= 2.0;
        }
    }

    /// Probability that a segment is lost, 0 to 1; `None` if too few were.
    pub fn probability(&self) -> Option<f64> {
        let known = self.events >= FEW_LOSSES && self.segments > 0.0;
        known.then(|| self.events / self.segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_long_ago_is_forgotten() {
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
