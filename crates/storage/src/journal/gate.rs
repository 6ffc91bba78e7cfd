//! The lock under which a journal, and the names next to it, are changed.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::{Creation, DataMode, Directory, StoredFile};

/// Maximum time to wait for the holder of the gate. The holder makes a few writes and at most one
/// sync; a longer time means that the storage hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause between two attempts, because `flock` has no time limit.
const PAUSE: Duration = Duration::from_millis(1);

/// Permission to create the journal when entering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entering {
    /// The journal is created if it is missing.
    MayCreate,
    /// The journal must exist.
    MustExist,
}

/// The held lock: no other process changes this journal. Dropping it unlocks.
pub struct Gate {
    file: Arc<dyn StoredFile>,
    inode: u64,
}

impl Gate {
    /// Waits until no other process holds the gate. The lock is on an inode, but it protects a
    /// name, so the name is checked again afterwards.
    ///
    /// # Errors
    ///
    /// `TimedOut` if another process keeps the lock; `NotFound` with [`Entering::MustExist`];
    /// otherwise the errors of the storage.
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

    /// Returns the journal.
    pub fn file(&self) -> &Arc<dyn StoredFile> {
        &self.file
    }

    /// Returns the journal's inode.
    pub fn inode(&self) -> u64 {
        self.inode
    }
}

/// Creates a new file that is never mistaken for a leftover: its lock is held, and its name is
/// unique. A search for leftovers may remove the file before it is locked. It is then created
/// again.
///
/// # Errors
///
/// `AlreadyExists`; `TimedOut` if others remove it at every attempt; otherwise the errors of the
/// storage.
pub fn create_held(
    directory: &dyn Directory,
    name: &[u8],
    mode: DataMode,
) -> io::Result<Arc<dyn StoredFile>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let file = directory.create_file(name, Creation::New, mode)?;
        let is_held = hold(&*file, (directory, name), deadline).inspect_err(|_| {
            // The first error is the reason to report. `clean` finds a file that stays.
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

/// Locks a file. True if the file still has its name then; under the lock, no process removes it.
pub(super) fn hold(
    file: &dyn StoredFile,
    (directory, name): (&dyn Directory, &[u8]),
    deadline: Instant,
) -> io::Result<bool> {
    let looked = wait_for_lock(file, deadline)
        .and_then(|()| file.status())
        // The number of links is not reliable: a file that is removed while open gets another name
        // on NFS and under FUSE.
        .and_then(|status| name_is(directory, name, status.inode));
    match looked {
        Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => Ok(false),
        looked => looked,
    }
}

/// True if an error means that a file system has no locks: Lustre without `-o flock`, NFS without
/// its lock daemon.
fn lacks_locks(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK)
    )
}

/// Takes a file's lock, as [`StoredFile::try_lock`]. On a file system without locks, it counts as
/// taken. Only the journal's length then fences former owners, and a living owner cannot be
/// detected.
///
/// # Errors
///
/// The errors of `flock`.
pub(super) fn take_lock(file: &dyn StoredFile) -> io::Result<bool> {
    match file.try_lock() {
        Err(error) if lacks_locks(&error) => Ok(true),
        taken => taken,
    }
}

/// Takes a file's shared lock, as [`StoredFile::try_lock_shared`].
///
/// # Errors
///
/// The errors of `flock`. Without locks, the error names a remedy: a later owner could not detect
/// that this one still writes.
pub(super) fn take_shared_lock(file: &dyn StoredFile) -> io::Result<bool> {
    file.try_lock_shared().map_err(|error| {
        if lacks_locks(&error) {
            io::Error::other(format!(
                "its file system has no locks ({error}), which several receivers of one file need: \
                 mount it with them (Lustre: -o flock)"
            ))
        } else {
            error
        }
    })
}

/// Returns the reason why an open file cannot be locked; `None` if it can.
pub fn missing_lock(file: &dyn StoredFile) -> Option<io::Error> {
    file.try_lock().err().filter(lacks_locks)
}

/// True if no process holds a file that is about to be removed. This cannot be known without locks.
///
/// # Errors
///
/// The errors of `flock`. Without locks, the error names a remedy.
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

/// True if a name refers to an inode.
pub(super) fn name_is(directory: &dyn Directory, name: &[u8], inode: u64) -> io::Result<bool> {
    match directory.status_of(name) {
        Ok(status) => Ok(status.inode == inode),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
