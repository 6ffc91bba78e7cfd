//! Chooses the initial number of streams and the block size, when only the round-trip time is
//! known.

use std::time::Duration;

use longhaul_units::ByteCount;

use crate::response::Congestion;

/// Minimum initial number of streams: one connection each for reading, writing, and encryption at
/// both ends. On a single host more do not help.
const FEWEST: u32 = 4;

/// Maximum initial number of streams. More are not much faster: each doubling saves one of about
/// ten round trips of slow start, and the new streams join three round trips later.
const MOST: u32 = 16;

/// One stream is used for each of these parts of the round-trip time: 16 streams from 90 ms on.
const EACH: Duration = Duration::from_millis(6);

/// Minimum number of bytes for each further stream: twice the bytes that the first stream carries
/// in the three round trips until the others are open, doubling from ten segments. With less data a
/// further stream opens too late.
const WORTH_A_STREAM: u64 = 256 << 10;

/// Returns the initial number of streams, 1 to 16. A longer round trip makes slow start longer, and
/// n streams begin with n times the window. BBR's start is steeper, and each of its streams keeps a
/// bandwidth-delay product in the queue. So a large number of streams only causes loss: 16 streams
/// retransmitted a seventh of the data. `bytes` is the size of the data, if known.
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

/// Round-trip time above which a path needs many streams.
const LONG: Duration = Duration::from_millis(20);

/// Round-trip time below which both ends are in one building.
const NEAR: Duration = Duration::from_millis(1);

/// Size in bytes of the largest automatically chosen block. On two cores each block costs about 75
/// us for wake-ups, messages and disk requests, as much as hashing 400 KiB. A copy with blocks of 1
/// MiB needed 20 to 33 % more CPU time than with 4 MiB; with 8 and 16 MiB it needed no less.
pub const LARGEST_BLOCK_BYTES: u32 = 4 << 20;

/// Size in bytes of the smallest automatically chosen block.
const SMALLEST_BLOCK_BYTES: u32 = 64 << 10;

/// Size in bytes from which blocks are for short paths and use half of the memory. All of the
/// memory would allow many streams, and first access to it costs more than it gains.
const SHORT_PATHS_BLOCK: u32 = 1 << 20;

/// Minimum number of blocks that an end's memory should hold: on a short path in the used half, and
/// on a long path. Three quarters of the latter are as many streams as a law of loss requires.
const BLOCKS_IN_MEMORY: (u64, u64) = (16, 256);

/// Size in bytes of a block on a long path: minimum and maximum.
const LONG_PATHS_BLOCKS: (u32, u32) = (256 << 10, 512 << 10);

/// The size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// A fixed size in bytes.
    Fixed(u32),
    /// A size that suits the path and this end's memory for blocks.
    Free {
        /// Memory for blocks, in bytes.
        memory: ByteCount,
        /// Maximum size in bytes, a power of two.
        most: u32,
    },
}

impl BlockSize {
    /// Returns the size in bytes for a path with this round-trip time. If not fixed, it is a power
    /// of two from 64 KiB (or `most`, if less) to 4 MiB.
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

/// Returns the preferred size of a block for this round-trip time, a power of two in bytes. Each
/// stream holds a block at either end during the transfer. Blocks are smaller on a path that needs
/// many streams, to save memory. On short paths, fewer blocks need less CPU time.
fn block_bytes(rtt: Duration) -> u32 {
    match rtt {
        _ if rtt < NEAR => LARGEST_BLOCK_BYTES,
        _ if rtt < LONG => 1 << 20,
        _ => LONG_PATHS_BLOCKS.1,
    }
}

/// Returns the part of an end's memory that blocks of `block` bytes use.
pub fn used_memory(memory: ByteCount, block: u32) -> ByteCount {
    if block >= SHORT_PATHS_BLOCK {
        ByteCount(memory.0 / 2)
    } else {
        memory
    }
}

/// Returns the maximum number of streams (at least 1) with blocks of `block` bytes in `memory`
/// bytes. A quarter of the used memory is kept for blocks that are read ahead or written behind.
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
    fn a_longer_path_starts_with_more_streams() {
        let streams =
            |microseconds| initial_streams(Duration::from_micros(microseconds), None, None);
        assert_eq!(
            [400, 11_800, 22_600, 45_600, 91_600, 183_000, 366_000].map(streams),
            [4, 4, 4, 8, 16, 16, 16]
        );
    }

    #[test]
    fn little_memory_allows_many_streams() {
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
    fn block_sizes_depend_on_path_and_memory() {
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
    fn little_data_needs_few_streams() {
        let long = Duration::from_millis(366);
        let streams = |bytes| initial_streams(long, Some(ByteCount(bytes)), None);
        assert_eq!([0, 1000, 1 << 20, 1 << 30].map(streams), [1, 1, 4, 16]);
        let bbr = Some(&Congestion::Bbr);
        assert_eq!(initial_streams(long, None, bbr), 4);
    }
}
