//! Replaces entries by entries of another kind, in a copy that deletes.
//!
//! - A directory replaces a file, link or special file at once.
//! - Any other entry replaces a directory during deletion. Until then the new entry has a temporary
//!   name next to the directory. The content of the directory is first deleted or kept as a backup,
//!   like names that the source lacks. Then the empty directory and the new entry exchange their
//!   names.
//! - If an entry in the directory stays, the directory stays, and the new entry fails.
//! - A name that may belong to the source is not replaced (`proof`).

mod proof;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_proto::criteria::Held;
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::{Entry, EntryKind, Timestamp, TreePath};
use longhaul_proto::message::{Change, Failure, FailureKind, Removal};
use longhaul_proto::notice::NoticeKind;
use longhaul_proto::receiver::Compared;
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::temporary;
use longhaul_storage::{Directory, FileKind, Status, StoredFile};
use longhaul_system::queue::lock;
use rustix::io::Errno;

use super::announcing::announce_deletion;
use super::commit::is_gone;
use super::folders::Folder;
use super::parts::journal_failure;
use super::{ReceiveSide, Receiving, Remover};
use proof::Proofs;

/// Maximum number of directories that entries will replace: their paths are kept in memory.
const MOST_AWAITED: usize = 16_384;

/// Maximum number of new entries that are kept open. An open file is locked, which marks it as no
/// leftover. Other entries are only protected by being younger than leftovers that expire.
const MOST_OPEN: usize = 64;

/// Maximum number of failures in one message: each has a path.
const TOLD_TOGETHER: usize = 8;

/// Mode of a directory until all entries in it are complete.
const TEMPORARY_MODE: u32 = 0o700;

/// Entries that replace entries of another kind.
#[derive(Default)]
pub(crate) struct Replacements {
    state: Mutex<State>,
    /// Number of directories that replaced an entry of another kind.
    made: AtomicU64,
    proofs: Proofs,
}

#[derive(Default)]
struct State {
    /// Directories that entries of the copy will replace, with the new entry once it is complete.
    awaited: BTreeMap<TreePath, Awaited>,
    /// Number of new entries that are kept open.
    open: usize,
    /// Names that directories would take, in a dry run.
    foreseen: HashSet<TreePath>,
}

#[derive(Clone, Default)]
struct Awaited {
    waiting: Option<Arc<Waiting>>,
    /// Reason to keep the directory, if known.
    failure: Option<Failure>,
}

/// A complete entry with a temporary name.
struct Waiting {
    entry: Entry,
    folder: Arc<Folder>,
    temporary: Box<[u8]>,
    /// Open file, which holds its lock.
    _file: Option<Arc<dyn StoredFile>>,
}

impl Replacements {
    /// True if an entry will replace the directory at this path.
    pub(super) fn awaits(&self, path: &TreePath) -> bool {
        lock(&self.state).awaited.contains_key(path)
    }

    /// Returns the directories directly in the anchor that entries will replace.
    pub(super) fn in_anchor(&self) -> Vec<TreePath> {
        let state = lock(&self.state);
        let paths = state.awaited.keys().filter(|path| path.parent().is_none());
        paths.cloned().collect()
    }

    /// Returns the number of directories that replaced, or would replace, an entry of another kind.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    fn announce(&self, path: TreePath) -> bool {
        let mut state = lock(&self.state);
        let has_room = state.awaited.len() < MOST_AWAITED;
        if has_room {
            state.awaited.entry(path).or_default();
        }
        has_room
    }

    /// Records a complete entry that waits with a temporary name.
    pub(super) fn wait(
        &self,
        path: &TreePath,
        (entry, folder, temporary): (&Entry, &Arc<Folder>, &[u8]),
        file: Option<&Arc<dyn StoredFile>>,
    ) {
        let mut state = lock(&self.state);
        let stays_open = file.is_some() && state.open < MOST_OPEN;
        state.open += usize::from(stays_open);
        let waiting = Waiting {
            entry: entry.clone(),
            folder: Arc::clone(folder),
            temporary: temporary.into(),
            _file: file.filter(|_| stays_open).cloned(),
        };
        if let Some(awaited) = state.awaited.get_mut(path) {
            awaited.waiting = Some(Arc::new(waiting));
        }
    }

    /// Returns the present name of the entry of this path.
    pub(super) fn name_now(&self, path: &TreePath) -> Box<[u8]> {
        let waiting = self.waiting(path);
        waiting.map_or(path.name().into(), |waiting| waiting.temporary.clone())
    }

    fn waiting(&self, path: &TreePath) -> Option<Arc<Waiting>> {
        lock(&self.state).awaited.get(path)?.waiting.clone()
    }

    /// Records that the entry replaced the directory, or would.
    pub(super) fn end(&self, path: &TreePath) {
        lock(&self.state).awaited.remove(path);
    }

    /// Records that the entry cannot replace the directory.
    pub(super) fn fail(&self, path: &TreePath, failure: Failure) {
        if let Some(awaited) = lock(&self.state).awaited.get_mut(path) {
            awaited.failure.get_or_insert(failure);
        }
    }

    /// Returns true the first time that a path is given.
    fn foresee(&self, path: &TreePath) -> bool {
        let mut state = lock(&self.state);
        state.foreseen.len() >= MOST_AWAITED || state.foreseen.insert(path.clone())
    }
}

/// Result of clearing the way for a directory.
pub(super) enum Way {
    /// No entry of another kind is in the way, or would be.
    Free,
    /// The entry in the way stays on purpose.
    Left(Held),
}

/// True if an error means that a path leads through an entry that is not a directory.
pub(super) fn is_obstructed(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::NOTDIR | Errno::LOOP))
        || error.kind() == io::ErrorKind::NotADirectory
}

impl Remover<'_> {
    /// True if entries may replace entries of another kind.
    pub(super) fn replaces_kinds(&self) -> bool {
        self.transfer.settings.deletion.is_some()
            && self.transfer.settings.operation != Operation::Verify
    }

    /// Compares an entry that is not a directory with a directory of the same name.
    pub(super) fn compare_with_directory(&self, entry: &Entry, folder: &Arc<Folder>) -> Compared {
        let conflict = |why: &str| {
            let text = format!("{}: there is a directory of that name; {why}", entry.path);
            Compared::Refused(Failure::new(FailureKind::Conflict, text))
        };
        if !self.replaces_kinds() || self.side.destination.rename.is_some() {
            return conflict("move it away");
        }
        if self.receiving().committer().runs_commands() {
            return conflict("with --on-commit it is not replaced: move it away");
        }
        if !self
            .side
            .replacements
            .announce(self.side.destination.path_of(&entry.path))
        {
            return conflict("too many directories are to be replaced: move it away");
        }
        if self.receiving().copies() {
            self.receiving().comparer().compare_part(entry, folder)
        } else {
            Compared::Planned(Change::Changed)
        }
    }

    /// Moves an entry that is not a directory out of the way of a directory of the copy.
    pub(super) fn clear_way(&self, path: &TreePath) -> Result<Way, Failure> {
        let look = || {
            let found = obstacle(self.side, path);
            found.map_err(|error| failure_of("look into the directory", &path.to_string(), &error))
        };
        let Some((folder, proved, _)) = look()? else {
            return Ok(Way::Free);
        };
        if self.transfer.settings.criteria.ignore_existing {
            return Ok(Way::Left(Held::Exists));
        }
        if self.receiving().copies() {
            self.ensure_replaceable(&folder, &proved)?;
        }
        // Several threads may find the same entry.
        let _one = lock(&self.side.clearing);
        let Some((folder, at, status)) = look()? else {
            return Ok(Way::Free);
        };
        if at != proved {
            let text = format!("{at}: was changed at the destination meanwhile: run it again");
            return Err(Failure::new(FailureKind::Changing, text));
        }
        if !self.receiving().copies() && !self.side.replacements.foresee(&at) {
            return Ok(Way::Free);
        }
        let most = self.transfer.settings.deletion.as_deref();
        let most = most.and_then(|deletion| deletion.maximum);
        if most.is_some_and(|most| self.side.replacements.made() >= most) {
            let text = format!(
                "{at}: is in the place of a directory, and --max-delete does not allow to delete it"
            );
            return Err(Failure::new(FailureKind::Conflict, text));
        }
        if self.receiving().copies() {
            let is = (status.size, status.inode);
            announce_deletion(&self.side.destination, &at, is)?;
            make_way_for_directory(&self.receiving(), &folder, &at)?;
        }
        self.side.replacements.made.fetch_add(1, Ordering::Relaxed);
        let removal = Removal {
            path: Some(at),
            size: match status.kind {
                FileKind::File => status.size,
                FileKind::Directory | FileKind::Symlink | FileKind::Special => 0,
            },
            directory: false,
            failure: None,
        };
        self.receiving()
            .tell(|receiver| receiver.removals_mut().handle_made_way(removal));
        Ok(Way::Free)
    }

    /// Reports entries that did not replace a directory as failed, at the end of deletion.
    pub(super) fn give_up_replacements(&self) {
        let left = std::mem::take(&mut lock(&self.side.replacements.state).awaited);
        let mut failed = Vec::new();
        for (path, awaited) in left {
            if let Some(waiting) = &awaited.waiting {
                remove_waiting(self.side, waiting);
            }
            let shown = path.to_string();
            let failure = awaited.failure.unwrap_or_else(|| {
                let text = format!(
                    "{shown}: there is a directory of that name, and it stays, since not all that \
                     it holds was deleted"
                );
                Failure::new(FailureKind::Conflict, text)
            });
            failed.push(Removal {
                path: Some(path),
                size: 0,
                directory: false,
                failure: Some(failure),
            });
        }
        let was_committed = self.receiving().copies();
        for failed in failed.chunks(TOLD_TOGETHER) {
            self.receiving().tell(|receiver| {
                receiver
                    .removals_mut()
                    .handle_unreplaced(failed.to_vec(), was_committed);
            });
        }
    }
}

/// Returns the first name on the way to a directory that is not a directory; `None` if there is no
/// such name.
fn obstacle(
    side: &ReceiveSide,
    path: &TreePath,
) -> io::Result<Option<(Arc<Folder>, TreePath, Status)>> {
    let mut folder = Arc::clone(side.folders.anchor());
    let mut walked: Option<TreePath> = None;
    for name in path.names() {
        let next = TreePath::beneath(walked.as_ref(), name);
        let next = next.map_err(io::Error::other)?;
        match folder.directory().status_of(name) {
            Ok(status) if status.kind != FileKind::Directory => {
                folder.ensure_spelled(name)?;
                return Ok(Some((folder, next, status)));
            }
            Ok(_) => folder = side.folders.find(Some(&next))?,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        walked = Some(next);
    }
    Ok(None)
}

/// Creates a directory in place of another entry, after a backup of that entry.
fn make_way_for_directory(
    receiving: &Receiving<'_>,
    folder: &Arc<Folder>,
    path: &TreePath,
) -> Result<(), Failure> {
    let shown = path.to_string();
    let mut kept = receiving.remover().keep_replaced(&[(folder, path)]);
    let kept = kept.pop().transpose()?.flatten();
    let directory = &**folder.directory();
    let name = path.name();
    let number = receiving.side.temporaries.fetch_add(1, Ordering::Relaxed);
    let between = temporary(receiving.side.destination.owner.session_number(), number);
    let exchange = || match directory.exchange(&between, name) {
        Ok(()) => directory.remove_file(&between),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            directory.remove_directory(&between)?;
            directory.remove_file(name)?;
            directory.make_directory(name, TEMPORARY_MODE)
        }
        Err(error) => {
            let _ = directory.remove_directory(&between);
            Err(error)
        }
    };
    let made = receiving.side.destination.while_owned(|| {
        if receiving.side.make_way(folder, (name, kept.as_ref()))? {
            return directory.make_directory(name, TEMPORARY_MODE);
        }
        directory.make_directory(&between, TEMPORARY_MODE)?;
        exchange()
    });
    made.map_err(|error| journal_failure(&shown, &error))?
        .map_err(|error| failure_of("make a directory in the place of", &shown, &error))?;
    receiving.side.folders.note_made(path);
    Ok(())
}

/// Gives a complete entry the name of an empty directory. The change is durable afterwards.
pub(super) fn take_place(side: &ReceiveSide, folder: &Folder, path: &TreePath) -> io::Result<()> {
    let directory = &**folder.directory();
    let Some(waiting) = side.replacements.waiting(path) else {
        return Err(io::Error::other("its new entry is not complete"));
    };
    let (temporary, name) = (&*waiting.temporary, path.name());
    make_again(side, directory, &waiting)?;
    match directory.exchange(temporary, name) {
        Ok(()) => {
            if let Err(error) = directory.remove_directory(temporary) {
                directory.exchange(temporary, name)?;
                return Err(error);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            directory.remove_directory(name)?;
            directory.rename(temporary, directory, name)?;
        }
        Err(error) => return Err(error),
    }
    folder.sync_with_inodes()?;
    side.ensure_up(folder)
}

/// Creates a link again if a cleaner removed it as a leftover, since links have no locks.
fn make_again(side: &ReceiveSide, directory: &dyn Directory, waiting: &Waiting) -> io::Result<()> {
    let temporary = &*waiting.temporary;
    match directory.status_of(temporary) {
        Err(error) if is_gone(&error) => {}
        other => return other.map(drop),
    }
    match &waiting.entry.kind {
        EntryKind::Symlink { target } => {
            let entry = &waiting.entry;
            side.destination
                .make_link(directory, temporary, (target, entry))
        }
        EntryKind::HardLink { target, .. } => {
            super::links::make(side, target, (directory, temporary))
        }
        _ => Err(io::Error::other(
            "its new entry was removed meanwhile: run it again",
        )),
    }
}

/// Removes a new entry that gets no final name. Its finished directory keeps its mode and time.
fn remove_waiting(side: &ReceiveSide, waiting: &Waiting) {
    let directory = &**waiting.folder.directory();
    let Ok(before) = directory.status() else {
        return;
    };
    // `longhaul clean` finds an entry that cannot be removed.
    let removed = side
        .destination
        .while_owned(|| directory.remove_file(&waiting.temporary));
    let Some(path) = waiting.entry.path.parent() else {
        return;
    };
    if matches!(removed, Ok(Ok(()))) {
        restore(side, &waiting.folder, (&path, before.modified));
    }
}

fn restore(side: &ReceiveSide, folder: &Folder, (path, modified): (&TreePath, Timestamp)) {
    let set = side.destination.while_owned(|| {
        let set = folder.directory().set_modified(modified);
        let notices = &side.destination.notices;
        notices.wish(NoticeKind::TimeRefused, path, set).map(drop)
    });
    // A later session may own the directory; a failed sync is reported at the end.
    let _: Result<io::Result<()>, _> = set;
    let _ = folder.sync();
}
