//! Parses quantities that options of commands bound more closely than their type does.

use std::time::Duration;

use longhaul_proto::criteria::WIDEST_WINDOW;
use longhaul_units::{BitRate, ByteCount, ParseSpanError};

/// Time that a timeout of 0 stands for: longer than any copy.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);

/// Parses a timeout. A plain number is in seconds, and 0 is no timeout, as in rsync.
///
/// # Errors
///
/// Returns an error if the text is no time.
pub fn timeout(text: &str) -> Result<Duration, ParseSpanError> {
    let span = longhaul_units::parse_span_or_seconds(text)?;
    Ok(if span.is_zero() { NO_TIMEOUT } else { span })
}

/// Parses the largest difference between times that count as equal: a day or less.
///
/// # Errors
///
/// Returns an error if the text is no time, or the time is longer than a day.
pub fn window(text: &str) -> Result<Duration, String> {
    let window = longhaul_units::parse_span_or_seconds(text).map_err(|error| error.to_string())?;
    if window.as_nanos() > u128::from(WIDEST_WINDOW) {
        return Err("write a day (24h) or less".to_owned());
    }
    Ok(window)
}

/// Parses a size above zero.
///
/// # Errors
///
/// Returns an error if the text is no size, or the size is zero.
pub fn positive_size(text: &str) -> Result<ByteCount, String> {
    match text.parse::<ByteCount>() {
        Ok(ByteCount(0)) => Err("write a size above 0".to_owned()),
        size => size.map_err(|error| error.to_string()),
    }
}

/// Parses a rate above zero.
///
/// # Errors
///
/// Returns an error if the text is no rate, or the rate is zero.
pub fn positive_rate(text: &str) -> Result<BitRate, String> {
    let rate: BitRate = text.parse().map_err(|error| format!("{error}"))?;
    if rate.bits_per_second() > 0.0 {
        Ok(rate)
    } else {
        Err("the rate must be more than 0: remove the option if the rate is unknown".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_more_than_zero() {
        assert!(positive_rate("1Mbit/s").is_ok());
        for text in ["0", "0Mbit/s", "-1Mbit/s", "nan", "inf"] {
            assert!(positive_rate(text).is_err(), "{text}");
        }
    }
}
