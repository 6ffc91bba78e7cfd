//! Distinguishes file systems without free inodes from full ones, because the kernel has one error
//! (`ENOSPC`) for both.

use std::io;
use std::os::fd::BorrowedFd;

use longhaul_units::ByteCount;
use rustix::io::Errno;

/// Error for a file system without free inodes, in which no file, directory or link can be created.
#[derive(Debug, thiserror::Error)]
#[error("its file system has no inodes left, although {0} are free")]
pub struct NoInodes(pub ByteCount);

impl NoInodes {
    /// Returns the `NoInodes` inside an error.
    pub fn within(error: &io::Error) -> Option<&NoInodes> {
        error.get_ref()?.downcast_ref()
    }
}

/// Converts the error of creating a directory entry, if inodes are the cause.
///
/// # Errors
///
/// The same error, or one that contains [`NoInodes`].
pub(super) fn or_no_inodes<T>(directory: BorrowedFd<'_>, made: io::Result<T>) -> io::Result<T> {
    made.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::NOSPC.raw_os_error() => {
            let missing = without_inodes(directory).map(NoInodes);
            missing.map_or(error, |it| io::Error::new(io::ErrorKind::StorageFull, it))
        }
        _ => error,
    })
}

/// Returns the number of free bytes of a file system without free inodes; `None` for others. A file
/// system that creates inodes as needed reports a total of 0.
fn without_inodes(directory: BorrowedFd<'_>) -> Option<ByteCount> {
    let room = rustix::fs::fstatvfs(directory).ok()?;
    let is_missing = room.f_files > 0 && room.f_favail == 0 && room.f_bavail > 0;
    is_missing.then(|| ByteCount(room.f_bavail.saturating_mul(room.f_frsize)))
}
