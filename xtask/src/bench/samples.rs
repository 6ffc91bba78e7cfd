//! Samples of a work: bytes, time, CPU time.

use std::fmt;
use std::path::Path;

use serde_json::{Value, json};

use super::kept::Kept;
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

    /// Parses the output of a measuring program, or a line of this file.
    ///
    /// # Errors
    ///
    /// If it is not a sample.
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
pub struct Samples(Kept);

impl Samples {
    /// Those of a run of the same commit that was stopped, unless it is to begin
    /// again.
    ///
    /// # Errors
    ///
    /// If the file cannot be used.
    pub fn open(path: &Path, about: &About, again: bool) -> Result<Samples, String> {
        Kept::open(path, about, again).map(Samples)
    }

    /// Returns the number of samples of a work.
    pub fn count(&self, name: &str) -> usize {
        self.0.of(name).count()
    }

    /// Those of a work that count.
    pub fn of(&self, name: &str) -> Vec<Sample> {
        let counted = self.0.of(name).skip(1);
        counted
            .filter_map(|value| Sample::parse(value).ok())
            .collect()
    }

    /// Keeps one.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn add(&mut self, name: &str, sample: Sample) -> Result<(), String> {
        let Sample { bytes, wall, cpu } = sample;
        let value = json!({ "bytes": bytes, "wall": wall, "cpu": cpu });
        self.0.add(name, value)
    }

    /// The run is complete and recorded elsewhere.
    ///
    /// # Errors
    ///
    /// If the file cannot be removed.
    pub fn forget(self) -> Result<(), String> {
        self.0.forget()
    }
}
