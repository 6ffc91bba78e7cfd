//! Published rules for the numbers of flows, beside the model's, so that anyone can compare.
//!
//! A [`Policy`] says how many flows each node of a graph gets; what that gives is the optimum of
//! the graph with these numbers ([`outcome`]).
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

/// Who chooses the numbers of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The exact optimum; of a copy that runs, what its controllers find.
    #[default]
    Model,
    /// Streams by the BDP rule (paper 000, Eq. 1), one flow in all other layers: the rule says
    /// nothing of them.
    Bdp,
    /// What Globus Online did (paper 004, section 6.1.2).
    Globus,
    /// Four flows in each layer, as `globus-url-copy -p 4 -cc 4` has them, whatever is moved.
    Fixed,
    /// An online search for the number of flows of all layers together, with Falcon's utility.
    Gradient,
}

impl Policy {
    /// All of them, in the order of tables.
    pub const ALL: [Policy; 5] = [
        Policy::Model,
        Policy::Bdp,
        Policy::Globus,
        Policy::Fixed,
        Policy::Gradient,
    ];

    /// Its name in options and tables.
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

/// Flows of a layer with the fixed knobs.
pub const FIXED_FLOWS: u32 = 4;

/// Samples after which the climber's place is taken: Falcon's transfers begin to be steady within
/// some ten of them.
const CLIMBER_SAMPLES: u32 = 60;

/// What a policy's numbers of flows give. Codecs are chosen by the model in all of them, so that
/// flows alone are compared; what a graph does not allow is brought into its range.
///
/// # Errors
///
/// Where the graph is wrong or has no optimum.
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

/// Flows that a rule gives to all members of a node together.
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

/// The graph in which each node has that many flows, of all of its members together: as many
/// members as there are flows, at most, and the flows spread over them.
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

/// The graph with the number of flows at which a climber stands after its samples.
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

/// GridFTP's three numbers, as its manual has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridFtpOptions {
    /// Files that are moved in parallel (`-cc`).
    pub concurrency: u32,
    /// Streams of one file (`-p`).
    pub parallelism: u32,
    /// Requests that are outstanding at once (`-pp`).
    pub pipelining: u32,
}

impl GridFtpOptions {
    /// The streams of all files together.
    pub fn streams(self) -> u32 {
        self.concurrency * self.parallelism
    }
}

/// 50 MB: below this mean, many files count as small.
const SMALL_FILE: f64 = 50e6;

/// 250 MB: files above count as large.
const LARGE_FILE: f64 = 250e6;

/// More files than this count as many.
const MANY_FILES: f64 = 100.0;

/// What Globus Online chooses for a dataset of `files` files with a mean of `mean_bytes` (paper
/// 004, section 6.1.2).
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

/// Streams of the BDP rule: as many as it takes that their windows hold what is on its way (paper
/// 000, Eq. 1). `path` in bytes per second, `seconds` the round trip, `window` in bytes. 1 or more.
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
    fn globus_goes_by_the_number_and_the_size_of_files() {
        let numbers = |files, bytes| {
            let it = globus(files, bytes);
            (it.concurrency, it.parallelism, it.pipelining)
        };
        assert_eq!(numbers(10_000.0, 1e6), (2, 2, 20));
        assert_eq!(numbers(1000.0, 10e6), (2, 2, 20));
        assert_eq!(numbers(100.0, 100e6), (2, 4, 10));
        assert_eq!(numbers(10.0, 1e9), (2, 8, 5));
        // A hundred small ones are not more than a hundred.
        assert_eq!(numbers(100.0, 1e6), (2, 4, 10));
        assert_eq!(globus(10.0, 1e9).streams(), 16);
    }

    #[test]
    fn streams_hold_a_product() {
        // 1 Gbit/s at 100 ms: 11.8 MB in windows of 2.9 MB.
        assert_eq!(streams_for_bdp(0.9415e9 / 8.0, 0.1, 2.9e6), 5);
        assert_eq!(streams_for_bdp(1e6, 0.0, 2.9e6), 1);
        assert_eq!(streams_for_bdp(1e6, 0.1, f64::INFINITY), 1);
    }
}
