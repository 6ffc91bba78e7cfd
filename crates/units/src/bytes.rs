//! A number of bytes.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, 0 to 2^64 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

/// A byte count that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseByteCountError(String);

impl fmt::Display for ParseByteCountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a size: write a whole number of bytes, or one with \
             kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)",
            self.0
        )
    }
}

impl std::error::Error for ParseByteCountError {}

/// Suffixes in lower case with their factor; `K`, `M`, `G`, `T` alone are
/// binary, as `dd`, `rsync` and `rclone` read them.
const SUFFIXES: [(&str, u64); 18] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("p", 1 << 50),
    ("bytes", 1),
    ("b", 1),
    ("", 1),
];

impl FromStr for ByteCount {
    type Err = ParseByteCountError;

    /// Reads `4096`, `16MiB`, `1.5GB`, `64k`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseByteCountError(text.to_owned());
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let suffix = suffix.trim().to_ascii_lowercase();
        let factor = SUFFIXES
            .iter()
            .find(|(name, _)| *name == suffix)
            .ok_or_else(error)?
            .1;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(ByteCount).ok_or_else(error);
        }
        let value: f64 = number.parse().map_err(|_| error())?;
        let bytes = value * factor as f64;
        // 2^64 is the first value that does not fit.
        if !(0.0..18_446_744_073_709_551_616.0).contains(&bytes) {
            return Err(error());
        }
        Ok(ByteCount(bytes.round() as u64))
    }
}

impl fmt::Display for ByteCount {
    /// Decimal prefixes with three significant digits: `1.50 GB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STEPS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_binary_and_decimal_suffixes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("16MiB", 16 << 20),
            ("1.5GB", 1_500_000_000),
            ("64k", 65_536),
            ("10 MB", 10_000_000),
        ] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in [
            "",
            "x",
            "-1",
            "1.2.3",
            "5 parsecs",
            "20000PiB",
            "nan",
            "inf",
        ] {
            assert!(text.parse::<ByteCount>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_three_digits() {
        assert_eq!(ByteCount(999).to_string(), "999 B");
        assert_eq!(ByteCount(1_500_000_000).to_string(), "1.50 GB");
        assert_eq!(ByteCount(999_950).to_string(), "1.00 MB");
        assert_eq!(ByteCount(u64::MAX).to_string(), "18.4 EB");
    }
}
