//! When `cp` copies a file over what has its name.

use std::time::Duration;

use clap::Args;
use longhaul_transfer::spec::Criteria;

const HEADING: &str = "When it is copied";

/// The options, as rsync has them.
#[derive(Clone, Debug, Args)]
pub struct CriteriaArguments {
    /// Compare files of the same size by their contents, not by time. Both ends read them. What
    /// `longhaul verify` finds, this mends.
    #[arg(short, long, help_heading = HEADING)]
    pub checksum: bool,
    /// Leave files that are newer at the destination.
    #[arg(short, long, help_heading = HEADING)]
    pub update: bool,
    /// Make nothing that the destination does not have; only update.
    #[arg(long, alias = "ignore-non-existing", help_heading = HEADING)]
    pub existing: bool,
    /// Leave what the destination has, whatever it is.
    #[arg(long, help_heading = HEADING)]
    pub ignore_existing: bool,
    /// Take files of the same size for unchanged.
    #[arg(long, help_heading = HEADING)]
    pub size_only: bool,
    /// Copy files of the same size and time, too.
    #[arg(short = 'I', long, help_heading = HEADING)]
    pub ignore_times: bool,
    /// Take times for the same that differ by no more. A bare number is in seconds, as in rsync.
    #[arg(long, short_alias = '@', value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = longhaul_units::parse_span_or_seconds, help_heading = HEADING)]
    pub modify_window: Duration,
}

impl CriteriaArguments {
    /// As a specification has them.
    pub fn criteria(&self) -> Criteria {
        Criteria {
            checksum: self.checksum,
            update: self.update,
            existing: self.existing,
            ignore_existing: self.ignore_existing,
            size_only: self.size_only,
            ignore_times: self.ignore_times,
            window: u64::try_from(self.modify_window.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}
