//! Attributes of directory entries.

use longhaul_proto::manifest::{Ownership, SpecialKind, Timestamp};

/// Kind of a directory entry, from `lstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or FIFO.
    Special,
}

/// Attributes of a directory entry, from `lstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Kind of the entry.
    pub kind: FileKind,
    /// Permission bits, 0 to 0o7777.
    pub mode: u32,
    /// User and group that own the entry.
    pub owner: Ownership,
    /// Size in bytes.
    pub size: u64,
    /// Allocated storage in bytes.
    pub allocated: u64,
    /// Device number, valid until the next boot.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Time of the last change of the data.
    pub modified: Timestamp,
    /// Time of the last change of the inode.
    pub changed: Timestamp,
    /// Number of names of the inode (hard links).
    pub names: u64,
    /// Kind and number of a device, socket or FIFO; `None` for other entries.
    pub special: Option<Special>,
}

impl Status {
    /// Returns the attributes of an entry that lies on no disk and has no owner.
    pub fn on_no_disk(kind: FileKind, mode: u32, size: u64) -> Status {
        Status {
            kind,
            mode,
            owner: Ownership::default(),
            size,
            allocated: size,
            device: 0,
            inode: 0,
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            names: 1,
            special: None,
        }
    }
}

/// A device, socket or FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Special {
    /// Kind of the special file.
    pub kind: SpecialKind,
    /// Major and minor number of a device, else 0.
    pub device: (u32, u32),
}
