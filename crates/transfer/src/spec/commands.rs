//! Commands that run for files, as plain data.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use longhaul_proto::command;
use serde::{Deserialize, Serialize};

use super::{Operation, TransferSpec};
use crate::endpoint::Written;

/// Commands at a time where nobody says.
pub const USUAL_JOBS: u32 = 4;

/// What one may take where nobody says, in milliseconds: ten minutes.
pub const USUAL_COMMAND_SPAN: u64 = 600_000;

/// A command that runs for each file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCommand {
    /// What a shell runs, 1 to 4096 bytes; at a daemon the name of one of its commands.
    pub command: Written,
    /// Commands at a time, 1 to 64.
    #[serde(default = "usual_jobs")]
    pub jobs: u32,
    /// Milliseconds that one may take, from 1 to 7 days.
    #[serde(default = "usual_span")]
    pub milliseconds: u64,
}

/// The end at which files go through a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterAt {
    /// Before they are sent.
    Source,
    /// Before they get their names.
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
    /// This many of a command at a time, each within a time.
    pub fn new(command: &OsStr, jobs: u32, within: Duration) -> FileCommand {
        FileCommand {
            command: command.as_bytes().to_vec().into(),
            jobs,
            milliseconds: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// As the receiving end hears it.
    pub fn asked(&self) -> command::FileCommand {
        command::FileCommand {
            command: self.command.as_bytes().to_vec().into(),
            jobs: self.jobs,
            milliseconds: self.milliseconds,
        }
    }
}

impl TransferSpec {
    /// What the receiving end runs for each file that is committed; nothing if it commits none.
    pub(crate) fn asked_on_commit(&self) -> Option<Box<command::FileCommand>> {
        let asked = self.on_commit.as_ref();
        let asked = asked.filter(|_| self.operation == Operation::Copy)?;
        Some(Box::new(asked.asked()))
    }

    /// What files go through at this end.
    pub(crate) fn asked_filter(&self, at: FilterAt) -> Option<Box<command::FileCommand>> {
        let asked = self.filter_command.as_ref();
        let is_there = self.operation != Operation::Verify && self.filter_at == at;
        let asked = asked.filter(|_| is_there)?;
        Some(Box::new(asked.asked()))
    }

    /// Whether they go through one at the source: they have other sizes than are listed.
    pub(crate) fn is_filtered(&self) -> bool {
        self.asked_filter(FilterAt::Source).is_some()
    }
}
