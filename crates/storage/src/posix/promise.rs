//! Space in memory that was promised to files and is not written yet.
//!
//! A file system on a disk reserves space by recording it. One in memory (tmpfs) zeroes every page
//! first, which takes 1.1 s for 8 GiB, delays the copy, and writes each page twice. For such file
//! systems, this process counts its reservations instead. A file begins only if its space is
//! available.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_system::queue::lock;

/// All promises, by device and inode. A file that is open twice is promised its space once.
static PROMISED: Mutex<BTreeMap<(u64, u64), Promised>> = Mutex::new(BTreeMap::new());

/// Source of unique numbers for promises.
static NEXT: AtomicU64 = AtomicU64::new(0);

struct Promised {
    /// Number of the last promise for the file.
    number: u64,
    /// Number of promised bytes that are not written.
    left: u64,
}

/// Promise of a device's space to a file, until it is dropped.
#[derive(Debug)]
pub(super) struct Promise {
    /// Device and inode.
    file: (u64, u64),
    number: u64,
}

impl Promise {
    /// Promises `bytes` of the space that `room` returns; `None` if too much of it is promised to
    /// other files. Replaces an earlier promise for the same file.
    pub fn make(file: (u64, u64), room: impl FnOnce() -> u64, bytes: u64) -> Option<Promise> {
        let mut all = lock(&PROMISED);
        let of_device = (file.0, 0)..=(file.0, u64::MAX);
        let others = all.range(of_device).filter(|(other, _)| **other != file);
        let promised = others.fold(0_u64, |sum, (_, one)| sum.saturating_add(one.left));
        // Queried under the lock, so that bytes written in the meantime are not counted twice.
        if room().saturating_sub(promised) < bytes {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let left = bytes;
        all.insert(file, Promised { number, left });
        Some(Promise { file, number })
    }

    /// Records that this many bytes were written and now occupy their space.
    pub fn keep(&self, bytes: u64) {
        let mut all = lock(&PROMISED);
        if let Some(promised) = all.get_mut(&self.file)
            && promised.number == self.number
        {
            promised.left = promised.left.saturating_sub(bytes);
            if promised.left == 0 {
                all.remove(&self.file);
            }
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.keep(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_promised_to_one_file_is_not_given_to_another() {
        // Number that no device has.
        const DEVICE: u64 = u64::MAX;
        let make = |inode, room, bytes| Promise::make((DEVICE, inode), || room, bytes);
        let first = make(1, 100, 60).unwrap();
        assert!(make(2, 100, 60).is_none());
        let second = make(2, 100, 40).unwrap();
        // Fifty bytes are written, and the free space is smaller by the same amount.
        first.keep(50);
        assert!(make(3, 50, 1).is_none());
        // Bytes that are written again, or beyond the promise, do not affect the others.
        first.keep(50);
        assert!(make(3, 40, 1).is_none());
        drop(second);
        assert!(make(3, 40, 40).is_some());
        drop(first);
        assert!(lock(&PROMISED).keys().all(|(device, _)| *device != DEVICE));
    }

    #[test]
    fn a_file_that_two_have_open_is_promised_its_room_once() {
        const DEVICE: u64 = u64::MAX - 1;
        let make = |inode, bytes| Promise::make((DEVICE, inode), || 100, bytes);
        let first = make(1, 80).unwrap();
        let second = make(1, 90).unwrap();
        // Dropping a replaced promise has no effect.
        drop(first);
        assert!(make(2, 11).is_none());
        assert!(make(2, 10).is_some());
        drop(second);
        assert!(make(2, 100).is_some());
    }
}
