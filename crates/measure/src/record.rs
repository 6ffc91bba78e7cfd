//! The record of a run: one self-describing JSON object on a line of its own.
//!
//! FORMAT.md has the schema. Numbers carry their unit in JSON by name
//! (`rtt_seconds`) and in Rust by type. What a reader does not know in a record
//! of its own schema it ignores; a record of another schema it refuses.

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

/// The version of the schema that this crate reads and writes.
pub const SCHEMA: u32 = 1;

/// The most bytes a record's line may have, without its line feed: a hundred
/// thousand records stay a file that is read in a second.
pub const LONGEST_LINE: usize = 4096;

/// One run of one method over one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Which run it was.
    pub run: RunIdentity,
    /// What its throughput is a measure of.
    pub measures: Measures,
    /// What moved the data.
    pub method: Method,
    /// What was set, by name: streams, buffers, codecs, storage nodes, sysctls.
    #[serde(default)]
    pub knobs: BTreeMap<String, Knob>,
    /// What it went over.
    pub path: PathRecord,
    /// The sending host.
    #[serde(default)]
    pub source: HostRecord,
    /// The receiving host.
    #[serde(default)]
    pub destination: HostRecord,
    /// What was moved.
    #[serde(default)]
    pub dataset: DatasetRecord,
    /// What came of it.
    pub outcome: Outcome,
    /// CPU time, by process.
    #[serde(default)]
    pub cpu: Vec<CpuUse>,
    /// For how long processors of the sending host's machine were busy meanwhile, whatever
    /// with: also what kernel threads wrote back for somebody, and interrupts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_busy_seconds: Option<f64>,
    /// How busy its layers were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerUse>,
    /// What its streams did, where they were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSummary>,
    /// What else ran on the same path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// Where the run's TCP samples lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Sidecar>,
    /// What to mistrust.
    #[serde(default)]
    pub doubts: Vec<Doubt>,
}

/// Which run a record is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    /// Unlike that of every other run.
    pub id: String,
    /// The sweep it belongs to.
    #[serde(default)]
    pub sweep: String,
    /// Runs of one round were interleaved: all configurations once, in random
    /// order. Comparisons pair runs of the same round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u64>,
    /// What the emulated path's accidents were drawn from: every round has its own,
    /// and its runs share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// When it began, in RFC 3339 format.
    #[serde(default)]
    pub started: String,
    /// Measured again, to decide among the fastest of the sweep ([`crate::best`]);
    /// in no profile, since only some configurations have such runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// A warm-up run: kept, and in no figure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm_up: bool,
}

/// What a throughput is a measure of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measures {
    /// From files to files: Θ_E.
    Transfer,
    /// From memory to memory: Θ_T.
    Memory,
    /// One host's own file system: Θ_H. The path says nothing.
    Storage,
}

/// What moved the data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// Its short name: longhaul, gridftp, scp, …
    pub name: String,
    /// Its version, as it prints it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The command line that ran.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// How the endpoint was reached: daemon, ssh, mount, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// How data were secured: tls, ssh, clear.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub security: String,
}

/// A knob's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Knob {
    /// Yes or no.
    Flag(bool),
    /// A count, or bytes.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// A word.
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

/// What a run went over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// Its name; `lab` if emulated.
    #[serde(default)]
    pub name: String,
    /// Its round-trip time τ: the emulator's setting, or the least measured.
    #[serde(rename = "rtt_seconds", with = "quantity::seconds")]
    pub rtt: Duration,
    /// What TCP payload can carry: 0.9415 times the rate at an MTU of 1500.
    /// Above zero.
    #[serde(
        rename = "capacity_bits_per_second",
        with = "quantity::bits_per_second"
    )]
    pub capacity: BitRate,
    /// The line's rate, where it is known.
    #[serde(
        default,
        rename = "rate_bits_per_second",
        with = "quantity::bits_per_second_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub rate: Option<BitRate>,
    /// The share of packets that are lost at random, 0 to 1.
    #[serde(default)]
    pub loss: f64,
    /// The bottleneck's queue.
    #[serde(
        default,
        rename = "queue_bytes",
        with = "quantity::bytes_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub queue: Option<ByteCount>,
    /// The congestion control in use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub congestion_control: String,
    /// The emulator's own report, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<EmulatorReport>,
}

/// What an emulated path says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmulatorReport {
    /// Packets carried.
    pub packets: u64,
    /// Packets dropped at random, as asked for.
    #[serde(default)]
    pub lost: u64,
    /// Packets dropped because the queue was full.
    #[serde(default)]
    pub overflowed: u64,
    /// Packets damaged so that TCP's checksum does not tell.
    #[serde(default)]
    pub corrupted_unseen: u64,
    /// Packets that left later than they should have.
    #[serde(default)]
    pub late: u64,
    /// By how much at most.
    #[serde(default, rename = "worst_late_seconds", with = "quantity::seconds")]
    pub worst_late: Duration,
    /// The share of its CPU that it used, 0 to 1.
    #[serde(default)]
    pub busy: f64,
}

/// A host at one end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its kernel, as `uname -r` prints it.
    #[serde(default)]
    pub kernel: String,
    /// Its processor.
    #[serde(default)]
    pub cpu: String,
    /// Its cores that may be used.
    #[serde(default)]
    pub cores: u32,
    /// Its memory.
    #[serde(default, rename = "memory_bytes", with = "quantity::bytes")]
    pub memory: ByteCount,
    /// Its storage: file system, mount options, stripes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub storage: String,
    /// Settings that matter most, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The digest of its whole description in the file of hosts beside the records
    /// ([`crate::host`]): all sysctls, interfaces, governor, versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// What was moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRecord {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// How many files.
    #[serde(default)]
    pub files: u64,
    /// All their bytes.
    #[serde(default, rename = "bytes", with = "quantity::bytes")]
    pub size: ByteCount,
    /// The distribution of their sizes, by ascending bound.
    #[serde(default)]
    pub sizes: Vec<SizeClass>,
}

/// Files of about one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeClass {
    /// Smaller than this, and not in the class before.
    #[serde(rename = "below_bytes", with = "quantity::bytes")]
    pub below: ByteCount,
    /// How many.
    pub files: u64,
    /// All their bytes.
    #[serde(rename = "bytes", with = "quantity::bytes")]
    pub size: ByteCount,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// File bytes that arrived.
    #[serde(rename = "bytes", with = "quantity::bytes")]
    pub moved: ByteCount,
    /// From the command's start until the data were durable.
    #[serde(rename = "wall_seconds", with = "quantity::seconds")]
    pub wall: Duration,
    /// Bytes over wall time.
    #[serde(rename = "goodput_bits_per_second", with = "quantity::bits_per_second")]
    pub goodput: BitRate,
    /// The command's exit code; none if a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// What it said, if it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Segments that TCP sent again, where it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// What the method said of itself, by the name it gave it: lost streams, blocks
    /// that arrived damaged.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub said: BTreeMap<String, f64>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Well: all of the dataset arrived.
    Done,
    /// With an error.
    Failed,
    /// At the cap that the sweep set.
    Capped,
}

/// CPU time of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Its name.
    pub process: String,
    /// Where it ran.
    pub side: Side,
    /// Time in its own code.
    #[serde(rename = "user_seconds", with = "quantity::seconds")]
    pub user: Duration,
    /// Time in the kernel.
    #[serde(rename = "system_seconds", with = "quantity::seconds")]
    pub system: Duration,
}

/// How busy one layer was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerUse {
    /// Its name: read, compress, send, receive, decompress, write.
    pub layer: String,
    /// Its flows.
    pub flows: u32,
    /// The share of the run in which they were busy, 0 to 1.
    pub utilisation: f64,
}

/// Which end, or what lies between.
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

/// Something else that used the path while the run lasted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Its method.
    pub method: String,
    /// The port that identifies its streams in the samples.
    pub port: u16,
    /// What its streams were acknowledged while the run lasted.
    #[serde(rename = "bytes", with = "quantity::bytes")]
    pub moved: ByteCount,
    /// The run's share of what both moved from 15 s until one of them was done, 0 to 1; `None` if
    /// that was no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_after_15_seconds: Option<f64>,
}

/// A file of samples beside the record ([`crate::samples`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Its name, beside the file of records.
    pub file: String,
    /// How many samples it has.
    pub count: u64,
}

/// Why a record cannot be written, or makes no sense when read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// Its line has too many bytes.
    #[error(
        "the record has {0} bytes and may have {LONGEST_LINE}: shorten the command line, the \
         error or the settings"
    )]
    TooLong(usize),
    /// It cannot be written as JSON.
    #[error("{0}")]
    Json(String),
    /// Fields that contradict each other or their range.
    #[error("{0}")]
    Nonsense(String),
}

/// Goodput may differ from bytes over wall time by this share: as much as
/// numbers printed with three digits do.
const GOODPUT_ROUNDING: f64 = 0.01;

/// No run carries this many times a path's capacity: one of the two is not in bits per second.
const GREATEST_SHARE: f64 = 1e6;

impl RunRecord {
    /// Whether both ends ran on one machine and shared its cores: in a lab, or over loopback.
    pub fn is_one_machine(&self) -> bool {
        ["lab", "loopback"].contains(&self.path.name.as_str())
    }

    /// CPU seconds of what ran at these sides, in user mode and in the kernel; `None` where no
    /// process of theirs was seen.
    pub fn cpu_seconds(&self, sides: &[Side]) -> Option<f64> {
        let uses = self.cpu.iter().filter(|it| sides.contains(&it.side));
        let seconds = uses.map(|it| (it.user + it.system).as_secs_f64());
        seconds.reduce(|sum, one| sum + one)
    }

    /// The record as a line, without the line feed.
    ///
    /// # Errors
    ///
    /// Where it is too long or makes no sense.
    pub fn to_line(&self) -> Result<String, RecordError> {
        self.check()?;
        let line = serde_json::to_string(self).map_err(|e| RecordError::Json(e.to_string()))?;
        match line.len() {
            length if length > LONGEST_LINE => Err(RecordError::TooLong(length)),
            _ => Ok(line),
        }
    }

    /// Whether its numbers lie in their ranges and agree with each other.
    ///
    /// # Errors
    ///
    /// The first that does not.
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
            return nonsense("path.capacity_bits_per_second is far below what was carried");
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
            return nonsense("path.loss is no share from 0 to 1");
        }
        if self
            .path
            .emulator
            .as_ref()
            .is_some_and(|e| !(0.0..=1.0).contains(&e.busy))
        {
            return nonsense("path.emulator.busy is no share from 0 to 1");
        }
        let is_share = |layer: &LayerUse| (0.0..=1.0).contains(&layer.utilisation);
        if !self.layers.iter().all(is_share) {
            return nonsense("layers[].utilisation is no share from 0 to 1");
        }
        if self.outcome.ended == Ended::Done && self.outcome.wall.is_zero() {
            return nonsense("outcome.wall_seconds is zero, and the run is done");
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

    /// Names of its own that terminals and pages show.
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

    /// CPU seconds of both ends (not the emulator) for each 10^9 bytes; `None` of
    /// no bytes or where no process of either end was seen. Over a real path it is this
    /// end's alone.
    pub fn cpu_seconds_per_gigabyte(&self) -> Option<f64> {
        let seconds = self.cpu_seconds(&[Side::Source, Side::Destination])?;
        let gigabytes = self.outcome.moved.0 as f64 / 1e9;
        (gigabytes > 0.0).then(|| seconds / gigabytes)
    }
}
