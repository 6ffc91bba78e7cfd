//! The least of what was seen of late.

use std::time::Duration;

use crate::Moment;

/// The least span of time that was seen, of now and of the time before: what was seen longer
/// ago than once to twice a half counts no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastSpan {
    since: Moment,
    now: Duration,
    before: Option<Duration>,
}

impl LeastSpan {
    /// Begins with what is seen first.
    pub fn new(at: Moment, seen: Duration) -> LeastSpan {
        LeastSpan {
            since: at,
            now: seen,
            before: None,
        }
    }

    /// Begins with what was `known` from before as well.
    pub fn with_known(at: Moment, seen: Duration, known: Duration) -> LeastSpan {
        LeastSpan {
            before: Some(known),
            ..LeastSpan::new(at, seen)
        }
    }

    /// Takes what is seen now, where a half `lasts` so long; without, all counts.
    pub fn learn(&mut self, at: Moment, seen: Duration, lasts: Option<Duration>) {
        if lasts.is_some_and(|lasts| at - self.since >= lasts) {
            *self = LeastSpan::with_known(at, seen, self.now);
        }
        self.now = self.now.min(seen);
    }

    /// The least.
    pub fn get(&self) -> Duration {
        self.before.map_or(self.now, |before| before.min(self.now))
    }

    /// The least, once there are two halves; none before.
    pub fn of_both(&self) -> Option<Duration> {
        self.before.map(|before| before.min(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_before_both_halves_counts_no_more() {
        let ms = Duration::from_millis;
        let at = |seconds: u64| Moment(0) + Duration::from_secs(seconds);
        let half = Some(Duration::from_secs(10));
        let mut least = LeastSpan::new(at(0), ms(5));
        assert_eq!((least.get(), least.of_both()), (ms(5), None));
        for second in 1..20 {
            least.learn(at(second), ms(9), half);
            assert_eq!(least.get(), ms(5));
        }
        assert_eq!(least.of_both(), Some(ms(5)));
        least.learn(at(20), ms(8), half);
        assert_eq!(least.get(), ms(8));
        // Without an end the first counts for ever.
        let mut least = LeastSpan::with_known(at(0), ms(5), ms(3));
        least.learn(at(9999), ms(4), None);
        assert_eq!(least.get(), ms(3));
    }
}
