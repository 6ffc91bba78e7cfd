//! Results so far, as lines of JSON in a file below `target/`, so that a stopped run resumes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::record::About;

/// Results by name; a name may have several.
pub struct Kept {
    path: PathBuf,
    file: File,
    lines: Vec<(String, Value)>,
}

impl Kept {
    /// Those of a run of the same commit that was stopped, unless it is to begin
    /// again.
    ///
    /// # Errors
    ///
    /// If the file cannot be used.
    pub fn open(path: &Path, about: &About, again: bool) -> Result<Kept, String> {
        let error = |error: std::io::Error| format!("{}: {error}", path.display());
        let head = json!({ "commit": about.commit }).to_string();
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut old = text.lines();
        let lines = if old.next() == Some(&head) && !again {
            old.map_while(parse_line).collect()
        } else {
            Vec::new()
        };
        if lines.is_empty() {
            fs::write(path, format!("{head}\n")).map_err(error)?;
        }
        let file = OpenOptions::new().append(true).open(path).map_err(error)?;
        Ok(Kept {
            path: path.into(),
            file,
            lines,
        })
    }

    /// Returns all results of a name, in their order of arrival.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        let lines = self.lines.iter().filter(move |line| line.0 == name);
        lines.map(|line| &line.1)
    }

    /// Everything, as one object with a list for each name.
    pub fn all(&self) -> Value {
        let mut all = serde_json::Map::new();
        for (name, _) in &self.lines {
            let values: Vec<Value> = self.of(name).cloned().collect();
            all.insert(name.clone(), values.into());
        }
        Value::Object(all)
    }

    /// Keeps one.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn add(&mut self, name: &str, value: Value) -> Result<(), String> {
        writeln!(self.file, "{}", json!({ "name": name, "value": value }))
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        self.lines.push((name.to_owned(), value));
        Ok(())
    }

    /// The run is complete and recorded elsewhere.
    ///
    /// # Errors
    ///
    /// If the file cannot be removed.
    pub fn forget(self) -> Result<(), String> {
        fs::remove_file(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

fn parse_line(line: &str) -> Option<(String, Value)> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some((value["name"].as_str()?.to_owned(), value["value"].clone()))
}

/// Writes `DATE-NAME.md` and `DATE-NAME.json`.
///
/// # Errors
///
/// If they cannot be written.
pub fn save(about: &About, name: &str, text: &str, results: &Value) -> Result<(), String> {
    print!("{text}");
    let value = json!({ "version": 1, "date": about.date, "commit": about.commit,
        "machine": about.machine, "kernel": about.kernel, "results": results });
    let directory = crate::workspace::root().join("bench/runs");
    for (end, text) in [("md", text), ("json", &format!("{value:#}\n"))] {
        let path = directory.join(format!("{}-{name}.{end}", about.date));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
