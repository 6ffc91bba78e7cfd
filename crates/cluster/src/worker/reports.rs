//! Writes the reports of a worker.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_proto::manifest::TreePath;
use longhaul_transfer::console::escaped_json;

use crate::protocol::{MAXIMUM_REPORT_BYTES, Report, line};

/// Writes reports. Several threads share it.
#[derive(Clone)]
pub struct Reports(Arc<Mutex<File>>);

impl Reports {
    /// Creates the writer of a worker's output.
    pub fn new(output: File) -> Reports {
        Reports(Arc::new(Mutex::new(output)))
    }

    /// Writes a report. Waits while the coordinator does not read.
    pub fn send(&self, report: &Report) {
        let Ok(line) = line(report) else {
            return;
        };
        if line.len() as u64 > MAXIMUM_REPORT_BYTES {
            return;
        }
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A coordinator that is gone closes the input too, which ends the worker.
        let _ = output.write_all(&line);
    }

    /// Writes to standard output.
    pub fn print(&self, bytes: Vec<u8>) {
        let bytes = bytes.into();
        self.send(&Report::Print { bytes });
    }

    /// Writes a line of JSON to standard output.
    pub fn print_json(&self, json: &impl std::fmt::Display) {
        self.print((escaped_json(&json.to_string()) + "\n").into_bytes());
    }

    /// Writes a line to standard error.
    pub fn note(&self, text: &str) {
        let text = text.to_owned();
        self.send(&Report::Note { text });
    }

    /// Writes an action and a path to standard output.
    pub fn name(&self, action: &[u8], path: &TreePath) {
        self.print([action, path.as_bytes(), b"\n"].concat());
    }
}
