//! Estimates the round trip of the current route if the kernel remembers that of a shorter one.
//!
//! A kernel's minimum round trip is valid for five minutes (`net.ipv4.tcp_min_rtt_wlen`). If
//! packets take a longer route meanwhile, the difference looks like a queue that never drains.
//! Coupled streams keep their queue short, so the round trips of the last seconds show the new
//! route.

use std::time::Duration;

use longhaul_units::{LeastSpan, Moment};

/// Observations expire after one to two times this span.
const LATELY: Duration = Duration::from_secs(6);

/// Factor by which recent round trips must exceed the kernel's minimum to count as another route.
const LONGER: u32 = 2;

/// Minimum smoothed round trip of the last seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentRtt(Option<LeastSpan>);

impl RecentRtt {
    /// Records the current minimum of the smoothed round trips.
    pub fn learn(&mut self, at: Moment, seen: Duration) {
        let least = self.0.get_or_insert(LeastSpan::new(at, seen));
        least.learn(at, seen, Some(LATELY));
    }

    /// Returns the path's round trip, given the kernel's minimum `known`.
    pub fn round_trip(&self, known: Duration) -> Duration {
        let recent = self.0.and_then(|least| least.of_both());
        recent
            .filter(|recent| *recent >= known * LONGER)
            .unwrap_or(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_route_counts_after_seconds_without_shorter_round_trips() {
        let ms = Duration::from_millis;
        let mut recent = RecentRtt::default();
        let mut at = |seconds: u64, rtt: u64| {
            recent.learn(Moment(seconds * 1_000_000_000), ms(rtt));
            recent.round_trip(ms(20))
        };
        for seconds in 0..10 {
            assert_eq!(at(seconds, 22), ms(20));
        }
        let seen: Vec<u64> = (10..30)
            .map(|seconds| at(seconds, 121).as_millis() as u64)
            .collect();
        // Both halves of the observed span must be from the longer route.
        let first = seen.iter().position(|rtt| *rtt == 121).unwrap();
        assert!((6..=13).contains(&first), "{seen:?}");
        assert!(seen[first..].iter().all(|rtt| *rtt == 121), "{seen:?}");
        // The round trip of the first route, or less than twice as long.
        assert_eq!(at(30, 39), ms(20));
    }
}
