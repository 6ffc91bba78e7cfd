//! What a flow of the compression layer keeps from block to block.

use longhaul_proto::block::Codec;
use longhaul_proto::shuffle::Shuffle;

use super::{Encoder, bound};

/// A compressor's state.
pub(crate) struct Coder {
    pub encoder: Encoder,
    /// For trials: what is tried, and what comes out.
    sample: Vec<u8>,
    tried: Vec<u8>,
}

impl Coder {
    /// A new one.
    ///
    /// # Errors
    ///
    /// Where zstd has no memory.
    pub fn new() -> std::io::Result<Coder> {
        Ok(Coder {
            encoder: Encoder::new()?,
            sample: Vec::new(),
            tried: Vec::new(),
        })
    }

    /// What a codec makes of a sample, in bytes; none if it gets no smaller.
    pub fn try_codec(
        &mut self,
        codec: Codec,
        shuffle: Option<Shuffle>,
        sample: &[u8],
    ) -> Option<usize> {
        self.sample.clear();
        self.sample.extend_from_slice(sample);
        self.tried.resize(bound(codec, sample.len()), 0);
        let (from, to) = (&mut self.sample[..], &mut self.tried[..]);
        let encoded = match shuffle {
            Some(with) => self.encoder.encode_shuffled(codec, with, from, to),
            None => self.encoder.encode(codec, from, to),
        };
        encoded.ok().filter(|length| *length < sample.len())
    }
}
