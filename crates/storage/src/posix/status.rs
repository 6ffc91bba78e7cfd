//! Converts between the kernel's structures and longhaul's.

use std::io;

use longhaul_proto::manifest::{Ownership, SpecialKind, Timestamp};
use rustix::fs::{FileType, Mode, Stat, Timespec, Timestamps, UTIME_NOW};

use crate::{FileKind, Special, Status};

/// Size in bytes of a unit of `st_blocks`, independent of the file system's block size.
const STATUS_BLOCK_BYTES: u64 = 512;

const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

pub(super) fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Special,
    }
}

#[allow(
    clippy::unnecessary_cast,
    reason = "the widths differ between systems; the kernel gives nothing negative but seconds"
)]
pub(super) fn status_from(stat: &Stat) -> Status {
    Status {
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        mode: stat.st_mode as u32 & 0o7777,
        owner: Ownership {
            user: stat.st_uid,
            group: stat.st_gid,
        },
        size: stat.st_size as u64,
        allocated: stat.st_blocks as u64 * STATUS_BLOCK_BYTES,
        device: stat.st_dev as u64,
        inode: stat.st_ino as u64,
        modified: Timestamp {
            seconds: stat.st_mtime as i64,
            nanoseconds: stat.st_mtime_nsec as u32,
        },
        changed: Timestamp {
            seconds: stat.st_ctime as i64,
            nanoseconds: stat.st_ctime_nsec as u32,
        },
        names: stat.st_nlink as u64,
        special: special_of(stat),
    }
}

fn special_of(stat: &Stat) -> Option<Special> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => SpecialKind::Fifo,
        FileType::Socket => SpecialKind::Socket,
        FileType::CharacterDevice => SpecialKind::Character,
        FileType::BlockDevice => SpecialKind::Block,
        _ => return None,
    };
    let device = if kind.is_device() {
        (
            rustix::fs::major(stat.st_rdev),
            rustix::fs::minor(stat.st_rdev),
        )
    } else {
        (0, 0)
    };
    Some(Special { kind, device })
}

pub(super) fn file_type(kind: SpecialKind) -> FileType {
    match kind {
        SpecialKind::Fifo => FileType::Fifo,
        SpecialKind::Socket => FileType::Socket,
        SpecialKind::Character => FileType::CharacterDevice,
        SpecialKind::Block => FileType::BlockDevice,
    }
}

/// Returns times for `utimensat`. The access time becomes the current time, because FUSE file
/// systems on version 2 of its library set either both times or none.
///
/// Nanoseconds are checked because they may come from a peer, and the kernel interprets two larger
/// values as commands (set to now, and leave unchanged).
pub(super) fn times_of(modified: Timestamp) -> io::Result<Timestamps> {
    if modified.nanoseconds >= NANOSECONDS_PER_SECOND {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a time has more nanoseconds than a second",
        ));
    }
    Ok(Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    })
}

pub(super) fn permission_bits(mode: u32) -> io::Result<Mode> {
    if mode > 0o7777 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a mode has more than permission bits",
        ));
    }
    Ok(Mode::from_raw_mode(mode as _))
}
