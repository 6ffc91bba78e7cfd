//! Serialises an optional value as its text.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes the value as its text.
///
/// # Errors
///
/// Returns the error of the format.
pub fn serialize<T: Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// Parses the value from its text.
///
/// # Errors
///
/// Fails if the text is not a valid value.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    let parsed = text.map(|text| text.parse().map_err(D::Error::custom));
    parsed.transpose()
}
