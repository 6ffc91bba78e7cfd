//! The audit log: who read, wrote or deleted which paths, as JSON lines.
//!
//! A session has a record `begin`, which is durable before it changes anything, and a record `end`.
//! With [`AuditSettings::each_file`], each commit and deletion also has a record that is durable
//! before it, and one of its outcome. After a daemon was killed, the next one reconciles the
//! records that have no outcome with the files (`reconcile`). Jobs write to the same file (`job`).

mod file;
pub mod job;
mod reconcile;
mod record;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_engine::intents::{Intent, IntentKind, Intents};
use longhaul_engine::session::{Event, Progress};
use longhaul_net::token::fill_random;
use longhaul_proto::handshake::{Operation, Request, RequestPath, Role};
use longhaul_proto::manifest::TreePath;
use longhaul_system::process_identity;
use longhaul_system::queue::lock;
use serde_json::{Value, json};

use crate::console::one_line;
use crate::manifest::hexadecimal;
use file::AuditFile;
pub(super) use record::name_of;
use record::{Fields, line_of};

/// Maximum length of an outcome's text in bytes.
const MAXIMUM_OUTCOME_BYTES: usize = 1024;

/// Maximum number of records that wait until the file can be written again.
const MOST_WAITING: usize = 4096;

/// Settings of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// The file.
    pub file: PathBuf,
    /// If true, each file has records of its own.
    pub each_file: bool,
    /// If true, changes continue although they cannot be recorded.
    pub continues_unrecorded: bool,
}

/// The audit log of a daemon or of a job.
pub struct Audit {
    settings: AuditSettings,
    state: Mutex<State>,
}

struct State {
    file: AuditFile,
    /// Sessions that have not ended. A new file begins with their records.
    open: BTreeMap<String, Open>,
    /// Records that could not be written.
    waiting: VecDeque<String>,
    /// Number of records that were given up.
    lost: u64,
}

/// Records of a session that a new file repeats.
struct Open {
    begin: Fields,
    /// Announced changes without an outcome, by kind and path.
    intents: BTreeMap<(Change, Vec<u8>), Fields>,
}

/// Name of a kind of change.
type Change = &'static str;

/// Kinds of changes.
const CHANGES: [Change; 3] = ["commit", "delete", "remove-source"];

impl Open {
    /// Removes the announced changes of a path that have this outcome.
    fn end_intents(&mut self, path: &[u8], outcome: &str) {
        for change in CHANGES {
            let applies = match outcome {
                "committed" => change == "commit",
                "deleted" => change != "commit",
                "failed" => true,
                _ => false,
            };
            if applies {
                self.intents.remove(&(change, path.to_vec()));
            }
        }
    }
}

impl fmt::Debug for AuditSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditSession")
    }
}

impl State {
    /// Writes records, after those that wait.
    fn write(&mut self, lines: &str, durable: bool) -> io::Result<()> {
        if self.file.follow_rotation()? {
            let repeated = self.repeated();
            self.file.append(&repeated, durable)?;
        }
        let mut text: String = self.waiting.iter().map(String::as_str).collect();
        if self.lost > 0 {
            let fields = Fields::from_iter([("records".to_owned(), json!(self.lost))]);
            text += &line_of("lost", &fields);
        }
        text += lines;
        self.file.append(&text, durable)?;
        self.waiting.clear();
        self.lost = 0;
        Ok(())
    }

    /// Returns the records with which a new file begins.
    fn repeated(&self) -> String {
        let of = |open: &Open| {
            let mut begin = open.begin.clone();
            begin.insert("continued".to_owned(), json!(true));
            let intents = open.intents.values();
            let intents = intents.map(|fields| line_of("intent", fields));
            line_of("begin", &begin) + &intents.collect::<String>()
        };
        self.open.values().map(of).collect()
    }

    /// Writes records, or keeps them until the file can be written.
    fn write_or_keep(&mut self, lines: String) {
        if self.write(&lines, false).is_ok() {
            return;
        }
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back(lines);
        } else {
            self.lost += 1;
        }
    }
}

impl Audit {
    /// Opens the log of a daemon, and reconciles the records of a daemon that was killed.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub fn open(settings: AuditSettings) -> io::Result<Arc<Audit>> {
        let reconciled = reconcile::reconcile(&settings.file)?;
        let audit = Audit::join(settings)?;
        if !reconciled.is_empty() {
            audit.lock().write(&reconciled, true)?;
        }
        Ok(audit)
    }

    /// Opens the log of a running daemon, for a job.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn join(settings: AuditSettings) -> io::Result<Arc<Audit>> {
        let file = AuditFile::open(&settings.file)?;
        Ok(Arc::new(Audit {
            settings,
            state: Mutex::new(State {
                file,
                open: BTreeMap::new(),
                waiting: VecDeque::new(),
                lost: 0,
            }),
        }))
    }

    /// Returns the settings.
    pub fn settings(&self) -> &AuditSettings {
        &self.settings
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session. Its record is durable.
    ///
    /// # Errors
    ///
    /// The session may change files, and its record cannot be written; or the system has no random
    /// bytes for its number, without which records of two sessions could be mistaken.
    pub fn begin(self: &Arc<Audit>, about: &About<'_>) -> io::Result<AuditSession> {
        let mut number = [0; 8];
        fill_random(&mut number).map_err(io::Error::other)?;
        let id = hexadecimal(&number);
        let mut fields = Fields::new();
        fields.insert("session".to_owned(), json!(id));
        fields.extend(about.fields());
        let mut begin = fields.clone();
        begin.insert("process".to_owned(), json!(process_identity::own()));
        begin.insert("each_file".to_owned(), json!(self.settings.each_file));
        let line = line_of("begin", &begin);
        let mut state = self.lock();
        match state.write(&line, true) {
            Ok(()) => {}
            Err(error) if about.changes && !self.settings.continues_unrecorded => {
                return Err(error);
            }
            Err(_) => state.write_or_keep(line),
        }
        let open = Open {
            begin,
            intents: BTreeMap::new(),
        };
        state.open.insert(id.clone(), open);
        drop(state);
        Ok(AuditSession {
            audit: Arc::clone(self),
            id,
            fields,
            ended: Mutex::new(false),
        })
    }

    /// Records an event outside of a session.
    pub fn note(&self, event: &str, fields: &Value) {
        if let Value::Object(fields) = fields {
            self.lock().write_or_keep(line_of(event, fields));
        }
    }
}

/// Description of a session for its records.
pub struct About<'a> {
    /// Name of the principal.
    pub principal: &'a str,
    /// Address of the client.
    pub peer: &'a str,
    /// `read`, `write`, `verify` or `dry-run`.
    pub action: &'static str,
    /// Requested paths.
    pub paths: Vec<Value>,
    /// True if the session may change files.
    pub changes: bool,
    /// True if the session may delete files.
    pub deletes: bool,
}

impl<'a> About<'a> {
    /// Returns the description of a request.
    pub fn of(request: &Request, principal: &'a str, peer: &'a str) -> About<'a> {
        let options = &request.options;
        let copies = options.operation == Operation::Copy;
        let action = match (options.operation, request.role) {
            (Operation::DryRun, _) => "dry-run",
            (Operation::Verify, _) => "verify",
            (Operation::Copy, Role::Sender) => "write",
            (Operation::Copy, Role::Receiver) => "read",
        };
        let deletes = match request.role {
            Role::Sender => options.deletes(),
            Role::Receiver => options.move_away,
        };
        About {
            principal,
            peer,
            action,
            paths: request.paths.iter().map(path_of).collect(),
            changes: copies && (request.role == Role::Sender || deletes),
            deletes: copies && deletes,
        }
    }

    fn fields(&self) -> Fields {
        Fields::from_iter([
            ("principal".to_owned(), json!(self.principal)),
            ("peer".to_owned(), json!(self.peer)),
            ("action".to_owned(), json!(self.action)),
            ("paths".to_owned(), json!(self.paths)),
            ("deletes".to_owned(), json!(self.deletes)),
        ])
    }
}

fn path_of(path: &RequestPath) -> Value {
    match path {
        RequestPath::Path(path) | RequestPath::Stream(path) => name_of(path),
        RequestPath::Null => json!("null:"),
        RequestPath::Zero(size) => json!(format!("zero:{size}")),
    }
}

/// Records of one session. The record of its end is written once, at the latest when this is
/// dropped.
pub struct AuditSession {
    audit: Arc<Audit>,
    id: String,
    /// Fields that identify the session in each record.
    fields: Fields,
    ended: Mutex<bool>,
}

impl AuditSession {
    /// True if each file has records of its own.
    pub fn has_files(&self) -> bool {
        self.audit.settings.each_file
    }

    /// Records the outcome of an entry.
    pub fn event(&self, event: &Event) {
        if !self.has_files() {
            return;
        }
        let (outcome, path, more) = match event {
            Event::Committed {
                path, size, digest, ..
            } => {
                let digest = digest.as_ref().and_then(|digest| digest.digest());
                let digest = digest.map(|digest| hexadecimal(&digest));
                let outcome = if self.fields["action"] == "write" {
                    "committed"
                } else {
                    "sent"
                };
                (outcome, path, json!({ "bytes": size, "blake3": digest }))
            }
            Event::Mended { path, .. } => ("attributes", path, json!({})),
            Event::Deleted {
                path,
                size,
                planned: false,
                ..
            } => ("deleted", path, json!({ "bytes": size })),
            Event::Failed {
                path: Some(path),
                failure,
            } => {
                let reason = one_line(&failure.text, MAXIMUM_OUTCOME_BYTES);
                ("failed", path, json!({ "reason": reason }))
            }
            _ => return,
        };
        self.outcome(outcome, path, more);
    }

    fn outcome(&self, outcome: &'static str, path: &TreePath, more: Value) {
        let mut fields = self.named();
        fields.insert("path".to_owned(), name_of(path.as_bytes()));
        if let Value::Object(more) = more {
            fields.extend(more);
        }
        let mut state = self.audit.lock();
        if let Some(open) = state.open.get_mut(&self.id) {
            open.end_intents(path.as_bytes(), outcome);
        }
        state.write_or_keep(line_of(outcome, &fields));
    }

    /// Returns the fields that identify the session and its principal.
    fn named(&self) -> Fields {
        let named = ["session", "principal", "peer"];
        let field = |name: &str| Some((name.to_owned(), self.fields.get(name)?.clone()));
        named.into_iter().filter_map(field).collect()
    }

    /// Records the end of the session.
    pub fn end(&self, progress: Option<&Progress>, transferred: u64, outcome: &str) {
        if std::mem::replace(&mut *lock(&self.ended), true) {
            return;
        }
        let mut fields = self.fields.clone();
        if let Some(progress) = progress {
            let counts = [
                ("entries", progress.done_entries),
                ("files", progress.files),
                ("bytes", progress.done_bytes),
                ("transferred_bytes", transferred),
                ("unchanged", progress.unchanged_entries()),
                ("deleted", progress.deleted_entries),
                ("failed", progress.failed_entries),
            ];
            fields.extend(counts.map(|(name, count)| (name.to_owned(), json!(count))));
            let seconds = progress.elapsed.as_secs_f64();
            fields.insert("seconds".to_owned(), json!(seconds));
        }
        let outcome = one_line(outcome, MAXIMUM_OUTCOME_BYTES);
        fields.insert("outcome".to_owned(), json!(outcome));
        let mut state = self.audit.lock();
        let open = state.open.get(&self.id);
        let left = open.into_iter().flat_map(|open| open.intents.values());
        let mut lines: String = left.map(|intent| reconcile::outcome_of(intent).1).collect();
        lines += &line_of("end", &fields);
        state.write_or_keep(lines);
        state.open.remove(&self.id);
    }
}

impl Drop for AuditSession {
    fn drop(&mut self) {
        self.end(None, 0, "the session did not begin");
    }
}

fn host_path_of(path: &Path) -> Value {
    use std::os::unix::ffi::OsStrExt;
    name_of(path.as_os_str().as_bytes())
}

impl Intents for AuditSession {
    fn announce(&self, intents: &[Intent]) -> io::Result<()> {
        let mut state = self.audit.lock();
        let mut lines = String::new();
        for intent in intents {
            let mut fields = self.named();
            let change = match intent.kind {
                IntentKind::Commit => "commit",
                IntentKind::Delete => "delete",
                IntentKind::RemoveSource => "remove-source",
            };
            fields.extend([
                ("change".to_owned(), json!(change)),
                ("path".to_owned(), name_of(intent.path.as_bytes())),
                (
                    "host_path".to_owned(),
                    intent
                        .host_path
                        .as_deref()
                        .map_or(Value::Null, host_path_of),
                ),
                ("bytes".to_owned(), json!(intent.size)),
                ("inode".to_owned(), json!(intent.inode)),
            ]);
            lines += &line_of("intent", &fields);
            if let Some(open) = state.open.get_mut(&self.id) {
                let key = (change, intent.path.as_bytes().to_vec());
                open.intents.insert(key, fields);
            }
        }
        match state.write(&lines, true) {
            Ok(()) => Ok(()),
            Err(_) if self.audit.settings.continues_unrecorded => {
                state.write_or_keep(lines);
                Ok(())
            }
            Err(error) => {
                if let Some(open) = state.open.get_mut(&self.id) {
                    for intent in intents {
                        open.end_intents(intent.path.as_bytes(), "failed");
                    }
                }
                Err(error)
            }
        }
    }

    fn note_removed_source(&self, path: &TreePath) {
        self.outcome("deleted", path, json!({ "change": "remove-source" }));
    }
}

/// Returns the records of a session, if each file has records of its own.
pub fn file_audit(audit: Option<&Arc<AuditSession>>) -> Option<Arc<dyn Intents>> {
    let audit = audit.filter(|audit| audit.has_files())?;
    let audit: Arc<dyn Intents> = audit.clone();
    Some(audit)
}
