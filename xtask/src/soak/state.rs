//! Finished steps, as lines of a file below `target/`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A step that was run.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Its part.
    pub part: String,
    /// Its name.
    pub step: String,
    /// Size of the step.
    pub size: String,
    /// True if the step passed.
    pub passed: bool,
    /// Duration of the step.
    pub seconds: f64,
    /// The host's load when it began and when it ended.
    pub load: [f64; 2],
    /// Notes, including seeds, or the failure.
    pub notes: Vec<String>,
    /// Year, month and day.
    pub date: String,
    /// The commit, with `-dirty` where there were changes.
    pub commit: String,
    /// Processors and kernel.
    pub machine: String,
}

impl Finished {
    /// Returns a line of the file.
    pub fn to_json(&self) -> Value {
        json!({
            "part": self.part, "step": self.step, "size": self.size, "passed": self.passed,
            "seconds": self.seconds, "load": self.load, "notes": self.notes,
            "date": self.date, "commit": self.commit, "machine": self.machine,
        })
    }

    fn parse(line: &str) -> Option<Finished> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| Some(value[key].as_str()?.to_owned());
        let notes = value["notes"].as_array()?.iter();
        Some(Finished {
            part: text("part")?,
            step: text("step")?,
            size: text("size")?,
            passed: value["passed"].as_bool()?,
            seconds: value["seconds"].as_f64()?,
            load: [value["load"][0].as_f64()?, value["load"][1].as_f64()?],
            notes: notes
                .map(|note| note.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
            date: text("date")?,
            commit: text("commit")?,
            machine: text("machine")?,
        })
    }
}

/// All that is finished.
pub struct State {
    path: PathBuf,
    file: File,
    finished: Vec<Finished>,
}

impl State {
    /// Reads the file. An incomplete line is ignored.
    ///
    /// # Errors
    ///
    /// If the file cannot be used.
    pub fn open(path: &Path) -> Result<State, String> {
        let error = |error: std::io::Error| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let finished = text.lines().filter_map(Finished::parse).collect();
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(error)?;
        Ok(State {
            path: path.into(),
            file,
            finished,
        })
    }

    /// True if a step passed at this size.
    pub fn passed(&self, part: &str, step: &str, size: &str) -> bool {
        let last = self.last();
        last.iter().any(|finished| {
            let same = (finished.part.as_str(), finished.step.as_str()) == (part, step);
            same && finished.size == size && finished.passed
        })
    }

    /// The last run of each step, in the order in which they were first run.
    pub fn last(&self) -> Vec<&Finished> {
        let mut last: Vec<&Finished> = Vec::new();
        for finished in &self.finished {
            let key = (&finished.part, &finished.step);
            match last.iter_mut().find(|old| (&old.part, &old.step) == key) {
                Some(old) => *old = finished,
                None => last.push(finished),
            }
        }
        last
    }

    /// Keeps one.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn add(&mut self, finished: Finished) -> Result<(), String> {
        writeln!(self.file, "{}", finished.to_json())
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        self.finished.push(finished);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(step: &str, size: &str, passed: bool) -> Finished {
        Finished {
            part: "part".to_owned(),
            step: step.to_owned(),
            size: size.to_owned(),
            passed,
            seconds: 1.5,
            load: [0.5, 1.0],
            notes: vec!["seed 7".to_owned()],
            date: "2026-01-01".to_owned(),
            commit: "c".to_owned(),
            machine: "m".to_owned(),
        }
    }

    #[test]
    fn a_later_failure_cancels_a_passed_step() {
        let path = std::env::temp_dir().join(format!("soak-state-{}", std::process::id()));
        let mut state = State::open(&path).unwrap();
        for step in [
            finished("a", "1", true),
            finished("b", "1", true),
            finished("b", "1", false),
        ] {
            state.add(step).unwrap();
        }
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"{\"part\":\"part\",").unwrap();
        let state = State::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(state.passed("part", "a", "1"));
        assert!(!state.passed("part", "a", "2"));
        assert!(!state.passed("part", "b", "1"));
        assert_eq!(state.last().len(), 2);
    }
}
