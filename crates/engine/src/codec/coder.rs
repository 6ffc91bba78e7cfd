//! State that a flow of the compression layer keeps between blocks.

use longhaul_proto::block::Codec;
use longhaul_proto::shuffle::Shuffle;

use super::{Encoder, bound};

/// State of a compressor.
pub(crate) struct Coder {
    pub encoder: Encoder,
    /// Buffers for input and output of trials.
    sample: Vec<u8>,
    tried: Vec<u8>,
}

impl Coder {
    /// Creates a compressor.
    ///
    /// # Errors
    ///
    /// Fails if zstd has no memory.
    pub fn new() -> std::io::Result<Coder> {
        Ok(Coder {
            encoder: Encoder::new()?,
            sample: Vec::new(),
            tried: Vec::new(),
        })
    }

    /// Encodes a sample; returns the bytes after encoding, `None` if they are not fewer.
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
