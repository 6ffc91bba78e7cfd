//! Memory of waiting packets: one region, divided into chunks. A chunk is filled packet
//! by packet, and reused once all its packets have left.
//!
//! A packet is copied into the store once and out of it once. The number of chunks in use
//! follows the data in flight. The chunk that was returned last is taken first: a short
//! path stays within the processor's cache, and a long path touches only the memory that
//! it needs.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::packet::{LONGEST_PACKET, OFFLOAD_BYTES};

/// Size of a chunk in bytes: one huge page. It holds about thirty of the longest packets,
/// so that little space is lost at its end.
const CHUNK_BYTES: usize = 2 << 20;

/// Alignment of packets in bytes: a cache line, for fast copies.
const ALIGNMENT: usize = 64;

/// Maximum number of bytes of one read.
pub const ROOM_BYTES: usize = OFFLOAD_BYTES + LONGEST_PACKET;

/// Location of a packet in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    chunk: u32,
    offset: u32,
}

impl Place {
    /// Returns the location `bytes` bytes further in the same packet.
    pub fn plus(self, bytes: usize) -> Place {
        Place {
            chunk: self.chunk,
            offset: self.offset + bytes as u32,
        }
    }
}

/// Next write position of one source of packets. The cursor's chunk is not freed while
/// the cursor refers to it.
#[derive(Debug, Default)]
pub struct Cursor {
    chunk: Option<u32>,
    filled: usize,
}

/// The memory region with its chunks.
pub struct Store {
    base: NonNull<u8>,
    region_bytes: usize,
    /// Number of waiting packets and cursors per chunk ever used.
    holders: Vec<u32>,
    free: Vec<u32>,
    most_chunks: u32,
}

// SAFETY: the region belongs to this value alone and moves with it.
#[allow(unsafe_code)]
unsafe impl Send for Store {}

impl Store {
    /// Reserves address space for `bytes`, at least four chunks. Memory is allocated on
    /// first use.
    ///
    /// # Errors
    ///
    /// Returns an error if the address space is too small.
    #[allow(unsafe_code)]
    pub fn reserve(bytes: u64) -> io::Result<Store> {
        let chunks = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .div_ceil(CHUNK_BYTES);
        let most_chunks = u32::try_from(chunks).unwrap_or(u32::MAX).max(4);
        // One more chunk, so that the first chunk can begin at a huge page.
        let region_bytes = (most_chunks as usize + 1) * CHUNK_BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping without other references.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), region_bytes, access, flags) }?;
        // SAFETY: the range is the new mapping, and advice changes no bytes. If it is
        // refused, the kernel uses small pages.
        let _ = unsafe { madvise(base, region_bytes, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Store {
            base,
            region_bytes,
            holders: Vec::new(),
            free: Vec::new(),
            most_chunks,
        })
    }

    /// Touches memory for this many bytes now rather than while packets wait.
    pub fn warm(&mut self, bytes: u64) {
        let chunks = bytes.div_ceil(CHUNK_BYTES as u64);
        let mut taken = Vec::new();
        while (taken.len() as u64) < chunks {
            let Some(chunk) = self.take_chunk() else {
                break;
            };
            for at in (0..CHUNK_BYTES).step_by(4096) {
                self.slice_mut(chunk, at, 1)[0] = 1;
            }
            taken.push(chunk);
        }
        for chunk in taken.into_iter().rev() {
            self.release_chunk(chunk);
        }
    }

    /// Returns the maximum number of bytes that can wait.
    pub fn most_bytes(&self) -> u64 {
        u64::from(self.most_chunks) * CHUNK_BYTES as u64
    }

    /// Returns room for one packet of any length; `None` if the store is full.
    pub fn room(&mut self, cursor: &mut Cursor) -> Option<&mut [u8]> {
        if let Some(chunk) = cursor.chunk {
            // Only the cursor holds this chunk: start again at its beginning, which is in
            // the cache.
            if self.holders[chunk as usize] == 1 {
                cursor.filled = 0;
            }
            if cursor.filled + ROOM_BYTES > CHUNK_BYTES {
                self.release_chunk(chunk);
                cursor.chunk = None;
            }
        }
        let chunk = match cursor.chunk {
            Some(chunk) => chunk,
            None => {
                let chunk = self.take_chunk()?;
                *cursor = Cursor {
                    chunk: Some(chunk),
                    filled: 0,
                };
                chunk
            }
        };
        Some(self.slice_mut(chunk, cursor.filled, ROOM_BYTES))
    }

    /// Keeps the first `bytes` bytes of the room as one packet with one holder.
    pub fn keep(&mut self, cursor: &mut Cursor, bytes: usize) -> Option<Place> {
        let chunk = cursor.chunk?;
        let place = Place {
            chunk,
            offset: cursor.filled as u32,
        };
        let bytes = bytes.min(ROOM_BYTES).next_multiple_of(ALIGNMENT);
        cursor.filled = (cursor.filled + bytes).min(CHUNK_BYTES);
        self.hold(place);
        Some(place)
    }

    /// Adds a holder to a packet.
    pub fn hold(&mut self, place: Place) {
        self.holders[place.chunk as usize] += 1;
    }

    /// Removes a holder from a packet.
    pub fn release(&mut self, place: Place) {
        self.release_chunk(place.chunk);
    }

    /// Returns `length` bytes from a location.
    #[allow(unsafe_code)]
    pub fn bytes(&self, place: Place, length: usize) -> &[u8] {
        let (at, length) = self.within(place.chunk, place.offset as usize, length);
        // SAFETY: the range is within the region, which is initialised (zero or written),
        // and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), length) }
    }

    #[allow(unsafe_code)]
    fn slice_mut(&mut self, chunk: u32, offset: usize, length: usize) -> &mut [u8] {
        let (at, length) = self.within(chunk, offset, length);
        // SAFETY: as in `bytes`; `&mut self` excludes other access.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), length) }
    }

    /// Returns an offset into the region, and the length reduced to the end of the chunk.
    fn within(&self, chunk: u32, offset: usize, length: usize) -> (usize, usize) {
        let aligned = self
            .base
            .as_ptr()
            .align_offset(CHUNK_BYTES)
            .min(CHUNK_BYTES);
        let chunk = (chunk as usize).min(self.most_chunks as usize - 1);
        let offset = offset.min(CHUNK_BYTES);
        let length = length.min(CHUNK_BYTES - offset);
        (aligned + chunk * CHUNK_BYTES + offset, length)
    }

    fn take_chunk(&mut self) -> Option<u32> {
        let chunk = match self.free.pop() {
            Some(chunk) => chunk,
            None => {
                let next = u32::try_from(self.holders.len()).ok()?;
                if next >= self.most_chunks {
                    return None;
                }
                self.holders.push(0);
                next
            }
        };
        self.holders[chunk as usize] = 1;
        Some(chunk)
    }

    fn release_chunk(&mut self, chunk: u32) {
        let holders = &mut self.holders[chunk as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(chunk);
        }
    }
}

impl Drop for Store {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: unmaps the mapping of `reserve`; no slice of it outlives this value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.region_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_come_back_and_the_store_is_bounded() {
        let mut store = Store::reserve(8 << 20).unwrap();
        let mut cursor = Cursor::default();
        let mut places = Vec::new();
        while let Some(room) = store.room(&mut cursor) {
            room[0] = places.len() as u8;
            room[ROOM_BYTES - 1] = 7;
            places.push(store.keep(&mut cursor, ROOM_BYTES).unwrap());
        }
        // Four chunks are full, and every packet still has its bytes.
        assert_eq!(places.len(), 4 * (CHUNK_BYTES / ROOM_BYTES));
        for (index, place) in places.iter().enumerate() {
            let bytes = store.bytes(*place, ROOM_BYTES);
            assert_eq!((bytes[0], bytes[ROOM_BYTES - 1]), (index as u8, 7));
        }
        for place in places {
            store.release(place);
        }
        assert!(store.room(&mut cursor).is_some());
        store.warm(1 << 40);
        assert_eq!(store.holders.len(), 4);
    }

    #[test]
    fn a_short_path_reuses_one_chunk() {
        let mut store = Store::reserve(8 << 20).unwrap();
        let mut cursor = Cursor::default();
        for _ in 0..1000 {
            store.room(&mut cursor).unwrap();
            let place = store.keep(&mut cursor, 1500).unwrap();
            assert_eq!(place.offset, 0);
            store.release(place);
        }
        assert_eq!(store.holders.len(), 1);
    }
}
