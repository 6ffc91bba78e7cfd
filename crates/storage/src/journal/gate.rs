//! The lock under which a journal, and the names next to it, are changed.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::{Creation, DataMode, Directory, StoredFile};

/// How long to wait for the holder of the gate. It does some writes and at most one sync; longer
/// means that storage hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait between two tries: `flock` with a limit does not exist.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether a journal may be made by entering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entering {
    /// Made if it is not there.
    MayCreate,
    /// It must be there.
    MustExist,
}

/// Held: nobody else changes this journal. Dropping it leaves.
pub struct Gate {
    file: Arc<dyn StoredFile>,
    inode: u64,
}

impl Gate {
    /// Waits until nobody else is inside. The lock is on an inode while the
    /// contract is about a name, so the name is looked at again afterwards.
    ///
    /// # Errors
    ///
    /// `TimedOut` where another stays inside; `NotFound` with [`Entering::MustExist`]; else as in
    /// the storage.
    pub fn enter(
        directory: &dyn Directory,
        journal: &[u8],
        entering: Entering,
    ) -> io::Result<Gate> {
        let creation = match entering {
            Entering::MayCreate => Creation::Either,
            Entering::MustExist => Creation::Existing,
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let file = directory.create_file(journal, creation, DataMode::Buffered)?;
            wait_for_lock(&*file, deadline)?;
            let inode = file.status()?.inode;
            if name_is(directory, journal, inode)? {
                return Ok(Gate { file, inode });
            }
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// The journal.
    pub fn file(&self) -> &Arc<dyn StoredFile> {
        &self.file
    }

    /// The journal's inode.
    pub fn inode(&self) -> u64 {
        self.inode
    }
}

/// Makes a new file that is never taken for a leftover: its lock is held, and its name is unique.
/// A search for leftovers may come between its creation and its lock, and remove it: then it is
/// made again.
///
/// # Errors
///
/// `AlreadyExists`; `TimedOut` where others take it again and again; else as in the storage.
pub fn create_held(
    directory: &dyn Directory,
    name: &[u8],
    mode: DataMode,
) -> io::Result<Arc<dyn StoredFile>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let file = directory.create_file(name, Creation::New, mode)?;
        let is_held = hold(&*file, (directory, name), deadline).inspect_err(|_| {
            // The reason is the first error; what remains is found by `clean`.
            let _ = directory.remove_file(name);
        });
        if is_held? {
            return Ok(file);
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Locks a file; whether it has its name then. Under the lock nobody removes it any more.
pub(super) fn hold(
    file: &dyn StoredFile,
    (directory, name): (&dyn Directory, &[u8]),
    deadline: Instant,
) -> io::Result<bool> {
    let looked = wait_for_lock(file, deadline)
        .and_then(|()| file.status())
        // Its links say nothing: a file that is removed while it is open has another name on
        // NFS and under FUSE.
        .and_then(|status| name_is(directory, name, status.inode));
    match looked {
        Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => Ok(false),
        looked => looked,
    }
}

/// Whether an error says that a file system has no locks: Lustre without `-o flock`, NFS without
/// its lock daemon.
fn lacks_locks(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK)
    )
}

/// Takes a file's lock, as [`StoredFile::try_lock`]. Where there are no locks it counts as taken:
/// the journal's length alone then fences former owners, and nothing shows that one lives.
///
/// # Errors
///
/// As `flock`.
pub(super) fn take_lock(file: &dyn StoredFile) -> io::Result<bool> {
    match file.try_lock() {
        Err(error) if lacks_locks(&error) => Ok(true),
        taken => taken,
    }
}

/// Why a file that this process has open has no lock; `None` if it has one.
pub fn missing_lock(file: &dyn StoredFile) -> Option<io::Error> {
    file.try_lock().err().filter(lacks_locks)
}

/// Whether nobody holds a file, which is to be removed. Without locks nobody can tell.
///
/// # Errors
///
/// As `flock`; where there are no locks what to do about it.
pub(super) fn is_free(file: &dyn StoredFile) -> io::Result<bool> {
    file.try_lock().map_err(|error| if lacks_locks(&error) { io::Error::other(format!(
        "its file system has no locks ({error}), which tell whether a copy uses it: mount it \
         with them (Lustre: -o flock), or remove it by hand when no copy runs"
    )) } else { error })
}

fn wait_for_lock(file: &dyn StoredFile, deadline: Instant) -> io::Result<()> {
    while !take_lock(file)? {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // tidy: reason: `flock` has no wait with a limit, and a signal for one
        // would be the whole process's.
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Whether a name refers to an inode.
pub(super) fn name_is(directory: &dyn Directory, name: &[u8], inode: u64) -> io::Result<bool> {
    match directory.status_of(name) {
        Ok(status) => Ok(status.inode == inode),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
