//! Arguments of `cp` for logs of entries, retries and early ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use longhaul_transfer::point_in_time::{parse_minutes, parse_until};
use longhaul_units::parse_span_or_seconds;

const HEADING: &str = "Limits and logs";

/// Logs of entries.
#[derive(Clone, Debug, Args)]
pub struct WriteArguments {
    /// Write a line of JSON to FILE for each entry: copied, unchanged, compared, skipped and by
    /// which rule, left, deleted, or failed and why. docs/reports.md describes the fields.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    report: Option<PathBuf>,
    /// Append a line with the time to FILE for each entry, except unchanged ones; with
    /// -v, for these too.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    log_file: Option<PathBuf>,
}

impl WriteArguments {
    /// Returns the paths of the report and of the log.
    pub fn files(&self) -> (Option<&Path>, Option<&Path>) {
        (self.report.as_deref(), self.log_file.as_deref())
    }

    /// True if entries are logged.
    pub fn is_any(&self) -> bool {
        self.report.is_some() || self.log_file.is_some()
    }
}

/// Arguments of `cp` for logs, failures and limits of time.
#[derive(Clone, Debug, Args)]
pub struct AccountArguments {
    #[command(flatten)]
    pub writes: WriteArguments,
    /// End the copy in order after more than N failures (exit code 2).
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub max_errors: Option<u64>,
    /// Try the whole copy up to N times if it fails for a temporary reason, as in rclone;
    /// 1 means no retry. Each try resumes from the previous one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = HEADING)]
    pub retries: Option<u32>,
    /// Time between two tries. A bare number is in seconds, as in rclone [default: 1s,
    /// doubled each time, up to 1min]
    #[arg(long, value_name = "TIME", value_parser = parse_span_or_seconds, requires = "retries", help_heading = HEADING)]
    pub retries_sleep: Option<Duration>,
    /// End the copy in order after this time (exit code 8). The same command resumes it.
    /// A bare number is in minutes, as in rsync.
    #[arg(long, value_name = "TIME", value_parser = parse_minutes, help_heading = HEADING)]
    pub stop_after: Option<Duration>,
    /// End the copy in order at this time of day in UTC: 2026-01-31T08:00:00.
    #[arg(long, value_name = "WHEN", value_parser = parse_until, conflicts_with = "stop_after", help_heading = HEADING)]
    pub stop_at: Option<Duration>,
}

impl AccountArguments {
    /// Returns the maximum duration of the copy.
    pub fn span(&self) -> Option<Duration> {
        self.stop_after.or(self.stop_at)
    }
}
