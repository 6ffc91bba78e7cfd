//! A copy between two sites as a value, and the output of the command.

use longhaul_transfer::spec::ValidSpec;

use crate::protocol::Output;
use crate::site::{HostCounts, SitePath};

/// Output of the command.
pub trait Viewer {
    /// Writes to standard output.
    fn print(&self, bytes: &[u8]);

    /// Writes a line to standard error.
    fn note(&self, text: &str);

    /// Replaces the line of progress.
    fn progress(&self, text: &str);
}

/// A copy between two sites.
pub struct ClusterCopy {
    /// Directory at the source.
    pub from: SitePath,
    /// Directory at the destination.
    pub to: SitePath,
    /// Numbers of hosts that take part.
    pub hosts: HostCounts,
    /// Specification of the whole copy. Its sources and its destination are ignored.
    pub spec: ValidSpec,
    /// Selects the output.
    pub output: Output,
}
