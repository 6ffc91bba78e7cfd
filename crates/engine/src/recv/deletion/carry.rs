//! Removes the planned names if they have not changed since the plan was made. Directories of the
//! copy keep their modes and times.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use longhaul_proto::deletion::REMOVED_AT_ONCE;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::{Failure, FailureKind, Removal};
use longhaul_proto::notice::NoticeKind;
use longhaul_storage::Status;
use longhaul_storage::failure::failure_of;
use rustix::io::Errno;

use super::super::announcing::announce_deletion;
use super::super::apart::{For, MOST_TOPS};
use super::super::backup::{Deleted, Kept, sync_deleted};
use super::super::folders::Folder;
use super::super::parts::journal_failure;
use super::super::replacing::take_place;
use super::super::{ReceiveSide, Receiving};
use super::record::{Planned, Seen, Step};

/// A deletion that is being carried out.
pub(super) struct Carry {
    planned: Planned,
    void: HashSet<u64>,
    /// Directory of the copy in which names are removed, with its earlier state.
    within: Option<Within>,
    /// Directory of the last removal, whose path was checked.
    checked: Option<Option<TreePath>>,
    /// Topmost directories of the copy, until it is proved that they are not sources; `None` if no
    /// names will be removed.
    unproved: Option<Vec<Option<TreePath>>>,
    /// Files whose backup is not durable yet.
    leaving: Vec<Leaving>,
}

/// A file that is removed when its backup is durable.
struct Leaving {
    folder: Arc<Folder>,
    path: TreePath,
    seen: Seen,
    kept: Kept,
    removal: Removal,
}

/// Maximum bytes of paths and texts in one message of removals.
const TOLD_BYTES: usize = 256 << 10;

struct Within {
    path: Option<TreePath>,
    folder: Arc<Folder>,
    before: Status,
    changed: bool,
}

impl Carry {
    pub(super) fn new(
        planned: Planned,
        void: HashSet<u64>,
        unproved: Option<Vec<Option<TreePath>>>,
    ) -> Carry {
        Carry {
            unproved,
            planned,
            void,
            within: None,
            checked: None,
            leaving: Vec::new(),
        }
    }

    /// Returns the next removals, and true if they are the last ones. Their backups are durable.
    pub(super) fn step(&mut self, receiving: &Receiving<'_>) -> (Vec<Removal>, bool) {
        let unproved = self.unproved.take().filter(|_| receiving.copies());
        if let Some(tops) = unproved
            && let Err(failure) = prove(receiving, &tops)
        {
            return (vec![stayed(None, failure)], true);
        }
        let mut removed = Vec::new();
        let ended = self.remove_some(receiving, &mut removed);
        self.let_leave(receiving.side, &mut removed);
        (removed, ended)
    }

    /// Makes backups durable, and then removes the old names.
    fn let_leave(&mut self, side: &ReceiveSide, removed: &mut Vec<Removal>) {
        let leaving = std::mem::take(&mut self.leaving);
        if leaving.is_empty() {
            return;
        }
        let kept = leaving.iter().map(|one| Deleted {
            from: &one.folder,
            name: one.path.name(),
            kept: &one.kept,
        });
        let kept: Vec<Deleted<'_>> = kept.collect();
        let synced = sync_deleted(&kept);
        let mut restored = Vec::new();
        let done = side.destination.while_owned(|| {
            let all = kept.iter().zip(&leaving).zip(synced);
            let all = all.map(|((of, one), synced)| match synced {
                Ok(()) => leave(of, &one.seen),
                Err(error) => {
                    restored.extend(of.stays().then_some(of.from));
                    Err(error)
                }
            });
            all.collect::<Vec<io::Result<()>>>()
        });
        // The sync must wait until all of them have their old names: it may make the loss of others
        // durable.
        for folder in restored {
            // The next sync of that directory reports the failure again.
            let _ = folder.directory().sync();
        }
        match done {
            Ok(done) => {
                for (one, done) in leaving.into_iter().zip(done) {
                    removed.extend(told(one.removal, done));
                }
            }
            Err(error) => removed.extend(leaving.into_iter().map(|one| {
                let failure = journal_failure(&one.path.to_string(), &error);
                stayed(Some(one.path), failure)
            })),
        }
    }

    /// Returns true at the end of the plan.
    fn remove_some(&mut self, receiving: &Receiving<'_>, removed: &mut Vec<Removal>) -> bool {
        let mut bytes = 0;
        // One place stays free for an error of the list.
        while removed.len() + self.leaving.len() + 1 < REMOVED_AT_ONCE && bytes < TOLD_BYTES {
            if receiving.transfer.is_over() {
                return true;
            }
            let (group, step) = match self.planned.next() {
                Ok(Some(next)) => next,
                Ok(None) => {
                    self.restore(receiving.side, removed);
                    return true;
                }
                Err(error) => {
                    let failure = failure_of("read the list of what is deleted", "", &error);
                    removed.push(stayed(None, failure));
                    self.restore(receiving.side, removed);
                    return true;
                }
            };
            let replaces = matches!(step, Step::Replace(..));
            bytes += match step {
                // The failed listing of the directory was already reported.
                _ if self.void.contains(&group) => 0,
                Step::Within(path) => {
                    self.restore(receiving.side, removed);
                    self.enter(receiving, path);
                    0
                }
                Step::Stays(path, failure) => {
                    let stays = stayed(Some(path), failure);
                    let bytes = weight(&stays);
                    removed.push(stays);
                    bytes
                }
                Step::Remove(path, seen) | Step::Replace(path, seen) => {
                    // The content of a directory is removed before it.
                    if seen.directory {
                        self.let_leave(receiving.side, removed);
                    }
                    let bytes = path.as_bytes().len();
                    let one = if replaces {
                        self.replace(receiving, path, seen)
                    } else {
                        self.remove(receiving, path, seen)
                    };
                    let text = one.as_ref().and_then(|one| one.failure.as_ref());
                    let bytes = bytes + text.map_or(0, |failure| failure.text.len());
                    removed.extend(one);
                    bytes
                }
            };
        }
        false
    }

    fn enter(&mut self, receiving: &Receiving<'_>, path: Option<TreePath>) {
        if !receiving.copies() {
            return;
        }
        let opened = receiving
            .side
            .folders
            .find(path.as_ref())
            .and_then(|folder| {
                let before = folder.directory().status()?;
                Ok((folder, before))
            });
        // If the directory cannot be opened, each removal in it reports an error.
        if let Ok((folder, before)) = opened {
            self.within = Some(Within {
                path,
                folder,
                before,
                changed: false,
            });
        }
    }

    /// Restores the mode and time of the directory in which names were removed.
    fn restore(&mut self, side: &ReceiveSide, removed: &mut Vec<Removal>) {
        // Pending backups must be complete before the time is set.
        self.let_leave(side, removed);
        let Some(within) = self.within.take().filter(|within| within.changed) else {
            return;
        };
        // The destination directory itself keeps its new time.
        let Some(path) = within.path else { return };
        let directory = within.folder.directory();
        let notices = &side.destination.notices;
        let restored = side.destination.while_owned(|| {
            if directory.status()?.mode != within.before.mode {
                let set = directory.set_mode(within.before.mode);
                notices.wish(NoticeKind::ModeRefused, &path, set)?;
            }
            let set = directory.set_modified(within.before.modified);
            notices.wish(NoticeKind::TimeRefused, &path, set).map(drop)
        });
        // A later session may own the directory; a failed sync is reported at the end.
        let _: Result<io::Result<()>, _> = restored;
        let _ = within.folder.sync();
    }

    /// Lets a new entry replace a directory. Returns `None` if it fails; that failure of the entry
    /// is reported at the end.
    fn replace(
        &mut self,
        receiving: &Receiving<'_>,
        path: TreePath,
        seen: Seen,
    ) -> Option<Removal> {
        if receiving.copies() {
            let destination = &receiving.side.destination;
            let announced = announce_deletion(destination, &path, (seen.bytes(), seen.inode));
            if let Err(failure) = announced {
                receiving.side.replacements.fail(&path, failure);
                return None;
            }
            let replaced = receiving
                .side
                .destination
                .while_owned(|| replace_seen(receiving.side, (&path, &seen), &mut self.checked));
            if let Some(within) = &mut self.within {
                within.changed = true;
            }
            let shown = path.to_string();
            let failure = match replaced {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(failure_of("replace the directory", &shown, &error)),
                Err(error) => Some(journal_failure(&shown, &error)),
            };
            if let Some(failure) = failure {
                receiving.side.replacements.fail(&path, failure);
                return None;
            }
        }
        receiving.side.replacements.end(&path);
        Some(Removal {
            path: Some(path),
            size: 0,
            directory: true,
            failure: None,
        })
    }

    /// Removes a name. Returns `None` if another process removed it first, or if its backup is not
    /// durable yet.
    fn remove(&mut self, receiving: &Receiving<'_>, path: TreePath, seen: Seen) -> Option<Removal> {
        let removal = Removal {
            size: seen.bytes(),
            directory: seen.directory,
            path: Some(path.clone()),
            failure: None,
        };
        let shown = path.to_string();
        if receiving.remover().names_only() {
            let failure = Failure::new(
                FailureKind::Extra,
                format!("{shown}: only at the destination"),
            );
            return Some(stayed(Some(path), failure));
        }
        if !receiving.copies() {
            return Some(removal);
        }
        let destination = &receiving.side.destination;
        let announced = announce_deletion(destination, &path, (seen.bytes(), seen.inode));
        if let Err(failure) = announced {
            return Some(stayed(Some(path), failure));
        }
        let removed = receiving
            .side
            .destination
            .while_owned(|| remove_seen(receiving.side, (&path, &seen), &mut self.checked));
        let removed = match removed {
            Ok(removed) => removed,
            Err(error) => return Some(stayed(Some(path), journal_failure(&shown, &error))),
        };
        if let Some(within) = &mut self.within {
            within.changed = true;
        }
        match removed {
            Ok(Some((folder, kept))) => {
                self.leaving.push(Leaving {
                    folder,
                    path,
                    seen,
                    kept,
                    removal,
                });
                None
            }
            Ok(None) => told(removal, Ok(())),
            Err(error) => told(removal, Err(error)),
        }
    }
}

/// Lets a new entry replace a directory that did not change since it was listed.
fn replace_seen(
    side: &ReceiveSide,
    (path, seen): (&TreePath, &Seen),
    checked: &mut Option<Option<TreePath>>,
) -> io::Result<()> {
    let parent = path.parent();
    let folder = side.folders.find_in_copy(parent.as_ref())?;
    check_place(side, parent.as_ref(), &folder)?;
    *checked = Some(parent);
    let status = folder.directory().status_of(path.name())?;
    if Seen::of(&status) != *seen {
        return Err(changed());
    }
    take_place(side, &folder, path)
}

/// Returns a failure unless it is proved that these directories neither contain nor are within a
/// source.
fn prove(receiving: &Receiving<'_>, tops: &[Option<TreePath>]) -> Result<(), Failure> {
    if tops.len() > MOST_TOPS {
        let text = format!(
            "nothing was deleted at the destination: a copy of more than {MOST_TOPS} directories \
             deletes nothing: copy fewer of them at a time"
        );
        return Err(Failure::new(FailureKind::Other, text));
    }
    let mut directories = Vec::new();
    for top in tops {
        match receiving.side.folders.find_in_copy(top.as_ref()) {
            Ok(folder) => directories.push(Arc::clone(folder.directory())),
            // No names are removed in a missing directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let shown = top.as_ref().map_or(".".to_owned(), TreePath::to_string);
                let failure = failure_of("open", &shown, &error);
                let text = format!("nothing was deleted at the destination: {}", failure.text);
                return Err(Failure::new(failure.kind, text));
            }
        }
    }
    receiving
        .remover()
        .ensure_apart(&directories, For::Deletion)?;
    match &receiving.side.destination.backups {
        Some(backups) => backups.prove(receiving),
        None => Ok(()),
    }
}

/// Returns the report of a removal; `None` if another process removed the name first.
fn told(removal: Removal, done: io::Result<()>) -> Option<Removal> {
    match done {
        Ok(()) => Some(removal),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let shown = removal.path.as_ref().map(ToString::to_string);
            let failure = not_removed(&shown.unwrap_or_default(), &error);
            Some(stayed(removal.path, failure))
        }
    }
}

/// Removes the old name of a file with a durable backup, if it did not change since it was listed.
fn leave(of: &Deleted<'_>, seen: &Seen) -> io::Result<()> {
    let directory = of.from.directory();
    if !of.has_both_names() {
        return Ok(());
    }
    if Seen::of(&directory.status_of(of.name)?) == *seen {
        directory.remove_file(of.name)
    } else {
        Err(changed())
    }
}

fn changed() -> io::Error {
    io::Error::other("it was changed since it was listed, and stays")
}

/// Removes a name that did not change since it was listed, or gives it its backup name.
fn remove_seen(
    side: &ReceiveSide,
    (path, seen): (&TreePath, &Seen),
    checked: &mut Option<Option<TreePath>>,
) -> io::Result<Option<(Arc<Folder>, Kept)>> {
    let parent = path.parent();
    let folder = side.folders.find_in_copy(parent.as_ref())?;
    let directory = folder.directory();
    if checked.as_ref() != Some(&parent) {
        check_place(side, parent.as_ref(), &folder)?;
        *checked = Some(parent);
    }
    let status = directory.status_of(path.name())?;
    let backups = side.destination.backups.as_ref();
    if Seen::of(&status) != *seen {
        if backups.is_some_and(|backups| backups.is_renewed(path)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        return Err(changed());
    }
    match backups {
        _ if seen.directory => directory.remove_directory(path.name())?,
        Some(backups) if !backups.is_backup(path.name()) => {
            let kept = backups.keep_deleted(side, &folder, path)?;
            return Ok(Some((folder, kept)));
        }
        _ => directory.remove_file(path.name())?,
    }
    Ok(None)
}

/// Returns an error if an open directory is no longer at its path: a user may have moved it away to
/// keep it.
fn check_place(side: &ReceiveSide, path: Option<&TreePath>, folder: &Folder) -> io::Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    let mut now = Arc::clone(side.folders.anchor().directory());
    for name in path.names() {
        now = now.open_directory(name)?;
    }
    let (now, then) = (now.status()?, folder.directory().status()?);
    if (now.device, now.inode) == (then.device, then.inode) {
        Ok(())
    } else {
        Err(io::Error::other(
            "its directory was moved since it was listed, and it stays",
        ))
    }
}

/// Returns the approximate bytes of the path and text of a removal.
fn weight(removal: &Removal) -> usize {
    let path = removal.path.as_ref();
    let text = removal.failure.as_ref();
    path.map_or(0, |path| path.as_bytes().len()) + text.map_or(0, |failure| failure.text.len())
}

fn not_removed(shown: &str, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(code) if code == Errno::NOTEMPTY.raw_os_error() => {
            let text = format!("{shown}: is not deleted, since something in it stays");
            Failure::new(FailureKind::Other, text)
        }
        _ => failure_of("delete", shown, error),
    }
}

fn stayed(path: Option<TreePath>, failure: Failure) -> Removal {
    Removal {
        path,
        size: 0,
        directory: false,
        failure: Some(failure),
    }
}
