//! Commands that `cp` runs for files.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use longhaul_transfer::spec::{FileCommand, FilterAt};

const HEADING: &str = "Commands for files";

/// An end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FilterEnd {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// The options.
#[derive(Clone, Debug, Args)]
pub struct CommandArguments {
    /// Run this at the destination for each file that is durable there: sh -c CMD, with its path as
    /// $1. If that fails, the file counts as failed, and CMD runs again with the same command. At a
    /// daemon CMD is the name of one of its commands (docs/commands.md).
    #[arg(long, value_name = "CMD", help_heading = HEADING)]
    pub on_commit: Option<OsString>,
    /// Run this many at a time, at most 64.
    #[arg(long, value_name = "N", default_value = "4", help_heading = HEADING)]
    pub on_commit_jobs: u32,
    /// End one that takes longer.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = longhaul_units::parse_span, help_heading = HEADING)]
    pub on_commit_timeout: Duration,
    /// Have each file go through CMD (sh -c): its output becomes the file. If that fails, nothing
    /// gets the file's name. Later copies compare times alone. At a daemon as above.
    #[arg(long, value_name = "CMD", help_heading = HEADING)]
    pub filter_cmd: Option<OsString>,
    /// The end where that runs: before files are sent, or once they came.
    #[arg(long, value_name = "END", default_value = "destination", value_enum, help_heading = HEADING)]
    pub filter_at: FilterEnd,
    /// Run this many of them at a time, at most 64.
    #[arg(long, value_name = "N", default_value = "4", help_heading = HEADING)]
    pub filter_flows: u32,
    /// End one that takes longer.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = longhaul_units::parse_span, help_heading = HEADING)]
    pub filter_timeout: Duration,
}

impl CommandArguments {
    /// For a specification; `None` if nothing runs.
    pub fn on_commit(&self) -> Option<FileCommand> {
        let command = self.on_commit.as_ref();
        command.map(|text| FileCommand::new(text, self.on_commit_jobs, self.on_commit_timeout))
    }

    /// The same of what files go through.
    pub fn filter(&self) -> Option<FileCommand> {
        let command = self.filter_cmd.as_ref();
        command.map(|text| FileCommand::new(text, self.filter_flows, self.filter_timeout))
    }

    /// Where they do.
    pub fn filter_at(&self) -> FilterAt {
        match self.filter_at {
            FilterEnd::Source => FilterAt::Source,
            FilterEnd::Destination => FilterAt::Destination,
        }
    }
}
