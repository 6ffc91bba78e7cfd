//! Codecs, statistics of their use at one end for the other end, and the kinds of data that have
//! statistics of their own.

use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

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
        !matches!(self, Codec::Plain | Codec::Omitted)
    }

    /// True if the level is within its range.
    pub fn is_valid(self) -> bool {
        match self {
            Codec::Zstd { level } => level == 0 || Compression::Zstd(level).check().is_ok(),
            Codec::Plain | Codec::Lz4 | Codec::Omitted => true,
        }
    }
}

impl fmt::Display for Codec {
    /// Writes the codec's name in records and reports.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::Plain | Codec::Omitted => f.write_str("none"),
            Codec::Zstd { level } => write!(f, "zstd:{level}"),
            Codec::Lz4 => f.write_str("lz4"),
        }
    }
}

/// Codec that an end has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Capability {
    /// Compresses and decompresses with zstd.
    #[n(0)]
    Zstd,
    /// Compresses and decompresses with lz4.
    #[n(1)]
    Lz4,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Capability; 2] = [Capability::Zstd, Capability::Lz4];

    /// True if these capabilities include every codec.
    pub fn include_every_codec(capabilities: &[Capability]) -> bool {
        let mut all = Capability::ALL.iter();
        all.all(|codec| capabilities.contains(codec))
    }
}

/// Valid levels of zstd, except 0.
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -100..=22;

/// Compression of blocks, used if it makes a block smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Compression {
    /// Chooses the most profitable codec for each block while the transfer runs.
    #[n(0)]
    Auto,
    /// zstd with a level from -100 to 22, except 0.
    #[n(1)]
    Zstd(#[n(0)] i32),
    /// LZ4.
    #[n(2)]
    Lz4,
}

impl Compression {
    /// Parses `auto`, `off`, `zstd`, `zstd:LEVEL` or `lz4`. `None` means off.
    ///
    /// # Errors
    ///
    /// Returns a description of the valid values.
    pub fn parse(text: &str) -> Result<Option<Compression>, String> {
        let (name, level) = text
            .split_once(':')
            .map_or((text, None), |(name, level)| (name, Some(level)));
        let compression = match (name, level) {
            ("auto", None) => Compression::Auto,
            ("off", None) => return Ok(None),
            ("lz4", None) => Compression::Lz4,
            ("zstd", None) => Compression::Zstd(1),
            // 0 is an invalid level.
            ("zstd", Some(level)) => Compression::Zstd(level.parse().unwrap_or(0)),
            _ => return Err("write auto, off, zstd, zstd:LEVEL or lz4".to_owned()),
        };
        compression.check()?;
        Ok(Some(compression))
    }

    /// Checks the level.
    ///
    /// # Errors
    ///
    /// Returns a description of the valid levels.
    pub fn check(self) -> Result<(), &'static str> {
        match self {
            Compression::Zstd(level) if level == 0 || !ZSTD_LEVELS.contains(&level) => {
                Err("zstd has the levels -100 to -1 and 1 to 22")
            }
            Compression::Auto | Compression::Zstd(_) | Compression::Lz4 => Ok(()),
        }
    }

    /// Returns the codec of all blocks; [`Codec::Plain`] if each block names its codec.
    pub fn codec(self) -> Codec {
        match self {
            Compression::Auto => Codec::Plain,
            Compression::Zstd(level) => Codec::Zstd { level },
            Compression::Lz4 => Codec::Lz4,
        }
    }

    /// Returns the capability that both ends need; `None` if none is needed.
    pub fn needed(self) -> Option<Capability> {
        match self {
            Compression::Auto => None,
            Compression::Zstd(_) => Some(Capability::Zstd),
            Compression::Lz4 => Some(Capability::Lz4),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compression_is_parsed_and_its_level_checked() {
        let parsed = |text| Compression::parse(text);
        assert_eq!(parsed("zstd"), Ok(Some(Compression::Zstd(1))));
        assert_eq!(parsed("zstd:-100"), Ok(Some(Compression::Zstd(-100))));
        assert_eq!(parsed("off"), Ok(None));
        for text in [
            "zstd:23", "zstd:0", "zstd:", "zstd:x", "lz4:1", "gzip", "auto:1", "",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
        for (compression, json) in [
            (Some(Compression::Auto), "\"auto\""),
            (Some(Compression::Zstd(3)), "{\"zstd\":3}"),
            (None, "null"),
        ] {
            assert_eq!(serde_json::to_string(&compression).unwrap(), json);
            let wire = minicbor::to_vec(compression).unwrap();
            let read: Option<Compression> = minicbor::decode(&wire).unwrap();
            assert_eq!(read, compression);
        }
    }
}
