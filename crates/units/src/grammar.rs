//! The common grammar of quantities: a number, an optional space and a unit. `docs/quantities.md`
//! lists the units. A number without a unit is an error unless it is zero, because its meaning is
//! ambiguous: `7` could be days or seconds, `1` could be 1 percent or 100 percent.

/// A quantity split into its number and its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written<'a> {
    /// The number, finite and not negative.
    pub value: f64,
    /// The same value as an integer, if the number is whole and less than 2^64.
    pub whole: Option<u64>,
    /// Text of the number.
    pub number: &'a str,
    /// Text after the number, without surrounding spaces. May be empty.
    pub unit: &'a str,
}

impl Written<'_> {
    /// True if the number is not zero and has no unit.
    pub fn is_bare(&self) -> bool {
        self.unit.is_empty() && self.value != 0.0
    }
}

/// Splits a text into number and unit; `None` if it does not begin with a number.
pub fn split(text: &str) -> Option<Written<'_>> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    // The text has only digits and points, so the value is neither negative nor `inf` or `nan`.
    let value: f64 = number.parse().ok()?;
    value.is_finite().then_some(Written {
        value,
        whole: number.parse().ok(),
        number,
        unit: unit.trim(),
    })
}

/// Formats a count with a noun in singular or plural: `1 file`, `2 files`. For `file or link`, both
/// nouns get a plural: `2 files and links`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    match (count, noun.split_once(" or ")) {
        (1, _) => format!("1 {noun}"),
        (_, Some((one, other))) => format!("{count} {one}s and {other}s"),
        (_, None) => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_count_of_one_is_singular() {
        let shown = [0_u32, 1, 2].map(|count| counted(count, "file"));
        assert_eq!(shown, ["0 files", "1 file", "2 files"]);
        assert_eq!(counted(1_u32, "file or link"), "1 file or link");
        assert_eq!(counted(3_u32, "file or link"), "3 files and links");
    }

    #[test]
    fn quantities_are_split_into_number_and_unit() {
        let written = split("1.5 GB").unwrap();
        assert_eq!((written.value, written.whole), (1.5, None));
        assert_eq!((written.number, written.unit), ("1.5", "GB"));
        assert!(split("90").unwrap().is_bare() && !split("0").unwrap().is_bare());
        for text in ["", ".", "x", "-1", "1.2.3", "inf", "nan", "+1"] {
            assert_eq!(split(text), None, "{text}");
        }
    }
}
