//! Byte counts: the type, its parser and its text form.

use std::fmt;
use std::str::FromStr;

use crate::grammar::split;

/// A number of bytes, 0 to 2^64 - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

/// The text is not a valid byte count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseByteCountError {
    text: String,
    is_bare: bool,
}

impl fmt::Display for ParseByteCountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseByteCountError { text, is_bare } = self;
        if *is_bare {
            write!(
                f,
                "\"{text}\" has no unit: write {text}B, {text}KiB, {text}MiB, {text}MB..."
            )
        } else {
            write!(
                f,
                "\"{text}\" is not a size: write a number with B, kB, MB, GB, TB (powers of 1000) \
                 or KiB, MiB, GiB, TiB (powers of 1024; K, M, G, T alone are the same)"
            )
        }
    }
}

impl std::error::Error for ParseByteCountError {}

/// Unit names in lower case with their factors in bytes. `K`, `M`, `G` and `T` alone are powers of
/// 1024, as in `dd`, `rsync` and `rclone`.
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
    /// Parses a size like [`FromStr`], but accepts a number without a unit as bytes. For options
    /// that work like this in other tools.
    ///
    /// # Errors
    ///
    /// [`ParseByteCountError`] if the text is not a size.
    pub fn parse_or_bytes(text: &str) -> Result<ByteCount, ParseByteCountError> {
        match text.parse() {
            Err(ParseByteCountError { is_bare: true, .. }) => format!("{text}B").parse(),
            other => other,
        }
    }
}

impl FromStr for ByteCount {
    type Err = ParseByteCountError;

    /// Parses a size such as `4096B`, `16MiB`, `1.5GB` or `64k`. A number other than 0 needs a
    /// unit.
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
            // Zero is valid without a unit.
            (None, "") => 1,
            (None, _) => return Err(error(false)),
        };
        if let Some(whole) = written.whole {
            let bytes = whole.checked_mul(factor).map(ByteCount);
            return bytes.ok_or_else(|| error(false));
        }
        let bytes = written.value * factor as f64;
        // 2^64 is the smallest value that does not fit in a u64.
        if bytes < 18_446_744_073_709_551_616.0 {
            Ok(ByteCount(bytes.round() as u64))
        } else {
            Err(error(false))
        }
    }
}

impl fmt::Display for ByteCount {
    /// Writes three significant digits and a decimal prefix: `1.50 GB`.
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
    fn rejects_texts_that_are_not_sizes() {
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
    fn only_parse_or_bytes_accepts_a_number_without_a_unit() {
        let error = "128".parse::<ByteCount>().unwrap_err().to_string();
        assert!(error.contains("no unit: write 128B, 128KiB"), "{error}");
        assert_eq!(ByteCount::parse_or_bytes("4096"), Ok(ByteCount(4096)));
        assert_eq!(ByteCount::parse_or_bytes("64k"), Ok(ByteCount(65_536)));
        assert!(ByteCount::parse_or_bytes("x").is_err());
    }

    #[test]
    fn prints_three_significant_digits() {
        assert_eq!(ByteCount(999).to_string(), "999 B");
        assert_eq!(ByteCount(1_500_000_000).to_string(), "1.50 GB");
        assert_eq!(ByteCount(999_950).to_string(), "1.00 MB");
        assert_eq!(ByteCount(u64::MAX).to_string(), "18.4 EB");
    }
}
