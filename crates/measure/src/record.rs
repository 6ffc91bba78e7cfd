//! The record of a run: one JSON object on a line of its own.
//!
//! FORMAT.md specifies the schema. JSON names contain the unit (`rtt_seconds`), and Rust types
//! represent it. A reader ignores unknown fields in a record of its own schema version and rejects
//! a record of another version.

mod faults;
mod quantity;
mod reader;
mod seen;

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};
use serde::{Deserialize, Serialize};

use crate::doubt::Doubt;
pub use crate::streams::TcpSummary;
pub use faults::{FaultLines, Skipped};
pub use reader::{Fault, LineFault, OnFault, Records, read_records};
pub use seen::Seen;

/// Schema version of the records that this crate reads and writes.
pub const SCHEMA: u32 = 1;

/// Maximum length of a record's line in bytes, without its line feed. It keeps a file of a hundred
/// thousand records readable within seconds.
pub const LONGEST_LINE: usize = 4096;

/// The record of one run of one method over one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Schema version: [`SCHEMA`].
    pub schema: u32,
    /// Identity of the run.
    pub run: RunIdentity,
    /// Kind of throughput that was measured.
    pub measures: Measures,
    /// Program that moved the data.
    pub method: Method,
    /// Settings by name: streams, buffers, codecs, storage nodes, sysctls.
    #[serde(default)]
    pub knobs: BTreeMap<String, Knob>,
    /// Path of the data.
    pub path: PathRecord,
    /// The sending host.
    #[serde(default)]
    pub source: HostRecord,
    /// The receiving host.
    #[serde(default)]
    pub destination: HostRecord,
    /// Data that were moved.
    #[serde(default)]
    pub dataset: DatasetRecord,
    /// Result of the run.
    pub outcome: Outcome,
    /// CPU time of each process.
    #[serde(default)]
    pub cpu: Vec<CpuUse>,
    /// Time that the processors of the sending host's machine were busy during the run, including
    /// kernel write-back and interrupts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_busy_seconds: Option<f64>,
    /// Utilisation of each layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerUse>,
    /// Summary of the TCP samples of the streams, if they were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSummary>,
    /// Other transfers on the same path during the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// File with the run's TCP samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Sidecar>,
    /// Reasons to mistrust the run.
    #[serde(default)]
    pub doubts: Vec<Doubt>,
}

/// The identity of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    /// Unique name of the run.
    pub id: String,
    /// Name of the sweep that the run belongs to.
    #[serde(default)]
    pub sweep: String,
    /// Round of an interleaved sweep. In a round, all configurations run once in random order.
    /// Comparisons pair runs of the same round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// Seed of the emulated path's random events. Each round has its own seed, which all its runs
    /// share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Start time in RFC 3339 format.
    #[serde(default)]
    pub started: String,
    /// True if the run repeats a configuration to select the fastest of the sweep
    /// ([`crate::best`]). Such runs are excluded from profiles, because only some configurations
    /// have them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// True if the run is a warm-up. Figures exclude warm-ups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_up: bool,
}

/// The kind of throughput that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measures {
    /// From files to files: Θ_E.
    Transfer,
    /// From memory to memory: Θ_T.
    Memory,
    /// File throughput of one host: Θ_H. The path has no meaning.
    Storage,
}

/// The program that moved the data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// Short name, such as longhaul, gridftp or scp.
    pub name: String,
    /// Version, as the program prints it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Command line that was run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Access to the endpoint, such as daemon, ssh or mount.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Protection of the data: tls, ssh or clear.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub security: String,
}

/// The value of a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Knob {
    /// A boolean.
    Flag(bool),
    /// A count, or a number of bytes.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// A text.
    Word(String),
}

impl std::fmt::Display for Knob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Knob::Flag(flag) => write!(f, "{flag}"),
            Knob::Count(count) => write!(f, "{count}"),
            Knob::Number(number) => write!(f, "{number}"),
            Knob::Word(word) => write!(f, "{word}"),
        }
    }
}

/// The path of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// Name of the path; `lab` if it is emulated.
    #[serde(default)]
    pub name: String,
    /// Round-trip time τ: the emulator's setting, or the least measured value.
    #[serde(rename = "rtt_seconds", with = "quantity::seconds")]
    pub rtt: Duration,
    /// Rate of TCP payload that the path can carry, greater than zero: 0.9415 times the line rate
    /// at an MTU of 1500.
    #[serde(
        rename = "capacity_bits_per_second",
        with = "quantity::bits_per_second"
    )]
    pub capacity: BitRate,
    /// Line rate, if it is known.
    #[serde(
        default,
        rename = "rate_bits_per_second",
        with = "quantity::bits_per_second_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub rate: Option<BitRate>,
    /// Share of packets that are lost at random, 0 to 1.
    #[serde(default)]
    pub loss: f64,
    /// Size of the bottleneck's queue.
    #[serde(
        default,
        rename = "queue_bytes",
        with = "quantity::bytes_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub queue: Option<ByteCount>,
    /// Name of the congestion control.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub congestion_control: String,
    /// Report of the emulator, if the path is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<EmulatorReport>,
}

/// The report of an emulated path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmulatorReport {
    /// Number of packets carried.
    pub packets: u64,
    /// Number of packets dropped at random, as configured.
    #[serde(default)]
    pub lost: u64,
    /// Number of packets dropped because the queue was full.
    #[serde(default)]
    pub overflowed: u64,
    /// Number of packets corrupted so that TCP's checksum does not detect it.
    #[serde(default)]
    pub corrupted_unseen: u64,
    /// Number of packets sent later than scheduled.
    #[serde(default)]
    pub late: u64,
    /// Greatest delay of a late packet.
    #[serde(default, rename = "worst_late_seconds", with = "quantity::seconds")]
    pub worst_late: Duration,
    /// Share of its CPU that the emulator used, 0 to 1.
    #[serde(default)]
    pub busy: f64,
}

/// The host at one end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Name of the host.
    #[serde(default)]
    pub name: String,
    /// Kernel release, as `uname -r` prints it.
    #[serde(default)]
    pub kernel: String,
    /// Model of the processor.
    #[serde(default)]
    pub cpu: String,
    /// Number of cores that the process may use.
    #[serde(default)]
    pub cores: u32,
    /// Size of the memory.
    #[serde(default, rename = "memory_bytes", with = "quantity::bytes")]
    pub memory: ByteCount,
    /// Description of the storage: file system, mount options, stripes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub storage: String,
    /// The most important settings, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Digest of the host's full description in the file of hosts beside the records
    /// ([`crate::host`]). The description has all sysctls, interfaces, the governor and versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// The data that were moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRecord {
    /// Name of the dataset.
    #[serde(default)]
    pub name: String,
    /// Number of files.
    #[serde(default)]
    pub files: u64,
    /// Total size of the files.
    #[serde(default, rename = "bytes", with = "quantity::bytes")]
    pub size: ByteCount,
    /// Distribution of the file sizes, in ascending order of the bound.
    #[serde(default)]
    pub sizes: Vec<SizeClass>,
}

/// Files in one range of sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Exclusive upper bound of the size. The lower bound is that of the previous class.
    #[serde(rename = "below_bytes", with = "quantity::bytes")]
    pub below: ByteCount,
    /// Number of files.
    pub files: u64,
    /// Total size of these files.
    #[serde(rename = "bytes", with = "quantity::bytes")]
    pub size: ByteCount,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Status of the run.
    pub ended: Ended,
    /// Number of file bytes that arrived.
    #[serde(rename = "bytes", with = "quantity::bytes")]
    pub moved: ByteCount,
    /// Time from the start of the command until the data were durable.
    #[serde(rename = "wall_seconds", with = "quantity::seconds")]
    pub wall: Duration,
    /// Bytes divided by wall time.
    #[serde(rename = "goodput_bits_per_second", with = "quantity::bits_per_second")]
    pub goodput: BitRate,
    /// Exit code of the command. `None` if a signal ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// Error message of a failed run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Number of segments that TCP retransmitted, if it was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// Figures that the method reported, by the method's own names: lost streams, blocks that
    /// arrived corrupt.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub said: BTreeMap<String, f64>,
}

/// The status of a finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All of the dataset arrived.
    Done,
    /// The run failed with an error.
    Failed,
    /// The run was stopped at the time limit of the sweep.
    Capped,
}

/// The CPU time of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Name of the process.
    pub process: String,
    /// Side on which the process ran.
    pub side: Side,
    /// CPU time in user mode.
    #[serde(rename = "user_seconds", with = "quantity::seconds")]
    pub user: Duration,
    /// CPU time in the kernel.
    #[serde(rename = "system_seconds", with = "quantity::seconds")]
    pub system: Duration,
}

/// The utilisation of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerUse {
    /// Name of the layer: read, compress, send, receive, decompress, write.
    pub layer: String,
    /// Number of flows in the layer.
    pub flows: u32,
    /// Share of the run during which the flows were busy, 0 to 1.
    pub utilisation: f64,
}

/// The end of the path, or the emulator between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The sending host.
    Source,
    /// The receiving host.
    Destination,
    /// The emulated path.
    Emulator,
}

/// Another transfer that used the path during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Name of the other transfer's method.
    pub method: String,
    /// Port that identifies the other transfer's streams in the samples.
    pub port: u16,
    /// Number of bytes acknowledged on the other transfer's streams during the run.
    #[serde(rename = "bytes", with = "quantity::bytes")]
    pub moved: ByteCount,
    /// The run's share of the bytes that both moved from 15 s until one of them ended, 0 to 1.
    /// `None` if one of them ended before 15 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_after_15_seconds: Option<f64>,
}

/// A file of samples beside the file of records ([`crate::samples`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Name of the file, relative to the directory of the records.
    pub file: String,
    /// Number of samples in the file.
    pub count: u64,
}

/// Reasons why a record cannot be written, or is inconsistent when read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// The line is too long.
    #[error(
        "the record has {0} bytes and may have {LONGEST_LINE}: shorten the command line, the \
         error or the settings"
    )]
    TooLong(usize),
    /// The record cannot be converted to JSON.
    #[error("{0}")]
    Json(String),
    /// A field is out of range, or fields contradict each other.
    #[error("{0}")]
    Nonsense(String),
}

/// Goodput may differ from bytes divided by wall time by this share, the rounding error of three
/// significant digits.
const GOODPUT_ROUNDING: f64 = 0.01;

/// Maximum of goodput divided by capacity. Above it, one of the two is not in bits per second.
const GREATEST_SHARE: f64 = 1e6;

impl RunRecord {
    /// True if both ends ran on one machine and shared its cores: in a lab, or over loopback.
    pub fn is_one_machine(&self) -> bool {
        ["lab", "loopback"].contains(&self.path.name.as_str())
    }

    /// Returns the CPU seconds of all processes at these sides, in user mode and in the kernel.
    /// Returns `None` if no process of these sides was recorded.
    pub fn cpu_seconds(&self, sides: &[Side]) -> Option<f64> {
        let uses = self.cpu.iter().filter(|it| sides.contains(&it.side));
        let seconds = uses.map(|it| (it.user + it.system).as_secs_f64());
        seconds.reduce(|sum, one| sum + one)
    }

    /// Formats the record as a line, without the line feed.
    ///
    /// # Errors
    ///
    /// If the record is too long or inconsistent.
    pub fn to_line(&self) -> Result<String, RecordError> {
        self.check()?;
        let line = serde_json::to_string(self).map_err(|e| RecordError::Json(e.to_string()))?;
        match line.len() {
            length if length > LONGEST_LINE => Err(RecordError::TooLong(length)),
            _ => Ok(line),
        }
    }

    /// Checks that all numbers are in range and consistent.
    ///
    /// # Errors
    ///
    /// The first inconsistency found.
    pub fn check(&self) -> Result<(), RecordError> {
        let nonsense = |text: &str| Err(RecordError::Nonsense(text.to_owned()));
        if self.run.id.is_empty() {
            return nonsense("run.id is empty");
        }
        if self.path.capacity.bits_per_second() <= 0.0 {
            return nonsense("path.capacity_bits_per_second is not above zero");
        }
        let share = self.outcome.goodput.bits_per_second() / self.path.capacity.bits_per_second();
        if share > GREATEST_SHARE {
            return nonsense("path.capacity_bits_per_second is far below the goodput");
        }
        let mut doubts = self.doubts.iter().map(Doubt::to_string);
        if self
            .shown_names()
            .any(|name| name.contains(char::is_control))
            || doubts.any(|text| text.contains(char::is_control))
        {
            return nonsense("a name or a doubt has a control character in it");
        }
        if !(0.0..=1.0).contains(&self.path.loss) {
            return nonsense("path.loss is not between 0 and 1");
        }
        if self
            .path
            .emulator
            .as_ref()
            .is_some_and(|e| !(0.0..=1.0).contains(&e.busy))
        {
            return nonsense("path.emulator.busy is not between 0 and 1");
        }
        let is_share = |layer: &LayerUse| (0.0..=1.0).contains(&layer.utilisation);
        if !self.layers.iter().all(is_share) {
            return nonsense("layers[].utilisation is not between 0 and 1");
        }
        if self.outcome.ended == Ended::Done && self.outcome.wall.is_zero() {
            return nonsense("outcome.wall_seconds is zero, but the run is done");
        }
        let computed = BitRate::from_transfer(self.outcome.moved, self.outcome.wall);
        let (computed, stated) = (
            computed.bits_per_second(),
            self.outcome.goodput.bits_per_second(),
        );
        if (computed - stated).abs() > GOODPUT_ROUNDING * computed.max(stated) {
            return nonsense("outcome.goodput_bits_per_second is not bytes over wall_seconds");
        }
        Ok(())
    }

    /// Returns the names in the record that terminals and pages display.
    fn shown_names(&self) -> impl Iterator<Item = &str> {
        let words = self.knobs.iter().flat_map(|(name, knob)| {
            let word = match knob {
                Knob::Word(word) => Some(word.as_str()),
                _ => None,
            };
            [Some(name.as_str()), word].into_iter().flatten()
        });
        let layers = self.layers.iter().map(|layer| layer.layer.as_str());
        let own = [
            &self.run.id,
            &self.run.sweep,
            &self.method.name,
            &self.method.version,
            &self.method.endpoint,
            &self.method.security,
            &self.dataset.name,
            &self.path.name,
            &self.path.congestion_control,
        ];
        words.chain(layers).chain(own.map(String::as_str))
    }

    /// Returns the CPU seconds of both ends (without the emulator) per 10^9 bytes. Over a real
    /// path, only this end is included. Returns `None` if no bytes were moved or no process of
    /// either end was recorded.
    pub fn cpu_seconds_per_gigabyte(&self) -> Option<f64> {
        let seconds = self.cpu_seconds(&[Side::Source, Side::Destination])?;
        let gigabytes = self.outcome.moved.0 as f64 / 1e9;
        (gigabytes > 0.0).then(|| seconds / gigabytes)
    }
}
