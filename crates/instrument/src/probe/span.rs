//! Duration of a session's measurement, computed without a clock.

use std::time::Duration;

use super::trial::Seen;

/// State of a measurement, in time since the session began.
#[derive(Clone, Debug)]
pub struct Span {
    /// Number of streams to wait for, at most the number that the daemon allows.
    streams: u32,
    time: Duration,
    patience: Duration,
    /// Time at which acknowledged data were first seen.
    first: Option<Duration>,
}

impl Span {
    /// Creates a span of `time` since the first acknowledged data, and up to `patience`
    /// more until this many streams carried data.
    pub fn new(streams: u32, time: Duration, patience: Duration) -> Span {
        Span {
            streams,
            time,
            patience,
            first: None,
        }
    }

    /// Returns the time to wait before the next check; `None` if the measurement is over.
    pub fn left(&mut self, now: Duration, seen: &Seen) -> Option<Duration> {
        if self.first.is_none() && seen.saw_data() {
            self.first = Some(now);
        }
        // Late data extend the measurement, but not beyond the patience.
        let limit = self.time + self.patience;
        let until = (self.first.unwrap_or_default() + self.time).min(limit);
        if now < until {
            return Some(until - now);
        }
        // The other end sends its observations four times a second, or less often if it is
        // busy.
        let trial = seen.trial(self.streams);
        let is_enough = trial.is_some_and(|trial| trial.most_streams >= self.streams as usize);
        (!is_enough && now < limit).then(|| limit - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::trial::seen_at;

    const MB: u64 = 1_000_000;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn span() -> Span {
        Span {
            streams: 1,
            time: seconds(1),
            patience: seconds(10),
            first: None,
        }
    }

    #[test]
    fn the_time_begins_with_the_first_data() {
        let mut span = span();
        let nothing = seen_at(&[]);
        assert_eq!(span.left(seconds(0), &nothing), Some(seconds(1)));
        // No data within the time: the patience applies.
        assert_eq!(span.left(seconds(3), &nothing), Some(seconds(8)));
        let opened = seen_at(&[(30, 0), (35, 5_000)]);
        assert_eq!(span.left(seconds(3), &opened), Some(seconds(8)));
        let data = seen_at(&[(30, 0), (35, 5 * MB)]);
        assert_eq!(span.left(seconds(4), &data), Some(seconds(1)));
        let more = seen_at(&[(30, 0), (35, 5 * MB), (40, 6 * MB), (45, 7 * MB)]);
        assert_eq!(span.left(seconds(5), &more), None);
    }

    #[test]
    fn late_data_extend_the_measurement_up_to_the_patience() {
        let mut span = Span {
            time: seconds(60),
            ..span()
        };
        assert_eq!(span.left(seconds(69), &seen_at(&[])), Some(seconds(1)));
        let late = seen_at(&[(680, 0), (690, 5 * MB)]);
        assert_eq!(span.left(seconds(69), &late), Some(seconds(1)));
        assert_eq!(span.left(seconds(70), &late), None);
    }

    #[test]
    fn few_samples_extend_the_measurement_up_to_the_patience() {
        let mut span = span();
        let once = seen_at(&[(1, 0), (2, 7 * MB)]);
        assert_eq!(span.left(seconds(1), &once), Some(seconds(1)));
        assert_eq!(span.left(seconds(2), &once), Some(seconds(9)));
        assert_eq!(span.left(seconds(11), &once), None);
        // All streams must carry data.
        let mut span = Span {
            streams: 2,
            ..super::tests::span()
        };
        let one = seen_at(&[(2, 0), (4, 5 * MB), (6, 6 * MB), (10, 7 * MB)]);
        assert_eq!(span.left(seconds(1), &one), Some(seconds(1)));
        assert_eq!(span.left(seconds(2), &one), Some(seconds(9)));
        let mut span = super::tests::span();
        assert_eq!(span.left(seconds(11), &seen_at(&[])), None);
    }
}
