//! Filters before a codec, for arrays of numbers: they group similar bytes, and keep the length.
//!
//! *Shuffle* puts first the lowest bytes of all elements, then the next ones (Alted, "Why modern
//! CPUs are starving and what can be done about it", 2010). *Bit shuffle* does so with bits
//! (Masui et al., "A compression scheme for radio data in high performance computing", 2015):
//! dearer, and better where only some bits of a byte repeat.
//!
//! Data are filtered in place, chunk by chunk, so that a filter needs no second block of memory and
//! its chunk stays in the core's cache. The rest at a chunk's end, less than eight elements, is not
//! changed.

use longhaul_proto::shuffle::{Arrangement, CHUNK_BYTES, ElementSize, Shuffle};

/// Number of elements in a group: the bits of one byte of eight elements fill a word.
const GROUP: usize = 8;

/// Buffers of a filter besides the data: one chunk each, allocated when the first block is
/// filtered.
#[derive(Debug, Default)]
pub struct Room {
    chunk: Vec<u8>,
    plane: Vec<u8>,
}

impl Room {
    /// Returns the buffers with the length of the chunk.
    fn for_chunk(&mut self, length: usize) -> (&mut [u8], &mut [u8]) {
        if self.chunk.len() < length {
            self.chunk.resize(CHUNK_BYTES, 0);
            self.plane.resize(CHUNK_BYTES, 0);
        }
        (&mut self.chunk[..length], &mut self.plane[..length])
    }
}

/// Filters a block in place.
pub fn apply(shuffle: Shuffle, block: &mut [u8], room: &mut Room) {
    let element = shuffle.element;
    for chunk in block.chunks_mut(CHUNK_BYTES) {
        let chunk = whole_groups(element, chunk);
        let (shuffled, planes) = room.for_chunk(chunk.len());
        split(element, chunk, shuffled);
        if shuffle.arrangement == Arrangement::Bytes {
            chunk.copy_from_slice(shuffled);
            continue;
        }
        let plane = (chunk.len() / element.bytes()).max(1);
        for (bytes, bits) in shuffled.chunks_mut(plane).zip(chunk.chunks_mut(plane)) {
            let turned = &mut planes[..bytes.len()];
            transpose_bits(bytes, turned);
            split(ElementSize::Eight, turned, bits);
        }
    }
}

/// Undoes [`apply`] in place.
pub fn undo(shuffle: Shuffle, block: &mut [u8], room: &mut Room) {
    let element = shuffle.element;
    for chunk in block.chunks_mut(CHUNK_BYTES) {
        let chunk = whole_groups(element, chunk);
        let (shuffled, planes) = room.for_chunk(chunk.len());
        if shuffle.arrangement == Arrangement::Bytes {
            shuffled.copy_from_slice(chunk);
            join(element, shuffled, chunk);
            continue;
        }
        let plane = (chunk.len() / element.bytes()).max(1);
        for (bits, bytes) in chunk.chunks(plane).zip(shuffled.chunks_mut(plane)) {
            let turned = &mut planes[..bits.len()];
            join(ElementSize::Eight, bits, turned);
            transpose_bits(turned, bytes);
        }
        join(element, shuffled, chunk);
    }
}

/// Returns the filtered part of a chunk: a multiple of eight elements.
fn whole_groups(element: ElementSize, chunk: &mut [u8]) -> &mut [u8] {
    let group = element.bytes() * GROUP;
    let length = chunk.len() / group * group;
    &mut chunk[..length]
}

/// Separates elements into byte planes. Both slices have the same length, a multiple of the
/// element's.
fn split(element: ElementSize, from: &[u8], to: &mut [u8]) {
    let count = from.len() / element.bytes();
    if count == 0 {
        return;
    }
    for (place, plane) in to.chunks_exact_mut(count).enumerate() {
        // Words are shifted and truncated, plane by plane: the compiler vectorises these loops, but
        // not loops over bytes with a stride.
        let shift = 8 * place as u32;
        match element {
            ElementSize::Two => {
                let words = from.as_chunks().0.iter().copied().map(u16::from_le_bytes);
                fill(plane, words.map(|word| (word >> shift) as u8));
            }
            ElementSize::Four => {
                let words = from.as_chunks().0.iter().copied().map(u32::from_le_bytes);
                fill(plane, words.map(|word| (word >> shift) as u8));
            }
            ElementSize::Eight => {
                let words = from.as_chunks().0.iter().copied().map(u64::from_le_bytes);
                fill(plane, words.map(|word| (word >> shift) as u8));
            }
        }
    }
}

#[inline]
fn fill(plane: &mut [u8], bytes: impl Iterator<Item = u8>) {
    for (to, byte) in plane.iter_mut().zip(bytes) {
        *to = byte;
    }
}

/// Combines byte planes into elements; reverses [`split`].
fn join(element: ElementSize, from: &[u8], to: &mut [u8]) {
    let count = to.len() / element.bytes();
    if count == 0 {
        return;
    }
    match element {
        ElementSize::Two => {
            let (low, high) = from.split_at(count);
            for ((word, low), high) in to.as_chunks_mut::<2>().0.iter_mut().zip(low).zip(high) {
                *word = [*low, *high];
            }
        }
        ElementSize::Four => join_four(from, to, count),
        ElementSize::Eight => join_eight(from, to, count),
    }
}

fn join_four(from: &[u8], to: &mut [u8], count: usize) {
    let plane = |place: usize| &from[place * count..][..count];
    let (a, b, c, d) = (plane(0), plane(1), plane(2), plane(3));
    for (at, word) in to.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *word = [a[at], b[at], c[at], d[at]];
    }
}

fn join_eight(from: &[u8], to: &mut [u8], count: usize) {
    let plane = |place: usize| &from[place * count..][..count];
    let planes: [&[u8]; 8] = std::array::from_fn(plane);
    for (at, word) in to.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = std::array::from_fn(|place| planes[place][at]);
    }
}

/// Transposes the bits of each eight bytes, as a matrix of 8 by 8; applied twice, it restores the
/// data. Warren, "Hacker's Delight", 7-3.
fn transpose_bits(from: &[u8], to: &mut [u8]) {
    let words = from.as_chunks::<8>().0.iter();
    let words = words.zip(to.as_chunks_mut::<8>().0);
    for (from, to) in words {
        let mut word = u64::from_le_bytes(*from);
        let mut turn = (word ^ (word >> 7)) & 0x00aa_00aa_00aa_00aa;
        word ^= turn ^ (turn << 7);
        turn = (word ^ (word >> 14)) & 0x0000_cccc_0000_cccc;
        word ^= turn ^ (turn << 14);
        turn = (word ^ (word >> 28)) & 0x0000_0000_f0f0_f0f0;
        word ^= turn ^ (turn << 28);
        *to = word.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Random;

    fn all() -> Vec<Shuffle> {
        let filters = ElementSize::ALL.into_iter().flat_map(|element| {
            [Arrangement::Bytes, Arrangement::Bits].map(|arrangement| Shuffle {
                arrangement,
                element,
            })
        });
        filters.collect()
    }

    #[test]
    fn a_shuffle_is_reversible_at_any_length() {
        let mut random = Random::new(1);
        let mut room = Room::default();
        let lengths = (0..200).chain([CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 400_003]);
        for length in lengths {
            let data = random.bytes(length);
            for filter in all() {
                let mut block = data.clone();
                apply(filter, &mut block, &mut room);
                let mut sorted = [block.clone(), data.clone()];
                if filter.arrangement == Arrangement::Bytes {
                    sorted.iter_mut().for_each(|bytes| bytes.sort_unstable());
                    assert_eq!(sorted[0], sorted[1], "{filter:?} of {length}");
                }
                undo(filter, &mut block, &mut room);
                assert!(block == data, "{filter:?} of {length}");
            }
        }
    }

    #[test]
    fn bytes_and_bits_have_the_places_of_the_format() {
        let mut room = Room::default();
        let element = ElementSize::Four;
        // Eight elements 0x00000100 + n, little-endian.
        let data: Vec<u8> = (0..8_u32).flat_map(|n| (0x100 + n).to_le_bytes()).collect();
        let mut block = data.clone();
        let bytes = Shuffle {
            arrangement: Arrangement::Bytes,
            element,
        };
        apply(bytes, &mut block, &mut room);
        let expected = [[0, 1, 2, 3, 4, 5, 6, 7], [1; 8], [0; 8], [0; 8]].concat();
        assert_eq!(block, expected);
        let mut block = data;
        let bits = Shuffle {
            arrangement: Arrangement::Bits,
            element,
        };
        apply(bits, &mut block, &mut room);
        // The lowest bit of each element, the first element lowest: 0b10101010.
        let low = [0xaa, 0xcc, 0xf0, 0, 0, 0, 0, 0];
        let expected = [low, [0xff, 0, 0, 0, 0, 0, 0, 0], [0; 8], [0; 8]].concat();
        assert_eq!(block, expected);
    }

    #[test]
    fn smooth_fields_compress_better_after_a_shuffle() {
        let field: Vec<u8> = (0..100_000)
            .flat_map(|n| (300.0 + (f64::from(n) / 5000.0).sin()).to_le_bytes())
            .collect();
        let packed = |data: &[u8]| zstd::bulk::compress(data, 1).unwrap().len();
        let plain = packed(&field);
        for arrangement in [Arrangement::Bytes, Arrangement::Bits] {
            let mut block = field.clone();
            let filter = Shuffle {
                arrangement,
                element: ElementSize::Eight,
            };
            apply(filter, &mut block, &mut Room::default());
            assert!(packed(&block) * 10 < plain * 8, "{arrangement:?}");
        }
    }
}
