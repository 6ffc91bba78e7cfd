//! How late the emulator was itself: what it adds to a path that was asked for.

use std::time::Duration;

/// Upper bounds of the classes, in microseconds; a last class has no bound.
/// 1-2-5 steps from what a good wake-up takes to what no measurement survives.
pub const BOUNDS: [u64; 13] = [
    5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000,
];

/// How many packets were written how much later than their moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// A count for each class of [`BOUNDS`], and for what is beyond them.
    pub counts: [u64; BOUNDS.len() + 1],
    /// The greatest.
    pub greatest: Duration,
}

impl Lateness {
    /// A packet was so late.
    pub fn add(&mut self, late: Duration) {
        let microseconds = late.as_micros();
        let class = BOUNDS
            .iter()
            .position(|bound| microseconds < u128::from(*bound))
            .unwrap_or(BOUNDS.len());
        self.counts[class] += 1;
        self.greatest = self.greatest.max(late);
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// An upper bound of what this share (0 to 1) of packets was late at most:
    /// the bound of its class, or the greatest lateness where that is less.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.total() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (count, bound) in self.counts.iter().zip(BOUNDS) {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(bound).min(self.greatest);
            }
        }
        self.greatest
    }

    /// The share of packets that were later than a bound of [`BOUNDS`], 0 to 1.
    pub fn share_beyond(&self, microseconds: u64) -> f64 {
        let within: u64 = self
            .counts
            .iter()
            .zip(BOUNDS)
            .filter(|(_, bound)| *bound <= microseconds)
            .map(|(count, _)| count)
            .sum();
        let total = self.total();
        if total == 0 {
            return 0.0;
        }
        (total - within) as f64 / total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_class() {
        let mut lateness = Lateness::default();
        for microseconds in [1, 4, 5, 60, 70_000] {
            lateness.add(Duration::from_micros(microseconds));
        }
        assert_eq!(lateness.counts[0], 2);
        assert_eq!(lateness.counts[1], 1);
        assert_eq!(lateness.counts[BOUNDS.len()], 1);
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(10));
        assert_eq!(lateness.quantile(1.0), Duration::from_micros(70_000));
        assert_eq!(lateness.share_beyond(200), 0.2);
        assert_eq!(Lateness::default().share_beyond(200), 0.0);
    }
}
