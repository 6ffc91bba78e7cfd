//! A second mount of a directory, behind a modelled device.
//!
//! Each operation is performed at once in the directory behind the mount, and answered
//! when the modelled device would have answered. Each outstanding request has a thread
//! that waits, at most [`MAXIMUM_OUTSTANDING`]. A *flow* is a thread of the process that
//! reads or writes.

mod attributes;
mod operations;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, Errno, FileType, MountOption, SessionACL};
use longhaul_units::Moment;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};

use super::StorageSettings;
use super::device::{Channel, ChannelCounters};
use super::nodes::Nodes;

/// Maximum number of outstanding requests. Each has a thread. More than any scenario of
/// the papers has flows per device.
pub const MAXIMUM_OUTSTANDING: usize = 64;

/// Maximum number of bytes per request. The kernel splits larger requests.
const MAXIMUM_REQUEST: u32 = 1 << 20;

/// Subtype of the file system; the list of mounts shows `fuse.longhaul-lab`.
const SUBTYPE: &str = "longhaul-lab";

/// Entries of a directory at the time when it was opened.
type Listing = Arc<Vec<(u64, FileType, OsString)>>;

struct Mirror {
    /// Keeps the directory behind the mount open, because the mount may cover it.
    _behind: OwnedFd,
    nodes: Mutex<Nodes>,
    /// Inode number of the root in the directory behind the mount.
    top: u64,
    /// Open files by handle, with their inode numbers.
    files: Mutex<HashMap<u64, (u64, Arc<File>)>>,
    listings: Mutex<HashMap<u64, Listing>>,
    next_handle: AtomicU64,
    reading: Arc<Mutex<Channel>>,
    writing: Arc<Mutex<Channel>>,
    operation_latency: Duration,
    began: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mirror {
    /// Opens a directory by descriptor, so that it stays accessible when a mount covers
    /// it.
    fn new(behind: &Path, settings: &StorageSettings) -> io::Result<Mirror> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let behind = rustix::fs::open(behind, flags, Mode::empty())?;
        // The final dot resolves the link in `/proc` to the directory.
        let top = PathBuf::from(format!("/proc/self/fd/{}/.", behind.as_raw_fd()));
        Ok(Mirror {
            _behind: behind,
            top: top.metadata()?.ino(),
            nodes: Mutex::new(Nodes::new(top)),
            files: Mutex::default(),
            listings: Mutex::default(),
            next_handle: AtomicU64::new(1),
            reading: Arc::new(Mutex::new(Channel::new(settings.read))),
            writing: Arc::new(Mutex::new(Channel::new(settings.write))),
            operation_latency: settings.operation_latency,
            began: Instant::now(),
        })
    }

    fn now(&self) -> Moment {
        Moment(0) + self.began.elapsed()
    }

    /// Performs `work` and returns when the modelled device would have answered.
    fn paced<T>(
        &self,
        channel: &Mutex<Channel>,
        flow: u32,
        bytes: u64,
        work: impl FnOnce() -> T,
    ) -> T {
        let due = lock(channel).request(self.now(), flow.into(), bytes);
        let result = work();
        // tidy: the wait is the device's modelled duration
        std::thread::sleep(due.since(self.now()));
        let late = self.now().since(due);
        lock(channel).answered(late);
        result
    }

    /// Performs an operation on names and returns after the operation latency.
    fn operated<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        // tidy: as above
        std::thread::sleep(self.operation_latency.saturating_sub(began.elapsed()));
        result
    }

    fn path(&self, number: u64) -> Result<PathBuf, Errno> {
        lock(&self.nodes).path(number).ok_or(Errno::ESTALE)
    }

    fn child(&self, parent: u64, name: &std::ffi::OsStr) -> Result<PathBuf, Errno> {
        lock(&self.nodes).child(parent, name).ok_or(Errno::ESTALE)
    }

    fn file(&self, handle: u64) -> Result<Arc<File>, Errno> {
        let files = lock(&self.files);
        let (_, file) = files.get(&handle).ok_or(Errno::EBADF)?;
        Ok(Arc::clone(file))
    }

    /// Returns an open file by its inode number. The kernel uses the number alone for
    /// files that were removed.
    fn still_open(&self, number: u64) -> Result<Arc<File>, Errno> {
        let files = lock(&self.files);
        let mut open = files.values().filter(|(open, _)| *open == number);
        let (_, file) = open.next().ok_or(Errno::ESTALE)?;
        Ok(Arc::clone(file))
    }

    fn keep(&self, file: File) -> Result<u64, Errno> {
        let number = attributes::number(file.metadata()?.ino(), self.top);
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        lock(&self.files).insert(handle, (number, Arc::new(file)));
        Ok(handle)
    }
}

/// A mounted mirror. Dropping it unmounts it.
#[derive(Debug)]
pub struct MountedStorage {
    session: Option<BackgroundSession>,
    at: PathBuf,
    reading: Arc<Mutex<Channel>>,
    writing: Arc<Mutex<Channel>>,
}

impl MountedStorage {
    /// Mounts the directory `behind` at the directory `at`, for all users of this host.
    /// Both must exist. They may be the same: the mount then covers the directory.
    ///
    /// # Errors
    ///
    /// Returns an error if `/dev/fuse` is missing, mounting is not permitted (it needs
    /// root, or `fusermount3` and `user_allow_other`), or a directory cannot be opened.
    pub fn mount(
        behind: &Path,
        at: &Path,
        settings: &StorageSettings,
    ) -> io::Result<MountedStorage> {
        let behind = behind.canonicalize()?;
        let mirror = Mirror::new(&behind, settings)?;
        let (reading, writing) = (Arc::clone(&mirror.reading), Arc::clone(&mirror.writing));
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(behind.display().to_string().replace(',', "_")),
            MountOption::Subtype(SUBTYPE.to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        config.acl = SessionACL::All;
        config.n_threads = Some(MAXIMUM_OUTSTANDING);
        config.clone_fd = true;
        let session = fuser::spawn_mount(mirror, at, &config)?;
        Ok(MountedStorage {
            session: Some(session),
            at: at.to_owned(),
            reading,
            writing,
        })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Returns the counters of reading and writing.
    pub fn counters(&self) -> [ChannelCounters; 2] {
        [&self.reading, &self.writing].map(|channel| lock(channel).counters().clone())
    }

    /// Unmounts it even if it is in use. Its users get errors from then on.
    pub fn let_go(self) {
        // An error means that it is no longer mounted.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }

    /// Unmounts it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if it is in use, or another error of the file system's thread.
    pub fn unmount(mut self) -> io::Result<()> {
        match self.session.take() {
            Some(session) => match session.umount_and_join() {
                // It is unmounted: the kernel ended the connection while the thread was
                // reading.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
                done => done,
            },
            None => Ok(()),
        }
    }
}
