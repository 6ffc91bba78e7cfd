//! A rate on a network.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::ByteCount;

/// Bits per second, finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct BitRate(f64);

impl BitRate {
    /// The rate that carries `bytes` in `span`; zero where the span is zero.
    pub fn from_transfer(bytes: ByteCount, span: Duration) -> BitRate {
        if span.is_zero() {
            return BitRate(0.0);
        }
        BitRate(bytes.0 as f64 * 8.0 / span.as_secs_f64())
    }

    /// So many bits per second; none where that is not finite or negative.
    pub fn new(bits_per_second: f64) -> Option<BitRate> {
        let valid = bits_per_second.is_finite() && bits_per_second >= 0.0;
        valid.then_some(BitRate(bits_per_second))
    }

    /// Bits per second.
    pub fn bits_per_second(self) -> f64 {
        self.0
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [&str; 5] = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
        let mut value = self.0;
        let mut step = 0;
        while value >= 999.5 && step + 1 < STEPS.len() {
            value /= 1000.0;
            step += 1;
        }
        let decimals = match value {
            v if v < 9.995 => 2,
            v if v < 99.95 => 1,
            _ => 0,
        };
        write!(f, "{value:.decimals$} {}", STEPS[step])
    }
}

/// A rate that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBitRateError(String);

impl fmt::Display for ParseBitRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a rate: write bits per second, or a number with kbit, Mbit, Gbit",
            self.0
        )
    }
}

impl std::error::Error for ParseBitRateError {}

impl FromStr for BitRate {
    type Err = ParseBitRateError;

    /// Reads `1gbit`, `2.5Gbit/s`, `100mbit`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseBitRateError(text.to_owned());
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim().to_ascii_lowercase();
        let factor = match unit.strip_suffix("/s").unwrap_or(&unit) {
            "" | "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            "tbit" => 1e12,
            _ => return Err(error()),
        };
        let value = number.parse::<f64>().map_err(|_| error())? * factor;
        if value.is_finite() {
            Ok(BitRate(value))
        } else {
            Err(error())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        assert_eq!(
            "2.5Gbit/s".parse::<BitRate>().map(|r| r.to_string()),
            Ok("2.50 Gbit/s".into())
        );
        assert!("2.5 GB".parse::<BitRate>().is_err());
        assert_eq!(
            BitRate::from_transfer(ByteCount(125_000_000), Duration::from_secs(1)).to_string(),
            "1.00 Gbit/s"
        );
    }
}
