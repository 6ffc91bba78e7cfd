//! A minimum over a sliding window of time.

use std::time::Duration;

use crate::Moment;

/// The shortest of recently measured spans of time. The window has two parts: the current one and
/// the one before. When the current part has lasted long enough, the older part is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastSpan {
    since: Moment,
    now: Duration,
    before: Option<Duration>,
}

impl LeastSpan {
    /// Starts with a first measurement at time `at`.
    pub fn new(at: Moment, seen: Duration) -> LeastSpan {
        LeastSpan {
            since: at,
            now: seen,
            before: None,
        }
    }

    /// Starts with a first measurement at time `at` and an earlier minimum, `known`.
    pub fn with_known(at: Moment, seen: Duration, known: Duration) -> LeastSpan {
        LeastSpan {
            before: Some(known),
            ..LeastSpan::new(at, seen)
        }
    }

    /// Adds a measurement at time `at`. If the current part of the window began at least `lasts`
    /// ago, a new part begins. Without `lasts`, no measurement is ever discarded.
    pub fn learn(&mut self, at: Moment, seen: Duration, lasts: Option<Duration>) {
        if lasts.is_some_and(|lasts| at - self.since >= lasts) {
            *self = LeastSpan::with_known(at, seen, self.now);
        }
        self.now = self.now.min(seen);
    }

    /// Returns the shortest span in the window.
    pub fn get(&self) -> Duration {
        self.before.map_or(self.now, |before| before.min(self.now))
    }

    /// Returns the shortest span in the window if both parts have measurements.
    pub fn of_both(&self) -> Option<Duration> {
        self.before.map(|before| before.min(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_older_than_both_parts_are_discarded() {
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
        // Without `lasts`, the first measurement is never discarded.
        let mut least = LeastSpan::with_known(at(0), ms(5), ms(3));
        least.learn(at(9999), ms(4), None);
        assert_eq!(least.get(), ms(3));
    }
}
