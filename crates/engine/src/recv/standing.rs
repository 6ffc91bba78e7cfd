//! Whether the destination's file systems still take changes, asked before anything in them is
//! called durable.
//!
//! One that went down may call a sync a success that kept nothing. When ext4's journal fails, it
//! tells the waiting thread for that transaction; a sync that comes later finds the transaction
//! gone, and nothing left to do. XFS, shut down, finds nothing to write for a directory. But
//! neither takes a change any more. So something is changed after the syncs, in memory: that costs
//! no flush of the disk, and succeeds only where all that was synced before it is on the disk.

use std::io;

use longhaul_proto::message::Failure;
use longhaul_storage::failure::failure_of;
use rustix::io::Errno;

use super::ReceiveSide;
use super::commit::{Staged, by_folder};
use super::folders::Folder;
use super::landing::file_time_now;

impl ReceiveSide {
    /// Whether a directory's file system is up. Only to be asked after syncs succeeded.
    ///
    /// # Errors
    ///
    /// What it says to a change, where that means that it is down.
    pub(super) fn ensure_up(&self, folder: &Folder) -> io::Result<()> {
        let device = folder.device();
        let changed = match self.destination.witness().filter(|_| device.is_ok()) {
            Some((at, witness)) if device.is_ok_and(|device| device == at) => {
                witness.set_modified(file_time_now())
            }
            // Another file system is mounted there. A directory's time is not final before
            // everything in it is done, and stays what it is here.
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
            // Whoever may not change it learns nothing.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The same for each file system of a batch whose names were synced: where one is down, or
    /// the sync of one of its directories `failed`, none of its entries is durable.
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

/// Whether an error says that a file system, or its device, is gone; others are about one file,
/// or about who asks.
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
