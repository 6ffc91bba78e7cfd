//! The allocator: the system's, and where that has no memory a message and exit
//! code 6 instead of an abort without a word. In builds with the feature
//! `count-heap` it also counts what is allocated: `cargo xtask soak million`
//! compares that after few and after many files.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
#[cfg(feature = "count-heap")]
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};

use crate::messages::Exit;

#[cfg(feature = "count-heap")]
static LIVE: AtomicU64 = AtomicU64::new(0);

struct Reporting;

// SAFETY: the system's allocator does all of it. Where it gives nothing the process
// ends, so that what is returned is never null.
unsafe impl GlobalAlloc for Reporting {
    // SAFETY: the caller's promise is the one that `System` asks for.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        given(unsafe { System.alloc(layout) }, layout.size(), 0)
    }

    // SAFETY: as above.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size(), 0)
    }

    // SAFETY: as above; the memory came from `System`.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: passed on as it came.
        let memory = unsafe { System.realloc(memory, layout, size) };
        given(memory, size, layout.size())
    }

    // SAFETY: as above; the memory came from `System`.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        #[cfg(feature = "count-heap")]
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Reporting = Reporting;

/// Memory of `size` bytes, which takes the place of `before`.
#[inline]
fn given(memory: *mut u8, size: usize, before: usize) -> *mut u8 {
    if memory.is_null() {
        end_without_memory(size);
    }
    #[cfg(feature = "count-heap")]
    LIVE.fetch_add((size as u64).wrapping_sub(before as u64), Ordering::Relaxed);
    #[cfg(not(feature = "count-heap"))]
    let _ = before;
    memory
}

/// Says so and ends the process. Nothing here allocates, nor waits for a lock that
/// this thread may hold.
#[cold]
fn end_without_memory(size: usize) -> ! {
    let mut digits = [0; 20];
    let address_space = getrlimit(Resource::As).current.is_some();
    let limit = if address_space {
        "the limit of this process's memory (`ulimit -v`, RLIMIT_AS)"
    } else {
        "the system, or a limit of this process or its control group,"
    };
    let words = [
        "longhaul: out of memory: ",
        limit,
        " leaves no room for ",
        decimal(size, &mut digits),
        " bytes more: raise it, or have longhaul use less with --memory 16MiB; the same command \
         resumes it\n",
    ];
    let mut text = [0; 512];
    let mut filled = 0;
    for word in words {
        let room = &mut text[filled..];
        let count = word.len().min(room.len());
        room[..count].copy_from_slice(&word.as_bytes()[..count]);
        filled += count;
    }
    // Where standard error is gone nobody is there to read.
    let _ = rustix::io::write(rustix::stdio::stderr(), &text[..filled]);
    // SAFETY: ends the process at once; what would run at an orderly exit may allocate.
    unsafe { libc::_exit(Exit::Local.code().into()) }
}

/// A number in decimal digits, written to the end of `room`.
fn decimal(number: usize, room: &mut [u8; 20]) -> &str {
    let (mut left, mut start) = (number, room.len());
    loop {
        start -= 1;
        room[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 || start == 0 {
            return std::str::from_utf8(&room[start..]).unwrap_or_default();
        }
    }
}

/// Where address space is limited, has threads share what the allocator maps: else
/// each reserves 64 MiB of it, and a few dozen of them use up a gigabyte.
pub fn share_where_limited() {
    let is_limited = |resource| getrlimit(resource).current.is_some();
    if is_limited(Resource::As) || is_limited(Resource::Data) {
        #[cfg(target_env = "gnu")]
        // SAFETY: sets a number of the allocator; no other thread runs yet.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Bytes allocated and not freed; `None` if nobody counts them.
pub fn live_bytes() -> Option<u64> {
    #[cfg(feature = "count-heap")]
    return Some(LIVE.load(Ordering::Relaxed));
    #[cfg(not(feature = "count-heap"))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_without_memory() {
        let mut room = [0; 20];
        assert_eq!(decimal(0, &mut room), "0");
        assert_eq!(decimal(4096, &mut room), "4096");
        assert_eq!(decimal(usize::MAX, &mut room), usize::MAX.to_string());
    }
}
