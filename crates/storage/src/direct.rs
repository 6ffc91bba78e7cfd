//! Direct I/O with a fallback to the page cache.
//!
//! A file system may refuse `O_DIRECT` when a file is opened or at its first use, or accept and
//! ignore it. Each file therefore has two descriptors. Aligned ranges use the direct one, until the
//! file system refuses one of them. All other ranges (the tail of a file, unaligned callers) use
//! the buffered one. The kernel keeps the two coherent: it writes back and drops cached pages of a
//! range before direct I/O. btrfs reads through the cache, and keeps the pages there, if the memory
//! was never touched before. This affects each of the pool's buffers once, and is accepted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::{Errno, pread, pwrite};

use super::{DIRECT_ALIGNMENT_BYTES as ALIGNMENT, buffered};

/// The direct descriptor of a file. The caller keeps the buffered one.
pub(super) struct DirectPath {
    descriptor: OwnedFd,
    /// Set by the first aligned read or write that the file system refuses.
    refused: AtomicBool,
}

impl DirectPath {
    /// Opens the second descriptor with `reopen`, which gets the additional flags. `None` if direct
    /// I/O cannot work on this file, or the name belongs to another file by now.
    pub(super) fn open(
        buffered: BorrowedFd<'_>,
        reopen: impl FnOnce(OFlags) -> rustix::io::Result<OwnedFd>,
    ) -> Option<DirectPath> {
        if lives_in_page_cache(buffered) || !alignment_suffices(buffered) {
            return None;
        }
        let descriptor = reopen(direct_flag()?).ok()?;
        same_file(buffered, descriptor.as_fd()).then(|| DirectPath {
            descriptor,
            refused: AtomicBool::new(false),
        })
    }

    /// True while direct I/O has not been refused.
    pub(super) fn works(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    /// Implements `StoredFile::read_at`.
    pub(super) fn read_at(
        &self,
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let aligned = self.aligned_length(buffer, offset);
        let done = self.transfer(aligned, |done| {
            let rest = &mut buffer[done..aligned];
            pread(&self.descriptor, rest, offset + done as u64)
        })?;
        let rest = buffered::read_fully(file, &mut buffer[done..], offset + done as u64)?;
        Ok(done + rest)
    }

    /// Implements `StoredFile::write_at`.
    pub(super) fn write_at(
        &self,
        file: BorrowedFd<'_>,
        data: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let aligned = self.aligned_length(data, offset);
        let done = self.transfer(aligned, |done| {
            let rest = &data[done..aligned];
            pwrite(&self.descriptor, rest, offset + done as u64)
        })?;
        buffered::write_fully(file, &data[done..], offset + done as u64)
    }

    /// Returns the number of bytes at the front of `memory` that direct I/O can transfer at
    /// `offset`.
    fn aligned_length(&self, memory: &[u8], offset: u64) -> usize {
        let aligned = offset.is_multiple_of(ALIGNMENT as u64)
            && memory.as_ptr().addr().is_multiple_of(ALIGNMENT);
        if aligned && self.works() {
            memory.len() - memory.len() % ALIGNMENT
        } else {
            0
        }
    }

    /// Repeats `step`, which gets the number of bytes done, until `length` bytes are done. Ends
    /// early at the end of the file, or if direct I/O is refused. Returns the number of bytes done.
    /// The caller transfers the rest through the page cache.
    fn transfer(
        &self,
        length: usize,
        mut step: impl FnMut(usize) -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        let mut done = 0;
        while done < length {
            match step(done) {
                Ok(count) => {
                    done += count;
                    if count == 0 || !count.is_multiple_of(ALIGNMENT) {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                    self.refused.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }
}

#[cfg(target_os = "linux")]
fn direct_flag() -> Option<OFlags> {
    Some(OFlags::DIRECT)
}

#[cfg(not(target_os = "linux"))]
fn direct_flag() -> Option<OFlags> {
    None
}

/// True if a file or directory lies in memory: tmpfs and ramfs accept direct I/O, even unaligned,
/// but serve it from the page cache.
#[cfg(target_os = "linux")]
pub fn lives_in_page_cache(file: BorrowedFd<'_>) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    // The width of `f_type` depends on the architecture, the magic has 32 bits.
    rustix::fs::fstatfs(file).is_ok_and(|status| {
        let magic = status.f_type as u32;
        magic == TMPFS || magic == RAMFS
    })
}

/// True if a file or directory lies in memory.
#[cfg(not(target_os = "linux"))]
pub fn lives_in_page_cache(_: BorrowedFd<'_>) -> bool {
    false
}

/// False if the kernel reports that the file does not support direct I/O, or needs more than
/// [`ALIGNMENT`] (since Linux 6.1, for some file systems).
#[cfg(target_os = "linux")]
fn alignment_suffices(file: BorrowedFd<'_>) -> bool {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let Ok(status) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return true;
    };
    let known = status.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let fits = |bytes: u32| bytes != 0 && bytes as usize <= ALIGNMENT;
    !known || (fits(status.stx_dio_mem_align) && fits(status.stx_dio_offset_align))
}

#[cfg(not(target_os = "linux"))]
fn alignment_suffices(_: BorrowedFd<'_>) -> bool {
    true
}

fn same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    match (rustix::fs::fstat(one), rustix::fs::fstat(other)) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;

    use super::*;

    fn path_to(file: File) -> DirectPath {
        DirectPath {
            descriptor: file.into(),
            refused: AtomicBool::new(false),
        }
    }

    fn null() -> DirectPath {
        path_to(File::open("/dev/null").unwrap())
    }

    #[test]
    fn a_refusal_at_first_use_leads_to_the_page_cache() {
        for refusal in [Errno::INVAL, Errno::OPNOTSUPP] {
            let path = null();
            assert!(path.works());
            assert_eq!(path.transfer(8192, |_| Err(refusal)).unwrap(), 0);
            assert!(!path.works());
            assert_eq!(path.aligned_length(&[], 0), 0);
        }
    }

    #[test]
    fn interruptions_are_retried_and_other_errors_are_returned() {
        let path = null();
        let error = path.transfer(8192, |_| Err(Errno::IO)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
        let mut interrupted = false;
        let done = path.transfer(4096, |_| {
            if !std::mem::replace(&mut interrupted, true) {
                Err(Errno::INTR)
            } else {
                Ok(4096)
            }
        });
        assert_eq!(done.unwrap(), 4096);
        assert!(path.works());
    }

    #[test]
    fn a_transfer_ends_after_an_unaligned_step() {
        let mut steps = [8192, 100, 4096].into_iter();
        let done = null().transfer(1 << 20, |_| Ok(steps.next().unwrap()));
        assert_eq!(done.unwrap(), 8292);
    }

    #[test]
    fn a_name_that_leads_elsewhere_by_now_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str| File::create_new(directory.path().join(name)).unwrap();
        let (one, other) = (make("one"), make("other"));
        let reopened = DirectPath::open(one.as_fd(), |_| Ok(other.into()));
        assert!(reopened.is_none());
    }

    #[test]
    fn a_path_that_was_refused_still_moves_all_data() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("f");
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&name);
        let file = file.unwrap();
        let path = path_to(File::open(&name).unwrap());
        path.refused.store(true, Ordering::Relaxed);
        path.write_at(file.as_fd(), &[7; 10_000], 4096).unwrap();
        let mut buffer = [0; 20_000];
        let count = path.read_at(file.as_fd(), &mut buffer, 4096).unwrap();
        assert_eq!(count, 10_000);
        assert!(buffer[..count].iter().all(|&byte| byte == 7));
    }
}
