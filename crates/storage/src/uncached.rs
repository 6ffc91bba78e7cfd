//! Reads and writes that leave the page cache unchanged, so that a large copy does not evict the
//! data of other programs.
//!
//! For reads, Linux has `RWF_DONTCACHE` since 6.14: it drops the pages that the read loaded, and
//! keeps those that were cached before. Without it, `RWF_NOWAIT` reads cached pages first, and only
//! the other pages are dropped afterwards. If neither is supported (overlayfs), all pages that were
//! read are dropped. Another program may then have to read that file again, but the rest of the
//! cache is kept.
//!
//! Writes do not use `RWF_DONTCACHE`: the first kernels with it could drop a page that was dirtied
//! again during its writeback ("mm/filemap: gate dropbehind invalidate on folio !dirty &&
//! !writeback"). Instead, writeback starts at once, and pages are dropped after a sync has made
//! them durable.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Advice, DataRange, buffered};

/// State of an uncached file.
pub(super) struct UncachedPath {
    /// True if the file system does not support `RWF_DONTCACHE`.
    unsupported: AtomicBool,
    /// Smallest range that contains all data written since the last sync.
    written: Mutex<Option<DataRange>>,
}

impl UncachedPath {
    /// Creates it for a file and disables the file's readahead. With readahead, a page loaded for
    /// another thread's next read would stay in the cache, because both use it when it should be
    /// dropped (a tenth of the file with two readers, a third with eight). If the kernel does not
    /// drop such pages, they look as if another process had cached them.
    pub(super) fn new(file: BorrowedFd<'_>) -> UncachedPath {
        linux::expect_no_readahead(file);
        UncachedPath {
            unsupported: AtomicBool::new(false),
            written: Mutex::new(None),
        }
    }

    /// Implements `StoredFile::read_at`.
    pub(super) fn read_at(
        &self,
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        if !self.unsupported.load(Ordering::Relaxed) {
            if let Some(count) = linux::read_and_drop(file, buffer, offset)? {
                return Ok(count);
            }
            self.unsupported.store(true, Ordering::Relaxed);
        }
        read_around_cache(file, buffer, offset)
    }

    /// Implements `StoredFile::write_at`.
    pub(super) fn write_at(
        &self,
        file: BorrowedFd<'_>,
        data: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        buffered::write_fully(file, data, offset)?;
        let length = data.len() as u64;
        buffered::advise(file, Advice::StartWriteback, offset, length);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let before = written.unwrap_or(DataRange {
            start: offset,
            end: offset,
        });
        *written = Some(DataRange {
            start: before.start.min(offset),
            end: before.end.max(offset.saturating_add(length)),
        });
        Ok(())
    }

    /// Returns the range that the caller is about to sync. After a successful sync, pass it to
    /// [`drop_written`].
    ///
    /// [`drop_written`]: UncachedPath::drop_written
    pub(super) fn take_written(&self) -> Option<DataRange> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.take()
    }

    /// Drops durable pages from the cache. The kernel keeps those that were dirtied since.
    pub(super) fn drop_written(&self, file: BorrowedFd<'_>, range: DataRange) {
        let length = range.end - range.start;
        buffered::advise(file, Advice::DropCache, range.start, length);
    }
}

/// Reads the cached pages at the front of the range. Returns the number of bytes; 0 if pages that
/// the kernel begins to load would stay in the cache.
pub(super) fn read_cached(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> usize {
    linux::read_cached_and_drop(file, buffer, offset)
}

/// Reads the cached pages first, then the rest, and drops the rest from the cache.
fn read_around_cache(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let cached = linux::read_cached(file, buffer, offset);
    let missing_at = offset + cached as u64;
    let read = buffered::read_fully(file, &mut buffer[cached..], missing_at)?;
    if read > 0 {
        buffered::advise(file, Advice::DropCache, missing_at, read as u64);
    }
    Ok(cached + read)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn without_the_kernels_help_data_is_the_same() {
        let mut file = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
        std::io::Write::write_all(&mut file, &data).unwrap();
        let path = UncachedPath::new(file.as_fd());
        path.unsupported.store(true, Ordering::Relaxed);
        for offset in [0, 1, 4096, 299_999, 300_000, 400_000] {
            let mut buffer = vec![0; 300_000];
            let count = path.read_at(file.as_fd(), &mut buffer, offset).unwrap();
            let expected = data.get(offset as usize..).unwrap_or_default();
            assert_eq!(buffer[..count], *expected);
        }
    }

    #[test]
    fn written_ranges_are_joined_until_they_are_taken() {
        let file = tempfile::tempfile().unwrap();
        let path = UncachedPath::new(file.as_fd());
        for offset in [9000, 100, 5000] {
            path.write_at(file.as_fd(), &[1; 1000], offset).unwrap();
        }
        path.write_at(file.as_fd(), &[], 1 << 40).unwrap();
        let range = DataRange {
            start: 100,
            end: 10_000,
        };
        assert_eq!(path.take_written(), Some(range));
        assert_eq!(path.take_written(), None);
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, IoSliceMut};
    use std::os::fd::BorrowedFd;

    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use crate::buffered::read_without_waiting;

    /// `RWF_DONTCACHE` of Linux 6.14, which rustix does not define yet.
    const DROP_BEHIND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

    /// Reads until the buffer is full or the file ends. `None` if the kernel or the file system
    /// does not support the flag.
    pub(super) fn read_and_drop(
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> io::Result<Option<usize>> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = &mut [IoSliceMut::new(&mut buffer[done..])];
            match preadv2(file, rest, offset + done as u64, DROP_BEHIND) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(done))
    }

    /// Reads the cached pages at the front of the range, and returns the number of bytes. Errors
    /// count as 0, because the following read will report them.
    pub(super) fn read_cached(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> usize {
        read_without_waiting(file, buffer, offset, ReadWriteFlags::empty()).unwrap_or(0)
    }

    /// Reads cached pages as [`read_cached`] does. Missing pages that begin to load are dropped.
    pub(super) fn read_cached_and_drop(
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> usize {
        read_without_waiting(file, buffer, offset, DROP_BEHIND).unwrap_or(0)
    }

    pub(super) fn expect_no_readahead(file: BorrowedFd<'_>) {
        crate::buffered::fadvise(file, 0, 0, rustix::fs::Advice::Random);
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use std::io;
    use std::os::fd::BorrowedFd;

    pub(super) fn read_and_drop(
        _: BorrowedFd<'_>,
        _: &mut [u8],
        _: u64,
    ) -> io::Result<Option<usize>> {
        Ok(None)
    }

    pub(super) fn read_cached(_: BorrowedFd<'_>, _: &mut [u8], _: u64) -> usize {
        0
    }

    pub(super) fn read_cached_and_drop(_: BorrowedFd<'_>, _: &mut [u8], _: u64) -> usize {
        0
    }

    pub(super) fn expect_no_readahead(_: BorrowedFd<'_>) {}
}
