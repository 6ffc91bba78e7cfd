//! Limits of the data that are prepared for a path on which codecs are chosen.
//!
//! Prepared data keep their codec, even if a better one is found meanwhile. At 100 Mbit/s, a block
//! of 4 MiB for each of four streams, and a quarter of the buffers waiting behind them, take
//! seconds. So a block is at most the data of a stream in a fraction of a second, and few blocks
//! wait.

use std::time::Duration;

use longhaul_units::Moment;

/// Maximum time that a stream needs for a block, in seconds.
const BLOCK_SECONDS: f64 = 0.25;

/// Maximum time that the path needs for the waiting data, in seconds: longer than the pauses of a
/// source. On a path that is fast enough to need no codec the buffers hold less.
const PREPARED_SECONDS: f64 = 0.5;

/// Minimum size of a block in bytes, used on the slowest path and while the path is unknown. Codecs
/// compress smaller blocks less.
const LEAST_BLOCK_BYTES: u64 = 256 << 10;

/// Minimum time between two observations; shorter ones are imprecise.
const LEAST_SPAN: Duration = Duration::from_millis(20);

/// Weight of an observation in which a path carried less than before.
const WEIGHT: f64 = 0.3;

/// Recent rate of a path, from successive observations. The model's rate (`compression/sense.rs`)
/// does not fit: it is unknown until a path is full, grows while the path has capacity left, and
/// falls at once.
#[derive(Debug, Default)]
pub(super) struct Carried {
    at: Moment,
    bytes: u64,
    /// Rate in bytes per second.
    rate: f64,
}

impl Carried {
    /// Processes the bytes carried since the session began; returns the rate in bytes per second.
    pub fn handle_look(&mut self, at: Moment, bytes: u64) -> f64 {
        let span = at - self.at;
        if span >= LEAST_SPAN {
            let now = bytes.saturating_sub(self.bytes) as f64 / span.as_secs_f64();
            self.rate = now.max(self.rate + WEIGHT * (now - self.rate));
            (self.at, self.bytes) = (at, bytes);
        }
        self.rate
    }
}

/// Limits of prepared data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preparation {
    /// Maximum bytes of a block.
    pub block_bytes: u64,
    /// Maximum encoded bytes that wait for streams.
    pub waiting_bytes: u64,
}

impl Preparation {
    /// No limits, as without codecs.
    pub const UNBOUND: Preparation = Preparation {
        block_bytes: u64::MAX,
        waiting_bytes: u64::MAX,
    };

    /// Returns the limits for a path that carries `rate` bytes per second with this many streams.
    /// Codecs compress by `ratio`. Blocks have at most `most` bytes.
    pub fn for_path(rate: f64, ratio: f64, streams: usize, most: u64) -> Preparation {
        let of_stream = rate * ratio.max(1.0) / streams.max(1) as f64;
        let block_bytes = ((of_stream * BLOCK_SECONDS) as u64)
            .max(LEAST_BLOCK_BYTES)
            .min(most.max(1));
        Preparation {
            block_bytes,
            waiting_bytes: (rate * PREPARED_SECONDS) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 4 << 20;

    #[test]
    fn few_blocks_are_prepared_for_a_slow_path() {
        let slow = Preparation::for_path(12.5e6, 1.0, 4, MOST);
        let prepared = slow.block_bytes * 4 + slow.waiting_bytes;
        assert!(
            prepared as f64 <= 12.5e6,
            "{slow:?}: more than a second of it"
        );
        let unknown = Preparation::for_path(0.0, 1.0, 4, MOST);
        assert_eq!(unknown.block_bytes, LEAST_BLOCK_BYTES);
        assert_eq!(unknown.waiting_bytes, 0, "what streams take next");
        // The limit of waiting data counts encoded bytes.
        let coded = Preparation::for_path(12.5e6, 70.0, 4, MOST);
        assert_eq!(coded.block_bytes, MOST);
        assert_eq!(coded.waiting_bytes, slow.waiting_bytes);
        let fast = Preparation::for_path(1.25e9, 1.0, 4, MOST);
        assert_eq!(fast.block_bytes, MOST);
        assert!(fast.waiting_bytes > 500_000_000, "{fast:?}");
        let endless = Preparation::for_path(f64::INFINITY, 1.0, 0, MOST);
        assert!(endless.waiting_bytes > 1 << 60);
    }

    #[test]
    fn a_higher_rate_of_the_path_is_used_at_once() {
        let mut carried = Carried::default();
        let at = |tenths: u64| Moment(tenths * 100_000_000);
        assert_eq!(carried.handle_look(at(1), 1_000_000), 1e7);
        assert_eq!(carried.handle_look(at(2), 5_000_000), 4e7);
        assert_eq!(
            carried.handle_look(at(2), 9_000_000),
            4e7,
            "no time has passed"
        );
        let idle = carried.handle_look(at(3), 5_000_000);
        assert!((2.7e7..2.9e7).contains(&idle), "{idle}");
    }
}
