//! Storage in memory that forgets what was not synced.
//!
//! It keeps two states of everything: what a running system sees, and what the
//! disk holds. [`ForgettingStorage::crash`] loses power: what comes back is the
//! disk's state plus whatever part of the rest a seed says had reached the disk
//! by then, in any order, torn where disks tear. The rules:
//!
//! - a file's data and length are durable after its `sync_data`, its mode and
//!   times after its `sync_all`;
//! - a name (also one gone, or changed) is durable after `sync` of its
//!   directory; a rename between two directories after `sync` of both. Until
//!   then a rename happened wholly or not at all; between the two syncs each
//!   directory shows its own half, as POSIX allows;
//! - nothing orders a name before or after the data of its file: a renamed file
//!   whose data was not synced may be short, zero, or garbage;
//! - all of it is durable after `sync_file_system`. Without a journal, so is a link's inode: after
//!   the sync of its directory alone, its name may be gone;
//! - a sync that failed has lost what it should have kept: a later success
//!   does not bring it back (so does Linux);
//! - a file system that went down keeps nothing more and takes no change, whatever its
//!   syncs say;
//! - locks end with the last handle of the open file, all of them in a crash.
//!
//! Everything is deterministic, given the calls and the seeds; put seed and
//! step into the message of an assertion.

mod disk;
mod handles;
mod name_change;
mod pages;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Directory;
use disk::Disk;
use handles::OpenDirectory;

/// How a file system goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// As ext4 whose journal fails: the sync that finds it fails, and further ones, of
    /// directories and of files, succeed, as the transaction is gone.
    Journal,
    /// As XFS that was shut down: no sync of a directory fails, those of files do.
    ShutDown,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct ForgettingStorage {
    disk: Arc<Mutex<Disk>>,
    /// Syncs of data may continue.
    released: Arc<Condvar>,
}

impl Default for ForgettingStorage {
    fn default() -> ForgettingStorage {
        ForgettingStorage::new()
    }
}

impl ForgettingStorage {
    /// An empty disk.
    pub fn new() -> ForgettingStorage {
        ForgettingStorage::from_disk(Disk::new())
    }

    fn from_disk(disk: Disk) -> ForgettingStorage {
        ForgettingStorage {
            disk: Arc::new(Mutex::new(disk)),
            released: Arc::default(),
        }
    }

    /// The root directory, which always exists.
    pub fn root(&self) -> Arc<dyn Directory> {
        Arc::new(OpenDirectory::root(self.clone()))
    }

    /// Loses power and starts again: the disk as the next boot finds it. Every
    /// handle of this one fails from now on, with "power lost".
    pub fn crash(&self, seed: u64) -> ForgettingStorage {
        let after = self.if_crashed(seed);
        self.lock().lose_power();
        after
    }

    /// As [`ForgettingStorage::crash`], but this disk continues: to look at many outcomes of one
    /// moment.
    pub fn if_crashed(&self, seed: u64) -> ForgettingStorage {
        ForgettingStorage::from_disk(self.lock().after_crash(seed))
    }

    /// Kills the process: what it had done stays as every reader sees it, still
    /// unsynced; its handles fail from now on, its locks are gone. Works after
    /// [`ForgettingStorage::fail_after`] too, which then is the moment of death.
    pub fn kill(&self) -> ForgettingStorage {
        let mut dead = Disk::new();
        dead.lose_power();
        let mut disk = std::mem::replace(&mut *self.lock(), dead);
        disk.outlive_process();
        ForgettingStorage::from_disk(disk)
    }

    /// Loses power during the `step`-th mutating call from the disk's start (1
    /// is the first): that call may or may not leave a trace, and it and every
    /// later call fail.
    pub fn fail_after(&self, step: u64) {
        self.lock().faults.power_lost_at = Some(step);
    }

    /// Mutating calls so far.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// From now on writes may take this many bytes in all; then there is no
    /// room left. What was written up to there stays.
    pub fn fill_after_bytes(&self, bytes: u64) {
        self.lock().faults.room_bytes = Some(bytes);
    }

    /// The next sync but `count` (0: the next) of a file or directory fails,
    /// and what it should have kept is lost.
    pub fn fail_sync_after(&self, count: u64) {
        self.lock().faults.syncs_until_failure = Some(count);
    }

    /// The next rename but `count` (0: the next) fails, and changes nothing.
    pub fn fail_rename_after(&self, count: u64) {
        self.lock().faults.renames_until_failure = Some(count);
    }

    /// Whether the failure of [`ForgettingStorage::fail_rename_after`] is still to come.
    pub fn has_rename_fault(&self) -> bool {
        self.lock().faults.renames_until_failure.is_some()
    }

    /// The next sync of a directory but `count` (0: the next) finds that its file system went
    /// down: nothing is kept from then on, and nothing can be changed. Each kind of file system
    /// calls further syncs a success, see [`Down`].
    pub fn go_down_at_directory_sync(&self, count: u64, down: Down) {
        self.lock().faults.directory_syncs_until_down = Some((count, down));
    }

    /// Whether [`ForgettingStorage::go_down_at_directory_sync`] is still to come.
    pub fn is_up(&self) -> bool {
        self.lock().down.is_none()
    }

    /// From now on a `sync_data` of a file waits for
    /// [`ForgettingStorage::release_syncs`]: a disk that is very slow.
    pub fn hold_syncs(&self) {
        self.lock().holds_syncs = true;
    }

    /// Syncs that wait continue, and none waits any more.
    pub fn release_syncs(&self) {
        self.lock().holds_syncs = false;
        self.released.notify_all();
    }

    /// From now on direct I/O is taken when a file is opened, and refused when
    /// it is used: then all goes through the page cache.
    pub fn refuse_direct(&self) {
        self.lock().refuses_direct = true;
    }

    /// From now on names that differ in the case of ASCII letters are one.
    pub fn fold_case(&self) {
        self.lock().folds_case = true;
    }

    /// From now on an inode may have several names; before, no further one can be made.
    pub fn allow_links(&self) {
        self.lock().has_links = true;
    }

    /// From now on links are durable only after a sync of the whole file system.
    pub fn remove_journal(&self) {
        self.lock().lacks_journal = true;
    }

    /// Runs something just before the next `sync_all` of a file: what another
    /// process does while data is on its way to the disk.
    pub fn before_next_sync_all(&self, what: impl FnOnce() + Send + 'static) {
        self.lock().interruption = Some(Box::new(what));
    }

    /// Whether the failure of [`ForgettingStorage::fail_sync_after`] is still
    /// to come.
    pub fn has_sync_fault(&self) -> bool {
        self.lock().faults.syncs_until_failure.is_some()
    }

    /// The disk, once a sync of data may continue.
    fn lock_to_sync(&self) -> MutexGuard<'_, Disk> {
        let disk = self.lock();
        let waited = self.released.wait_while(disk, |disk| disk.holds_syncs);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        // A test that panicked elsewhere must not hide behind a second panic.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of every call after power was lost.
fn power_lost() -> io::Error {
    io::Error::other("power lost")
}

fn system_error(number: rustix::io::Errno) -> io::Error {
    io::Error::from_raw_os_error(number.raw_os_error())
}
