//! The inode that a file represents: the attribute `user.rsync.%stat`.

use std::io;

use longhaul_proto::manifest::{Ownership, SpecialKind};

use crate::attributes::Inode;
use crate::{FileKind, Special, Status};

/// Name of the attribute.
pub(super) const STAT: &[u8] = b"user.rsync.%stat";

/// Maximum length in bytes of a value of [`STAT`] that is read. It holds five numbers.
const MOST_STAT_BYTES: usize = 256;

/// Permissions that the owner needs to change a file, and a directory.
pub(super) const OWNER_OF_FILE: u32 = 0o600;
pub(super) const OWNER_OF_DIRECTORY: u32 = 0o700;

/// Mode bits that are stored in the file's real mode.
pub(super) const PLAIN_BITS: u32 = 0o777;

/// Kinds of files by the type bits of the mode (`inode(7)`).
const KINDS: [(u32, Kind); 7] = [
    (0o010_000, Kind::Special(SpecialKind::Fifo)),
    (0o020_000, Kind::Special(SpecialKind::Character)),
    (0o040_000, Kind::Directory),
    (0o060_000, Kind::Special(SpecialKind::Block)),
    (0o100_000, Kind::File),
    (0o120_000, Kind::Symlink),
    (0o140_000, Kind::Special(SpecialKind::Socket)),
];

const KIND_BITS: u32 = 0o170_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    Special(SpecialKind),
}

/// The inode that a file represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Faked {
    pub kind: Kind,
    pub mode: u32,
    pub device: (u32, u32),
    pub owner: Ownership,
}

impl Faked {
    /// Describes a file without the attribute.
    fn of(status: &Status) -> Faked {
        let (kind, device) = match (status.kind, status.special) {
            (FileKind::Directory, _) => (Kind::Directory, (0, 0)),
            (FileKind::Symlink, _) => (Kind::Symlink, (0, 0)),
            (FileKind::Special, Some(special)) => (Kind::Special(special.kind), special.device),
            (FileKind::File | FileKind::Special, _) => (Kind::File, (0, 0)),
        };
        Faked {
            kind,
            mode: status.mode,
            device,
            owner: status.owner,
        }
    }

    /// Parses the attribute of a file; `None` if it is malformed or does not fit this kind of file.
    pub fn read(value: &[u8], status: &Status) -> Option<Faked> {
        let text = std::str::from_utf8(value.get(..value.len().min(MOST_STAT_BYTES))?).ok()?;
        let mut words = text.split_ascii_whitespace();
        let mode = u32::from_str_radix(words.next()?, 8).ok()?;
        let pair = |text: &str, between| {
            let (first, second) = text.split_once(between)?;
            Some((first.parse().ok()?, second.parse().ok()?))
        };
        let device = pair(words.next()?, ',')?;
        let (user, group) = pair(words.next()?, ':')?;
        let (_, kind) = *KINDS.iter().find(|(bits, _)| mode & KIND_BITS == *bits)?;
        let is_directory = status.kind == FileKind::Directory;
        let fits = is_directory == (kind == Kind::Directory);
        fits.then_some(Faked {
            kind,
            mode: mode & 0o7777,
            device,
            owner: Ownership { user, group },
        })
    }

    pub fn write(&self) -> Vec<u8> {
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind);
        let mode = kind.map_or(0, |(bits, _)| *bits) | self.mode;
        let ((major, minor), Ownership { user, group }) = (self.device, self.owner);
        format!("{mode:o} {major},{minor} {user}:{group}").into_bytes()
    }

    /// Returns the mode that the file itself needs.
    fn real_mode(&self) -> u32 {
        match self.kind {
            Kind::Directory => self.mode & PLAIN_BITS | OWNER_OF_DIRECTORY,
            // A link's mode has no meaning, and other users must not change its target.
            Kind::Symlink => OWNER_OF_FILE,
            Kind::File | Kind::Special(_) => self.mode & PLAIN_BITS | OWNER_OF_FILE,
        }
    }

    pub fn status(&self, real: Status) -> Status {
        Status {
            kind: match self.kind {
                Kind::File => FileKind::File,
                Kind::Directory => FileKind::Directory,
                Kind::Symlink => FileKind::Symlink,
                Kind::Special(_) => FileKind::Special,
            },
            mode: self.mode,
            owner: self.owner,
            size: match self.kind {
                Kind::Special(_) => 0,
                _ => real.size,
            },
            special: match self.kind {
                Kind::Special(kind) => Some(Special {
                    kind,
                    device: self.device,
                }),
                _ => None,
            },
            ..real
        }
    }
}

/// True if the file can represent another kind. Real links and devices only represent themselves.
fn stands(status: &Status) -> bool {
    matches!(status.kind, FileKind::File | FileKind::Directory)
}

/// Returns the real status of an inode, and the inode that it represents.
pub(super) fn look(inode: &dyn Inode) -> io::Result<(Status, Faked)> {
    let real = inode.status()?;
    let value = if stands(&real) {
        inode.get(STAT)?
    } else {
        None
    };
    let faked = value.and_then(|value| Faked::read(&value, &real));
    Ok((real, faked.unwrap_or(Faked::of(&real))))
}

pub(super) fn status_of(inode: &dyn Inode) -> io::Result<Status> {
    let (real, faked) = look(inode)?;
    Ok(faked.status(real))
}

/// Makes an inode represent `faked`.
pub(super) fn pretend(inode: &dyn Inode, real: &Status, faked: &Faked) -> io::Result<()> {
    if !stands(real) {
        return Ok(());
    }
    let mode = faked.real_mode();
    if real.mode != mode {
        inode.set_mode(mode)?;
    }
    let plain = Faked {
        mode,
        ..Faked::of(real)
    };
    if *faked == plain {
        return inode.remove(STAT);
    }
    let value = faked.write();
    if inode.get(STAT)?.as_deref() == Some(&value[..]) {
        Ok(())
    } else {
        inode.set(STAT, &value)
    }
}

/// Sets the represented mode. Fails for a symbolic link.
pub(super) fn set_mode(inode: &dyn Inode, mode: u32) -> io::Result<()> {
    if mode > 0o7777 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (real, faked) = look(inode)?;
    match faked.kind {
        Kind::Symlink => Err(rustix::io::Errno::OPNOTSUPP.into()),
        _ => pretend(inode, &real, &Faked { mode, ..faked }),
    }
}
