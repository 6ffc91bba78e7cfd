//! Reads and sets the state of the page cache.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

use rustix::fs::{Advice, fadvise};
use rustix::io::pread;

const PAGE_BYTES: usize = 4096;

/// Returns the number of pages of a range that are in the page cache.
///
/// Maps the file, because overlayfs supports neither `RWF_NOWAIT` nor `cachestat` for the file
/// beneath.
#[expect(unsafe_code, reason = "mapping a file is unsafe")]
pub fn resident_pages(path: &Path, range: Range<usize>) -> usize {
    let file = File::open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let mut pages = vec![0; length.div_ceil(PAGE_BYTES)];
    // SAFETY: the mapping is new, never read, and unmapped here; `pages` has a
    // byte for each of its pages.
    unsafe {
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        let map = libc::mmap(ptr::null_mut(), length, read, shared, file.as_raw_fd(), 0);
        assert_ne!(map, libc::MAP_FAILED);
        assert_eq!(libc::mincore(map, length, pages.as_mut_ptr()), 0);
        assert_eq!(libc::munmap(map, length), 0);
    }
    let wanted = &pages[range.start / PAGE_BYTES..range.end / PAGE_BYTES];
    wanted.iter().filter(|&&page| page & 1 == 1).count()
}

/// Brings a range, and no more, into the page cache, like another program that uses it.
pub fn read_exactly(path: &Path, range: Range<usize>) {
    let file = File::open(path).unwrap();
    // Disables read-ahead.
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let mut buffer = vec![0; range.len()];
    let count = pread(&file, &mut buffer[..], range.start as u64).unwrap();
    assert_eq!(count, range.len());
}

/// Returns the number of pages in a range.
pub fn pages(range: Range<usize>) -> usize {
    range.len() / PAGE_BYTES
}
