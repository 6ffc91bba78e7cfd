//! What other instruments measured: iperf3's JSON and perfSONAR's, as records of
//! memory-to-memory runs.

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
pub use iperf3::read_iperf3;
pub use pscheduler::read_pscheduler;

/// The most bytes of a result: an hour of 64 streams by the second is 60 MB of
/// iperf3's JSON.
pub const MOST_BYTES: usize = 64 << 20;

/// What an instrument measured of TCP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExternalRun {
    /// The instrument.
    pub tool: &'static str,
    /// Its version, as it says.
    pub version: String,
    /// Bytes that arrived (or were sent, see `doubts`).
    pub moved: ByteCount,
    /// How long that took.
    pub wall: Duration,
    /// What it carried before that is left out.
    pub omitted: Duration,
    /// Bytes over time, as it says.
    pub throughput: BitRate,
    /// Streams.
    pub streams: u64,
    /// Segments sent again.
    pub retransmitted_segments: Option<u64>,
    /// The mean over streams of TCP's round-trip time.
    pub rtt: Option<Duration>,
    /// The sender's congestion control.
    pub congestion_control: String,
    /// What to mistrust.
    pub doubts: Vec<Doubt>,
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
    /// It is not what this instrument writes.
    #[error("this is no result of {tool}: {cause}")]
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
        tool: &'static str,
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

impl ExternalRun {
    /// A run of at least some bytes in some time.
    fn checked(self) -> Result<ExternalRun, SourceError> {
        let cause = match () {
            () if self.wall.is_zero() => "it took no time",
            () if self.throughput.bits_per_second() <= 0.0 => "nothing arrived",
            () => return Ok(self),
        };
        Err(SourceError::NotAResult {
            tool: self.tool,
            cause: cause.to_owned(),
        })
    }

    /// As a record of a memory-to-memory run over a path that the caller knows.
    pub fn into_record(self, run: RunIdentity, path: PathRecord) -> RunRecord {
        RunRecord {
            schema: SCHEMA,
            run,
            measures: Measures::Memory,
            method: Method {
                name: self.tool.to_owned(),
                version: self.version,
                security: "clear".to_owned(),
                ..Method::default()
            },
            knobs: [("streams".to_owned(), Knob::Count(self.streams))].into(),
            path: PathRecord {
                congestion_control: self.congestion_control,
                ..path
            },
            source: HostRecord::default(),
            destination: HostRecord::default(),
            dataset: DatasetRecord::default(),
            outcome: Outcome {
                ended: Ended::Done,
                moved: self.moved,
                wall: self.wall,
                // Tools round bytes, times and rates on their own.
                goodput: BitRate::from_transfer(self.moved, self.wall),
                exit: Some(0),
                error: String::new(),
                retransmitted_segments: self.retransmitted_segments,
                said: BTreeMap::new(),
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
