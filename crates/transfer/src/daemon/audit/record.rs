//! Lines of the audit log.

use longhaul_system::clock;
use serde_json::{Map, Value, json};

use crate::console::escaped_json;

/// Fields of a record.
pub type Fields = Map<String, Value>;

/// Returns the line of a record: one line of printable characters.
pub fn line_of(event: &str, fields: &Fields) -> String {
    let mut all = Fields::new();
    all.insert("time".to_owned(), json!(clock::now()));
    all.insert("event".to_owned(), json!(event));
    all.extend(fields.clone());
    escaped_json(&Value::Object(all).to_string()) + "\n"
}

/// Returns a name without loss: as a string, or as a list of bytes if it is not UTF-8.
pub fn name_of(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(name) => json!(name),
        Err(_) => json!({ "bytes": bytes }),
    }
}
