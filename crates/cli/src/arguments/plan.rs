//! What `plan` takes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use longhaul_model::policy::Policy;
use longhaul_units::{BitRate, ByteCount};

use super::commands::FilterEnd;
use super::probe::positive_rate;

/// What to plan, and what to make of it.
#[derive(Clone, Debug, Args)]
pub struct PlanArguments {
    /// Sources and a destination, as `cp` takes them. Sources on this host are looked at, for two
    /// seconds at most.
    #[arg(
        value_name = "SRC... DST",
        required_unless_present = "graph",
        conflicts_with = "graph"
    )]
    pub paths: Vec<String>,
    /// A graph of the transfer instead, in TOML or JSON (docs/graph.md); - is standard input.
    #[arg(long, value_name = "FILE")]
    pub graph: Option<PathBuf>,
    /// Records of the path, as `longhaul probe --records` writes them; the last one counts.
    #[arg(long, value_name = "FILE", conflicts_with = "graph")]
    pub probe: Option<PathBuf>,
    /// The path's round trip.
    #[arg(long, value_name = "TIME", value_parser = longhaul_units::parse_span, conflicts_with = "graph")]
    pub rtt: Option<Duration>,
    /// The path's rate on the line, of which headers take 6 %.
    #[arg(long, value_name = "RATE", conflicts_with = "graph", value_parser = positive_rate)]
    pub rate: Option<BitRate>,
    /// The share of packets that the path loses at random.
    #[arg(long, value_name = "SHARE", value_parser = longhaul_units::parse_share, conflicts_with = "graph")]
    pub loss: Option<f64>,
    /// Bytes that one stream can have in flight [default: what this host's kernel allows]
    #[arg(long, value_name = "SIZE", conflicts_with = "graph")]
    pub window: Option<ByteCount>,
    /// The sending kernel's congestion control [default: the probe's, else cubic]
    #[arg(long, value_name = "NAME", conflicts_with = "graph")]
    pub congestion: Option<String>,
    /// The dataset's bytes, where it is not on this host.
    #[arg(long, value_name = "SIZE", conflicts_with = "graph")]
    pub bytes: Option<ByteCount>,
    /// The dataset's files, where it is not on this host [default: 1]
    #[arg(long, value_name = "N", requires = "bytes")]
    pub files: Option<u64>,
    /// The sending host's profile, as `longhaul bench` makes it.
    #[arg(long, value_name = "FILE", conflicts_with = "graph")]
    pub source_profile: Option<PathBuf>,
    /// The receiving host's profile.
    #[arg(long, value_name = "FILE", conflicts_with = "graph")]
    pub destination_profile: Option<PathBuf>,
    /// Have files go through a command, as `cp --filter-cmd` does. It is not run here.
    #[arg(long, value_name = "CMD", conflicts_with = "graph")]
    pub filter_cmd: Option<OsString>,
    /// The end where that runs.
    #[arg(
        long,
        value_name = "END",
        default_value = "destination",
        value_enum,
        requires = "filter_cmd"
    )]
    pub filter_at: FilterEnd,
    /// Commands that run at a time, at most 64.
    #[arg(long, value_name = "N", default_value = "4", requires = "filter_cmd", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub filter_flows: u32,
    /// What one of them reads [default: no limit, since it is not known]
    #[arg(long, value_name = "RATE", requires = "filter_cmd", value_parser = positive_rate)]
    pub filter_rate: Option<BitRate>,
    /// Plan for other hardware: nic, rate, rtt, loss, window, cores, memory, disks, nics; and of
    /// one host or node, cores.HOST, memory.HOST, members.NODE, flows.NODE.
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub what_if: Option<String>,
    /// Whose choice of flows: model, bdp, globus, fixed, gradient; several are compared, `all` is
    /// all of them. What limits, and prices, are always those of the model.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "model", value_parser = parse_policy)]
    pub policy: Vec<PolicyArgument>,
    /// Draw the plan: an SVG picture, or a page with it if the name ends with .html.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Write the graph that was solved, in TOML, or JSON where the name ends with .json.
    #[arg(long, value_name = "FILE")]
    pub write_graph: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A policy, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyArgument {
    /// One.
    One(Policy),
    /// All of them.
    All,
}

impl PlanArguments {
    /// The policies, each once, in the order of tables.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_more_than_zero() {
        assert!(positive_rate("1Mbit/s").is_ok());
        for text in ["0", "0Mbit/s", "-1Mbit/s", "nan", "inf"] {
            assert!(positive_rate(text).is_err(), "{text}");
        }
    }
}
