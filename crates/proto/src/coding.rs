//! Codecs, statistics of their use at one end for the other end, and the kinds of data that have
//! statistics of their own.

use minicbor::{Decode, Encode};

/// Maximum number of statistics rows that an end sends. More rows are omitted.
pub const MAXIMUM_CODEC_USES: usize = 128;

/// Encoding of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Codec {
    /// Unencoded.
    #[default]
    #[n(0)]
    Plain,
    /// One zstd frame.
    #[n(1)]
    Zstd {
        /// Level, -100 to 22.
        #[n(0)]
        level: i32,
    },
    /// One lz4 block without its length.
    #[n(2)]
    Lz4,
    /// No payload: only checksums are compared.
    #[n(3)]
    Omitted,
}

impl Codec {
    /// True if the codec compresses payloads.
    pub fn compresses(self) -> bool {
        matches!(self, Codec::Zstd { .. } | Codec::Lz4)
    }
}

/// Kind of data, detected from a sample. Files of one kind compress similarly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Kind {
    /// Text, records, programs.
    #[n(0)]
    Text,
    /// Bytes with a nearly even distribution that are not an array.
    #[n(1)]
    Dense,
    /// Arrays of numbers of 2 bytes.
    #[n(2)]
    Numbers2,
    /// Arrays of numbers of 4 bytes.
    #[n(3)]
    Numbers4,
    /// Arrays of numbers of 8 bytes.
    #[n(4)]
    Numbers8,
    /// Compressed, encrypted or random data.
    #[n(5)]
    Full,
    /// Small files, many in one block.
    #[n(6)]
    Small,
    /// Small files that are compressed, encrypted or random, many in one block.
    #[n(7)]
    SmallFull,
}

impl Kind {
    /// Returns the number of the kind.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the name of the kind in a summary.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Text => "text and records",
            Kind::Dense => "dense records",
            Kind::Numbers2 => "numbers of 2 bytes",
            Kind::Numbers4 => "numbers of 4 bytes",
            Kind::Numbers8 => "numbers of 8 bytes",
            Kind::Full => "compressed or random",
            Kind::Small => "small files",
            Kind::SmallFull => "small files, compressed or random",
        }
    }
}

/// Statistics of one codec for one kind of data at one end so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CodecUse {
    /// Kind of data that the sender detected; `None` at a receiver.
    #[n(0)]
    pub kind: Option<Kind>,
    /// Codec; plain for blocks that were sampled and left uncompressed.
    #[n(1)]
    pub codec: Codec,
    /// True if a shuffle was applied before the codec.
    #[n(2)]
    pub shuffled: bool,
    /// Bytes before encoding.
    #[n(3)]
    pub bytes: u64,
    /// Bytes after encoding.
    #[n(4)]
    pub encoded: u64,
    /// CPU time in nanoseconds, including trials.
    #[n(5)]
    pub nanoseconds: u64,
}
