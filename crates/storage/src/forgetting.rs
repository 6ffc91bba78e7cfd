//! Storage in memory that loses unsynced data in a simulated crash.
//!
//! It keeps two states of everything: the view of the running system, and the content of the disk.
//! [`ForgettingStorage::crash`] simulates a loss of power. The result is the disk's state plus a
//! random part of the unsynced changes, chosen by a seed, in any order, and torn as on real disks.
//! The rules:
//!
//! - a file's data and length are durable after its `sync_data`, its mode and
//!   times after its `sync_all`;
//! - a name, or its removal or change, is durable after `sync` of its directory; a rename between
//!   two directories after `sync` of both. Until then, a rename happens completely or not at all.
//!   Between the two syncs, each directory shows its own half, as POSIX permits;
//! - a name and the data of its file are independent: a renamed file whose data was not synced may
//!   be short, zero, or garbage;
//! - all changes are durable after `sync_file_system`. Without a journal, the same is true of a
//!   link's inode: after the sync of its directory alone, its name may be lost;
//! - a sync that failed has lost its data: a later success does not restore it (as in Linux);
//! - a file system that went down keeps no further changes and rejects them, even if its syncs
//!   succeed;
//! - a lock ends with the last handle of the open file; a crash ends all locks.
//!
//! All results are deterministic, given the calls and the seeds. Put the seed and the step into the
//! message of an assertion.

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

/// Behaviour of a file system that goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// Like ext4 after a failure of its journal: the sync that detects it fails. Later syncs of
    /// files and directories succeed, because the transaction is gone.
    Journal,
    /// Like XFS after a shutdown: syncs of directories succeed, and syncs of files fail.
    ShutDown,
}

/// A simulated disk in memory. Clones share the same disk.
#[derive(Clone)]
pub struct ForgettingStorage {
    disk: Arc<Mutex<Disk>>,
    /// Signals that syncs of data may continue.
    released: Arc<Condvar>,
}

impl Default for ForgettingStorage {
    fn default() -> ForgettingStorage {
        ForgettingStorage::new()
    }
}

impl ForgettingStorage {
    /// Creates an empty disk.
    pub fn new() -> ForgettingStorage {
        ForgettingStorage::from_disk(Disk::new())
    }

    fn from_disk(disk: Disk) -> ForgettingStorage {
        ForgettingStorage {
            disk: Arc::new(Mutex::new(disk)),
            released: Arc::default(),
        }
    }

    /// Returns the root directory, which always exists.
    pub fn root(&self) -> Arc<dyn Directory> {
        Arc::new(OpenDirectory::root(self.clone()))
    }

    /// Simulates a loss of power and returns the disk as the next boot finds it. Every handle of
    /// this disk fails from now on with "power lost".
    pub fn crash(&self, seed: u64) -> ForgettingStorage {
        let after = self.if_crashed(seed);
        self.lock().lose_power();
        after
    }

    /// Returns the disk after a crash, like [`ForgettingStorage::crash`], but leaves this disk
    /// running. Tests use it to check many outcomes of one moment.
    pub fn if_crashed(&self, seed: u64) -> ForgettingStorage {
        ForgettingStorage::from_disk(self.lock().after_crash(seed))
    }

    /// Simulates a killed process. All of its changes remain visible, but not synced. Its handles
    /// fail from now on and its locks are released. If [`ForgettingStorage::fail_after`] has
    /// triggered, the process died at that moment.
    pub fn kill(&self) -> ForgettingStorage {
        let mut dead = Disk::new();
        dead.lose_power();
        let mut disk = std::mem::replace(&mut *self.lock(), dead);
        disk.outlive_process();
        ForgettingStorage::from_disk(disk)
    }

    /// Simulates a loss of power during the `step`-th mutating call from the disk's start (1 is the
    /// first). That call may or may not take effect. It and all later calls fail.
    pub fn fail_after(&self, step: u64) {
        self.lock().faults.power_lost_at = Some(step);
    }

    /// Returns the number of mutating calls so far.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Limits the total number of bytes that writes may take from now on. Later writes fail because
    /// the disk is full. Bytes within the limit stay.
    pub fn fill_after_bytes(&self, bytes: u64) {
        self.lock().faults.room_bytes = Some(bytes);
    }

    /// Makes a sync of a file or directory fail, after `count` successful ones, and lose its data.
    pub fn fail_sync_after(&self, count: u64) {
        self.lock().faults.syncs_until_failure = Some(count);
    }

    /// Makes a rename fail without effect, after `count` successful ones.
    pub fn fail_rename_after(&self, count: u64) {
        self.lock().faults.renames_until_failure = Some(count);
    }

    /// True if the failure of [`ForgettingStorage::fail_rename_after`] has not happened yet.
    pub fn has_rename_fault(&self) -> bool {
        self.lock().faults.renames_until_failure.is_some()
    }

    /// Makes the file system go down at a sync of a directory, after `count` successful ones. From
    /// then on, no change is accepted or kept. The results of later syncs depend on the kind of
    /// file system, see [`Down`].
    pub fn go_down_at_directory_sync(&self, count: u64, down: Down) {
        self.lock().faults.directory_syncs_until_down = Some((count, down));
    }

    /// True if the failure of [`ForgettingStorage::go_down_at_directory_sync`] has not happened.
    pub fn is_up(&self) -> bool {
        self.lock().down.is_none()
    }

    /// Makes each `sync_data` of a file wait for [`ForgettingStorage::release_syncs`], like a very
    /// slow disk.
    pub fn hold_syncs(&self) {
        self.lock().holds_syncs = true;
    }

    /// Ends the waiting of current and future syncs.
    pub fn release_syncs(&self) {
        self.lock().holds_syncs = false;
        self.released.notify_all();
    }

    /// From now on, opening a file for direct I/O succeeds, and using it fails. Data then goes
    /// through the page cache.
    pub fn refuse_direct(&self) {
        self.lock().refuses_direct = true;
    }

    /// From now on, names that differ only in the case of ASCII letters are the same.
    pub fn fold_case(&self) {
        self.lock().folds_case = true;
    }

    /// Permits several names of an inode from now on. Before, creating a further one fails.
    pub fn allow_links(&self) {
        self.lock().has_links = true;
    }

    /// From now on, links are durable only after a sync of the whole file system.
    pub fn remove_journal(&self) {
        self.lock().lacks_journal = true;
    }

    /// Runs `what` just before the next `sync_all` of a file, to simulate another process that acts
    /// during the sync.
    pub fn before_next_sync_all(&self, what: impl FnOnce() + Send + 'static) {
        self.lock().interruption = Some(Box::new(what));
    }

    /// True if the failure of [`ForgettingStorage::fail_sync_after`] has not happened yet.
    pub fn has_sync_fault(&self) -> bool {
        self.lock().faults.syncs_until_failure.is_some()
    }

    /// Locks the disk once a sync of data may continue.
    fn lock_to_sync(&self) -> MutexGuard<'_, Disk> {
        let disk = self.lock();
        let waited = self.released.wait_while(disk, |disk| disk.holds_syncs);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        // A panic of a test in another thread must not cause a second panic that hides the first.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error of every call after the loss of power.
fn power_lost() -> io::Error {
    io::Error::other("power lost")
}

fn system_error(number: rustix::io::Errno) -> io::Error {
    io::Error::from_raw_os_error(number.raw_os_error())
}
