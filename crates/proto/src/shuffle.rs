//! Rearrangement of array data before a block's codec: similar bytes or bits of the elements are
//! placed side by side. FORMAT.md defines the order.

use minicbor::{Decode, Encode};

/// Number of bytes that are shuffled together. With a scratch buffer of the same size they fit into
/// the second-level cache of current cores (256 KiB and more). It is part of the format.
pub const CHUNK_BYTES: usize = 128 << 10;

/// Unit in which elements are rearranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Arrangement {
    /// Bytes of the same place in their elements are adjacent.
    #[n(0)]
    Bytes,
    /// Bits of the same place in their elements are adjacent.
    #[n(1)]
    Bits,
}

/// Size of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum ElementSize {
    /// 2 bytes: half precision, short integers.
    #[n(0)]
    Two,
    /// 4 bytes: single precision, integers.
    #[n(1)]
    Four,
    /// 8 bytes: double precision, long integers, pairs of single precision.
    #[n(2)]
    Eight,
}

impl ElementSize {
    /// All sizes, ascending.
    pub const ALL: [ElementSize; 3] = [ElementSize::Two, ElementSize::Four, ElementSize::Eight];

    /// Returns the size in bytes: 2, 4 or 8.
    pub fn bytes(self) -> usize {
        match self {
            ElementSize::Two => 2,
            ElementSize::Four => 4,
            ElementSize::Eight => 8,
        }
    }

    /// Returns the size of `bytes` bytes; `None` if there is no such size.
    pub fn of_bytes(bytes: usize) -> Option<ElementSize> {
        ElementSize::ALL
            .into_iter()
            .find(|size| size.bytes() == bytes)
    }
}

/// A shuffle of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Shuffle {
    /// Unit in which elements are rearranged.
    #[n(0)]
    pub arrangement: Arrangement,
    /// Assumed size of the elements.
    #[n(1)]
    pub element: ElementSize,
}
