//! How quantities are written, the same everywhere: a number and a unit, with or without a space
//! between. `docs/quantities.md` has the table. Every bare number but zero is refused, since its
//! meaning would be a guess: `7` could be days or seconds, `1` could be percent or all.

/// A number as it is written, and what follows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written<'a> {
    /// The number, finite and not negative.
    pub value: f64,
    /// The same where it is whole and below 2^64.
    pub whole: Option<u64>,
    /// As it is written.
    pub number: &'a str,
    /// What follows, without spaces around; may be empty.
    pub unit: &'a str,
}

impl Written<'_> {
    /// Whether it has no unit and would need one.
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
    // Of digits and points alone, so neither infinite by its name nor negative.
    let value: f64 = number.parse().ok()?;
    value.is_finite().then_some(Written {
        value,
        whole: number.parse().ok(),
        number,
        unit: unit.trim(),
    })
}

/// This many of something: `1 file`, `2 files`, `2 files and links` of what is a `file or link`.
pub fn counted(count: impl TryInto<u64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    match (count, what.split_once(" or ")) {
        (1, _) => format!("1 {what}"),
        (_, Some((one, other))) => format!("{count} {one}s and {other}s"),
        (_, None) => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one() {
        let shown = [0_u32, 1, 2].map(|count| counted(count, "file"));
        assert_eq!(shown, ["0 files", "1 file", "2 files"]);
        assert_eq!(counted(1_u32, "file or link"), "1 file or link");
        assert_eq!(counted(3_u32, "file or link"), "3 files and links");
    }

    #[test]
    fn numbers_are_taken_apart() {
        let written = split("1.5 GB").unwrap();
        assert_eq!((written.value, written.whole), (1.5, None));
        assert_eq!((written.number, written.unit), ("1.5", "GB"));
        assert!(split("90").unwrap().is_bare() && !split("0").unwrap().is_bare());
        for text in ["", ".", "x", "-1", "1.2.3", "inf", "nan", "+1"] {
            assert_eq!(split(text), None, "{text}");
        }
    }
}
