//! Arguments for copies between clusters, and of their workers.

use std::path::PathBuf;

use clap::Args;
use longhaul_cluster::site::HostCounts;

/// Arguments for copies between clusters.
#[derive(Clone, Debug, Args)]
pub struct ClusterArguments {
    /// Copy a directory between two clusters: SRC and DST are SITE:/PATH, with sites of
    /// the file of sites. The contents of SRC become the contents of DST. Several hosts of
    /// each site take part (docs/cluster.md).
    #[arg(long, conflicts_with_all = ["lab", "detach", "through_local", "explain", "manifest", "report", "log_file", "move_away"])]
    pub cluster: bool,
    /// With --cluster: numbers of hosts that take part, as SOURCES:DESTINATIONS; `auto`
    /// takes all.
    #[arg(long, value_name = "M:N", default_value = "auto", requires = "cluster")]
    pub hosts: HostCounts,
    /// With --cluster: file of sites [default: sites.toml in the configuration directory]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub sites: Option<PathBuf>,
}

/// Arguments of `worker`.
#[derive(Clone, Debug, Args)]
pub struct WorkerArguments {
    /// Directory that the worker reads or writes.
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
}
