//! What was measured, a line each in a file below `target/`.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::record::About;

/// One repetition of one work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Bytes moved.
    pub bytes: f64,
    /// Seconds by the clock.
    pub wall: f64,
    /// CPU seconds, user and system, of all processes involved.
    pub cpu: f64,
}

impl Sample {
    /// CPU seconds for 10^9 bytes.
    pub fn cost(self) -> f64 {
        self.cpu / self.bytes * 1e9
    }

    /// 10^9 bytes a second.
    pub fn rate(self) -> f64 {
        self.bytes / self.wall / 1e9
    }

    /// Reads what a measuring program printed, or this file.
    ///
    /// # Errors
    ///
    /// Where it is none.
    pub fn parse(value: &Value) -> Result<Sample, String> {
        let number = |key: &str| match value[key].as_f64() {
            Some(number) => Ok(number),
            None => Err(format!("{value} has no number \"{key}\"")),
        };
        Ok(Sample {
            bytes: number("bytes")?,
            wall: number("wall")?,
            cpu: number("cpu")?,
        })
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GB/s, {:.3} CPU s/GB", self.rate(), self.cost())
    }
}

/// All samples of a run, the warm-up of each work first.
pub struct Samples {
    path: PathBuf,
    file: File,
    lines: Vec<(String, Sample)>,
}

impl Samples {
    /// Those of a run of the same commit that was stopped, unless it is to begin
    /// again.
    ///
    /// # Errors
    ///
    /// Where the file cannot be used.
    pub fn open(path: &Path, about: &About, again: bool) -> Result<Samples, String> {
        let error = |error: std::io::Error| format!("{}: {error}", path.display());
        let head = json!({ "commit": about.commit }).to_string();
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut old = text.lines();
        let lines = match old.next() == Some(&head) && !again {
            true => old.map_while(parse_line).collect(),
            false => Vec::new(),
        };
        if lines.is_empty() {
            fs::write(path, format!("{head}\n")).map_err(error)?;
        }
        let file = OpenOptions::new().append(true).open(path).map_err(error)?;
        Ok(Samples {
            path: path.into(),
            file,
            lines,
        })
    }

    /// How many there are of a work.
    pub fn count(&self, name: &str) -> usize {
        self.lines.iter().filter(|line| line.0 == name).count()
    }

    /// Those of a work that count.
    pub fn of(&self, name: &str) -> Vec<Sample> {
        let all = self.lines.iter().filter(|line| line.0 == name);
        all.skip(1).map(|line| line.1).collect()
    }

    /// Keeps one.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written.
    pub fn add(&mut self, name: &str, sample: Sample) -> Result<(), String> {
        let Sample { bytes, wall, cpu } = sample;
        let line = json!({ "name": name, "bytes": bytes, "wall": wall, "cpu": cpu });
        writeln!(self.file, "{line}")
            .map_err(|error| format!("{}: {error}", self.path.display()))?;
        self.lines.push((name.to_owned(), sample));
        Ok(())
    }

    /// The run is complete and recorded elsewhere.
    ///
    /// # Errors
    ///
    /// Where the file cannot be removed.
    pub fn forget(self) -> Result<(), String> {
        fs::remove_file(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

fn parse_line(line: &str) -> Option<(String, Sample)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let sample = Sample::parse(&value).ok()?;
    Some((value["name"].as_str()?.to_owned(), sample))
}
