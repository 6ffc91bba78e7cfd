//! Finds the next best choices. Any other choice differs from the optimum in at least one node or
//! codec. So the runner-up is among the best choices that differ in one given node or codec. For a
//! node with several members, choices with other largest or smallest numbers of flows, or with
//! fewer members, are considered.

use crate::graph::Graph;
use crate::optimise::prices::{Constraint, binding};
use crate::optimise::{Bound, Optimum, best_rate_near, solve, with_least_windows};

/// The difference between a choice and the optimum.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// Each member of a node has at most this number of flows.
    FewerFlows {
        /// Index in [`Graph::nodes`].
        node: usize,
        /// Maximum number of flows.
        most: u32,
    },
    /// Each used member of a node has at least this number of flows.
    MoreFlows {
        /// Index in [`Graph::nodes`].
        node: usize,
        /// Minimum number of flows.
        least: u32,
    },
    /// At most this number of members of a node are used.
    FewerMembers {
        /// Index in [`Graph::nodes`].
        node: usize,
        /// Maximum number of members.
        most: u32,
    },
    /// A part is moved without a codec that the optimum uses.
    WithoutCodec {
        /// Index in [`Graph::parts`].
        part: usize,
        /// Name of the codec.
        codec: String,
    },
}

/// A choice other than the optimum.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// Difference from the optimum.
    pub difference: Difference,
    /// Rate in source bytes per second.
    pub rate: f64,
    /// CPU seconds per second. `None` if the rate alone decides.
    pub cpu: Option<f64>,
    /// Total number of flows in all nodes. `None` if the rate alone decides.
    pub flows: Option<u64>,
    /// Bottlenecks. Only computed for the first alternative of a list, else empty.
    pub binding: Vec<Vec<Constraint>>,
}

/// Relative difference below which two rates are equal.
const SAME_RATE: f64 = 1e-5;

/// Relative difference below which two CPU times are equal.
const SAME_CPU: f64 = 2e-3;

/// Maximum number of nodes of branch and bound for one alternative. It need not be exactly optimal,
/// and there are many alternatives.
const NODES: u64 = 200;

/// Returns all alternatives, the best first. Omits those that cannot be solved. CPU and flows are
/// computed only for the best; the others lose by their rate.
pub fn alternatives(graph: &Graph, optimum: &Optimum, bound: Bound) -> Vec<Alternative> {
    let bound = Bound {
        nodes: bound.nodes.min(NODES),
        ..bound
    };
    // The streams were chosen by the least windows.
    let graph = &with_least_windows(graph, optimum);
    let mut rates: Vec<(f64, Difference)> = differences(graph, optimum)
        .into_iter()
        .filter_map(|difference| {
            let (rate, _) =
                best_rate_near(&restricted(graph, &difference), optimum.rate, bound).ok()?;
            Some((rate, difference))
        })
        .collect();
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let best = rates.first().map_or(0.0, |it| it.0);
    let mut found: Vec<Alternative> = rates
        .into_iter()
        .map(|(rate, difference)| {
            let counts = rate >= best * (1.0 - SAME_RATE);
            let other = restricted(graph, &difference);
            let solved = if counts {
                solve(&other, bound).ok()
            } else {
                None
            };
            Alternative {
                difference,
                rate: solved.as_ref().map_or(rate, |it| it.rate),
                cpu: solved.as_ref().map(|it| it.cpu),
                flows: solved.as_ref().map(|it| it.flows),
                binding: Vec::new(),
            }
        })
        .collect();
    found.sort_by(order);
    if let Some(first) = found.first_mut()
        && first.rate < optimum.rate * (1.0 - SAME_RATE)
    {
        let other = restricted(graph, &first.difference);
        let solved = solve(&other, bound);
        let limits = solved.and_then(|best| binding(&other, &best, bound));
        first.binding = limits.unwrap_or_default();
    }
    found
}

/// Orders alternatives by rate, then by CPU, then by number of flows. Values are rounded to steps
/// so that the order is transitive.
fn order(a: &Alternative, b: &Alternative) -> std::cmp::Ordering {
    let step = |value: f64, share: f64| (value.max(f64::MIN_POSITIVE).ln() / share).round();
    let cpu = |it: &Alternative| it.cpu.map_or(f64::INFINITY, |cpu| step(cpu, SAME_CPU));
    let flows = |it: &Alternative| it.flows.unwrap_or(u64::MAX);
    let rate = step(b.rate, SAME_RATE).total_cmp(&step(a.rate, SAME_RATE));
    rate.then_with(|| cpu(a).total_cmp(&cpu(b)))
        .then_with(|| flows(a).cmp(&flows(b)))
}

fn differences(graph: &Graph, optimum: &Optimum) -> Vec<Difference> {
    let mut all = Vec::new();
    for (at, (node, used)) in graph.nodes.iter().zip(&optimum.nodes).enumerate() {
        if node.is_logical() || !node.flows_of.is_empty() {
            continue;
        }
        let flows = used.members.iter().map(|&(flows, _)| flows);
        let (Some(least), Some(most)) = (flows.clone().min(), flows.max()) else {
            continue;
        };
        if most > node.least_flows {
            all.push(Difference::FewerFlows {
                node: at,
                most: most - 1,
            });
        }
        if least < node.most_flows {
            all.push(Difference::MoreFlows {
                node: at,
                least: least + 1,
            });
        }
        let members: u32 = used.members.iter().map(|&(_, members)| members).sum();
        if members > 1 {
            all.push(Difference::FewerMembers {
                node: at,
                most: members - 1,
            });
        }
    }
    for &(commodity, _) in &optimum.codecs {
        if let Some(codec) = graph.codec_of(commodity) {
            all.push(Difference::WithoutCodec {
                part: commodity.part,
                codec: codec.name.clone(),
            });
        }
    }
    all
}

/// Returns the graph restricted to choices with a difference.
fn restricted(graph: &Graph, difference: &Difference) -> Graph {
    let mut graph = graph.clone();
    match difference {
        Difference::FewerFlows { node, most } => graph.nodes[*node].most_flows = *most,
        Difference::MoreFlows { node, least } => graph.nodes[*node].least_flows = *least,
        Difference::FewerMembers { node, most } => graph.nodes[*node].members = *most,
        Difference::WithoutCodec { part, codec } => {
            graph.parts[*part].codecs.retain(|it| it.name != *codec);
        }
    }
    graph
}
