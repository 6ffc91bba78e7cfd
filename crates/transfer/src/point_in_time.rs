//! Parses points in time: an age or a date, and the end of a time span.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_units::{microseconds_of, parse_span};

/// A point in time in seconds since 1970, by this host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointInTime(pub i64);

impl FromStr for PointInTime {
    type Err = String;

    fn from_str(text: &str) -> Result<PointInTime, String> {
        if let Some(microseconds) = microseconds_of(text) {
            return Ok(PointInTime(microseconds.div_euclid(1_000_000)));
        }
        let age = parse_span(text).map_err(|error| {
            format!("{error}, or a date in UTC as 2026-01-31 or 2026-01-31T08:00:00")
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_err(|_| "the clock of this host is before 1970: set it".to_owned())?;
        let seconds = now.as_secs() as i64;
        Ok(PointInTime(seconds.saturating_sub_unsigned(age.as_secs())))
    }
}

/// Parses a time span above 0; a number without a unit is in minutes.
///
/// # Errors
///
/// Returns a message for the user.
pub fn parse_minutes(text: &str) -> Result<Duration, String> {
    let span = match text.parse::<u32>() {
        Ok(minutes) => Duration::from_secs(60 * u64::from(minutes)),
        Err(_) => parse_span(text).map_err(|error| error.to_string())?,
    };
    if span.is_zero() {
        return Err("write a time above 0".to_owned());
    }
    Ok(span)
}

/// Parses a time in UTC, and returns the time until then.
///
/// # Errors
///
/// Returns a message for the user if the syntax is wrong or the time is over.
pub fn parse_until(text: &str) -> Result<Duration, String> {
    // Seconds may be omitted, as in rsync.
    let at = microseconds_of(text).or_else(|| microseconds_of(&format!("{text}:00")));
    let at = at.ok_or("write it in UTC as 2026-01-31T08:00 or 2026-01-31T08:00:00")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(|_| "the clock of this host is before 1970: set it")?;
    let at = Duration::from_micros(u64::try_from(at).unwrap_or(0));
    at.checked_sub(now)
        .ok_or_else(|| format!("{text} is over: name a moment to come"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_ages_or_dates() {
        assert_eq!("1970-01-02".parse(), Ok(PointInTime(86_400)));
        let now = "0s".parse::<PointInTime>().unwrap().0;
        let before = "2d".parse::<PointInTime>().unwrap().0;
        assert!((2 * 86_400..2 * 86_400 + 60).contains(&(now - before)));
        for text in ["", "yesterday", "2026-13-01", "7"] {
            assert!(text.parse::<PointInTime>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_to_end_are_spans_and_moments_to_come() {
        assert_eq!(parse_minutes("90"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_minutes("30s"), Ok(Duration::from_secs(30)));
        assert!(parse_until("2001-01-01T00:00:00").is_err());
        let far = Duration::from_secs(86_400);
        assert!(parse_until("2999-01-01T00:00").is_ok_and(|span| span > far));
        assert!(parse_until("tomorrow").is_err() && parse_minutes("-1").is_err());
    }
}
