//! Page-aligned block buffers of one size, with one budget in bytes.
//!
//! The memory of a buffer (`memory.rs`) is taken from the system at its first use and then kept by
//! the pool. The buffer that was returned last is reused first, because its pages are most likely
//! in the caches. A thread that needs a buffer waits until one is dropped: this is the backpressure
//! of the data path.

mod memory;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_storage::DIRECT_ALIGNMENT_BYTES as ALIGNMENT;
use longhaul_units::ByteCount;
use memory::Memory;

/// Interval at which a thread that waits for a buffer checks if it still needs one.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Number of ticks (ten per second) after which an unused half for a codec's output is returned:
/// longer than the time between two blocks of a slow path, and short compared with a transfer.
const QUIET_TICKS: u32 = 30;

/// A pool of buffers. Clones share the buffers.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
    part: Part,
}

/// Part of a memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All buffers.
    All,
    /// Buffers before a codec: all of them until the other part is opened, then half.
    Before,
    /// Buffers for the output of a codec: half of them, once this part is opened.
    After,
}

impl Part {
    /// Returns the index of its counts.
    fn place(self) -> usize {
        match self {
            Part::All | Part::Before => 0,
            Part::After => 1,
        }
    }
}

struct Shared {
    /// Bytes of a buffer, a multiple of the alignment of direct I/O.
    buffer_bytes: usize,
    /// Maximum number of buffers within the budget, at least one. It falls if the system has no
    /// memory for more. Changed with the state locked.
    maximum: AtomicUsize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    free: Vec<Memory>,
    /// Number of buffers with memory, in use or free.
    made: usize,
    /// Number of buffers in use, by part.
    in_use: [usize; 2],
    peak_in_use: [usize; 2],
    /// True if the part after a codec has its half.
    opened: bool,
    /// Number of blocks that will need a buffer after a codec, counted before they have one before
    /// it, or while they hold it.
    needed: usize,
    /// Number of ticks since the part after a codec was last used, and true if it was used since
    /// the last tick.
    quiet_ticks: u32,
    was_used: bool,
    closed: bool,
}

impl BufferPool {
    /// Creates a pool of buffers of `buffer_bytes` (rounded up to 4096) that together, with a page
    /// each for the system's rounding, take at most `budget`. There is always at least one buffer.
    pub fn new(budget: ByteCount, buffer_bytes: usize) -> BufferPool {
        let buffer_bytes = buffer_bytes.max(1).next_multiple_of(ALIGNMENT);
        let cost = (buffer_bytes + ALIGNMENT) as u64;
        let maximum = usize::try_from(budget.0 / cost).unwrap_or(usize::MAX);
        BufferPool {
            shared: Arc::new(Shared {
                buffer_bytes,
                maximum: AtomicUsize::new(maximum.max(1)),
                state: Mutex::default(),
                returned: Condvar::new(),
            }),
            part: Part::All,
        }
    }

    /// Creates two pools of one memory: for blocks before a codec, and for the codec's output. The
    /// first may have all buffers until the second is first used or [needed](BufferPool::need),
    /// then half: blocks that wait for the codec never take all the room for its output.
    pub fn pair(budget: ByteCount, buffer_bytes: usize) -> (BufferPool, BufferPool) {
        let pool = BufferPool::new(budget, buffer_bytes);
        let part = |part| BufferPool {
            part,
            shared: Arc::clone(&pool.shared),
        };
        (part(Part::Before), part(Part::After))
    }

    /// Announces a block to decode. The part after a codec has its half from now on, as long as the
    /// returned value lives, so that blocks to decode never take all memory.
    pub fn need(&self) -> CodecNeed {
        let mut state = self.shared.lock();
        state.needed += 1;
        state.use_codec();
        drop(state);
        CodecNeed {
            pool: Arc::clone(&self.shared),
        }
    }

    /// Processes a tick. If no block needed a codec for `QUIET_TICKS`, the part before it gets all
    /// memory back.
    pub fn handle_tick(&self) {
        let mut state = self.shared.lock();
        let is_in_use = state.needed > 0 || state.in_use[Part::After.place()] > 0;
        if !state.opened || std::mem::take(&mut state.was_used) || is_in_use {
            state.quiet_ticks = 0;
            return;
        }
        state.quiet_ticks += 1;
        if state.quiet_ticks >= QUIET_TICKS {
            state.opened = false;
            drop(state);
            self.shared.returned.notify_all();
        }
    }

    /// Waits for a buffer; `None` once the pool is closed.
    pub fn take(&self) -> Option<Buffer> {
        let exhausted = |state: &mut State| self.shared.is_exhausted(state, self.part);
        let waited = self.shared.returned.wait_while(self.opened(), exhausted);
        self.give(waited.unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for a buffer like [`BufferPool::take`], but returns `None` if this part does not have
    /// its half yet, because blocks of the other part are still in use.
    pub fn take_or_pass(&self) -> Option<Buffer> {
        let has_its_own = |state: &mut State| {
            let most = self.shared.most(state, self.part);
            !state.closed && state.in_use[self.part.place()] >= most
        };
        let waited = self.shared.returned.wait_while(self.opened(), has_its_own);
        self.give(waited.unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the state; opens the part after a codec if this pool is that part.
    fn opened(&self) -> MutexGuard<'_, State> {
        let mut state = self.shared.lock();
        if self.part == Part::After {
            state.use_codec();
        }
        state
    }

    /// Waits for a buffer like [`BufferPool::take`], while `is_so` is true; it is called once per
    /// second.
    pub fn take_while(&self, mut is_so: impl FnMut() -> bool) -> Option<Buffer> {
        loop {
            let exhausted = |state: &mut State| self.shared.is_exhausted(state, self.part);
            let returned = &self.shared.returned;
            let waited = returned.wait_timeout_while(self.shared.lock(), ASK_EVERY, exhausted);
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

    /// Returns a buffer without waiting; `None` if all are in use or the pool is closed.
    pub fn try_take(&self) -> Option<Buffer> {
        self.give(self.shared.lock())
    }

    /// Ends all waiting, now and later. Buffers in use stay valid.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.free = Vec::new();
        drop(state);
        self.shared.returned.notify_all();
    }

    /// Returns the number of bytes of each buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.buffer_bytes
    }

    /// Returns the maximum number of buffers of this part now, at least one.
    pub fn maximum_buffers(&self) -> usize {
        self.shared.most(&self.shared.lock(), self.part)
    }

    /// Returns the maximum number of buffers of all parts together, at least one.
    pub fn all_buffers(&self) -> usize {
        self.shared.maximum()
    }

    /// Returns the bytes of the buffers in use.
    pub fn in_use(&self) -> ByteCount {
        let buffers = self.shared.lock().in_use[self.part.place()];
        self.shared.bytes_of(buffers)
    }

    /// Returns the maximum bytes of buffers that were in use at once.
    pub fn peak_in_use(&self) -> ByteCount {
        let buffers = self.shared.lock().peak_in_use[self.part.place()];
        self.shared.bytes_of(buffers)
    }

    fn give(&self, mut state: MutexGuard<'_, State>) -> Option<Buffer> {
        if self.shared.is_exhausted(&mut state, self.part) || state.closed {
            return None;
        }
        let bytes = state.free.pop()?;
        let place = self.part.place();
        state.in_use[place] += 1;
        state.peak_in_use[place] = state.peak_in_use[place].max(state.in_use[place]);
        drop(state);
        Some(Buffer {
            bytes,
            length: 0,
            part: self.part,
            need: None,
            pool: Arc::clone(&self.shared),
        })
    }
}

impl State {
    fn use_codec(&mut self) {
        (self.opened, self.was_used) = (true, true);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock, and no invariant spans it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn maximum(&self) -> usize {
        self.maximum.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of buffers of a part now, at least one.
    fn most(&self, state: &State, part: Part) -> usize {
        let all = self.maximum();
        match part {
            Part::All => all,
            Part::Before if !state.opened => all,
            Part::Before => (all - all / 2).max(1),
            Part::After => (all / 2).max(1),
        }
    }

    /// True if a caller must wait for a buffer; otherwise a buffer is free, or the pool is closed.
    fn is_exhausted(&self, state: &mut State, part: Part) -> bool {
        if state.closed {
            return false;
        }
        if state.in_use[part.place()] >= self.most(state, part) {
            return true;
        }
        // Each part has at least one buffer.
        let all = self.maximum().max(if state.opened { 2 } else { 1 });
        if state.free.is_empty() && state.made < all {
            self.make(state, all);
        }
        state.free.is_empty()
    }

    /// Makes more buffers. If the system has no memory for them, the existing ones must suffice;
    /// there is always at least one.
    fn make(&self, state: &mut State, all: usize) {
        let wanted = all.saturating_sub(state.made);
        let needed = state.made < if state.opened { 2 } else { 1 };
        let mut made = memory::reserve(self.buffer_bytes, wanted, needed);
        if made.is_empty() {
            self.maximum.store(state.made, Ordering::Relaxed);
        }
        state.made += made.len();
        // Buffers are taken from the end, so the first one is used first.
        made.reverse();
        state.free.append(&mut made);
    }

    fn bytes_of(&self, buffers: usize) -> ByteCount {
        ByteCount(buffers as u64 * self.buffer_bytes as u64)
    }
}

/// A block buffer, which returns to its pool when dropped. As a slice it has its whole capacity,
/// with zeros or data of an earlier use.
pub struct Buffer {
    bytes: Memory,
    length: usize,
    part: Part,
    need: Option<CodecNeed>,
    pool: Arc<Shared>,
}

/// Announces that a block to decode is being received.
pub struct CodecNeed {
    pool: Arc<Shared>,
}

impl Drop for CodecNeed {
    fn drop(&mut self) {
        self.pool.lock().needed -= 1;
    }
}

impl Buffer {
    /// Keeps the announcement while the buffer holds a block to decode.
    pub fn keep(&mut self, need: CodecNeed) {
        self.need = Some(need);
    }

    /// Sets the number of bytes from the front that hold data, limited to the capacity.
    pub fn set_filled(&mut self, length: usize) {
        debug_assert!(length <= self.pool.buffer_bytes);
        self.length = length.min(self.pool.buffer_bytes);
    }

    /// Returns the bytes that hold data; empty for a new buffer.
    pub fn filled(&self) -> &[u8] {
        &self[..self.length]
    }

    /// Returns the bytes that hold data.
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
        state.in_use[self.part.place()] -= 1;
        if !state.closed {
            state.free.push(bytes);
        }
        drop(state);
        match self.part {
            Part::All => self.pool.returned.notify_one(),
            // A waiter for one part cannot use a buffer of the other part.
            Part::Before | Part::After => self.pool.returned.notify_all(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const PAGE: usize = ALIGNMENT;

    /// Returns a pool of `count` buffers of one page.
    fn pages(count: u64) -> BufferPool {
        BufferPool::new(ByteCount(count * 2 * PAGE as u64), PAGE)
    }

    #[test]
    fn a_codec_gets_its_half_when_it_is_first_used() {
        let (before, after) = BufferPool::pair(ByteCount(4 * 2 * PAGE as u64), PAGE);
        assert_eq!(before.maximum_buffers(), 4);
        let mut blocks: Vec<Buffer> = (0..4).filter_map(|_| before.try_take()).collect();
        assert_eq!(
            blocks.len(),
            4,
            "all memory is there for blocks without a codec"
        );
        assert!(
            after.take_or_pass().is_none(),
            "it has none yet, and nobody waits for it"
        );
        assert_eq!(before.maximum_buffers(), 2);
        blocks.pop();
        assert!(
            before.try_take().is_none(),
            "what comes back is the codec's"
        );
        let coded = after.take_or_pass().unwrap();
        blocks.pop();
        let more = after.take().unwrap();
        assert!(after.try_take().is_none() && before.try_take().is_none());
        drop((coded, more));
        assert!(before.try_take().is_none());
        blocks.clear();
        let again: Vec<Buffer> = (0..3).filter_map(|_| before.try_take()).collect();
        assert_eq!(again.len(), 2);
        assert_eq!(after.peak_in_use().0, 2 * PAGE as u64);
    }

    #[test]
    fn the_unused_half_of_a_codec_is_returned() {
        let (before, after) = BufferPool::pair(ByteCount(4 * 2 * PAGE as u64), PAGE);
        let tick = |count| (0..count).for_each(|_| after.handle_tick());
        drop(after.take());
        tick(QUIET_TICKS);
        assert_eq!(before.maximum_buffers(), 2, "one tick saw it used");
        tick(1);
        assert_eq!(before.maximum_buffers(), 4);
        let all: Vec<Buffer> = (0..4).filter_map(|_| before.try_take()).collect();
        assert_eq!(all.len(), 4);
        drop(all);
        // Not while a block that needs it is being received, however slowly, nor before that block
        // has a buffer.
        let need = after.need();
        tick(10 * QUIET_TICKS);
        let coded: Vec<Buffer> = (0..4).filter_map(|_| before.try_take()).collect();
        assert_eq!(coded.len(), 2, "half is left for what comes out of them");
        drop(coded);
        let mut coded = before.take().unwrap();
        coded.keep(need);
        tick(10 * QUIET_TICKS);
        assert_eq!(before.maximum_buffers(), 2);
        let decoded = after.take().unwrap();
        drop(coded);
        tick(10 * QUIET_TICKS);
        assert_eq!(before.maximum_buffers(), 2);
        drop(decoded);
        tick(QUIET_TICKS + 1);
        assert_eq!(before.maximum_buffers(), 4);
        // A pool without parts has no half to return.
        let named = BufferPool::new(ByteCount(4 * 2 * PAGE as u64), PAGE);
        drop(named.take());
        (0..2 * QUIET_TICKS).for_each(|_| named.handle_tick());
        assert_eq!(named.maximum_buffers(), 4);
    }

    #[test]
    fn either_part_has_one_buffer_however_small_the_budget() {
        let (before, after) = BufferPool::pair(ByteCount(1), PAGE);
        let block = before.take().unwrap();
        assert!(after.take().is_some());
        assert!(before.try_take().is_none());
        drop(block);
        assert!(before.take().is_some());
    }

    #[test]
    fn a_waiter_that_no_longer_needs_a_buffer_stops_waiting() {
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
    fn the_budget_is_kept_with_at_least_one_buffer() {
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
    fn a_waiter_gets_a_returned_buffer() {
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
