//! Where packets wait: one region of memory, in chunks. A chunk is filled packet by packet, and
//! reused once all its packets have left.
//!
//! A packet is read into it once and written from it once. The data in flight decide how many
//! chunks are in use. The chunk that was returned last is taken first. So a short path stays
//! within the processor's cache, and a long one touches no more memory than it needs.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::packet::{LONGEST_PACKET, OFFLOAD_BYTES};

/// Bytes of a chunk: thirty of the longest packets, so that what is left over
/// at its end is little; a huge page.
const CHUNK_BYTES: usize = 2 << 20;

/// A packet begins at a multiple of this: a cache line, so that no copy is
/// slower than it must be.
const ALIGNMENT: usize = 64;

/// The most one read can give.
pub const ROOM_BYTES: usize = OFFLOAD_BYTES + LONGEST_PACKET;

/// Where a packet lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    chunk: u32,
    offset: u32,
}

impl Place {
    /// The place this many bytes further in the same packet.
    pub fn plus(self, bytes: usize) -> Place {
        Place {
            chunk: self.chunk,
            offset: self.offset + bytes as u32,
        }
    }
}

/// Where one source of packets writes next. Its chunk is not given back while
/// it is here.
#[derive(Debug, Default)]
pub struct Cursor {
    chunk: Option<u32>,
    filled: usize,
}

/// The region.
pub struct Store {
    base: NonNull<u8>,
    region_bytes: usize,
    /// Packets that wait, and cursors, for each chunk ever used.
    holders: Vec<u32>,
    free: Vec<u32>,
    most_chunks: u32,
}

// SAFETY: the region belongs to this value alone and moves with it.
#[allow(unsafe_code)]
unsafe impl Send for Store {}

impl Store {
    /// Reserves addresses for `bytes`, which take no memory until they are
    /// used.
    ///
    /// # Errors
    ///
    /// Where the address space does not have them.
    #[allow(unsafe_code)]
    pub fn reserve(bytes: u64) -> io::Result<Store> {
        let chunks = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .div_ceil(CHUNK_BYTES);
        let most_chunks = u32::try_from(chunks).unwrap_or(u32::MAX).max(4);
        // One more, so that the first can begin at a huge page.
        let region_bytes = (most_chunks as usize + 1) * CHUNK_BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping that nothing else knows.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), region_bytes, access, flags) }?;
        // SAFETY: the whole new mapping; advice changes no bytes. Refused, pages
        // are small.
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

    /// Touches memory for this many bytes now, instead of while packets wait.
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

    /// Most bytes that can wait.
    pub fn most_bytes(&self) -> u64 {
        u64::from(self.most_chunks) * CHUNK_BYTES as u64
    }

    /// Room for one packet of any length; `None` if the store is full.
    pub fn room(&mut self, cursor: &mut Cursor) -> Option<&mut [u8]> {
        if let Some(chunk) = cursor.chunk {
            // Nothing else holds it: begin anew where the cache is warm.
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

    /// Keeps what was put into the room; it is held once.
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

    /// One more part of it waits.
    pub fn hold(&mut self, place: Place) {
        self.holders[place.chunk as usize] += 1;
    }

    /// A part of it waits no longer.
    pub fn release(&mut self, place: Place) {
        self.release_chunk(place.chunk);
    }

    /// What lies there.
    #[allow(unsafe_code)]
    pub fn bytes(&self, place: Place, length: usize) -> &[u8] {
        let (at, length) = self.within(place.chunk, place.offset as usize, length);
        // SAFETY: within the region, which is initialised (zero or written), and
        // `&self` keeps writers away.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), length) }
    }

    /// What lies there, to change it.
    pub fn bytes_mut(&mut self, place: Place, length: usize) -> &mut [u8] {
        self.slice_mut(place.chunk, place.offset as usize, length)
    }

    #[allow(unsafe_code)]
    fn slice_mut(&mut self, chunk: u32, offset: usize, length: usize) -> &mut [u8] {
        let (at, length) = self.within(chunk, offset, length);
        // SAFETY: as in `bytes`; `&mut self` makes it the only access.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), length) }
    }

    /// An offset into the region and a length that stays within the chunk.
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
        // SAFETY: the mapping that `reserve` made; every slice of it borrowed
        // this value.
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
        // Four chunks of 31 packets, none of which lost its bytes.
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
    fn a_short_path_stays_in_one_place() {
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
