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

/// Bytes of a block on a path of this round trip, a power of two. Each stream
/// holds a block at either end while it moves, and a path that needs many
/// streams shall not need much memory: smaller ones there. On short paths fewer
/// blocks cost less.
pub fn block_bytes(rtt: Duration) -> u32 {
    if rtt < LONG { 1 << 20 } else { 256 << 10 }
}

/// Most streams of blocks of `block` bytes in a `memory` of so many: a quarter
/// of it stays for what is read ahead and written behind. At least 1.
pub fn most_streams(memory: ByteCount, block: u32) -> u32 {
    let blocks = memory.0 / u64::from(block.max(1));
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
        let memory = ByteCount(64 << 20);
        let most =
            |milliseconds| most_streams(memory, block_bytes(Duration::from_millis(milliseconds)));
        assert_eq!([0, 100].map(most), [48, 192]);
        assert_eq!(most_streams(ByteCount(0), 0), 1);
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
