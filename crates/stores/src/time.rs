//! Times in the notations of headers and listings.

use longhaul_units::microseconds_of;

/// A time of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectTime {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Parses a date of a header, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn parse_header(text: &str) -> Option<ObjectTime> {
    let rest = text.trim().split_once(", ")?.1;
    let mut words = rest.split(' ');
    let mut next = || words.next();
    let (day, month, year, clock, zone) = (next()?, next()?, next()?, next()?, next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let is_number = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !is_number(day, 2) || !is_number(year, 4) || zone != "GMT" || next().is_some() {
        return None;
    }
    parse_rfc3339(&format!("{year}-{month:02}-{day}T{clock}Z"))
}

/// Parses a time of a listing, such as `2009-10-12T17:50:30.000Z`.
pub fn parse_rfc3339(text: &str) -> Option<ObjectTime> {
    let microseconds = microseconds_of(text)?;
    Some(ObjectTime {
        seconds: microseconds.div_euclid(1_000_000),
        nanoseconds: u32::try_from(microseconds.rem_euclid(1_000_000)).ok()? * 1000,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_parsed() {
        let found = parse_header("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!((found.seconds, found.nanoseconds), (784_111_777, 0));
        let found = parse_rfc3339("2009-10-12T17:50:30.250Z").unwrap();
        assert_eq!(
            (found.seconds, found.nanoseconds),
            (1_255_369_830, 250_000_000)
        );
        for text in [
            "",
            "now",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Non 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 99:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT x",
        ] {
            assert_eq!(parse_header(text), None, "{text}");
        }
    }
}
