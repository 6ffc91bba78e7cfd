//! The way that packets take now, where kernels remember a shorter one.
//!
//! A kernel's least round trip holds for five minutes (`net.ipv4.tcp_min_rtt_wlen`). Where packets
//! have come to take a longer way meanwhile, what is beyond it looks like a queue that nothing
//! drains. Coupled streams keep their queue short: the round trips of some seconds would show it.

use std::time::Duration;

use longhaul_units::{LeastSpan, Moment};

/// What was seen longer ago than once to twice this counts no more.
const LATELY: Duration = Duration::from_secs(6);

/// A way is another one where the round trip was this many times what kernels remember, at least,
/// for so long.
const LONGER: u32 = 2;

/// The least smoothed round trip of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentRtt(Option<LeastSpan>);

impl RecentRtt {
    /// Takes the least smoothed round trip of now.
    pub fn learn(&mut self, at: Moment, seen: Duration) {
        let least = self.0.get_or_insert(LeastSpan::new(at, seen));
        least.learn(at, seen, Some(LATELY));
    }

    /// The round trip of the path, of which kernels remember `known`.
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
    fn a_longer_way_counts_once_it_is_all_that_was_seen_for_seconds() {
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
        // Both halves of what is remembered have to be of the longer way.
        let first = seen.iter().position(|rtt| *rtt == 121).unwrap();
        assert!((6..=13).contains(&first), "{seen:?}");
        assert!(seen[first..].iter().all(|rtt| *rtt == 121), "{seen:?}");
        // The first way, or less than twice as long.
        assert_eq!(at(30, 39), ms(20));
    }
}
