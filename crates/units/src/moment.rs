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
pub struct ParseSpanError(String, Wanted);

/// What may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// A bare number counts seconds.
    Any,
    /// It has a unit.
    Unit,
}

impl fmt::Display for ParseSpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseSpanError(text, wanted) = self;
        match wanted {
            Wanted::Any => write!(
                f,
                "\"{text}\" is not a time: write seconds, or a number with us, ms, s, min, h or d"
            ),
            Wanted::Unit => write!(
                f,
                "\"{text}\" has no unit: write {text}ms, or s for seconds, us for microseconds"
            ),
        }
    }
}

impl std::error::Error for ParseSpanError {}

/// Reads a span of time: `90`, `1.5s`, `100ms`, `5min`, `14d`.
///
/// # Errors
///
/// Where the text is no number with a known unit, or beyond 584 years.
pub fn parse_span(text: &str) -> Result<Duration, ParseSpanError> {
    let error = || ParseSpanError(text.to_owned(), Wanted::Any);
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

/// The same, where a bare number is likelier meant as milliseconds than as
/// seconds: it is refused, unless it is zero.
///
/// # Errors
///
/// As [`parse_span`], and where a number has no unit.
pub fn parse_span_with_unit(text: &str) -> Result<Duration, ParseSpanError> {
    let span = parse_span(text)?;
    let bare = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    match bare && !span.is_zero() {
        true => Err(ParseSpanError(text.to_owned(), Wanted::Unit)),
        false => Ok(span),
    }
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
    fn a_unit_may_be_wanted() {
        let ten = Duration::from_millis(10);
        assert_eq!(parse_span_with_unit("10ms"), Ok(ten));
        assert_eq!(parse_span_with_unit("0"), Ok(Duration::ZERO));
        let bare = parse_span_with_unit("10").unwrap_err().to_string();
        assert!(bare.contains("write 10ms"), "{bare}");
        assert!(parse_span_with_unit("ten").is_err());
    }

    #[test]
    fn never_wraps() {
        assert_eq!(Moment(u64::MAX) + Duration::from_secs(1), Moment(u64::MAX));
        assert_eq!(Moment(1).since(Moment(2)), Duration::ZERO);
    }
}
