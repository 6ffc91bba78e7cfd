//! Reads the time of day in RFC 3339 format; `longhaul_units::rfc3339` writes it.

/// Days from 1970-01-01 to a civil date: Howard Hinnant's `days_from_civil`.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Microseconds since 1970 of a time in RFC 3339 format. A space may replace the `T`, and a time
/// without an offset is UTC.
pub fn microseconds_of(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let (fraction, offset) = fraction(rest)?;
    let offset = offset_seconds(offset)?;
    let is_valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let days = days_from_civil(year, month, day);
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
    is_valid.then_some(seconds * 1_000_000 + fraction)
}

/// Three numbers with these numbers of digits.
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

/// Microseconds of `.123`, and what follows it.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(digits) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
    let six: String = digits.chars().chain("000000".chars()).take(6).collect();
    (!digits.is_empty()).then_some((six.parse().ok()?, rest))
}

/// Seconds that an offset is ahead of UTC: `Z`, `+01:00`, `-0530`.
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
    fn dates_are_those_of_the_calendar() {
        for seconds in [
            -1,
            0,
            951_782_399,
            951_868_800,
            1_795_276_800,
            4_107_542_400,
        ] {
            let text = longhaul_units::rfc3339(seconds);
            assert_eq!(microseconds_of(&text), Some(seconds * 1_000_000), "{text}");
        }
    }

    #[test]
    fn offsets_and_fractions_are_read() {
        let noon = microseconds_of("2026-11-21T12:00:00Z");
        for text in [
            "2026-11-21 12:00:00",
            "2026-11-21T13:00:00+01:00",
            "2026-11-21T06:30:00-0530",
            "2026-11-21t12:00:00.0z",
        ] {
            assert_eq!(microseconds_of(text), noon, "{text}");
        }
        let later = microseconds_of("2026-11-21T12:00:00.25Z");
        assert_eq!(later, noon.map(|noon| noon + 250_000));
        for text in [
            "",
            "2026-11-21",
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
