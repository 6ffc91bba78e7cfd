//! Arguments of `cp` for commands that run for files.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::Args;
use longhaul_proto::command::FileCommand;
use longhaul_proto::options::FilterAt;

use super::choices::{Choice, one_of};

const HEADING: &str = "Commands for files";

/// Ends of a copy where files pass through a command.
pub const FILTER_ENDS: [Choice<FilterAt>; 2] = [
    ("source", "The source", FilterAt::Source),
    ("destination", "The destination", FilterAt::Destination),
];

/// Arguments of `cp` for commands that run for files.
#[derive(Clone, Debug, Args)]
pub struct CommandArguments {
    /// Run a command for each file that is durable at the destination: sh -c CMD, with its path as
    /// $1. If CMD fails, the file counts as failed, and CMD runs again when the copy is repeated.
    /// At a daemon, CMD is the name of one of its commands (docs/commands.md).
    #[arg(long, value_name = "CMD", help_heading = HEADING)]
    pub on_commit: Option<OsString>,
    /// Maximum number of these commands that run at a time, up to 64.
    #[arg(long, value_name = "N", default_value = "4", help_heading = HEADING)]
    pub on_commit_jobs: u32,
    /// End an --on-commit command that runs longer.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = longhaul_units::parse_span, help_heading = HEADING)]
    pub on_commit_timeout: Duration,
    /// Pass each file through CMD (sh -c), whose output becomes the file. If CMD fails,
    /// no file with that name appears. Later copies compare only times. At a daemon, CMD
    /// is the name of one of its commands.
    #[arg(long, value_name = "CMD", help_heading = HEADING)]
    pub filter_cmd: Option<OsString>,
    /// End where --filter-cmd runs: at the source before files are sent, or at the destination.
    #[arg(long, value_name = "END", default_value = "destination", value_parser = one_of(&FILTER_ENDS), help_heading = HEADING)]
    pub filter_at: FilterAt,
    /// Maximum number of these commands that run at a time, up to 64.
    #[arg(long, value_name = "N", default_value = "4", help_heading = HEADING)]
    pub filter_flows: u32,
    /// End a --filter-cmd command that runs longer.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = longhaul_units::parse_span, help_heading = HEADING)]
    pub filter_timeout: Duration,
}

impl CommandArguments {
    /// Returns the command for durable files, if one is given.
    pub fn on_commit(&self) -> Option<FileCommand> {
        let command = self.on_commit.as_ref()?.as_bytes();
        let (jobs, within) = (self.on_commit_jobs, self.on_commit_timeout);
        Some(FileCommand::new(command, jobs, within))
    }

    /// Returns the command that files pass through, if one is given.
    pub fn filter(&self) -> Option<FileCommand> {
        let command = self.filter_cmd.as_ref()?.as_bytes();
        let (jobs, within) = (self.filter_flows, self.filter_timeout);
        Some(FileCommand::new(command, jobs, within))
    }
}
