//! Codecs of block payloads. Decoding never exceeds the announced size.
//!
//! - [`shuffle`]: filters before a codec, for arrays of numbers
//! - [`recognise`]: detects formats by the first bytes of a file
//! - [`sample`]: classifies data by a sample
//! - [`choice`]: interface of the chooser of codecs for each block, and its inputs

pub mod choice;
pub(crate) mod coder;
pub mod recognise;
pub mod sample;
pub mod shuffle;
pub(crate) mod uses;

use std::io;

use longhaul_proto::block::Codec;
use longhaul_proto::shuffle::Shuffle;

/// Returns the maximum number of bytes that a codec needs for `length` bytes that it cannot shrink.
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
    room: shuffle::Room,
    /// Output buffer for lz4, which needs the maximum size.
    spill: Vec<u8>,
}

/// A decompressor with its own state, for one flow.
pub struct Decoder {
    zstd: zstd::bulk::Decompressor<'static>,
    room: shuffle::Room,
}

impl Encoder {
    /// Creates a compressor.
    ///
    /// # Errors
    ///
    /// Fails if zstd has no memory.
    pub fn new() -> io::Result<Encoder> {
        Ok(Encoder {
            zstd: zstd::bulk::Compressor::new(1)?,
            level: 1,
            room: shuffle::Room::default(),
            spill: Vec::new(),
        })
    }

    /// Shuffles `from` in place, then encodes it like [`Encoder::encode`]. If it does not get
    /// smaller, or on an error, `from` is restored.
    ///
    /// # Errors
    ///
    /// Errors of [`Encoder::encode`].
    pub fn encode_shuffled(
        &mut self,
        codec: Codec,
        with: Shuffle,
        from: &mut [u8],
        to: &mut [u8],
    ) -> io::Result<usize> {
        shuffle::apply(with, from, &mut self.room);
        let encoded = self.encode(codec, from, to);
        if !encoded.as_ref().is_ok_and(|length| *length < from.len()) {
            shuffle::undo(with, from, &mut self.room);
        }
        encoded
    }

    /// Encodes into `to`; returns the length. [`bound`] bytes are enough for any data; data that
    /// get smaller need fewer.
    ///
    /// # Errors
    ///
    /// Fails if `to` is too small or the level is invalid.
    pub fn encode(&mut self, codec: Codec, from: &[u8], to: &mut [u8]) -> io::Result<usize> {
        match codec {
            Codec::Zstd { level } => {
                if level != self.level {
                    self.zstd.set_compression_level(level)?;
                    self.level = level;
                }
                self.zstd.compress_to_buffer(from, to)
            }
            Codec::Lz4 if to.len() >= bound(codec, from.len()) => {
                lz4_flex::block::compress_into(from, to).map_err(io::Error::other)
            }
            Codec::Lz4 => {
                self.spill.resize(bound(codec, from.len()), 0);
                let length = lz4_flex::block::compress_into(from, &mut self.spill)
                    .map_err(io::Error::other)?;
                let room = to.get_mut(..length).ok_or(io::ErrorKind::WriteZero)?;
                room.copy_from_slice(&self.spill[..length]);
                Ok(length)
            }
            Codec::Plain | Codec::Omitted => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "nothing to encode",
            )),
        }
    }
}

impl Decoder {
    /// Creates a decompressor.
    ///
    /// # Errors
    ///
    /// Fails if zstd has no memory.
    pub fn new() -> io::Result<Decoder> {
        Ok(Decoder {
            zstd: zstd::bulk::Decompressor::new()?,
            room: shuffle::Room::default(),
        })
    }

    /// Decodes like [`Decoder::decode`], and undoes the shuffle before the codec.
    ///
    /// # Errors
    ///
    /// Errors of [`Decoder::decode`].
    pub fn decode_shuffled(
        &mut self,
        codec: Codec,
        with: Option<Shuffle>,
        from: &[u8],
        to: &mut [u8],
    ) -> io::Result<()> {
        self.decode(codec, from, to)?;
        if let Some(with) = with {
            shuffle::undo(with, to, &mut self.room);
        }
        Ok(())
    }

    /// Decodes into `to`, which has the announced length; never writes beyond it.
    ///
    /// # Errors
    ///
    /// Fails if the data are invalid, or have another length than announced.
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

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::shuffle::{Arrangement, ElementSize};
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
    fn incompressible_data_are_left_unchanged() {
        let mut random = longhaul_units::Random::new(2);
        let noise = random.bytes(300_000);
        let with = Shuffle {
            arrangement: Arrangement::Bytes,
            element: ElementSize::Four,
        };
        let (mut encoder, mut decoder) = (Encoder::new().unwrap(), Decoder::new().unwrap());
        for codec in [Codec::Zstd { level: 1 }, Codec::Lz4] {
            let mut block = noise.clone();
            let mut small = vec![0; 1000];
            let failed = encoder.encode_shuffled(codec, with, &mut block, &mut small);
            assert!(failed.is_err() && block == noise);
            let mut packed = vec![0; bound(codec, noise.len())];
            let length = encoder.encode_shuffled(codec, with, &mut block, &mut packed);
            assert!(length.unwrap() >= noise.len() && block == noise);
            let mut zeros = vec![0; 300_000];
            let length = encoder.encode_shuffled(codec, with, &mut zeros, &mut packed);
            let packed = &packed[..length.unwrap()];
            let mut back = vec![1; 300_000];
            let decoded = decoder.decode_shuffled(codec, Some(with), packed, &mut back);
            assert!(decoded.is_ok() && back.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_decompression_bomb_is_bounded_by_the_announced_size() {
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
