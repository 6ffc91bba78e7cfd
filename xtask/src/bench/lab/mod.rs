//! Compares the lab with its settings: throughput of one stream, RTT and capacity while another
//! processor is busy, loss, damage, storage devices.
//!
//! - [`trials`]: the measurements
//! - [`record`]: settings and results as Markdown

mod record;
mod trials;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::LONGEST;
use super::kept::Kept;
use crate::demo::janitor::Janitor;

pub use record::write;

/// Runs commands in labs.
pub struct Hosts<'a> {
    /// `longhaul`, release.
    binary: PathBuf,
    directory: &'a Path,
    janitor: &'a Janitor,
}

impl<'a> Hosts<'a> {
    /// Uses the release build below `target`.
    pub fn new(target: &Path, directory: &'a Path, janitor: &'a Janitor) -> Hosts<'a> {
        Hosts {
            binary: target.join("release/longhaul"),
            directory,
            janitor,
        }
    }

    /// The command line of `bench worker`.
    pub fn worker(&self) -> String {
        let own = std::env::current_exe().unwrap_or_default();
        format!("{} bench worker", own.display())
    }

    /// Runs a command in a lab; gives its output and the lab's report. `busy`
    /// keeps one processor busy meanwhile.
    ///
    /// # Errors
    ///
    /// If it fails.
    pub fn run(
        &self,
        options: &[&str],
        command: &[&str],
        busy: bool,
    ) -> Result<(String, Value), String> {
        let report = self.directory.join("report.json");
        let mut lab = Command::new(&self.binary);
        lab.args(["lab", "run", "--quiet", "--report"]).arg(&report);
        lab.args(options).arg("--").args(command);
        lab.stdin(Stdio::null()).stdout(Stdio::piped());
        let other = if busy {
            Some(Busy::start(self.janitor)?)
        } else {
            None
        };
        let started = lab.spawn();
        let child = started.map_err(|error| format!("cannot run {lab:?}: {error}"))?;
        let pid = child.id();
        self.janitor.started(pid)?;
        let output = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        self.janitor.ended(pid)?;
        drop(other);
        if !output.status.success() {
            return Err(format!("{lab:?}: {}", output.status));
        }
        let text = std::fs::read_to_string(&report)
            .map_err(|error| format!("{}: {error}", report.display()))?;
        let report = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), report))
    }
}

/// A process that takes what it can of a processor; ended when this is dropped.
struct Busy<'a> {
    child: std::process::Child,
    janitor: &'a Janitor,
}

impl Busy<'_> {
    fn start(janitor: &Janitor) -> Result<Busy<'_>, String> {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let child = command.spawn().map_err(|error| error.to_string())?;
        janitor.started(child.id())?;
        Ok(Busy { child, janitor })
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let pid = self.child.id();
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The janitor gone, it has ended it already.
        let _ = self.janitor.ended(pid);
    }
}

/// Measures as far as there is time; false where that was up.
///
/// # Errors
///
/// If a step fails.
pub fn measure(hosts: &Hosts, kept: &mut Kept) -> Result<bool, String> {
    let began = Instant::now();
    let trials = trials::all();
    let most = trials.iter().map(|trial| trial.rounds).max().unwrap_or(0);
    for round in 0..most {
        for trial in trials.iter().filter(|trial| trial.rounds > round) {
            let name = trial.name();
            if kept.of(&name).count() > round {
                continue;
            }
            if began.elapsed() > LONGEST {
                return Ok(false);
            }
            let value = trial.run(hosts)?;
            println!("bench: round {round}: {name}: {value}");
            kept.add(&name, value)?;
        }
    }
    Ok(true)
}
