//! Converts file attributes to the types of FUSE.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::Timespec;

use super::super::nodes::ROOT;

/// Time for which the kernel may cache attributes. Only the mirror changes the directory
/// behind it.
pub const VALID: Duration = Duration::from_secs(1);

/// Returns the attributes of a file. `top` is the inode number of the mirrored root.
pub fn attributes(metadata: &Metadata, top: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number(metadata.ino(), top)),
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: moment(metadata.atime(), metadata.atime_nsec()),
        mtime: moment(metadata.mtime(), metadata.mtime_nsec()),
        ctime: moment(metadata.ctime(), metadata.ctime_nsec()),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(metadata.file_type()),
        perm: (metadata.mode() & 0o7777) as u16,
        nlink: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: metadata.rdev() as u32,
        blksize: u32::try_from(metadata.blksize()).unwrap_or(4096),
        flags: 0,
    }
}

/// Returns the FUSE number of an inode. The root has a fixed number.
pub fn number(inode: u64, top: u64) -> u64 {
    match inode {
        inode if inode == top => ROOT,
        // Only the root of a file system has this number, and that root is `top`.
        ROOT => u64::MAX,
        inode => inode,
    }
}

/// Converts a file type.
pub fn kind(kind: std::fs::FileType) -> FileType {
    if kind.is_dir() {
        FileType::Directory
    } else if kind.is_symlink() {
        FileType::Symlink
    } else if kind.is_fifo() {
        FileType::NamedPipe
    } else if kind.is_socket() {
        FileType::Socket
    } else if kind.is_block_device() {
        FileType::BlockDevice
    } else if kind.is_char_device() {
        FileType::CharDevice
    } else {
        FileType::RegularFile
    }
}

fn moment(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let part = Duration::from_nanos(nanoseconds.clamp(0, 999_999_999) as u64);
    let base = if seconds >= 0 {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    };
    base.and_then(|base| base.checked_add(part))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Converts a time for `utimensat`. `None` leaves the file's time unchanged.
pub fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, rustix::fs::UTIME_OMIT),
        Some(TimeOrNow::Now) => (0, rustix::fs::UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(span) => (
                i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
                i64::from(span.subsec_nanos()),
            ),
            Err(before) => {
                let span = before.duration();
                let part = i64::from(span.subsec_nanos());
                let whole = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
                match part {
                    0 => (-whole, 0),
                    part => (-whole - 1, 1_000_000_000 - part),
                }
            }
        },
    };
    Timespec { tv_sec, tv_nsec }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_survive() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-5, 7), (-1, 999_999_999), (-3, 0)] {
            let there = moment(seconds, nanoseconds);
            let back = timespec(Some(TimeOrNow::SpecificTime(there)));
            assert_eq!((back.tv_sec, back.tv_nsec), (seconds, nanoseconds));
        }
    }

    #[test]
    fn the_root_has_a_fixed_number() {
        assert_eq!(number(77, 77), ROOT);
        assert_eq!(number(ROOT, 77), u64::MAX);
        assert_eq!(number(78, 77), 78);
    }
}
