//! The time of day in RFC 3339 format.

use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_units::rfc3339;

/// Returns the current time in UTC, to the second.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    rfc3339(since.map_or(0, |since| since.as_secs().cast_signed()))
}
