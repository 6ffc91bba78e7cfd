//! Checks that the destination's file systems still accept changes, before data on them counts as
//! durable.
//!
//! A file system that went down may report success for a sync that stored no data. When ext4's
//! journal fails, it reports the error to the thread that waits for that transaction. A later sync
//! finds the transaction gone and has no work left. XFS, after a shutdown, has no writes for a
//! directory. But neither accepts further changes. Therefore a change is made in memory after the
//! syncs. It costs no flush of the disk, and it succeeds only if the synced data is on the disk.

use std::io;

use longhaul_proto::message::Failure;
use longhaul_storage::failure::failure_of;
use rustix::io::Errno;

use super::ReceiveSide;
use super::commit::{Staged, by_folder};
use super::folders::Folder;
use super::landing::file_time_now;

impl ReceiveSide {
    /// Returns an error if a directory's file system is down. Call it only after successful syncs.
    ///
    /// # Errors
    ///
    /// Returns the error of the attempted change, if it means that the file system is down.
    pub(super) fn ensure_up(&self, folder: &Folder) -> io::Result<()> {
        let device = folder.device();
        let changed = match self.destination.witness().filter(|_| device.is_ok()) {
            Some((at, witness)) if device.is_ok_and(|device| device == at) => {
                witness.set_modified(file_time_now())
            }
            // Another file system is mounted there. The directory gets the time that it already
            // has.
            _ => {
                let directory = folder.directory();
                let status = directory.status();
                status.and_then(|status| directory.set_modified(status.modified))
            }
        };
        match changed {
            Err(error) if is_down(&error) => Err(io::Error::other(format!(
                "its file system takes no changes any more ({error}): look for errors in the \
                 kernel's log, then run the same command again"
            ))),
            // A change that is refused for lack of rights gives no information.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Checks each file system of a batch whose names were synced. If one is down, or the sync of
    /// one of its directories `failed`, none of its entries counts as durable.
    pub(super) fn fail_what_is_down(
        &self,
        staged: &[Staged],
        failed: Vec<(usize, io::Error)>,
        results: &mut [Result<(), Failure>],
    ) {
        let device_of = |place: usize| staged[place].file.folder.device().ok();
        let failed = failed.into_iter();
        let mut known: Vec<(Option<u64>, Option<io::Error>)> = failed
            .map(|(place, error)| (device_of(place), Some(error)))
            .collect();
        for places in by_folder(staged, 0..staged.len()) {
            let Some(&first) = places.iter().find(|place| results[**place].is_ok()) else {
                continue;
            };
            let device = device_of(first);
            if !known.iter().any(|(other, _)| *other == device) {
                let up = self.ensure_up(&staged[first].file.folder);
                known.push((device, up.err()));
            }
            let error = known.iter().find(|(other, _)| *other == device);
            let Some((_, Some(error))) = error else {
                continue;
            };
            for place in places {
                if results[place].is_ok() {
                    let shown = staged[place].entry.path.to_string();
                    results[place] = Err(failure_of("make durable", &shown, error));
                }
            }
        }
    }
}

/// True if an error means that a file system or its device is gone; other errors concern one file
/// or the user's rights.
fn is_down(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(
            Errno::IO
                | Errno::ROFS
                | Errno::NXIO
                | Errno::NODEV
                | Errno::UCLEAN
                | Errno::SHUTDOWN
                | Errno::STALE
                | Errno::NOTCONN
        )
    )
}
