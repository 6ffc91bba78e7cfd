//! Tries codecs on samples of data: finds the kind, and the time and gain of each candidate.

use std::io;

use longhaul_proto::block::Codec;
use longhaul_proto::coding::Kind;

use crate::codec::choice::CANDIDATES;
use crate::codec::{Decoder, Encoder, bound};
use crate::send::automatic::shuffle_before;
use crate::send::kinds::{elements_of, kind_of_pack, kind_of_sample};
use crate::session::observe::thread_cpu_time;

/// Result of one codec on a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// The codec.
    pub codec: Codec,
    /// Number of bytes after encoding; the same number if it did not get smaller.
    pub encoded: u64,
    /// CPU time for encoding at the source, in seconds.
    pub encode_seconds: f64,
    /// CPU time for decoding at the destination, in seconds.
    pub decode_seconds: f64,
}

/// State of the codecs, for successive samples.
pub struct Trials {
    encoder: Encoder,
    decoder: Decoder,
    room: Vec<u8>,
    back: Vec<u8>,
}

impl Trials {
    /// Creates the codecs.
    ///
    /// # Errors
    ///
    /// If zstd has no memory.
    pub fn new() -> io::Result<Trials> {
        Ok(Trials {
            encoder: Encoder::new()?,
            decoder: Decoder::new()?,
            room: Vec::new(),
            back: Vec::new(),
        })
    }

    /// Returns the kind of a sample of a large file with the first bytes `head`, or of small files
    /// (`None`), of which a block has many.
    pub fn kind(head: Option<&[u8]>, sample: &[u8]) -> Kind {
        match head {
            Some(head) => kind_of_sample(head, sample),
            None => kind_of_pack(sample),
        }
    }

    /// Tries the candidates for which `uses` is true on a sample of a kind. The result is that of a
    /// block, but a bit slower and with a bit less gain.
    pub fn try_all(
        &mut self,
        kind: Kind,
        sample: &[u8],
        uses: impl Fn(Codec) -> bool,
    ) -> Vec<Tried> {
        let wanted = CANDIDATES.into_iter().filter(|codec| uses(*codec));
        wanted
            .filter_map(|codec| self.try_one(codec, kind, sample))
            .collect()
    }

    fn try_one(&mut self, codec: Codec, kind: Kind, sample: &[u8]) -> Option<Tried> {
        let shuffle = elements_of(kind).map(|element| shuffle_before(codec, element));
        self.room.resize(bound(codec, sample.len()), 0);
        self.back.clear();
        self.back.extend_from_slice(sample);
        let (copy, room) = (&mut self.back, &mut self.room);
        let before = thread_cpu_time();
        let encoded = match shuffle {
            Some(with) => self.encoder.encode_shuffled(codec, with, copy, room),
            None => self.encoder.encode(codec, copy, room),
        };
        let between = thread_cpu_time();
        let encoded = encoded.ok()?;
        let (packed, back) = (&self.room[..encoded], &mut self.back);
        self.decoder
            .decode_shuffled(codec, shuffle, packed, back)
            .ok()?;
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 * 1e-9;
        Some(Tried {
            codec,
            encoded: encoded.min(sample.len()) as u64,
            encode_seconds: seconds(before, between),
            decode_seconds: seconds(between, thread_cpu_time()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Random;

    #[test]
    fn samples_have_the_kinds_and_ratios_of_a_copy() {
        let random = &mut Random::new(5);
        let field = (0..8192_u32).flat_map(|at| {
            let value = 300.0 + 20.0 * (f64::from(at) / 700.0).sin() + random.fraction();
            value.to_le_bytes()
        });
        let field: Vec<u8> = field.collect();
        let mut trials = Trials::new().unwrap();
        let kind = Trials::kind(Some(b""), &field);
        assert_eq!(kind, Kind::Numbers8);
        let arrays = trials.try_all(kind, &field, |_| true);
        assert_eq!(arrays.len(), CANDIDATES.len());
        let plain = trials.try_all(Kind::Text, &field, |_| true);
        for (array, plain) in arrays.iter().zip(&plain) {
            assert!(array.encoded < plain.encoded, "{array:?} {plain:?}");
        }
        let noise = Random::new(6).bytes(64 << 10);
        assert_eq!(Trials::kind(Some(b"\x1f\x8b\x08"), &noise), Kind::Full);
        assert_eq!(Trials::kind(None, &noise), Kind::SmallFull);
        let tried = trials.try_all(Kind::Full, &noise, |_| true);
        assert!(tried.iter().all(|it| it.encoded as usize == noise.len()));
    }
}
