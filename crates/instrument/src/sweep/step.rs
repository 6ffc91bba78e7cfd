//! Description of one run for the process that performs it, and the result of that
//! process.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_lab::running::RunError;
use longhaul_lab::scenario::ScenarioError;
use longhaul_measure::doubt::Doubt;
use longhaul_measure::host::HostDescription;
use longhaul_measure::record::{Beside, CpuUse, EmulatorReport, Ended, Side, TcpSummary};
use serde::{Deserialize, Serialize};

use super::dataset::{Arrived, Shape};

/// Description of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The lab; `None` for a real path or this host.
    pub lab: Option<LabPlan>,
    /// Host at the other end of a real path.
    pub peer: Option<String>,
    /// The measured client, then the background clients.
    pub clients: Vec<Client>,
    /// Maximum duration of the run.
    pub cap: Duration,
    /// Path of the file of samples, and the interval between samples.
    pub samples: Option<(PathBuf, Duration)>,
    /// Start and duration of a cut.
    pub cut: Option<(Duration, Duration)>,
    /// Time of a change, and the new settings of the path.
    pub change: Option<(Duration, String)>,
    /// Expected files at the first client's destination, and the directory of the
    /// originals.
    pub expected: Option<(Shape, PathBuf)>,
    /// Path of the result.
    pub result: PathBuf,
}

/// Reasons why a run was not performed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The input is not a description of a run.
    #[error("the input is not a run of a sweep: {0}")]
    NoStep(#[source] serde_json::Error),
    /// The settings of the lab are invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The lab cannot run.
    #[error(transparent)]
    Lab(#[from] RunError),
    /// A command, a file or a system call failed.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for StepError {
    fn from(text: String) -> StepError {
        StepError::Failed(text)
    }
}

impl Step {
    /// Reads a description that a sweep wrote.
    ///
    /// # Errors
    ///
    /// Returns an error if the input is not such a description.
    pub fn read(from: impl Read) -> Result<Step, StepError> {
        serde_json::from_reader(from).map_err(StepError::NoStep)
    }
}

/// Settings of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LabPlan {
    /// Settings in the form that `LabSettings::read` accepts.
    pub settings: Vec<(String, String)>,
    /// Name of the lab.
    pub name: String,
}

/// A command that moves data, with its server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    /// Name of the method.
    pub method: String,
    /// If true, the command runs on the receiving host and the server on the sending
    /// host.
    pub pulls: bool,
    /// Shell command of the server.
    pub server: Option<String>,
    /// Port on which the server listens.
    pub port: u16,
    /// File in which a longhaul daemon announces its address and key.
    pub ready: Option<PathBuf>,
    /// Shell command of the client.
    pub command: String,
    /// Environment variables of both commands.
    pub environment: BTreeMap<String, String>,
    /// Working directory of both commands.
    pub directory: PathBuf,
    /// File for the client's standard output.
    pub output: PathBuf,
    /// File for the error output of both commands and the server's standard output.
    pub errors: PathBuf,
    /// Destination of the files. It is created within the lab, which may mount a file
    /// system there.
    pub destination: PathBuf,
    /// If true, the destination is made durable before the time is taken.
    pub syncs: bool,
}

impl Client {
    /// Returns the lab's host that runs the command.
    pub fn host(&self) -> &'static str {
        if self.pulls { "b1" } else { "a1" }
    }

    /// Returns the lab's host that runs the server.
    pub fn server_host(&self) -> &'static str {
        if self.pulls { "a1" } else { "b1" }
    }

    /// Returns the end that runs the command.
    pub fn side(&self) -> Side {
        if self.pulls {
            Side::Destination
        } else {
            Side::Source
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepResult {
    /// End of the run.
    pub ended: Ended,
    /// Time from the start until the files were durable.
    pub wall: Duration,
    /// Exit code as in shells; `None` if the run was ended at the cap.
    pub exit: Option<i32>,
    /// Processor time of both ends and of the emulator.
    pub cpu: Vec<CpuUse>,
    /// Busy time of all processors of this machine; `None` if the kernel does not report
    /// it.
    pub machine_busy: Option<Duration>,
    /// Counters of the lab's path.
    pub emulator: Option<EmulatorReport>,
    /// Summary of the streams.
    pub tcp: Option<TcpSummary>,
    /// Number of retransmitted segments.
    pub retransmitted: Option<u64>,
    /// Number of samples written.
    pub samples: u64,
    /// Results of the background clients.
    pub beside: Vec<Beside>,
    /// Result of the comparison; `None` if no files were compared.
    pub arrived: Option<Arrived>,
    /// File system of the destination.
    pub storage: String,
    /// Description of the sending host.
    pub source_host: HostDescription,
    /// Description of the receiving host; `None` if it is unknown.
    pub destination_host: Option<HostDescription>,
    /// Doubts that the lab reports.
    pub doubts: Vec<Doubt>,
}
