//! What goes before a block's codec: elements of arrays taken apart, so that alike bytes or bits
//! lie side by side. FORMAT.md says where each lies.

use minicbor::{Decode, Encode};

/// Bytes that are shuffled together. With a scratch buffer of the same size they fit into the
/// second-level cache of today's cores (256 KiB and more). It is part of the format.
pub const CHUNK_BYTES: usize = 128 << 10;

/// How elements are taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Arrangement {
    /// By bytes.
    #[n(0)]
    Bytes,
    /// By bits.
    #[n(1)]
    Bits,
}

/// Bytes of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum ElementSize {
    /// Half precision, short integers.
    #[n(0)]
    Two,
    /// Single precision, integers.
    #[n(1)]
    Four,
    /// Double precision, long integers, pairs of single precision.
    #[n(2)]
    Eight,
}

impl ElementSize {
    /// All sizes, ascending.
    pub const ALL: [ElementSize; 3] = [ElementSize::Two, ElementSize::Four, ElementSize::Eight];

    /// In bytes: 2, 4 or 8.
    pub fn bytes(self) -> usize {
        match self {
            ElementSize::Two => 2,
            ElementSize::Four => 4,
            ElementSize::Eight => 8,
        }
    }

    /// The size that has `bytes` bytes, if there is one.
    pub fn of_bytes(bytes: usize) -> Option<ElementSize> {
        ElementSize::ALL
            .into_iter()
            .find(|size| size.bytes() == bytes)
    }
}

/// A filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Shuffle {
    /// How elements are taken apart.
    #[n(0)]
    pub arrangement: Arrangement,
    /// What they are taken for.
    #[n(1)]
    pub element: ElementSize,
}
