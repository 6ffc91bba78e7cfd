//! Room in memory that was promised to files and is not written yet.
//!
//! A disk's file system reserves room by writing down which; one in memory (tmpfs) by
//! zeroing every page before the first byte comes, 8 GiB in 1.1 s for which everything
//! waits, and each is written once more afterwards. There this process counts instead
//! what it promised: of files that come together only those begin for which there is
//! room.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::queue::lock;

/// Bytes that are promised, by device.
static PROMISED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// So many bytes of a device's room are a file's, until it is dropped.
#[derive(Debug)]
pub(super) struct Promise {
    device: u64,
    left: AtomicU64,
}

impl Promise {
    /// Of a device that has `room`; none where others were promised too much of it.
    pub fn make(device: u64, room: u64, bytes: u64) -> Option<Promise> {
        let mut all = lock(&PROMISED);
        let promised = all.entry(device).or_default();
        if room.saturating_sub(*promised) < bytes {
            return None;
        }
        *promised = promised.saturating_add(bytes);
        let left = AtomicU64::new(bytes);
        Some(Promise { device, left })
    }

    /// So many bytes are about to be written: they take their room themselves.
    pub fn keep(&self, bytes: u64) {
        let mut all = lock(&PROMISED);
        let left = self.left.load(Ordering::Relaxed);
        let kept = left.min(bytes);
        // Nobody else changes it without the lock.
        self.left.store(left - kept, Ordering::Relaxed);
        if let Some(promised) = all.get_mut(&self.device) {
            *promised = promised.saturating_sub(kept);
            if *promised == 0 {
                all.remove(&self.device);
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
        let first = Promise::make(DEVICE, 100, 60).unwrap();
        assert!(Promise::make(DEVICE, 100, 60).is_none());
        let second = Promise::make(DEVICE, 100, 40).unwrap();
        // Fifty are written, and the room is as much smaller.
        first.keep(50);
        assert!(Promise::make(DEVICE, 50, 1).is_none());
        // What is written again, or beyond, takes nothing from the others.
        first.keep(50);
        assert!(Promise::make(DEVICE, 40, 1).is_none());
        drop(second);
        assert!(Promise::make(DEVICE, 40, 40).is_some());
        drop(first);
        assert!(!lock(&PROMISED).contains_key(&DEVICE));
    }
}
