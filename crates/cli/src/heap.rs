//! Live heap of this process, counted in builds with the feature `count-heap`
//! only: `cargo xtask soak million` compares it after few and after many files.

#[cfg(feature = "count-heap")]
mod counting {
    #![allow(unsafe_code)]

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicU64, Ordering};

    pub static LIVE: AtomicU64 = AtomicU64::new(0);

    struct Counting;

    // SAFETY: the system's allocator does all of it; this counts beside it.
    unsafe impl GlobalAlloc for Counting {
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            LIVE.fetch_add(layout.size() as u64, Ordering::Relaxed);
            // SAFETY: passed on as it came.
            unsafe { System.alloc(layout) }
        }

        // SAFETY: as above; the memory came from `System`.
        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
            // SAFETY: passed on as it came.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;
}

/// Bytes allocated and not freed; none where nobody counts them.
pub fn live_bytes() -> Option<u64> {
    #[cfg(feature = "count-heap")]
    return Some(counting::LIVE.load(std::sync::atomic::Ordering::Relaxed));
    #[cfg(not(feature = "count-heap"))]
    None
}
