//! Reads the results of other instruments: JSON of iperf3 and perfSONAR, and tables with named
//! columns.

mod csv;
mod document;
mod iperf3;
mod pscheduler;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

use crate::doubt::Doubt;
use crate::record::{
    DatasetRecord, Ended, HostRecord, Knob, Measures, Method, Outcome, PathRecord, RunIdentity,
    RunRecord, SCHEMA,
};
pub use csv::read_csv;
pub use document::read_any;
pub use iperf3::read_iperf3;
pub use pscheduler::read_pscheduler;

/// Maximum size of a result in bytes. iperf3's JSON for an hour of 64 streams with one report each
/// second is 60 MB.
pub const MOST_BYTES: usize = 64 << 20;

/// Maximum length of a text from a file, in characters. A record's line has limited length.
const LONGEST_WORD: usize = 100;

/// Maximum length of an instrument's error message, in characters.
const LONGEST_ERROR: usize = 400;

/// Direction of the data, from the point of view of the host that started the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server, or from the source to the destination.
    To,
    /// The opposite direction.
    From,
}

impl Direction {
    /// Returns the name used in records.
    pub fn name(self) -> &'static str {
        match self {
            Direction::To => "to",
            Direction::From => "from",
        }
    }

    /// Returns the opposite direction.
    pub fn back(self) -> Direction {
        match self {
            Direction::To => Direction::From,
            Direction::From => Direction::To,
        }
    }
}

/// A TCP measurement in one direction by another instrument.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExternalRun {
    /// Name of the instrument.
    pub tool: String,
    /// Version that the instrument reports.
    pub version: String,
    /// Identity of the run, if the file has one, else empty.
    pub id: String,
    /// Start time in RFC 3339 format. Empty if the file has no start time.
    pub started: String,
    /// Direction of the data. `None` if the file does not state it.
    pub direction: Option<Direction>,
    /// True if data also flowed in the opposite direction at the same time.
    pub bidirectional: bool,
    /// The host that started the run, and its kernel, if the file has them.
    pub near: HostName,
    /// The other host.
    pub far: HostName,
    /// Kind of throughput. `None` if the file does not state it; the record then states memory to
    /// memory.
    pub measures: Option<Measures>,
    /// Number of bytes that arrived, or that were sent (see `doubts`).
    pub moved: ByteCount,
    /// Duration of the transfer of these bytes.
    pub wall: Duration,
    /// Time at the start that the instrument excluded from the measurement.
    pub omitted: Duration,
    /// Throughput that the instrument reports.
    pub throughput: BitRate,
    /// Number of streams. 0 if unknown.
    pub streams: u64,
    /// Number of retransmitted segments.
    pub retransmitted_segments: Option<u64>,
    /// Mean over the streams of TCP's round-trip time.
    pub rtt: Option<Duration>,
    /// Least round-trip time that the instrument saw.
    pub least_rtt: Option<Duration>,
    /// Congestion control of the sender.
    pub congestion_control: String,
    /// Error message of a failed run, else empty. A failed run keeps its measurements.
    pub error: String,
    /// Reasons to mistrust the run.
    pub doubts: Vec<Doubt>,
}

/// A host as named in a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostName {
    /// Name or address of the host.
    pub name: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
}

/// Reasons why a result cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Reading the file failed.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The file is too large.
    #[error(
        "it is larger than {MOST_BYTES} bytes: measure for a shorter time, or report less often"
    )]
    TooLarge,
    /// The file is not from a known instrument.
    #[error("{0}")]
    Unknown(String),
    /// The file is not a usable result of the instrument.
    #[error("this result of {tool} cannot be used: {cause}")]
    NotAResult {
        /// Name of the instrument.
        tool: &'static str,
        /// Reason why the result cannot be used.
        cause: String,
    },
    /// The instrument reported an error.
    #[error("{tool} failed: {cause}")]
    Failed {
        /// Name of the instrument.
        tool: String,
        /// Error message of the instrument.
        cause: String,
    },
}

/// Reads a whole result, up to the maximum size.
fn read_bounded(input: impl BufRead) -> Result<Vec<u8>, SourceError> {
    let mut bytes = Vec::new();
    input.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() {
        length if length > MOST_BYTES => Err(SourceError::TooLarge),
        _ => Ok(bytes),
    }
}

/// Converts microseconds to a duration. Returns `None` if the value is invalid or zero. Tools write
/// zero for an unknown time.
fn from_microseconds(value: f64) -> Option<Duration> {
    let span = Duration::try_from_secs_f64(value / 1e6).ok()?;
    (!span.is_zero()).then_some(span)
}

/// Rounds a number to an integer. Returns `None` if it is negative or too large.
fn whole(value: f64) -> Option<u64> {
    (0.0..1e19).contains(&value).then_some(value.round() as u64)
}

/// Shortens a text from a file and replaces control characters, because terminals and pages display
/// it.
fn word(text: &str) -> String {
    shortened(text, LONGEST_WORD)
}

fn shortened(text: &str, most: usize) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.trim().chars().map(clean).take(most).collect();
    text
}

/// Returns the doubt about a tool that reports only the number of bytes sent.
fn only_sent(tool: &str) -> Doubt {
    Doubt::DifferentReference {
        what: format!("{tool} reported the data sent, not the data received"),
    }
}

impl ExternalRun {
    /// Returns the run if it did not fail.
    ///
    /// # Errors
    ///
    /// The instrument's error message if the run failed.
    pub fn done(self) -> Result<ExternalRun, SourceError> {
        if self.error.is_empty() {
            Ok(self)
        } else {
            Err(SourceError::Failed {
                tool: self.tool,
                cause: self.error,
            })
        }
    }

    /// Checks that a successful run has a duration and a throughput.
    fn checked(self, tool: &'static str) -> Result<ExternalRun, SourceError> {
        let cause = match () {
            () if !self.error.is_empty() => return Ok(self),
            () if self.wall.is_zero() => "its duration is zero",
            () if self.throughput.bits_per_second() <= 0.0 => "no data arrived",
            () => return Ok(self),
        };
        let cause = cause.to_owned();
        Err(SourceError::NotAResult { tool, cause })
    }

    /// Returns the sending host and the receiving host.
    fn ends(&self) -> [HostRecord; 2] {
        let [near, far] = [&self.near, &self.far].map(|host| HostRecord {
            name: host.name.clone(),
            kernel: host.kernel.clone(),
            ..HostRecord::default()
        });
        match self.direction {
            Some(Direction::From) => [far, near],
            Some(Direction::To) | None => [near, far],
        }
    }

    fn knobs(&self) -> BTreeMap<String, Knob> {
        let streams = (self.streams > 0).then_some(Knob::Count(self.streams));
        let direction = self.direction.map(|way| Knob::Word(way.name().to_owned()));
        // Writes false, too. Otherwise a column of tables would contain only true and empty cells.
        let both = self.direction.map(|_| Knob::Flag(self.bidirectional));
        let knobs = [
            ("streams", streams),
            ("direction", direction),
            ("bidirectional", both),
        ];
        let known = knobs.into_iter();
        known
            .filter_map(|(name, knob)| Some((name.to_owned(), knob?)))
            .collect()
    }

    /// Converts the run to a record with the given identity and path.
    pub fn into_record(self, run: RunIdentity, path: PathRecord) -> RunRecord {
        let is_done = self.error.is_empty();
        let rtts = [
            ("rtt_seconds", self.rtt),
            ("least_rtt_seconds", self.least_rtt),
        ];
        let said = rtts
            .into_iter()
            .filter_map(|(name, rtt)| Some((name.to_owned(), rtt?.as_secs_f64())));
        let [source, destination] = self.ends();
        RunRecord {
            schema: SCHEMA,
            run,
            measures: self.measures.unwrap_or(Measures::Memory),
            knobs: self.knobs(),
            method: Method {
                name: self.tool,
                version: self.version,
                // The security of a table's transfers is unknown.
                security: match self.measures {
                    None => "clear".to_owned(),
                    Some(_) => String::new(),
                },
                ..Method::default()
            },
            path: PathRecord {
                congestion_control: self.congestion_control,
                ..path
            },
            source,
            destination,
            dataset: DatasetRecord::default(),
            outcome: Outcome {
                ended: if is_done { Ended::Done } else { Ended::Failed },
                moved: self.moved,
                wall: self.wall,
                // Tools round bytes, times and rates independently.
                goodput: BitRate::from_transfer(self.moved, self.wall),
                exit: is_done.then_some(0),
                error: self.error,
                retransmitted_segments: self.retransmitted_segments,
                said: said.collect(),
            },
            cpu: Vec::new(),
            machine_busy_seconds: None,
            layers: Vec::new(),
            tcp: None,
            beside: Vec::new(),
            samples: None,
            doubts: self.doubts,
        }
    }
}
