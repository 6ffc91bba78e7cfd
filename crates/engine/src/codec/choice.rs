//! What chooses a codec for each block while a transfer runs, and what it is shown. It knows no
//! clock and no thread; `longhaul-transfer` has the one that `longhaul-model` decides for.

use longhaul_proto::block::Codec;
use longhaul_proto::coding::{CodecUse, Kind};

/// Codecs among which is chosen, from the cheapest to the dearest. There is a compressor for each
/// core, so that their memory counts: zstd takes some 14 MiB up to level 9, and several times that
/// above it.
pub const CANDIDATES: [Codec; 6] = [
    Codec::Lz4,
    Codec::Zstd { level: -5 },
    Codec::Zstd { level: 1 },
    Codec::Zstd { level: 3 },
    Codec::Zstd { level: 6 },
    Codec::Zstd { level: 9 },
];

/// An end's cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoresSeen {
    /// When that end looked, in seconds since it began.
    pub at: f64,
    /// Cores that the process may use.
    pub all: f64,
    /// Of these, cores that idled lately.
    pub idle: f64,
    /// Cores that the codecs of one session can use at once: its flows, and blocks in buffers.
    pub usable: f64,
}

/// A look at a transfer from its sending end. Counts are since it began.
#[derive(Clone, Debug, PartialEq)]
pub struct CodecLook {
    /// Seconds.
    pub at: f64,
    /// Bytes that the path took.
    pub carried: u64,
    /// Bytes of the source that were read.
    pub supplied: u64,
    /// More waits for the path than it takes.
    pub is_full: bool,
    /// The receiver had room for blocks all the time since the last look.
    pub had_room: bool,
    /// Bytes per second that windows allow on a long path; 0 where that is not known.
    pub window_rate: f64,
    /// Bytes per second that the transfer may have at most; infinite without a bound.
    pub most_rate: f64,
    /// The ends are on two hosts, or the rate is bound: else there is nothing to gain.
    pub has_path: bool,
    /// Blocks wait for a codec, or are with one.
    pub waits_for_codec: bool,
    /// This end.
    pub sender: CoresSeen,
    /// What codecs did here.
    pub sender_uses: Vec<CodecUse>,
    /// The other end, where it told.
    pub receiver: Option<CoresSeen>,
    /// What codecs did there.
    pub receiver_uses: Vec<CodecUse>,
}

/// What a block gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// It is sent as it is.
    Plain,
    /// The codec with this place.
    Coded(usize),
    /// Trials on it tell.
    Try,
}

/// What became of a block, or of a trial on a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coded {
    /// Bytes before.
    pub bytes: u64,
    /// Bytes after; as many as before where it got no smaller.
    pub encoded: u64,
    /// Seconds of a core.
    pub seconds: f64,
    /// It was a trial, and nothing of it is sent.
    pub was_trial: bool,
}

/// Chooses for the blocks of one transfer. Codecs are named by their places in [`CANDIDATES`].
pub trait Choose: Send {
    /// Takes a look, ten times a second; says whether a codec may be worth anything now.
    fn handle_look(&mut self, look: &CodecLook) -> bool;

    /// What a block gets, before it is read: one that is sent as it is takes the ways that it takes
    /// without codecs. It is counted as what it gets.
    fn deal(&mut self, kind: Kind, bytes: u64) -> Deal;

    /// Which codec is to be tried on a block, and on how many of its bytes. Its result comes
    /// before this is asked again, until there is none.
    fn next_trial(&mut self, kind: Kind, bytes: u64) -> Option<(usize, usize)>;

    /// The codec for a block that waited, for which one was dealt: that one, or what is dealt now
    /// in its place.
    fn renew(&mut self, kind: Kind, candidate: usize) -> Option<usize>;

    /// Whether a block has waited, in seconds, for longer than the path takes for it as it is.
    fn is_late(&self, bytes: u64, waited: f64) -> bool;

    /// The codec for a block after trials on it; none if it is sent as it is.
    fn choose(&mut self, kind: Kind, bytes: u64) -> Option<usize>;

    /// Takes what a codec made of a block or a trial.
    fn handle_encoded(&mut self, kind: Kind, candidate: usize, coded: Coded);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_candidate_takes_more_memory_than_a_thread_is_said_to_have() {
        // Above level 9 zstd's tables for 4 MiB have 32 MiB and more.
        let is_small = |codec: &Codec| !matches!(codec, Codec::Zstd { level: 10.. });
        assert!(CANDIDATES.iter().all(is_small));
    }
}
