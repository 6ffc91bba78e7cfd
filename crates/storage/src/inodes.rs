//! Tells a file system that has no inodes left from one that has no bytes left: the kernel has one
//! error (`ENOSPC`) for both.

use std::io;
use std::os::fd::BorrowedFd;

use longhaul_units::ByteCount;
use rustix::io::Errno;

/// A file system has no inodes left, so that no file, directory or link can be made.
#[derive(Debug, thiserror::Error)]
#[error("its file system has no inodes left, although {0} are free")]
pub struct NoInodes(pub ByteCount);

impl NoInodes {
    /// The one within an error.
    pub fn within(error: &io::Error) -> Option<&NoInodes> {
        error.get_ref()?.downcast_ref()
    }
}

/// The result of making a name in a directory, where the error says if inodes are missing.
///
/// # Errors
///
/// The same, or [`NoInodes`] within.
pub(super) fn or_no_inodes<T>(directory: BorrowedFd<'_>, made: io::Result<T>) -> io::Result<T> {
    made.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::NOSPC.raw_os_error() => {
            let missing = without_inodes(directory).map(NoInodes);
            missing.map_or(error, |it| io::Error::new(io::ErrorKind::StorageFull, it))
        }
        _ => error,
    })
}

/// The bytes that are free in a file system without free inodes; `None` of others. A file system
/// that makes inodes as needed says that it has 0 in all.
fn without_inodes(directory: BorrowedFd<'_>) -> Option<ByteCount> {
    let room = rustix::fs::fstatvfs(directory).ok()?;
    let is_missing = room.f_files > 0 && room.f_favail == 0 && room.f_bavail > 0;
    is_missing.then(|| ByteCount(room.f_bavail.saturating_mul(room.f_frsize)))
}
