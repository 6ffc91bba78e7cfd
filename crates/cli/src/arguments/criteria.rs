//! Arguments of `cp` that decide when an existing file is copied.

use std::time::Duration;

use clap::Args;
use longhaul_proto::criteria::Criteria;
use longhaul_transfer::quantities;

const HEADING: &str = "Conditions for copying";

/// Arguments that decide when an existing file is copied, as in rsync.
#[derive(Clone, Debug, Args)]
pub struct CriteriaArguments {
    /// Compare files of the same size by content, not by time. Both ends read them. This
    /// corrects the differences that `longhaul verify` finds.
    #[arg(short, long, help_heading = HEADING)]
    pub checksum: bool,
    /// Do not replace files that are newer at the destination.
    #[arg(short, long, help_heading = HEADING)]
    pub update: bool,
    /// Copy only entries that exist at the destination; create no new ones.
    #[arg(long, alias = "ignore-non-existing", help_heading = HEADING)]
    pub existing: bool,
    /// Do not replace entries that exist at the destination, of any kind.
    #[arg(long, help_heading = HEADING)]
    pub ignore_existing: bool,
    /// Treat files of the same size as unchanged.
    #[arg(long, help_heading = HEADING)]
    pub size_only: bool,
    /// Also copy files of the same size and time.
    #[arg(short = 'I', long, help_heading = HEADING)]
    pub ignore_times: bool,
    /// Treat times as equal if they differ by no more than TIME. A bare number is in
    /// seconds, as in rsync.
    #[arg(long, short_alias = '@', value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = quantities::window, help_heading = HEADING)]
    pub modify_window: Duration,
}

impl CriteriaArguments {
    /// Returns the criteria of a specification.
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
