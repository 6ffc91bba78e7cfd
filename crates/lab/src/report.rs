//! Counters of a lab, and reasons to doubt a measurement made in it.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::emulator::lateness::BOUNDS;
use crate::emulator::{EmulatorReport, WireReport};
use crate::scenario::{PairPath, site_letter};
use crate::storage::running::StorageReport;

/// Maximum lateness in microseconds that the lab promises for the RTT.
const LATE_MICROSECONDS: u64 = 200;

/// Tolerated fraction of later packets: a virtual machine is interrupted occasionally.
const LATE_SHARE: f64 = 0.01;

/// Fraction of a processor above which the emulator has no reserve.
const BUSY_SHARE: f64 = 0.9;

/// Counters of a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct LabReport {
    /// The path in the form that `--lab` parses.
    pub path: String,
    /// Paths between pairs of sites that differ from `path`.
    pub pairs: Vec<PairPath>,
    /// Congestion control of the hosts.
    pub congestion: String,
    /// See [`EmulatorReport`].
    pub emulator: EmulatorReport,
    /// Number of packets lost because hosts sent faster than the emulator read.
    pub overrun: u64,
    /// Report of each storage.
    pub storage: Vec<StorageReport>,
}

/// Reasons why a measurement may show a limit of the lab instead of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// The emulator was at its limit.
    Bottleneck {
        /// Highest processor use in a window of half a second, 0 to 1.
        busiest: f64,
    },
    /// Packets were written late.
    Late {
        /// Fraction of all packets that were late, 0 to 1.
        share: f64,
        /// The 99 % quantile of lateness.
        most: Duration,
    },
    /// Packets were lost before the queue.
    Overrun {
        /// Number of packets.
        packets: u64,
    },
    /// Packets were dropped because the store was full.
    NoMemory {
        /// Number of packets.
        packets: u64,
    },
    /// The receiving kernel rejected packets.
    Refused {
        /// Number of packets.
        packets: u64,
    },
    /// A storage device answered late.
    SlowStorage {
        /// Fraction of answers that were late, 0 to 1.
        share: f64,
        /// The 99 % quantile of lateness.
        most: Duration,
    },
    /// The network between storage nodes was at its limit.
    StorageNetwork {
        /// Highest processor use in a window of half a second, 0 to 1.
        busiest: f64,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Bottleneck { busiest } => write!(
                f,
                "the emulator used {:.0} % of a processor: the path may be slower than configured; \
                 lower the rate, or stop other work on this machine",
                busiest * 100.0
            ),
            Doubt::Late { share, most } => write!(
                f,
                "{:.1} % of packets were more than {LATE_MICROSECONDS} us late (99 % within \
                 {most:?}): RTTs were longer than configured; stop other work on this machine",
                share * 100.0
            ),
            Doubt::Overrun { packets } => write!(
                f,
                "{packets} packets were lost before the path's queue: hosts send faster than the \
                 emulator reads; lower the rate or the number of streams"
            ),
            Doubt::NoMemory { packets } => write!(
                f,
                "{packets} packets were dropped for lack of memory: the path keeps more data in \
                 flight than the machine can hold; lower the rate, the RTT or the queue"
            ),
            Doubt::Refused { packets } => write!(
                f,
                "{packets} packets were rejected by the receiving kernel: it had no memory, or \
                 they were invalid"
            ),
            Doubt::SlowStorage { share, most } => write!(
                f,
                "{:.1} % of a storage device's answers were too late (99 % within {most:?}): the \
                 directory behind the device is slower than the device, or the machine is busy",
                share * 100.0
            ),
            Doubt::StorageNetwork { busiest } => write!(
                f,
                "the network between storage nodes used {:.0} % of a processor: storage may be \
                 slower than configured; lower brick-rate=",
                busiest * 100.0
            ),
        }
    }
}

impl LabReport {
    /// Returns the reasons to doubt a measurement.
    pub fn doubts(&self) -> Vec<Doubt> {
        let emulator = &self.emulator;
        let late = emulator.lateness.share_beyond(LATE_MICROSECONDS);
        let mut doubts = Vec::new();
        if emulator.busiest > BUSY_SHARE {
            let busiest = emulator.busiest;
            doubts.push(Doubt::Bottleneck { busiest });
        }
        if late > LATE_SHARE {
            doubts.push(Doubt::Late {
                share: late,
                most: emulator.lateness.quantile(0.99),
            });
        }
        let lost = [
            (
                self.overrun,
                Doubt::Overrun {
                    packets: self.overrun,
                },
            ),
            (
                emulator.strays.no_memory,
                Doubt::NoMemory {
                    packets: emulator.strays.no_memory,
                },
            ),
            (
                emulator.strays.refused,
                Doubt::Refused {
                    packets: emulator.strays.refused,
                },
            ),
        ];
        doubts.extend(
            lost.into_iter()
                .filter(|(count, _)| *count > 0)
                .map(|(_, doubt)| doubt),
        );
        doubts.extend(self.storage.iter().flat_map(storage_doubts));
        doubts
    }

    /// Returns the report as a JSON object, described in FORMAT.md.
    pub fn to_json(&self) -> Value {
        let emulator = &self.emulator;
        let lateness = &emulator.lateness;
        let bounds: Vec<Option<u64>> = BOUNDS.into_iter().map(Some).chain([None]).collect();
        let classes: Vec<Value> = lateness
            .counts
            .iter()
            .zip(bounds)
            .map(|(count, below)| json!({"below_us": below, "packets": count}))
            .collect();
        let doubts: Vec<String> = self.doubts().iter().map(ToString::to_string).collect();
        json!({
            "path": self.path,
            "pairs": self.pairs.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "congestion": self.congestion,
            "directions": emulator.wires.iter().map(wire_json).collect::<Vec<_>>(),
            "emulator": {
                "wall_s": emulator.wall.as_secs_f64(),
                "cpu_s": emulator.cpu.as_secs_f64(),
                "watching_s": emulator.watching.as_secs_f64(),
                "busiest": emulator.busiest,
                "realtime": emulator.realtime,
                "unroutable": emulator.strays.unroutable,
                "local": emulator.strays.local,
                "no_memory": emulator.strays.no_memory,
                "refused": emulator.strays.refused,
                "overrun": self.overrun,
            },
            "lateness": {
                "classes": classes,
                "greatest_us": lateness.greatest.as_micros() as u64,
            },
            "storage": self.storage.iter().map(StorageReport::to_json).collect::<Vec<_>>(),
            "doubts": doubts,
        })
    }
}

fn storage_doubts(storage: &StorageReport) -> impl Iterator<Item = Doubt> + use<> {
    let (share, lateness) = storage.late();
    let most = lateness.quantile(0.99);
    let slow = (share > LATE_SHARE).then_some(Doubt::SlowStorage { share, most });
    let busiest = storage
        .network
        .as_ref()
        .map_or(0.0, |network| network.busiest);
    let network = (busiest > BUSY_SHARE).then_some(Doubt::StorageNetwork { busiest });
    slow.into_iter().chain(network)
}

fn wire_json(wire: &WireReport) -> Value {
    let counters = &wire.counters;
    json!({
        "from": site_letter(wire.from).to_string(),
        "to": site_letter(wire.to).to_string(),
        "segments": counters.delivered,
        "wire_bytes": counters.delivered_bytes,
        "offered": counters.offered,
        "queue_drops": counters.queue_drops,
        "losses": counters.lost,
        "cut": counters.cut,
        "blocked": wire.blocked,
        "held": counters.held,
        "doubled": counters.doubled,
        "corrupted": counters.corrupted,
        "corrupted_unseen": counters.corrupted_unseen,
        "highest_queue_bytes": counters.highest_queue,
        "super_packets": wire.super_packets,
    })
}

impl fmt::Display for LabReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let emulator = &self.emulator;
        writeln!(f, "path {}, hosts use {}", self.path, self.congestion)?;
        for pair in &self.pairs {
            writeln!(f, "path {pair}")?;
        }
        for wire in &emulator.wires {
            let c = &wire.counters;
            write!(
                f,
                "{} to {}: {} segments, {:.3} GB on the wire",
                site_letter(wire.from),
                site_letter(wire.to),
                c.delivered,
                c.delivered_bytes as f64 / 1e9
            )?;
            let further = [
                (c.lost, "lost"),
                (c.queue_drops, "dropped by the queue"),
                (c.cut, "lost in cuts"),
                (wire.blocked, "blocked"),
                (c.held, "held back"),
                (c.doubled, "doubled"),
                (c.corrupted, "corrupted"),
                (c.corrupted_unseen, "corrupted unseen"),
            ];
            for (count, what) in further.into_iter().filter(|(count, _)| *count > 0) {
                write!(f, ", {count} {what}")?;
            }
            if c.highest_queue > 0 {
                write!(f, ", queue up to {:.3} MB", c.highest_queue as f64 / 1e6)?;
            }
            writeln!(f)?;
        }
        for storage in &self.storage {
            let ways = storage.devices.iter();
            let sum = |way: usize| ways.clone().map(|device| device[way].bytes).sum::<u64>();
            writeln!(
                f,
                "storage {}: {:.3} GB read from its devices, {:.3} GB written",
                storage.storage,
                sum(0) as f64 / 1e9,
                sum(1) as f64 / 1e9
            )?;
        }
        if emulator.wires.is_empty() {
            return write!(f, "nothing is emulated");
        }
        let late = &emulator.lateness;
        write!(
            f,
            "emulator: {:.2} CPU s in {:.2} s, at most {:.0} % of a processor; 50 % of packets \
             late by less than {:?}, 99 % {:?}, all {:?}",
            emulator.cpu.as_secs_f64(),
            emulator.wall.as_secs_f64(),
            emulator.busiest * 100.0,
            late.quantile(0.5),
            late.quantile(0.99),
            // Finer resolution than microseconds would exceed the accuracy of the clock.
            Duration::from_micros(late.greatest.as_micros() as u64)
        )
    }
}
