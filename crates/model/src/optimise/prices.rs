//! Finds the bottlenecks of an optimum, and the gain of more resources.
//!
//! A price is the difference of two exact optima, not a dual value. Flows and components are
//! integers, so a first additional core may have no gain while a second one has.

use super::{Bound, Optimum, SolveError, best_rate_above};
use crate::capacity::{Capacity, FlowCapacity};
use crate::graph::{Graph, Host, Node, NodeKind};

/// A limited resource of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Constraint {
    /// The capacity of a node, as an index in [`Graph::nodes`].
    Node(usize),
    /// The cores of a host, as an index in [`Graph::hosts`].
    Cores(usize),
    /// The memory of a host, as an index in [`Graph::hosts`].
    Memory(usize),
}

/// An additional resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// One more core for a host.
    Core(usize),
    /// One GiB more memory for the blocks of a host.
    Memory(usize),
    /// One more component of a class: a disk, a NIC.
    Member(usize),
    /// One more flow in each member of a node: a stream, a thread.
    Flow(usize),
    /// 1 Gbit/s more for a link, a NIC or a path.
    Gigabit(usize),
    /// Half the loss of a path.
    HalfLoss(usize),
    /// Half the round-trip time of a path.
    HalfRtt(usize),
}

/// The gain of a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// The change.
    pub change: Change,
    /// Additional source bytes per second, at least 0.
    pub gain: f64,
}

/// 1 Gbit/s in bytes per second.
const GIGABIT: f64 = 125e6;

/// 1 GiB in bytes.
const GIBIBYTE: f64 = 1_073_741_824.0;

/// Gains below this share of the rate are within the solver's tolerance.
const NOTABLE: f64 = 1e-4;

/// Utilisation above which a node or a host may be a bottleneck.
const BUSY: f64 = 0.999;

/// Number of members of a node whose limit is removed. No graph needs more.
const PLENTY: u32 = 10_000;

/// Total flows of such a node if another node has the same flows, because that node's capacity is
/// tabulated over them.
const PLENTY_OF_FLOWS: u32 = 4096;

/// Returns the graph with a change.
pub fn changed(graph: &Graph, change: Change) -> Graph {
    let mut graph = graph.clone();
    match change {
        Change::Core(host) => graph.hosts[host].cores += 1.0,
        Change::Memory(host) => graph.hosts[host].memory += GIBIBYTE,
        Change::Member(node) => graph.nodes[node].members += 1,
        Change::Flow(node) => graph.nodes[node].most_flows += 1,
        Change::Gigabit(node) => match &mut graph.nodes[node].capacity {
            Capacity::Flows(FlowCapacity::Constant { rate }) => *rate += GIGABIT,
            Capacity::Path(path) => path.path += GIGABIT,
            Capacity::Flows(_) => {}
        },
        Change::HalfLoss(node) => {
            if let Capacity::Path(path) = &mut graph.nodes[node].capacity {
                path.loss /= 2.0;
            }
        }
        Change::HalfRtt(node) => {
            if let Capacity::Path(path) = &mut graph.nodes[node].capacity {
                path.rtt /= 2;
            }
        }
    }
    graph
}

/// Returns the changes that apply to a graph.
pub fn changes(graph: &Graph) -> Vec<Change> {
    let mut changes = Vec::new();
    for (at, host) in graph.hosts.iter().enumerate() {
        if host.cores.is_finite() {
            changes.push(Change::Core(at));
        }
        if host.memory.is_finite() {
            changes.push(Change::Memory(at));
        }
    }
    for (at, node) in graph
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.is_logical())
    {
        if matches!(node.kind, NodeKind::Disk | NodeKind::Nic) {
            changes.push(Change::Member(at));
        }
        // The flows of such nodes follow from those of other nodes.
        if node.flows_of.is_empty() {
            changes.push(Change::Flow(at));
        }
        match &node.capacity {
            Capacity::Path(path) => {
                changes.extend([Change::Gigabit(at), Change::HalfRtt(at)]);
                if path.loss > 0.0 {
                    changes.push(Change::HalfLoss(at));
                }
            }
            Capacity::Flows(FlowCapacity::Constant { .. })
                if matches!(node.kind, NodeKind::Nic | NodeKind::Path) =>
            {
                changes.push(Change::Gigabit(at));
            }
            Capacity::Flows(_) => {}
        }
    }
    changes
}

/// Returns the gain of each single change, the largest first. Includes changes without a gain.
///
/// # Errors
///
/// The same as for [`super::best_rate`].
pub fn prices(graph: &Graph, rate: f64, bound: Bound) -> Result<Vec<Price>, SolveError> {
    let priced = changes(graph).into_iter().map(|change| {
        let gain = gain(&changed(graph, change), rate, bound)?;
        Ok(Price { change, gain })
    });
    let mut prices = priced.collect::<Result<Vec<Price>, SolveError>>()?;
    prices.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.change.cmp(&b.change)));
    Ok(prices)
}

/// Returns the rate of a graph beyond `rate`. Infinite if nothing limits it.
fn gain(graph: &Graph, rate: f64, bound: Bound) -> Result<f64, SolveError> {
    match best_rate_above(graph, rate * (1.0 + NOTABLE), bound) {
        Ok(Some(with)) => Ok(with - rate),
        Ok(None) => Ok(0.0),
        Err(SolveError::Unlimited) => Ok(f64::INFINITY),
        Err(error) => Err(error),
    }
}

/// Returns the bottlenecks of an optimum. If all constraints of one set are removed, the rate
/// rises. If no single constraint is enough, several limit together and form one set.
///
/// # Errors
///
/// The same as for [`super::best_rate`].
pub fn binding(
    graph: &Graph,
    optimum: &Optimum,
    bound: Bound,
) -> Result<Vec<Vec<Constraint>>, SolveError> {
    let candidates = candidates(graph, optimum);
    let helps = |constraints: &[Constraint]| {
        let relaxed = constraints.iter().fold(graph.clone(), without);
        Ok::<bool, SolveError>(gain(&relaxed, optimum.rate, bound)? > 0.0)
    };
    let mut alone = Vec::new();
    for &candidate in &candidates {
        if helps(&[candidate])? {
            alone.push(vec![candidate]);
        }
    }
    if !alone.is_empty() || !helps(&candidates)? {
        return Ok(alone);
    }
    // Removes all constraints that are not needed. The result is a minimal set, but may not be the
    // only one.
    let mut together = candidates;
    let mut at = 0;
    while at < together.len() {
        let mut fewer = together.clone();
        fewer.remove(at);
        if helps(&fewer)? {
            together = fewer;
        } else {
            at += 1;
        }
    }
    Ok(vec![together])
}

/// Returns the constraints that are, or may be, fully used.
fn candidates(graph: &Graph, optimum: &Optimum) -> Vec<Constraint> {
    let mut candidates = Vec::new();
    for (at, used) in optimum.nodes.iter().enumerate() {
        let by_cores = used.cpu >= f64::from(used.flows()) * BUSY && used.cpu > 0.0;
        if used.utilisation >= BUSY || by_cores {
            candidates.push(Constraint::Node(at));
        }
    }
    for (at, host) in graph.hosts.iter().enumerate() {
        let of_host = |(node, _): &(&Node, _)| node.host == Some(at);
        let nodes = || graph.nodes.iter().zip(&optimum.nodes).filter(of_host);
        let cpu: f64 = nodes().map(|(_, used)| used.cpu).sum();
        if cpu >= host.cores * BUSY {
            candidates.push(Constraint::Cores(at));
        }
        // Memory is used in whole flows, so it can be a bottleneck without being full.
        if host.memory.is_finite() && nodes().any(|(node, _)| node.memory_per_flow > 0.0) {
            candidates.push(Constraint::Memory(at));
        }
    }
    candidates
}

/// Returns the graph without a constraint.
fn without(mut graph: Graph, constraint: &Constraint) -> Graph {
    match *constraint {
        Constraint::Node(node) => {
            let kind = graph.nodes[node].kind;
            relax(&mut graph, node);
            let unlimited = || Capacity::Flows(FlowCapacity::Unlimited);
            for codec in graph.parts.iter_mut().flat_map(|part| &mut part.codecs) {
                match kind {
                    NodeKind::Compress => codec.compress = unlimited(),
                    NodeKind::Decompress => codec.decompress = unlimited(),
                    _ => {}
                }
            }
        }
        Constraint::Cores(host) => relax_host(&mut graph.hosts[host], true),
        Constraint::Memory(host) => relax_host(&mut graph.hosts[host], false),
    }
    graph
}

fn relax(graph: &mut Graph, node: usize) {
    let is_shared = graph.nodes.iter().any(|it| it.flows_of.contains(&node));
    let node = &mut graph.nodes[node];
    node.capacity = Capacity::Flows(FlowCapacity::Unlimited);
    node.seconds_per_file = 0.0;
    node.memory_per_flow = 0.0;
    if node.flows_of.is_empty() {
        // The cores of its flows are also limits.
        let shared = (PLENTY_OF_FLOWS / node.most_flows).max(node.members);
        node.members = if is_shared { shared } else { PLENTY };
        node.same_flows = false;
    }
}

fn relax_host(host: &mut Host, cores: bool) {
    if cores {
        host.cores = f64::INFINITY;
    } else {
        host.memory = f64::INFINITY;
    }
}
