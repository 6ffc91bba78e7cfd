//! Storage rates: the type, its parser and its text form.

use std::fmt;
use std::str::FromStr;

use crate::ByteCount;
use crate::rate::{ParseRateError, parse_bits};

/// A rate in bytes per second, finite and greater than zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct ByteRate(f64);

impl ByteRate {
    /// Creates a rate in bytes per second. Returns `None` unless the number is finite and greater
    /// than zero.
    pub fn new(bytes_per_second: f64) -> Option<ByteRate> {
        let valid = bytes_per_second.is_finite() && bytes_per_second > 0.0;
        valid.then_some(ByteRate(bytes_per_second))
    }

    /// Returns the rate in bytes per second.
    pub fn bytes_per_second(self) -> f64 {
        self.0
    }
}

impl fmt::Display for ByteRate {
    /// Writes the rate as a byte count with `/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", ByteCount(self.0.round() as u64))
    }
}

/// The text is not a valid storage rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseByteRateError {
    /// The text is not a rate.
    Rate(ParseRateError),
    /// The rate is zero.
    Zero,
}

impl fmt::Display for ParseByteRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseByteRateError::Rate(error) => error.fmt(f),
            ParseByteRateError::Zero => write!(f, "a storage rate must be greater than zero"),
        }
    }
}

impl std::error::Error for ParseByteRateError {}

impl FromStr for ByteRate {
    type Err = ParseByteRateError;

    /// Parses a rate in bytes, such as `100MBps`, `1.5GB/s` or `20MiB/s`, or in bits, such as
    /// `800Mbit/s`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bits = parse_bits(text).map_err(ParseByteRateError::Rate)?;
        ByteRate::new(bits / 8.0).ok_or(ParseByteRateError::Zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_rates_are_parsed_and_formatted() {
        for (text, rate) in [
            ("100MBps", 100e6),
            ("1.5GB/s", 1.5e9),
            ("20MiB/s", 20.0 * 1_048_576.0),
            ("4096B/s", 4096.0),
            ("1gbit", 125e6),
        ] {
            assert_eq!(text.parse(), Ok(ByteRate(rate)), "{text}");
        }
        assert_eq!(ByteRate(100e6).to_string(), "100 MB/s");
        for text in ["", "0", "fast", "4096", "100m", "-3MB/s"] {
            assert!(text.parse::<ByteRate>().is_err(), "{text}");
        }
    }
}
