//! A point in time as the state machines see it.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since an origin that whoever drives a state machine chooses
/// (a process start, or zero in a simulation); 0 to 2^64 - 1, which is 584
/// years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// The span since `earlier`, zero if that lies in the future.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        let nanoseconds = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanoseconds))
    }
}

impl Sub<Moment> for Moment {
    type Output = Duration;

    fn sub(self, earlier: Moment) -> Duration {
        self.since(earlier)
    }
}

/// A span of time that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSpanError(String);

impl fmt::Display for ParseSpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a time: write seconds, or a number with us, ms, s, min, h or d",
            self.0
        )
    }
}

impl std::error::Error for ParseSpanError {}

/// Reads a span of time: `90`, `1.5s`, `100ms`, `5min`, `14d`.
///
/// # Errors
///
/// Where the text is no number with a known unit, or beyond 584 years.
pub fn parse_span(text: &str) -> Result<Duration, ParseSpanError> {
    let error = || ParseSpanError(text.to_owned());
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(error()),
    };
    let seconds = number.parse::<f64>().map_err(|_| error())? * factor;
    if seconds > 584.0 * 365.0 * 86_400.0 {
        return Err(error());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_spans() {
        for (text, milliseconds) in [
            ("90", 90_000),
            ("1.5s", 1_500),
            ("100ms", 100),
            ("2min", 120_000),
        ] {
            assert_eq!(
                parse_span(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in ["", "s", "1 week", "-1s", "1e9d"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn never_wraps() {
        assert_eq!(Moment(u64::MAX) + Duration::from_secs(1), Moment(u64::MAX));
        assert_eq!(Moment(1).since(Moment(2)), Duration::ZERO);
    }
}
