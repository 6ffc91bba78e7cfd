//! Keeps replaced and deleted files under another name: in the same directory with a suffix, or by
//! their path beneath a separate directory.
//!
//! - A replaced file first gets its backup name as a further hard link, which is durable before the
//!   new file takes the old name. Thus a reader of the old name always finds a file. If the file
//!   system does not allow further links, the file is renamed just before the replacement.
//! - A deleted file gets its backup name in the same way, and then loses the old one.
//! - A killed copy may have renamed files without a sync of their new directory. The next session
//!   syncs the file system before it changes any name.
//! - A backup replaces an older backup of the same name. It does not replace files of this copy
//!   that were listed before the backup is made.

mod deleted;
mod place;
mod proof;
mod replaced;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_proto::backup::Backup;
use longhaul_proto::manifest::{Entry, EntryKind, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use rustix::io::Errno;

pub(super) use deleted::{Deleted, sync_deleted};
use longhaul_storage::beneath::{is_filling, open_beneath};
use longhaul_storage::journal::temporary;
use longhaul_storage::roots::OpenRoot;
use longhaul_storage::{Directory, FileKind};
use longhaul_system::queue::lock;
use longhaul_system::refusals::or_without;
pub use place::real;
use place::{beneath, downwards, make_beneath};

use super::folders::{Folder, Folders};
use super::{ReceiveSide, Receiving};

/// Maximum number of remembered names of the copy that end with the suffix; backups must not take
/// them.
const MOST_BROUGHT: usize = 65_536;

/// Message for an entry that would be placed in the directory of backups.
pub(super) const BARRED: &str =
    "backups are kept there: name another --backup-dir, or leave it out of the copy";

/// Maximum number of attempts to create a hard link that another process may remove as a leftover.
const LINK_TRIES: u32 = 8;

/// Names, directory and state of backups.
pub struct Backups {
    suffix: Vec<u8>,
    /// Directory of backups; `None`: each backup is in the directory of its original.
    place: Option<Place>,
    known: Mutex<Known>,
}

/// A directory of backups, created with the first backup.
struct Place {
    opening: Opening,
    folders: Mutex<Option<Arc<Folders>>>,
    /// Error number of a failed sync of the directory's name or of one above it.
    unsynced: OnceLock<i32>,
    /// Result of the proof that the directory is not a directory of the source.
    proof: Mutex<Option<Result<(), Failure>>>,
}

/// Location of the directory of backups.
enum Opening {
    /// A user's path outside the anchor.
    Apart(Box<dyn OpenRoot>, PathBuf),
    /// A path below the anchor. Symbolic links in it are not followed, since the copy may bring
    /// links.
    Beneath(TreePath),
}

/// A bounded set of names.
#[derive(Default)]
struct Names {
    known: HashSet<TreePath>,
    /// True if the set is full and names are missing from it.
    overflowed: bool,
}

impl Names {
    fn add(&mut self, path: TreePath) {
        if self.known.len() < MOST_BROUGHT {
            self.known.insert(path);
        } else {
            self.overflowed |= !self.known.contains(&path);
        }
    }

    fn contains(&self, path: &TreePath) -> bool {
        self.known.contains(path)
    }
}

/// Names that restrict further backups.
#[derive(Default)]
struct Known {
    /// Listed names of the copy that end with the suffix, and backups of them. No backup takes
    /// these names.
    brought: Names,
    /// Names of backups of deleted files that replaced another file.
    renewed: Names,
    /// Names that backups took. An entry of the copy with such a name is not compared with the
    /// backup.
    taken: Names,
}

/// A backup that is not durable yet, or that is about to be made.
pub(super) struct Kept {
    pub folder: Arc<Folder>,
    name: Box<[u8]>,
    /// Full path of the backup, unless it is recorded as a name of the copy already.
    target: Option<TreePath>,
    /// True if hard links are not available: the old file is renamed just before the new one takes
    /// its name.
    moves: bool,
}

/// Reasons to reject a directory of backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Backups would take the names of their originals or of other files of the copy.
    #[error(
        "the directory for backups is the destination itself, or holds it: name one next to it or \
         beneath it"
    )]
    HoldsDestination,
    /// The path from the destination to the directory is not valid.
    #[error("the directory for backups has a name that longhaul keeps for itself, or is too long")]
    Path,
}

impl Backups {
    /// Keeps backups in the directories of their originals.
    pub fn beside(asked: &Backup) -> Backups {
        Backups {
            suffix: asked.suffix().to_vec(),
            place: None,
            known: Mutex::default(),
        }
    }

    /// Keeps backups in a directory. If it is not beneath the anchor, `open` creates it at `path`
    /// when it is needed. `place` is its path in this host's file systems, and `anchor` that of the
    /// anchor; neither has to exist.
    ///
    /// # Errors
    ///
    /// [`PlaceError`].
    pub fn within(
        asked: &Backup,
        (open, path): (Box<dyn OpenRoot>, PathBuf),
        (anchor, place): (&Path, &Path),
    ) -> Result<Backups, PlaceError> {
        let said = asked.directory.as_deref();
        let opening = match said.and_then(downwards) {
            // This path may contain a link that an earlier copy brought, so it is not resolved.
            Some(names) => Opening::Beneath(tree_path(&names.join(&b'/'))?),
            None => {
                let (anchor, followed) = (real(anchor), real(place));
                let rest = beneath(&anchor, place);
                let rest = rest.or_else(|| Some(followed.strip_prefix(&anchor).ok()?.to_owned()));
                match rest {
                    Some(rest) => Opening::Beneath(tree_path(rest.as_os_str().as_encoded_bytes())?),
                    None if anchor.starts_with(&followed) => {
                        return Err(PlaceError::HoldsDestination);
                    }
                    None => Opening::Apart(open, path),
                }
            }
        };
        Ok(Backups {
            place: Some(Place {
                opening,
                folders: Mutex::default(),
                unsynced: OnceLock::new(),
                proof: Mutex::default(),
            }),
            ..Backups::beside(asked)
        })
    }

    /// Returns the path of the directory of backups, if it is beneath the anchor. The copy neither
    /// writes nor deletes entries in it.
    pub(super) fn beneath(&self) -> Option<&TreePath> {
        match &self.place.as_ref()?.opening {
            Opening::Beneath(path) => Some(path),
            Opening::Apart(..) => None,
        }
    }

    /// Returns the reason to refuse an entry that is not a directory and would block or redirect
    /// the directory of backups.
    pub(super) fn refuses(&self, entry: &Entry, path: &TreePath) -> Option<Failure> {
        let beneath = self.beneath()?;
        let is_in_the_way = path == beneath || path.is_above(beneath);
        if entry.kind == EntryKind::Directory || !is_in_the_way {
            return None;
        }
        let text = format!("{}: {BARRED}", entry.path);
        Some(Failure::new(FailureKind::Conflict, text))
    }

    /// True if backups are in the directories of their originals.
    pub(super) fn stay_beside(&self) -> bool {
        self.place.is_none()
    }

    /// True if a name is a backup's name. Deleting a backup makes no further backup.
    pub(super) fn is_backup(&self, name: &[u8]) -> bool {
        self.stay_beside() && name.len() > self.suffix.len() && name.ends_with(&self.suffix)
    }

    /// True if a name that was to be deleted now holds the backup of a file deleted earlier.
    pub(super) fn is_renewed(&self, path: &TreePath) -> bool {
        lock(&self.known).renewed.contains(path)
    }

    /// Records a name of the copy, which no backup may take from now on. Returns true if a backup
    /// already took it: the existing file is then not an earlier version of the entry. Call it
    /// before the entry is compared.
    pub(super) fn note(&self, path: &TreePath) -> bool {
        if !self.is_backup(path.name()) {
            return false;
        }
        let mut known = lock(&self.known);
        known.brought.add(path.clone());
        known.taken.overflowed || known.taken.contains(path)
    }

    /// Returns the directory for the backup of a name; `None` if no backup is needed. Call it
    /// before the session's gate is held, since it may create the directory.
    fn folder(
        &self,
        receiving: &Receiving<'_>,
        from: &Arc<Folder>,
        path: &TreePath,
    ) -> io::Result<Option<Arc<Folder>>> {
        match from.directory().status_of(path.name()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            // Files do not replace directories.
            Ok(status) if status.kind == FileKind::Directory => return Ok(None),
            Ok(_) => {}
        }
        match &self.place {
            None => Ok(Some(Arc::clone(from))),
            Some(place) => {
                let proved = self.prove(receiving);
                proved.map_err(|failure| io::Error::other(failure.text))?;
                place
                    .folder(receiving.side, path.parent().as_ref())
                    .map(Some)
            }
        }
    }

    /// Gives a file its backup name in addition to its name. Call it while the session owns the
    /// anchor.
    fn keep(
        &self,
        side: &ReceiveSide,
        (from, path): (&Folder, &TreePath),
        folder: Arc<Folder>,
    ) -> io::Result<Kept> {
        // Holding the lock lets other threads that note a name see the final state.
        let mut known = lock(&self.known);
        let target = self.target(&known, &folder, path)?;
        let name: Box<[u8]> = target.name().into();
        let moves = !link(side, (from, path.name()), (&folder, &name))?;
        self.remember(&mut known, target.clone());
        // `remember` may have recorded the name itself; then a later check cannot tell if the copy
        // has it, too.
        let is_free = !known.brought.contains(&target);
        drop(known);
        Ok(Kept {
            folder,
            name,
            target: is_free.then_some(target),
            moves,
        })
    }

    /// Makes renames of a killed copy into the directory of backups durable. Call it before this
    /// session changes a name: a sync of this session could make only the removal of the old names
    /// durable.
    ///
    /// # Errors
    ///
    /// Returns the error of `syncfs`, unless the file system does not support it.
    pub(super) fn settle(&self, anchor: &Arc<dyn Directory>) -> io::Result<()> {
        let opened = match self.place.as_ref().map(|place| &place.opening) {
            // A rename within one directory leaves one of the two names.
            None => return Ok(()),
            Some(Opening::Apart(open, path)) => open.open_root(path),
            Some(Opening::Beneath(path)) => open_beneath(&**anchor, path),
        };
        match opened {
            Ok(directory) => or_without(directory.sync_file_system()),
            // The directory is empty, or this session cannot make backups in it either.
            Err(_) => Ok(()),
        }
    }

    /// Records the name of a new backup. If the name of its original also ends with the suffix, no
    /// later backup may take it.
    fn remember(&self, known: &mut Known, target: TreePath) {
        if self.stay_beside() {
            known.taken.add(target.clone());
        }
        let name = target.name();
        if self.is_backup(&name[..name.len() - self.suffix.len()]) {
            known.brought.add(target);
        }
    }

    /// Returns the name of a backup. It gets the suffix again as often as the copy has the name.
    fn target(&self, known: &Known, folder: &Folder, path: &TreePath) -> io::Result<TreePath> {
        let too_long = |_| io::Error::from(Errno::NAMETOOLONG);
        let mut name = [path.name(), &self.suffix].concat();
        loop {
            let target = TreePath::beneath(path.parent().as_ref(), &name);
            let target = target.map_err(too_long)?;
            if self.stay_beside() && known.brought.contains(&target) {
                name.extend_from_slice(&self.suffix);
                continue;
            }
            let kind = match folder.directory().status_of(&name) {
                Ok(status) => status.kind,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target),
                Err(error) => return Err(error),
            };
            let in_the_way = match kind {
                FileKind::Directory => "a directory",
                FileKind::Special => "a device, socket or FIFO",
                FileKind::File | FileKind::Symlink if !known.brought.overflowed => {
                    return Ok(target);
                }
                FileKind::File | FileKind::Symlink => {
                    let text = format!(
                        "more than {MOST_BROUGHT} names of the copy end as backups do, and what \
                         has the name {target} may be one of them: use another --suffix"
                    );
                    return Err(io::Error::other(text));
                }
            };
            let text = format!("{in_the_way} has the name of its backup: move it away");
            return Err(io::Error::other(text));
        }
    }
}

impl Place {
    fn folders(&self, side: &ReceiveSide) -> io::Result<Arc<Folders>> {
        let mut folders = lock(&self.folders);
        if let Some(folders) = &*folders {
            return Ok(Arc::clone(folders));
        }
        let root = match &self.opening {
            Opening::Apart(open, path) => {
                let root = side.destination.faking(open.make_root(path)?);
                open_as_anchor(side, &*root)?;
                root
            }
            Opening::Beneath(path) => make_beneath(&side.destination.anchor, path, &self.unsynced)?,
        };
        let notices = Arc::clone(&side.destination.notices);
        let made = Folders::seated((root, Arc::clone(&side.seat)), notices).of_backups();
        let made = Arc::new(made);
        *folders = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Returns the backup directory for a directory of the destination. A new one gets the mode of
    /// that directory.
    fn folder(&self, side: &ReceiveSide, path: Option<&TreePath>) -> io::Result<Arc<Folder>> {
        let folders = self.folders(side)?;
        let folder = folders.make(path)?;
        let mut above = path.cloned();
        while let Some(path) = above {
            if !folders.take_made(&path) {
                break;
            }
            let of = side.folders.find(Some(&path));
            let mode = of.and_then(|of| Ok(of.directory().status()?.mode));
            if let (Ok(mode), Ok(made)) = (mode, folders.find(Some(&path))) {
                // A failure leaves the directory readable for its owner only, which is safe.
                let _ = made.directory().set_mode(mode & 0o777 | 0o700);
            }
            above = path.parent();
        }
        Ok(folder)
    }
}

/// Creates a hard link to a file, which replaces an existing file of the new name. Returns false if
/// hard links are not supported or not allowed. The link is first created in the directory of the
/// original, so that a killed copy leaves it beneath the anchor.
fn link(
    side: &ReceiveSide,
    (from, old): (&Folder, &[u8]),
    (to, new): (&Folder, &[u8]),
) -> io::Result<bool> {
    let (from, to) = (from.directory(), to.directory());
    let number = side.temporaries.fetch_add(1, Ordering::Relaxed);
    let between = temporary(side.destination.owner.session_number(), number);
    for _ in 0..LINK_TRIES {
        match from.link(old, &**from, &between) {
            Ok(()) => {}
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                    return Ok(false);
                }
                _ => return Err(with_remedy(error)),
            },
        }
        let renamed = from.rename(&between, &**to, new);
        // `rename` does not act if both names are the same inode, so the temporary name is removed.
        // The rename fails if a cleaner removed the temporary name, whose inode may look old.
        let _ = from.remove_file(&between);
        match renamed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(|()| true).map_err(with_remedy),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Gives a new directory of backups the mode of a new directory at that place, but not more rights
/// than the destination has.
fn open_as_anchor(side: &ReceiveSide, root: &dyn Directory) -> io::Result<()> {
    let mode = root.status()?.mode;
    if !is_filling(mode) {
        return Ok(());
    }
    let destination = &side.destination;
    let anchor = destination.anchor.status()?.mode;
    let mode = destination.keeper.opened_mode(root, anchor, mode);
    // A failure leaves the directory readable for its owner only, which is safe.
    let _ = root.set_mode(mode);
    Ok(())
}

fn with_remedy(error: io::Error) -> io::Error {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::XDEV) => io::Error::other(
            "the directory for backups lies on another file system: name one on that of the \
             destination",
        ),
        Some(Errno::LOOP | Errno::NOTDIR) => io::Error::other(
            "a link or file is in the place of a directory for backups, and is not followed",
        ),
        _ => error,
    }
}

fn tree_path(bytes: &[u8]) -> Result<TreePath, PlaceError> {
    match bytes {
        b"" => Err(PlaceError::HoldsDestination),
        bytes => TreePath::new(bytes).map_err(|_| PlaceError::Path),
    }
}

impl ReceiveSide {
    /// Records directories that are still to come, so that backups do not take their names. Other
    /// names are recorded when they are compared.
    pub(super) fn note_directories(&self, entries: &[Entry]) {
        let Some(backups) = &self.destination.backups else {
            return;
        };
        let directories = entries
            .iter()
            .filter(|entry| entry.kind == EntryKind::Directory);
        for entry in directories {
            backups.note(&self.destination.path_of(&entry.path));
        }
    }
}
