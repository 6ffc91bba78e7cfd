//! A directory of the destination: one handle for many threads.
//!
//! It remembers a failed sync. The kernel reports a failure to one caller only, and reports success
//! for a later sync, although the data of the failed one is lost. Threads that share a handle must
//! therefore also share the results of its syncs.
//!
//! It gives the owner the permissions needed to write into the directory, if an earlier run, or an
//! earlier source with the same directory, has set a mode without them.
//!
//! It also prevents a file or link from replacing an entry whose different name the file system
//! treats as the same ([`super::spelling`]).

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_proto::manifest::{RESERVED_PREFIX, Timestamp, TreePath};
use longhaul_proto::notice::NoticeKind;
use longhaul_system::descriptors;
use longhaul_system::queue::lock;
use longhaul_system::refusals::is_refusal;

use super::attributes::Inode;
use super::spelling::Spelling;
use super::{Creation, DataMode, Directory, NameList, Special, Status, StoredFile};
use crate::notices::Notices;

/// Permissions that the owner needs to write into a directory.
const OWNER_MAY: u32 = 0o700;

/// Name of a directory in messages.
struct Shown<'a>(Option<&'a TreePath>);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(path) => path.fmt(f),
            None => f.write_str("the destination itself"),
        }
    }
}

/// A directory whose syncs all fail after one failed sync.
pub struct DestinationDirectory {
    inner: Arc<dyn Directory>,
    /// True if the mode may be changed. The caller that permits this restores the mode at the end.
    may_permit: AtomicBool,
    /// Receives a notice if the file system refuses to sync directories.
    notices: Arc<Notices>,
    path: Option<TreePath>,
    /// Number of syncs begun.
    begun: AtomicU64,
    last: Mutex<LastSync>,
    /// Locked while a name is given, so that the record of names is accurate.
    spelling: Arc<Mutex<Spelling>>,
}

/// The known names of a directory, kept while it is closed.
#[derive(Clone)]
pub struct KeptSpelling(Arc<Mutex<Spelling>>);

#[derive(Default)]
struct LastSync {
    /// Number of the last sync that succeeded.
    succeeded: u64,
    /// Error number of the sync that failed.
    failed: Option<i32>,
    /// True if the file system refuses to sync directories.
    refused: bool,
}

impl DestinationDirectory {
    /// Wraps a directory, with no recorded state. `path` is its path beneath the anchor; `None` for
    /// the anchor.
    pub fn new(
        inner: Arc<dyn Directory>,
        notices: Arc<Notices>,
        path: Option<TreePath>,
    ) -> DestinationDirectory {
        DestinationDirectory {
            inner,
            notices,
            path,
            may_permit: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            last: Mutex::default(),
            spelling: Arc::default(),
        }
    }

    /// True if a sync failed. No entry of the directory can be reported as durable then.
    pub fn has_failed(&self) -> bool {
        lock(&self.last).failed.is_some()
    }

    /// True if the file system refused to sync the directory.
    pub fn refuses_sync(&self) -> bool {
        lock(&self.last).refused
    }

    /// Restores the names kept from an earlier handle. If `made_in` is given, the directory was
    /// just created in that one, and inherits its rule for case.
    pub fn with(mut self, kept: Option<KeptSpelling>, made_in: Option<&Self>) -> Self {
        if let Some(KeptSpelling(spelling)) = kept {
            self.spelling = spelling;
        } else if made_in.is_some_and(|above| lock(&above.spelling).is_plain()) {
            lock(&self.spelling).set_plain();
        }
        self
    }

    /// Returns the record of names to be kept when the directory is closed; `None` if it is empty.
    pub fn kept_spelling(&self) -> Option<KeptSpelling> {
        let used = lock(&self.spelling).is_used();
        used.then(|| KeptSpelling(Arc::clone(&self.spelling)))
    }

    /// Checks that an existing name was not used under another spelling, and records it.
    ///
    /// # Errors
    ///
    /// [`super::spelling::OtherSpelling`] if it was; otherwise the errors of `fstatat` and
    /// `getdents`.
    pub fn ensure_spelled(&self, name: &[u8]) -> io::Result<()> {
        let check = || lock(&self.spelling).check(&*self.inner, name);
        descriptors::patiently_around(|_| self.permitting(check))
    }

    /// Runs `what` while no other thread syncs this directory. Changes made by `what` can therefore
    /// not become durable through this process before it ends.
    pub fn while_unsynced<T>(&self, what: impl FnOnce() -> T) -> T {
        let _last = lock(&self.last);
        what()
    }

    /// Permits changing the mode from here on, if the owner lacks permissions for an operation.
    pub fn allow_permitting(&self) {
        self.may_permit.store(true, Ordering::Relaxed);
    }

    /// Runs `what`, and repeats it once if the owner's permissions were missing and could be added.
    fn permitting<T>(&self, mut what: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match what() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && self.permit() => {
                what()
            }
            result => result,
        }
    }

    /// Adds the owner's missing permissions. Returns true if the owner has them now. Another thread
    /// may have added them in the meantime.
    fn permit(&self) -> bool {
        self.may_permit.load(Ordering::Relaxed)
            && self.inner.status().is_ok_and(|status| {
                status.mode & OWNER_MAY == OWNER_MAY
                    || self.inner.set_mode(status.mode | OWNER_MAY).is_ok()
            })
    }
}

impl Directory for DestinationDirectory {
    /// Syncs the directory, one thread at a time. A thread that waited while another thread's sync
    /// began and succeeded needs no sync itself. If the file system refuses to sync directories, a
    /// notice is recorded once, and the call succeeds.
    fn sync(&self) -> io::Result<()> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = lock(&self.last);
        if let Some(number) = last.failed {
            return Err(io::Error::from_raw_os_error(number));
        }
        if last.refused || last.succeeded > before {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let result = self.inner.sync();
        let shown = Shown(self.path.as_ref());
        let synced = self
            .notices
            .wish(NoticeKind::NamesNotSynced, &shown, result);
        match &synced {
            Ok(Some(())) => last.succeeded = number,
            Ok(None) => last.refused = true,
            Err(error) => last.failed = Some(error.raw_os_error().unwrap_or(libc::EIO)),
        }
        synced.map(drop)
    }

    /// Syncs the whole file system. After a failure, every later sync fails, as with
    /// [`Directory::sync`].
    fn sync_file_system(&self) -> io::Result<()> {
        let mut last = lock(&self.last);
        if let Some(number) = last.failed {
            return Err(io::Error::from_raw_os_error(number));
        }
        let synced = self.inner.sync_file_system();
        if let Err(error) = &synced
            && !is_refusal(error)
        {
            last.failed = Some(error.raw_os_error().unwrap_or(libc::EIO));
        }
        synced
    }

    fn syncs_inodes(&self) -> bool {
        self.inner.syncs_inodes()
    }

    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        self.permitting(|| self.inner.open_directory(name))
    }

    fn make_directory(&self, name: &[u8], mode: u32) -> io::Result<()> {
        let mut spelling = lock(&self.spelling);
        self.permitting(|| self.inner.make_directory(name, mode))?;
        descriptors::at_once(|| self.permitting(|| spelling.made(&*self.inner, name)))
    }

    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        self.permitting(|| self.inner.open_file(name, mode))
    }

    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        mode: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>> {
        self.permitting(|| self.inner.create_file(name, creation, mode))
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        self.permitting(|| self.inner.make_symlink(name, target))
    }

    fn make_special(&self, name: &[u8], special: Special) -> io::Result<()> {
        self.permitting(|| self.inner.make_special(name, special))
    }

    fn link(&self, name: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        match target.as_any().downcast_ref::<DestinationDirectory>() {
            Some(target) => {
                let link = || self.inner.link(name, &*target.inner, to);
                self.permitting(|| target.permitting(link))
            }
            None => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        self.inner.inode()
    }

    fn mount(&self) -> Option<u64> {
        self.inner.mount()
    }

    fn open_descriptor(&self, name: &[u8]) -> io::Result<OwnedFd> {
        self.permitting(|| self.inner.open_descriptor(name))
    }

    fn location(&self) -> Option<PathBuf> {
        self.inner.location()
    }

    fn inode_of(&self, name: &[u8]) -> Option<Box<dyn Inode + '_>> {
        self.inner.inode_of(name)
    }

    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>> {
        self.permitting(|| self.inner.read_symlink(name))
    }

    fn rename(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        let target = target.as_any();
        match target.downcast_ref::<DestinationDirectory>() {
            Some(target) => {
                let rename = || self.inner.rename(from, &*target.inner, to);
                let rename = || self.permitting(|| target.permitting(rename));
                if to.starts_with(RESERVED_PREFIX) {
                    return rename();
                }
                let rename_new = || self.inner.rename_new(from, &*target.inner, to);
                let rename_new = || self.permitting(|| target.permitting(rename_new));
                // A lack of descriptors causes the failure before anything is renamed.
                descriptors::patiently_around(|_| {
                    let mut spelling = lock(&target.spelling);
                    spelling.rename(&*target.inner, (from, to), rename, rename_new)
                })
            }
            None => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    fn rename_together(&self, names: &[(&[u8], &[u8])]) -> Option<Vec<io::Result<()>>> {
        let mut spelling = lock(&self.spelling);
        let are_plain = spelling.are_plain(&*self.inner, names);
        are_plain.then(|| self.inner.rename_together(names))?
    }

    fn exchange(&self, one: &[u8], other: &[u8]) -> io::Result<()> {
        self.permitting(|| self.inner.exchange(one, other))
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        self.permitting(|| self.inner.remove_file(name))
    }

    fn remove_directory(&self, name: &[u8]) -> io::Result<()> {
        self.permitting(|| self.inner.remove_directory(name))
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        self.permitting(|| self.inner.status_of(name))
    }

    fn content_status_of(&self, name: &[u8]) -> io::Result<Status> {
        self.permitting(|| self.inner.content_status_of(name))
    }

    fn status(&self) -> io::Result<Status> {
        self.inner.status()
    }

    fn set_modified_of(&self, name: &[u8], modified: Timestamp) -> io::Result<()> {
        self.permitting(|| self.inner.set_modified_of(name, modified))
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.inner.set_mode(mode)
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        self.inner.set_modified(modified)
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        self.inner.list()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
