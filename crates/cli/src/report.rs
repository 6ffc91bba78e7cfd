//! Output of a transfer: a progress line or JSON events while it runs, failures as they
//! happen, and a summary and a manifest at the end.

mod progress;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_engine::session::{Event, Progress};
use longhaul_proto::digest::Checksum;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::Change;
use longhaul_transfer::between_hosts::job_protocol::Shown;
use longhaul_transfer::between_hosts::viewer::{JobOutput, Outlet};
use longhaul_transfer::client::observer::{
    Again, Control, INTERRUPTED, Observer, Outcome, Running, stream_damage,
};
use longhaul_transfer::entry_log::Logged;
use longhaul_transfer::manifest::Manifest;
use longhaul_transfer::planning::foresight::Foreseen;
use longhaul_transfer::rendering::entries::{damage, planned};
use longhaul_transfer::rendering::failures::Failures;
use longhaul_transfer::rendering::progress::arrived;
use longhaul_transfer::rendering::{json, notices, summary};

use serde_json::{Value, json};

use crate::heap;
use crate::messages::{
    Exit, Stop, clear_line, leave, print_json, say, write_error_line, write_names,
};
use longhaul_transfer::signals::at_signal;

/// Output of a transfer.
pub struct Report {
    shown: Shown,
    /// If true, names of copied files are printed on standard output.
    names: bool,
    /// True for a comparison.
    compares: bool,
    failures: Failures,
    terminal: bool,
    manifest: Option<Mutex<Manifest>>,
    /// Receiver of progress for a job; `None` for a command.
    outlet: Option<Arc<dyn Outlet>>,
    control: Control,
}

impl Report {
    /// Creates the report of a transfer that `control` can end. `manifest` is the path of
    /// the manifest and its name as the user wrote it.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest cannot be written.
    pub fn new(
        shown: Shown,
        manifest: Option<(PathBuf, String)>,
        control: &Control,
    ) -> Result<Report, Stop> {
        let manifest = manifest.map(|(file, named)| Manifest::new(file, named));
        Ok(Report {
            shown,
            names: shown.verbose,
            compares: false,
            failures: Failures::new(shown.verbose),
            manifest: manifest.transpose()?.map(Mutex::new),
            terminal: std::io::stderr().is_terminal(),
            outlet: None,
            control: control.clone(),
        })
    }

    /// Returns the report for a comparison if `compares` is true: it names only differences.
    pub fn comparing(self, compares: bool) -> Report {
        Report {
            names: self.names && !compares,
            compares,
            failures: Failures::new(compares || self.shown.verbose),
            ..self
        }
    }

    /// Returns the report of a job, whose progress is sent to its followers.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest or a log cannot be written.
    pub fn of_job(output: JobOutput) -> Result<Arc<dyn Observer>, Stop> {
        let report = Report::new(output.shown, output.manifest, &output.control)?;
        let report = report.comparing(output.about.compares());
        let report = Arc::new(Report {
            outlet: Some(output.outlet),
            ..report
        });
        let [entries, log] = &output.accounts;
        Logged::around(report, (entries.as_deref(), log.as_deref()), output.about)
    }

    /// Prints the attributes that the destination did not keep or refused.
    fn tell_notices(&self, outcome: &Outcome<'_>) {
        for (kind, line) in notices::lines(&outcome.ending.notices, outcome.asked) {
            if outcome.asked.contains(&kind) {
                say(&line);
            } else if !self.shown.quiet && !self.shown.json {
                write_error_line(&line);
            }
        }
    }

    fn tell_failure(&self, path: Option<&TreePath>, text: &str) {
        let shown = path.map(ToString::to_string).unwrap_or_default();
        match (self.failures.note(&shown, text), text.contains(&shown)) {
            (false, _) => (),
            (true, true) => say(text),
            (true, false) => say(&format!("{shown}: {text}")),
        }
    }

    fn summarise(&self, outcome: &Outcome<'_>) {
        for line in summary::of_outcome(outcome, self.shown.verbose) {
            write_error_line(&line);
        }
    }
}

/// Makes SIGINT and SIGTERM end the transfer. A second signal ends the process, as does
/// the first one if no transfer has begun.
pub fn end_at_signal(control: &Control) {
    let control = control.clone();
    let heeded = at_signal(move || {
        if control.cancel() || !control.has_begun() {
            say(INTERRUPTED);
            leave(Exit::Interrupted);
        }
    });
    if let Err(error) = heeded {
        say(&format!(
            "an interrupt will end this process at once: {error}"
        ));
    }
}

impl Observer for Report {
    fn event(&self, event: &Event) {
        if self.shown.json {
            print_json(&json::event(event, self.compares));
        }
        match event {
            Event::Failed { path, failure } => self.tell_failure(path.as_ref(), &failure.text),
            Event::Undeleted { failure } => self.tell_failure(None, &failure.text),
            Event::Deleted {
                path,
                size,
                directory,
                planned: true,
            } if !self.shown.quiet && !self.shown.json => {
                let end: &[u8] = if *directory { b"/" } else { b"" };
                name(format!("would delete {size} ").as_bytes(), path, end);
            }
            Event::Deleted { path, .. } if self.names => name(b"deleted ", path, b""),
            Event::Deleted { .. } => {}
            Event::Planned { path, change, .. } if self.names => {
                name(planned(*change), path, b"");
            }
            Event::Planned { .. } | Event::Left { .. } | Event::Omitted { .. } => {}
            Event::Committed { path, digest, .. }
            | Event::Skipped { path, digest, .. }
            | Event::Mended { path, digest, .. } => {
                match event {
                    Event::Committed { .. } if self.names => name(b"", path, b""),
                    Event::Mended { .. } if self.names => {
                        name(planned(Change::Attributes), path, b"");
                    }
                    _ => {}
                }
                if let (Some(manifest), Some(Checksum::Blake3(digest))) = (&self.manifest, digest) {
                    let mut manifest = manifest.lock().unwrap_or_else(PoisonError::into_inner);
                    manifest.add(path.as_bytes(), digest);
                }
            }
            Event::Damaged {
                path,
                piece,
                entries,
            } => say(&damage(path, *piece, *entries)),
            Event::StreamDamaged { stream, error } => say(&stream_damage(*stream, error)),
            Event::Resumed { .. } | Event::Durable { .. } => {}
        }
    }

    fn begun(&self, running: &Running) {
        let thread = std::thread::Builder::new().name("progress".into());
        let running = running.clone();
        if let Some(outlet) = &self.outlet {
            end_at_signal(&self.control);
            outlet.begun();
            let outlet = Arc::clone(outlet);
            // If no thread can be started, progress is not reported, and the transfer continues.
            let _ = thread.spawn(move || progress::tell(&running, &*outlet));
            return;
        }
        let (json, terminal) = (self.shown.json, self.terminal);
        if self.shown.quiet || !(terminal || json) {
            return;
        }
        let followed = thread.spawn(move || progress::follow(&running, json, terminal));
        if let Err(error) = followed {
            say(&format!("progress is not shown: {error}"));
        }
    }

    fn again(&self, again: &Again<'_>) {
        if let Some(manifest) = &self.manifest {
            let mut manifest = manifest.lock().unwrap_or_else(PoisonError::into_inner);
            manifest.begin_again();
        }
        if let Some(outlet) = &self.outlet {
            // The command that started the job need not wait for the next try.
            outlet.begun();
        }
        if self.shown.json {
            print_json(&json::again(again));
        } else {
            say(&again.line());
        }
    }

    fn wants_forecast(&self) -> bool {
        self.shown.explain
    }

    fn foreseen(&self, foreseen: &Foreseen) {
        if self.shown.json {
            print_json(&json::plan(foreseen));
            return;
        }
        clear_line();
        for line in foreseen.lines() {
            write_error_line(&line);
        }
    }

    fn concluded(&self, outcome: &Outcome<'_>) -> Result<(), Stop> {
        clear_line();
        if let Some(outlet) = &self.outlet {
            outlet.done_bytes(arrived(&outcome.progress));
            outlet.over();
        }
        self.failures.rest().iter().for_each(|line| say(line));
        if self.shown.json {
            if let Some(pipe) = &outcome.pipe {
                print_json(&json::stream(pipe));
            }
            print_json(&with_heap(json::summary(outcome)));
        } else if !self.shown.quiet {
            self.summarise(outcome);
        }
        self.tell_notices(outcome);
        match &self.manifest {
            Some(manifest) if outcome.is_complete() => {
                let mut manifest = manifest.lock().unwrap_or_else(PoisonError::into_inner);
                manifest.write()
            }
            _ => Ok(()),
        }
    }
}

/// Returns the progress of a transfer as JSON.
fn progress_json(progress: &Progress) -> Value {
    with_heap(json::progress(progress))
}

/// Adds the number of allocated bytes, in builds that count them.
fn with_heap(mut value: Value) -> Value {
    if let Some(bytes) = heap::live_bytes() {
        value["heap_bytes"] = json!(bytes);
    }
    value
}

/// Prints an entry and its operation. A name is printed unchanged to a program, and
/// without control characters to a terminal.
fn name(what: &[u8], path: &TreePath, end: &[u8]) {
    clear_line();
    if std::io::stdout().is_terminal() {
        write_names(&[what, path.to_string().as_bytes(), end, b"\n"].concat());
    } else {
        write_names(&[what, path.as_bytes(), end, b"\n"].concat());
    }
}
