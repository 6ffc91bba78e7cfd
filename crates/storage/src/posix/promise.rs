//! Room in memory that was promised to files and is not written yet.
//!
//! A disk's file system reserves room by recording it. One in memory (tmpfs) zeroes every page
//! before the first byte comes. That takes 1.1 s for 8 GiB, for which everything waits, and each
//! page is written once more afterwards. There this process counts its reservations instead: of
//! files that come together, only those begin for which there is room.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_system::queue::lock;

/// What is promised, by device and inode: a file that two have open is promised its room
/// once.
static PROMISED: Mutex<BTreeMap<(u64, u64), Promised>> = Mutex::new(BTreeMap::new());

/// Tells promises for one file apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

struct Promised {
    /// The last promise for the file.
    number: u64,
    /// Bytes of it that are not written.
    left: u64,
}

/// This many bytes of a device's room are a file's, until it is dropped.
#[derive(Debug)]
pub(super) struct Promise {
    /// Device and inode.
    file: (u64, u64),
    number: u64,
}

impl Promise {
    /// Of a device that has the `room` that is looked at; `None` if others were promised too much
    /// of it. What the file was promised before does not hold any more.
    pub fn make(file: (u64, u64), room: impl FnOnce() -> u64, bytes: u64) -> Option<Promise> {
        let mut all = lock(&PROMISED);
        let of_device = (file.0, 0)..=(file.0, u64::MAX);
        let others = all.range(of_device).filter(|(other, _)| **other != file);
        let promised = others.fold(0_u64, |sum, (_, one)| sum.saturating_add(one.left));
        // Looked at under the lock: what is kept meanwhile is not missed on both sides.
        if room().saturating_sub(promised) < bytes {
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let left = bytes;
        all.insert(file, Promised { number, left });
        Some(Promise { file, number })
    }

    /// This many bytes were written: they have their room.
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
    fn what_one_file_was_promised_no_other_gets() {
        // No device has this number.
        const DEVICE: u64 = u64::MAX;
        let make = |inode, room, bytes| Promise::make((DEVICE, inode), || room, bytes);
        let first = make(1, 100, 60).unwrap();
        assert!(make(2, 100, 60).is_none());
        let second = make(2, 100, 40).unwrap();
        // Fifty are written, and the room is as much smaller.
        first.keep(50);
        assert!(make(3, 50, 1).is_none());
        // What is written again, or beyond, takes nothing from the others.
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
        // Whoever has it no more takes nothing away.
        drop(first);
        assert!(make(2, 11).is_none());
        assert!(make(2, 10).is_some());
        drop(second);
        assert!(make(2, 100).is_some());
    }
}
