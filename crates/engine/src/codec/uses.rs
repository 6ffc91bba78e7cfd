//! Statistics of the codecs at an end, by kind of data: for the choice, for the other end, and for
//! the summary.

use std::sync::Mutex;

use longhaul_proto::coding::{CodecUse, MAXIMUM_CODEC_USES};
use longhaul_system::queue::lock;

/// Sums by kind and codec.
#[derive(Debug, Default)]
pub(crate) struct CodecUses(Mutex<Vec<CodecUse>>);

impl CodecUses {
    /// Adds one block, or a trial, which has 0 bytes.
    pub fn add(&self, one: CodecUse) {
        let mut sums = lock(&self.0);
        let same = |sum: &CodecUse| {
            (sum.kind, sum.codec, sum.shuffled) == (one.kind, one.codec, one.shuffled)
        };
        match sums.iter().position(same) {
            Some(place) => {
                let sum = &mut sums[place];
                sum.bytes = sum.bytes.saturating_add(one.bytes);
                sum.encoded = sum.encoded.saturating_add(one.encoded);
                sum.nanoseconds = sum.nanoseconds.saturating_add(one.nanoseconds);
            }
            // More rows only occur if a faulty peer names many levels.
            None if sums.len() >= MAXIMUM_CODEC_USES => {}
            None => sums.push(one),
        }
    }

    /// Returns all sums.
    pub fn list(&self) -> Vec<CodecUse> {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_proto::block::Codec;

    #[test]
    fn rows_are_summed_and_bounded() {
        let uses = CodecUses::default();
        let one = |level| CodecUse {
            kind: None,
            codec: Codec::Zstd { level },
            shuffled: false,
            bytes: 10,
            encoded: 5,
            nanoseconds: u64::MAX,
        };
        uses.add(one(1));
        uses.add(one(1));
        assert_eq!(uses.list()[0].bytes, 20);
        (0..1000).for_each(|level| uses.add(one(level)));
        assert_eq!(uses.list().len(), MAXIMUM_CODEC_USES);
    }
}
