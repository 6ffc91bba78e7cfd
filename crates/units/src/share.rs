//! Shares: fractions of a whole, such as the share of lost segments.

use std::fmt;

use crate::grammar::split;

/// The text is not a valid share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseShareError {
    text: String,
    is_large: bool,
}

impl fmt::Display for ParseShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseShareError { text, is_large } = self;
        if *is_large {
            write!(
                f,
                "\"{text}\" has no unit: write percent as {text}%, or a fraction below 1 as 1e-4"
            )
        } else {
            write!(
                f,
                "\"{text}\" is not a share: write percent as 0.1%, or a fraction below 1 as 1e-4"
            )
        }
    }
}

impl std::error::Error for ParseShareError {}

/// Parses a share from 0 to 1: a percentage such as `0.1%`, or a fraction such as `1e-4`. A number
/// of 1 or more without `%` is an error, because a percentage was probably meant.
///
/// # Errors
///
/// [`ParseShareError`] if the text is not a share.
pub fn parse_share(text: &str) -> Result<f64, ParseShareError> {
    let error = |is_large| ParseShareError {
        text: text.to_owned(),
        is_large,
    };
    if let Some(percent) = text.strip_suffix('%') {
        let written = split(percent).filter(|written| written.unit.is_empty());
        let value = written.map(|written| written.value / 100.0);
        return value
            .filter(|value| *value <= 1.0)
            .ok_or_else(|| error(false));
    }
    // `parse` also accepts `inf`, `nan` and signs.
    let begins = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let value = text.parse::<f64>().ok().filter(|_| begins);
    match value.ok_or_else(|| error(false))? {
        value if value < 1.0 => Ok(value),
        _ => Err(error(true)),
    }
}

/// Formats a share from 0 to 1 so that [`parse_share`] returns the same value.
pub fn share_text(share: f64) -> String {
    if share >= 1.0 {
        "100%".to_owned()
    } else {
        format!("{share:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_or_fractions() {
        for (text, share) in [
            ("0", 0.0),
            ("1e-5", 1e-5),
            ("0.001", 0.001),
            ("0.1%", 0.001),
            ("1 %", 0.01),
            ("100%", 1.0),
            ("0%", 0.0),
        ] {
            assert_eq!(parse_share(text), Ok(share), "{text}");
            assert_eq!(parse_share(&share_text(share)), Ok(share), "{text}");
        }
        for text in ["", "%", "x", "-1", "101%", "nan", "inf", "1e-3%", "1%%"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_of_one_or_more_needs_a_percent_sign() {
        for text in ["1", "1.0", "2", "1e0"] {
            let error = parse_share(text).unwrap_err().to_string();
            assert!(
                error.contains(&format!("write percent as {text}%")),
                "{error}"
            );
        }
    }
}
