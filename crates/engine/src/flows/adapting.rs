//! Computes the number of flows that a layer needs from their utilisation. A superfluous flow costs
//! context switches and cached data: if reading takes half a thread, a second one took 13 % of a
//! copy's CPU time.

use std::time::Duration;

/// Utilisation above which there may be too few flows: their number is doubled.
const TOO_FEW: f64 = 0.85;

/// Utilisation that a smaller number of flows may have. It is below `TOO_FEW`, so that the number
/// does not oscillate.
const ENOUGH: f64 = 0.7;

/// Minimum time between two adaptations.
const SPAN: Duration = Duration::from_millis(100);

/// Adapts the number of a layer's flows. Waiting for a disk counts as work, so a slow disk gets the
/// maximum number of flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adapting {
    most: usize,
    flows: usize,
    at: Duration,
    worked: Duration,
}

impl Adapting {
    /// Begins with one flow of at most `most`.
    pub(super) fn new(most: usize) -> Adapting {
        Adapting {
            most: most.max(1),
            flows: 1,
            at: Duration::ZERO,
            worked: Duration::ZERO,
        }
    }

    /// Returns the number of flows that there should be.
    pub(super) fn flows(&self) -> usize {
        self.flows
    }

    /// Returns the new number of flows, from 1 to the maximum. `worked` is the sum of the working
    /// times of all flows until `now`; both are since the layer began.
    pub(super) fn handle_look(&mut self, now: Duration, worked: Duration) -> usize {
        let span = now.saturating_sub(self.at);
        if span < SPAN {
            return self.flows;
        }
        let at_work = worked.saturating_sub(self.worked).as_secs_f64() / span.as_secs_f64();
        (self.at, self.worked) = (now, worked);
        let enough = (at_work / ENOUGH).ceil().max(1.0) as usize;
        self.flows = if at_work > TOO_FEW * self.flows as f64 {
            self.flows.saturating_mul(2).min(self.most)
        } else {
            self.flows.min(enough)
        };
        self.flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of flows for successive demands, in threads.
    fn numbers(most: usize, demands: &[f64]) -> Vec<usize> {
        let mut adapting = Adapting::new(most);
        let (mut now, mut worked, mut flows) = (Duration::ZERO, Duration::ZERO, 1);
        let look = |demand: &f64| {
            now += SPAN;
            worked += SPAN.mul_f64(demand.min(flows as f64));
            flows = adapting.handle_look(now, worked);
            flows
        };
        demands.iter().map(look).collect()
    }

    #[test]
    fn the_number_of_flows_follows_the_work() {
        assert_eq!(numbers(8, &[0.5, 0.5, 0.8]), [1, 1, 1]);
        assert_eq!(numbers(8, &[0.0, 5.0, 5.0, 5.0, 5.0]), [1, 2, 4, 8, 8]);
        assert_eq!(numbers(8, &[2.5, 2.5, 2.5, 1.0]), [2, 4, 4, 2]);
        assert_eq!(numbers(3, &[9.0, 9.0]), [2, 3]);
        assert_eq!(numbers(1, &[9.0, 0.0]), [1, 1]);
    }

    #[test]
    fn a_sufficient_number_of_flows_stays() {
        for tenths in 0..120 {
            let numbers = numbers(16, &[f64::from(tenths) / 10.0; 12]);
            assert_eq!(numbers[10], numbers[11], "{tenths}: {numbers:?}");
        }
    }

    #[test]
    fn a_short_span_changes_no_number() {
        let mut adapting = Adapting::new(4);
        let moment = SPAN / 4;
        assert_eq!(adapting.handle_look(moment, moment), 1);
        assert_eq!(adapting.handle_look(SPAN, SPAN), 2);
    }
}
