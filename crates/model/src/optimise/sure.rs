//! Adds streams for the guaranteed windows. A graph predicts with the window that a stream is
//! expected to have. If kernels allow less, the fewest streams by that prediction would be too few,
//! while further streams cost nothing in the model.

use super::{Graph, NodeUse, Optimum};
use crate::capacity::{Capacity, PathCapacity};
use crate::graph::Node;

/// Relative difference below which rates are equal.
const SAME_RATE: f64 = 1e-5;

/// Gives the paths of an optimum enough streams to carry its rate with the guaranteed windows,
/// within their limits. Does not change a path whose streams belong to other nodes, too.
pub(super) fn add_streams(graph: &Graph, optimum: &mut Optimum) {
    for (at, used) in optimum.nodes.iter_mut().enumerate() {
        let node = &graph.nodes[at];
        let Some(path) = unsure(node).filter(|_| !is_linked(graph, at)) else {
            continue;
        };
        let Some((flows, carried)) = carried(path, used) else {
            continue;
        };
        let sure = path.surely();
        let enough = |flows: &u32| sure.at(*flows) >= carried;
        let flows_now = (flows..=node.most_flows).find(enough);
        let flows_now = flows_now.unwrap_or(node.most_flows);
        used.utilisation *= path.at(flows) / path.at(flows_now);
        for (each, members) in &mut used.members {
            optimum.flows += u64::from(flows_now - *each) * u64::from(*members);
            *each = flows_now;
        }
    }
}

/// Returns the graph with the guaranteed windows for those paths whose streams carry the optimum's
/// rate with them. The optimum is also an optimum of this graph.
pub fn with_least_windows(graph: &Graph, optimum: &Optimum) -> Graph {
    let mut sure = graph.clone();
    for (node, used) in sure.nodes.iter_mut().zip(&optimum.nodes) {
        let Some(path) = unsure(node) else {
            continue;
        };
        let least = path.surely();
        if carried(path, used).is_some_and(|(flows, carried)| least.at(flows) >= carried) {
            node.capacity = Capacity::Path(least);
        }
    }
    sure
}

/// Returns the path of a node whose guaranteed window is less than the expected one.
fn unsure(node: &Node) -> Option<&PathCapacity> {
    match &node.capacity {
        Capacity::Path(path) if path.window.least < path.window.likely => Some(path),
        _ => None,
    }
}

/// Returns the number of streams of each member and the rate, if all members have the same number.
fn carried(path: &PathCapacity, used: &NodeUse) -> Option<(u32, f64)> {
    let &[(flows, _)] = used.members.as_slice() else {
        return None;
    };
    let carried = path.at(flows) * used.utilisation * (1.0 - SAME_RATE);
    Some((flows, carried))
}

/// True if the number of flows is linked to other nodes, to memory, or between members.
fn is_linked(graph: &Graph, at: usize) -> bool {
    let node = &graph.nodes[at];
    let has_others = |other: &Node| other.flows_of.contains(&at);
    !node.flows_of.is_empty()
        || node.memory_per_flow > 0.0
        || node.same_flows && node.members > 1
        || graph.nodes.iter().any(has_others)
        || graph.tied.iter().any(|group| group.contains(&at))
}
