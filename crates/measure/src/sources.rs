//! What other instruments measured: iperf3's JSON, perfSONAR's, and tables with named
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

/// The most bytes of a result: an hour of 64 streams by the second is 60 MB of
/// iperf3's JSON.
pub const MOST_BYTES: usize = 64 << 20;

/// The most characters of a word that a file says: a record's line is bounded.
const LONGEST_WORD: usize = 100;

/// The most characters of an error that an instrument wrote.
const LONGEST_ERROR: usize = 400;

/// Which way data flowed, as seen from the host that asked for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server, from the source to the destination.
    To,
    /// The other way.
    From,
}

impl Direction {
    /// As in records.
    pub fn name(self) -> &'static str {
        match self {
            Direction::To => "to",
            Direction::From => "from",
        }
    }

    /// The other one.
    pub fn back(self) -> Direction {
        match self {
            Direction::To => Direction::From,
            Direction::From => Direction::To,
        }
    }
}

/// What an instrument measured of TCP in one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExternalRun {
    /// The instrument.
    pub tool: String,
    /// Its version, as it says.
    pub version: String,
    /// What tells the run from others, where the file has such a name.
    pub id: String,
    /// When it began, in RFC 3339 format; empty if the file does not say.
    pub started: String,
    /// Which way data flowed, where the file says.
    pub direction: Option<Direction>,
    /// Data flowed the other way at the same time.
    pub bidirectional: bool,
    /// The host that asked for the run, and its kernel, where the file says.
    pub near: HostName,
    /// The other host.
    pub far: HostName,
    /// What its throughput is a measure of, where the file says; else memory to memory.
    pub measures: Option<Measures>,
    /// Bytes that arrived (or were sent, see `doubts`).
    pub moved: ByteCount,
    /// How long that took.
    pub wall: Duration,
    /// What it carried before that is left out.
    pub omitted: Duration,
    /// Bytes over time, as it says.
    pub throughput: BitRate,
    /// Streams; 0 where it does not say.
    pub streams: u64,
    /// Segments sent again.
    pub retransmitted_segments: Option<u64>,
    /// The mean over streams of TCP's round-trip time.
    pub rtt: Option<Duration>,
    /// The least round-trip time that it saw of the path.
    pub least_rtt: Option<Duration>,
    /// The sender's congestion control.
    pub congestion_control: String,
    /// Why it failed; empty where it did not. What it measured until then is kept.
    pub error: String,
    /// What to mistrust.
    pub doubts: Vec<Doubt>,
}

/// A host as a result names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostName {
    /// Its name or address.
    pub name: String,
    /// Its kernel, as `uname -r` prints it.
    pub kernel: String,
}

/// A result that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file itself.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It is too large.
    #[error(
        "it is larger than {MOST_BYTES} bytes: measure for a shorter time, or report less often"
    )]
    TooLarge,
    /// No instrument that is known wrote it.
    #[error("{0}")]
    Unknown(String),
    /// It is not what this instrument writes.
    #[error("this result of {tool} cannot be used: {cause}")]
    NotAResult {
        /// The instrument.
        tool: &'static str,
        /// Why not.
        cause: String,
    },
    /// The instrument failed.
    #[error("{tool} failed: {cause}")]
    Failed {
        /// The instrument.
        tool: String,
        /// What it said.
        cause: String,
    },
}

/// A whole result, if it is not too large.
fn read_bounded(input: impl BufRead) -> Result<Vec<u8>, SourceError> {
    let mut bytes = Vec::new();
    input.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() {
        length if length > MOST_BYTES => Err(SourceError::TooLarge),
        _ => Ok(bytes),
    }
}

/// A time in microseconds, if it is one; zero is what a tool writes that does not
/// know.
fn from_microseconds(value: f64) -> Option<Duration> {
    let span = Duration::try_from_secs_f64(value / 1e6).ok()?;
    (!span.is_zero()).then_some(span)
}

/// A whole number above zero or zero, if it is one.
fn whole(value: f64) -> Option<u64> {
    (0.0..1e19).contains(&value).then_some(value.round() as u64)
}

/// Words of a file, short and without control characters, since terminals and pages show them.
fn word(text: &str) -> String {
    shortened(text, LONGEST_WORD)
}

fn shortened(text: &str, most: usize) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.trim().chars().map(clean).take(most).collect();
    text
}

/// The doubt where a tool only knows what was sent.
fn only_sent(tool: &str) -> Doubt {
    Doubt::DifferentReference {
        what: format!("{tool} told what was sent, not what arrived"),
    }
}

impl ExternalRun {
    /// The run, if it did not fail.
    ///
    /// # Errors
    ///
    /// What the instrument said, where it failed.
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

    /// A run that did not fail moved something in some time.
    fn checked(self, tool: &'static str) -> Result<ExternalRun, SourceError> {
        let cause = match () {
            () if !self.error.is_empty() => return Ok(self),
            () if self.wall.is_zero() => "it took no time",
            () if self.throughput.bits_per_second() <= 0.0 => "nothing arrived",
            () => return Ok(self),
        };
        let cause = cause.to_owned();
        Err(SourceError::NotAResult { tool, cause })
    }

    /// The host that sent and the one that received.
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
        // Also where it did not: else a column of it would be true or unknown.
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

    /// As a record over a path that the caller knows.
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
                // Of a table's transfers it is not known.
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
                // Tools round bytes, times and rates on their own.
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
