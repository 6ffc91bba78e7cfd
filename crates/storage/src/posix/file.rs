//! An open file on this host.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use longhaul_proto::manifest::Timestamp;
use rustix::fs::{FlockOperation, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::inode::PosixInode;
use super::promise::Promise;
use super::status::{permission_bits, status_from, times_of};
use crate::attributes::Inode;
use crate::direct::DirectPath;
use crate::uncached::{self, UncachedPath};
use crate::{Advice, DataMode, DataRange, Status, StoredFile, buffered};
use longhaul_system::refusals::or_without;

/// A file, with the mode of its data transfers.
pub(super) struct PosixFile {
    /// Buffered descriptor. It is used for locks, times, syncs, and all data except aligned direct
    /// data.
    descriptor: OwnedFd,
    device: u64,
    path: DataPath,
    promise: OnceLock<Promise>,
}

enum DataPath {
    Buffered,
    Direct(DirectPath),
    Uncached(UncachedPath),
}

impl PosixFile {
    /// Wraps a regular file on a device. `reopen` opens its name again with additional flags.
    pub(super) fn new(
        (descriptor, device): (OwnedFd, u64),
        mode: DataMode,
        reopen: impl FnOnce(OFlags) -> rustix::io::Result<OwnedFd>,
    ) -> PosixFile {
        let path = match mode {
            DataMode::Buffered => DataPath::Buffered,
            DataMode::Uncached => DataPath::Uncached(UncachedPath::new(descriptor.as_fd())),
            DataMode::Direct => DirectPath::open(descriptor.as_fd(), reopen)
                .map_or(DataPath::Buffered, DataPath::Direct),
            DataMode::Bypass => DirectPath::open(descriptor.as_fd(), reopen).map_or_else(
                || DataPath::Uncached(UncachedPath::new(descriptor.as_fd())),
                DataPath::Direct,
            ),
        };
        PosixFile {
            descriptor,
            device,
            path,
            promise: OnceLock::new(),
        }
    }

    /// Takes a lock without waiting; false if another open file excludes it.
    fn take_lock(&self, operation: FlockOperation) -> io::Result<bool> {
        match retry_on_intr(|| rustix::fs::flock(&self.descriptor, operation)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Syncs, and then drops the durable pages from the page cache if the mode is uncached.
    fn sync_with(&self, sync: fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        let file = self.descriptor.as_fd();
        let DataPath::Uncached(path) = &self.path else {
            return sync(file);
        };
        let written = path.take_written();
        sync(file)?;
        if let Some(range) = written {
            path.drop_written(file, range);
        }
        Ok(())
    }

    /// Returns the rest of the file as data, for file systems that do not report holes.
    fn data_without_holes(&self, offset: u64) -> io::Result<Option<DataRange>> {
        let end = self.status()?.size;
        let range = DataRange { start: offset, end };
        Ok((offset < end).then_some(range))
    }
}

impl StoredFile for PosixFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let file = self.descriptor.as_fd();
        match &self.path {
            DataPath::Buffered => buffered::read_fully(file, buffer, offset),
            DataPath::Direct(path) => path.read_at(file, buffer, offset),
            DataPath::Uncached(path) => path.read_at(file, buffer, offset),
        }
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let file = self.descriptor.as_fd();
        match &self.path {
            DataPath::Buffered => buffered::read_cached(file, buffer, offset),
            DataPath::Direct(_) => 0,
            DataPath::Uncached(_) => uncached::read_cached(file, buffer, offset),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let file = self.descriptor.as_fd();
        match &self.path {
            DataPath::Buffered => buffered::write_fully(file, data, offset),
            DataPath::Direct(path) => path.write_at(file, data, offset),
            DataPath::Uncached(path) => path.write_at(file, data, offset),
        }?;
        if let Some(promise) = self.promise.get() {
            promise.keep(data.len() as u64);
        }
        Ok(())
    }

    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        Some(Box::new(PosixInode::Open(self.descriptor.as_fd())))
    }

    fn status(&self) -> io::Result<Status> {
        status(self.descriptor.as_fd())
    }

    fn has_other_names(&self) -> io::Result<bool> {
        has_other_names(self.descriptor.as_fd())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(&self.descriptor, length))?;
        Ok(())
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        if self.promise.get().is_some() {
            // A second promise for the same file would cover the same bytes.
            return Ok(());
        }
        if room_in_memory(self.descriptor.as_fd()).is_some() {
            let status = self.status()?;
            let file = (self.device, status.inode);
            let room = || room_in_memory(self.descriptor.as_fd()).unwrap_or_default();
            // Blocks that a part already has are not counted in the free space.
            let missing = length.saturating_sub(status.allocated);
            let promise = Promise::make(file, room, missing).ok_or(Errno::NOSPC)?;
            // If another thread has set it, that promise covers the same bytes.
            let _ = self.promise.set(promise);
            return Ok(());
        }
        let reserved = retry_on_intr(|| reserve(self.descriptor.as_fd(), length));
        or_without(reserved.map_err(io::Error::from))
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        let punched = retry_on_intr(|| punch(self.descriptor.as_fd(), offset, length));
        or_without(punched.map_err(io::Error::from))
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode(self.descriptor.as_fd(), mode)
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        set_modified(self.descriptor.as_fd(), modified)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync_with(|file| Ok(retry_on_intr(|| rustix::fs::fdatasync(file))?))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_with(sync_all)
    }

    fn device(&self) -> Option<u64> {
        Some(self.device)
    }

    fn wait_written(&self) -> io::Result<()> {
        buffered::wait_written(self.descriptor.as_fd())
    }

    fn sync_device(&self) -> io::Result<()> {
        if commits_together(self.descriptor.as_fd()) {
            Ok(retry_on_intr(|| rustix::fs::syncfs(&self.descriptor))?)
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        // Reads and writes specify their offset, so moving the position of the descriptor does not
        // affect them.
        let seek = |to| retry_on_intr(|| rustix::fs::seek(&self.descriptor, to));
        let start = match seek(SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return self.data_without_holes(offset),
            Err(error) => return Err(error.into()),
        };
        match seek(SeekFrom::Hole(start)) {
            Ok(end) if end > start => Ok(Some(DataRange { start, end })),
            // The file was truncated or punched in the meantime.
            Ok(_) | Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn advise(&self, advice: Advice, start: u64, length: u64) {
        // Readahead would fill the cache, which an uncached file must avoid.
        let reads_ahead = matches!(advice, Advice::Sequential | Advice::Soon);
        if !(reads_ahead && matches!(self.path, DataPath::Uncached(_))) {
            buffered::advise(self.descriptor.as_fd(), advice, start, length);
        }
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.take_lock(FlockOperation::NonBlockingLockExclusive)
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.take_lock(FlockOperation::NonBlockingLockShared)
    }

    fn data_mode(&self) -> DataMode {
        match &self.path {
            DataPath::Direct(path) if path.works() => DataMode::Direct,
            DataPath::Buffered | DataPath::Direct(_) => DataMode::Buffered,
            DataPath::Uncached(_) => DataMode::Uncached,
        }
    }
}

#[cfg(target_os = "linux")]
fn reserve(file: BorrowedFd<'_>, length: u64) -> rustix::io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    fallocate(file, FallocateFlags::KEEP_SIZE, 0, length)
}

/// Returns the free space in bytes of a file system in memory; `None` for others.
#[cfg(target_os = "linux")]
fn room_in_memory(file: BorrowedFd<'_>) -> Option<u64> {
    const TMPFS: u32 = 0x0102_1994;
    let status = rustix::fs::fstatfs(file).ok()?;
    // The width of `f_type` depends on the architecture, the magic has 32 bits.
    let in_memory = status.f_type as u32 == TMPFS;
    in_memory.then(|| match status.f_blocks {
        // The file system has no limit.
        0 => u64::MAX,
        _ => status.f_bavail.saturating_mul(status.f_bsize as u64),
    })
}

#[cfg(not(target_os = "linux"))]
fn room_in_memory(_: BorrowedFd<'_>) -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn punch(file: BorrowedFd<'_>, offset: u64, length: u64) -> rustix::io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, offset, length)
}

#[cfg(not(target_os = "linux"))]
fn punch(_: BorrowedFd<'_>, _: u64, _: u64) -> rustix::io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: BorrowedFd<'_>, _: u64) -> rustix::io::Result<()> {
    Ok(())
}

/// True if the file system commits all changes together, so that `syncfs` costs about as much as
/// the `fsync` of one file. This is not known for network or stacked file systems.
#[cfg(target_os = "linux")]
fn commits_together(file: BorrowedFd<'_>) -> bool {
    const EXT: u32 = 0xef53;
    const XFS: u32 = 0x5846_5342;
    // The width of `f_type` depends on the architecture, the magic has 32 bits.
    rustix::fs::fstatfs(file).is_ok_and(|status| matches!(status.f_type as u32, EXT | XFS))
}

#[cfg(not(target_os = "linux"))]
fn commits_together(_: BorrowedFd<'_>) -> bool {
    false
}

/// Implements [`StoredFile::has_other_names`].
pub(super) fn has_other_names(file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(retry_on_intr(|| rustix::fs::fstat(file))?.st_nlink > 1)
}

pub(super) fn status(file: BorrowedFd<'_>) -> io::Result<Status> {
    Ok(status_from(&retry_on_intr(|| rustix::fs::fstat(file))?))
}

pub(super) fn set_mode(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    let mode = permission_bits(mode)?;
    retry_on_intr(|| rustix::fs::fchmod(file, mode))?;
    Ok(())
}

pub(super) fn set_modified(file: BorrowedFd<'_>, modified: Timestamp) -> io::Result<()> {
    let times = times_of(modified)?;
    retry_on_intr(|| rustix::fs::futimens(file, &times))?;
    Ok(())
}

pub(super) fn sync_all(file: BorrowedFd<'_>) -> io::Result<()> {
    retry_on_intr(|| rustix::fs::fsync(file))?;
    Ok(())
}
