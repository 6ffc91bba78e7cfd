//! Reasons to mistrust a measurement, each with advice.
//!
//! A doubt is data: it is part of the record of the run that it concerns, and reports list doubts
//! first.

use std::fmt;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};
use serde::{Deserialize, Serialize};

/// A reason to mistrust a measurement.
///
/// Shares are 0 to 1. Later versions may add variants. Unknown variants are read as
/// [`Doubt::Other`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Doubt {
    /// There are fewer repetitions than intervals need.
    FewRepetitions {
        /// Number of repetitions, at least 1.
        repetitions: u64,
    },
    /// The emulator used all of its CPU, so it was the bottleneck instead of the method.
    EmulatorCpuBound {
        /// Share of its CPU that the emulator used.
        busy: f64,
    },
    /// The emulator sent packets later than scheduled.
    EmulatorLate {
        /// Share of the packets that were late.
        late: f64,
        /// Greatest delay, in seconds.
        worst_seconds: f64,
    },
    /// The emulator dropped packets beyond the configured loss: hosts sent faster than it could
    /// read, or it ran out of memory.
    EmulatorDropped {
        /// Number of packets dropped.
        packets: u64,
    },
    /// The storage model answered later than scheduled.
    StorageLate {
        /// Share of the answers that were late.
        late: f64,
        /// Greatest delay, in seconds.
        worst_seconds: f64,
    },
    /// The network between the lab's storage nodes used all of its CPU.
    StorageNetworkCpuBound {
        /// Share of its CPU that the network used.
        busy: f64,
    },
    /// A host used all of its CPU, so throughput was limited by the CPU.
    HostCpuBound {
        /// Share of its CPU that the busier host used.
        busy: f64,
    },
    /// Data may have been read from the page cache, or may not have left it.
    CacheNotDisk {
        /// Number of bytes moved.
        bytes: u64,
        /// Bytes of memory that could cache the data.
        memory_bytes: u64,
    },
    /// Repetitions vary too much for one figure to represent them.
    Unstable {
        /// Robust spread divided by the median.
        relative_spread: f64,
    },
    /// Repetitions rise or fall in the order of measurement.
    Drift {
        /// Median of the last third divided by the median of the first third.
        ratio: f64,
    },
    /// The figures include the first run.
    WarmUpCounted,
    /// The congestion control differs from that of the reference.
    DifferentCongestionControl {
        /// Congestion control of this run.
        used: String,
        /// Congestion control of the reference.
        compared_with: String,
    },
    /// The run was so short that its start is a large part of it.
    ShortRun {
        /// Duration in round-trip times.
        round_trips: f64,
    },
    /// Throughput is greater than the recorded capacity of the path.
    AboveCapacity {
        /// Throughput divided by capacity, greater than 1.
        share: f64,
    },
    /// The received data were not compared with the sent data.
    NotCompared,
    /// Some runs failed. The figures exclude them.
    FailedRuns {
        /// Number of failed runs.
        failed: u64,
        /// Number of all runs.
        of: u64,
    },
    /// Some lines of the records could not be read. The figures exclude them.
    SkippedRecords {
        /// Number of lines skipped.
        skipped: u64,
    },
    /// One side of a comparison was encrypted and the other was not.
    DifferentSecurity,
    /// The memory-to-memory throughput was measured differently from the transfer (another number
    /// of bytes, or stream counts chosen afterwards).
    DifferentReference {
        /// Description of the difference.
        what: String,
    },
    /// Runs with the same settings moved different amounts of data.
    DifferentData {
        /// Size of this run's data in bytes.
        bytes: u64,
        /// Size of the other runs' data in bytes.
        others_bytes: u64,
    },
    /// The round-trip time was measured under load and may include a queue.
    LoadedRoundTrip {
        /// Round-trip time in seconds, greater than 0.
        rtt_seconds: f64,
    },
    /// Bytes, time and throughput of an imported run do not belong together.
    Inconsistent {
        /// The reported throughput over bytes per time, 0 or more.
        ratio: f64,
    },
    /// A doubt that a later version of longhaul wrote.
    #[serde(other)]
    Other,
}

/// With fewer repetitions, bootstrap intervals are too narrow. Paper 001 uses ten.
pub const REPETITIONS_WANTED: usize = 10;

/// Repetitions are unstable if their robust spread exceeds this share of their median. Then about
/// half of all pairs of runs differ by more than a tenth.
const UNSTABLE_SPREAD: f64 = 0.1;

/// Minimum relative change from the first to the last third that counts as drift.
const DRIFT: f64 = 0.1;

/// Minimum duration in round-trip times at which slow start is a small part of a run: ten
/// doublings, and as many round trips at full speed.
const ROUND_TRIPS_WANTED: f64 = 20.0;

/// A throughput that differs by more than this share from bytes per time is doubted. Instruments
/// round their times, and count the bytes of a start that they leave out of the throughput.
const INCONSISTENT: f64 = 0.2;

impl Doubt {
    /// Returns advice on how to remove the cause of the doubt.
    pub fn advice(&self) -> String {
        let advice = match self {
            Doubt::FewRepetitions { .. } => {
                "repeat at least ten times; below that intervals are too narrow"
            }
            Doubt::EmulatorCpuBound { .. } => {
                "lower the emulated rate, or give the emulator a core of its own"
            }
            Doubt::EmulatorLate { .. } => {
                "lower the emulated rate or stop other programs on this machine, and run again"
            }
            Doubt::EmulatorDropped { .. } => {
                "lower the emulated rate, the RTT or the number of streams, and run again"
            }
            Doubt::StorageLate { .. } | Doubt::StorageNetworkCpuBound { .. } => {
                "lower the rate or the number of nodes of the storage, or stop other programs"
            }
            Doubt::HostCpuBound { .. } => {
                "the CPU limits this figure; fewer streams or no compression may need less CPU"
            }
            Doubt::CacheNotDisk { .. } => "move more than the hosts' memory holds, or use --direct",
            Doubt::Unstable { .. } => {
                "look at the runs one by one; report the median and all points"
            }
            Doubt::Drift { .. } => {
                "conditions changed during the runs: interleave them, and measure again"
            }
            Doubt::WarmUpCounted => "discard the first run of each configuration",
            Doubt::DifferentCongestionControl { .. } => "compare under the same congestion control",
            Doubt::ShortRun { .. } => "move more data, or say that the ramp is part of the figure",
            Doubt::AboveCapacity { .. } => {
                "the recorded capacity is too low, data were compressed on their way, or a short run \
                includes data sent before it"
            }
            Doubt::NotCompared => {
                "compare the data at the receiving host: only the method itself reports success"
            }
            Doubt::FailedRuns { .. } => "read their errors: a method that fails is not a fast one",
            Doubt::SkippedRecords { .. } => "fix or remove the lines that were named",
            Doubt::DifferentSecurity => "compare encrypted with encrypted, clear with clear",
            Doubt::DifferentReference { .. } => {
                "measure memory-to-memory with the same bytes and a stream count fixed beforehand"
            }
            Doubt::DifferentData { .. } => {
                "the mean combines them: give datasets of different sizes different names"
            }
            Doubt::LoadedRoundTrip { .. } => {
                "measure the idle path, for example with ping, and import again with --rtt"
            }
            Doubt::Inconsistent { .. } => {
                "check the units in the imported file (bits or bytes, seconds or milliseconds), \
                 correct it and import it again"
            }
            Doubt::Other => "read this record with the longhaul that wrote it",
        };
        advice.to_owned()
    }

    /// Returns the doubts about a series of repetitions. Values are in the order of measurement, in
    /// any unit, and not negative.
    pub fn of_series(values: &[f64]) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if values.is_empty() {
            return doubts;
        }
        if values.len() < REPETITIONS_WANTED {
            doubts.push(Doubt::FewRepetitions {
                repetitions: values.len() as u64,
            });
        }
        let spread = crate::stats::robust_spread(values).unwrap_or(0.0);
        let centre = crate::stats::median(values).unwrap_or(0.0);
        if centre > 0.0 && spread > UNSTABLE_SPREAD * centre {
            doubts.push(Doubt::Unstable {
                relative_spread: spread / centre,
            });
        }
        doubts.extend(drift(values));
        doubts
    }

    /// Returns a doubt if bytes, time and throughput are all known and do not belong together.
    pub fn of_quantities(bytes: ByteCount, wall: Duration, throughput: BitRate) -> Option<Doubt> {
        let computed = BitRate::from_transfer(bytes, wall).bits_per_second();
        let reported = throughput.bits_per_second();
        let ratio = reported / computed;
        let is_known = bytes.0 > 0 && !wall.is_zero() && reported > 0.0 && ratio.is_finite();
        let is_same = (1.0 - INCONSISTENT..=1.0 / (1.0 - INCONSISTENT)).contains(&ratio);
        (is_known && !is_same).then_some(Doubt::Inconsistent { ratio })
    }

    /// Returns a doubt if the run was so short that its start is a large part of it.
    pub fn of_length(wall_seconds: f64, rtt_seconds: f64) -> Option<Doubt> {
        let round_trips = wall_seconds / rtt_seconds;
        (rtt_seconds > 0.0 && round_trips < ROUND_TRIPS_WANTED)
            .then_some(Doubt::ShortRun { round_trips })
    }
}

/// Returns a doubt if the last third differs from the first third. Needs at least nine values.
fn drift(values: &[f64]) -> Option<Doubt> {
    let third = values.len() / 3;
    if third < 3 {
        return None;
    }
    let first = crate::stats::median(&values[..third])?;
    let last = crate::stats::median(&values[values.len() - third..])?;
    let ratio = last / first;
    (first > 0.0 && (ratio - 1.0).abs() > DRIFT).then_some(Doubt::Drift { ratio })
}

/// A share that is displayed as a percentage.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} %", self.0 * 100.0)
    }
}

impl fmt::Display for Doubt {
    // tidy: long because each doubt is a sentence of its own
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::FewRepetitions { repetitions: 1 } => write!(f, "only one repetition"),
            Doubt::FewRepetitions { repetitions } => {
                write!(f, "only {repetitions} repetitions")
            }
            Doubt::EmulatorCpuBound { busy } => {
                write!(
                    f,
                    "the emulated path was CPU-bound ({} busy)",
                    Percent(*busy)
                )
            }
            Doubt::EmulatorLate {
                late,
                worst_seconds,
            } => write!(
                f,
                "the emulated path was late with {} of the packets, at worst {:.1} ms",
                Percent(*late),
                worst_seconds * 1e3
            ),
            Doubt::EmulatorDropped { packets } => {
                write!(
                    f,
                    "the emulator dropped {packets} packets beyond the configured loss"
                )
            }
            Doubt::StorageLate {
                late,
                worst_seconds,
            } => write!(
                f,
                "the modelled storage was late with {} of its answers, at worst {:.1} ms",
                Percent(*late),
                worst_seconds * 1e3
            ),
            Doubt::StorageNetworkCpuBound { busy } => write!(
                f,
                "the network between storage nodes was CPU-bound ({} busy)",
                Percent(*busy)
            ),
            Doubt::HostCpuBound { busy } => {
                write!(f, "a host was CPU-bound ({} busy)", Percent(*busy))
            }
            Doubt::CacheNotDisk {
                bytes,
                memory_bytes,
            } => write!(
                f,
                "{} fit into {} of memory: a cache may have been measured instead of a disk",
                longhaul_units::ByteCount(*bytes),
                longhaul_units::ByteCount(*memory_bytes)
            ),
            Doubt::Unstable { relative_spread } => write!(
                f,
                "repetitions spread by {} of their median",
                Percent(*relative_spread)
            ),
            Doubt::Drift { ratio } => write!(
                f,
                "the last third of the repetitions is {} of the first",
                Percent(*ratio)
            ),
            Doubt::WarmUpCounted => write!(f, "the first run is counted"),
            Doubt::DifferentCongestionControl {
                used,
                compared_with,
            } => write!(f, "{used} is compared with {compared_with}"),
            Doubt::ShortRun { round_trips } => {
                write!(f, "a run lasted only {round_trips:.1} round trips")
            }
            Doubt::AboveCapacity { share } => {
                write!(f, "throughput is {} of the capacity", Percent(*share))
            }
            Doubt::NotCompared => {
                write!(f, "the received data were not compared with the sent data")
            }
            Doubt::FailedRuns { failed, of } => write!(f, "{failed} of {of} runs failed"),
            Doubt::SkippedRecords { skipped } => write!(f, "{skipped} records were skipped"),
            Doubt::LoadedRoundTrip { rtt_seconds } => write!(
                f,
                "the round trip of {:.1} ms was seen under load: a queue may be part of it",
                rtt_seconds * 1e3
            ),
            Doubt::DifferentSecurity => {
                write!(f, "encrypted and clear transfers are compared")
            }
            Doubt::DifferentReference { what } => {
                write!(f, "the memory-to-memory reference differs: {what}")
            }
            Doubt::DifferentData {
                bytes,
                others_bytes,
            } => write!(
                f,
                "repetitions move different data: {} and {}",
                longhaul_units::ByteCount(*bytes),
                longhaul_units::ByteCount(*others_bytes)
            ),
            Doubt::Inconsistent { ratio } => write!(
                f,
                "the reported throughput is {} of bytes over time",
                Percent(*ratio)
            ),
            Doubt::Other => write!(f, "a doubt that this version does not know"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_long_series_is_not_doubted() {
        assert_eq!(Doubt::of_series(&[10.0; 12]), []);
        assert_eq!(Doubt::of_length(10.0, 0.1), None);
        assert_eq!(Doubt::of_length(1.0, 0.0), None);
    }

    #[test]
    fn a_series_raises_its_doubts() {
        let few = Doubt::of_series(&[1.0, 1.0]);
        assert_eq!(few, [Doubt::FewRepetitions { repetitions: 2 }]);
        let unstable = Doubt::of_series(&[10.0, 5.0, 8.0, 12.0, 7.0, 9.0, 11.0, 4.0, 10.0, 6.0]);
        assert!(matches!(unstable[0], Doubt::Unstable { .. }));
        let falling: Vec<f64> = (0..12).map(|n| 100.0 - 1.5 * f64::from(n)).collect();
        assert!(matches!(
            Doubt::of_series(&falling)[..],
            [Doubt::Drift { ratio }] if ratio < 0.9
        ));
        assert!(Doubt::of_length(0.5, 0.1).is_some());
    }

    #[test]
    fn quantities_that_do_not_belong_together_are_doubted() {
        let of = |bytes, seconds, mbps: f64| {
            let throughput = BitRate::new(mbps * 1e6).unwrap();
            Doubt::of_quantities(ByteCount(bytes), Duration::from_secs(seconds), throughput)
        };
        // 125 MB in 1 s are 1000 Mbit/s.
        for (mbps, is_doubted) in [
            (1000.0, false),
            (850.0, false),
            (1150.0, false),
            (100.0, true),
            (10_000.0, true),
            (8000.0, true),
        ] {
            let doubt = of(125_000_000, 1, mbps);
            assert_eq!(doubt.is_some(), is_doubted, "{mbps}: {doubt:?}");
        }
        assert_eq!(
            of(125_000_000, 1, 10_000.0),
            Some(Doubt::Inconsistent { ratio: 10.0 })
        );
        for unknown in [of(0, 1, 5.0), of(9, 0, 5.0), of(9, 1, 0.0)] {
            assert_eq!(unknown, None);
        }
    }

    #[test]
    fn doubts_survive_json_and_newer_ones_are_kept() {
        let doubt = Doubt::CacheNotDisk {
            bytes: 5,
            memory_bytes: 9,
        };
        let json = serde_json::to_string(&doubt).unwrap();
        assert_eq!(
            json,
            r#"{"kind":"cache_not_disk","bytes":5,"memory_bytes":9}"#
        );
        assert_eq!(serde_json::from_str::<Doubt>(&json).unwrap(), doubt);
        let newer: Doubt = serde_json::from_str(r#"{"kind":"moon_phase","day":3}"#).unwrap();
        assert_eq!(newer, Doubt::Other);
    }
}
