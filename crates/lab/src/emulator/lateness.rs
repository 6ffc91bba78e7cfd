//! Lateness of the emulator itself: the delay that it adds to the configured path.

use std::time::Duration;

/// Upper bounds of the histogram classes in microseconds. A last class has no bound. The
/// steps are 1-2-5, from a fast wake-up to a delay that spoils any measurement.
pub const BOUNDS: [u64; 13] = [
    5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000,
];

/// Histogram of the lateness of packets: time of writing minus due time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Number of packets per class of [`BOUNDS`], and of packets beyond the last bound.
    pub counts: [u64; BOUNDS.len() + 1],
    /// Greatest lateness.
    pub greatest: Duration,
}

impl Lateness {
    /// Adds one packet with its lateness.
    pub fn add(&mut self, late: Duration) {
        let microseconds = late.as_micros();
        let class = BOUNDS
            .iter()
            .position(|bound| microseconds < u128::from(*bound))
            .unwrap_or(BOUNDS.len());
        self.counts[class] += 1;
        self.greatest = self.greatest.max(late);
    }

    /// Returns the number of packets.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns an upper bound of the lateness quantile `share` (0 to 1): the bound of the
    /// class, or the greatest lateness if that is less.
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

    /// Returns the fraction of packets (0 to 1) at or above `microseconds`, which must be
    /// a value of [`BOUNDS`].
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
