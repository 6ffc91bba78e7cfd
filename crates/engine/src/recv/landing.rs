//! Where things land: the anchor directory beneath which every entry's path
//! is resolved, and the name of a single file. It depends on the command line
//! alone, and on whether the destination of a single file is a directory.

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
use longhaul_storage::destination::DestinationDirectory;
use longhaul_storage::failure::failure_of;
use longhaul_storage::fake_super::FakeDirectory;
use longhaul_storage::journal::digests::{FileState, KeptDigests};
use longhaul_storage::journal::names::StagingName;
use longhaul_storage::journal::{
    self, Claim, ClaimError, JournalError, Key, Owner, Partial, StepError, claim, sweep,
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

// tidy: long file because every way to resolve a name below the destination is in one place.

/// The beginning of the name under which a session claims its anchor; the hash of its source
/// follows, and the name that a single source gets. No file can have this name.
pub const SESSION_NAME: &[u8] = b"/session/";

/// A destination.
pub struct Destination {
    /// Where entries' paths begin.
    pub anchor: Arc<dyn Directory>,
    /// The name that a single source gets instead of its own.
    pub rename: Option<TreePath>,
    /// Nothing is kept, but what a stream takes.
    pub is_sink: bool,
    /// The anchor was made for this copy.
    is_new: bool,
    /// How messages name it.
    shown: String,
    /// Takes the data instead of files.
    pub(super) stream: Option<Arc<dyn DataStream>>,
    /// Who copies.
    pub principal: String,
    /// Hash of the sending host and its sources.
    pub source: [u8; 32],
    /// Hash of the sources, the same on every host that sees them; that of `source` if no other
    /// host does.
    pub anywhere: [u8; 32],
    /// This process, for a process that finds what it left.
    pub owner: Owner,
    /// Ownership of the anchor for this source: a later session of the same
    /// transfer fences this one.
    session: Mutex<Option<Arc<Partial>>>,
    /// For what needs the session's gate: threads that wait for each other
    /// here need not wait there.
    turn: Mutex<()>,
    /// Where the anchor had its place when it was taken.
    place: OnceLock<Place>,
    /// A file of this session's own, and its device.
    witness: OnceLock<(u64, Arc<dyn StoredFile>)>,
    /// Digests of files that this session and those before it finished.
    digests: OnceLock<KeptDigests>,
    /// What times its file system keeps.
    times: Mutex<KeptTimes>,
    /// When set-user-ID and set-group-ID bits are kept.
    pub(super) set_ids: SetIds,
    /// What entries get beyond data, mode and time.
    pub(super) keeper: Arc<Keeper>,
    /// How what is replaced or deleted is kept; `None`: it is not.
    pub(super) backups: Option<Backups>,
    /// A command that a shell runs for each file that is committed.
    pub(super) on_commit: Option<Box<FileCommand>>,
    /// A command whose output becomes the file.
    pub(super) filter: Option<Box<FileCommand>>,
    /// Files go through a command at the source: they have another size than is listed.
    pub(super) filtered: bool,
    /// What it did not keep or refused.
    pub notices: Arc<Notices>,
}

/// Why a destination cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LandingError {
    /// It cannot be opened or made.
    #[error("{0}")]
    Open(String),
    /// It is a file, and a directory is needed.
    #[error("{0} is not a directory: name one, or copy a single file to that name")]
    NotDirectory(String),
    /// The name for a single file cannot be used.
    #[error("{0} cannot be a file's name")]
    Name(String),
    /// A stream brings no name.
    #[error(
        "{0} is a directory: what comes from standard input has no name of its own, so name the \
         file that it becomes"
    )]
    Nameless(String),
    /// It cannot be taken for this session.
    #[error("{0}")]
    Session(String),
    /// A later session of the same transfer took it meanwhile.
    #[error("a newer run of the same transfer took over; this one ends")]
    Superseded,
}

/// What becomes of a destination that is missing and is to be a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is made, with those above it.
    Make,
    /// It is imagined: a dry run finds nothing in it.
    Imagine,
    /// That is an error.
    Refuse,
}

impl Missing {
    /// What a session does.
    pub fn for_operation(operation: Operation) -> Missing {
        match operation {
            Operation::Copy => Missing::Make,
            Operation::DryRun => Missing::Imagine,
            Operation::Verify => Missing::Refuse,
        }
    }
}

/// Who lands what.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Who copies.
    pub principal: String,
    /// Hash of the sending host and its sources.
    pub source: [u8; 32],
    /// Hash of the sources, the same on every host that sees them; that of `source` if no other
    /// host does.
    pub anywhere: [u8; 32],
    /// This process.
    pub owner: Owner,
    /// When set-user-ID and set-group-ID bits are kept.
    pub set_ids: SetIds,
    /// What entries get beyond data, mode and time.
    pub keeper: Arc<Keeper>,
    /// What is replaced or deleted is to be kept: what opens the destination sees to it
    /// ([`Destination::keeping_backups`]).
    pub backup: Option<Box<Backup>>,
    /// A command that a shell runs for each file that is committed.
    pub on_commit: Option<Box<FileCommand>>,
    /// A command whose output becomes the file.
    pub filter: Option<Box<FileCommand>>,
    /// Files go through a command at the source.
    pub filtered: bool,
}

#[cfg(test)]
impl Arrival {
    /// By the tests of this crate, the same each time.
    pub(crate) fn of_tests() -> Arrival {
        Arrival {
            set_ids: Default::default(),
            keeper: Default::default(),
            backup: None,
            on_commit: None,
            filter: None,
            filtered: false,
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

/// What to say where the directory that things go into cannot be had.
fn not_opened(what: &str, shown: &str, missing: Missing, error: &io::Error) -> String {
    match (error.kind(), missing) {
        (io::ErrorKind::NotFound, Missing::Refuse) => {
            format!("there is no {shown}: check how it is written")
        }
        _ => failure_of(what, shown, error).text,
    }
}

/// What to say where the directory for a single file's new name cannot be had:
/// it is made for what is copied into it, never for a name.
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

/// The directory that holds a name, and the name, which a comparison needs to be
/// there: else each entry below it would be told of.
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

/// What to say where the directory that holds a name is missing.
pub(super) fn no_directory(parent: &[u8], shown: &str) -> String {
    let parent = String::from_utf8_lossy(parent);
    format!("there is no directory {parent} for {shown}")
}

impl Destination {
    /// A sink.
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
            notices: Arc::default(),
        }
    }

    /// One stream of data, of which nothing is resumed.
    pub fn stream(stream: Arc<dyn DataStream>, arrival: Arrival) -> Destination {
        Destination {
            stream: Some(stream),
            ..Destination::sink(sink(), arrival)
        }
    }

    /// Opens the destination at a path; `missing` says what to do if things go
    /// into it and it is not there.
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

    /// The same, which keeps what is replaced or deleted.
    #[must_use]
    pub fn keeping_backups(self, backups: Backups) -> Destination {
        Destination {
            backups: Some(backups),
            ..self
        }
    }

    /// Whether this session, or one before it of the same transfer, may have made the anchor.
    pub(super) fn is_made(&self) -> bool {
        self.is_new || !self.former_sessions().is_empty()
    }

    /// A directory of which attributes say what is in it, if the destination's do.
    pub(super) fn faking(&self, directory: Arc<dyn Directory>) -> Arc<dyn Directory> {
        FakeDirectory::around_if(self.keeper.fakes(), directory)
    }

    /// Where nothing of the copy goes, and nothing is deleted: backups lie there.
    pub(super) fn barred(&self) -> Option<&TreePath> {
        self.backups.as_ref()?.beneath()
    }

    /// Where an entry goes beneath the anchor.
    pub fn path_of(&self, path: &TreePath) -> TreePath {
        let Some(rename) = &self.rename else {
            return path.clone();
        };
        let below = path.names().skip(1);
        below.fold(rename.clone(), |above, name| {
            // It was within the bound under the other name, and is a few bytes
            // longer at most; where that is too much, the path stays.
            above.join(name).unwrap_or(above)
        })
    }

    /// Whether nothing of what comes can be there: no such names, and nothing
    /// that an earlier attempt left. `names` are those directly in the anchor;
    /// none stands for any.
    ///
    /// # Errors
    ///
    /// As `getdents`.
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

    /// What the anchor is claimed under for a source: copies of one to several names are several.
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

    /// Takes the anchor for this source: an older session of the same transfer
    /// is fenced from here on. Gives the epoch.
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
        // Durable before anything else is: the next session finds here whose
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
        // A session is taken once.
        let _ = self.place.set(Place::of(&*self.anchor));
        lock(&self.times).learn_unit(&**partial.file());
        if let Ok(status) = partial.file().status() {
            // A session is taken once.
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
                // A session is taken once.
                let _ = self.digests.set(kept);
            }
            Err(error) if self.on_commit.is_some() => return Err(self.not_taken(&error)),
            // Without them files are read again, no more.
            Err(_) => {}
        }
        if let Some(backups) = &self.backups {
            let settled = backups.settle(&self.anchor);
            settled.map_err(|error| self.not_taken(&error))?;
        }
        *lock(&self.session) = Some(Arc::new(partial));
        Ok(epoch)
    }

    /// Claims the anchor by the name that sessions of every host have, so that what a dead one
    /// left is found. While one of another host lives, this host's have a name of their own.
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
        // What this one does not do is told when the copy does the same.
        let anchor = Arc::clone(&self.anchor);
        let anchor = DestinationDirectory::new(anchor, Arc::default(), None);
        if self.keeper.keeping().anchor {
            // The copy gives it its mode in the end.
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
        })
    }

    /// A file in the anchor that is this session's to change, and the device that it lies on;
    /// `None` if nothing is written.
    pub(super) fn witness(&self) -> Option<(u64, &Arc<dyn StoredFile>)> {
        self.witness.get().map(|(device, file)| (*device, file))
    }

    /// Whether a file's time is what its file system makes of a source's. A dry run must not
    /// try how exactly that keeps times, and which: the time of the file's last change, which
    /// nobody sets, tells the former, and the latter is guessed.
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

    /// The same, without trying times: what was just made has another one all but always.
    pub(super) fn is_known_to_keep(&self, wanted: Timestamp, there: &Status) -> bool {
        lock(&self.times).keeps_as(wanted, there.modified, None)
    }

    /// What to say where no file can be had in the anchor.
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

    /// Does something short that only the owner may, so that no later session
    /// can take over before it is done: gives names, claims, sets a directory's
    /// time. What an older session has in hand must neither replace what a later
    /// one wrote nor take a part from it.
    ///
    /// # Errors
    ///
    /// [`JournalError::Fenced`] where one has. Nothing in it waits for a descriptor.
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

    /// Keeps the digests of files that have their names, each with the state that it is of
    /// ([`state_of`]). To be called within [`Destination::while_owned`].
    pub(super) fn keep_digests(&self, files: &[(FileState, [u8; 32])]) {
        if let Some(kept) = self.digests.get() {
            kept.append(files);
        }
    }

    /// Keeps one, of a file that is there.
    pub(super) fn keep_digest(
        &self,
        path: &TreePath,
        entry: &Entry,
        status: Status,
        digest: Checksum,
    ) {
        if let (Some(state), Some(digest)) = (state_of(path, entry, &status), digest.digest()) {
            // One that a later session fenced has nothing to keep.
            let _ = self.while_owned(|| self.keep_digests(&[(state, digest)]));
        }
    }

    /// Whether files go through a command at either end.
    pub(super) fn has_filter(&self) -> bool {
        self.filter.is_some() || self.filtered
    }

    /// A command is to run for these files, which get their names now, even if this session does
    /// not live to see it.
    ///
    /// # Errors
    ///
    /// If that could not be made durable, or a later session took over.
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

    /// The command of a file succeeded.
    pub(super) fn end_command(&self, file: FileState) {
        if let Some(kept) = self.digests.get() {
            // One that a later session fenced tells nothing: the command runs again.
            let _ = self.while_owned(|| kept.end_command(file));
        }
    }

    /// Whether an earlier session left a file whose command did not succeed.
    pub(super) fn awaits_command(&self, file: &FileState) -> bool {
        let kept = self.digests.get();
        kept.is_some_and(|kept| kept.awaits_command(file))
    }

    /// The copy, of this many entries, came to its end and stays incomplete. Of digests that are
    /// kept no more than half may be of earlier states. Of a file whose command runs two more are
    /// kept.
    pub(super) fn bound_kept_digests(&self, entries: u64) {
        let each = match self.on_commit {
            Some(_) => 4,
            None => 2,
        };
        if let Some(kept) = self.digests.get() {
            // One that a later session fenced has nothing to forget.
            let _ = self.while_owned(|| kept.forget_beyond(entries.saturating_mul(each)));
        }
    }

    /// The digest of a file that an earlier session finished, or compared, if it is as that
    /// left it, and so is the source.
    pub(super) fn kept_digest(
        &self,
        path: &TreePath,
        entry: &Entry,
        status: &Status,
    ) -> Option<Checksum> {
        let state = state_of(path, entry, status)?;
        self.digests.get()?.find(&state).map(Checksum::Blake3)
    }

    /// Whether no later session took over.
    pub(super) fn ensure_owned(&self) -> Result<(), JournalError> {
        let session = lock(&self.session).clone();
        session.map_or(Ok(()), |session| session.ensure_owned())
    }

    /// As [`Destination::ensure_owned`], and that the anchor can still be used; some calls more.
    pub(super) fn ensure_there(&self) -> Result<(), JournalError> {
        let session = lock(&self.session).clone();
        session.map_or(Ok(()), |session| session.ensure_there())
    }

    /// What to say where [`Destination::ensure_there`] finds that the anchor cannot be used.
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

    /// Whether the anchor's file system was taken from under its name meanwhile (`umount --lazy`).
    pub(super) fn is_detached(&self) -> bool {
        let of_stream = self
            .stream
            .as_ref()
            .is_some_and(|stream| stream.is_detached());
        of_stream || self.place.get().is_some_and(Place::is_gone)
    }

    /// What to say then.
    pub(super) fn detached(&self) -> String {
        let stream = self.stream.as_ref();
        let shown = stream.map_or(self.shown.as_str(), |stream| stream.shown());
        format!(
            "the file system of the destination {shown} was unmounted while it was copied to: what \
             was copied is on it, and not found by that name; mount it again, and run the same \
             command again"
        )
    }

    /// What to say where the anchor's sync failed.
    pub(super) fn not_synced(&self, error: &io::Error) -> String {
        failure_of("sync the destination", &self.shown, error).text
    }

    /// Removes what earlier sessions of the same transfer left in a directory; where entries
    /// `failed`, not what may be theirs: true where some of that stayed.
    pub(super) fn sweep(&self, directory: &dyn Directory, failed: bool) -> bool {
        !self.former_sessions().is_empty() && self.sweep_always(directory, failed)
    }

    /// As [`Destination::sweep`], also where no earlier session is known: one
    /// that a crash ended before it was durable left a part of its own, in the
    /// anchor and nowhere else.
    pub(super) fn sweep_always(&self, directory: &dyn Directory, failed: bool) -> bool {
        let Some(session) = lock(&self.session).clone() else {
            return false;
        };
        let former = session.former_sessions();
        // What cannot be removed is found by `longhaul clean`.
        sweep(directory, &|session| former.contains(&session), failed).unwrap_or(failed)
    }

    /// Session numbers of those that had the anchor before.
    pub(super) fn former_sessions(&self) -> Vec<u64> {
        let session = lock(&self.session);
        let former = session.as_ref().map(|session| session.former_sessions());
        former.unwrap_or_default().to_vec()
    }

    /// Gives the anchor up: all is done.
    pub(super) fn give_up(&self) {
        if let Some(session) = lock(&self.session).take() {
            // Another session may have it by now; then nothing is to be removed.
            let _ = session.abandon();
        }
    }
}

/// Whether a directory has no name any more: the kernel lists none of that kind.
fn is_removed(directory: &dyn Directory) -> bool {
    let listed = directory.list().and_then(|mut names| names.next_name());
    matches!(listed, Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// What a digest that is kept is of: the file at this path, and the source that it was compared
/// with or written from. None of what is no file.
pub(super) fn state_of(path: &TreePath, entry: &Entry, status: &Status) -> Option<FileState> {
    match &entry.kind {
        EntryKind::File { identity, .. } => Some(FileState::new(path.as_bytes(), identity, status)),
        _ => None,
    }
}

/// A time on the clock of files: now.
pub fn file_time_now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}
