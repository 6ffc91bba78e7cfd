//! One run, as the sweep tells it to the process that makes it, and what that says
//! of it.

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

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The lab; none: a real path.
    pub lab: Option<LabPlan>,
    /// The host that a real path's streams lead to.
    pub peer: Option<String>,
    /// What is measured, then what runs next to it.
    pub clients: Vec<Client>,
    /// It is ended after so long.
    pub cap: Duration,
    /// The file for samples and the time between two.
    pub samples: Option<(PathBuf, Duration)>,
    /// A cut: when, and for how long.
    pub cut: Option<(Duration, Duration)>,
    /// Settings that the path has from then on.
    pub change: Option<(Duration, String)>,
    /// What has to arrive at the first client's destination, and below which directory
    /// its originals lie.
    pub expected: Option<(Shape, PathBuf)>,
    /// Where what came of it is written.
    pub result: PathBuf,
}

/// Why a run was not made.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Nobody asked for one as a sweep does.
    #[error("no step: {0}")]
    NoStep(#[source] serde_json::Error),
    /// The settings make no lab.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The lab does not run.
    #[error(transparent)]
    Lab(#[from] RunError),
    /// A command, a file or the system refused.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for StepError {
    fn from(text: String) -> StepError {
        StepError::Failed(text)
    }
}

impl Step {
    /// Reads what a sweep wrote.
    ///
    /// # Errors
    ///
    /// Where it is something else.
    pub fn read(from: impl Read) -> Result<Step, StepError> {
        serde_json::from_reader(from).map_err(StepError::NoStep)
    }
}

/// A lab, by its settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LabPlan {
    /// Settings that make it, as `LabSettings::read` takes them.
    pub settings: Vec<(String, String)>,
    /// Its name.
    pub name: String,
}

/// A command that moves data, with its other end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Client {
    /// The method's name.
    pub method: String,
    /// Its command is on the receiving host and its server on the sending one, instead
    /// of the other way round.
    pub pulls: bool,
    /// A shell command on the other host.
    pub server: Option<String>,
    /// The port that it listens on.
    pub port: u16,
    /// A file in which a daemon of ours says how it is reached.
    pub ready: Option<PathBuf>,
    /// A shell command.
    pub command: String,
    /// Variables of both.
    pub environment: BTreeMap<String, String>,
    /// Where both run.
    pub directory: PathBuf,
    /// Where the client's standard output goes.
    pub output: PathBuf,
    /// Where everything else that is reported goes.
    pub errors: PathBuf,
    /// Where files arrive; made within the lab, which may have mounted something
    /// there.
    pub destination: PathBuf,
    /// The destination is made durable before the clock stops.
    pub syncs: bool,
}

impl Client {
    /// The lab's host on which its command runs.
    pub fn host(&self) -> &'static str {
        if self.pulls { "b1" } else { "a1" }
    }

    /// The lab's host on which its server runs.
    pub fn server_host(&self) -> &'static str {
        if self.pulls { "a1" } else { "b1" }
    }

    /// Which end its command is at.
    pub fn side(&self) -> Side {
        if self.pulls {
            Side::Destination
        } else {
            Side::Source
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepResult {
    /// How it ended.
    pub ended: Ended,
    /// From its start until what arrived was durable.
    pub wall: Duration,
    /// As in shells; `None` if it was ended.
    pub exit: Option<i32>,
    /// Of both ends and the emulator.
    pub cpu: Vec<CpuUse>,
    /// Of all of this machine's processors together; `None` if the kernel does not tell.
    pub machine_busy: Option<Duration>,
    /// What the path did.
    pub emulator: Option<EmulatorReport>,
    /// What the streams did.
    pub tcp: Option<TcpSummary>,
    /// Segments sent again.
    pub retransmitted: Option<u64>,
    /// Samples written.
    pub samples: u64,
    /// What ran next to it.
    pub beside: Vec<Beside>,
    /// What arrived; `None` if nothing was to be compared.
    pub arrived: Option<Arrived>,
    /// The destination's file system.
    pub storage: String,
    /// The sending host.
    pub source_host: HostDescription,
    /// The receiving one; `None` if nothing is known of it.
    pub destination_host: Option<HostDescription>,
    /// What the lab says against believing it.
    pub doubts: Vec<Doubt>,
}
