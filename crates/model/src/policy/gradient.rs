//! An online hill climber with Falcon's published utility (Arifuzzaman and Arslan, "Online
//! optimization of file transfers in high-speed networks", SC '21): it changes the number of flows
//! while the transfer runs and keeps what pays.
//!
//! The state machine has no clock: the caller measures for as long as it likes (Falcon: 3 to 5 s a
//! sample) and says what it found.

/// What a further flow must gain: U(n) = n·t/Kⁿ - n·t·L·B with n·t the rate of n flows. Falcon,
/// section 3.1: with K = 1.02 the utility's top stays within a hundred flows.
pub const FLOW_PENALTY: f64 = 1.02;

/// B of the same: how much a share of loss L counts.
pub const LOSS_PENALTY: f64 = 10.0;

/// Steps grow by one each time that the direction stays, up to that many flows.
const LONGEST_STEP: u32 = 16;

/// Falcon's utility of `flows` flows that carry `rate` together and lose a share `loss`.
pub fn utility(flows: u32, rate: f64, loss: f64) -> f64 {
    rate / FLOW_PENALTY.powf(f64::from(flows)) - rate * loss * LOSS_PENALTY
}

/// Which of two neighbours is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sample {
    /// One flow fewer.
    Below,
    /// One flow more, after the utility of one fewer is known.
    Above(f64),
}

/// The climber. It measures one flow fewer and one more than it has, goes where the utility rises,
/// and in longer steps while the direction stays.
#[derive(Clone, Debug, PartialEq)]
pub struct Climber {
    flows: u32,
    most: u32,
    sample: Sample,
    /// Up or down, and how often so.
    direction: i64,
    step: u32,
}

impl Climber {
    /// Begins with `flows` and never has more than `most`, both 1 or more.
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

    /// Flows around which it measures.
    pub fn centre(&self) -> u32 {
        self.flows
    }

    /// Flows to measure with next.
    pub fn flows(&self) -> u32 {
        match self.sample {
            Sample::Below => self.flows.saturating_sub(1).max(1),
            Sample::Above(_) => (self.flows + 1).min(self.most),
        }
    }

    /// What [`Climber::flows`] carried, in bytes per second, and the share that was lost.
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

    /// Where it is after some samples of a curve.
    fn after(samples: u32, mut climber: Climber, rate: impl Fn(u32) -> f64) -> Climber {
        for _ in 0..samples {
            let rate = rate(climber.flows());
            climber.measured(rate, 0.0);
        }
        climber
    }

    #[test]
    fn climbs_to_where_a_path_is_full_and_stays_around_it() {
        let path = |flows: u32| f64::from(flows.min(20)) * 10e6;
        let mut climber = after(40, Climber::new(2, 128), path);
        for _ in 0..100 {
            climber = after(2, climber, path);
            assert!((17..=23).contains(&climber.centre()), "{climber:?}");
        }
    }

    #[test]
    fn follows_a_path_that_changes() {
        let climber = after(60, Climber::new(2, 128), |flows| {
            f64::from(flows.min(30)) * 1e6
        });
        let climber = after(60, climber, |flows| f64::from(flows.min(8)) * 1e6);
        assert!((6..=11).contains(&climber.centre()), "{climber:?}");
    }

    #[test]
    fn loss_and_bounds_hold_it() {
        assert!(utility(10, 1e9, 0.1) < utility(10, 1e9, 0.0));
        let climber = after(100, Climber::new(9, 4), |flows| f64::from(flows) * 1e6);
        assert_eq!(climber.centre(), 4);
        let climber = after(100, Climber::new(4, 4), |_| 1e6);
        assert!(climber.centre() <= 2);
    }
}
