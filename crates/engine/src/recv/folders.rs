//! The directories of the destination: opened beneath the anchor name by name,
//! made where they are missing, kept open while they are in use, and durable
//! before anything in them is called durable.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_proto::keeping::Keeping;
use longhaul_proto::manifest::TreePath;
use longhaul_storage::Directory;
use longhaul_storage::destination::{DestinationDirectory, KeptSpelling};
use longhaul_storage::notices::Notices;
use longhaul_system::descriptors;
use longhaul_system::queue::lock;
use longhaul_system::shares::Seat;

/// Most directories kept open, and their part of the files that may be.
const OPEN_FOLDERS: usize = 256;
const FOLDERS_PART: usize = 8;

/// Of one session at least.
const LEAST_FOLDERS: usize = 4;

/// Most directories within each other that are open together, and their part. Those further
/// down stand apart: their names are durable before the directories above are closed.
const MOST_DEPTH: usize = 4096;
const DEPTH_PART: usize = 8;
const LEAST_DEPTH: usize = 2;

/// Directories of which names are kept while they are closed, at most.
const MOST_SPELLINGS: usize = 65_536;

/// Most directories that a copy remembers to have made.
const MOST_MADE: usize = 65_536;

/// Mode of a directory until everything in it is done.
const TEMPORARY_MODE: u32 = 0o700;

/// An open directory of the destination.
pub struct Folder {
    directory: Arc<dyn Directory>,
    /// The same.
    shared: Arc<DestinationDirectory>,
    above: Above,
    device: OnceLock<u64>,
    /// The directory above was not synced since this one was opened: it may
    /// have been made here, or by a run that was killed before it synced.
    name_unsynced: AtomicBool,
}

/// What a folder has of the one above it.
enum Above {
    /// It is the anchor.
    None,
    /// It keeps that open.
    Folder(Arc<Folder>),
    /// That is not kept open; whether its own name, and those above it, were made durable.
    Apart { durable: bool, refused: bool },
}

impl Folder {
    fn new(directory: DestinationDirectory, above: Above) -> Folder {
        let shared = Arc::new(directory);
        Folder {
            directory: shared.clone(),
            shared,
            above,
            device: OnceLock::new(),
            name_unsynced: AtomicBool::new(true),
        }
    }

    /// The handle.
    pub fn directory(&self) -> &Arc<dyn Directory> {
        &self.directory
    }

    /// The file system that it lies on.
    ///
    /// # Errors
    ///
    /// As `fstat`.
    pub fn device(&self) -> io::Result<u64> {
        match self.device.get() {
            Some(device) => Ok(*device),
            None => {
                let device = self.directory.status()?.device;
                Ok(*self.device.get_or_init(|| device))
            }
        }
    }

    /// A name in it that is there is used: whether it was not, under another spelling.
    ///
    /// # Errors
    ///
    /// As [`DestinationDirectory::ensure_spelled`].
    pub fn ensure_spelled(&self, name: &[u8]) -> io::Result<()> {
        self.shared.ensure_spelled(name)
    }

    /// Does something while no other thread of the session syncs this directory.
    pub fn while_unsynced<T>(&self, what: impl FnOnce() -> T) -> T {
        self.shared.while_unsynced(what)
    }

    /// Makes the names in it durable, and its own name, and so on upwards.
    ///
    /// # Errors
    ///
    /// As `fsync`: then nothing in it may be called durable.
    pub fn sync(&self) -> io::Result<()> {
        self.directory.sync()?;
        self.sync_name()
    }

    /// Whether names in it survive a power cut once they were synced. Some file systems do not
    /// sync directories.
    pub fn has_durable_names(&self) -> bool {
        !self.shared.refuses_sync()
            && match &self.above {
                Above::Folder(above) => above.has_durable_names(),
                Above::Apart { refused, .. } => !refused,
                Above::None => true,
            }
    }

    /// As [`Folder::sync`], and makes the links and special files in it durable: without a journal
    /// their names may lead nowhere after a power cut.
    ///
    /// # Errors
    ///
    /// As [`Folder::sync`].
    pub fn sync_with_inodes(&self) -> io::Result<()> {
        self.sync()?;
        if self.directory.syncs_inodes() {
            Ok(())
        } else {
            self.directory.sync_file_system()
        }
    }

    /// For a copy, which gives it its mode when everything in it is done: a
    /// directory that lacks its owner's rights gets them where they are needed.
    /// The anchor's mode is nobody's to change.
    fn allow_permitting(&self) {
        if !matches!(self.above, Above::None) {
            self.shared.allow_permitting();
        }
    }

    /// Whether it serves what is wanted: for a copy its name is durable, or can be made so.
    fn serves(&self, want: Want) -> bool {
        want == Want::Look || !matches!(self.above, Above::Apart { durable: false, .. })
    }

    /// Makes its own name durable, and those above it.
    ///
    /// # Errors
    ///
    /// As [`Folder::sync`].
    pub fn sync_name(&self) -> io::Result<()> {
        if let Above::Folder(above) = &self.above {
            if self.name_unsynced.load(Ordering::Acquire) {
                above.directory.sync()?;
                self.name_unsynced.store(false, Ordering::Release);
            }
            above.sync_name()?;
        }
        Ok(())
    }
}

/// What a directory is wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    /// To be looked into; nothing is changed.
    Look,
    /// The same by a copy, which gives it its mode in the end.
    LookInCopy,
    /// To be there, and things in it made.
    Make,
}

/// All directories beneath the anchor, by path.
pub struct Folders {
    anchor: Arc<Folder>,
    /// The session's, which has a share of the directories that may be open; `None` if there is no
    /// other.
    seat: Option<Arc<Seat>>,
    open: Mutex<HashMap<TreePath, Arc<Folder>>>,
    notices: Arc<Notices>,
    /// What is known of the names of those that were closed, where case is folded.
    spellings: Mutex<HashMap<TreePath, KeptSpelling>>,
    /// Directories that this copy made and has not finished, if that is remembered.
    made: Option<Mutex<HashSet<TreePath>>>,
    /// Where nothing of the copy goes: its backups lie there.
    barred: Option<TreePath>,
    /// Directories keep the modes that they have, also where these close them.
    leaves_modes: bool,
}

impl Folders {
    /// Beneath this anchor; `notices` hears what its file system does not do.
    pub fn new(anchor: Arc<dyn Directory>, notices: Arc<Notices>) -> Folders {
        let anchor = DestinationDirectory::new(anchor, Arc::clone(&notices), None);
        let anchor = Folder::new(anchor, Above::None);
        Folders {
            anchor: Arc::new(anchor),
            seat: None,
            open: Mutex::default(),
            notices,
            spellings: Mutex::default(),
            made: None,
            barred: None,
            leaves_modes: false,
        }
    }

    /// The same, of a session that has this seat.
    pub(crate) fn seated(
        (anchor, seat): (Arc<dyn Directory>, Arc<Seat>),
        notices: Arc<Notices>,
    ) -> Folders {
        Folders {
            seat: Some(seat),
            ..Folders::new(anchor, notices)
        }
    }

    /// The same, of a copy that keeps this.
    #[must_use]
    pub(crate) fn keeping(self, keeping: &Keeping) -> Folders {
        if keeping.anchor {
            self.anchor.shared.allow_permitting();
        }
        Folders {
            made: Some(Mutex::default()),
            ..self
        }
    }

    /// The same for backups: what was made is remembered, and what was there keeps its mode.
    pub(crate) fn of_backups(self) -> Folders {
        Folders {
            made: Some(Mutex::default()),
            leaves_modes: true,
            ..self
        }
    }

    /// The same, where nothing of the copy goes to this place or beneath it.
    #[must_use]
    pub(crate) fn barring(self, barred: Option<TreePath>) -> Folders {
        Folders { barred, ..self }
    }

    /// Whether this copy made a directory, where that is remembered; it is forgotten then.
    pub(crate) fn take_made(&self, path: &TreePath) -> bool {
        let made = self.made.as_ref();
        made.is_some_and(|made| lock(made).remove(path))
    }

    /// One that is not remembered counts as one that was there. Where modes are left alone it
    /// keeps the mode that it has, which lets nobody else in.
    pub(super) fn note_made(&self, path: &TreePath) {
        if let Some(made) = &self.made {
            let mut made = lock(made);
            if made.len() < MOST_MADE {
                made.insert(path.clone());
            }
        }
    }

    /// Directories within each other that may be kept open together now.
    fn most_depth(&self) -> usize {
        match &self.seat {
            Some(seat) => seat.files(DEPTH_PART, LEAST_DEPTH, MOST_DEPTH),
            None => descriptors::share(DEPTH_PART, MOST_DEPTH),
        }
    }

    /// Directories that may be kept open now.
    fn most_open(&self) -> usize {
        match &self.seat {
            Some(seat) => seat.files(FOLDERS_PART, LEAST_FOLDERS, OPEN_FOLDERS),
            None => descriptors::share(FOLDERS_PART, OPEN_FOLDERS),
        }
    }

    /// The anchor itself.
    pub fn anchor(&self) -> &Arc<Folder> {
        &self.anchor
    }

    /// The directory at a path, made if it is missing; none is the anchor.
    ///
    /// # Errors
    ///
    /// As `openat` and `mkdirat`; a link in the way is not followed.
    pub fn make(&self, path: Option<&TreePath>) -> io::Result<Arc<Folder>> {
        if let (Some(barred), Some(path)) = (&self.barred, path)
            && (barred == path || barred.is_above(path))
        {
            return Err(io::Error::other(super::backup::BARRED));
        }
        self.get(path, Want::Make)
    }

    /// The directory at a path, if it is there.
    ///
    /// # Errors
    ///
    /// As `openat`; `NotFound` where it is missing.
    pub fn find(&self, path: Option<&TreePath>) -> io::Result<Arc<Folder>> {
        self.get(path, Want::Look)
    }

    /// The same for a copy: what its owner's missing rights keep from being looked
    /// into gets them.
    ///
    /// # Errors
    ///
    /// As [`Folders::find`].
    pub fn find_in_copy(&self, path: Option<&TreePath>) -> io::Result<Arc<Folder>> {
        self.get(path, Want::LookInCopy)
    }

    /// Whether a sync of any of them failed.
    pub fn have_failed(&self) -> bool {
        let open = lock(&self.open);
        let mut all = open.values().chain([&self.anchor]);
        all.any(|folder| folder.shared.has_failed())
    }

    /// Closes what is open.
    pub fn clear(&self) {
        lock(&self.open).clear();
    }

    fn get(&self, path: Option<&TreePath>, want: Want) -> io::Result<Arc<Folder>> {
        let Some(path) = path else {
            return Ok(Arc::clone(&self.anchor));
        };
        if let Some(folder) = self.known(path, want) {
            return Ok(folder);
        }
        let most = self.most_depth();
        let mut folder = Arc::clone(&self.anchor);
        let mut walked: Option<TreePath> = None;
        for (depth, name) in path.names().enumerate() {
            let next = TreePath::beneath(walked.as_ref(), name);
            let next = next.map_err(io::Error::other)?;
            folder = match self.known(&next, want) {
                Some(known) => known,
                None => self.open(&folder, (name, &next), want, depth >= most)?,
            };
            walked = Some(next);
        }
        Ok(folder)
    }

    /// Closes what nobody uses, where many are open: before another one is, which may fail.
    fn trim(&self) {
        let mut open = lock(&self.open);
        if open.len() >= self.most_open() {
            // What is opened again is synced again, unless that would hide
            // that it failed.
            open.retain(|path, folder| {
                let stays = Arc::strong_count(folder) > 1 || folder.shared.has_failed();
                if !stays && let Some(kept) = folder.shared.kept_spelling() {
                    let mut spellings = lock(&self.spellings);
                    if spellings.len() < MOST_SPELLINGS {
                        spellings.insert(path.clone(), kept);
                    }
                }
                stays
            });
        }
    }

    /// One that is open.
    fn known(&self, path: &TreePath, want: Want) -> Option<Arc<Folder>> {
        let folder = lock(&self.open).get(path).cloned()?;
        if !folder.serves(want) {
            return None;
        }
        if want != Want::Look && !self.leaves_modes {
            folder.allow_permitting();
        }
        Some(folder)
    }

    fn open(
        &self,
        above: &Arc<Folder>,
        (name, path): (&[u8], &TreePath),
        want: Want,
        apart: bool,
    ) -> io::Result<Arc<Folder>> {
        self.trim();
        let (directory, made) = match above.directory.open_directory(name) {
            Err(error) if want == Want::Make && error.kind() == io::ErrorKind::NotFound => {
                let made = match above.directory.make_directory(name, TEMPORARY_MODE) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    made => made.is_ok(),
                };
                (above.directory.open_directory(name)?, made)
            }
            other => (other?, false),
        };
        if made {
            self.note_made(path);
        } else {
            // Without this check a directory with another spelling would be merged into.
            above.ensure_spelled(name)?;
        }
        let parent = above;
        let above = if apart {
            let durable = want != Want::Look;
            if durable {
                above.sync()?;
            }
            let refused = !above.has_durable_names();
            Above::Apart { durable, refused }
        } else {
            Above::Folder(Arc::clone(above))
        };
        let mut open = lock(&self.open);
        // Somebody else may have been faster.
        let known = open.get(path).cloned();
        let folder = match known.clone().filter(|known| known.serves(want)) {
            Some(folder) => folder,
            None => {
                let kept = lock(&self.spellings).remove(path);
                let kept = kept.or_else(|| known.and_then(|known| known.shared.kept_spelling()));
                let made_in = made.then_some(&*parent.shared);
                let notices = Arc::clone(&self.notices);
                let directory = DestinationDirectory::new(directory, notices, Some(path.clone()));
                let fresh = Arc::new(Folder::new(directory.with(kept, made_in), above));
                open.insert(path.clone(), Arc::clone(&fresh));
                fresh
            }
        };
        drop(open);
        if want != Want::Look && !self.leaves_modes {
            folder.allow_permitting();
        }
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_storage::forgetting::ForgettingStorage;
    use longhaul_storage::posix::PosixDirectory;

    use super::*;

    fn deep(depth: usize) -> TreePath {
        TreePath::new(vec!["d"; depth].join("/").as_bytes()).unwrap()
    }

    #[test]
    fn a_path_deeper_than_may_be_open_is_made() {
        let place = tempfile::tempdir().unwrap();
        let folders = Folders::new(
            PosixDirectory::open_root(place.path()).unwrap(),
            Arc::default(),
        );
        let depth = folders.most_depth() + 40;
        let lowest = folders.make(Some(&deep(depth))).unwrap();
        assert!(matches!(lowest.above, Above::Apart { durable: true, .. }));
        lowest
            .directory()
            .make_directory(b"in", TEMPORARY_MODE)
            .unwrap();
        lowest.sync().unwrap();
        folders.clear();
        let found = folders.find(Some(&deep(depth))).unwrap();
        assert!(found.directory().open_directory(b"in").is_ok());
    }

    /// Names far down are as durable as others when their directory was synced.
    #[test]
    fn names_far_down_survive_a_crash() {
        let storage = ForgettingStorage::new();
        let folders = Folders::new(storage.root(), Arc::default());
        let depth = folders.most_depth() + 3;
        // First it is only looked for, as by the comparison.
        assert!(folders.find(Some(&deep(depth))).is_err());
        folders.make(Some(&deep(depth))).unwrap().sync().unwrap();
        let after = Folders::new(storage.crash(1).root(), Arc::default());
        assert!(after.find(Some(&deep(depth))).is_ok());
    }
}
