//! A delay that varies continuously with time.
//!
//! If the delay were drawn for each packet and the order kept, all packets would get the
//! longest delay once they are close together, because each waits for the slowest before
//! it. The delay is therefore a function of time, as with cross traffic: uniformly
//! distributed values at fixed intervals, with linear interpolation.

use std::time::Duration;

use longhaul_units::{Moment, fraction_of, number_at};

/// Minimum interval between values in nanoseconds. Queues of routers under changing load
/// change within milliseconds.
const SHORTEST_STEP: u64 = 10_000_000;

/// State of the jitter.
#[derive(Clone, Debug)]
pub struct Jitter {
    /// Maximum deviation in either direction, in nanoseconds.
    greatest: u64,
    /// Interval between values in nanoseconds: at least four times the jitter. The delay
    /// then decreases by at most half of the elapsed time, so that the order is kept.
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

    /// Returns the arrival time of a segment that left the line at `left`.
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

    /// Returns a uniformly distributed deviation in nanoseconds, within the jitter in
    /// either direction.
    fn value(&self, place: u64) -> f64 {
        (fraction_of(number_at(self.seed, place)) * 2.0 - 1.0) * self.greatest as f64
    }
}
