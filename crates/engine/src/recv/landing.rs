//! Opens the destination: the anchor directory, beneath which the path of every entry is resolved,
//! and the name of a single file. The result depends only on the command line and on whether the
//! destination of a single file is a directory.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_proto::backup::Backup;
use longhaul_proto::command::FileCommand;
use longhaul_proto::digest::Checksum;
use longhaul_proto::handshake::{Landing, Operation};
use longhaul_proto::manifest::{
    Entry, EntryKind, MAXIMUM_NAME_BYTES, RESERVED_PREFIX, Timestamp, TreePath,
};
use longhaul_proto::notice::NoticeKind;
use longhaul_proto::options::{FilterAt, TransferOptions};
use longhaul_storage::destination::DestinationDirectory;
use longhaul_storage::failure::failure_of;
use longhaul_storage::fake_super::FakeDirectory;
use longhaul_storage::journal::digests::{FileState, KeptDigests};
use longhaul_storage::journal::names::StagingName;
use longhaul_storage::journal::{
    self, Claim, ClaimError, JournalError, Key, Owner, Partial, Sharing, StepError, claim, sweep,
};
use longhaul_storage::measuring::sink;
use longhaul_storage::mounts::Place;
use longhaul_storage::notices::Notices;
use longhaul_storage::roots::{OpenRoot, split};
use longhaul_storage::{DataMode, Directory, FileKind, Status, StoredFile};
use longhaul_system::descriptors;
use longhaul_system::queue::lock;

use super::backup::Backups;
use super::keeper::Keeper;
use super::keeping::SetIds;
use super::stream::DataStream;
use super::times::{self, KeptTimes};
use crate::intents::Intents;

// tidy: long file because every way to resolve a name below the destination is in one place.

/// Prefix of the name under which a session claims its anchor. The hash of the source and the new
/// name of a single source follow it. The leading slash keeps it apart from all file names.
pub const SESSION_NAME: &[u8] = b"/session/";

/// An open destination of a session.
pub struct Destination {
    /// Directory beneath which the paths of entries begin.
    pub anchor: Arc<dyn Directory>,
    /// Replaces the name of a single source; `None`: it keeps its name.
    pub rename: Option<TreePath>,
    /// True if the destination discards files: only a `stream` keeps data.
    pub is_sink: bool,
    /// True if the anchor was created for this copy.
    is_new: bool,
    /// Name of the destination in messages.
    shown: String,
    /// Receives the data in place of files.
    pub(super) stream: Option<Arc<dyn DataStream>>,
    /// Name of the user or principal on whose behalf the copy runs.
    pub principal: String,
    /// Hash of the sending host and its sources.
    pub source: [u8; 32],
    /// Hash of the sources that is the same on every host that sees them; equal to `source` if no
    /// other host does.
    pub anywhere: [u8; 32],
    /// Identifies this process to a later process that finds its leftovers.
    pub owner: Owner,
    /// Claim of the anchor for this source: a later session of the same transfer fences this one.
    session: Mutex<Option<Arc<Partial>>>,
    /// Serializes the threads that need the session's gate, so that they wait here and not at the
    /// gate.
    turn: Mutex<()>,
    /// Mount that held the anchor when it was claimed.
    place: OnceLock<Place>,
    /// A file that belongs to this session, and its device number.
    witness: OnceLock<(u64, Arc<dyn StoredFile>)>,
    /// Digests of files that this session and earlier ones finished.
    digests: OnceLock<KeptDigests>,
    /// Resolution and range of the times that the file system keeps, as far as known.
    times: Mutex<KeptTimes>,
    /// Cases in which set-user-ID and set-group-ID bits are kept.
    pub(super) set_ids: SetIds,
    /// Sets owners, access control lists and extended attributes of entries.
    pub(super) keeper: Arc<Keeper>,
    /// Keeps replaced and deleted files; `None`: they are not kept.
    pub(super) backups: Option<Backups>,
    /// A shell command that runs for each committed file.
    pub(super) on_commit: Option<FileCommand>,
    /// A command whose output becomes the content of the file.
    pub(super) filter: Option<FileCommand>,
    /// True if files go through a command at the source, so that their sizes differ from the listed
    /// sizes.
    pub(super) filtered: bool,
    /// Receives commits and deletions before they are made.
    pub(super) intents: Option<Arc<dyn Intents>>,
    /// Collects notices about metadata that the destination did not keep or refused.
    pub notices: Arc<Notices>,
}

/// Reasons to reject a destination.
#[derive(Debug, thiserror::Error)]
pub enum LandingError {
    /// The destination cannot be opened or created.
    #[error("{0}")]
    Open(String),
    /// The destination is a file, but a directory is needed.
    #[error("{0} is not a directory: name one, or copy a single file to that name")]
    NotDirectory(String),
    /// The name for a single file is not valid.
    #[error("{0} cannot be a file's name")]
    Name(String),
    /// The destination of a stream is a directory, and a stream has no name.
    #[error(
        "{0} is a directory: what comes from standard input has no name of its own, so name the \
         file that it becomes"
    )]
    Nameless(String),
    /// This session cannot claim the destination.
    #[error("{0}")]
    Session(String),
    /// A later session of the same transfer claimed the destination.
    #[error("a newer run of the same transfer took over; this one ends")]
    Superseded,
}

/// Handling of a missing destination that must be a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Creates the directory and its parents.
    Make,
    /// Treats the directory as empty, for a dry run.
    Imagine,
    /// Returns an error.
    Refuse,
}

impl Missing {
    /// Returns the handling that fits an operation.
    pub fn for_operation(operation: Operation) -> Missing {
        match operation {
            Operation::Copy => Missing::Make,
            Operation::DryRun => Missing::Imagine,
            Operation::Verify => Missing::Refuse,
        }
    }
}

/// Identity and settings of the copy that opens a destination.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Name of the user or principal on whose behalf the copy runs.
    pub principal: String,
    /// Hash of the sending host and its sources.
    pub source: [u8; 32],
    /// Hash of the sources that is the same on every host that sees them; equal to `source` if no
    /// other host does.
    pub anywhere: [u8; 32],
    /// Identifies this process.
    pub owner: Owner,
    /// Cases in which set-user-ID and set-group-ID bits are kept.
    pub set_ids: SetIds,
    /// Sets owners, access control lists and extended attributes of entries.
    pub keeper: Arc<Keeper>,
    /// Request to keep replaced and deleted files. The code that opens the destination applies it
    /// with [`Destination::keeping_backups`].
    pub backup: Option<Backup>,
    /// A shell command that runs for each committed file.
    pub on_commit: Option<FileCommand>,
    /// A command whose output becomes the content of the file.
    pub filter: Option<FileCommand>,
    /// True if files go through a command at the source.
    pub filtered: bool,
    /// Receives commits and deletions before they are made.
    pub intents: Option<Arc<dyn Intents>>,
}

impl Arrival {
    /// Creates the arrival of a copy whose sources have the hash `source`, with default attributes.
    pub fn new(owner: Owner, source: [u8; 32], options: &TransferOptions) -> Arrival {
        Arrival {
            principal: String::new(),
            source,
            anywhere: source,
            owner,
            set_ids: if options.selection.keep_set_ids {
                SetIds::Keep
            } else {
                SetIds::SameOwner
            },
            keeper: Arc::default(),
            backup: options.backup.clone(),
            on_commit: options.commit_command().cloned(),
            filter: options.filter_command_at(FilterAt::Destination).cloned(),
            filtered: options.is_filtered(),
            intents: None,
        }
    }
}

#[cfg(test)]
impl Arrival {
    /// Returns the fixed arrival that the tests of this crate use.
    pub(crate) fn of_tests() -> Arrival {
        Arrival {
            set_ids: Default::default(),
            keeper: Default::default(),
            backup: None,
            on_commit: None,
            filter: None,
            filtered: false,
            intents: None,
            principal: "tester".to_owned(),
            source: [7; 32],
            anywhere: [0; 32],
            owner: Owner {
                host: "test".into(),
                process: 1,
                started: Default::default(),
                session: [1; 16],
            },
        }
    }
}

/// Returns the message for a destination directory that cannot be opened or created.
fn not_opened(what: &str, shown: &str, missing: Missing, error: &io::Error) -> String {
    match (error.kind(), missing) {
        (io::ErrorKind::NotFound, Missing::Refuse) => {
            format!("there is no {shown}: check how it is written")
        }
        _ => failure_of(what, shown, error).text,
    }
}

/// Returns the message for a missing parent directory of a single file's new name. A parent is
/// created only for entries that are copied into it, not for a new name.
fn no_place(parent: &[u8], shown: &str, landing: Landing, error: &io::Error) -> String {
    match (error.kind(), landing) {
        (io::ErrorKind::NotFound, Landing::WithinOrAs) => format!(
            "{}: make it, or write {shown}/ to have that made and copied into",
            no_directory(parent, shown)
        ),
        (io::ErrorKind::NotFound, _) => no_directory(parent, shown),
        _ => failure_of("open its directory", shown, error).text,
    }
}

/// Opens the parent directory of a path and returns it with the last name. A comparison requires
/// that the name exists: otherwise it would report each entry below it.
fn directory_above(
    root: &dyn OpenRoot,
    path: &[u8],
    (landing, missing): (Landing, Missing),
) -> Result<(Arc<dyn Directory>, TreePath), LandingError> {
    let shown = String::from_utf8_lossy(path);
    let (parent, name) = split(path);
    let name = TreePath::new(name).map_err(|_| LandingError::Name(shown.clone().into_owned()))?;
    let above = root.open_root(Path::new(OsStr::from_bytes(parent)));
    let failed = |error| LandingError::Open(no_place(parent, &shown, landing, &error));
    let above = above.map_err(failed)?;
    if missing == Missing::Refuse
        && let Err(error) = above.status_of(name.as_bytes())
    {
        let what = "open what is compared";
        let text = not_opened(what, &shown, missing, &error);
        return Err(LandingError::Open(text));
    }
    Ok((above, name))
}

/// Returns the message for a missing parent directory.
pub(super) fn no_directory(parent: &[u8], shown: &str) -> String {
    let parent = String::from_utf8_lossy(parent);
    format!("there is no directory {parent} for {shown}")
}

impl Destination {
    /// Returns a destination that discards all data.
    pub fn sink(anchor: Arc<dyn Directory>, arrival: Arrival) -> Destination {
        let Arrival {
            principal,
            source,
            anywhere,
            owner,
            set_ids,
            keeper,
            backup: _,
            on_commit,
            filter,
            filtered,
            intents,
        } = arrival;
        Destination {
            anchor,
            rename: None,
            is_sink: true,
            is_new: false,
            shown: "null:".to_owned(),
            stream: None,
            principal,
            source,
            anywhere,
            owner,
            session: Mutex::default(),
            turn: Mutex::default(),
            place: OnceLock::new(),
            witness: OnceLock::new(),
            digests: OnceLock::new(),
            times: Mutex::default(),
            set_ids,
            keeper,
            backups: None,
            on_commit,
            filter,
            filtered,
            intents,
            notices: Arc::default(),
        }
    }

    /// Returns a destination that writes one stream of data, which cannot be resumed.
    pub fn stream(stream: Arc<dyn DataStream>, arrival: Arrival) -> Destination {
        Destination {
            stream: Some(stream),
            ..Destination::sink(sink(), arrival)
        }
    }

    /// Opens the destination at a path. `missing` gives the handling of a directory that does not
    /// exist.
    ///
    /// # Errors
    ///
    /// [`LandingError`].
    pub fn open(
        root: &dyn OpenRoot,
        path: &[u8],
        landing: Landing,
        missing: Missing,
        arrival: Arrival,
    ) -> Result<Destination, LandingError> {
        let shown = String::from_utf8_lossy(path).into_owned();
        let within = match landing {
            Landing::Within => true,
            Landing::WithinOrAs => path.ends_with(b"/"),
            Landing::As => false,
        };
        let as_path = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_owned();
        let opened = match landing {
            Landing::As => Err(io::ErrorKind::NotFound.into()),
            Landing::Within | Landing::WithinOrAs => root.open_root(&as_path(path)),
        };
        let is_new = opened.is_err() && within && missing == Missing::Make;
        let (anchor, rename) = match opened {
            Ok(anchor) => (anchor, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound && within => {
                let made = match missing {
                    Missing::Make => root.make_root(&as_path(path)),
                    Missing::Imagine => Ok(sink()),
                    Missing::Refuse => Err(error),
                };
                let what = match missing {
                    Missing::Make => "make the destination",
                    Missing::Imagine | Missing::Refuse => "open the destination",
                };
                let failed = |error| not_opened(what, &shown, missing, &error);
                (
                    made.map_err(|error| LandingError::Open(failed(error)))?,
                    None,
                )
            }
            Err(error) if within && error.kind() == io::ErrorKind::NotADirectory => {
                return Err(LandingError::NotDirectory(shown));
            }
            Err(error) if within => {
                return Err(LandingError::Open(
                    failure_of("open the destination", &shown, &error).text,
                ));
            }
            Err(_) => {
                let (above, name) = directory_above(root, path, (landing, missing))?;
                (above, Some(name))
            }
        };
        let anchor = FakeDirectory::around_if(arrival.keeper.fakes(), anchor);
        Ok(Destination {
            rename,
            is_sink: false,
            is_new,
            shown,
            ..Destination::sink(anchor, arrival)
        })
    }

    /// Returns this destination with backups of replaced and deleted files.
    #[must_use]
    pub fn keeping_backups(self, backups: Backups) -> Destination {
        Destination {
            backups: Some(backups),
            ..self
        }
    }

    /// True if this session or an earlier one of the same transfer may have created the anchor.
    pub(super) fn is_made(&self) -> bool {
        self.is_new || !self.former_sessions().is_empty()
    }

    /// Wraps a directory so that extended attributes hold the metadata of its entries, if the
    /// destination works in this way.
    pub(super) fn faking(&self, directory: Arc<dyn Directory>) -> Arc<dyn Directory> {
        FakeDirectory::around_if(self.keeper.fakes(), directory)
    }

    /// Returns the directory of backups beneath the anchor, if any. The copy neither writes nor
    /// deletes anything there.
    pub(super) fn barred(&self) -> Option<&TreePath> {
        self.backups.as_ref()?.beneath()
    }

    /// Returns the path of an entry beneath the anchor.
    pub fn path_of(&self, path: &TreePath) -> TreePath {
        let Some(rename) = &self.rename else {
            return path.clone();
        };
        let below = path.names().skip(1);
        below.fold(rename.clone(), |above, name| {
            // The new name can make a path a few bytes too long; components that do not fit are
            // left out.
            above.join(name).unwrap_or(above)
        })
    }

    /// True if the destination holds none of the names that the copy brings and no leftovers of an
    /// earlier attempt. `names` are the names directly in the anchor; `None` means any name.
    ///
    /// # Errors
    ///
    /// Returns the error of `getdents`.
    pub fn is_empty(&self, names: Option<&[Vec<u8>]>) -> io::Result<bool> {
        if self.is_sink {
            return Ok(true);
        }
        let renamed = self
            .rename
            .as_ref()
            .map(|name| vec![name.as_bytes().to_vec()]);
        match renamed.as_deref().or(names) {
            Some(names) => Ok(names.iter().all(|name| {
                let journal = Key::new(name, &self.principal).journal();
                self.is_absent(name) && self.is_absent(&journal)
            })),
            None => {
                let sessions = [&self.anywhere, &self.source]
                    .map(|source| Key::new(&self.session_name(source), &self.principal));
                let mut list = self.anchor.list()?;
                while let Some(listed) = list.next_name()? {
                    let own = listed.name.starts_with(RESERVED_PREFIX);
                    let begun = match journal::names::parse(&listed.name) {
                        Some(StagingName::Journal(key)) => !sessions.contains(&key),
                        _ => false,
                    };
                    if !own || begun || listed.kind == Some(FileKind::Directory) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    fn is_absent(&self, name: &[u8]) -> bool {
        let status = self.anchor.status_of(name);
        matches!(status, Err(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the name under which the anchor is claimed for a source. It includes the new name of
    /// a single source, so that copies of one source to several names are separate sessions.
    fn session_name(&self, source: &[u8; 32]) -> Vec<u8> {
        let name = self.rename.as_ref().map_or(&[][..], TreePath::as_bytes);
        let whole = [SESSION_NAME, source, name].concat();
        if whole.len() <= MAXIMUM_NAME_BYTES {
            return whole;
        }
        let mut hasher = blake3::Hasher::new_derive_key("longhaul 2026 long name of one source");
        hasher.update(name);
        [SESSION_NAME, source, hasher.finalize().as_bytes()].concat()
    }

    /// Claims the anchor for this source and returns the epoch. An older session of the same
    /// transfer is fenced from here on.
    ///
    /// # Errors
    ///
    /// [`LandingError::Session`].
    pub fn take(&self) -> Result<u64, LandingError> {
        if self.is_sink {
            return Ok(1);
        }
        let result = self.claim_session();
        let partial = result.map_err(|error| match &error {
            ClaimError::Io(step) => self.not_writable(&step.source),
            other => self.not_taken(other),
        })?;
        // The claim must be durable before any other change: it tells the next session which
        // leftovers it may remove.
        let durable = partial.append_durable(&[]);
        durable.map_err(|error| match &error {
            JournalError::Io(step) => self.not_writable(&step.source),
            JournalError::Fenced { .. } => LandingError::Superseded,
            other => self.not_taken(other),
        })?;
        let epoch = partial.epoch();
        if let Some(error) = journal::missing_lock(&**partial.file()) {
            let cause = || error.to_string();
            self.notices.note(NoticeKind::NotLocked, &self.shown, cause);
        }
        // `take` runs once per session.
        let _ = self.place.set(Place::of(&*self.anchor));
        match self.anchor.time_unit() {
            Some(unit) => lock(&self.times).set_unit(unit),
            None => lock(&self.times).learn_unit(&**partial.file()),
        }
        let is_apart = self.anchor.records().is_some();
        let witnessed = if is_apart {
            self.anchor.status()
        } else {
            partial.file().status()
        };
        if let Ok(status) = witnessed {
            // `take` runs once per session.
            let _ = self.witness.set((status.device, partial.file().clone()));
        }
        let kept = KeptDigests::open(partial.file().clone(), &std::env::temp_dir());
        let kept = kept.and_then(|kept| {
            if self.on_commit.is_some() {
                kept.prepare()?;
            }
            Ok(kept)
        });
        match kept {
            Ok(kept) => {
                // `take` runs once per session.
                let _ = self.digests.set(kept);
            }
            Err(error) if self.on_commit.is_some() => return Err(self.not_taken(&error)),
            // Without kept digests, a later copy reads files again; no other harm is done.
            Err(_) => {}
        }
        if let Some(backups) = &self.backups {
            let settled = backups.settle(&self.anchor);
            settled.map_err(|error| self.not_taken(&error))?;
        }
        *lock(&self.session) = Some(Arc::new(partial));
        Ok(epoch)
    }

    /// Claims the anchor by the name that the sessions of all hosts share, so that the leftovers of
    /// a dead session are found. While a session of another host is alive, the sessions of this
    /// host use a separate name.
    fn claim_session(&self) -> Result<Partial, ClaimError> {
        let own = self.session_name(&self.source);
        let is_begun = self.source != self.anywhere && {
            let journal = Key::new(&own, &self.principal).journal();
            self.anchor.status_of(&journal).is_ok()
        };
        if is_begun {
            return self.claim_as(&own);
        }
        match self.claim_as(&self.session_name(&self.anywhere)) {
            Err(ClaimError::InUse { .. }) => self.claim_as(&own),
            other => other,
        }
    }

    fn claim_as(&self, name: &[u8]) -> Result<Partial, ClaimError> {
        // The journal's directory reports no notices: the copy reports the same ones.
        let records = self.anchor.records();
        let anchor = records.unwrap_or_else(|| Arc::clone(&self.anchor));
        let anchor = DestinationDirectory::new(anchor, Arc::default(), None);
        if self.keeper.keeping().anchor {
            // The copy sets the mode of the anchor when it ends.
            anchor.allow_permitting();
        }
        claim(&Claim {
            directory: Arc::new(anchor),
            name,
            principal: &self.principal,
            source: self.source,
            identity: Default::default(),
            integrity: Default::default(),
            owner: self.owner.clone(),
            superseded: &[],
            inherits: true,
            data_mode: DataMode::Buffered,
            sharing: Sharing::Alone,
        })
    }

    /// Returns a file in the anchor that belongs to this session, and its device number; `None` if
    /// the session writes no files.
    pub(super) fn witness(&self) -> Option<(u64, &Arc<dyn StoredFile>)> {
        self.witness.get().map(|(device, file)| (*device, file))
    }

    /// True if the time of a file equals the source's time as the file system stores it. A dry run
    /// must not write files to learn the resolution and range of stored times. It takes the
    /// resolution from the file's change time, which programs cannot set, and guesses the range.
    pub(super) fn keeps_as(&self, wanted: Timestamp, there: &Status, operation: Operation) -> bool {
        if there.modified == wanted {
            return true;
        }
        if operation == Operation::DryRun {
            return times::seems_kept(wanted, there);
        }
        let session = lock(&self.session).clone();
        let probe = session.as_ref().map(|session| session.file());
        lock(&self.times).keeps_as(wanted, there.modified, probe)
    }

    /// Compares times like [`Destination::keeps_as`], but writes no file to learn the resolution:
    /// the time of a new file almost always differs anyway.
    pub(super) fn is_known_to_keep(&self, wanted: Timestamp, there: &Status) -> bool {
        lock(&self.times).keeps_as(wanted, there.modified, None)
    }

    /// Returns the error for an anchor in which no file can be created.
    fn not_writable(&self, error: &io::Error) -> LandingError {
        let shown = &self.shown;
        LandingError::Session(match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{shown}: no file can be made there ({error}): it is a file system without files \
                 of a user's own, as /proc is, or was removed meanwhile; name another destination"
            ),
            _ => failure_of("write into it", shown, error).text,
        })
    }

    fn not_taken(&self, error: &dyn std::fmt::Display) -> LandingError {
        let shown = &self.shown;
        LandingError::Session(format!("cannot write into {shown}: {error}"))
    }

    /// Runs a short action while no later session can take over: it gives names, claims, or sets
    /// the time of a directory. Without this, an unfinished action of an older session could
    /// replace a file of a later one or take its partial file.
    ///
    /// # Errors
    ///
    /// [`JournalError::Fenced`] if a later session took over. The action must not wait for a
    /// descriptor.
    pub(super) fn while_owned<T>(&self, what: impl FnOnce() -> T) -> Result<T, JournalError> {
        let session = lock(&self.session).clone();
        match session {
            Some(session) => {
                let _turn = lock(&self.turn);
                descriptors::at_once(|| session.while_owned(what))
            }
            None => Ok(what()),
        }
    }

    /// Stores the digests of committed files, each with the file state from [`state_of`]. Call it
    /// within [`Destination::while_owned`].
    pub(super) fn keep_digests(&self, files: &[(FileState, [u8; 32])]) {
        if let Some(kept) = self.digests.get() {
            kept.append(files);
        }
    }

    /// Stores the digest of a file that already exists.
    pub(super) fn keep_digest(
        &self,
        path: &TreePath,
        entry: &Entry,
        status: Status,
        digest: Checksum,
    ) {
        if let (Some(state), Some(digest)) = (state_of(path, entry, &status), digest.digest()) {
            // A session that a later one fenced does not need its digests.
            let _ = self.while_owned(|| self.keep_digests(&[(state, digest)]));
        }
    }

    /// True if files go through a command at either end.
    pub(super) fn has_filter(&self) -> bool {
        self.filter.is_some() || self.filtered
    }

    /// Records that a command must run for these files, which get their names now. The record
    /// survives the end of this session.
    ///
    /// # Errors
    ///
    /// Returns an error if the record could not be made durable, or if a later session took over.
    pub(super) fn await_commands(&self, files: &[FileState]) -> Result<(), JournalError> {
        let Some(kept) = self.digests.get().filter(|_| !files.is_empty()) else {
            return Ok(());
        };
        let failed = |source| {
            let doing = "keep what its command is to run for";
            JournalError::Io(StepError { doing, source })
        };
        self.while_owned(|| kept.await_commands(files))?
            .map_err(failed)?;
        kept.sync().map_err(failed)
    }

    /// Records that the command of a file succeeded.
    pub(super) fn end_command(&self, file: FileState) {
        if let Some(kept) = self.digests.get() {
            // A fenced session records no success: the command runs again.
            let _ = self.while_owned(|| kept.end_command(file));
        }
    }

    /// True if an earlier session committed a file whose command did not succeed.
    pub(super) fn awaits_command(&self, file: &FileState) -> bool {
        let kept = self.digests.get();
        kept.is_some_and(|kept| kept.awaits_command(file))
    }

    /// Limits the number of stored digests when a copy of `entries` entries ends incomplete. At
    /// most half of the digests may describe earlier states. A file with a command needs two more
    /// records.
    pub(super) fn bound_kept_digests(&self, entries: u64) {
        let each = match self.on_commit {
            Some(_) => 4,
            None => 2,
        };
        if let Some(kept) = self.digests.get() {
            // A fenced session has no records to remove.
            let _ = self.while_owned(|| kept.forget_beyond(entries.saturating_mul(each)));
        }
    }

    /// Returns the digest of a file that an earlier session finished or compared, if neither the
    /// file nor its source changed since then.
    pub(super) fn kept_digest(
        &self,
        path: &TreePath,
        entry: &Entry,
        status: &Status,
    ) -> Option<Checksum> {
        let state = state_of(path, entry, status)?;
        self.digests.get()?.find(&state).map(Checksum::Blake3)
    }

    /// Returns an error if a later session took over.
    pub(super) fn ensure_owned(&self) -> Result<(), JournalError> {
        let session = lock(&self.session).clone();
        session.map_or(Ok(()), |session| session.ensure_owned())
    }

    /// Checks like [`Destination::ensure_owned`], and that the anchor can still be used. It makes a
    /// few more system calls.
    pub(super) fn ensure_there(&self) -> Result<(), JournalError> {
        let session = lock(&self.session).clone();
        session.map_or(Ok(()), |session| session.ensure_there())
    }

    /// Returns the message for an anchor that [`Destination::ensure_there`] found unusable.
    pub(super) fn lost(&self, error: &JournalError) -> String {
        let shown = &self.shown;
        let again = "run the same command again";
        match error {
            JournalError::Io(step) => format!(
                "the destination {shown} cannot be reached any more ({}): see to its file system, \
                 then {again}",
                step.source
            ),
            _ if is_removed(&*self.anchor) => format!(
                "the destination {shown}, or the directory that holds it, was removed while it \
                 was copied to: {again}"
            ),
            _ => format!(
                "longhaul's own files at {shown} (.longhaul-*) were removed while it was copied \
                 to, and without them the copy cannot continue: {again}"
            ),
        }
    }

    /// True if the file system of the anchor was unmounted during the copy (`umount --lazy`).
    pub(super) fn is_detached(&self) -> bool {
        let of_stream = self
            .stream
            .as_ref()
            .is_some_and(|stream| stream.is_detached());
        of_stream || self.place.get().is_some_and(Place::is_gone)
    }

    /// Returns the message for an unmounted destination.
    pub(super) fn detached(&self) -> String {
        let stream = self.stream.as_ref();
        let shown = stream.map_or(self.shown.as_str(), |stream| stream.shown());
        format!(
            "the file system of the destination {shown} was unmounted while it was copied to: what \
             was copied is on it, and not found by that name; mount it again, and run the same \
             command again"
        )
    }

    /// Returns the message for a failed sync of the anchor.
    pub(super) fn not_synced(&self, error: &io::Error) -> String {
        failure_of("sync the destination", &self.shown, error).text
    }

    /// Removes the leftovers of earlier sessions of the same transfer from a directory. If entries
    /// `failed`, it keeps files that may belong to them. Returns true if some leftovers stay.
    pub(super) fn sweep(&self, directory: &dyn Directory, failed: bool) -> bool {
        !self.former_sessions().is_empty() && self.sweep_always(directory, failed)
    }

    /// Removes leftovers like [`Destination::sweep`], even if no earlier session is known. A
    /// session that crashed before its claim was durable left a partial file in the anchor only.
    pub(super) fn sweep_always(&self, directory: &dyn Directory, failed: bool) -> bool {
        let Some(session) = lock(&self.session).clone() else {
            return false;
        };
        let former = session.former_sessions();
        // `longhaul clean` finds the files that cannot be removed here.
        sweep(directory, &|session| former.contains(&session), failed).unwrap_or(failed)
    }

    /// Returns the session numbers of earlier owners of the anchor.
    pub(super) fn former_sessions(&self) -> Vec<u64> {
        let session = lock(&self.session);
        let former = session.as_ref().map(|session| session.former_sessions());
        former.unwrap_or_default().to_vec()
    }

    /// Releases the anchor at the end of the copy.
    pub(super) fn give_up(&self) {
        if let Some(session) = lock(&self.session).take() {
            // If another session took over, its claim must stay.
            let _ = session.abandon();
        }
    }
}

/// True if a directory was removed: the kernel then refuses to list it.
fn is_removed(directory: &dyn Directory) -> bool {
    let listed = directory.list().and_then(|mut names| names.next_name());
    matches!(listed, Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Returns the state that a stored digest describes: the file at this path, and the source that it
/// was compared with or written from. Returns `None` for entries that are not files.
pub(super) fn state_of(path: &TreePath, entry: &Entry, status: &Status) -> Option<FileState> {
    match &entry.kind {
        EntryKind::File { identity, .. } => Some(FileState::new(path.as_bytes(), identity, status)),
        _ => None,
    }
}

/// Returns the current time as a file timestamp.
pub fn file_time_now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}
