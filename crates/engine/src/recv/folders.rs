//! The directories of the destination: opened beneath the anchor name by name,
//! made where they are missing, kept open while they are in use, and durable
//! before anything in them is called durable.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_proto::manifest::TreePath;

use crate::descriptors;
use crate::notices::Notices;
use crate::queue::lock;
use crate::shares::Seat;
use crate::storage::Directory;
use crate::storage::destination::{DestinationDirectory, KeptSpelling};

/// Most directories kept open, and their part of the files that may be.
const OPEN_FOLDERS: usize = 256;
const FOLDERS_PART: usize = 8;

/// Of one session at least.
const LEAST_FOLDERS: usize = 4;

/// Most directories within each other, which are open together, and their part.
const MOST_DEPTH: usize = 4096;
const DEPTH_PART: usize = 4;

/// Directories of which names are kept while they are closed, at most.
const MOST_SPELLINGS: usize = 65_536;

/// Mode of a directory until everything in it is done.
const TEMPORARY_MODE: u32 = 0o700;

/// An open directory of the destination.
pub struct Folder {
    directory: Arc<dyn Directory>,
    /// The same.
    shared: Arc<DestinationDirectory>,
    above: Option<Arc<Folder>>,
    device: OnceLock<u64>,
    /// The directory above was not synced since this one was opened: it may
    /// have been made here, or by a run that was killed before it synced.
    name_unsynced: AtomicBool,
}

impl Folder {
    fn new(directory: DestinationDirectory, above: Option<Arc<Folder>>) -> Folder {
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

    /// Makes the names in it durable, and its own name, and so on upwards.
    ///
    /// # Errors
    ///
    /// As `fsync`: then nothing in it may be called durable.
    pub fn sync(&self) -> io::Result<()> {
        self.directory.sync()?;
        self.sync_name()
    }

    /// For a copy, which gives it its mode when everything in it is done: a
    /// directory that lacks its owner's rights gets them where they are needed.
    /// The anchor's mode is nobody's to change.
    fn allow_permitting(&self) {
        if self.above.is_some() {
            self.shared.allow_permitting();
        }
    }

    /// Makes its own name durable, and those above it.
    ///
    /// # Errors
    ///
    /// As [`Folder::sync`].
    pub fn sync_name(&self) -> io::Result<()> {
        if let Some(above) = &self.above {
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
    /// The session's, which has a share of the directories that may be open; none where there is
    /// no other.
    seat: Option<Arc<Seat>>,
    open: Mutex<HashMap<TreePath, Arc<Folder>>>,
    notices: Arc<Notices>,
    /// What is known of the names of those that were closed, where case is folded.
    spellings: Mutex<HashMap<TreePath, KeptSpelling>>,
}

impl Folders {
    /// Beneath this anchor; `notices` hears what its file system does not do.
    pub fn new(anchor: Arc<dyn Directory>, notices: Arc<Notices>) -> Folders {
        let anchor = DestinationDirectory::new(anchor, Arc::clone(&notices), None);
        let anchor = Folder::new(anchor, None);
        Folders {
            anchor: Arc::new(anchor),
            seat: None,
            open: Mutex::default(),
            notices,
            spellings: Mutex::default(),
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
        let most = descriptors::share(DEPTH_PART, MOST_DEPTH);
        let depth = path.names().count();
        if depth > most {
            return Err(descriptors::too_deep(depth, MOST_DEPTH * DEPTH_PART));
        }
        let mut folder = Arc::clone(&self.anchor);
        let mut walked: Option<TreePath> = None;
        for name in path.names() {
            let next = match &walked {
                Some(walked) => walked.join(name),
                None => TreePath::new(name),
            };
            let next = next.map_err(io::Error::other)?;
            folder = match self.known(&next, want) {
                Some(known) => known,
                None => self.open(&folder, name, &next, want)?,
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
        if want != Want::Look {
            folder.allow_permitting();
        }
        Some(folder)
    }

    fn open(
        &self,
        above: &Arc<Folder>,
        name: &[u8],
        path: &TreePath,
        want: Want,
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
        if !made {
            // Else what has another name would merge with it.
            above.ensure_spelled(name)?;
        }
        let mut open = lock(&self.open);
        let fresh = || {
            let kept = lock(&self.spellings).remove(path);
            let made_in = made.then_some(&*above.shared);
            let notices = Arc::clone(&self.notices);
            let directory = DestinationDirectory::new(directory, notices, Some(path.clone()));
            Arc::new(Folder::new(
                directory.with(kept, made_in),
                Some(Arc::clone(above)),
            ))
        };
        // Somebody else may have been faster.
        let folder = Arc::clone(open.entry(path.clone()).or_insert_with(fresh));
        drop(open);
        if want != Want::Look {
            folder.allow_permitting();
        }
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::posix::PosixDirectory;

    #[test]
    fn a_path_deeper_than_may_be_open_makes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folders = Folders::new(
            PosixDirectory::open_root(place.path()).unwrap(),
            Arc::default(),
        );
        let most = descriptors::share(DEPTH_PART, MOST_DEPTH);
        let deep = |depth| TreePath::new(vec!["d"; depth].join("/").as_bytes()).unwrap();
        let Err(error) = folders.make(Some(&deep(most + 1))) else {
            panic!("made");
        };
        assert!(error.to_string().contains("ulimit -n"), "{error}");
        assert!(place.path().read_dir().unwrap().next().is_none());
        assert!(folders.make(Some(&deep(most.min(40)))).is_ok());
    }
}
