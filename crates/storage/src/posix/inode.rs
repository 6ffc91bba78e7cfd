//! Owner and extended attributes of an open file, or of an entry in an open directory.
//!
//! An entry is opened with `O_PATH` at its first use, so that all calls act on the same inode. Its
//! extended attributes and mode are accessed through `/proc/self/fd`, which leads to that inode,
//! even for a link: before Linux 6.13, no system call accepts such a handle.

use std::cell::OnceCell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::{Errno, retry_on_intr};

use super::status::{permission_bits, status_from};
use crate::attributes::Inode;
use crate::{FileKind, Status};

/// Initial size in bytes of the buffer for names or a value. It grows if they do not fit.
const USUAL_BYTES: usize = 1024;

/// Maximum size in bytes of an inode's names or of a value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MOST_BYTES: usize = 64 << 10;

pub(super) enum PosixInode<'a> {
    Open(BorrowedFd<'a>),
    Named(Named<'a>),
}

/// An entry of a directory, looked up once.
pub(super) struct Named<'a> {
    directory: BorrowedFd<'a>,
    name: Box<[u8]>,
    found: OnceCell<OwnedFd>,
}

impl<'a> PosixInode<'a> {
    pub(super) fn named(directory: BorrowedFd<'a>, name: &[u8]) -> PosixInode<'a> {
        PosixInode::Named(Named {
            directory,
            name: name.into(),
            found: OnceCell::new(),
        })
    }
}

impl Named<'_> {
    /// Returns a handle that identifies the inode. Opening it does not follow a link or access a
    /// device.
    fn handle(&self) -> io::Result<BorrowedFd<'_>> {
        if self.found.get().is_none() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let open = || rustix::fs::openat(self.directory, &*self.name, flags, Mode::empty());
            // No other thread can have set it.
            let _ = self.found.set(retry_on_intr(open)?);
        }
        let found = self.found.get().ok_or(Errno::BADF)?;
        Ok(found.as_fd())
    }

    /// Returns a path that leads to the inode, even if its name was given to another one.
    fn path(&self) -> io::Result<CString> {
        let path = format!("/proc/self/fd/{}", self.handle()?.as_raw_fd());
        Ok(CString::new(path)?)
    }
}

/// Calls `ask` with a buffer that grows if the result does not fit.
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
    fn status(&self) -> io::Result<Status> {
        let of = match self {
            PosixInode::Open(file) => *file,
            PosixInode::Named(named) => named.handle()?,
        };
        Ok(status_from(&retry_on_intr(|| rustix::fs::fstat(of))?))
    }

    fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        let of = match self {
            PosixInode::Open(file) => {
                return Ok(retry_on_intr(|| rustix::fs::fchown(file, user, group))?);
            }
            PosixInode::Named(named) => named.handle()?,
        };
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        let set = || rustix::fs::chownat(of, c"", user, group, flags);
        Ok(retry_on_intr(set)?)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let mode = permission_bits(mode)?;
        match self {
            PosixInode::Open(file) => rustix::fs::fchmod(file, mode)?,
            PosixInode::Named(named) => {
                if self.status()?.kind == FileKind::Symlink {
                    return Err(Errno::OPNOTSUPP.into());
                }
                rustix::fs::chmod(named.path()?, mode)?;
            }
        }
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let listed = match self {
            PosixInode::Open(file) => grown(|bytes| rustix::fs::flistxattr(file, bytes)),
            PosixInode::Named(named) => {
                let path = named.path()?;
                grown(|bytes| rustix::fs::listxattr(&path, bytes))
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
            PosixInode::Named(named) => {
                let path = named.path()?;
                grown(|bytes| rustix::fs::getxattr(&path, name, bytes))
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
            PosixInode::Named(named) => {
                rustix::fs::setxattr(named.path()?, name, value, flags)?;
            }
        }
        Ok(())
    }

    fn remove(&self, name: &[u8]) -> io::Result<()> {
        let removed = match self {
            PosixInode::Open(file) => rustix::fs::fremovexattr(file, name),
            PosixInode::Named(named) => rustix::fs::removexattr(named.path()?, name),
        };
        match removed {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            removed => Ok(removed?),
        }
    }
}
