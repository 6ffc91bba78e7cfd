//! Times in the notation of the protocol: `YYYYMMDDHHMMSS[.fraction]` in UTC (RFC 3659).

use longhaul_units::{microseconds_of, rfc3339};

/// A time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Parses a time. Digits after the ninth digit of the fraction are ignored.
pub fn parse(text: &[u8]) -> Option<FileTime> {
    let (whole, fraction) = match text.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b""[..]),
    };
    let is_number = |digits: &[u8]| digits.iter().all(u8::is_ascii_digit);
    if whole.len() != 14 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let digits = std::str::from_utf8(whole).ok()?;
    let readable = format!(
        "{}-{}-{}T{}:{}:{}Z",
        &digits[..4],
        &digits[4..6],
        &digits[6..8],
        &digits[8..10],
        &digits[10..12],
        &digits[12..]
    );
    let seconds = microseconds_of(&readable)?.div_euclid(1_000_000);
    let mut nanoseconds = 0;
    let mut digit_value = 100_000_000;
    for digit in fraction.iter().take(9) {
        nanoseconds += u32::from(digit - b'0') * digit_value;
        digit_value /= 10;
    }
    Some(FileTime {
        seconds,
        nanoseconds,
    })
}

/// Formats a time in whole seconds. `None` if the year has not four digits.
pub fn format(time: FileTime) -> Option<String> {
    // Year 0 and year 10000 as Unix times.
    if !(-62_167_219_200..253_402_300_800).contains(&time.seconds) {
        return None;
    }
    let text = rfc3339(time.seconds);
    Some(text.chars().filter(char::is_ascii_digit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        let time = parse(b"20261127232325").unwrap();
        assert_eq!(time.nanoseconds, 0);
        assert_eq!(format(time).unwrap(), "20261127232325");
        assert_eq!(
            parse(b"19700101000001.25").unwrap().nanoseconds,
            250_000_000
        );
        assert_eq!(parse(b"19700101000001").unwrap().seconds, 1);
        for bad in [
            "",
            "2026",
            "20261327232325",
            "2026112723232x",
            "20261127232325.x",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        let far = FileTime {
            seconds: i64::MAX,
            nanoseconds: 0,
        };
        assert_eq!(format(far), None);
    }
}
