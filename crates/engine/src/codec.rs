//! Codecs of block payloads, bounded by what was announced.

use std::io;

use longhaul_proto::block::Codec;

/// Bytes that a codec may need for `length` bytes that it cannot shrink.
pub fn bound(codec: Codec, length: usize) -> usize {
    match codec {
        Codec::Plain | Codec::Omitted => length,
        Codec::Zstd { .. } => zstd::zstd_safe::compress_bound(length),
        Codec::Lz4 => lz4_flex::block::get_maximum_output_size(length),
    }
}

/// A compressor with its own state, for one flow.
pub struct Encoder {
    zstd: zstd::bulk::Compressor<'static>,
    level: i32,
}

/// A decompressor with its own state, for one flow.
pub struct Decoder {
    zstd: zstd::bulk::Decompressor<'static>,
}

impl Encoder {
    /// A new one.
    ///
    /// # Errors
    ///
    /// Where zstd has no memory.
    pub fn new() -> io::Result<Encoder> {
        Ok(Encoder {
            zstd: zstd::bulk::Compressor::new(1)?,
            level: 1,
        })
    }

    /// Encodes into `to`, which has [`bound`] bytes; gives the length.
    ///
    /// # Errors
    ///
    /// Where the room is too small, or the level is none.
    pub fn encode(&mut self, codec: Codec, from: &[u8], to: &mut [u8]) -> io::Result<usize> {
        match codec {
            Codec::Zstd { level } => {
                if level != self.level {
                    self.zstd.set_compression_level(level)?;
                    self.level = level;
                }
                self.zstd.compress_to_buffer(from, to)
            }
            Codec::Lz4 => lz4_flex::block::compress_into(from, to).map_err(io::Error::other),
            Codec::Plain | Codec::Omitted => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "nothing to encode",
            )),
        }
    }
}

impl Decoder {
    /// A new one.
    ///
    /// # Errors
    ///
    /// Where zstd has no memory.
    pub fn new() -> io::Result<Decoder> {
        Ok(Decoder {
            zstd: zstd::bulk::Decompressor::new()?,
        })
    }

    /// Decodes into `to`, whose length was announced; never writes beyond it.
    ///
    /// # Errors
    ///
    /// Where it is not encoded so, or has another length than announced.
    pub fn decode(&mut self, codec: Codec, from: &[u8], to: &mut [u8]) -> io::Result<()> {
        let length = match codec {
            Codec::Zstd { .. } => self.zstd.decompress_to_buffer(from, to)?,
            Codec::Lz4 => lz4_flex::block::decompress_into(from, to).map_err(io::Error::other)?,
            Codec::Plain | Codec::Omitted => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "nothing to decode",
                ));
            }
        };
        if length == to.len() {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "shorter than announced",
            ))
        }
    }
}

/// Whether a codec makes work for the compression layer.
pub(crate) fn compresses(codec: Codec) -> bool {
    matches!(codec, Codec::Zstd { .. } | Codec::Lz4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded_and_garbage_never_overflows(
            data in prop::collection::vec(any::<u8>(), 0..5000),
            repeat in 1_usize..8,
            garbage in prop::collection::vec(any::<u8>(), 0..500),
        ) {
            let data = data.repeat(repeat);
            let (mut encoder, mut decoder) = (Encoder::new().unwrap(), Decoder::new().unwrap());
            for codec in [Codec::Zstd { level: 1 }, Codec::Zstd { level: -5 }, Codec::Lz4] {
                let mut packed = vec![0; bound(codec, data.len())];
                let length = encoder.encode(codec, &data, &mut packed).unwrap();
                let mut back = vec![0; data.len()];
                decoder.decode(codec, &packed[..length], &mut back).unwrap();
                prop_assert_eq!(&back, &data);
                let mut small = vec![0; data.len() / 2];
                if !data.is_empty() {
                    prop_assert!(decoder.decode(codec, &packed[..length], &mut small).is_err());
                }
                let _ = decoder.decode(codec, &garbage, &mut back);
            }
        }
    }

    #[test]
    fn a_bomb_does_not_grow_beyond_what_was_announced() {
        let zeros = vec![0; 64 << 20];
        let (mut encoder, mut decoder) = (Encoder::new().unwrap(), Decoder::new().unwrap());
        for codec in [Codec::Zstd { level: 3 }, Codec::Lz4] {
            let mut bomb = vec![0; bound(codec, zeros.len())];
            let length = encoder.encode(codec, &zeros, &mut bomb).unwrap();
            let mut room = vec![0; 1 << 20];
            assert!(decoder.decode(codec, &bomb[..length], &mut room).is_err());
        }
    }
}
