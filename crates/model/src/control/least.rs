//! The least round-trip time of each path: the time without a queue.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_units::{LeastSpan, Moment};

use super::measure::RoundTrips;

/// The least round-trip time of one path.
#[derive(Clone, Copy, Debug)]
struct Least {
    span: LeastSpan,
    /// Least round-trip time of the previous route, if packets now take a longer one. The minimum
    /// that a kernel keeps includes both routes.
    rerouted_from: Option<Duration>,
}

impl Least {
    fn get(&self) -> Duration {
        self.span.get()
    }

    /// Returns the round-trip time that represents the current route.
    fn seen(&self, trips: &RoundTrips) -> Duration {
        match self.rerouted_from {
            Some(_) => trips.mean,
            None => trips.least,
        }
    }

    /// True if packets take the previous route again.
    fn is_back(&self, trips: &RoundTrips) -> bool {
        let halfway = |from: Duration| (self.get() + from) / 2;
        let from = self.rerouted_from;
        from.is_some_and(|from| trips.mean < halfway(from))
    }
}

/// The least round-trip times of the paths in use.
#[derive(Clone, Debug)]
pub struct LeastRoundTrips {
    paths: BTreeMap<u32, Least>,
    longest: Duration,
    /// Values older than one to two times this are discarded. Without it, none are.
    lasts: Option<Duration>,
}

impl LeastRoundTrips {
    /// Starts with the handshake's round-trip time.
    pub fn new(handshake: Duration, lasts: Option<Duration>) -> LeastRoundTrips {
        LeastRoundTrips {
            paths: BTreeMap::new(),
            longest: handshake,
            lasts,
        }
    }

    /// Adds the current round-trip times of the streams on each path.
    pub fn learn(&mut self, seen: &BTreeMap<u32, RoundTrips>, at: Moment) {
        // If there was only one path, the time known before belongs to it.
        let known = (self.paths.is_empty() && seen.len() == 1).then_some(self.longest);
        self.paths.retain(|path, _| seen.contains_key(path));
        for (path, trips) in seen {
            let least = self.paths.entry(*path).or_insert(Least {
                span: LeastSpan::with_known(at, trips.least, known.unwrap_or(trips.least)),
                rerouted_from: None,
            });
            if least.is_back(trips) {
                least.rerouted_from = None;
            }
            let seen = least.seen(trips);
            least.span.learn(at, seen, self.lasts);
        }
        self.find_longest();
    }

    /// Sets the round-trip time of a path that changed to a longer route. Earlier values belong to
    /// the old route.
    pub fn reroute(&mut self, path: u32, rtt: Duration, at: Moment) {
        let known = self.paths.get(&path);
        let first = known.map(|known| known.rerouted_from.unwrap_or(known.get()));
        let least = Least {
            span: LeastSpan::new(at, rtt),
            rerouted_from: Some(first.unwrap_or(rtt)),
        };
        self.paths.insert(path, least);
        self.find_longest();
    }

    /// Restores the times before all route changes, because the cause was a constant queue.
    pub fn undo_reroutes(&mut self, at: Moment) {
        for least in self.paths.values_mut() {
            if let Some(from) = least.rerouted_from.take() {
                least.span = LeastSpan::new(at, from);
            }
        }
        self.find_longest();
    }

    fn find_longest(&mut self) {
        let longest = self.paths.values().map(Least::get).max();
        self.longest = longest.unwrap_or(self.longest);
    }

    /// Returns the time of a path, or `None` if no stream has measured it.
    pub fn get(&self, path: u32) -> Option<Duration> {
        self.paths.get(&path).map(Least::get)
    }

    /// Returns the time of the longest path, after which all paths have reacted.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(milliseconds: &[(u32, u64)]) -> BTreeMap<u32, RoundTrips> {
        let trips = |least| RoundTrips {
            least,
            mean: least,
            burst: Duration::ZERO,
        };
        let of = |(path, rtt): &(u32, u64)| (*path, trips(Duration::from_millis(*rtt)));
        milliseconds.iter().map(of).collect()
    }

    fn at(seconds: u64) -> Moment {
        Moment(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn on_a_new_route_the_minimum_of_the_kernel_is_ignored() {
        let ms = Duration::from_millis;
        let first = seen(&[(0, 20)]);
        let with_mean = |mean| {
            let trips = RoundTrips { mean, ..first[&0] };
            BTreeMap::from([(0, trips)])
        };
        let mut least = LeastRoundTrips::new(ms(20), None);
        least.learn(&first, at(1));
        least.reroute(0, ms(120), at(2));
        least.learn(&with_mean(ms(121)), at(3));
        assert_eq!(least.get(0), Some(ms(120)));
        assert_eq!(least.longest(), ms(120));
        // Packets take the first route again, with a queue.
        least.learn(&with_mean(ms(60)), at(4));
        assert_eq!(least.get(0), Some(ms(20)));
        // The longer route was a queue.
        least.reroute(0, ms(120), at(5));
        least.undo_reroutes(at(6));
        assert_eq!((least.get(0), least.longest()), (Some(ms(20)), ms(20)));
    }

    #[test]
    fn the_handshake_counts_on_the_only_path() {
        let handshake = Duration::from_millis(40);
        let mut least = LeastRoundTrips::new(handshake, None);
        least.learn(&seen(&[(0, 70)]), at(1));
        assert_eq!(least.get(0), Some(handshake));
        let mut least = LeastRoundTrips::new(handshake, None);
        least.learn(&seen(&[(0, 70), (1, 90)]), at(1));
        assert_eq!(least.get(0), Some(Duration::from_millis(70)));
        assert_eq!(least.longest(), Duration::from_millis(90));
        least.learn(&seen(&[]), at(2));
        assert_eq!(least.get(0), None);
        assert_eq!(least.longest(), Duration::from_millis(90));
    }

    #[test]
    fn old_values_are_discarded_if_a_limit_is_set() {
        let handshake = Duration::from_millis(40);
        let lasts = Duration::from_secs(600);
        for (lasts, last) in [(Some(lasts), 70), (None, 40)] {
            let mut least = LeastRoundTrips::new(handshake, lasts);
            for second in 0..1300 {
                least.learn(&seen(&[(0, 70)]), at(second));
                if second < 600 {
                    assert_eq!(least.longest(), handshake);
                }
            }
            assert_eq!(least.get(0), Some(Duration::from_millis(last)), "{lasts:?}");
        }
    }
}
