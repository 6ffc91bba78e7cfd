//! Defines commands that run for each file, as plain data.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use longhaul_proto::command;
use serde::{Deserialize, Serialize};

use super::{Operation, TransferSpec};
use crate::endpoint::Written;

/// Default for [`FileCommand::jobs`].
pub const USUAL_JOBS: u32 = 4;

/// Default for [`FileCommand::milliseconds`]: ten minutes.
pub const USUAL_COMMAND_SPAN: u64 = 600_000;

/// A command that runs for each file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCommand {
    /// Shell command line, 1 to 4096 bytes. At a daemon: the name of one of its commands.
    pub command: Written,
    /// Maximum number of commands that run at a time, from 1 to 64.
    #[serde(default = "usual_jobs")]
    pub jobs: u32,
    /// Time limit of one command in milliseconds, from 1 ms to 7 days.
    #[serde(default = "usual_span")]
    pub milliseconds: u64,
}

/// The end at which files pass through a filter command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterAt {
    /// The source, before files are sent.
    Source,
    /// The destination, before files get their names.
    #[default]
    Destination,
}

impl FilterAt {
    pub(super) fn is_usual(&self) -> bool {
        *self == FilterAt::Destination
    }
}

fn usual_jobs() -> u32 {
    USUAL_JOBS
}

fn usual_span() -> u64 {
    USUAL_COMMAND_SPAN
}

impl FileCommand {
    /// Creates a command with a number of parallel runs and a time limit for each.
    pub fn new(command: &OsStr, jobs: u32, within: Duration) -> FileCommand {
        FileCommand {
            command: command.as_bytes().to_vec().into(),
            jobs,
            milliseconds: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Converts this into the message for the other end.
    pub fn asked(&self) -> command::FileCommand {
        command::FileCommand {
            command: self.command.as_bytes().to_vec().into(),
            jobs: self.jobs,
            milliseconds: self.milliseconds,
        }
    }
}

impl TransferSpec {
    /// Returns the command that the receiving end runs for each committed file. `None` for an
    /// operation other than a copy.
    pub(crate) fn asked_on_commit(&self) -> Option<Box<command::FileCommand>> {
        let asked = self.on_commit.as_ref();
        let asked = asked.filter(|_| self.operation == Operation::Copy)?;
        Some(Box::new(asked.asked()))
    }

    /// Returns the filter command that runs at the end `at`; `None` for comparisons.
    pub(crate) fn asked_filter(&self, at: FilterAt) -> Option<Box<command::FileCommand>> {
        let asked = self.filter_command.as_ref();
        let is_there = self.operation != Operation::Verify && self.filter_at == at;
        let asked = asked.filter(|_| is_there)?;
        Some(Box::new(asked.asked()))
    }

    /// True if a command filters files at the source, so that their sizes differ from the listed
    /// ones.
    pub(crate) fn is_filtered(&self) -> bool {
        self.asked_filter(FilterAt::Source).is_some()
    }
}
