//! Parses rate limits, and adapts blocks and streams to them.

use std::fmt;
use std::str::FromStr;

use longhaul_units::{BitRate, ByteCount, RateFault};
use serde::{Deserialize, Serialize};

/// Minimum rate limit in bytes per second. A lower one is probably a mistake: even at this rate, a
/// gigabyte takes eleven days.
pub const LEAST_RATE: u64 = 1000;

/// Maximum rate limit in bytes per second, a million times 8 Gbit/s. A higher one is a mistake.
const GREATEST_RATE: u64 = 1_000_000_000_000_000;

/// Minimum block size in bytes. At the minimum rate it takes four seconds.
const SMALLEST_BLOCK_BYTES: u64 = 4096;

/// Maximum time of a block on its stream, in seconds. With a longer time the stream would seem to
/// stall, and the loss of a block would cost more.
const LONGEST_BLOCK_SECONDS: u64 = 5;

/// A limit for a whole transfer in bytes per second, at least 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct BandwidthLimit(u64);

impl From<BandwidthLimit> for u64 {
    fn from(limit: BandwidthLimit) -> u64 {
        limit.0
    }
}

impl TryFrom<u64> for BandwidthLimit {
    type Error = String;

    fn try_from(rate: u64) -> Result<BandwidthLimit, String> {
        let limit = BandwidthLimit::of_bytes_per_second(rate)?;
        limit.ok_or_else(|| "0 B/s is no rate".to_owned())
    }
}

/// A rate limit as it is written on the command line; `None`: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedLimit(pub Option<BandwidthLimit>);

impl fmt::Display for ChangedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rate) => rate.fmt(f),
            None => f.write_str("none"),
        }
    }
}

impl FromStr for ChangedLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<ChangedLimit, String> {
        // A limit of 0 means no limit in rsync.
        let is_zero = || read_rate(text).is_ok_and(|rate| rate == 0.0);
        match text {
            "none" | "off" => Ok(ChangedLimit(None)),
            _ if is_zero() => Ok(ChangedLimit(None)),
            _ => text.parse().map(|rate| ChangedLimit(Some(rate))),
        }
    }
}

impl BandwidthLimit {
    /// Creates a limit in bytes per second; `None` for 0.
    ///
    /// # Errors
    ///
    /// Returns an error if the rate is less than the minimum.
    pub fn of_bytes_per_second(rate: u64) -> Result<Option<BandwidthLimit>, String> {
        match rate {
            0 => Ok(None),
            1..LEAST_RATE => Err(format!("{rate} B/s is less than 1kB/s")),
            _ => Ok(Some(BandwidthLimit(rate))),
        }
    }

    /// Returns the limit in bytes per second.
    pub fn bytes_per_second(self) -> u64 {
        self.0
    }

    /// Returns the block size in bytes: the largest power of two that takes at most a second, but
    /// at least 4096 and at most `otherwise`.
    pub fn block_bytes(self, otherwise: u32) -> u32 {
        let most = self.0.max(SMALLEST_BLOCK_BYTES);
        let power = 1_u64 << most.ilog2();
        u32::try_from(power).map_or(otherwise, |power| power.min(otherwise))
    }

    /// Returns the maximum number of streams that share the rate, at least 1.
    pub fn most_streams(self, block_bytes: u32) -> u32 {
        let blocks = self.0.saturating_mul(LONGEST_BLOCK_SECONDS) / u64::from(block_bytes.max(1));
        u32::try_from(blocks).unwrap_or(u32::MAX).max(1)
    }
}

impl fmt::Display for BandwidthLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", ByteCount(self.0))
    }
}

impl FromStr for BandwidthLimit {
    type Err = String;

    /// Parses `100Mbit/s`, `1gbit` (bits) and `10MB/s`, `512KiB` (bytes). As in rsync, a number
    /// alone is in KiB/s, and a number with only a prefix is in bytes with powers of 1024: `1m`,
    /// `100k`.
    fn from_str(text: &str) -> Result<BandwidthLimit, String> {
        let bytes = read_rate(text)? as u64;
        if bytes > GREATEST_RATE {
            Err(format!(
                "\"{text}\" is more than any path carries; write none for no limit"
            ))
        } else if bytes >= LEAST_RATE {
            Ok(BandwidthLimit(bytes))
        } else {
            Err(format!(
                "\"{text}\": the least rate is 1kB/s; write none for no limit"
            ))
        }
    }
}

/// Parses a rate into bytes per second.
fn read_rate(text: &str) -> Result<f64, String> {
    let rate = match text.parse::<BitRate>() {
        Err(error) if error.fault == RateFault::Bare => format!("{text}KiB/s").parse(),
        Err(error) if error.is_prefix_alone() => format!("{text}iB/s").parse(),
        read => read,
    };
    let rate = rate.map_err(|error| match error.fault {
        RateFault::Either { .. } => format!(
            "{error}; a number alone is in KiB/s, and k, M and G alone are KiB/s, MiB/s and \
             GiB/s, as in rsync"
        ),
        _ => error.to_string(),
    })?;
    Ok(rate.bits_per_second() / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_and_rsync_write_them() {
        for (text, bytes) in [
            ("100mbit", 12_500_000),
            ("1Gbit/s", 125_000_000),
            ("10MB/s", 10_000_000),
            ("10MBps", 10_000_000),
            ("500", 512_000),
            ("1.5", 1536),
            ("64KiB", 65_536),
            ("1.5MiB/s", 1_572_864),
            ("1kB", 1000),
            ("100k", 102_400),
            ("1m", 1 << 20),
            ("1.5M", 1_572_864),
            ("2 G", 2 << 30),
        ] {
            assert_eq!(text.parse(), Ok(BandwidthLimit(bytes)), "{text}");
        }
        for text in ["", "fast", "0", "-5", "10 parsecs", "999B", "7kbit", "."] {
            assert!(text.parse::<BandwidthLimit>().is_err(), "{text}");
        }
        for text in ["100mb", "100Mbps", "10Mb/s", "1 gbps", "10m/s", "9b"] {
            let error = text.parse::<BandwidthLimit>().unwrap_err();
            assert!(error.contains("bits or bytes"), "{text}: {error}");
        }
    }

    #[test]
    fn no_limit_is_written_as_in_rsync_and_rclone() {
        for text in ["0", "none", "off", "0k", "0KiB/s", "0Mbit/s"] {
            assert_eq!(text.parse(), Ok(ChangedLimit(None)), "{text}");
        }
        assert_eq!(ChangedLimit(None).to_string(), "none");
        let limit = ChangedLimit(Some(BandwidthLimit(1 << 20)));
        assert_eq!("1m".parse(), Ok(limit));
        for text in [
            "",
            "-1",
            "0.5B",
            "nan",
            "inf",
            "1e9",
            "1000000000000000000000",
        ] {
            assert!(text.parse::<ChangedLimit>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_block_takes_less_time_than_a_stalled_stream() {
        for rate in [1000, 50_000, 1 << 20, 10_000_000, 10_000_000_000] {
            let limit = BandwidthLimit(rate);
            let block = limit.block_bytes(1 << 20);
            let streams = u64::from(limit.most_streams(block));
            assert!(block.is_power_of_two() && block <= 1 << 20);
            let seconds = (u64::from(block) * streams).div_ceil(rate);
            assert!(seconds <= 5, "{rate}: {seconds} s");
        }
        assert_eq!(BandwidthLimit(10_000_000).block_bytes(1 << 20), 1 << 20);
        assert_eq!(BandwidthLimit(1000).most_streams(4096), 1);
    }
}
