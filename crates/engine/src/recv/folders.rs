//! Directories of the destination. They are opened beneath the anchor one name at a time, created
//! if missing, kept open while in use, and made durable before any entry in them counts as durable.

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
use longhaul_system::seats::Seat;

/// Maximum number of directories kept open, and the divisor of the descriptor limit for them.
const OPEN_FOLDERS: usize = 256;
const FOLDERS_PART: usize = 8;

/// Minimum number of directories that a session keeps open.
const LEAST_FOLDERS: usize = 4;

/// Maximum number of nested directories that are open together, and the divisor of the descriptor
/// limit for them. Deeper directories do not hold their parents open: their names are made durable
/// first.
const MOST_DEPTH: usize = 4096;
const DEPTH_PART: usize = 8;
const LEAST_DEPTH: usize = 2;

/// Maximum number of closed directories whose spellings are kept.
const MOST_SPELLINGS: usize = 65_536;

/// Maximum number of created directories that a copy remembers.
const MOST_MADE: usize = 65_536;

/// Mode of a directory until all entries in it are complete.
const TEMPORARY_MODE: u32 = 0o700;

/// An open directory of the destination.
pub struct Folder {
    directory: Arc<dyn Directory>,
    /// The same handle, with its concrete type.
    shared: Arc<DestinationDirectory>,
    above: Above,
    device: OnceLock<u64>,
    /// True if the parent was not synced since this directory was opened. This run, or one that was
    /// killed before its sync, may have created the name.
    name_unsynced: AtomicBool,
}

/// Relation of a folder to its parent.
enum Above {
    /// The folder is the anchor.
    None,
    /// The parent is kept open.
    Folder(Arc<Folder>),
    /// The parent is not kept open. `durable` is true if the names of this folder and its parents
    /// were synced; `refused` if the file system does not sync directories.
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

    /// Returns the handle of the directory.
    pub fn directory(&self) -> &Arc<dyn Directory> {
        &self.directory
    }

    /// Returns the device number of its file system.
    ///
    /// # Errors
    ///
    /// Returns the error of `fstat`.
    pub fn device(&self) -> io::Result<u64> {
        match self.device.get() {
            Some(device) => Ok(*device),
            None => {
                let device = self.directory.status()?.device;
                Ok(*self.device.get_or_init(|| device))
            }
        }
    }

    /// Checks that an existing name has this exact spelling, on a file system that folds case.
    ///
    /// # Errors
    ///
    /// Returns the error of [`DestinationDirectory::ensure_spelled`].
    pub fn ensure_spelled(&self, name: &[u8]) -> io::Result<()> {
        self.shared.ensure_spelled(name)
    }

    /// Runs an action while no other thread of the session syncs this directory.
    pub fn while_unsynced<T>(&self, what: impl FnOnce() -> T) -> T {
        self.shared.while_unsynced(what)
    }

    /// Makes the names in this directory, its own name and the names of its parents durable.
    ///
    /// # Errors
    ///
    /// Returns the error of `fsync`; entries in the directory then do not count as durable.
    pub fn sync(&self) -> io::Result<()> {
        self.directory.sync()?;
        self.sync_name()
    }

    /// True if synced names in it survive a power failure. Some file systems do not sync
    /// directories.
    pub fn has_durable_names(&self) -> bool {
        !self.shared.refuses_sync()
            && match &self.above {
                Above::Folder(above) => above.has_durable_names(),
                Above::Apart { refused, .. } => !refused,
                Above::None => true,
            }
    }

    /// Syncs like [`Folder::sync`], and makes links and special files in the directory durable.
    /// Without a journal, their names could otherwise be dangling after a power failure.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Folder::sync`].
    pub fn sync_with_inodes(&self) -> io::Result<()> {
        self.sync()?;
        if self.directory.syncs_inodes() {
            Ok(())
        } else {
            self.directory.sync_file_system()
        }
    }

    /// Lets a copy add missing owner rights to the directory when it needs them. The copy sets the
    /// final mode at the end. The mode of the anchor does not change.
    fn allow_permitting(&self) {
        if !matches!(self.above, Above::None) {
            self.shared.allow_permitting();
        }
    }

    /// True if the folder is suitable: a copy needs a name that is durable or can be made durable.
    fn serves(&self, want: Want) -> bool {
        want == Want::Look || !matches!(self.above, Above::Apart { durable: false, .. })
    }

    /// Makes the name of this directory and the names of its parents durable.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Folder::sync`].
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

/// Purpose for which a directory is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    /// Reads only.
    Look,
    /// Reads only, in a copy that sets the directory's mode at the end.
    LookInCopy,
    /// Creates entries, and the directory itself if missing.
    Make,
}

/// All directories beneath the anchor, by path.
pub struct Folders {
    anchor: Arc<Folder>,
    /// Seat of the session, which gives it a share of the open directories; `None` without other
    /// sessions.
    seat: Option<Arc<Seat>>,
    open: Mutex<HashMap<TreePath, Arc<Folder>>>,
    notices: Arc<Notices>,
    /// Known spellings of names in closed directories, on file systems that fold case.
    spellings: Mutex<HashMap<TreePath, KeptSpelling>>,
    /// Unfinished directories that this copy created; `None` if they are not remembered.
    made: Option<Mutex<HashSet<TreePath>>>,
    /// Directory of backups, which entries of the copy must not enter.
    barred: Option<TreePath>,
    /// If true, directories keep their modes, even those that deny access.
    leaves_modes: bool,
}

impl Folders {
    /// Creates the set for an anchor. `notices` collects what its file system does not support.
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

    /// Creates the set for a session with a seat.
    pub(crate) fn seated(
        (anchor, seat): (Arc<dyn Directory>, Arc<Seat>),
        notices: Arc<Notices>,
    ) -> Folders {
        Folders {
            seat: Some(seat),
            ..Folders::new(anchor, notices)
        }
    }

    /// Prepares the set for a copy that keeps this metadata.
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

    /// Prepares the set for backups: created directories are remembered, and existing ones keep
    /// their modes.
    pub(crate) fn of_backups(self) -> Folders {
        Folders {
            made: Some(Mutex::default()),
            leaves_modes: true,
            ..self
        }
    }

    /// Excludes a directory and its content from the copy.
    #[must_use]
    pub(crate) fn barring(self, barred: Option<TreePath>) -> Folders {
        Folders { barred, ..self }
    }

    /// Returns true if this copy created the directory, and forgets it.
    pub(crate) fn take_made(&self, path: &TreePath) -> bool {
        let made = self.made.as_ref();
        made.is_some_and(|made| lock(made).remove(path))
    }

    /// Remembers a created directory. If the set is full, the directory counts as existing before;
    /// where modes are left alone it then keeps its private mode.
    pub(super) fn note_made(&self, path: &TreePath) {
        if let Some(made) = &self.made {
            let mut made = lock(made);
            if made.len() < MOST_MADE {
                made.insert(path.clone());
            }
        }
    }

    /// Returns the number of nested directories that may be kept open now.
    fn most_depth(&self) -> usize {
        match &self.seat {
            Some(seat) => seat.files(DEPTH_PART, LEAST_DEPTH, MOST_DEPTH),
            None => descriptors::share(DEPTH_PART, MOST_DEPTH),
        }
    }

    /// Returns the number of directories that may be kept open now.
    fn most_open(&self) -> usize {
        match &self.seat {
            Some(seat) => seat.files(FOLDERS_PART, LEAST_FOLDERS, OPEN_FOLDERS),
            None => descriptors::share(FOLDERS_PART, OPEN_FOLDERS),
        }
    }

    /// Returns the anchor.
    pub fn anchor(&self) -> &Arc<Folder> {
        &self.anchor
    }

    /// Returns the directory at a path and creates it if it is missing; `None` is the anchor.
    ///
    /// # Errors
    ///
    /// Returns the errors of `openat` and `mkdirat`. Symbolic links are not followed.
    pub fn make(&self, path: Option<&TreePath>) -> io::Result<Arc<Folder>> {
        if let (Some(barred), Some(path)) = (&self.barred, path)
            && (barred == path || barred.is_above(path))
        {
            return Err(io::Error::other(super::backup::BARRED));
        }
        self.get(path, Want::Make)
    }

    /// Returns an existing directory.
    ///
    /// # Errors
    ///
    /// Returns the errors of `openat`; `NotFound` if the directory is missing.
    pub fn find(&self, path: Option<&TreePath>) -> io::Result<Arc<Folder>> {
        self.get(path, Want::Look)
    }

    /// Returns an existing directory for a copy, which adds owner rights that are missing for
    /// reading.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Folders::find`].
    pub fn find_in_copy(&self, path: Option<&TreePath>) -> io::Result<Arc<Folder>> {
        self.get(path, Want::LookInCopy)
    }

    /// True if a sync of any directory failed.
    pub fn have_failed(&self) -> bool {
        let open = lock(&self.open);
        let mut all = open.values().chain([&self.anchor]);
        all.any(|folder| folder.shared.has_failed())
    }

    /// Closes all directories.
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

    /// Closes unused directories if many are open, before another one is opened.
    fn trim(&self) {
        let mut open = lock(&self.open);
        if open.len() >= self.most_open() {
            // A directory that is opened again is synced again. One whose sync failed stays open,
            // so that the failure is not hidden.
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

    /// Returns an open directory that serves the purpose.
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
            // Without this check, entries could be merged into a directory with another spelling.
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
        // Another thread may have opened the directory meanwhile.
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

    /// Names in a deep directory are durable after its sync.
    #[test]
    fn names_in_deep_directories_survive_a_crash() {
        let storage = ForgettingStorage::new();
        let folders = Folders::new(storage.root(), Arc::default());
        let depth = folders.most_depth() + 3;
        // A lookup comes first, as in a comparison.
        assert!(folders.find(Some(&deep(depth))).is_err());
        folders.make(Some(&deep(depth))).unwrap().sync().unwrap();
        let after = Folders::new(storage.crash(1).root(), Arc::default());
        assert!(after.find(Some(&deep(depth))).is_ok());
    }
}
