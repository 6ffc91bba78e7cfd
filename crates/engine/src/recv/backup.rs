//! Keeps what is replaced or deleted, under another name: in its directory with a suffix, or by its
//! path beneath a directory of its own.
//!
//! - What is replaced gets its other name first, as another name of the same inode, and that name
//!   is durable before the new file takes the old one's. So at no moment is it gone, and no reader
//!   of the name finds nothing. Where the file system or its rules allow no further names, it is
//!   renamed just before instead.
//! - What is deleted gets its other name in the same way, and loses the old one after that.
//! - A killed copy may have renamed files, and not synced their new directory. The next session
//!   syncs the file system before it changes anything in it.
//! - A backup replaces an older one of the same name. It replaces nothing of this copy that was
//!   listed before it is made.

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

use super::ReceiveSide;
use super::folders::{Folder, Folders};
use crate::session::Transfer;

/// Names of the copy that have the suffix, at most: each is remembered, so that no backup takes it.
const MOST_BROUGHT: usize = 65_536;

/// What to say of what would go where backups are.
pub(super) const BARRED: &str =
    "backups are kept there: name another --backup-dir, or leave it out of the copy";

/// Times that a further name is made again, which somebody took for a leftover.
const LINK_TRIES: u32 = 8;

/// How backups are kept.
pub struct Backups {
    suffix: Vec<u8>,
    /// `None`: in the directory where the name was.
    place: Option<Place>,
    known: Mutex<Known>,
}

/// A directory of backups, made when the first one comes.
struct Place {
    opening: Opening,
    folders: Mutex<Option<Arc<Folders>>>,
    /// Its name, or one on the way to it, was not made durable: the error's number.
    unsynced: OnceLock<i32>,
    /// Whether it is known to be no source's directory, or why it may be one.
    proof: Mutex<Option<Result<(), Failure>>>,
}

/// How it is opened.
enum Opening {
    /// As a user's path, beside the anchor.
    Apart(Box<dyn OpenRoot>, PathBuf),
    /// From the anchor downwards; no link on the way is followed, since the copy may bring links.
    Beneath(TreePath),
}

/// Names, as far as there is memory for them.
#[derive(Default)]
struct Names {
    known: HashSet<TreePath>,
    /// There are more than are remembered.
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

/// Names that matter to further backups.
#[derive(Default)]
struct Known {
    /// Those of the copy that have the suffix, as far as they were listed, and backups of them: no
    /// backup takes them.
    brought: Names,
    /// Backups of what was deleted, which took the place of others.
    renewed: Names,
    /// Names that backups took. An entry of the copy that has one of them is not compared with the
    /// backup.
    taken: Names,
}

/// A backup that was made, or is to be, and is not durable yet.
pub(super) struct Kept {
    pub folder: Arc<Folder>,
    name: Box<[u8]>,
    /// The whole name, if that was no name of the copy.
    target: Option<TreePath>,
    /// There are no further names: what has the old one is renamed just before the new file comes.
    moves: bool,
}

/// Where a directory of backups cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Backups would have the names of what they are backups of, or of other files of the copy.
    #[error(
        "the directory for backups is the destination itself, or holds it: name one next to it or \
         beneath it"
    )]
    HoldsDestination,
    /// What leads from the destination to it cannot be a path.
    #[error("the directory for backups has a name that longhaul keeps for itself, or is too long")]
    Path,
}

impl Backups {
    /// As somebody asked for it, next to what is replaced.
    pub fn beside(asked: &Backup) -> Backups {
        Backups {
            suffix: asked.suffix.to_vec(),
            place: None,
            known: Mutex::default(),
        }
    }

    /// In a directory, which `open` makes at `path` once it is needed, unless that lies beneath the
    /// anchor. It lies at `place` in this host's file systems, and the anchor at `anchor`; neither
    /// need be there.
    ///
    /// # Errors
    ///
    /// [`PlaceError`].
    pub fn within(
        asked: &Backup,
        (open, path): (Box<dyn OpenRoot>, PathBuf),
        (anchor, place): (&Path, &Path),
    ) -> Result<Backups, PlaceError> {
        let said = asked.directory.as_ref().map(|path| &***path);
        let opening = match said.and_then(downwards) {
            // What is there by that name may be a link that an earlier copy brought.
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

    /// Where the directory of backups lies beneath the anchor, if it does: nothing of the copy
    /// goes there, and nothing is deleted there.
    pub(super) fn beneath(&self) -> Option<&TreePath> {
        match &self.place.as_ref()?.opening {
            Opening::Beneath(path) => Some(path),
            Opening::Apart(..) => None,
        }
    }

    /// Why an entry cannot come: something that is no directory would be in the way of backups, or
    /// lead them elsewhere.
    pub(super) fn refuses(&self, entry: &Entry, path: &TreePath) -> Option<Failure> {
        let beneath = self.beneath()?;
        let is_in_the_way = path == beneath || path.is_above(beneath);
        if entry.kind == EntryKind::Directory || !is_in_the_way {
            return None;
        }
        let text = format!("{}: {BARRED}", entry.path);
        Some(Failure::new(FailureKind::Conflict, text))
    }

    /// Whether a backup stays in the directory of what it is a backup of.
    pub(super) fn stay_beside(&self) -> bool {
        self.place.is_none()
    }

    /// Whether a name is that of a backup itself, of which none is made when it is deleted.
    pub(super) fn is_backup(&self, name: &[u8]) -> bool {
        self.stay_beside() && name.len() > self.suffix.len() && name.ends_with(&self.suffix)
    }

    /// Whether a name that was to be deleted is by now the backup of one that was deleted before.
    pub(super) fn is_renewed(&self, path: &TreePath) -> bool {
        lock(&self.known).renewed.contains(path)
    }

    /// The copy has this name: no backup takes it from here on. True if one did before: what is
    /// there is then no earlier version of it. To be called before it is looked at.
    pub(super) fn note(&self, path: &TreePath) -> bool {
        if !self.is_backup(path.name()) {
            return false;
        }
        let mut known = lock(&self.known);
        known.brought.add(path.clone());
        known.taken.overflowed || known.taken.contains(path)
    }

    /// The directory of a backup of what has a name; `None` if there is nothing to keep. It is
    /// opened before the session's gate is held, since it may have to be made.
    fn folder(
        &self,
        (transfer, side): (&Transfer, &ReceiveSide),
        from: &Arc<Folder>,
        path: &TreePath,
    ) -> io::Result<Option<Arc<Folder>>> {
        match from.directory().status_of(path.name()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            // No file replaces one.
            Ok(status) if status.kind == FileKind::Directory => return Ok(None),
            Ok(_) => {}
        }
        match &self.place {
            None => Ok(Some(Arc::clone(from))),
            Some(place) => {
                let proved = self.prove(transfer, side);
                proved.map_err(|failure| io::Error::other(failure.text))?;
                place.folder(side, path.parent().as_ref()).map(Some)
            }
        }
    }

    /// Gives what has a name in a directory its backup's name, too. To be called while the session
    /// owns the anchor.
    fn keep(
        &self,
        side: &ReceiveSide,
        (from, path): (&Folder, &TreePath),
        folder: Arc<Folder>,
    ) -> io::Result<Kept> {
        // Whoever notes a name meanwhile finds what is there afterwards.
        let mut known = lock(&self.known);
        let target = self.target(&known, &folder, path)?;
        let name: Box<[u8]> = target.name().into();
        let moves = !link(side, (from, path.name()), (&folder, &name))?;
        self.remember(&mut known, target.clone());
        // Of what is brought by now nobody can tell whether the copy has it.
        let is_free = !known.brought.contains(&target);
        drop(known);
        Ok(Kept {
            folder,
            name,
            target: is_free.then_some(target),
            moves,
        })
    }

    /// Makes durable what a killed copy renamed into the directory of backups. To be called before
    /// this session changes a name: its syncs may make the old names' end durable alone.
    ///
    /// # Errors
    ///
    /// As `syncfs`, if that is not refused.
    pub(super) fn settle(&self, anchor: &Arc<dyn Directory>) -> io::Result<()> {
        let opened = match self.place.as_ref().map(|place| &place.opening) {
            // A file that is renamed within its directory has one of both names.
            None => return Ok(()),
            Some(Opening::Apart(open, path)) => open.open_root(path),
            Some(Opening::Beneath(path)) => open_beneath(&**anchor, path),
        };
        match opened {
            Ok(directory) => or_without(directory.sync_file_system()),
            // Nothing is in it, or this session cannot make a backup in it either.
            Err(_) => Ok(()),
        }
    }

    /// What is a backup of the copy's own name, or took the place of that, is no less dear.
    fn remember(&self, known: &mut Known, target: TreePath) {
        if self.stay_beside() {
            known.taken.add(target.clone());
        }
        let name = target.name();
        if self.is_backup(&name[..name.len() - self.suffix.len()]) {
            known.brought.add(target);
        }
    }

    /// The name of a backup. One that the copy has gets the suffix once more.
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

    /// The directory for what was in one of the destination, with the mode of that where it is new.
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
                // What it cannot have, only its owner misses.
                let _ = made.directory().set_mode(mode & 0o777 | 0o700);
            }
            above = path.parent();
        }
        Ok(folder)
    }
}

/// Gives an inode a further name, which replaces what has that; false where the system has or
/// allows none. Until then the name is one in the directory that it comes from: what a killed copy
/// leaves lies beneath the anchor.
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
        // Of two names of one inode the kernel renames none. And it is as old as what it is a
        // name of: what removes leftovers may have been faster.
        let _ = from.remove_file(&between);
        match renamed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(|()| true).map_err(with_remedy),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Gives a new directory of backups the mode that a new directory has there, but no rights that the
/// destination does not give.
fn open_as_anchor(side: &ReceiveSide, root: &dyn Directory) -> io::Result<()> {
    let mode = root.status()?.mode;
    if !is_filling(mode) {
        return Ok(());
    }
    let destination = &side.destination;
    let anchor = destination.anchor.status()?.mode;
    let mode = destination.keeper.opened_mode(root, anchor, mode);
    // What it cannot have, only its owner misses.
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
    /// No backup takes the name of a directory that is still to come; other names are noted when
    /// they are looked at.
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
