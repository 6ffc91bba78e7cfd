//! Block buffers, page-aligned, of one size, under one budget in bytes.
//!
//! A buffer's memory (`memory.rs`) is taken from the system when it is first used and stays with
//! the pool afterwards. The buffer that came back last is given out first, because its pages are
//! the warmest. A thread that needs a buffer waits until one is dropped: this is the backpressure
//! of the data path.

mod memory;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_units::ByteCount;
use memory::Memory;

use crate::storage::DIRECT_ALIGNMENT_BYTES as ALIGNMENT;

/// How often who waits for a buffer asks whether it is still needed.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A pool; clones are handles of the same one.
#[derive(Clone)]
pub struct BufferPool(Arc<Shared>);

struct Shared {
    /// Bytes of a buffer, a multiple of what direct I/O wants.
    buffer_bytes: usize,
    /// Buffers that fit into the budget, at least one; fewer once the system gave no
    /// memory for more. Changed with the state locked.
    maximum: AtomicUsize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    free: Vec<Memory>,
    /// Buffers that there is memory for, in use or free.
    made: usize,
    in_use: usize,
    peak_in_use: usize,
    closed: bool,
}

impl BufferPool {
    /// A pool of buffers of `buffer_bytes` (rounded up to 4096) that together,
    /// with a page each for what the system rounds up, take at most `budget`;
    /// but one buffer there always is.
    pub fn new(budget: ByteCount, buffer_bytes: usize) -> BufferPool {
        let buffer_bytes = buffer_bytes.max(1).next_multiple_of(ALIGNMENT);
        let cost = (buffer_bytes + ALIGNMENT) as u64;
        let maximum = usize::try_from(budget.0 / cost).unwrap_or(usize::MAX);
        BufferPool(Arc::new(Shared {
            buffer_bytes,
            maximum: AtomicUsize::new(maximum.max(1)),
            state: Mutex::default(),
            returned: Condvar::new(),
        }))
    }

    /// Waits for a buffer; none once the pool is closed.
    pub fn take(&self) -> Option<Buffer> {
        let exhausted = |state: &mut State| self.0.is_exhausted(state);
        let waited = self.0.returned.wait_while(self.0.lock(), exhausted);
        self.give(waited.unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`BufferPool::take`], as long as that is so; it is asked now and then.
    pub fn take_while(&self, mut is_so: impl FnMut() -> bool) -> Option<Buffer> {
        loop {
            let exhausted = |state: &mut State| self.0.is_exhausted(state);
            let returned = &self.0.returned;
            let waited = returned.wait_timeout_while(self.0.lock(), ASK_EVERY, exhausted);
            let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if !waited.timed_out() {
                return self.give(state);
            }
            drop(state);
            if !is_so() {
                return None;
            }
        }
    }

    /// A buffer if one is free now; none also once the pool is closed.
    pub fn try_take(&self) -> Option<Buffer> {
        self.give(self.0.lock())
    }

    /// Ends all waiting, now and later. Buffers in use stay valid.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        state.free = Vec::new();
        drop(state);
        self.0.returned.notify_all();
    }

    /// Bytes of each buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.0.buffer_bytes
    }

    /// How many buffers there can be, at least one.
    pub fn maximum_buffers(&self) -> usize {
        self.0.maximum()
    }

    /// Bytes of the buffers that are in use now.
    pub fn in_use(&self) -> ByteCount {
        self.0.bytes_of(self.0.lock().in_use)
    }

    /// Bytes of the buffers that were in use at once when most were.
    pub fn peak_in_use(&self) -> ByteCount {
        self.0.bytes_of(self.0.lock().peak_in_use)
    }

    fn give(&self, mut state: MutexGuard<'_, State>) -> Option<Buffer> {
        if self.0.is_exhausted(&mut state) || state.closed {
            return None;
        }
        let bytes = state.free.pop()?;
        state.in_use += 1;
        state.peak_in_use = state.peak_in_use.max(state.in_use);
        drop(state);
        Some(Buffer {
            bytes,
            length: 0,
            pool: Arc::clone(&self.0),
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, and no invariant spans it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn maximum(&self) -> usize {
        self.maximum.load(Ordering::Relaxed)
    }

    /// Whether who wants a buffer has to wait for one; else one is free, or the pool
    /// is closed.
    fn is_exhausted(&self, state: &mut State) -> bool {
        if state.closed {
            return false;
        }
        if state.free.is_empty() && state.in_use < self.maximum() {
            self.make(state);
        }
        state.free.is_empty()
    }

    /// Makes some more buffers. Where the system has no memory for them, those that
    /// there are have to do; one there always is.
    fn make(&self, state: &mut State) {
        let wanted = self.maximum().saturating_sub(state.made);
        let mut made = memory::reserve(self.buffer_bytes, wanted, state.made == 0);
        if made.is_empty() {
            self.maximum.store(state.made, Ordering::Relaxed);
        }
        state.made += made.len();
        // The first one is given out last.
        made.reverse();
        state.free.append(&mut made);
    }

    fn bytes_of(&self, buffers: usize) -> ByteCount {
        ByteCount(buffers as u64 * self.buffer_bytes as u64)
    }
}

/// A block buffer; it returns to its pool when dropped. As a slice it is its
/// whole capacity, which holds zeros or what an earlier user left there.
pub struct Buffer {
    bytes: Memory,
    length: usize,
    pool: Arc<Shared>,
}

impl Buffer {
    /// States how many bytes from the front are meaningful; more than the
    /// capacity is cut to it.
    pub fn set_filled(&mut self, length: usize) {
        debug_assert!(length <= self.pool.buffer_bytes);
        self.length = length.min(self.pool.buffer_bytes);
    }

    /// The meaningful bytes; none in a fresh buffer.
    pub fn filled(&self) -> &[u8] {
        &self[..self.length]
    }

    /// The meaningful bytes.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        &mut self[..length]
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_slice(self.pool.buffer_bytes)
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut_slice(self.pool.buffer_bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut state = self.pool.lock();
        state.in_use -= 1;
        if !state.closed {
            state.free.push(bytes);
        }
        drop(state);
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const PAGE: usize = ALIGNMENT;

    /// A budget of exactly `count` buffers of one page.
    fn pages(count: u64) -> BufferPool {
        BufferPool::new(ByteCount(count * 2 * PAGE as u64), PAGE)
    }

    #[test]
    fn who_no_longer_needs_a_buffer_gets_none() {
        let pool = BufferPool::new(ByteCount(1), 4096);
        let held = pool.take().unwrap();
        let mut asked = 0;
        let needed = || {
            asked += 1;
            asked < 2
        };
        assert!(pool.take_while(needed).is_none());
        drop(held);
        assert!(pool.take_while(|| false).is_some(), "one is free");
    }

    #[test]
    fn buffers_are_aligned_zeroed_and_rounded_up() {
        let pool = BufferPool::new(ByteCount(1 << 20), PAGE + 1);
        let held: Vec<Buffer> = (0..4).map(|_| pool.take().unwrap()).collect();
        for buffer in &held {
            assert_eq!(buffer.as_ptr().addr() % PAGE, 0);
            assert_eq!(buffer.len(), 2 * PAGE);
            assert!(buffer.iter().all(|&byte| byte == 0));
            assert!(buffer.filled().is_empty());
        }
    }

    #[test]
    fn the_budget_holds_and_one_buffer_there_always_is() {
        let pool = pages(3);
        let held: Vec<Buffer> = std::iter::from_fn(|| pool.try_take()).collect();
        assert_eq!(held.len(), 3);
        drop(held);
        assert_eq!(pool.in_use(), ByteCount(0));
        assert_eq!(pool.peak_in_use(), ByteCount(3 * PAGE as u64));
        let poor = BufferPool::new(ByteCount(0), 10 * PAGE);
        assert_eq!(poor.maximum_buffers(), 1);
        assert!(poor.take().is_some());
    }

    #[test]
    fn the_warmest_buffer_comes_first_and_empty() {
        let pool = pages(2);
        let cold = pool.take().unwrap();
        let mut warm = pool.take().unwrap();
        warm[..3].copy_from_slice(b"abc");
        warm.set_filled(3);
        assert_eq!(warm.filled(), b"abc");
        let address = warm.as_ptr();
        drop(cold);
        drop(warm);
        let again = pool.take().unwrap();
        assert_eq!(again.as_ptr(), address);
        assert!(again.filled().is_empty());
    }

    #[test]
    fn a_waiter_gets_what_is_returned() {
        let pool = pages(1);
        let held = pool.take().unwrap();
        let (sender, receiver) = mpsc::channel();
        let waiter = {
            let pool = pool.clone();
            thread::spawn(move || sender.send(pool.take().is_some()).unwrap())
        };
        drop(held);
        assert!(receiver.recv().unwrap());
        waiter.join().unwrap();
    }

    #[test]
    fn closing_wakes_every_waiter() {
        let pool = pages(1);
        let held = pool.take().unwrap();
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || pool.take().is_none())
            })
            .collect();
        pool.close();
        for waiter in waiters {
            assert!(waiter.join().unwrap());
        }
        drop(held);
        assert!(pool.try_take().is_none());
        assert_eq!(pool.in_use(), ByteCount(0));
    }

    #[test]
    fn many_threads_never_hold_more_than_the_budget() {
        let pool = pages(3);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut buffer = pool.take().unwrap();
                        buffer[0] = buffer[0].wrapping_add(1);
                    }
                });
            }
        });
        assert!(pool.peak_in_use() <= ByteCount(3 * PAGE as u64));
        assert_eq!(pool.in_use(), ByteCount(0));
    }
}
