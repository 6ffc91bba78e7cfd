//! The least round trip of each path: what it takes without a queue.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_units::{LeastSpan, Moment};

use super::measure::RoundTrips;

/// One path's.
#[derive(Clone, Copy, Debug)]
struct Least {
    span: LeastSpan,
    /// The least of the way before, where packets take a longer one now: what kernels remember
    /// is of both.
    rerouted_from: Option<Duration>,
}

impl Least {
    fn get(&self) -> Duration {
        self.span.get()
    }

    /// Of what is seen now what says something of the way that packets take.
    fn seen(&self, trips: &RoundTrips) -> Duration {
        match self.rerouted_from {
            Some(_) => trips.mean,
            None => trips.least,
        }
    }

    /// Whether what is seen now is of the way before, rather than of the longer one.
    fn is_back(&self, trips: &RoundTrips) -> bool {
        let halfway = |from: Duration| (self.get() + from) / 2;
        let from = self.rerouted_from;
        from.is_some_and(|from| trips.mean < halfway(from))
    }
}

/// Those of the paths that streams have now.
#[derive(Clone, Debug)]
pub struct LeastRoundTrips {
    paths: BTreeMap<u32, Least>,
    longest: Duration,
    /// What was seen longer ago than once to twice this counts no more; without, all counts.
    lasts: Option<Duration>,
}

impl LeastRoundTrips {
    /// Begins with the handshake's round trip.
    pub fn new(handshake: Duration, lasts: Option<Duration>) -> LeastRoundTrips {
        LeastRoundTrips {
            paths: BTreeMap::new(),
            longest: handshake,
            lasts,
        }
    }

    /// Takes what streams on each path see now.
    pub fn learn(&mut self, seen: &BTreeMap<u32, RoundTrips>, at: Moment) {
        // Where there was one path only, what was known before is its own.
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

    /// The way of a path became longer: what was known of it was another's.
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

    /// No path's way became longer: it was a queue that did not waver.
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

    /// A path's; `None` if no stream on it has measured it.
    pub fn get(&self, path: u32) -> Option<Duration> {
        self.paths.get(&path).map(Least::get)
    }

    /// Of several paths the longest one's: how long it takes until all have shown something.
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
    fn on_another_way_what_kernels_remember_counts_no_more() {
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
        // Back on the first way, with a queue.
        least.learn(&with_mean(ms(60)), at(4));
        assert_eq!(least.get(0), Some(ms(20)));
        // It was none.
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
    fn what_was_seen_long_ago_counts_no_more_where_it_shall_not() {
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
