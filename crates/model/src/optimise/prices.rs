//! Finds the bottlenecks of an optimum, and the gain of more resources.
//!
//! A price is the difference of two exact optima, not a dual value. Flows and components are
//! integers, so a first additional core may have no gain while a second one has.

use super::{Bound, Optimum, SolveError, best_rate_above};
use crate::capacity::{Capacity, FlowCapacity, USUAL_FRAMING};
use crate::graph::{Graph, NodeKind};
use crate::response::Congestion;

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
    /// BBR as the congestion control of a path.
    Bbr(usize),
    /// Windows of twice the size for the streams of a path.
    TwiceWindow(usize),
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

/// Factor by which a constraint is relaxed to find if it limits the rate.
const RELAXED: f64 = 1.1;

/// Minimum gain of a relaxed constraint that limits the rate, as a share of the rate.
const LIMITING: f64 = 0.01;

/// Maximum number of constraints in a set that is named beside the first one.
const MOST_TOGETHER: usize = 3;

/// Maximum number of relaxed graphs that the search for sets solves.
const MOST_TRIALS: usize = 150;

/// Returns the graph with a change.
pub fn changed(graph: &Graph, change: Change) -> Graph {
    let mut graph = graph.clone();
    match change {
        Change::Core(host) => graph.hosts[host].cores += 1.0,
        Change::Memory(host) => graph.hosts[host].memory += GIBIBYTE,
        Change::Member(node) => graph.nodes[node].members += 1,
        Change::Flow(node) => graph.nodes[node].most_flows += 1,
        Change::Gigabit(node) => match &mut graph.nodes[node].capacity {
            Capacity::Flows(FlowCapacity::Constant { rate }) => *rate += GIGABIT * USUAL_FRAMING,
            Capacity::Path(path) => path.path += GIGABIT * path.framing(),
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
        Change::Bbr(node) => {
            if let Capacity::Path(path) = &mut graph.nodes[node].capacity {
                path.congestion = Congestion::Bbr;
            }
        }
        Change::TwiceWindow(node) => {
            if let Capacity::Path(path) = &mut graph.nodes[node].capacity {
                path.window = path.window.scaled(2.0);
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
                    if path.congestion.takes_loss_for_congestion() {
                        changes.push(Change::Bbr(at));
                    }
                }
                if path.window.likely.is_finite() {
                    changes.push(Change::TwiceWindow(at));
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
        // A gain that the search does not find within its limit is not advice.
        Err(SolveError::Stopped) => Ok(0.0),
        Err(error) => Err(error),
    }
}

/// Returns the bottlenecks of an optimum: the minimal sets of constraints that raise the rate by at
/// least 1 % if all of the set are relaxed by 10 %. Constraints in one set limit together. Sets
/// after the first one have at most three constraints.
///
/// # Errors
///
/// The same as for [`super::best_rate`].
pub fn binding(
    graph: &Graph,
    optimum: &Optimum,
    bound: Bound,
) -> Result<Vec<Vec<Constraint>>, SolveError> {
    let least = optimum.rate * (1.0 + LIMITING);
    let helps = |constraints: &[Constraint]| {
        let relaxed = constraints.iter().fold(graph.clone(), relaxed);
        match best_rate_above(&relaxed, least, bound) {
            Ok(found) => Ok(found.is_some()),
            Err(SolveError::Unlimited) => Ok(true),
            Err(SolveError::Stopped) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let (mut sets, mut others) = (Vec::new(), Vec::new());
    for candidate in candidates(graph, optimum) {
        if helps(&[candidate])? {
            sets.push(vec![candidate]);
        } else {
            others.push(candidate);
        }
    }
    let mut search = Sets {
        helps,
        trials: 0,
        found: Vec::new(),
    };
    search.find(&others)?;
    sets.extend(search.found);
    Ok(sets)
}

/// A search for minimal sets of constraints that limit together.
struct Sets<F> {
    helps: F,
    trials: usize,
    found: Vec<Vec<Constraint>>,
}

impl<F: Fn(&[Constraint]) -> Result<bool, SolveError>> Sets<F> {
    /// Finds the sets within `among`: one of them, then those without each of its constraints.
    fn find(&mut self, among: &[Constraint]) -> Result<(), SolveError> {
        let known = self
            .found
            .iter()
            .position(|set| set.iter().all(|it| among.contains(it)));
        let set = match known {
            Some(at) => self.found[at].clone(),
            None => {
                let Some(set) = self.minimal(among)? else {
                    return Ok(());
                };
                if self.found.is_empty() || set.len() <= MOST_TOGETHER {
                    self.found.push(set.clone());
                }
                set
            }
        };
        for constraint in &set {
            if self.trials >= MOST_TRIALS {
                return Ok(());
            }
            let without: Vec<Constraint> = among
                .iter()
                .copied()
                .filter(|it| it != constraint)
                .collect();
            self.find(&without)?;
        }
        Ok(())
    }

    /// Returns a minimal set within `among`, or `None` if all of them together do not help.
    fn minimal(&mut self, among: &[Constraint]) -> Result<Option<Vec<Constraint>>, SolveError> {
        self.trials += 1;
        if among.is_empty() || !(self.helps)(among)? {
            return Ok(None);
        }
        let mut set = among.to_vec();
        // Removes halves first, then smaller pieces.
        let mut piece = set.len().div_ceil(2);
        loop {
            let mut at = 0;
            while at < set.len() && set.len() > 1 {
                let end = (at + piece).min(set.len());
                let fewer: Vec<Constraint> = [&set[..at], &set[end..]].concat();
                self.trials += 1;
                if !fewer.is_empty() && (self.helps)(&fewer)? {
                    set = fewer;
                } else {
                    at = end;
                }
            }
            if piece == 1 {
                return Ok(Some(set));
            }
            piece = piece.div_ceil(2);
        }
    }
}

/// Returns all constraints that can limit the rate of the optimum, without unused nodes.
fn candidates(graph: &Graph, optimum: &Optimum) -> Vec<Constraint> {
    let mut candidates = Vec::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let is_used = optimum.nodes[at].rate > 0.0 || !optimum.nodes[at].members.is_empty();
        if !node.is_logical() && is_used {
            candidates.push(Constraint::Node(at));
        }
    }
    for (at, host) in graph.hosts.iter().enumerate() {
        let mut nodes = graph.nodes.iter().filter(|node| node.host == Some(at));
        if host.cores.is_finite() {
            candidates.push(Constraint::Cores(at));
        }
        if host.memory.is_finite() && nodes.any(|node| node.memory_per_flow > 0.0) {
            candidates.push(Constraint::Memory(at));
        }
    }
    candidates
}

/// Returns the graph with a relaxed constraint.
fn relaxed(mut graph: Graph, constraint: &Constraint) -> Graph {
    match *constraint {
        Constraint::Node(at) => {
            graph = graph.faster(at, RELAXED);
            // The cores of its flows are also limits.
            graph.nodes[at].cores_per_flow *= RELAXED;
        }
        Constraint::Cores(host) => graph.hosts[host].cores *= RELAXED,
        Constraint::Memory(at) => {
            // Memory is used in whole flows.
            let nodes = graph.nodes.iter().filter(|node| node.host == Some(at));
            let flow = nodes.map(|node| node.memory_per_flow).fold(0.0, f64::max);
            let host = &mut graph.hosts[at];
            host.memory = (host.memory * RELAXED).max(host.memory + flow);
        }
    }
    graph
}
