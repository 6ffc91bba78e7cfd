//! Times of day in RFC 3339 format.

/// Formats a Unix time in seconds as an RFC 3339 time in UTC: `2026-11-21T16:00:00Z`. Uses Howard
/// Hinnant's `civil_from_days`.
pub fn rfc3339(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Returns the number of days from 1970-01-01 to a civil date. Uses Howard Hinnant's
/// `days_from_civil`.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Parses a time in RFC 3339 format and returns its Unix time in microseconds. A space may replace
/// the `T`. A time without an offset is UTC. A date without a time is midnight in UTC. Returns
/// `None` if the text is not a valid time.
pub fn microseconds_of(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, rest) = match rest {
        "" => ("00:00:00", ""),
        rest => {
            let rest = rest.strip_prefix(['T', 't', ' '])?;
            rest.split_at_checked(8)?
        }
    };
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let (fraction, offset) = fraction(rest)?;
    let offset = offset_seconds(offset)?;
    let is_valid = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let days = days_from_civil(year, month, day);
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
    is_valid.then_some(seconds * 1_000_000 + fraction)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let next = match month {
        12 => days_from_civil(year + 1, 1, 1),
        month => days_from_civil(year, month + 1, 1),
    };
    next - days_from_civil(year, month, 1)
}

/// Parses three numbers that are separated by `between` and have exactly these numbers of digits.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (place, length) in digits.into_iter().enumerate() {
        let part = parts.next()?;
        let is_number = part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
        found[place] = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(found)
}

/// Parses an optional fraction of a second such as `.123`. Returns its microseconds and the rest of
/// the text.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(digits) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
    let six: String = digits.chars().chain("000000".chars()).take(6).collect();
    (!digits.is_empty()).then_some((six.parse().ok()?, rest))
}

/// Parses an offset from UTC, such as `Z`, `+01:00` or `-0530`, and returns it in seconds.
fn offset_seconds(text: &str) -> Option<i64> {
    let sign = match text.chars().next() {
        None | Some('Z' | 'z') => return (text.len() <= 1).then_some(0),
        Some('+') => 1,
        Some('-') => -1,
        Some(_) => return None,
    };
    let digits = text[1..].replace(':', "");
    let is_number = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = digits.parse().ok().filter(|_| is_number)?;
    let (hours, minutes) = (number / 100, number % 100);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates_are_formatted_and_parsed() {
        // Expected texts are from `date --utc --date=@N +%FT%TZ`.
        for (seconds, text) in [
            (-1, "1969-12-31T23:59:59Z"),
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_276_800, "2026-11-21T16:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
            assert_eq!(microseconds_of(text), Some(seconds * 1_000_000), "{text}");
        }
    }

    #[test]
    fn offsets_and_fractions_are_parsed() {
        let noon = microseconds_of("2026-11-21T12:00:00Z");
        for text in [
            "2026-11-21 12:00:00",
            "2026-11-21T13:00:00+01:00",
            "2026-11-21T06:30:00-0530",
            "2026-11-21t12:00:00.0z",
        ] {
            assert_eq!(microseconds_of(text), noon, "{text}");
        }
        let midnight = microseconds_of("2026-11-21T00:00:00Z");
        assert_eq!(microseconds_of("2026-11-21"), midnight);
        assert!(microseconds_of("2024-02-29").is_some());
        for text in ["2026-02-29", "2026-04-31", "2026-12-32", "2026-13-01"] {
            assert_eq!(microseconds_of(text), None, "{text}");
        }
        let later = microseconds_of("2026-11-21T12:00:00.25Z");
        assert_eq!(later, noon.map(|noon| noon + 250_000));
        for text in [
            "",
            "2026-11-2",
            "2026-13-01T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T12:00:00X",
            "2026-11-21T12:00:00.Z",
            "2026-11-21T12:00:00+1",
            "é026-11-21T12:00:00Z",
            "2026-+1-21T12:00:00Z",
        ] {
            assert_eq!(microseconds_of(text), None, "{text}");
        }
    }
}
