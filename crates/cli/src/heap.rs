//! The global allocator. It uses the system's allocator. If that has no memory, the
//! process prints a message and exits with code 6 instead of aborting silently. With the
//! feature `count-heap`, it also counts allocated bytes: `cargo xtask soak million`
//! compares them after few and after many files.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
#[cfg(feature = "count-heap")]
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};

use crate::messages::Exit;

#[cfg(feature = "count-heap")]
static LIVE: AtomicU64 = AtomicU64::new(0);

struct Reporting;

// SAFETY: delegates to the system's allocator. If that returns null, the process ends, so
// the result is never null.
unsafe impl GlobalAlloc for Reporting {
    // SAFETY: the caller's guarantees are those that `System` requires.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: arguments are passed on unchanged.
        given(unsafe { System.alloc(layout) }, layout.size(), 0)
    }

    // SAFETY: as above.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: arguments are passed on unchanged.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size(), 0)
    }

    // SAFETY: as above; the memory came from `System`.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: arguments are passed on unchanged.
        let memory = unsafe { System.realloc(memory, layout, size) };
        given(memory, size, layout.size())
    }

    // SAFETY: as above; the memory came from `System`.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        #[cfg(feature = "count-heap")]
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: arguments are passed on unchanged.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Reporting = Reporting;

/// Checks and counts memory of `size` bytes that replaces `before` bytes.
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

/// Prints a message and ends the process. Allocates no memory, and takes no lock that
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
    // If standard error is closed, the message is lost.
    let _ = rustix::io::write(rustix::stdio::stderr(), &text[..filled]);
    // SAFETY: ends the process at once; an orderly exit may allocate memory.
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

/// If the address space is limited, makes threads share the allocator's arenas. Otherwise each
/// thread reserves 64 MiB of address space, and a few dozen threads use more than a gigabyte.
pub fn share_where_limited() {
    let is_limited = |resource| getrlimit(resource).current.is_some();
    if is_limited(Resource::As) || is_limited(Resource::Data) {
        #[cfg(target_env = "gnu")]
        // SAFETY: sets a parameter of the allocator while no other thread runs.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Returns the number of allocated bytes; `None` if they are not counted.
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
    fn numbers_are_formatted_without_allocation() {
        let mut room = [0; 20];
        assert_eq!(decimal(0, &mut room), "0");
        assert_eq!(decimal(4096, &mut room), "4096");
        assert_eq!(decimal(usize::MAX, &mut room), usize::MAX.to_string());
    }
}
