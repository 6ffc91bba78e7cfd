//! What `cp` writes down of each entry, and when it ends before it is done.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use longhaul_transfer::point_in_time::{parse_minutes, parse_until};
use longhaul_units::parse_span_or_seconds;

const HEADING: &str = "Limits and accounts";

/// Where it is written down what became of each entry.
#[derive(Clone, Debug, Args)]
pub struct WriteArguments {
    /// Write a line of JSON for each entry to FILE: copied, unchanged, compared, skipped and by
    /// which rule, left, deleted, failed and why. docs/reports.md has the fields.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    report: Option<PathBuf>,
    /// Add a line to FILE, with the time, for each entry that is not there unchanged; with -v for
    /// those, too.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    log_file: Option<PathBuf>,
}

impl WriteArguments {
    /// The report and the log.
    pub fn files(&self) -> (Option<&Path>, Option<&Path>) {
        (self.report.as_deref(), self.log_file.as_deref())
    }

    /// Whether each entry is to be written down.
    pub fn is_any(&self) -> bool {
        self.report.is_some() || self.log_file.is_some()
    }
}

/// The options.
#[derive(Clone, Debug, Args)]
pub struct AccountArguments {
    /// Where it is written down what became of each entry.
    #[command(flatten)]
    pub writes: WriteArguments,
    /// End in order after more failures than this (exit code 2).
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub max_errors: Option<u64>,
    /// Try the whole copy up to N times, if it failed for a reason that may pass, as in rclone:
    /// 1 is one try. Each try resumes what the ones before it left.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = HEADING)]
    pub retries: Option<u32>,
    /// Time between two tries [default: 1s, twice as long each time, up to 1min]. A bare number is
    /// in seconds, as in rclone.
    #[arg(long, value_name = "TIME", value_parser = parse_span_or_seconds, requires = "retries", help_heading = HEADING)]
    pub retries_sleep: Option<Duration>,
    /// End in order after this time (exit code 8). The same command resumes. A bare number is in
    /// minutes, as in rsync.
    #[arg(long, value_name = "TIME", value_parser = parse_minutes, help_heading = HEADING)]
    pub stop_after: Option<Duration>,
    /// The same at a time of day in UTC: 2026-01-31T08:00:00.
    #[arg(long, value_name = "WHEN", value_parser = parse_until, conflicts_with = "stop_after", help_heading = HEADING)]
    pub stop_at: Option<Duration>,
}

impl AccountArguments {
    /// How long the copy may take.
    pub fn span(&self) -> Option<Duration> {
        self.stop_after.or(self.stop_at)
    }
}
