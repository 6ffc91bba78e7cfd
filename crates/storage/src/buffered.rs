//! Reads and writes complete ranges through the page cache, and gives advice to the kernel.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use super::Advice;

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
pub(super) fn read_fully(
    file: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match pread(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Reads the cached pages at the front of the range, and returns the number of bytes. The kernel
/// may begin to read ahead.
#[cfg(target_os = "linux")]
pub(super) fn read_cached(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> usize {
    use rustix::io::ReadWriteFlags;
    match read_without_waiting(file, buffer, offset, ReadWriteFlags::empty()) {
        Ok(count) => count,
        // All data of such a file lies in the page cache.
        Err(Errno::OPNOTSUPP) if super::lives_in_page_cache(file) => {
            read_fully(file, buffer, offset).unwrap_or(0)
        }
        Err(_) => 0,
    }
}

/// Returns 0, because other systems cannot report cached pages.
#[cfg(not(target_os = "linux"))]
pub(super) fn read_cached(_: BorrowedFd<'_>, _: &mut [u8], _: u64) -> usize {
    0
}

/// Reads until a page is not cached, the buffer is full or the file ends. Returns the number of
/// bytes; an error only if it is 0.
#[cfg(target_os = "linux")]
pub(super) fn read_without_waiting(
    file: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
    also: rustix::io::ReadWriteFlags,
) -> rustix::io::Result<usize> {
    use rustix::io::{ReadWriteFlags, preadv2};
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut [std::io::IoSliceMut::new(&mut buffer[done..])];
        match preadv2(
            file,
            rest,
            offset + done as u64,
            ReadWriteFlags::NOWAIT | also,
        ) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Writes all bytes.
pub(super) fn write_fully(file: BorrowedFd<'_>, data: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match pwrite(file, &data[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Gives advice to the kernel, which may ignore it. `length` 0 extends to the end of the file.
pub(super) fn advise(file: BorrowedFd<'_>, advice: Advice, start: u64, length: u64) {
    use rustix::fs::Advice as Kernel;
    match advice {
        Advice::Sequential => fadvise(file, start, length, Kernel::Sequential),
        Advice::Soon => fadvise(file, start, length, Kernel::WillNeed),
        Advice::DropCache => fadvise(file, start, length, Kernel::DontNeed),
        Advice::StartWriteback => start_writeback(file, start, length),
    }
}

#[cfg(target_os = "linux")]
pub(super) fn fadvise(file: BorrowedFd<'_>, start: u64, length: u64, advice: rustix::fs::Advice) {
    // A file system that does not support the advice returns an error, which is ignored.
    let _ = retry_on_intr(|| rustix::fs::fadvise(file, start, NonZeroU64::new(length), advice));
}

/// Starts the writeback of dirty pages in a range, without waiting for it.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "rustix has no sync_file_range")]
fn start_writeback(file: BorrowedFd<'_>, start: u64, length: u64) {
    let (Ok(start), Ok(length)) = (i64::try_from(start), i64::try_from(length)) else {
        return;
    };
    // SAFETY: the descriptor is borrowed and so open; no memory is touched.
    let _ = unsafe {
        libc::sync_file_range(file.as_raw_fd(), start, length, libc::SYNC_FILE_RANGE_WRITE)
    };
}

/// Waits for the current writeback of a file's pages. Other dirty pages stay dirty.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "rustix has no sync_file_range")]
pub(super) fn wait_written(file: BorrowedFd<'_>) -> io::Result<()> {
    let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE;
    loop {
        // SAFETY: the descriptor is borrowed and so open; no memory is touched.
        let result = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, wait) };
        match result {
            0 => return Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn wait_written(_: BorrowedFd<'_>) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn fadvise(_: BorrowedFd<'_>, _: u64, _: u64, _: rustix::fs::Advice) {}

#[cfg(not(target_os = "linux"))]
fn start_writeback(_: BorrowedFd<'_>, _: u64, _: u64) {}
