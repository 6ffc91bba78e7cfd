//! Progress events of a sweep.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_measure::record::{Ended, Outcome};

use super::estimate::spoken;

/// A progress event, displayed as one line.
#[derive(Clone, Debug, PartialEq)]
pub enum SweepEvent {
    /// The last line of the records was incomplete and is dropped.
    CutOff {
        /// Path of the records.
        records: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
    /// The hosts are not described next to the records, for this reason.
    HostsNotDescribed(String),
    /// A method is skipped because a program is not installed.
    Skipped {
        /// Name of the method.
        method: String,
        /// Name of the missing program.
        program: String,
    },
    /// Every run of the sweep is already recorded.
    NothingLeft(PathBuf),
    /// The maximum duration would be exceeded.
    TimeUp {
        /// Number of runs that were passed, including earlier calls.
        passed: usize,
        /// Number of runs of the sweep.
        of: usize,
        /// Expected time of the remaining runs.
        left: Duration,
    },
    /// A method could not be run and is left out from now on.
    LeftOut {
        /// Name of the method.
        method: String,
        /// Reason.
        why: String,
    },
    /// A run was performed and recorded.
    Ran(Box<Ran>),
}

/// A run that was performed.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Number of the run in the sweep, from 1.
    pub number: usize,
    /// Number of runs of the sweep.
    pub of: usize,
    /// True for a repetition of the fastest configurations.
    pub again: bool,
    /// Short description of the configuration.
    pub configuration: String,
    /// Outcome of the run.
    pub outcome: Outcome,
    /// Maximum duration of a run.
    pub cap: Duration,
    /// Expected time of the remaining runs.
    pub left: Duration,
}

impl fmt::Display for SweepEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SweepEvent::CutOff { records, line } => write!(
                f,
                "{}: line {line} was cut off and is dropped: that run is made again",
                records.display()
            ),
            SweepEvent::HostsNotDescribed(why) => write!(f, "{why}: hosts are not described"),
            SweepEvent::Skipped { method, program } => {
                write!(f, "{method} is skipped: {program} is not installed")
            }
            SweepEvent::NothingLeft(records) => {
                let records = records.display();
                write!(
                    f,
                    "nothing is left to run: all is in {records}; `longhaul profile {records}` \
                     analyses it"
                )
            }
            SweepEvent::TimeUp { passed, of, left } => write!(
                f,
                "time is up after {passed} of {of} runs: the same command resumes it, for about {} \
                 more",
                spoken(*left)
            ),
            SweepEvent::LeftOut { method, why } => write!(f, "{method} is left out: {why}"),
            SweepEvent::Ran(ran) => ran.fmt(f),
        }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = &self.outcome;
        let came = match outcome.ended {
            Ended::Done => format!("{} in {:.2} s", outcome.goodput, outcome.wall.as_secs_f64()),
            Ended::Failed => format!("failed: {}", outcome.error),
            Ended::Capped => format!("ended at the cap of {:?}", self.cap),
        };
        write!(
            f,
            "{} of {}: {}{}: {came}; about {} left",
            self.number,
            self.of,
            if self.again { "again " } else { "" },
            self.configuration,
            spoken(self.left)
        )
    }
}
