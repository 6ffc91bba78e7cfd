//! A point in time: how long ago, or a date.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

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
}
