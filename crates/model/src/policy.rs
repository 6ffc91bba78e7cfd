//! Published rules for the numbers of flows, for comparison with the model.
//!
//! A [`Policy`] determines the number of flows of each node of a graph. Its result is the optimum
//! of the graph with these numbers ([`outcome`]).
//!
//! - [`gradient`]: an online hill climber

pub mod gradient;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::graph::{Graph, Node, NodeKind};
use crate::optimise::{Bound, Optimum, SolveError, best_rate, solve};

use gradient::Climber;

/// The rules that choose the numbers of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The exact optimum. In a running copy, the choice of its controllers.
    #[default]
    Model,
    /// Streams by the BDP rule (paper 000, Eq. 1), and one flow in all other layers, because the
    /// rule does not cover them.
    Bdp,
    /// The rule of Globus Online (paper 004, section 6.1.2).
    Globus,
    /// Four flows in each layer, like `globus-url-copy -p 4 -cc 4`, for any data.
    Fixed,
    /// An online search for the number of flows of all layers together, with Falcon's utility.
    Gradient,
}

impl Policy {
    /// All policies, in the order of tables.
    pub const ALL: [Policy; 5] = [
        Policy::Model,
        Policy::Bdp,
        Policy::Globus,
        Policy::Fixed,
        Policy::Gradient,
    ];

    /// Returns the name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Model => "model",
            Policy::Bdp => "bdp",
            Policy::Globus => "globus",
            Policy::Fixed => "fixed",
            Policy::Gradient => "gradient",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let known = Policy::ALL.into_iter().find(|policy| policy.name() == text);
        known.ok_or_else(|| {
            let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
            format!(
                "there is no policy \"{text}\": write one of {}",
                names.join(", ")
            )
        })
    }
}

/// Number of flows of a layer with the fixed policy.
pub const FIXED_FLOWS: u32 = 4;

/// Number of samples after which the climber's position is used. Falcon's transfers become steady
/// within some tens of samples.
const CLIMBER_SAMPLES: u32 = 60;

/// Returns the optimum of a graph with a policy's numbers of flows. The model chooses the codecs
/// for all policies, so that only flows are compared. Numbers are clamped to the ranges of the
/// graph.
///
/// # Errors
///
/// If the graph is invalid or has no optimum.
pub fn outcome(policy: Policy, graph: &Graph, bound: Bound) -> Result<Optimum, SolveError> {
    graph.check()?;
    match policy {
        Policy::Model => solve(graph, bound),
        Policy::Gradient => solve(&climbed(graph, bound)?, bound),
        _ => solve(
            &with_flows(graph, |node| flows_of(policy, graph, node)),
            bound,
        ),
    }
}

/// Returns the total number of flows that a rule assigns to all members of a node.
fn flows_of(policy: Policy, graph: &Graph, node: &Node) -> u32 {
    match policy {
        Policy::Bdp => match &node.capacity {
            Capacity::Path(path) => {
                streams_for_bdp(path.most(), path.rtt.as_secs_f64(), path.window.least)
            }
            Capacity::Flows(_) => 1,
        },
        Policy::Globus => {
            let bytes: f64 = graph.parts.iter().map(|part| part.bytes).sum();
            let files: f64 = graph.parts.iter().map(|part| part.files).sum();
            let options = globus(files, bytes / files);
            match node.kind {
                NodeKind::Path | NodeKind::Nic => options.streams(),
                _ => options.concurrency,
            }
        }
        Policy::Fixed | Policy::Model | Policy::Gradient => FIXED_FLOWS,
    }
}

/// Returns the graph with this total number of flows for each node. At most as many members as
/// flows are used, and the flows are spread over them.
fn with_flows(graph: &Graph, flows: impl Fn(&Node) -> u32) -> Graph {
    let mut fixed = graph.clone();
    for node in &mut fixed.nodes {
        if node.is_logical() || !node.flows_of.is_empty() {
            continue;
        }
        let all = flows(node).max(1);
        node.members = node.members.min(all);
        let each = all.div_ceil(node.members);
        let each = each.clamp(node.least_flows, node.most_flows);
        (node.least_flows, node.most_flows) = (each, each);
    }
    fixed
}

/// Returns the graph with the number of flows that a climber reaches after its samples.
fn climbed(graph: &Graph, bound: Bound) -> Result<Graph, SolveError> {
    let most = graph
        .nodes
        .iter()
        .map(|node| node.members.saturating_mul(node.most_flows));
    let mut climber = Climber::new(1, most.max().unwrap_or(1));
    for _ in 0..CLIMBER_SAMPLES {
        let flows = climber.flows();
        let (rate, _) = best_rate(&with_flows(graph, |_| flows), bound)?;
        climber.measured(rate, 0.0);
    }
    let flows = climber.centre();
    Ok(with_flows(graph, |_| flows))
}

/// GridFTP's three numbers, as in its manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridFtpOptions {
    /// Number of files moved in parallel (`-cc`).
    pub concurrency: u32,
    /// Number of streams of one file (`-p`).
    pub parallelism: u32,
    /// Number of outstanding requests (`-pp`).
    pub pipelining: u32,
}

impl GridFtpOptions {
    /// Returns the total number of streams.
    pub fn streams(self) -> u32 {
        self.concurrency * self.parallelism
    }
}

/// Mean size in bytes below which many files count as small: 50 MB.
const SMALL_FILE: f64 = 50e6;

/// Size in bytes above which files count as large: 250 MB.
const LARGE_FILE: f64 = 250e6;

/// Number of files above which files count as many.
const MANY_FILES: f64 = 100.0;

/// Returns the numbers that Globus Online chooses for `files` files with a mean size of
/// `mean_bytes` (paper 004, section 6.1.2).
pub fn globus(files: f64, mean_bytes: f64) -> GridFtpOptions {
    let (parallelism, pipelining) = if files > MANY_FILES && mean_bytes < SMALL_FILE {
        (2, 20)
    } else if mean_bytes > LARGE_FILE {
        (8, 5)
    } else {
        (4, 10)
    };
    GridFtpOptions {
        concurrency: 2,
        parallelism,
        pipelining,
    }
}

/// Returns the number of streams by the BDP rule, at least 1: their windows hold the data in flight
/// (paper 000, Eq. 1). `path` is in bytes per second, `seconds` is the round-trip time, and
/// `window` is in bytes.
pub fn streams_for_bdp(path: f64, seconds: f64, window: f64) -> u32 {
    let streams = (path * seconds / window).ceil();
    if streams.is_nan() {
        return 1;
    }
    streams.clamp(1.0, f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_paper_000_needs_its_number_of_streams() {
        // Section 4.5: 10 Gbit/s at 52 ms need 62 MiB: 16 streams of 4 MiB or 4 of 16 MiB.
        let streams = |path, mebibytes| streams_for_bdp(path, 52e-3, mebibytes * 1048576.0);
        assert_eq!(streams(1.25e9, 4.0), 16);
        assert_eq!(streams(1.25e9, 16.0), 4);
        assert_eq!(streams(0.0, 0.0), 1);
    }

    #[test]
    fn globus_depends_on_the_number_and_size_of_files() {
        let numbers = |files, bytes| {
            let it = globus(files, bytes);
            (it.concurrency, it.parallelism, it.pipelining)
        };
        assert_eq!(numbers(10_000.0, 1e6), (2, 2, 20));
        assert_eq!(numbers(1000.0, 10e6), (2, 2, 20));
        assert_eq!(numbers(100.0, 100e6), (2, 4, 10));
        assert_eq!(numbers(10.0, 1e9), (2, 8, 5));
        // A hundred small files are not more than a hundred.
        assert_eq!(numbers(100.0, 1e6), (2, 4, 10));
        assert_eq!(globus(10.0, 1e9).streams(), 16);
    }

    #[test]
    fn streams_hold_a_bandwidth_delay_product() {
        // 1 Gbit/s at 100 ms: 11.8 MB in windows of 2.9 MB.
        assert_eq!(streams_for_bdp(0.9415e9 / 8.0, 0.1, 2.9e6), 5);
        assert_eq!(streams_for_bdp(1e6, 0.0, 2.9e6), 1);
        assert_eq!(streams_for_bdp(1e6, 0.1, f64::INFINITY), 1);
    }
}
