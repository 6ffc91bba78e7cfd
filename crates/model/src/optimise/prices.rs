//! What limits an optimum, and what more of a resource would give.
//!
//! A price is the difference of two exact optima, not a dual value: flows and components are whole
//! numbers, and the first further core may give nothing where the second one does.

use super::{Bound, Optimum, SolveError, best_rate_above};
use crate::capacity::{Capacity, FlowCapacity};
use crate::graph::{Graph, Host, Node, NodeKind};

/// Something that a graph has a bounded amount of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Constraint {
    /// The capacity of a node, as in [`Graph::nodes`].
    Node(usize),
    /// The cores of a host, as in [`Graph::hosts`].
    Cores(usize),
    /// The memory of a host.
    Memory(usize),
}

/// More of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// One more core for a host.
    Core(usize),
    /// One GiB more of memory for the blocks of a host.
    Memory(usize),
    /// One more component of a class: a disk, a NIC.
    Member(usize),
    /// One more flow in each member of a node: a stream, a thread.
    Flow(usize),
    /// 1 Gbit/s more for a link, a NIC or a path.
    Gigabit(usize),
    /// Half the loss of a path.
    HalfLoss(usize),
    /// Half the round trip of a path.
    HalfRtt(usize),
}

/// What a change would give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// The change.
    pub change: Change,
    /// Bytes of the source per second more, 0 or more.
    pub gain: f64,
}

/// 1 Gbit/s in bytes per second.
const GIGABIT: f64 = 125e6;

/// 1 GiB.
const GIBIBYTE: f64 = 1_073_741_824.0;

/// A gain below this share of the rate is the solver's tolerance.
const NOTABLE: f64 = 1e-4;

/// A node or host is a candidate for what limits a transfer where it is busy for this share.
const BUSY: f64 = 0.999;

/// Members that a node without limit has: more than any graph needs.
const PLENTY: u32 = 10_000;

/// Flows of all members of such a node where another one has the same flows: its capacity is
/// tabulated over them.
const PLENTY_OF_FLOWS: u32 = 4096;

/// The graph with a change.
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

/// The changes that mean something for a graph.
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
        // Nodes with the flows of others have as many as those.
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

/// What each change by itself would give, the largest gain first; those without gain are there too.
///
/// # Errors
///
/// As [`super::best_rate`].
pub fn prices(graph: &Graph, rate: f64, bound: Bound) -> Result<Vec<Price>, SolveError> {
    let priced = changes(graph).into_iter().map(|change| {
        let gain = gain(&changed(graph, change), rate, bound)?;
        Ok(Price { change, gain })
    });
    let mut prices = priced.collect::<Result<Vec<Price>, SolveError>>()?;
    prices.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.change.cmp(&b.change)));
    Ok(prices)
}

/// What a graph carries beyond `rate`; infinite where nothing limits it any more.
fn gain(graph: &Graph, rate: f64, bound: Bound) -> Result<f64, SolveError> {
    match best_rate_above(graph, rate * (1.0 + NOTABLE), bound) {
        Ok(Some(with)) => Ok(with - rate),
        Ok(None) => Ok(0.0),
        Err(SolveError::Unlimited) => Ok(f64::INFINITY),
        Err(error) => Err(error),
    }
}

/// What limits an optimum. Each set by itself is enough: without all of a set's constraints the
/// rate would be higher. Where no single one is, several limit together, and are named together.
///
/// # Errors
///
/// As [`super::best_rate`].
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
    // Leave out whatever is not needed: what remains is a smallest set, if not the only one.
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

/// What is fully used, or may be.
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
        // Memory binds by whole flows: it need not be full.
        if host.memory.is_finite() && nodes().any(|(node, _)| node.memory_per_flow > 0.0) {
            candidates.push(Constraint::Memory(at));
        }
    }
    candidates
}

/// The graph without a constraint.
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
        // Its flows' cores bind as well.
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
