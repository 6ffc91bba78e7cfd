//! Serializes a duration as whole milliseconds.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Serializes a duration in milliseconds, at most `u64::MAX`.
///
/// # Errors
///
/// Errors of the serializer.
pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// Deserializes a duration from milliseconds.
///
/// # Errors
///
/// The value is not a whole number.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}
