//! Network rates: the type, its parser and its text form.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::ByteCount;
use crate::grammar::split;

/// A rate in bits per second, finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct BitRate(f64);

impl BitRate {
    /// Returns the rate of a transfer of `bytes` in `span`, or zero if the span is zero.
    pub fn from_transfer(bytes: ByteCount, span: Duration) -> BitRate {
        if span.is_zero() {
            return BitRate(0.0);
        }
        BitRate(bytes.0 as f64 * 8.0 / span.as_secs_f64())
    }

    /// Creates a rate in bits per second. Returns `None` if the number is negative or not finite.
    pub fn new(bits_per_second: f64) -> Option<BitRate> {
        let valid = bits_per_second.is_finite() && bits_per_second >= 0.0;
        valid.then_some(BitRate(bits_per_second))
    }

    /// Returns the rate in bits per second.
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

/// The text is not a valid rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseRateError {
    text: String,
    /// Reason why the text is not a valid rate.
    pub fault: RateFault,
}

/// Reasons why a text is not a valid rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateFault {
    /// The number has no unit.
    Bare,
    /// The unit can mean bits or bytes: `100m`, `1Gb`.
    Either {
        /// The number.
        number: String,
        /// The decimal prefix in lower case. Empty if the unit is a bare `b`.
        prefix: String,
    },
    /// The text is not a number with a unit of rate.
    None,
}

impl ParseRateError {
    /// True if the text is a number and a prefix only, such as `100m`.
    pub fn is_prefix_alone(&self) -> bool {
        let RateFault::Either { number, prefix } = &self.fault else {
            return false;
        };
        let unit = self.text.strip_prefix(number).unwrap_or_default().trim();
        !prefix.is_empty() && unit.eq_ignore_ascii_case(prefix)
    }
}

impl fmt::Display for ParseRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match &self.fault {
            RateFault::Bare => write!(
                f,
                "\"{text}\" has no unit: write {text}Mbit/s, {text}Gbit/s, {text}MB/s..."
            ),
            RateFault::Either { number, prefix } => {
                let large = prefix.to_ascii_uppercase();
                let prefix = if large == "K" { "k" } else { &large };
                write!(
                    f,
                    "\"{text}\" may be bits or bytes: write {number}{prefix}bit/s or \
                     {number}{prefix}B/s"
                )?;
                match prefix {
                    "" => Ok(()),
                    _ => write!(f, " (or {number}{large}iB/s, in powers of 1024)"),
                }
            }
            RateFault::None => write!(
                f,
                "\"{text}\" is not a rate: write bits as 100Mbit/s or 1gbit, bytes as 10MB/s or \
                 512KiB/s"
            ),
        }
    }
}

impl std::error::Error for ParseRateError {}

/// Parses a rate that is written in bits or bytes and returns it in bits per second.
pub(crate) fn parse_bits(text: &str) -> Result<f64, ParseRateError> {
    let error = |fault| ParseRateError {
        text: text.to_owned(),
        fault,
    };
    let written = split(text).ok_or_else(|| error(RateFault::None))?;
    let unit = written.unit;
    let per_second = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps"));
    let amount = per_second.unwrap_or(unit);
    let lower = amount.to_ascii_lowercase();
    // Units of bits have decimal prefixes only.
    let (prefix, bits) = match (lower.strip_suffix("bit"), amount.strip_suffix('B')) {
        (Some(prefix), _) if !prefix.ends_with('i') => (prefix.to_owned(), 1.0),
        (_, Some(prefix)) => (prefix.to_ascii_lowercase(), 8.0),
        _ if unit.is_empty() && !written.is_bare() => return Ok(0.0),
        _ if unit.is_empty() => return Err(error(RateFault::Bare)),
        _ => {
            let prefix = lower.strip_suffix('b').unwrap_or(&lower);
            return Err(error(match factor_of(prefix) {
                Some(_) if !prefix.ends_with('i') => RateFault::Either {
                    number: written.number.to_owned(),
                    prefix: prefix.to_owned(),
                },
                _ => RateFault::None,
            }));
        }
    };
    let factor = factor_of(&prefix).ok_or_else(|| error(RateFault::None))?;
    let rate = written.value * factor * bits;
    if rate.is_finite() {
        Ok(rate)
    } else {
        Err(error(RateFault::None))
    }
}

/// Returns the factor of a prefix in lower case, or `None` if the prefix is unknown.
fn factor_of(prefix: &str) -> Option<f64> {
    let (letter, base) = match prefix.strip_suffix('i') {
        Some(letter) => (letter, 1024_f64),
        None => (prefix, 1000.0),
    };
    let power = match letter {
        "" if prefix.is_empty() => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    Some(base.powi(power))
}

impl FromStr for BitRate {
    type Err = ParseRateError;

    /// Parses a rate in bits, such as `1gbit`, `2.5Gbit/s` or `100Mbit`, or in bytes, such as
    /// `125MB/s`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_bits(text).map(BitRate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed_and_formatted() {
        assert_eq!(
            "2.5Gbit/s".parse::<BitRate>().map(|r| r.to_string()),
            Ok("2.50 Gbit/s".into())
        );
        for (text, bits) in [
            ("1gbit", 1e9),
            ("100Mbit", 1e8),
            ("100mbps", f64::NAN),
            ("2.5 GB", 2e10),
            ("125MB/s", 1e9),
            ("1KiB/s", 8192.0),
            ("8bit", 8.0),
            ("1B/s", 8.0),
            ("0", 0.0),
            ("1G", f64::NAN),
            ("100m", f64::NAN),
            ("100mb", f64::NAN),
            ("100Mb/s", f64::NAN),
            ("8000b/s", f64::NAN),
            ("1000", f64::NAN),
        ] {
            let read = text.parse::<BitRate>().map(BitRate::bits_per_second);
            assert_eq!(
                read.ok(),
                Some(bits).filter(|bits| !bits.is_nan()),
                "{text}"
            );
        }
        assert_eq!(
            BitRate::from_transfer(ByteCount(125_000_000), Duration::from_secs(1)).to_string(),
            "1.00 Gbit/s"
        );
    }

    #[test]
    fn errors_list_the_possible_meanings() {
        for (text, says) in [
            ("1000", "no unit: write 1000Mbit/s"),
            ("1G", "write 1Gbit/s or 1GB/s (or 1GiB/s"),
            ("100mb", "write 100Mbit/s or 100MB/s"),
            ("64k", "write 64kbit/s or 64kB/s (or 64KiB/s"),
            ("8000b/s", "write 8000bit/s or 8000B/s"),
            ("100Mbps", "bits or bytes"),
            ("fast", "is not a rate"),
            ("10Mibit", "is not a rate"),
            ("10 parsecs", "is not a rate"),
            ("1e400bit", "is not a rate"),
            ("", "is not a rate"),
        ] {
            let error = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
