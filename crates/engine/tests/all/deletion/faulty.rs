//! A directory in which some calls fail, and which changes during other calls.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use longhaul_proto::manifest::Timestamp;
use longhaul_storage::origin::Uuid;
use longhaul_storage::{Creation, DataMode, Directory, ListedName, NameList, Status, StoredFile};

use super::model::joined;
use crate::support::Random;

const DIRECTORIES: [&str; 7] = ["", "a", "b", "c", "a/b", "b/a", "c/a"];

/// Name that a moved directory gets.
pub const MOVED_AWAY: &str = "moved away";

/// A fault of a directory.
#[derive(Clone, Debug)]
pub struct Fault {
    directory: &'static str,
    /// Number of the listing of the directory at which the fault happens, from 0.
    time: u64,
    what: Wrong,
}

#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// The directory cannot be listed.
    List,
    /// The listing fails after this number of names.
    BreakOff(usize),
    /// Another process creates a file in the directory after the plan is complete.
    Add,
    /// Another process writes to the files of the directory after the plan is complete.
    Change,
    /// Another process moves the directory away after the plan is complete.
    Move,
}

impl Fault {
    /// Returns the fault that another process moves a directory away after the plan is complete.
    pub fn moved(directory: &'static str) -> Fault {
        Fault {
            directory,
            time: 0,
            what: Wrong::Move,
        }
    }

    /// Returns a random fault. The anchor of a destination is also listed before and after
    /// deletion, so its faults are only `below` it.
    pub fn random(chance: &mut Random, below: bool) -> Fault {
        let directories = &DIRECTORIES[usize::from(below)..];
        Fault {
            directory: directories[chance.below(directories.len() as u64) as usize],
            time: chance.below(3),
            what: match chance.below(6) {
                0 | 1 => Wrong::List,
                2 | 3 => Wrong::BreakOff(chance.below(3) as usize),
                4 => Wrong::Add,
                _ => Wrong::Change,
            },
        }
    }
}

/// The faults of one end, and their effects.
pub struct Faults {
    root: PathBuf,
    faults: Vec<Fault>,
    came: Mutex<Came>,
}

#[derive(Default)]
struct Came {
    listed: BTreeMap<Vec<u8>, u64>,
    /// Directories whose last listing failed.
    failed: BTreeSet<Vec<u8>>,
    /// True if any listing failed.
    ever_failed: bool,
    /// True after the first removal.
    removing: bool,
    /// Names that were changed and added just before the first removal.
    changed: BTreeSet<Vec<u8>>,
    added: BTreeSet<Vec<u8>>,
}

impl Faults {
    pub fn new(faults: &[Fault], root: &Path) -> Faults {
        Faults {
            root: root.to_owned(),
            faults: faults.to_vec(),
            came: Mutex::default(),
        }
    }

    /// True if a directory could not be listed.
    pub fn failed(&self) -> bool {
        self.came.lock().unwrap().ever_failed
    }

    /// True if a directory could not be listed, or changed meanwhile.
    pub fn happened(&self) -> bool {
        let disturbed = self.failed();
        let came = self.came.lock().unwrap();
        disturbed || !came.changed.is_empty() || !came.added.is_empty()
    }

    /// Returns names that could not be listed, or that changed meanwhile.
    pub fn touched(&self) -> BTreeSet<Vec<u8>> {
        let came = self.came.lock().unwrap();
        came.changed.union(&came.failed).cloned().collect()
    }

    /// Returns names that were created meanwhile.
    pub fn added(&self) -> BTreeSet<Vec<u8>> {
        self.came.lock().unwrap().added.clone()
    }

    /// Handles the listing of a directory. Returns the number of names after which it fails, if
    /// any.
    fn list(&self, path: &[u8]) -> io::Result<Option<usize>> {
        let mut came = self.came.lock().unwrap();
        came.failed.remove(path);
        let times = came.listed.entry(path.to_vec()).or_default();
        let time = *times;
        *times += 1;
        let here = |fault: &&Fault| fault.directory.as_bytes() == path && fault.time == time;
        let fault = self.faults.iter().find(here).map(|fault| fault.what);
        if let Some(Wrong::List | Wrong::BreakOff(_)) = fault {
            came.failed.insert(path.to_vec());
            came.ever_failed = true;
        }
        match fault {
            Some(Wrong::List) => Err(io::Error::from_raw_os_error(5)),
            Some(Wrong::BreakOff(after)) => Ok(Some(after)),
            Some(Wrong::Add | Wrong::Change | Wrong::Move) | None => Ok(None),
        }
    }

    /// Makes the changes of other processes before the first removal, after the plan is complete.
    fn removing(&self, path: &[u8]) {
        let mut came = self.came.lock().unwrap();
        if std::mem::replace(&mut came.removing, true) {
            return;
        }
        for fault in &self.faults {
            let above = fault.directory.as_bytes();
            let directory = self.root.join(OsStr::from_bytes(above));
            match fault.what {
                Wrong::Add => {
                    if std::fs::write(directory.join("added"), b"added").is_ok() {
                        came.added.insert(joined(above, b"added"));
                    }
                }
                Wrong::Change => {
                    for entry in std::fs::read_dir(&directory)
                        .into_iter()
                        .flatten()
                        .flatten()
                    {
                        let name = joined(above, entry.file_name().as_bytes());
                        if entry.path().is_file() && name != path {
                            std::fs::write(entry.path(), b"changed meanwhile").unwrap();
                            came.changed.insert(name);
                        }
                    }
                }
                Wrong::Move => {
                    std::fs::rename(&directory, self.root.join(MOVED_AWAY)).unwrap();
                }
                Wrong::List | Wrong::BreakOff(_) => {}
            }
        }
    }
}

/// A directory with faults.
pub struct Faulty {
    inner: Arc<dyn Directory>,
    path: Vec<u8>,
    faults: Arc<Faults>,
}

impl Faulty {
    pub fn root(inner: Arc<dyn Directory>, faults: &Arc<Faults>) -> Arc<dyn Directory> {
        Arc::new(Faulty {
            inner,
            path: Vec::new(),
            faults: Arc::clone(faults),
        })
    }
}

fn unwrapped(directory: &dyn Directory) -> &dyn Directory {
    match directory.as_any().downcast_ref::<Faulty>() {
        Some(faulty) => &*faulty.inner,
        None => directory,
    }
}

struct Names {
    inner: Box<dyn NameList>,
    left: Option<usize>,
}

impl NameList for Names {
    fn next_name(&mut self) -> io::Result<Option<ListedName>> {
        match &mut self.left {
            Some(0) => return Err(io::Error::from_raw_os_error(5)),
            Some(left) => *left -= 1,
            None => {}
        }
        let next = self.inner.next_name()?;
        if next.is_none() && self.left.is_some() {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(next)
    }
}

impl Directory for Faulty {
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        Ok(Arc::new(Faulty {
            inner: self.inner.open_directory(name)?,
            path: joined(&self.path, name),
            faults: Arc::clone(&self.faults),
        }))
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        let left = self.faults.list(&self.path)?;
        Ok(Box::new(Names {
            inner: self.inner.list()?,
            left,
        }))
    }

    fn make_directory(&self, name: &[u8], mode: u32) -> io::Result<()> {
        self.inner.make_directory(name, mode)
    }

    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        self.inner.open_file(name, mode)
    }

    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        mode: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>> {
        self.inner.create_file(name, creation, mode)
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        self.inner.make_symlink(name, target)
    }

    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>> {
        self.inner.read_symlink(name)
    }

    fn rename(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        self.inner.rename(from, unwrapped(target), to)
    }

    fn rename_new(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        self.inner.rename_new(from, unwrapped(target), to)
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        if !name.starts_with(b".longhaul-") {
            self.faults.removing(&joined(&self.path, name));
        }
        self.inner.remove_file(name)
    }

    fn remove_directory(&self, name: &[u8]) -> io::Result<()> {
        self.faults.removing(&joined(&self.path, name));
        self.inner.remove_directory(name)
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        self.inner.status_of(name)
    }

    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn mount(&self) -> Option<u64> {
        self.inner.mount()
    }

    fn set_modified_of(&self, name: &[u8], modified: Timestamp) -> io::Result<()> {
        self.inner.set_modified_of(name, modified)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.inner.set_mode(mode)
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        self.inner.set_modified(modified)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn uuid(&self) -> Option<Uuid> {
        self.inner.uuid()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
