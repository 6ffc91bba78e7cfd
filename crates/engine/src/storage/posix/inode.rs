//! Owner and extended attributes of what is open, or has a name in a directory that is.
//!
//! Extended attributes of a name are reached through `/proc/self/fd`, whose last name is not
//! followed: no call before Linux 6.13 takes a directory's handle and a name.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::{Errno, retry_on_intr};

use super::status::permission_bits;
use crate::storage::attributes::Inode;

/// Bytes of names or of a value at first; more are asked for where they do not fit.
const USUAL_BYTES: usize = 1024;

/// What the kernel lets an inode have (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MOST_BYTES: usize = 64 << 10;

pub(super) enum PosixInode<'a> {
    Open(BorrowedFd<'a>),
    Named(BorrowedFd<'a>, Box<[u8]>),
}

impl PosixInode<'_> {
    fn path(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<CString> {
        let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
        path.extend(name);
        Ok(CString::new(path)?)
    }

    /// What a name is, opened to be named by its handle alone.
    fn pinned(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
    }
}

/// Asks for something of unknown length.
fn grown(
    mut ask: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; USUAL_BYTES];
    loop {
        match ask(&mut bytes) {
            Ok(length) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            Err(Errno::INTR) => {}
            Err(Errno::RANGE) if bytes.len() < MOST_BYTES => bytes.resize(MOST_BYTES, 0),
            Err(error) => return Err(error),
        }
    }
}

impl Inode for PosixInode<'_> {
    fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        let set = || match self {
            PosixInode::Open(file) => rustix::fs::fchown(file, user, group),
            PosixInode::Named(directory, name) => {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(directory, &**name, user, group, flags)
            }
        };
        Ok(retry_on_intr(set)?)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let mode = permission_bits(mode)?;
        match self {
            PosixInode::Open(file) => rustix::fs::fchmod(file, mode)?,
            PosixInode::Named(directory, name) => {
                let pinned = PosixInode::pinned(*directory, name)?;
                let stat = rustix::fs::fstat(&pinned)?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                    return Err(Errno::OPNOTSUPP.into());
                }
                let path = format!("/proc/self/fd/{}", pinned.as_fd().as_raw_fd());
                rustix::fs::chmod(path, mode)?;
            }
        }
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let listed = match self {
            PosixInode::Open(file) => grown(|bytes| rustix::fs::flistxattr(file, bytes)),
            PosixInode::Named(directory, name) => {
                let path = PosixInode::path(*directory, name)?;
                grown(|bytes| rustix::fs::llistxattr(&path, bytes))
            }
        };
        let listed = match listed {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
            listed => listed?,
        };
        let names = listed.split(|byte| *byte == 0);
        Ok(names
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect())
    }

    fn get(&self, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let value = match self {
            PosixInode::Open(file) => grown(|bytes| rustix::fs::fgetxattr(file, name, bytes)),
            PosixInode::Named(directory, of) => {
                let path = PosixInode::path(*directory, of)?;
                grown(|bytes| rustix::fs::lgetxattr(&path, name, bytes))
            }
        };
        match value {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            value => Ok(Some(value?)),
        }
    }

    fn set(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let flags = XattrFlags::empty();
        match self {
            PosixInode::Open(file) => rustix::fs::fsetxattr(file, name, value, flags)?,
            PosixInode::Named(directory, of) => {
                let path = PosixInode::path(*directory, of)?;
                rustix::fs::lsetxattr(&path, name, value, flags)?;
            }
        }
        Ok(())
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        let removed = match self {
            PosixInode::Open(file) => rustix::fs::fremovexattr(file, name),
            PosixInode::Named(directory, of) => {
                let path = PosixInode::path(*directory, of)?;
                rustix::fs::lremovexattr(&path, name)
            }
        };
        match removed {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            removed => Ok(removed?),
        }
    }
}
