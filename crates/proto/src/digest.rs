//! Block checksums and their combination to a file's digest.
//!
//! With [`Integrity::Digest`] a block's checksum is the chaining value of its subtree in the file's
//! BLAKE3 tree. The checksums of all blocks, in any order, merge to the digest that `b3sum` prints.
//! A block that is a whole file is finalised as the root, and its checksum is that digest itself.
//! With [`Integrity::Checksum`] a block's checksum is the XXH3-64 of its bytes, and files have no
//! digest.

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use blake3::hazmat::{self, HasherExt, Mode};
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// Minimum bytes of a block, BLAKE3's chunk. All blocks but the last of a file are at least this
/// long, and their length is a power of two.
pub const SMALLEST_BLOCK_BYTES: u64 = 1024;

/// Maximum size of a file in bytes: 2^63 - 1, the maximum Unix offset.
pub const LARGEST_FILE_BYTES: u64 = i64::MAX as u64;

/// Method that verifies blocks and files.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Serialize, Deserialize,
)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// BLAKE3 chaining values and a digest for each file.
    #[default]
    #[n(0)]
    Digest,
    /// XXH3-64 for each block, without a digest of the file.
    #[n(1)]
    Checksum,
}

impl Integrity {
    /// True if a checksum is of this kind.
    pub fn fits(self, checksum: &Checksum) -> bool {
        match self {
            Integrity::Digest => matches!(checksum, Checksum::Blake3(_)),
            Integrity::Checksum => matches!(checksum, Checksum::Xxh3(_)),
        }
    }
}

/// The checksum of a block, or the digest of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Checksum {
    /// A BLAKE3 chaining value, or the root hash if the block is a whole file.
    #[n(0)]
    Blake3(#[cbor(n(0), with = "minicbor::bytes")] [u8; 32]),
    /// XXH3-64 of the bytes.
    #[n(1)]
    Xxh3(#[n(0)] u64),
}

impl Checksum {
    /// True if the checksum of a whole file is its digest.
    pub fn is_digest(&self) -> bool {
        matches!(self, Checksum::Blake3(_))
    }

    /// Returns the digest of the file whose checksum this is; `None` for XXH3-64.
    pub fn digest(&self) -> Option<[u8; 32]> {
        match self {
            Checksum::Blake3(digest) => Some(*digest),
            Checksum::Xxh3(_) => None,
        }
    }
}

/// True if `[offset, offset + length)` may be a block of a file of `size` bytes: within the file,
/// aligned to its length, and a power of two unless it ends the file. Every range from a peer is
/// checked with this function before it is hashed.
pub fn is_block(offset: u64, length: u64, size: u64) -> bool {
    if length == 0 || size > LARGEST_FILE_BYTES {
        return false;
    }
    let Some(end) = offset.checked_add(length) else {
        return false;
    };
    if end > size || !offset.is_multiple_of(SMALLEST_BLOCK_BYTES) {
        return false;
    }
    if end < size && (!length.is_power_of_two() || length < SMALLEST_BLOCK_BYTES) {
        return false;
    }
    offset == 0 || offset.is_multiple_of(length.next_power_of_two().max(SMALLEST_BLOCK_BYTES))
}

/// Returns the length of the longest block that begins at `offset`, has at most `limit` bytes (a
/// power of two) and ends at or before `end` in a file of `size` bytes. Requires `offset < end <=
/// size`, the bounds of a gap between blocks.
pub fn longest_block(offset: u64, end: u64, size: u64, limit: u64) -> u64 {
    let aligned = if offset == 0 {
        limit
    } else {
        limit.min(1 << offset.trailing_zeros())
    };
    if end == size && end - offset <= aligned {
        return end - offset;
    }
    let mut length = aligned;
    while length > end - offset {
        length /= 2;
    }
    length.max(1)
}

/// Computes the checksum of one block, a part at a time.
pub enum BlockHasher {
    /// BLAKE3 at the block's offset; true if the block is the whole file.
    Blake3(Box<blake3::Hasher>, bool),
    /// XXH3-64.
    Xxh3(Box<XxHash3_64>),
}

impl BlockHasher {
    /// Makes a hasher for the block at `offset` with `length` bytes of a file of `size` bytes;
    /// `None` if this is neither a block ([`is_block`]) nor an empty file.
    pub fn new(integrity: Integrity, offset: u64, length: u64, size: u64) -> Option<BlockHasher> {
        let empty_file = offset == 0 && length == 0 && size == 0;
        if !empty_file && !is_block(offset, length, size) {
            return None;
        }
        Some(match integrity {
            Integrity::Checksum => BlockHasher::Xxh3(Box::new(XxHash3_64::new())),
            Integrity::Digest => {
                let mut hasher = Box::new(blake3::Hasher::new());
                let whole = offset == 0 && length == size;
                if !whole {
                    hasher.set_input_offset(offset);
                }
                BlockHasher::Blake3(hasher, whole)
            }
        })
    }

    /// Adds the next bytes. The total must not exceed the block's length.
    pub fn update(&mut self, data: &[u8]) {
        match self {
            BlockHasher::Blake3(hasher, _) => {
                hasher.update(data);
            }
            BlockHasher::Xxh3(hasher) => hasher.write(data),
        }
    }

    /// Returns the checksum of the added bytes.
    pub fn finish(&self) -> Checksum {
        match self {
            BlockHasher::Blake3(hasher, true) => Checksum::Blake3(*hasher.finalize().as_bytes()),
            BlockHasher::Blake3(hasher, false) => Checksum::Blake3(hasher.finalize_non_root()),
            BlockHasher::Xxh3(hasher) => Checksum::Xxh3(hasher.finish()),
        }
    }
}

/// Returns the checksum of a whole file that is in memory.
pub fn whole_file(integrity: Integrity, data: &[u8]) -> Checksum {
    match integrity {
        Integrity::Digest => Checksum::Blake3(*blake3::hash(data).as_bytes()),
        Integrity::Checksum => Checksum::Xxh3(XxHash3_64::oneshot(data)),
    }
}

/// Merges the chaining values of a file's blocks, in any order and with any lengths, to its digest.
/// It holds one value per maximal known subtree, so its memory is proportional to the number of
/// gaps, not of blocks.
#[derive(Clone, Debug)]
pub struct DigestTree {
    size: u64,
    /// Subtrees by offset of the first byte: length and chaining value.
    nodes: BTreeMap<u64, (u64, [u8; 32])>,
    root: Option<[u8; 32]>,
}

impl DigestTree {
    /// Makes an empty tree for a file of `size` bytes, at most [`LARGEST_FILE_BYTES`].
    pub fn new(size: u64) -> DigestTree {
        DigestTree {
            size,
            nodes: BTreeMap::new(),
            root: None,
        }
    }

    /// Adds a block. Returns false without a change if the range is not a block of the file or
    /// overlaps a known range.
    pub fn insert(&mut self, offset: u64, length: u64, value: [u8; 32]) -> bool {
        if !is_block(offset, length, self.size) || self.overlaps(offset, length) {
            return false;
        }
        if length == self.size {
            self.root = Some(value);
            return true;
        }
        let (mut offset, mut length, mut value) = (offset, length, value);
        while let Some(sibling) = self.sibling(offset, length) {
            let Some(&(_, other)) = self.nodes.get(&sibling.0).filter(|n| n.0 == sibling.1) else {
                break;
            };
            self.nodes.remove(&sibling.0);
            let (left, right) = if sibling.0 < offset {
                (other, value)
            } else {
                (value, other)
            };
            offset = offset.min(sibling.0);
            length += sibling.1;
            if length == self.size {
                let root = hazmat::merge_subtrees_root(&left, &right, Mode::Hash);
                self.root = Some(*root.as_bytes());
                return true;
            }
            value = hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash);
        }
        self.nodes.insert(offset, (length, value));
        true
    }

    /// Returns the maximal known subtrees: offset, length and value of each.
    pub fn subtrees(&self) -> Vec<(u64, u64, [u8; 32])> {
        let whole = self.root.map(|root| (0, self.size, root));
        let nodes = self.nodes.iter();
        let parts = nodes.map(|(offset, (length, value))| (*offset, *length, *value));
        match whole {
            Some(whole) => vec![whole],
            None => parts.collect(),
        }
    }

    /// Returns the digest if every block is known.
    pub fn root(&self) -> Option<[u8; 32]> {
        self.root
    }

    fn overlaps(&self, offset: u64, length: u64) -> bool {
        self.root.is_some()
            || self
                .nodes
                .range(..offset + length)
                .next_back()
                .is_some_and(|(start, (len, _))| start + len > offset)
    }

    /// Returns the range that merges with this one to their parent; `None` for the root.
    fn sibling(&self, offset: u64, length: u64) -> Option<(u64, u64)> {
        let end = offset + length;
        if end < self.size {
            // For a full subtree, the parity of its index distinguishes left from right.
            return Some(if (offset / length).is_multiple_of(2) {
                (end, length.min(self.size - end))
            } else {
                (offset - length, length)
            });
        }
        // At the right edge, a subtree without a sibling represents its parents, up to the one that
        // is a right child.
        (offset > 0).then(|| {
            let left = 1 << offset.trailing_zeros();
            (offset - left, left)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block_value(data: &[u8], offset: u64, length: u64) -> [u8; 32] {
        let mut hasher =
            BlockHasher::new(Integrity::Digest, offset, length, data.len() as u64).unwrap();
        hasher.update(&data[offset as usize..(offset + length) as usize]);
        match hasher.finish() {
            Checksum::Blake3(value) => value,
            Checksum::Xxh3(_) => unreachable!(),
        }
    }

    /// Cuts a file into blocks of mixed lengths, as repeated attempts would.
    fn cut(size: u64, limits: &[u32]) -> Vec<(u64, u64)> {
        let mut blocks = Vec::new();
        let mut offset = 0;
        while offset < size {
            let limit = 1024 << limits[blocks.len() % limits.len()];
            let length = longest_block(offset, size, size, limit);
            blocks.push((offset, length));
            offset += length;
        }
        blocks
    }

    proptest! {
        #[test]
        fn blocks_merge_to_the_digest_in_any_order(
            size in 1_usize..200_000,
            limits in prop::collection::vec(0_u32..8, 1..6),
            order in any::<u64>(),
        ) {
            let data: Vec<u8> = (0..size).map(|i| (i * 31 + i / 251) as u8).collect();
            let mut blocks = cut(size as u64, &limits);
            longhaul_units::Random::new(order).shuffle(&mut blocks);
            let mut tree = DigestTree::new(size as u64);
            for (offset, length) in blocks {
                prop_assert!(is_block(offset, length, size as u64));
                prop_assert!(tree.root().is_none());
                prop_assert!(tree.insert(offset, length, block_value(&data, offset, length)));
                prop_assert!(!tree.insert(offset, length, [0; 32]));
            }
            prop_assert_eq!(tree.root(), Some(*blake3::hash(&data).as_bytes()));
        }

        #[test]
        fn whatever_is_called_a_block_can_be_hashed(
            offset in any::<u64>(), length in any::<u64>(), size in any::<u64>(),
            shift in 0_u32..64,
        ) {
            for (o, l, s) in [
                (offset, length, size),
                (offset >> shift << shift, 1_u64 << (shift % 63), size),
                (offset >> shift << shift, length >> 40, (offset >> shift << shift).wrapping_add(length >> 40)),
            ] {
                if let Some(mut hasher) = BlockHasher::new(Integrity::Digest, o, l, s) {
                    hasher.update(&[0; 64][..l.min(64) as usize]);
                    hasher.finish();
                }
            }
        }
    }

    #[test]
    fn memory_follows_gaps_not_blocks() {
        let mut tree = DigestTree::new(LARGEST_FILE_BYTES);
        for index in 0..100_000 {
            assert!(tree.insert(index << 20, 1 << 20, [7; 32]));
        }
        assert!(tree.nodes.len() < 20, "{}", tree.nodes.len());
    }

    #[test]
    fn the_end_of_the_largest_file_is_a_block() {
        let last = LARGEST_FILE_BYTES >> 20 << 20;
        assert!(is_block(
            last,
            LARGEST_FILE_BYTES - last,
            LARGEST_FILE_BYTES
        ));
        assert!(
            BlockHasher::new(
                Integrity::Digest,
                last,
                LARGEST_FILE_BYTES - last,
                LARGEST_FILE_BYTES
            )
            .is_some()
        );
        assert!(!is_block(u64::MAX - 1023, 1024, LARGEST_FILE_BYTES));
    }

    #[test]
    fn misaligned_ranges_are_not_blocks() {
        assert!(!is_block(1024, 2048, 8192));
        assert!(!is_block(512, 512, 8192));
        assert!(!is_block(0, 3000, 8192));
        assert!(!is_block(0, 0, 8192));
        assert!(is_block(4096, 4096, 8192));
        assert!(is_block(4096, 1, 4097));
        assert!(!is_block(2048, 2049, 4097));
    }
}
