//! Points in time for the state machines, and parsers for spans of time.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use crate::grammar::split;

/// Nanoseconds since an origin that the driver of a state machine chooses: the start of the
/// process, or zero in a simulation. Range: 0 to 2^64 - 1, about 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the span since `earlier`, or zero if `earlier` is later than `self`.
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

/// The text is not a valid span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSpanError {
    text: String,
    is_bare: bool,
}

impl fmt::Display for ParseSpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseSpanError { text, is_bare } = self;
        if *is_bare {
            write!(
                f,
                "\"{text}\" has no unit: write {text}ms, {text}s, {text}min, {text}h or {text}d"
            )
        } else {
            write!(
                f,
                "\"{text}\" is not a time: write a number with us, ms, s, min, h or d"
            )
        }
    }
}

impl std::error::Error for ParseSpanError {}

/// Longest span that [`parse_span`] accepts: 584 years, the range of a [`Moment`].
const LONGEST_SECONDS: f64 = 584.0 * 365.0 * 86_400.0;

/// Parses a span of time such as `1.5s`, `100ms`, `5min`, `14d` or `0`. A number other than 0 needs
/// a unit.
///
/// # Errors
///
/// [`ParseSpanError`] if the text is not a number with a known unit, or is longer than 584 years.
pub fn parse_span(text: &str) -> Result<Duration, ParseSpanError> {
    let error = |is_bare| ParseSpanError {
        text: text.to_owned(),
        is_bare,
    };
    let written = split(text).ok_or_else(|| error(false))?;
    let factor = match written.unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "" if !written.is_bare() => 1.0,
        "" => return Err(error(true)),
        _ => return Err(error(false)),
    };
    let seconds = written.value * factor;
    if seconds > LONGEST_SECONDS {
        return Err(error(false));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| error(false))
}

/// Parses a span like [`parse_span`], but accepts a number without a unit as seconds. For options
/// that work like this in other tools.
///
/// # Errors
///
/// The same as for [`parse_span`].
pub fn parse_span_or_seconds(text: &str) -> Result<Duration, ParseSpanError> {
    match parse_span(text) {
        Err(ParseSpanError { is_bare: true, .. }) => parse_span(&format!("{text}s")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_spans() {
        for (text, milliseconds) in [
            ("90s", 90_000),
            ("0", 0),
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
    fn only_parse_span_or_seconds_accepts_a_number_without_a_unit() {
        let bare = parse_span("10").unwrap_err().to_string();
        assert!(bare.contains("write 10ms, 10s"), "{bare}");
        assert_eq!(parse_span_or_seconds("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_span_or_seconds("10ms"), Ok(Duration::from_millis(10)));
        assert!(parse_span_or_seconds("ten").is_err());
    }

    #[test]
    fn sums_and_differences_saturate() {
        assert_eq!(Moment(u64::MAX) + Duration::from_secs(1), Moment(u64::MAX));
        assert_eq!(Moment(1).since(Moment(2)), Duration::ZERO);
    }
}
