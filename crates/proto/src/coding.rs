//! Codecs, what they did at an end, as it reports that to the other one, and the kinds of data that
//! have figures of their own.

use minicbor::{Decode, Encode};

/// Most rows that an end tells; what is beyond is left out.
pub const MAXIMUM_CODEC_USES: usize = 128;

/// How a payload was encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Codec {
    /// As it is.
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
    /// There is no payload: only checksums are compared.
    #[n(3)]
    Omitted,
}

impl Codec {
    /// Whether it makes payloads smaller.
    pub fn compresses(self) -> bool {
        matches!(self, Codec::Zstd { .. } | Codec::Lz4)
    }
}

/// A kind of data, as a sample shows it: files of one kind get smaller alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Kind {
    /// Text, records, programs.
    #[n(0)]
    Text,
    /// Bytes that are used nearly evenly, and are no array.
    #[n(1)]
    Dense,
    /// Arrays of numbers of 2 bytes.
    #[n(2)]
    Numbers2,
    /// Of 4 bytes.
    #[n(3)]
    Numbers4,
    /// Of 8 bytes.
    #[n(4)]
    Numbers8,
    /// Compressed, encrypted or random.
    #[n(5)]
    Full,
    /// Small files, many in one block.
    #[n(6)]
    Small,
    /// The same where they are compressed, encrypted or random.
    #[n(7)]
    SmallFull,
}

impl Kind {
    /// Its number.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// What a summary calls it.
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

/// What one codec did with one kind of data at an end so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CodecUse {
    /// The kind, where the sender looked; `None` at a receiver.
    #[n(0)]
    pub kind: Option<Kind>,
    /// The codec; plain for blocks that were looked at and left as they were.
    #[n(1)]
    pub codec: Codec,
    /// A shuffle went before it.
    #[n(2)]
    pub shuffled: bool,
    /// Bytes before it.
    #[n(3)]
    pub bytes: u64,
    /// Bytes after it.
    #[n(4)]
    pub encoded: u64,
    /// Nanoseconds of a core, trials included.
    #[n(5)]
    pub nanoseconds: u64,
}
