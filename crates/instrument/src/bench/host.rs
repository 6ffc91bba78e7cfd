//! What a host is: what its figures depend on besides its disks.

use std::path::Path;

use longhaul_engine::probe::this_host;
use serde_json::Value;

/// A file's one line, with single spaces; null where there is none.
pub fn line(path: impl AsRef<Path>) -> Value {
    this_host::line(path).map_or(Value::Null, Value::String)
}

/// As [`line()`], as a number.
pub fn number(path: impl AsRef<Path>) -> Value {
    let number = this_host::line(path).and_then(|text| text.parse::<i64>().ok());
    number.map_or(Value::Null, Value::from)
}

/// All of it, with its name: a profile continues where it is the same host's.
pub fn facts() -> Value {
    let mut facts = serde_json::to_value(this_host::describe()).unwrap_or_default();
    facts["name"] = this_host::name().into();
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_described_by_its_name_too() {
        let facts = facts();
        assert!(facts["cores"].as_u64().unwrap() > 0);
        assert!(facts["kernel"].as_str().unwrap().contains('.'));
        assert!(facts["interfaces"].is_object() && facts["sysctls"].is_object());
        assert_eq!(facts["name"], this_host::name());
    }

    #[test]
    fn what_is_not_there_is_null() {
        assert_eq!(line("/nonexistent"), Value::Null);
        assert_eq!(number("/proc/version"), Value::Null);
    }
}
