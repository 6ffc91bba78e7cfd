//! Keeps what is replaced or deleted, under another name: in its directory with a suffix, or by its
//! path beneath a directory of its own.
//!
//! - What is replaced gets its other name first, as another name of the same inode, and that name
//!   is durable before the new file takes the old one's. So at no moment is it gone, and no reader
//!   of the name finds nothing. Where the file system or its rules allow no further names, it is
//!   renamed instead.
//! - What is deleted is renamed.
//! - A backup replaces an older one of the same name. It replaces nothing that this copy has.

use std::collections::HashSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use longhaul_proto::backup::Backup;
use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::Failure;
use rustix::io::Errno;

use super::ReceiveSide;
use super::folders::{Folder, Folders};
use super::parts::journal_failure;
use crate::failure::failure_of;
use crate::journal::temporary;
use crate::queue::lock;
use crate::storage::roots::OpenRoot;
use crate::storage::{Directory, FileKind};

/// Names of the copy that have the suffix, at most: each is remembered, so that no backup takes it.
const MOST_BROUGHT: usize = 65_536;

/// Times that a further name is made again, which somebody took for a leftover.
const LINK_TRIES: u32 = 8;

/// How backups are kept.
pub struct Backups {
    suffix: Vec<u8>,
    /// `None`: in the directory where the name was.
    place: Option<Place>,
    brought: Mutex<Brought>,
}

/// A directory of backups, made when the first one comes.
struct Place {
    open: Box<dyn OpenRoot>,
    path: PathBuf,
    /// Where it lies beneath the anchor, if it does.
    beneath: Option<TreePath>,
    folders: Mutex<Option<Arc<Folders>>>,
}

/// Names that no backup takes: those of the copy that have the suffix, and backups of them.
#[derive(Default)]
struct Brought {
    names: HashSet<TreePath>,
    /// There are more than are remembered.
    overflowed: bool,
}

/// A backup that was made and is not durable yet.
pub(super) struct Kept {
    pub folder: Arc<Folder>,
    name: Box<[u8]>,
    /// What it is a backup of lost its name.
    moved: bool,
}

/// Whether what is kept has its old name for now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Link,
    Move,
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
    /// As somebody asked for it, beside what is replaced.
    pub fn beside(asked: &Backup) -> Backups {
        Backups {
            suffix: asked.suffix.to_vec(),
            place: None,
            brought: Mutex::default(),
        }
    }

    /// In a directory, which `open` makes at `path` once it is needed. It lies at `place` in this
    /// host's file systems, and the anchor at `anchor`; neither need be there.
    ///
    /// # Errors
    ///
    /// [`PlaceError`].
    pub fn within(
        asked: &Backup,
        (open, path): (Box<dyn OpenRoot>, PathBuf),
        (anchor, place): (&Path, &Path),
    ) -> Result<Backups, PlaceError> {
        let (anchor, place) = (real(anchor), real(place));
        let beneath = match place.strip_prefix(&anchor) {
            Ok(rest) if rest.as_os_str().is_empty() => return Err(PlaceError::HoldsDestination),
            Ok(rest) => {
                let path = TreePath::new(rest.as_os_str().as_encoded_bytes());
                Some(path.map_err(|_| PlaceError::Path)?)
            }
            Err(_) if anchor.starts_with(&place) => return Err(PlaceError::HoldsDestination),
            Err(_) => None,
        };
        Ok(Backups {
            place: Some(Place {
                open,
                path,
                beneath,
                folders: Mutex::default(),
            }),
            ..Backups::beside(asked)
        })
    }

    /// Where the directory of backups lies beneath the anchor, if it does: nothing of the copy
    /// goes there, and nothing is deleted there.
    pub(super) fn beneath(&self) -> Option<&TreePath> {
        self.place.as_ref()?.beneath.as_ref()
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
    pub(super) fn is_of_deleted(&self, directory: &dyn Directory, name: &[u8]) -> bool {
        let of = &name[..name.len().saturating_sub(self.suffix.len())];
        let gone = || directory.status_of(of);
        self.is_backup(name) && gone().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// The copy has this name: no backup takes it. To be called before it is looked at.
    pub(super) fn note(&self, path: &TreePath) {
        if self.is_backup(path.name()) {
            lock(&self.brought).insert(path.clone());
        }
    }

    /// Gives what has a name in a directory its backup's name, too; `None` if there is nothing to
    /// keep. To be called while the session owns the anchor.
    fn keep(
        &self,
        side: &ReceiveSide,
        folder: &Arc<Folder>,
        path: &TreePath,
    ) -> io::Result<Option<Kept>> {
        match folder.directory().status_of(path.name()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            // No file replaces one.
            Ok(status) if status.kind == FileKind::Directory => Ok(None),
            Ok(_) => self.give(side, folder, path, How::Link).map(Some),
        }
    }

    /// Renames what is deleted. As [`Backups::keep`].
    pub(super) fn take_away(
        &self,
        side: &ReceiveSide,
        folder: &Arc<Folder>,
        path: &TreePath,
    ) -> io::Result<Arc<Folder>> {
        let kept = self.give(side, folder, path, How::Move)?;
        Ok(kept.folder)
    }

    fn give(
        &self,
        side: &ReceiveSide,
        from: &Arc<Folder>,
        path: &TreePath,
        how: How,
    ) -> io::Result<Kept> {
        let folder = match &self.place {
            None => Arc::clone(from),
            Some(place) => place.folder(side, path.parent().as_ref())?,
        };
        // Whoever notes a name meanwhile finds what is there afterwards.
        let mut brought = lock(&self.brought);
        let target = self.target(&brought, &folder, path)?;
        let name: Box<[u8]> = target.name().into();
        let (here, there) = (from.directory(), folder.directory());
        let linked = match how {
            How::Link => link(side, (from, path.name()), (&folder, &name))?,
            How::Move => false,
        };
        if !linked {
            here.rename(path.name(), &**there, &name)
                .map_err(with_remedy)?;
        }
        // What is a backup of the copy's own name, or took the place of that, is no less dear.
        if self.is_backup(&name[..name.len() - self.suffix.len()]) {
            brought.insert(target);
        }
        drop(brought);
        Ok(Kept {
            folder,
            name,
            moved: !linked,
        })
    }

    /// The name of a backup. One that the copy has gets the suffix once more.
    fn target(&self, brought: &Brought, folder: &Folder, path: &TreePath) -> io::Result<TreePath> {
        let too_long = |_| io::Error::from(Errno::NAMETOOLONG);
        let mut name = [path.name(), &self.suffix].concat();
        loop {
            let target = match path.parent() {
                Some(parent) => parent.join(&name),
                None => TreePath::new(&name),
            };
            let target = target.map_err(too_long)?;
            if !self.stay_beside() {
                return Ok(target);
            }
            if brought.names.contains(&target) {
                name.extend_from_slice(&self.suffix);
                continue;
            }
            let is_free = || {
                let status = folder.directory().status_of(&name);
                status.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            };
            if brought.overflowed && !is_free() {
                let text = format!(
                    "more than {MOST_BROUGHT} names of the copy end as backups do, and what has \
                     the name {target} may be one of them: use another --suffix"
                );
                return Err(io::Error::other(text));
            }
            return Ok(target);
        }
    }
}

impl Brought {
    fn insert(&mut self, path: TreePath) {
        match self.names.len() < MOST_BROUGHT {
            true => {
                self.names.insert(path);
            }
            false => self.overflowed |= !self.names.contains(&path),
        }
    }
}

impl Place {
    fn folders(&self, side: &ReceiveSide) -> io::Result<Arc<Folders>> {
        let mut folders = lock(&self.folders);
        if let Some(folders) = &*folders {
            return Ok(Arc::clone(folders));
        }
        let root = self.open.make_root(&self.path)?;
        let made = Folders::new(root, Arc::clone(&side.destination.notices)).remembering_made();
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
/// allows none.
fn link(
    side: &ReceiveSide,
    (from, old): (&Folder, &[u8]),
    (to, new): (&Folder, &[u8]),
) -> io::Result<bool> {
    let (from, to) = (from.directory(), to.directory());
    let number = side.temporaries.fetch_add(1, Ordering::Relaxed);
    let between = temporary(side.destination.owner.session_number(), number);
    for _ in 0..LINK_TRIES {
        match from.link(old, &**to, &between) {
            Ok(()) => {}
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                    return Ok(false);
                }
                _ => return Err(with_remedy(error)),
            },
        }
        let renamed = to.rename(&between, &**to, new);
        // Of two names of one inode the kernel renames none. And it is as old as what it is a
        // name of: whoever removes leftovers may have been faster.
        let _ = to.remove_file(&between);
        match renamed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map(|()| true).map_err(with_remedy),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn with_remedy(error: io::Error) -> io::Error {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::XDEV) => io::Error::other(
            "the directory for backups lies on another file system: name one on that of the \
             destination",
        ),
        Some(Errno::ISDIR | Errno::NOTEMPTY) => {
            io::Error::other("a directory has the name of its backup: move it away")
        }
        _ => error,
    }
}

/// A path without links and dots, as far as it is there.
pub fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|above| {
        let real = above.canonicalize().ok()?;
        Some((real, path.strip_prefix(above).ok()?))
    });
    let Some((mut real, missing)) = there else {
        return path;
    };
    for component in missing.components() {
        match component {
            Component::ParentDir => {
                real.pop();
            }
            Component::Normal(name) => real.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    real
}

impl ReceiveSide {
    /// Keeps what these names are taken from, and makes that durable: one result for each, as
    /// [`Backups::keep`] gives it.
    pub(super) fn keep_replaced(
        &self,
        names: &[(&Arc<Folder>, &TreePath)],
    ) -> Vec<Result<Option<Kept>, Failure>> {
        let Some(backups) = &self.destination.backups else {
            return names.iter().map(|_| Ok(None)).collect();
        };
        let failed = |path: &TreePath, error: &io::Error| {
            failure_of("keep a backup of", &path.to_string(), error)
        };
        let kept = self.destination.while_owned(|| {
            let keep = |(folder, path): &(&Arc<Folder>, &TreePath)| {
                backups.note(path);
                let kept = backups.keep(self, folder, path);
                kept.map_err(|error| failed(path, &error))
            };
            names.iter().map(keep).collect::<Vec<_>>()
        });
        let mut kept = match kept {
            Ok(kept) => kept,
            Err(error) => {
                let failed =
                    |(_, path): &(_, &TreePath)| Err(journal_failure(&path.to_string(), &error));
                return names.iter().map(failed).collect();
            }
        };
        let mut synced: Vec<(Arc<Folder>, Result<(), io::Error>)> = Vec::new();
        for ((_, path), result) in names.iter().zip(&mut kept) {
            let Ok(Some(of)) = result else { continue };
            let known = synced
                .iter()
                .position(|(done, _)| Arc::ptr_eq(done, &of.folder));
            let at = known.unwrap_or_else(|| {
                synced.push((Arc::clone(&of.folder), of.folder.sync()));
                synced.len() - 1
            });
            if let Err(error) = &synced[at].1 {
                let failure = failed(path, error);
                // What has no other name is not left without one.
                self.put_back(path, of);
                *result = Err(failure);
            }
        }
        kept
    }

    /// What was moved for a file that did not get its name has its own again.
    pub(super) fn put_back(&self, path: &TreePath, kept: &Kept) {
        if !kept.moved {
            return;
        }
        let put = self.destination.while_owned(|| -> io::Result<()> {
            let folder = self.folders.find_in_copy(path.parent().as_ref())?;
            let directory = folder.directory();
            match directory.status_of(path.name()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let from = kept.folder.directory();
                    from.rename(&kept.name, &**directory, path.name())
                }
                _ => Ok(()),
            }
        });
        // Where that fails it is what the backup is.
        let _: Result<io::Result<()>, _> = put;
    }
}
