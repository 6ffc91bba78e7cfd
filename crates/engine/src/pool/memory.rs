//! Memory of buffers, in huge pages if the kernel has them.
//!
//! Direct I/O needs the address of each page to fill: 256 of them for 1 MiB, or one. Huge pages
//! made direct reads 1.7 times as fast, with a quarter of the CPU time (`cargo xtask bench
//! storage`).

use std::ptr::NonNull;
use std::sync::Arc;

use longhaul_storage::DIRECT_ALIGNMENT_BYTES as ALIGNMENT;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a huge page of most machines. If they are larger, some memory is in small pages.
const HUGE_BYTES: usize = 2 << 20;

/// Bytes of memory that are reserved at once, so that the unused part of the last huge page is
/// small in comparison.
const RUN_BYTES: usize = 16 << 20;

/// Memory of one buffer.
pub(super) enum Memory {
    /// Part of a run.
    Piece(Piece),
    /// Memory of its own, aligned at `start`, if none can be mapped. The alignment costs one page.
    Own { bytes: Box<[u8]>, start: usize },
}

/// Reserves memory for at most `wanted` buffers of `bytes` each, a multiple of [`ALIGNMENT`].
/// Returns fewer if the system has less memory, but at least one if one is `needed`. The memory is
/// zeroed, and taken from the system when it is touched.
pub(super) fn reserve(bytes: usize, wanted: usize, needed: bool) -> Vec<Memory> {
    let many = (RUN_BYTES / bytes).clamp(1, wanted.max(1));
    for count in [many, 1] {
        let run = bytes.checked_mul(count).and_then(Run::map);
        let pieces = run.map(|run| Run::cut(&Arc::new(run), bytes, count));
        if let Some(pieces) = pieces.filter(|pieces| !pieces.is_empty()) {
            return pieces;
        }
    }
    if needed { vec![own(bytes)] } else { Vec::new() }
}

fn own(bytes: usize) -> Memory {
    let bytes = vec![0; bytes + ALIGNMENT].into_boxed_slice();
    let address = bytes.as_ptr().addr();
    let start = address.next_multiple_of(ALIGNMENT) - address;
    Memory::Own { bytes, start }
}

impl Default for Memory {
    /// Returns an empty memory.
    fn default() -> Memory {
        let bytes = Box::default();
        Memory::Own { bytes, start: 0 }
    }
}

impl Memory {
    /// Returns its first `bytes` bytes, at most the reserved size.
    pub(super) fn as_slice(&self, bytes: usize) -> &[u8] {
        match self {
            Memory::Piece(piece) => &piece.as_slice()[..bytes],
            Memory::Own { bytes: all, start } => &all[*start..*start + bytes],
        }
    }

    /// Returns its first `bytes` bytes for writing.
    pub(super) fn as_mut_slice(&mut self, bytes: usize) -> &mut [u8] {
        match self {
            Memory::Piece(piece) => &mut piece.as_mut_slice()[..bytes],
            Memory::Own { bytes: all, start } => &mut all[*start..*start + bytes],
        }
    }
}

/// Mapped memory, until the last piece of it is dropped.
struct Run {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; a run itself
// reads and writes nothing of it.
#[expect(unsafe_code, reason = "a mapping is known by its address")]
unsafe impl Send for Run {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a mapping is known by its address")]
unsafe impl Sync for Run {}

impl Run {
    /// Maps at least this many bytes, counted from the first huge page; `None` if the system has no
    /// memory.
    #[expect(unsafe_code, reason = "huge pages want mmap and madvise")]
    fn map(wanted: usize) -> Option<Run> {
        // One huge page more, so that the first piece can begin at a huge page.
        let bytes = wanted.checked_next_multiple_of(HUGE_BYTES)? + HUGE_BYTES;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping that nothing else knows.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let base = base.ok()?;
        // A smaller size would still take a whole huge page.
        #[cfg(target_os = "linux")]
        if wanted >= HUGE_BYTES {
            // SAFETY: the whole new mapping; advice changes no bytes. Refused,
            // pages are small.
            let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        }
        let base = NonNull::new(base.cast())?;
        Some(Run { base, bytes })
    }

    /// Divides the run into `count` consecutive pieces of `bytes` each. The run must be large
    /// enough.
    fn cut(run: &Arc<Run>, bytes: usize, count: usize) -> Vec<Memory> {
        let address = run.base.addr().get();
        let first = address.next_multiple_of(HUGE_BYTES) - address;
        let starts = (0..count).map(|index| first + index * bytes);
        let pieces = starts.filter(|start| start + bytes <= run.bytes);
        pieces
            .map(|start| {
                Memory::Piece(Piece {
                    run: Arc::clone(run),
                    start,
                    bytes,
                })
            })
            .collect()
    }
}

impl Drop for Run {
    #[expect(unsafe_code, reason = "what mmap gave goes back to munmap")]
    fn drop(&mut self) {
        // SAFETY: the whole mapping; no piece of it is left to be used.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Bytes of a run that belong to this value alone: [`Run::cut`] returns each once.
pub(super) struct Piece {
    run: Arc<Run>,
    start: usize,
    bytes: usize,
}

impl Piece {
    #[expect(unsafe_code, reason = "mapped memory is an address")]
    fn as_slice(&self) -> &[u8] {
        // SAFETY: the range lies within the mapping, which the run keeps; it is
        // zeroed from the beginning, and only this value has it.
        unsafe {
            let start = self.run.base.add(self.start);
            std::slice::from_raw_parts(start.as_ptr(), self.bytes)
        }
    }

    #[expect(unsafe_code, reason = "mapped memory is an address")]
    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and this value is borrowed alone.
        unsafe {
            let start = self.run.base.add(self.start);
            std::slice::from_raw_parts_mut(start.as_ptr(), self.bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_zeroed_aligned_and_separate() {
        for bytes in [ALIGNMENT, 3 * ALIGNMENT, 1 << 20, 5 << 20, 40 << 20] {
            let mut pieces = reserve(bytes, 7, true);
            assert!(!pieces.is_empty() && pieces.len() <= 7, "{bytes}");
            for (index, piece) in pieces.iter_mut().enumerate() {
                let slice = piece.as_mut_slice(bytes);
                assert_eq!(slice.as_ptr().addr() % ALIGNMENT, 0);
                assert_eq!((slice[0], slice[bytes - 1]), (0, 0));
                slice[0] = index as u8 + 1;
                slice[bytes - 1] = index as u8 + 1;
            }
            for (index, piece) in pieces.iter().enumerate() {
                let slice = piece.as_slice(bytes);
                let number = index as u8 + 1;
                assert_eq!((slice[0], slice[bytes - 1]), (number, number));
            }
        }
    }

    #[test]
    fn a_piece_outlives_the_others() {
        let mut pieces = reserve(1 << 20, 16, true);
        assert_eq!(pieces.len(), 16);
        let mut last = pieces.pop().unwrap_or_default();
        drop(pieces);
        last.as_mut_slice(1 << 20).fill(7);
        assert!(last.as_slice(1 << 20).iter().all(|&byte| byte == 7));
    }

    #[test]
    fn separately_reserved_memory_is_aligned_too() {
        let mut memory = own(2 * ALIGNMENT);
        let slice = memory.as_mut_slice(2 * ALIGNMENT);
        assert_eq!(slice.as_ptr().addr() % ALIGNMENT, 0);
        assert!(slice.iter().all(|&byte| byte == 0));
        assert!(Memory::default().as_slice(0).is_empty());
    }

    #[test]
    fn without_memory_no_buffers_are_reserved() {
        // Larger than any address space.
        let bytes = 1 << 60;
        assert!(reserve(bytes, 3, false).is_empty());
    }

    #[test]
    fn runs_start_at_a_huge_page() {
        let pieces = reserve(1 << 20, 4, true);
        assert_eq!(pieces[0].as_slice(1).as_ptr().addr() % HUGE_BYTES, 0);
    }
}
