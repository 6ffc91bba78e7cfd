//! How many streams a transfer begins with, before anything but a round trip
//! is known.

use std::time::Duration;

use longhaul_units::ByteCount;

use crate::response::Congestion;

/// A host that has everything to do itself gains nothing from more; one
/// connection each for reading, writing, enciphering at both ends.
const FEWEST: u32 = 4;

/// More do not start faster by much: each doubling saves one round trip of the
/// ten or so that a slow start takes, and joins the others three later.
const MOST: u32 = 16;

/// A stream for so much of the round trip: 16 from 90 ms on.
const EACH: Duration = Duration::from_millis(6);

/// What the first stream carries in the three round trips that the others take
/// to open, from ten segments doubling, and again as much: with less to send
/// another stream comes too late.
const WORTH_A_STREAM: u64 = 256 << 10;

/// Streams at the start: the longer the round trip, the longer one stream's
/// slow start, and n streams begin n times as high. BBR's start is steeper and
/// each of its streams keeps a product in the queue, so that many only lose:
/// 16 of them sent a seventh of everything twice. `bytes` is what there is to
/// send, where that is known. 1 to 16.
pub fn initial_streams(
    rtt: Duration,
    bytes: Option<ByteCount>,
    congestion: Option<&Congestion>,
) -> u32 {
    if congestion == Some(&Congestion::Bbr) {
        return FEWEST;
    }
    let by_path = rtt.as_micros().div_ceil(EACH.as_micros());
    let by_path = u32::try_from(by_path).unwrap_or(MOST).clamp(FEWEST, MOST);
    let worth = bytes.map_or(MOST.into(), |bytes| bytes.0.div_ceil(WORTH_A_STREAM));
    by_path.min(u32::try_from(worth).unwrap_or(MOST)).max(1)
}

/// Round trips from which a path takes many streams.
const LONG: Duration = Duration::from_millis(20);

/// Round trips below which both ends are in one building.
const NEAR: Duration = Duration::from_millis(1);

/// Bytes of the largest block that a path gets by itself. On two cores each block
/// costs some 75 us of them, in wakes, messages and requests to the disk, which is
/// as much as hashing 400 KiB: of 1 MiB a copy took a fifth to a third more time of
/// the processors than of 4 MiB, of 8 and 16 MiB no less.
pub const LARGEST_BLOCK_BYTES: u32 = 4 << 20;

/// And of the smallest.
const SMALLEST_BLOCK_BYTES: u32 = 64 << 10;

/// Blocks of this many bytes or more are for short paths, and half of the memory is used for them.
/// All of it would be for many streams, and to touch it for the first time costs more than it
/// gains.
const SHORT_PATHS_BLOCK: u32 = 1 << 20;

/// Blocks that an end's memory should hold on a short path, in the half of it that is used, and on
/// a long one: three quarters of these are as many streams as a law of loss asks for.
const BLOCKS_IN_MEMORY: (u64, u64) = (16, 256);

/// Bytes of a block on a long path: at least, and at most.
const LONG_PATHS_BLOCKS: (u32, u32) = (256 << 10, 512 << 10);

/// How many bytes a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// This many.
    Fixed(u32),
    /// As many as the path wants and this end's memory for blocks bears.
    Free {
        /// That memory, in bytes.
        memory: ByteCount,
        /// And no more bytes than this, a power of two, whatever the path.
        most: u32,
    },
}

impl BlockSize {
    /// Bytes on a path of this round trip; where free a power of two, 64 KiB (or the
    /// most, if that is less) to 4 MiB.
    pub fn on(self, rtt: Duration) -> u32 {
        match self {
            BlockSize::Fixed(bytes) => bytes,
            BlockSize::Free { memory, most } => {
                let short = memory.0 / 2 / BLOCKS_IN_MEMORY.0;
                let long = memory.0 / BLOCKS_IN_MEMORY.1;
                let long = long.max(LONG_PATHS_BLOCKS.0.into());
                let borne = if rtt < LONG { short } else { long.min(short) };
                let borne = 1_u64 << borne.max(SMALLEST_BLOCK_BYTES.into()).ilog2();
                let wanted = block_bytes(rtt).min(most);
                u32::try_from(borne).map_or(wanted, |borne| borne.min(wanted))
            }
        }
    }
}

/// Bytes of a block on a path of this round trip, a power of two. Each stream holds a block at
/// either end while it moves. Blocks are smaller on a path that needs many streams, to save
/// memory. On short paths fewer blocks cost less.
fn block_bytes(rtt: Duration) -> u32 {
    match rtt {
        _ if rtt < NEAR => LARGEST_BLOCK_BYTES,
        _ if rtt < LONG => 1 << 20,
        _ => LONG_PATHS_BLOCKS.1,
    }
}

/// Of an end's memory for blocks what is used for those of `block` bytes.
pub fn used_memory(memory: ByteCount, block: u32) -> ByteCount {
    if block >= SHORT_PATHS_BLOCK {
        ByteCount(memory.0 / 2)
    } else {
        memory
    }
}

/// Most streams of blocks of `block` bytes in `memory` bytes: a quarter of what is used of it
/// stays for blocks that are read ahead and written behind. At least 1.
pub fn most_streams(memory: ByteCount, block: u32) -> u32 {
    let blocks = used_memory(memory, block).0 / u64::from(block.max(1));
    u32::try_from(blocks - blocks / 4)
        .unwrap_or(u32::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_path_begins_with_more() {
        let streams =
            |microseconds| initial_streams(Duration::from_micros(microseconds), None, None);
        assert_eq!(
            [400, 11_800, 22_600, 45_600, 91_600, 183_000, 366_000].map(streams),
            [4, 4, 4, 8, 16, 16, 16]
        );
    }

    #[test]
    fn many_streams_fit_into_little_memory() {
        let memory = ByteCount(128 << 20);
        let free = BlockSize::Free {
            memory,
            most: LARGEST_BLOCK_BYTES,
        };
        let most =
            |milliseconds| most_streams(memory, free.on(Duration::from_millis(milliseconds)));
        assert_eq!([0, 1, 100].map(most), [12, 48, 192]);
        assert_eq!(most_streams(ByteCount(0), 0), 1);
    }

    #[test]
    fn blocks_are_as_large_as_path_and_memory_have_them() {
        let on = |mebibytes: u64, microseconds| {
            let memory = ByteCount(mebibytes << 20);
            let most = LARGEST_BLOCK_BYTES;
            BlockSize::Free { memory, most }.on(Duration::from_micros(microseconds)) >> 10
        };
        let paths = [0, 999, 1000, 19_999, 20_000, 366_000];
        assert_eq!(
            paths.map(|path| on(64, path)),
            [2048, 2048, 1024, 1024, 256, 256]
        );
        for memory in [128, 5000] {
            assert_eq!(
                paths.map(|path| on(memory, path)),
                [4096, 4096, 1024, 1024, 512, 512]
            );
        }
        assert_eq!(
            [0, 1, 3, 4, 8, 40].map(|memory| on(memory, 50)),
            [64, 64, 64, 128, 256, 1024]
        );
        assert_eq!(BlockSize::Fixed(7).on(Duration::ZERO), 7);
        let slow = BlockSize::Free {
            memory: ByteCount(64 << 20),
            most: 4096,
        };
        assert_eq!(slow.on(Duration::from_secs(1)), 4096);
    }

    #[test]
    fn little_data_takes_few() {
        let long = Duration::from_millis(366);
        let streams = |bytes| initial_streams(long, Some(ByteCount(bytes)), None);
        assert_eq!([0, 1000, 1 << 20, 1 << 30].map(streams), [1, 1, 4, 16]);
        let bbr = Some(&Congestion::Bbr);
        assert_eq!(initial_streams(long, None, bbr), 4);
    }
}
