//! What codecs make of a sample of data: of which kind it is, and what each candidate of a copy
//! takes and gains.

use std::io;

use longhaul_proto::block::Codec;
use longhaul_proto::coding::Kind;

use crate::codec::choice::CANDIDATES;
use crate::codec::{Decoder, Encoder, bound};
use crate::send::automatic::shuffle_before;
use crate::send::kinds::{elements_of, kind_of_pack, kind_of_sample};
use crate::session::observe::thread_cpu_time;

/// What one codec made of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// The codec.
    pub codec: Codec,
    /// Bytes after it; as many as before if it got no smaller.
    pub encoded: u64,
    /// Seconds of a core at the source.
    pub encode_seconds: f64,
    /// The same at the destination.
    pub decode_seconds: f64,
}

/// The state of codecs, for one sample after another.
pub struct Trials {
    encoder: Encoder,
    decoder: Decoder,
    room: Vec<u8>,
    back: Vec<u8>,
}

impl Trials {
    /// No sample yet.
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

    /// The kind of a sample of a large file whose first bytes are known, or of small files
    /// (`None`), which a block has many of.
    pub fn kind(head: Option<&[u8]>, sample: &[u8]) -> Kind {
        match head {
            Some(head) => kind_of_sample(head, sample),
            None => kind_of_pack(sample),
        }
    }

    /// Tries the candidates that `uses` wants on a sample of a kind. What a codec does with it is
    /// what it does with a block, except that it takes a little longer and shrinks a little less.
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
    fn samples_have_kinds_and_get_smaller_as_they_do_in_a_copy() {
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
