//! Completes the records of sessions whose process was killed. The file system shows which of the
//! announced changes were made.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_system::named_files::kept_to_read;
use longhaul_system::process_identity;
use serde_json::{Value, json};

use super::record::{Fields, line_of};

/// Maximum length of a record in bytes. Longer lines are skipped.
const MAXIMUM_RECORD_BYTES: usize = 1 << 20;

/// A session that has no record of its end.
#[derive(Default)]
struct Unended {
    begin: Fields,
    /// Announced changes without an outcome.
    intents: BTreeMap<String, Fields>,
    /// Number and bytes of the entries that were committed or sent.
    entries: u64,
    bytes: u64,
}

/// Returns the records that are missing in a file.
///
/// # Errors
///
/// The file cannot be read.
pub fn reconcile(file: &Path) -> io::Result<String> {
    let opened = match kept_to_read(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let mut unended: BTreeMap<String, Unended> = BTreeMap::new();
    if !opened.metadata()?.is_file() {
        // A device keeps no records.
        return Ok(String::new());
    }
    each_record(BufReader::new(opened), |record| {
        take(&mut unended, record);
    })?;
    let mut missing = String::new();
    for session in unended.into_values() {
        let process = session.begin.get("process").and_then(Value::as_str);
        if !process.is_some_and(process_identity::runs) {
            missing += &ended(session);
        }
    }
    Ok(missing)
}

fn each_record(mut file: impl BufRead, mut take: impl FnMut(Fields)) -> io::Result<()> {
    let mut line = Vec::new();
    let mut skips = false;
    loop {
        line.clear();
        let mut limited = io::Read::take(&mut file, MAXIMUM_RECORD_BYTES as u64);
        if limited.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let is_whole = line.ends_with(b"\n");
        if let (false, true, Ok(Value::Object(record))) =
            (skips, is_whole, serde_json::from_slice(&line))
        {
            take(record);
        }
        skips = !is_whole;
    }
}

fn take(unended: &mut BTreeMap<String, Unended>, record: Fields) {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    let (Some(event), Some(id)) = (text("event"), text("session")) else {
        return;
    };
    match event {
        "begin" => {
            let session = unended.entry(id.to_owned()).or_default();
            session.begin = record;
        }
        "end" => {
            unended.remove(id);
        }
        "intent" => {
            let key = key_of(text("change").unwrap_or_default(), &record);
            if let Some(session) = unended.get_mut(id) {
                session.intents.insert(key, record);
            }
        }
        outcome => {
            let Some(session) = unended.get_mut(id) else {
                return;
            };
            let ended: &[&str] = match outcome {
                "committed" => &["commit"],
                "deleted" => &["delete", "remove-source"],
                "failed" => &["commit", "delete", "remove-source"],
                _ => &[],
            };
            for change in ended {
                session.intents.remove(&key_of(change, &record));
            }
            if ["committed", "sent"].contains(&outcome) {
                session.entries += 1;
                let bytes = record.get("bytes").and_then(Value::as_u64);
                session.bytes += bytes.unwrap_or_default();
            }
        }
    }
}

fn key_of(change: &str, record: &Fields) -> String {
    let path = record.get("path").unwrap_or(&Value::Null);
    format!("{change} {path}")
}

/// Returns the missing records of a session.
fn ended(session: Unended) -> String {
    let Unended {
        begin,
        intents,
        mut entries,
        mut bytes,
    } = session;
    let mut lines = String::new();
    for intent in intents.into_values() {
        let (outcome, line) = outcome_of(&intent);
        lines += &line;
        if outcome == "committed" {
            entries += 1;
            bytes += intent
                .get("bytes")
                .and_then(Value::as_u64)
                .unwrap_or_default();
        }
    }
    let mut fields = begin;
    for name in ["time", "event", "process", "continued"] {
        fields.remove(name);
    }
    if fields.get("each_file") == Some(&json!(true)) {
        fields.insert("entries".to_owned(), json!(entries));
        fields.insert("bytes".to_owned(), json!(bytes));
    }
    fields.insert("reconciled".to_owned(), json!(true));
    fields.insert("outcome".to_owned(), json!("the daemon was killed"));
    lines + &line_of("end", &fields)
}

/// Returns the outcome of an announced change, by the state of the file system, and its record.
pub(super) fn outcome_of(intent: &Fields) -> (&'static str, String) {
    let change = intent.get("change").and_then(Value::as_str);
    let path = intent.get("host_path").and_then(path_of);
    let inode = intent.get("inode").and_then(Value::as_u64);
    let found = path.as_deref().zip(inode).map(|(path, inode)| {
        let found = path.symlink_metadata();
        found.is_ok_and(|found| found.ino() == inode)
    });
    let outcome = match (change, found) {
        (Some("commit"), Some(true)) => "committed",
        (Some("commit"), Some(false)) => "not-committed",
        (Some("delete" | "remove-source"), Some(true)) => "not-deleted",
        (Some("delete" | "remove-source"), Some(false)) => "deleted",
        _ => "unknown",
    };
    let mut fields = intent.clone();
    for name in ["time", "event"] {
        fields.remove(name);
    }
    fields.insert("reconciled".to_owned(), json!(true));
    (outcome, line_of(outcome, &fields))
}

/// Returns the path in a record; see [`super::record::name_of`].
fn path_of(value: &Value) -> Option<PathBuf> {
    if let Some(text) = value.as_str() {
        return Some(PathBuf::from(text));
    }
    let bytes = value.get("bytes")?.as_array()?.iter();
    let bytes = bytes.map(|byte| u8::try_from(byte.as_u64()?).ok());
    let bytes: Option<Vec<u8>> = bytes.collect();
    Some(PathBuf::from(OsString::from_vec(bytes?)))
}
