//! Reasons to mistrust a measurement, each with advice.
//!
//! A doubt is data: it stands in the record of the run that it concerns, and
//! first in every report.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason to mistrust a measurement.
///
/// Shares are 0 to 1. New variants may come: a reader keeps what it does not
/// know as [`Doubt::Other`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Doubt {
    /// Fewer repetitions than intervals need.
    FewRepetitions {
        /// How many there are, at least 1.
        repetitions: u64,
    },
    /// The emulated path had no CPU left: it was the bottleneck, not the method.
    EmulatorCpuBound {
        /// The share of its CPU that the emulator used.
        busy: f64,
    },
    /// The emulated path sent packets later than it should have.
    EmulatorLate {
        /// The share of the packets.
        late: f64,
        /// By how much at most, in seconds.
        worst_seconds: f64,
    },
    /// The emulated path lost packets that it was not asked to lose: hosts sent faster
    /// than it read, or it had no memory.
    EmulatorDropped {
        /// How many.
        packets: u64,
    },
    /// The modelled storage answered later than it should have.
    StorageLate {
        /// The share of its answers.
        late: f64,
        /// By how much at most, in seconds.
        worst_seconds: f64,
    },
    /// The network between the lab's storage nodes had no CPU left.
    StorageNetworkCpuBound {
        /// The share of its CPU that it used.
        busy: f64,
    },
    /// The hosts had no CPU left: throughput says what the CPU can do.
    HostCpuBound {
        /// The share of its CPU that the busier host used.
        busy: f64,
    },
    /// What was read came from memory, or what was written stayed there.
    CacheNotDisk {
        /// Bytes that were moved.
        bytes: u64,
        /// Bytes of memory that could hold them.
        memory_bytes: u64,
    },
    /// Repetitions lie further apart than a figure for all of them bears.
    Unstable {
        /// Their robust spread over their median.
        relative_spread: f64,
    },
    /// Repetitions rise or fall in the order they were made.
    Drift {
        /// The last third's median over the first third's.
        ratio: f64,
    },
    /// The first run belongs to the figures.
    WarmUpCounted,
    /// The congestion control is not the one of what it is compared with.
    DifferentCongestionControl {
        /// This run's.
        used: String,
        /// The others'.
        compared_with: String,
    },
    /// The run is so short that its start is much of it.
    ShortRun {
        /// Its wall time in round trips.
        round_trips: f64,
    },
    /// Throughput above the capacity that is recorded for the path.
    AboveCapacity {
        /// Throughput over capacity, above 1.
        share: f64,
    },
    /// What arrived was not compared with what was sent.
    NotCompared,
    /// Runs that did not end well; they are not among the figures.
    FailedRuns {
        /// How many.
        failed: u64,
        /// Of how many.
        of: u64,
    },
    /// Lines of the records that could not be read; they are not among the figures.
    SkippedRecords {
        /// How many.
        skipped: u64,
    },
    /// Data went in clear on one side of a comparison and encrypted on the other.
    DifferentSecurity,
    /// The other end of the memory-to-memory throughput was measured differently
    /// (another number of bytes, stream counts chosen afterwards).
    DifferentReference {
        /// What differs.
        what: String,
    },
    /// Runs that are repetitions of one another by all that was set moved different data.
    DifferentData {
        /// Bytes that this run's data have.
        bytes: u64,
        /// Those of the others.
        others_bytes: u64,
    },
    /// The path's round trip was seen while data filled the path, which may have had a queue.
    LoadedRoundTrip {
        /// The round trip in seconds, above 0.
        rtt_seconds: f64,
    },
    /// A doubt of a newer longhaul.
    #[serde(other)]
    Other,
}

/// Below this many repetitions a bootstrap interval is too narrow to be taken at
/// its word; paper 001 repeats ten times.
pub const REPETITIONS_WANTED: usize = 10;

/// A robust spread above this share of the median is called unstable: two runs
/// then differ by more than a tenth about every other time.
const UNSTABLE_SPREAD: f64 = 0.1;

/// A drift is a change of more than this between the first and last third.
const DRIFT: f64 = 0.1;

/// Below this many round trips slow start is a good part of a run: ten doublings
/// and as many again of full speed.
const ROUND_TRIPS_WANTED: f64 = 20.0;

impl Doubt {
    /// What to do about it: a sentence.
    pub fn advice(&self) -> String {
        let advice = match self {
            Doubt::FewRepetitions { .. } => {
                "repeat at least ten times; below that intervals are too narrow"
            }
            Doubt::EmulatorCpuBound { .. } => {
                "lower the emulated rate, or give the emulator a core of its own"
            }
            Doubt::EmulatorLate { .. } => {
                "lower the emulated rate or what else runs on this machine, and run again"
            }
            Doubt::EmulatorDropped { .. } => {
                "lower the emulated rate, the RTT or the number of streams, and run again"
            }
            Doubt::StorageLate { .. } | Doubt::StorageNetworkCpuBound { .. } => {
                "lower the storage's rate, or its nodes, or what else runs on this machine"
            }
            Doubt::HostCpuBound { .. } => {
                "read it as a figure of the CPU; fewer streams or no compression may cost less"
            }
            Doubt::CacheNotDisk { .. } => "move more than the hosts' memory holds, or use --direct",
            Doubt::Unstable { .. } => {
                "look at the runs one by one; report the median and all points"
            }
            Doubt::Drift { .. } => {
                "something changed while it was measured: interleave, and measure again"
            }
            Doubt::WarmUpCounted => "throw the first run of each configuration away",
            Doubt::DifferentCongestionControl { .. } => "compare under the same congestion control",
            Doubt::ShortRun { .. } => "move more data, or say that the ramp is part of the figure",
            Doubt::AboveCapacity { .. } => {
                "the recorded capacity is too low, data were compressed on their way, or a short run \
                 counts what was sent before it"
            }
            Doubt::NotCompared => "compare it at the other end: the method's word is all there is",
            Doubt::FailedRuns { .. } => "read their errors: a method that fails is not a fast one",
            Doubt::SkippedRecords { .. } => "fix or remove the lines that were named",
            Doubt::DifferentSecurity => "compare encrypted with encrypted, clear with clear",
            Doubt::DifferentReference { .. } => {
                "measure memory-to-memory with the same bytes and a stream count fixed beforehand"
            }
            Doubt::DifferentData { .. } => {
                "they are in one mean: give sets of another size another name"
            }
            Doubt::LoadedRoundTrip { .. } => {
                "measure the idle path, for example with ping, and import again with --rtt"
            }
            Doubt::Other => "read this record with the longhaul that wrote it",
        };
        advice.to_owned()
    }

    /// Doubts that a series of repetitions raises by itself. Values are in the
    /// order they were measured, in any unit, not negative.
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

    /// A run that was so short that its start is much of it.
    pub fn of_length(wall_seconds: f64, rtt_seconds: f64) -> Option<Doubt> {
        let round_trips = wall_seconds / rtt_seconds;
        (rtt_seconds > 0.0 && round_trips < ROUND_TRIPS_WANTED)
            .then_some(Doubt::ShortRun { round_trips })
    }
}

/// Whether the last third differs from the first. Of fewer than nine values three
/// thirds say nothing.
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

/// A share as a percentage.
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
                    "the emulated path lost {packets} packets of its own accord"
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
            Doubt::NotCompared => write!(f, "what arrived was not compared with what was sent"),
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
