//! Events of sessions as reports to the coordinator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_engine::session::Event;
use longhaul_proto::filter::Reason;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::Change;
use longhaul_transfer::client::observer::{Observer, Outcome, Running};
use longhaul_transfer::rendering::entries::planned;
use longhaul_transfer::rendering::failures::Failures;
use longhaul_transfer::rendering::{json, notices, summary};
use longhaul_transfer::stop::Stop;

use super::reports::Reports;
use crate::protocol::{Ended, MOST_FOUND, Output, Report, SessionNumber};
use crate::task::{Found, MOST_PATH_BYTES};

/// Counts of a session.
#[derive(Default)]
pub struct Tally {
    files: AtomicU64,
    bytes: AtomicU64,
    newer: AtomicU64,
}

impl Tally {
    fn count(&self, event: &Event) {
        match event {
            Event::Committed {
                size, file: true, ..
            } => {
                self.files.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(*size, Ordering::Relaxed);
            }
            Event::Left { held, .. } if held.reason() == Reason::Newer => {
                self.newer.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Returns the counts.
    pub fn ended(&self) -> Ended {
        Ended {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            newer: self.newer.load(Ordering::Relaxed),
            ..Ended::default()
        }
    }
}

/// Observer of a survey: collects the files that a copy would transfer.
pub struct Surveying {
    session: SessionNumber,
    found: Mutex<Vec<Found>>,
    reports: Reports,
}

impl Surveying {
    /// Creates the observer of a session.
    pub fn new(session: SessionNumber, reports: &Reports) -> Surveying {
        Surveying {
            session,
            found: Mutex::default(),
            reports: reports.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, files: Vec<Found>) {
        let session = self.session;
        if !files.is_empty() {
            self.reports.send(&Report::Found { session, files });
        }
    }
}

impl Observer for Surveying {
    fn event(&self, event: &Event) {
        let Event::Planned {
            path,
            size,
            file: true,
            change,
            ..
        } = event
        else {
            return;
        };
        if *change == Change::Attributes {
            // The last session corrects them.
            return;
        }
        let mut found = self.lock();
        found.push(Found {
            path: path.as_bytes().into(),
            size: *size,
            replaces: *change == Change::Changed,
        });
        let bytes: usize = found.iter().map(|found| found.path.len()).sum();
        if found.len() >= MOST_FOUND || bytes >= MOST_PATH_BYTES {
            self.send(std::mem::take(&mut *found));
        }
    }

    fn begun(&self, _: &Running) {}

    fn concluded(&self, _: &Outcome<'_>) -> Result<(), Stop> {
        self.send(std::mem::take(&mut *self.lock()));
        Ok(())
    }
}

/// Observer of a task. The last session reports failures.
pub struct Packing {
    output: Output,
    tally: Arc<Tally>,
    reports: Reports,
}

impl Packing {
    /// Creates the observer.
    pub fn new(output: Output, tally: Arc<Tally>, reports: &Reports) -> Packing {
        let reports = reports.clone();
        Packing {
            output,
            tally,
            reports,
        }
    }
}

impl Observer for Packing {
    fn event(&self, event: &Event) {
        self.tally.count(event);
        if let Event::Committed {
            path, file: true, ..
        } = event
        {
            if self.output.json {
                self.reports.print_json(&json::event(event, false));
            } else if self.output.verbose {
                self.reports.name(b"", path);
            }
        }
    }

    fn begun(&self, _: &Running) {}

    fn concluded(&self, _: &Outcome<'_>) -> Result<(), Stop> {
        Ok(())
    }
}

/// Observer of the last session, whose output is the output of the command.
pub struct Finishing {
    output: Output,
    tally: Arc<Tally>,
    failures: Failures,
    reports: Reports,
}

impl Finishing {
    /// Creates the observer.
    pub fn new(output: Output, tally: Arc<Tally>, reports: &Reports) -> Finishing {
        Finishing {
            output,
            tally,
            failures: Failures::new(output.verbose),
            reports: reports.clone(),
        }
    }

    fn failed(&self, path: Option<&TreePath>, text: &str) {
        let shown = path.map(ToString::to_string).unwrap_or_default();
        match (self.failures.note(&shown, text), text.contains(&shown)) {
            (false, _) => {}
            (true, true) => self.reports.note(text),
            (true, false) => self.reports.note(&format!("{shown}: {text}")),
        }
    }

    fn name(&self, event: &Event) {
        match event {
            Event::Committed { path, .. } => self.reports.name(b"", path),
            Event::Mended { path, .. } => self.reports.name(planned(Change::Attributes), path),
            Event::Planned { path, change, .. } => self.reports.name(planned(*change), path),
            Event::Deleted {
                path,
                planned: false,
                ..
            } => self.reports.name(b"deleted ", path),
            _ => {}
        }
    }
}

impl Observer for Finishing {
    fn event(&self, event: &Event) {
        self.tally.count(event);
        match event {
            Event::Failed { path, failure } => self.failed(path.as_ref(), &failure.text),
            Event::Undeleted { failure } => self.failed(None, &failure.text),
            _ => {}
        }
        if self.output.json {
            self.reports.print_json(&json::event(event, false));
            return;
        }
        if let Event::Deleted {
            path,
            size,
            planned: true,
            ..
        } = event
            && !self.output.quiet
        {
            let action = format!("would delete {size} ");
            self.reports.name(action.as_bytes(), path);
        }
        if self.output.verbose {
            self.name(event);
        }
    }

    fn begun(&self, _: &Running) {}

    fn concluded(&self, outcome: &Outcome<'_>) -> Result<(), Stop> {
        let say = |line: &String| self.reports.note(line);
        self.failures.rest().iter().for_each(say);
        if self.output.json {
            self.reports.print_json(&json::summary(outcome));
        } else if !self.output.quiet {
            let lines = summary::of_outcome(outcome, self.output.verbose);
            lines.iter().for_each(say);
        }
        for (kind, line) in notices::lines(&outcome.ending.notices, outcome.asked) {
            let is_quiet = self.output.quiet || self.output.json;
            if outcome.asked.contains(&kind) || !is_quiet {
                say(&line);
            }
        }
        Ok(())
    }
}
