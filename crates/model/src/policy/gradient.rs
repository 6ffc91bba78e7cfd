//! An online hill climber with Falcon's published utility (Arifuzzaman and Arslan, "Online
//! optimization of file transfers in high-speed networks", SC '21). It changes the number of flows
//! while the transfer runs and keeps changes that raise the utility.
//!
//! The state machine has no clock: the caller measures for any time (Falcon: 3 to 5 s per sample)
//! and reports the result.

/// K in the utility U(n) = n·t/Kⁿ - n·t·L·B, where n·t is the rate of n flows: the minimum gain of
/// a further flow. Falcon, section 3.1: with K = 1.02 the maximum of the utility stays below a
/// hundred flows.
pub const FLOW_PENALTY: f64 = 1.02;

/// B in the same utility: the weight of the loss L.
pub const LOSS_PENALTY: f64 = 10.0;

/// Maximum step in flows. Steps grow by one while the direction stays the same.
const LONGEST_STEP: u32 = 16;

/// Returns Falcon's utility of `flows` flows with a total rate of `rate` and a loss of `loss`.
pub fn utility(flows: u32, rate: f64, loss: f64) -> f64 {
    rate / FLOW_PENALTY.powf(f64::from(flows)) - rate * loss * LOSS_PENALTY
}

/// The neighbour that is measured next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sample {
    /// One flow fewer.
    Below,
    /// One flow more. Holds the utility of one flow fewer.
    Above(f64),
}

/// The climber. It measures one flow fewer and one flow more than the current number, and moves in
/// the direction of the higher utility, with longer steps while the direction stays the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Climber {
    flows: u32,
    most: u32,
    sample: Sample,
    /// Direction of the last step: 1, -1 or 0.
    direction: i64,
    step: u32,
}

impl Climber {
    /// Starts with `flows` and never exceeds `most`; both are at least 1.
    pub fn new(flows: u32, most: u32) -> Climber {
        let most = most.max(1);
        Climber {
            flows: flows.clamp(1, most),
            most,
            sample: Sample::Below,
            direction: 0,
            step: 1,
        }
    }

    /// Returns the number of flows around which it measures.
    pub fn centre(&self) -> u32 {
        self.flows
    }

    /// Returns the number of flows for the next measurement.
    pub fn flows(&self) -> u32 {
        match self.sample {
            Sample::Below => self.flows.saturating_sub(1).max(1),
            Sample::Above(_) => (self.flows + 1).min(self.most),
        }
    }

    /// Adds the measurement with [`Climber::flows`] flows: the rate in bytes per second, and the
    /// share lost.
    pub fn measured(&mut self, rate: f64, loss: f64) {
        let found = utility(self.flows(), rate, loss);
        let below = match self.sample {
            Sample::Below => {
                self.sample = Sample::Above(found);
                return;
            }
            Sample::Above(below) => below,
        };
        self.sample = Sample::Below;
        let direction = match found.total_cmp(&below) {
            std::cmp::Ordering::Greater => 1,
            std::cmp::Ordering::Less => -1,
            std::cmp::Ordering::Equal => 0,
        };
        self.step = if direction == self.direction {
            (self.step + 1).min(LONGEST_STEP)
        } else {
            1
        };
        self.direction = direction;
        self.flows = match direction {
            1 => self.flows.saturating_add(self.step).min(self.most),
            -1 => self.flows.saturating_sub(self.step).max(1),
            _ => self.flows,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the climber after this many samples of a curve.
    fn after(samples: u32, mut climber: Climber, rate: impl Fn(u32) -> f64) -> Climber {
        for _ in 0..samples {
            let rate = rate(climber.flows());
            climber.measured(rate, 0.0);
        }
        climber
    }

    #[test]
    fn the_climber_reaches_a_full_path_and_stays_there() {
        let path = |flows: u32| f64::from(flows.min(20)) * 10e6;
        let mut climber = after(40, Climber::new(2, 128), path);
        for _ in 0..100 {
            climber = after(2, climber, path);
            assert!((17..=23).contains(&climber.centre()), "{climber:?}");
        }
    }

    #[test]
    fn the_climber_follows_a_changing_path() {
        let climber = after(60, Climber::new(2, 128), |flows| {
            f64::from(flows.min(30)) * 1e6
        });
        let climber = after(60, climber, |flows| f64::from(flows.min(8)) * 1e6);
        assert!((6..=11).contains(&climber.centre()), "{climber:?}");
    }

    #[test]
    fn loss_and_the_maximum_limit_the_climber() {
        assert!(utility(10, 1e9, 0.1) < utility(10, 1e9, 0.0));
        let climber = after(100, Climber::new(9, 4), |flows| f64::from(flows) * 1e6);
        assert_eq!(climber.centre(), 4);
        let climber = after(100, Climber::new(4, 4), |_| 1e6);
        assert!(climber.centre() <= 2);
    }
}
