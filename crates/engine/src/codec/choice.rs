//! Interface of the chooser of codecs for each block, and its inputs. It has no clock and no
//! threads. `longhaul-transfer` implements it with the decisions of `longhaul-model`.

use longhaul_proto::block::Codec;
use longhaul_proto::coding::{CodecUse, Kind};

/// Codecs to choose from, from the fastest to the slowest. Each core has a compressor, so their
/// memory matters: zstd needs about 14 MiB up to level 9, and several times as much above it.
pub const CANDIDATES: [Codec; 6] = [
    Codec::Lz4,
    Codec::Zstd { level: -5 },
    Codec::Zstd { level: 1 },
    Codec::Zstd { level: 3 },
    Codec::Zstd { level: 6 },
    Codec::Zstd { level: 9 },
];

/// Cores of an end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoresSeen {
    /// Time of the observation at that end, in seconds since it began.
    pub at: f64,
    /// Number of cores that the process may use.
    pub all: f64,
    /// Number of these cores that were recently idle.
    pub idle: f64,
    /// Number of cores that the codecs of one session can use at once, limited by its flows and
    /// buffers.
    pub usable: f64,
}

/// Observation of a transfer from its sending end. Counts are since it began.
#[derive(Clone, Debug, PartialEq)]
pub struct CodecLook {
    /// Time in seconds.
    pub at: f64,
    /// Number of bytes that the path took.
    pub carried: u64,
    /// Number of bytes read from the source.
    pub supplied: u64,
    /// True if more data wait for the path than it takes.
    pub is_full: bool,
    /// True if the receiver had room for blocks all the time since the last observation.
    pub had_room: bool,
    /// Rate that the windows allow on a long path, in bytes per second; 0 if unknown.
    pub window_rate: f64,
    /// Rate limit of the transfer in bytes per second; infinite without a limit.
    pub most_rate: f64,
    /// True if the ends are on two hosts or the rate is limited. Otherwise codecs gain no time.
    pub has_path: bool,
    /// True if blocks wait for a codec or are being encoded.
    pub waits_for_codec: bool,
    /// Cores of this end.
    pub sender: CoresSeen,
    /// Statistics of this end's codecs.
    pub sender_uses: Vec<CodecUse>,
    /// Cores of the other end, if it reported them.
    pub receiver: Option<CoresSeen>,
    /// Statistics of the other end's codecs.
    pub receiver_uses: Vec<CodecUse>,
}

/// Decision for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// Send it unchanged.
    Plain,
    /// Use the codec with this index.
    Coded(usize),
    /// Decide by trials on the block.
    Try,
}

/// Result of encoding a block, or of a trial on a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coded {
    /// Number of bytes before encoding.
    pub bytes: u64,
    /// Number of bytes after encoding; the same number if it did not get smaller.
    pub encoded: u64,
    /// CPU time in seconds.
    pub seconds: f64,
    /// True if it was a trial, whose output is not sent.
    pub was_trial: bool,
}

/// Chooses codecs for the blocks of one transfer. Codecs are given as indices in [`CANDIDATES`].
pub trait Choose: Send {
    /// Processes an observation, ten times a second; true if a codec may be worthwhile now.
    fn handle_look(&mut self, look: &CodecLook) -> bool;

    /// Decides about a block before it is read, so that an unchanged block can be sent in the same
    /// way as without codecs. The block is counted according to the decision.
    fn deal(&mut self, kind: Kind, bytes: u64) -> Deal;

    /// Returns the index of the codec to try on a block, and the number of bytes to try. Each
    /// result is passed to `handle_encoded` before the next call, until this returns `None`.
    fn next_trial(&mut self, kind: Kind, bytes: u64) -> Option<(usize, usize)>;

    /// Returns the codec for a block that waited: the one chosen before, or the current choice
    /// instead of it.
    fn renew(&mut self, kind: Kind, candidate: usize) -> Option<usize>;

    /// True if a block has waited, in seconds, longer than the path needs for it unchanged.
    fn is_late(&self, bytes: u64, waited: f64) -> bool;

    /// Returns the codec for a block after trials on it; `None` if it is sent unchanged.
    fn choose(&mut self, kind: Kind, bytes: u64) -> Option<usize>;

    /// Processes the result of encoding a block, or of a trial.
    fn handle_encoded(&mut self, kind: Kind, candidate: usize, coded: Coded);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_candidate_uses_more_memory_than_a_thread_may() {
        // Above level 9, zstd's tables for 4 MiB need 32 MiB and more.
        let is_small = |codec: &Codec| !matches!(codec, Codec::Zstd { level: 10.. });
        assert!(CANDIDATES.iter().all(is_small));
    }
}
