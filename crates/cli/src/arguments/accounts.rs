//! What `cp` writes down of each entry, and when it ends before it is done.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use longhaul_units::{microseconds_of, parse_span};

const HEADING: &str = "Limits and accounts";

/// The options.
#[derive(Clone, Debug, Args)]
pub struct AccountArguments {
    /// Write a line of JSON for each entry to FILE: copied, unchanged, skipped and by which rule,
    /// left, deleted, failed and why. docs/reports.md has the fields.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub report: Option<PathBuf>,
    /// Add a line for each entry to FILE, with the time.
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub log_file: Option<PathBuf>,
    /// End in order after more failures than this (exit code 2).
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub max_errors: Option<u64>,
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

    /// Whether each entry is to be written down.
    pub fn logs(&self) -> bool {
        self.report.is_some() || self.log_file.is_some()
    }
}

fn parse_minutes(text: &str) -> Result<Duration, String> {
    if let Ok(minutes) = text.parse::<u32>() {
        return Ok(Duration::from_secs(60 * u64::from(minutes)));
    }
    parse_span(text).map_err(|error| error.to_string())
}

/// How long it is until a moment.
fn parse_until(text: &str) -> Result<Duration, String> {
    // Without seconds as in rsync.
    let at = microseconds_of(text).or_else(|| microseconds_of(&format!("{text}:00")));
    let at = at.ok_or("write it in UTC as 2026-01-31T08:00 or 2026-01-31T08:00:00")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(|_| "the clock of this host is before 1970: set it")?;
    let at = Duration::from_micros(u64::try_from(at).unwrap_or(0));
    at.checked_sub(now)
        .ok_or_else(|| format!("{text} is over: name a moment to come"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_end_are_spans_and_moments_to_come() {
        assert_eq!(parse_minutes("90"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_minutes("30s"), Ok(Duration::from_secs(30)));
        assert!(parse_until("2001-01-01T00:00:00").is_err());
        let far = Duration::from_secs(86_400);
        assert!(parse_until("2999-01-01T00:00").is_ok_and(|span| span > far));
        assert!(parse_until("tomorrow").is_err() && parse_minutes("-1").is_err());
    }
}
