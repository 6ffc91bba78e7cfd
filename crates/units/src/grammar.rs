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

#[cfg(test)]
mod tests {
    use super::*;

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
