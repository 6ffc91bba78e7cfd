//! Memory does not grow with the number of files. A counting allocator measures the live heap of a
//! process that moves many small files: it is the same after few and after many files. Both ends
//! are in the process; source and sink do not use a disk.
//!
//! `LONGHAUL_MEMORY_FILES` is the larger number (1000000 for a soak).
#![allow(clippy::unwrap_used, clippy::panic, unsafe_code)]

mod generated;
mod kept;
#[path = "../support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_engine::send::source::What;
use longhaul_proto::message::Farewell;

use crate::support::ends::{Ends, destination, settings, sources};
use crate::support::times;
use generated::{Generated, Swallowing};

/// Bytes by which the heap of both ends together may differ. Half of it for each end would be
/// stricter than the promise for one end.
const FLAT_BYTES: i64 = 64 << 10;

/// Bytes that the varying number of blocks in flight may add while data flows.
const SWINGS_BYTES: i64 = 4 << 20;

struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: the system's allocator does all of it; this counts beside it.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promise is the one that `System` asks for.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as above; the memory came from `System`.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Serializes tests, so that the allocations of one do not count in another.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Minimum and maximum of live bytes during a transfer, after its start.
#[derive(Debug)]
struct Seen {
    least: i64,
    most: i64,
    /// Live bytes at the end, before the ends are dropped.
    last: i64,
}

fn run(files: u64, asks: bool) -> Seen {
    let source: Arc<dyn longhaul_storage::Directory> = Arc::new(Generated::new(files));
    let there = destination(Arc::new(Swallowing::new()));
    let mut settings = settings();
    settings.block_bytes = 1 << 20;
    settings.asks = asks;
    settings.epoch = there.take().unwrap();
    let before = LIVE.load(Ordering::Relaxed);
    // The ends have no observer, because it would store events.
    let ends = Ends::start_unwatched(settings, sources(source, What::Contents), there);
    ends.join(0, false);
    ends.join(1, false);
    let mut seen = Seen {
        least: i64::MAX,
        most: 0,
        last: 0,
    };
    while !ends.sender.wait_for(Duration::from_millis(3)) {
        let live = LIVE.load(Ordering::Relaxed) - before;
        seen.most = seen.most.max(live);
        if ends.sender.measurements().progress().done_entries > files / 2 {
            seen.least = seen.least.min(live);
        }
    }
    seen.last = settled() - before;
    let done = ends.sender.measurements().progress();
    let ended = ends.finish("memory");
    assert_eq!(ended.sender.farewell, Farewell::Complete);
    // The destination has every directory already.
    assert_eq!(done.done_entries, files);
    seen
}

/// Waits until the live bytes no longer change and returns them.
fn settled() -> i64 {
    let mut last = i64::MAX;
    loop {
        std::thread::park_timeout(Duration::from_millis(50));
        let now = LIVE.load(Ordering::Relaxed);
        if now == last {
            return now;
        }
        last = now;
    }
}

impl Seen {
    /// Combines the values of several runs with `pick`.
    fn with(self, other: &Seen, pick: fn(i64, i64) -> i64) -> Seen {
        Seen {
            least: pick(self.least, other.least),
            most: pick(self.most, other.most),
            last: pick(self.last, other.last),
        }
    }

    /// Returns a description of growth beyond the promised limit.
    fn excess(&self, few: &Seen) -> Option<String> {
        [
            ("at the end", self.last - few.last, FLAT_BYTES),
            ("in between", self.least - few.least, SWINGS_BYTES),
            ("at most", self.most - few.most, SWINGS_BYTES),
        ]
        .into_iter()
        .find(|(_, growth, limit)| growth > limit)
        .map(|(when, growth, _)| format!("{growth} bytes more {when}"))
    }
}

/// Maximum number of pairs of runs. The number of blocks in flight, and thus the size that a list
/// once reached, is random and as likely in a short run as in a long one. Growth with the number of
/// files shows in every pair.
const PAIRS: usize = 12;

// Promise 37.
#[test]
fn the_heap_is_flat_in_the_number_of_files() {
    let _turn = turn();
    let many = times("LONGHAUL_MEMORY_FILES", 200_000);
    let few = (many / 10).max(50_000);
    for asks in [false, true] {
        // The first run makes the one-time allocations of the process.
        run(few, asks);
        let (mut small, mut large) = (run(few, asks), run(many, asks));
        for pair in 1.. {
            println!("asks {asks}: {few} files {small:?}, {many} files {large:?}");
            let Some(excess) = large.excess(&small) else {
                break;
            };
            assert!(pair < PAIRS, "{excess}, in {PAIRS} pairs of runs");
            small = small.with(&run(few, asks), i64::max);
            large = large.with(&run(many, asks), i64::min);
        }
    }
}
