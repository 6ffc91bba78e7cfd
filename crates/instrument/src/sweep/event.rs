//! What happens while a sweep runs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_measure::record::{Ended, Outcome};

use super::estimate::spoken;

/// One thing that happened. Its text is one line.
#[derive(Clone, Debug, PartialEq)]
pub enum SweepEvent {
    /// The last line of the records was cut off, and is dropped.
    CutOff {
        /// The records.
        records: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// Hosts are not described beside the records: the file, and why.
    HostsNotDescribed(String),
    /// A method cannot run here.
    Skipped {
        /// The method.
        method: String,
        /// The program that it needs.
        program: String,
    },
    /// Every run of the sweep is in the records already.
    NothingLeft(PathBuf),
    /// The time that was given is over.
    TimeUp {
        /// Runs that were passed, of this and earlier times.
        passed: usize,
        /// Runs of the sweep.
        of: usize,
        /// Time for the rest.
        left: Duration,
    },
    /// A method could not be run, and is tried no more.
    LeftOut {
        /// The method.
        method: String,
        /// Why.
        why: String,
    },
    /// A run was made and is in the records.
    Ran(Box<Ran>),
}

/// A run that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Its number in the sweep, from 1.
    pub number: usize,
    /// Runs of the sweep.
    pub of: usize,
    /// It is one of the fastest, measured again.
    pub again: bool,
    /// Its configuration, in a few words.
    pub configuration: String,
    /// What came of it.
    pub outcome: Outcome,
    /// The longest time of a run, at which it was ended where it says so.
    pub cap: Duration,
    /// Time for the rest.
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
