//! Arguments of `plan`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use longhaul_model::policy::Policy;
use longhaul_proto::options::FilterAt;
use longhaul_transfer::quantities;
use longhaul_units::{BitRate, ByteCount};

use super::choices::one_of;
use super::commands::FILTER_ENDS;

/// Arguments of `plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArguments {
    /// Sources and a destination, as for `cp`. Sources on this host are examined for at
    /// most two seconds.
    #[arg(
        value_name = "SRC... DST",
        required_unless_present = "graph",
        conflicts_with = "graph"
    )]
    pub paths: Vec<String>,
    /// Plan this graph of a transfer instead, in TOML or JSON (docs/graph.md); - is standard input.
    #[arg(long, value_name = "FILE")]
    pub graph: Option<PathBuf>,
    /// Records of the path written by `longhaul probe --records`. The last successful one is used.
    #[arg(long, value_name = "FILE", conflicts_with = "graph")]
    pub probe: Option<PathBuf>,
    /// Round-trip time of the path.
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span, conflicts_with = "graph")]
    pub rtt: Option<Duration>,
    /// Line rate of the path, of which headers take 6 %.
    #[arg(long, value_name = "RATE", conflicts_with = "graph", value_parser = quantities::positive_rate)]
    pub rate: Option<BitRate>,
    /// Fraction of packets that the path loses at random.
    #[arg(long, value_name = "SHARE", value_parser = longhaul_units::parse_share, conflicts_with = "graph")]
    pub loss: Option<f64>,
    /// Maximum number of bytes in flight per stream [default: the limit of this host's kernel]
    #[arg(long, value_name = "SIZE", conflicts_with = "graph")]
    pub window: Option<ByteCount>,
    /// Congestion control of the sending kernel [default: that of the probe, else cubic]
    #[arg(long, value_name = "NAME", conflicts_with = "graph")]
    pub congestion: Option<String>,
    /// Size of the dataset in bytes, if it is not on this host.
    #[arg(long, value_name = "SIZE", conflicts_with = "graph", value_parser = quantities::positive_size)]
    pub bytes: Option<ByteCount>,
    /// Number of files of the dataset, if it is not on this host [default: 1]
    #[arg(long, value_name = "N", requires = "bytes", value_parser = clap::value_parser!(u64).range(1..))]
    pub files: Option<u64>,
    /// Profile of the sending host, written by `longhaul bench`.
    #[arg(long, value_name = "FILE", conflicts_with = "graph")]
    pub source_profile: Option<PathBuf>,
    /// Profile of the receiving host, written by `longhaul bench`.
    #[arg(long, value_name = "FILE", conflicts_with = "graph")]
    pub destination_profile: Option<PathBuf>,
    /// Plan for files that pass through this command, as with `cp --filter-cmd`. The
    /// command is not run.
    #[arg(long, value_name = "CMD", conflicts_with = "graph")]
    pub filter_cmd: Option<OsString>,
    /// End where the filter command runs.
    #[arg(
        long,
        value_name = "END",
        default_value = "destination",
        value_parser = one_of(&FILTER_ENDS),
        requires = "filter_cmd"
    )]
    pub filter_at: FilterAt,
    /// Maximum number of filter commands that run at a time, up to 64.
    #[arg(long, value_name = "N", default_value = "4", requires = "filter_cmd", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub filter_flows: u32,
    /// Input rate of one filter command [default: unlimited, because it is unknown]
    #[arg(long, value_name = "RATE", requires = "filter_cmd", value_parser = quantities::positive_rate)]
    pub filter_rate: Option<BitRate>,
    /// Plan for other hardware: nic, rate, rtt, loss, window, cores, memory, disks, nics;
    /// for one host or node: cores.HOST, memory.HOST, members.NODE, flows.NODE.
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub what_if: Option<String>,
    /// Policies that choose the flows: model, bdp, globus, fixed, gradient; several are compared,
    /// and `all` means all of them. Limits and improvements are always those of the model.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "model", value_parser = parse_policy)]
    pub policy: Vec<PolicyArgument>,
    /// Write a drawing of the plan to FILE: SVG, or a page that contains it if the name
    /// ends with .html.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Write the solved graph to FILE, in TOML, or in JSON if the name ends with .json.
    #[arg(long, value_name = "FILE")]
    pub write_graph: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A policy, or all policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyArgument {
    /// One policy.
    One(Policy),
    /// All policies.
    All,
}

impl PlanArguments {
    /// Returns the selected policies, each once, in the order of tables.
    pub fn policies(&self) -> Vec<Policy> {
        let wanted = |policy: &Policy| {
            let one = PolicyArgument::One(*policy);
            self.policy
                .iter()
                .any(|it| *it == PolicyArgument::All || *it == one)
        };
        Policy::ALL.into_iter().filter(wanted).collect()
    }
}

fn parse_policy(text: &str) -> Result<PolicyArgument, String> {
    match text {
        "all" => Ok(PolicyArgument::All),
        name => name.parse().map(PolicyArgument::One),
    }
}
