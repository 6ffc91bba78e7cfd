//! Commands that `cp` runs for files.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use clap::Args;
use longhaul_transfer::spec::OnCommit;

const HEADING: &str = "Commands for files";

/// The options.
#[derive(Clone, Debug, Args)]
pub struct CommandArguments {
    /// Run this at the destination for each file, once it is durable under its name: sh -c CMD,
    /// with the file's path as $1 and LONGHAUL_PATH. If it does not succeed, the file stays and
    /// counts as failed, and the same command runs it again. At a daemon CMD is the name of one of
    /// its commands. docs/commands.md has more.
    #[arg(long, value_name = "CMD", help_heading = HEADING)]
    pub on_commit: Option<OsString>,
    /// Run this many at a time, at most 64.
    #[arg(long, value_name = "N", default_value = "4", help_heading = HEADING)]
    pub on_commit_jobs: u32,
    /// End one that takes longer.
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = longhaul_units::parse_span, help_heading = HEADING)]
    pub on_commit_timeout: Duration,
}

impl CommandArguments {
    /// For a specification; `None` if nothing runs.
    pub fn on_commit(&self) -> Option<OnCommit> {
        let command = self.on_commit.as_ref()?;
        let milliseconds = self.on_commit_timeout.as_millis();
        Some(OnCommit {
            command: command.as_bytes().to_vec().into(),
            jobs: self.on_commit_jobs,
            milliseconds: u64::try_from(milliseconds).unwrap_or(u64::MAX),
        })
    }
}
