//! `--report FILE`: the result of each entry as JSON lines, to audit large transfers.
//! `--log-file FILE`: the same as readable text with times, appended to the file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_engine::session::Event;
use longhaul_proto::criteria::Held;
use longhaul_proto::digest::Checksum;
use longhaul_proto::filter::Reason;
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::Change;
use longhaul_system::named_files::{Older, to_write};
use longhaul_units::rfc3339;
use serde_json::{Map, Value, json};

use crate::about::About;
use crate::client::observer::{Again, Observer, Outcome, Running};
use crate::console::{escaped_json, one_line};
use crate::manifest::hexadecimal;
use crate::stop::{Exit, Stop};

/// Maximum length of a line in bytes.
const MAXIMUM_LINE_BYTES: usize = 32 << 10;

/// The report and the log, if requested.
pub struct EntryLog {
    report: Option<Mutex<Lines>>,
    log: Option<Mutex<Lines>>,
    about: About,
    begun: Once,
}

struct Lines {
    file: BufWriter<File>,
    path: PathBuf,
    failed: Option<io::Error>,
}

impl Lines {
    fn open(path: &Path, older: Older) -> Result<Mutex<Lines>, Stop> {
        let file = to_write(path, older).map_err(|error| stop(path, &error))?;
        Ok(Mutex::new(Lines {
            file: BufWriter::new(file),
            path: path.to_owned(),
            failed: None,
        }))
    }

    fn add(&mut self, line: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        let written = self.file.write_all(line);
        self.failed = written.and_then(|()| self.file.write_all(b"\n")).err();
    }

    fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.file.flush().err();
        }
    }

    fn end(&mut self) -> Result<(), Stop> {
        let flushed = match self.failed.take() {
            Some(error) => Err(error),
            None => self.file.flush().and_then(|()| sync(self.file.get_ref())),
        };
        flushed.map_err(|error| stop(&self.path, &error))
    }
}

/// Syncs a file. Pipes and terminals do not support it, which is not an error.
fn sync(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

fn stop(path: &Path, error: &io::Error) -> Stop {
    let shown = path.display();
    let text = format!("cannot write {shown}: {error}; name a file that can be written");
    Stop::new(Exit::Local, text)
}

/// Result of an entry.
struct Line<'a> {
    what: &'static str,
    path: Option<&'a TreePath>,
    fields: Map<String, Value>,
    /// Details for the user, shown after the path.
    shown: String,
}

impl EntryLog {
    /// Opens the requested files now, so that a failure does not appear after hours of copying.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn new(
        report: Option<&Path>,
        log: Option<&Path>,
        about: About,
    ) -> Result<Option<EntryLog>, Stop> {
        if report.is_none() && log.is_none() {
            return Ok(None);
        }
        Ok(Some(EntryLog {
            report: report
                .map(|path| Lines::open(path, Older::Goes))
                .transpose()?,
            log: log
                .map(|path| Lines::open(path, Older::Stays))
                .transpose()?,
            about,
            begun: Once::new(),
        }))
    }

    /// Writes the first line. Entries may end before the transfer is reported to run.
    fn begin(&self) {
        self.begun.call_once(|| self.note(&self.about.beginning()));
    }

    /// Writes the result of an entry.
    pub fn event(&self, event: &Event) {
        let Some(line) = line_of(event, self.about.operation) else {
            return;
        };
        if let Some(report) = &self.report {
            let mut fields = line.fields.clone();
            fields.insert("entry".into(), json!(line.what));
            fields.insert("path".into(), line.path.map_or(Value::Null, name_of));
            let text = escaped_json(&Value::Object(fields).to_string());
            lock(report).add(text.as_bytes());
        }
        let is_there = matches!(event, Event::Skipped { .. })
            || self.about.operation == Operation::Verify
                && matches!(event, Event::Committed { .. });
        if let Some(log) = &self.log
            && (self.about.unchanged || !is_there)
        {
            let path = line.path.map(ToString::to_string).unwrap_or_default();
            let words = [line.what, &path, &line.shown];
            let words = words.into_iter().filter(|word| !word.is_empty());
            let text = words.collect::<Vec<_>>().join(" ");
            let text = one_line(&text, MAXIMUM_LINE_BYTES);
            lock(log).add(format!("{} {text}", now()).as_bytes());
        }
    }

    /// Writes a line about the whole transfer.
    pub fn note(&self, text: &str) {
        if let Some(log) = &self.log {
            let text = one_line(text, MAXIMUM_LINE_BYTES);
            lock(log).add(format!("{} {text}", now()).as_bytes());
        }
    }

    /// Records a failed try. Later lines belong to the next try.
    fn again(&self, again: &Again<'_>) {
        if let Some(report) = &self.report {
            let fields = json!({
                "entry": "again", "path": null, "try": again.failed, "text": again.text,
            });
            lock(report).add(escaped_json(&fields.to_string()).as_bytes());
        }
        self.note(&one_line(&again.line(), MAXIMUM_LINE_BYTES));
        // The user may read the results of this try meanwhile.
        for lines in self.report.iter().chain(&self.log) {
            lock(lines).flush();
        }
    }

    /// Flushes and syncs the files at the end of the transfer.
    ///
    /// # Errors
    ///
    /// A line could not be written.
    pub fn end(&self) -> Result<(), Stop> {
        let mut files = self.report.iter().chain(&self.log);
        files.try_for_each(|lines| lock(lines).end())
    }
}

fn lock(lines: &Mutex<Lines>) -> std::sync::MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(0);
    rfc3339(seconds)
}

/// Returns a path for JSON: a string, or its bytes if it is not UTF-8.
fn name_of(path: &TreePath) -> Value {
    match std::str::from_utf8(path.as_bytes()) {
        Ok(path) => json!(path),
        Err(_) => json!({ "bytes": path.as_bytes() }),
    }
}

fn of<'a>(what: &'static str, path: &'a TreePath, fields: &[(&str, Value)]) -> Line<'a> {
    let fields = fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    Line {
        what,
        path: Some(path),
        fields: fields.collect(),
        shown: String::new(),
    }
}

/// Returns the line for an event, or `None` if it is not the result of an entry.
fn line_of(event: &Event, operation: Operation) -> Option<Line<'_>> {
    let digest = |digest: &Option<Checksum>| match digest {
        Some(Checksum::Blake3(digest)) => json!(hexadecimal(digest)),
        _ => Value::Null,
    };
    let with_data = |word, path, size: &u64, file: &bool, found| {
        let fields = [
            ("bytes", json!(size)),
            ("file", json!(file)),
            ("blake3", digest(found)),
        ];
        of(word, path, &fields)
    };
    Some(match event {
        Event::Committed {
            path,
            size,
            file,
            digest,
        } => {
            let word = match operation {
                Operation::Copy | Operation::DryRun => "copied",
                Operation::Verify => "compared",
            };
            with_data(word, path, size, file, digest)
        }
        Event::Skipped {
            path,
            size,
            file,
            digest,
        } => with_data("unchanged", path, size, file, digest),
        Event::Mended {
            path,
            size,
            file,
            digest,
            ..
        } => with_data("attributes", path, size, file, digest),
        Event::Planned {
            path,
            size,
            file,
            change,
            ..
        } => of(
            match change {
                Change::New => "new",
                Change::Changed => "changed",
                Change::Attributes => "attributes",
            },
            path,
            &[("bytes", json!(size)), ("file", json!(file))],
        ),
        Event::Left { .. }
        | Event::Omitted { .. }
        | Event::Deleted { .. }
        | Event::Failed { .. }
        | Event::Undeleted { .. } => return line_of_others(event),
        Event::Resumed { .. }
        | Event::Durable { .. }
        | Event::Damaged { .. }
        | Event::StreamDamaged { .. } => return None,
    })
}

/// Returns the line for an entry that was neither copied nor unchanged.
fn line_of_others(event: &Event) -> Option<Line<'_>> {
    Some(match event {
        Event::Left {
            path, size, held, ..
        } => {
            let reason = match held {
                Held::Newer => "newer",
                Held::Missing => "missing",
                Held::Exists => "exists",
            };
            let fields = [("bytes", json!(size)), ("reason", json!(reason))];
            Line {
                shown: format!("({reason} at the destination)"),
                ..of("left", path, &fields)
            }
        }
        Event::Omitted { path, reason, rule } => {
            let reason = omitted(*reason);
            let fields = [("reason", json!(reason)), ("rule", json!(rule))];
            let rule = rule
                .as_ref()
                .map_or(String::new(), |rule| format!(": {rule}"));
            Line {
                shown: format!("({reason}{rule})"),
                ..of("skipped", path, &fields)
            }
        }
        Event::Deleted {
            path,
            size,
            directory,
            planned,
        } => of(
            if *planned { "would_delete" } else { "deleted" },
            path,
            &[("bytes", json!(size)), ("directory", json!(directory))],
        ),
        Event::Failed { path, failure } => Line {
            what: "failed",
            path: path.as_ref(),
            fields: failed(failure),
            shown: format!("({})", failure.text),
        },
        Event::Undeleted { failure } => Line {
            what: "undeleted",
            path: None,
            fields: failed(failure),
            shown: failure.text.clone(),
        },
        _ => return None,
    })
}

fn failed(failure: &longhaul_proto::message::Failure) -> Map<String, Value> {
    let fields = [
        ("kind".to_owned(), json!(format!("{:?}", failure.kind))),
        ("text".to_owned(), json!(failure.text)),
    ];
    fields.into_iter().collect()
}

/// Returns the name of a reason to omit an entry.
pub fn omitted(reason: Reason) -> &'static str {
    match reason {
        Reason::Rule => "rule",
        Reason::Size => "size",
        Reason::Time => "time",
        Reason::Depth => "depth",
        Reason::FileSystem => "file_system",
        Reason::Special => "special",
        Reason::Newer => "newer",
        Reason::Missing => "missing",
        Reason::Exists => "exists",
    }
}

/// An observer that also writes the report and the log.
pub struct Logged {
    inner: Arc<dyn Observer>,
    log: EntryLog,
}

impl Logged {
    /// Wraps an observer if a file is requested, or else returns it unchanged.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn around(
        inner: Arc<dyn Observer>,
        (report, log): (Option<&Path>, Option<&Path>),
        about: About,
    ) -> Result<Arc<dyn Observer>, Stop> {
        Ok(match EntryLog::new(report, log, about)? {
            Some(log) => Arc::new(Logged { inner, log }),
            None => inner,
        })
    }
}

impl Observer for Logged {
    fn event(&self, event: &Event) {
        self.log.begin();
        self.log.event(event);
        self.inner.event(event);
    }

    fn again(&self, again: &Again<'_>) {
        self.log.again(again);
        self.inner.again(again);
    }

    fn begun(&self, running: &Running) {
        self.log.begin();
        self.inner.begun(running);
    }

    fn concluded(&self, outcome: &Outcome<'_>) -> Result<(), Stop> {
        let concluded = self.inner.concluded(outcome);
        let about = &self.log.about;
        let ended = about.end(&outcome.ending.farewell, &outcome.progress);
        self.log.note(&ended);
        concluded.and(self.log.end())
    }
}

#[cfg(test)]
mod tests {
    use longhaul_engine::session::Progress;
    use longhaul_proto::message::{Failure, FailureKind, Farewell};

    use super::*;

    fn about(operation: Operation, unchanged: bool) -> About {
        About {
            operation,
            ends: ["data/".to_owned(), "host:mirror".to_owned()],
            unchanged,
        }
    }

    #[test]
    fn a_log_describes_the_copy_and_names_unchanged_entries_on_request() {
        let begun = |operation| about(operation, false).beginning();
        assert_eq!(begun(Operation::Copy), "begun: data/ to host:mirror");
        assert!(begun(Operation::DryRun).ends_with("host:mirror (dry run)"));
        assert!(begun(Operation::Verify).contains("data/ compared with"));
        let progress = Progress {
            done_entries: 5,
            failed_entries: 3,
            differing_entries: 2,
            ..Progress::default()
        };
        let ended = about(Operation::Verify, false).end(&Farewell::Complete, &progress);
        assert_eq!(
            ended,
            "ended: Complete, 5 the same, 2 differ, 1 could not be compared"
        );
        let place = tempfile::tempdir().unwrap();
        let path = TreePath::new(b"a").unwrap();
        let skipped = Event::Skipped {
            path: path.clone(),
            size: 3,
            file: true,
            digest: None,
        };
        let same = Event::Committed {
            path,
            size: 3,
            file: true,
            digest: None,
        };
        for (operation, event, unchanged, lines) in [
            (Operation::Copy, &skipped, false, ""),
            (Operation::Copy, &skipped, true, "unchanged a"),
            (Operation::Copy, &same, false, "copied a"),
            (Operation::Verify, &same, false, ""),
            (Operation::Verify, &same, true, "compared a"),
        ] {
            let log = place.path().join("l");
            let about = about(operation, unchanged);
            let files = EntryLog::new(None, Some(&log), about).unwrap().unwrap();
            files.event(event);
            files.end().unwrap();
            let text = std::fs::read_to_string(&log).unwrap();
            assert_eq!(text.is_empty(), lines.is_empty(), "{text}");
            assert!(text.trim_end().ends_with(lines), "{text}");
            std::fs::remove_file(&log).unwrap();
        }
    }

    #[test]
    fn each_entry_has_a_line() {
        let place = tempfile::tempdir().unwrap();
        let (report, log) = (place.path().join("r"), place.path().join("l"));
        std::fs::write(&log, "before\n").unwrap();
        let path = |name: &[u8]| TreePath::new(name).unwrap();
        let copy = || about(Operation::Copy, false);
        let files = EntryLog::new(Some(&report), Some(&log), copy());
        let files = files.unwrap().unwrap();
        files.event(&Event::Committed {
            path: path(b"a"),
            size: 3,
            file: true,
            digest: None,
        });
        files.event(&Event::Omitted {
            path: path(b"\xff"),
            reason: Reason::Rule,
            rule: Some("- *.o".to_owned()),
        });
        files.event(&Event::Failed {
            path: None,
            failure: Failure::new(FailureKind::NoSpace, "full\nup"),
        });
        files.end().unwrap();
        let lines = std::fs::read_to_string(&report).unwrap();
        let lines: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["entry"], "copied");
        assert_eq!(lines[0]["bytes"], 3);
        assert_eq!(lines[1]["path"]["bytes"][0], 255);
        assert_eq!(lines[1]["rule"], "- *.o");
        assert_eq!(lines[2]["kind"], "NoSpace");
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(log.starts_with("before\n"), "{log}");
        assert_eq!(log.lines().count(), 4, "{log}");
        assert!(
            log.contains("Z copied a") && log.contains("(rule: - *.o)"),
            "{log}"
        );
        let missing = place.path().join("missing/x");
        assert!(EntryLog::new(Some(&missing), None, copy()).is_err());
        assert!(EntryLog::new(None, None, copy()).unwrap().is_none());
    }
}
