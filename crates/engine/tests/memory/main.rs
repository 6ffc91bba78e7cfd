//! Nothing grows with the number of files: the live heap of a process that
//! moves many small files, seen by a counting allocator, is the same after few
//! and after many. Both ends are in it, source and sink are not on a disk.
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

/// What both ends may differ by, together: half of it each would be stricter
/// than what is promised of one.
const FLAT_BYTES: i64 = 64 << 10;

/// What the number of blocks in flight may add to that while data flows.
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

/// What one test allocates is not to count in another.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Least and most live bytes in a transfer, after its beginning.
#[derive(Debug)]
struct Seen {
    least: i64,
    most: i64,
    /// When all is done, before the ends are gone.
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
    // Without a watch that remembers what it was told.
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
        if ends.sender.progress().done_entries > files / 2 {
            seen.least = seen.least.min(live);
        }
    }
    seen.last = settled() - before;
    let done = ends.sender.progress();
    let ended = ends.finish("memory");
    assert_eq!(ended.sender.farewell, Farewell::Complete);
    assert_eq!(done.done_entries, generated::entries(files));
    seen
}

/// Live bytes once what was in flight is gone.
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
    /// What a size takes, the `pick` of several runs.
    fn with(self, other: &Seen, pick: fn(i64, i64) -> i64) -> Seen {
        Seen {
            least: pick(self.least, other.least),
            most: pick(self.most, other.most),
            last: pick(self.last, other.last),
        }
    }

    /// What the larger number of files took more than a promise allows.
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

/// How many were in flight at once, and so to which power of two a list once
/// grew, is chance, and is no less likely in a short run than in a long one.
/// What grows with the files is more in every pair of runs, however many.
const PAIRS: usize = 12;

// Promise 37.
#[test]
fn the_heap_is_flat_in_the_number_of_files() {
    let _turn = turn();
    let many = times("LONGHAUL_MEMORY_FILES", 200_000);
    let few = (many / 10).max(50_000);
    for asks in [false, true] {
        // What a process allocates once.
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
