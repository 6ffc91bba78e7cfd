//! Describes a host: facts other than disks that affect its figures.

use std::path::Path;

use longhaul_engine::benchmark::this_host;
use serde_json::Value;

/// Returns the single line of a file, with single spaces; null if it cannot be read.
pub fn line(path: impl AsRef<Path>) -> Value {
    this_host::line(path).map_or(Value::Null, Value::String)
}

/// Returns the single line of a file as a number; null if it is not a number.
pub fn number(path: impl AsRef<Path>) -> Value {
    let number = this_host::line(path).and_then(|text| text.parse::<i64>().ok());
    number.map_or(Value::Null, Value::from)
}

/// Returns all facts and the host's name. The name shows whether a profile is from this
/// host.
pub fn facts() -> Value {
    let mut facts = serde_json::to_value(this_host::describe()).unwrap_or_default();
    facts["name"] = this_host::name().into();
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_this_host_includes_its_name() {
        let facts = facts();
        assert!(facts["cores"].as_u64().unwrap() > 0);
        assert!(facts["kernel"].as_str().unwrap().contains('.'));
        assert!(facts["interfaces"].is_object() && facts["sysctls"].is_object());
        assert_eq!(facts["name"], this_host::name());
    }

    #[test]
    fn missing_facts_are_null() {
        assert_eq!(line("/nonexistent"), Value::Null);
        assert_eq!(number("/proc/version"), Value::Null);
    }
}
