//! A delay that wanders.
//!
//! Delays drawn anew for each packet and kept in order would all become the longest one once
//! packets are close together: every packet waits for the slowest before it. So the delay is a
//! function of time, as with cross traffic: a new value, evenly distributed, at intervals, and a
//! straight line in between.

use std::time::Duration;

use longhaul_units::{Moment, fraction_of, number_at};

/// Queues of routers under changing load change within milliseconds.
const SHORTEST_STEP: u64 = 10_000_000;

/// How the delay wanders.
#[derive(Clone, Debug)]
pub struct Jitter {
    /// To either side, nanoseconds.
    greatest: u64,
    /// From value to value, nanoseconds: at least four times the jitter, so
    /// that the delay never falls faster than half of time passes, and order
    /// stays.
    step: u64,
    seed: u64,
}

impl Jitter {
    pub fn new(greatest: Duration, seed: u64) -> Jitter {
        let greatest = u64::try_from(greatest.as_nanos()).unwrap_or(u64::MAX);
        Jitter {
            greatest,
            step: SHORTEST_STEP.max(greatest.saturating_mul(4)),
            seed,
        }
    }

    /// When what left at a moment arrives.
    pub fn apply(&self, left: Moment, delay: Duration) -> Moment {
        let arrival = left + delay;
        if self.greatest == 0 {
            return arrival;
        }
        let place = left.0 / self.step;
        let along = (left.0 % self.step) as f64 / self.step as f64;
        let from = self.value(place);
        let shift = (from + (self.value(place + 1) - from) * along).round() as i64;
        Moment(arrival.0.saturating_add_signed(shift))
    }

    /// Evenly distributed within the jitter to either side, in nanoseconds.
    fn value(&self, place: u64) -> f64 {
        (fraction_of(number_at(self.seed, place)) * 2.0 - 1.0) * self.greatest as f64
    }
}
