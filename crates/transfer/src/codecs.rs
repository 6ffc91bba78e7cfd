//! Connects the model to a transfer with automatic compression.

pub mod report;

use std::collections::HashMap;

use longhaul_engine::codec::choice::{self, CANDIDATES, Choose, CodecLook, Coded, CoresSeen};
use longhaul_model::compression::figures::Observed;
use longhaul_model::compression::sense::{Cores, Look, Sense};
use longhaul_model::compression::{Candidate, Compression, Deal, TRIAL_BYTES};
use longhaul_proto::block::Codec;
use longhaul_proto::coding::{CodecUse, Kind};

/// Initial costs of the codecs, in the order of [`CANDIDATES`]: nanoseconds per byte of text to
/// encode and to decode, on one core at 2.1 GHz (measured). They only decide which codec is tried
/// first.
const COSTS: [(f64, f64); CANDIDATES.len()] = [
    (1.4, 0.4),
    (1.6, 0.6),
    (1.8, 0.8),
    (3.0, 0.8),
    (7.0, 0.8),
    (14.0, 0.8),
];

/// Codecs that show whether a kind of data is compressible: the fastest one, which finds
/// repetitions, and the fastest one that also uses the frequencies of bytes.
const JUDGES: [Codec; 2] = [Codec::Lz4, Codec::Zstd { level: 1 }];

/// Adapts the model to the interface of the engine.
struct Automatic {
    compression: Compression,
    sense: Sense,
    /// True if the last informative observation showed that a codec may help.
    may_gain: bool,
    /// Bytes and nanoseconds of each codec in the receiver's previous report.
    decoded: HashMap<Codec, (u64, u64)>,
}

/// Creates the chooser of codecs for one transfer, without measurements.
pub(crate) fn chooser() -> Box<dyn Choose> {
    Box::new(Automatic::new())
}

impl Automatic {
    /// Creates the chooser without measurements.
    fn new() -> Automatic {
        let candidates = COSTS.iter().zip(&CANDIDATES);
        let candidates = candidates.map(|((encode, decode), codec)| Candidate {
            encode_seconds: encode * 1e-9,
            decode_seconds: decode * 1e-9,
            judges: JUDGES.contains(codec),
        });
        Automatic {
            compression: Compression::new(candidates.collect()),
            sense: Sense::default(),
            may_gain: false,
            decoded: HashMap::new(),
        }
    }

    /// Updates the cost of decoding from the work since the previous report.
    fn handle_decoded(&mut self, uses: &[CodecUse]) {
        let mut sums: HashMap<Codec, (u64, u64)> = HashMap::new();
        for of in uses {
            let sum = sums.entry(of.codec).or_default();
            sum.0 = sum.0.saturating_add(of.bytes);
            sum.1 = sum.1.saturating_add(of.nanoseconds);
        }
        for (place, codec) in CANDIDATES.iter().enumerate() {
            let Some(now) = sums.get(codec) else {
                continue;
            };
            let before = self.decoded.insert(*codec, *now).unwrap_or_default();
            let bytes = now.0.saturating_sub(before.0);
            if bytes > 0 {
                let seconds = now.1.saturating_sub(before.1) as f64 * 1e-9;
                self.compression
                    .handle_decoded(place, seconds / bytes as f64);
            }
        }
    }
}

fn cores(seen: CoresSeen, uses: &[CodecUse]) -> Cores {
    let nanoseconds = uses.iter().map(|of| of.nanoseconds);
    Cores {
        at: seen.at,
        all: seen.all,
        idle: seen.idle,
        usable: seen.usable,
        codec_seconds: nanoseconds.fold(0, u64::saturating_add) as f64 * 1e-9,
    }
}

impl Choose for Automatic {
    fn handle_look(&mut self, look: &CodecLook) -> bool {
        self.handle_decoded(&look.receiver_uses);
        let found = self.sense.handle_look(Look {
            at: look.at,
            carried: look.carried as f64,
            supplied: look.supplied as f64,
            is_full: look.is_full,
            had_room: look.had_room,
            window_rate: look.window_rate,
            most_rate: look.most_rate,
            waits_for_codec: look.waits_for_codec,
            sender: cores(look.sender, &look.sender_uses),
            receiver: look.receiver.map(|seen| cores(seen, &look.receiver_uses)),
        });
        let Some(resources) = found else {
            // Observations in quick succession contain no information.
            return self.may_gain;
        };
        self.compression.handle_resources(look.at, resources);
        let path_binds = resources.wire_rate > 0.0 && resources.wire_rate < resources.supply_rate;
        self.may_gain = path_binds || self.compression.is_in_use();
        self.may_gain
    }

    fn deal(&mut self, kind: Kind, bytes: u64) -> choice::Deal {
        match self.compression.deal(kind.number(), bytes) {
            Deal::Plain => choice::Deal::Plain,
            Deal::Coded(place) => choice::Deal::Coded(place),
            Deal::Try => choice::Deal::Try,
        }
    }

    fn renew(&mut self, kind: Kind, candidate: usize) -> Option<usize> {
        self.compression.renew(kind.number(), candidate)
    }

    fn is_late(&self, bytes: u64, waited: f64) -> bool {
        self.compression.is_late(bytes, waited)
    }

    fn next_trial(&mut self, kind: Kind, bytes: u64) -> Option<(usize, usize)> {
        let candidate = self.compression.next_trial(kind.number(), bytes)?;
        Some((candidate, TRIAL_BYTES as usize))
    }

    fn choose(&mut self, kind: Kind, bytes: u64) -> Option<usize> {
        self.compression.choose(kind.number(), bytes)
    }

    fn handle_encoded(&mut self, kind: Kind, candidate: usize, coded: Coded) {
        let observed = Observed {
            bytes: coded.bytes,
            encoded: coded.encoded,
            seconds: coded.seconds,
        };
        let number = kind.number();
        self.compression
            .handle_encoded(number, candidate, observed, coded.was_trial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1 << 20;

    fn look(at: f64, rate: f64) -> CodecLook {
        let seen = CoresSeen {
            at,
            all: 2.0,
            idle: 1.8,
            usable: 2.0,
        };
        CodecLook {
            at,
            carried: (at * rate) as u64,
            supplied: (at * rate) as u64,
            is_full: true,
            had_room: true,
            window_rate: 0.0,
            most_rate: f64::INFINITY,
            has_path: true,
            waits_for_codec: false,
            sender: seen,
            sender_uses: Vec::new(),
            receiver: Some(seen),
            receiver_uses: Vec::new(),
        }
    }

    /// Returns the number of encoded blocks among 200, if trials and blocks have this ratio.
    fn moved(automatic: &mut Automatic, ratio: f64) -> usize {
        let mut encoded = 0;
        for block in 0..200 {
            automatic.handle_look(&look(0.5 + 0.1 * f64::from(block), 12e6));
            let done = |candidate: usize, bytes: u64, was_trial| Coded {
                bytes,
                encoded: (bytes as f64 / ratio) as u64,
                seconds: bytes as f64 * COSTS[candidate].0 * 1e-9,
                was_trial,
            };
            while let Some((candidate, bytes)) = automatic.next_trial(Kind::Text, BLOCK) {
                let tried = done(candidate, bytes as u64, true);
                automatic.handle_encoded(Kind::Text, candidate, tried);
            }
            if let Some(candidate) = automatic.choose(Kind::Text, BLOCK) {
                let coded = done(candidate, BLOCK, false);
                automatic.handle_encoded(Kind::Text, candidate, coded);
                encoded += 1;
            }
        }
        encoded
    }

    #[test]
    fn compressible_data_are_encoded_on_a_slow_path_and_others_are_not() {
        assert!(moved(&mut Automatic::new(), 4.0) > 190);
        assert_eq!(moved(&mut Automatic::new(), 1.0), 0);
    }

    #[test]
    fn no_trial_is_made_before_the_path_is_known() {
        let mut automatic = Automatic::new();
        let mut first = look(0.1, 0.0);
        first.is_full = false;
        assert!(!automatic.handle_look(&first));
        first.at = 0.2;
        first.window_rate = 3e5;
        assert!(automatic.handle_look(&first));
        first.at += 0.001;
        assert!(
            automatic.handle_look(&first),
            "a look that tells nothing changes nothing"
        );
    }

    #[test]
    fn the_receivers_decoding_times_are_used() {
        let mut automatic = Automatic::new();
        moved(&mut automatic, 4.0);
        let mut told = look(60.0, 12e6);
        for _ in 0..40 {
            told.at += 0.1;
            told.carried += 1_200_000;
            for (place, codec) in CANDIDATES.iter().enumerate() {
                if told.receiver_uses.len() <= place {
                    told.receiver_uses.push(CodecUse {
                        kind: None,
                        codec: *codec,
                        shuffled: false,
                        bytes: 0,
                        encoded: 0,
                        nanoseconds: 0,
                    });
                }
                // This receiver needs one second of a core per megabyte.
                told.receiver_uses[place].bytes += 1_000_000;
                told.receiver_uses[place].nanoseconds += 1_000_000_000;
            }
            automatic.handle_look(&told);
        }
        let share: f64 = (0..CANDIDATES.len())
            .map(|codec| automatic.compression.share(Kind::Text.number(), codec))
            .sum();
        assert!(share < 0.5, "{share}");
    }
}
