//! A number of bytes.

use std::fmt;
use std::str::FromStr;

use crate::grammar::split;

/// A number of bytes, 0 to 2^64 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

/// A byte count that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseByteCountError {
    text: String,
    is_bare: bool,
}

impl fmt::Display for ParseByteCountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseByteCountError { text, is_bare } = self;
        match is_bare {
            true => write!(
                f,
                "\"{text}\" has no unit: write {text}B, {text}KiB, {text}MiB, {text}MB..."
            ),
            false => write!(
                f,
                "\"{text}\" is not a size: write a number with B, kB, MB, GB, TB (powers of 1000) \
                 or KiB, MiB, GiB, TiB (powers of 1024; K, M, G, T alone are the same)"
            ),
        }
    }
}

impl std::error::Error for ParseByteCountError {}

/// Units in lower case with their factor; `K`, `M`, `G`, `T` alone are
/// binary, as `dd`, `rsync` and `rclone` read them.
const UNITS: [(&str, u64); 17] = [
    ("b", 1),
    ("bytes", 1),
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
];

impl ByteCount {
    /// Reads a size of which a bare number counts bytes: for options that other tools have so.
    ///
    /// # Errors
    ///
    /// [`ParseByteCountError`].
    pub fn parse_or_bytes(text: &str) -> Result<ByteCount, ParseByteCountError> {
        match text.parse() {
            Err(ParseByteCountError { is_bare: true, .. }) => format!("{text}B").parse(),
            other => other,
        }
    }
}

impl FromStr for ByteCount {
    type Err = ParseByteCountError;

    /// Reads `4096B`, `16MiB`, `1.5GB`, `64k`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |is_bare| ParseByteCountError {
            text: text.to_owned(),
            is_bare,
        };
        let written = split(text).ok_or_else(|| error(false))?;
        if written.is_bare() {
            return Err(error(true));
        }
        let unit = written.unit.to_ascii_lowercase();
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let factor = match (known, unit.as_str()) {
            (Some((_, factor)), _) => *factor,
            // Zero needs none.
            (None, "") => 1,
            (None, _) => return Err(error(false)),
        };
        if let Some(whole) = written.whole {
            let bytes = whole.checked_mul(factor).map(ByteCount);
            return bytes.ok_or_else(|| error(false));
        }
        let bytes = written.value * factor as f64;
        // 2^64 is the first value that does not fit.
        if bytes < 18_446_744_073_709_551_616.0 {
            Ok(ByteCount(bytes.round() as u64))
        } else {
            Err(error(false))
        }
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
            ("4096B", 4096),
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
            "18446744073709551616B",
            "18446744073709551615.5B",
        ] {
            assert!(text.parse::<ByteCount>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_number_counts_nothing_but_where_that_is_asked_for() {
        let error = "128".parse::<ByteCount>().unwrap_err().to_string();
        assert!(error.contains("no unit: write 128B, 128KiB"), "{error}");
        assert_eq!(ByteCount::parse_or_bytes("4096"), Ok(ByteCount(4096)));
        assert_eq!(ByteCount::parse_or_bytes("64k"), Ok(ByteCount(65_536)));
        assert!(ByteCount::parse_or_bytes("x").is_err());
    }

    #[test]
    fn prints_three_digits() {
        assert_eq!(ByteCount(999).to_string(), "999 B");
        assert_eq!(ByteCount(1_500_000_000).to_string(), "1.50 GB");
        assert_eq!(ByteCount(999_950).to_string(), "1.00 MB");
        assert_eq!(ByteCount(u64::MAX).to_string(), "18.4 EB");
    }
}
