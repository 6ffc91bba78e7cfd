//! The next best choices. Any other choice differs from the optimum in at least one node or codec,
//! so that the best of those that differ in a given one, for each of them, has the runner-up among
//! them; where a node has several members, the ones with other largest or least numbers of flows,
//! or fewer members, are looked at.

use crate::graph::Graph;
use crate::optimise::prices::{Constraint, binding};
use crate::optimise::{Bound, Optimum, best_rate_near, solve, with_least_windows};

/// In what a choice differs from the optimum.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// Each member of a node has at most that many flows.
    FewerFlows {
        /// Its place in [`Graph::nodes`].
        node: usize,
        /// Flows.
        most: u32,
    },
    /// Each member of a node that is used has at least that many flows.
    MoreFlows {
        /// Its place in [`Graph::nodes`].
        node: usize,
        /// Flows.
        least: u32,
    },
    /// That many members of a node at most are used.
    FewerMembers {
        /// Its place in [`Graph::nodes`].
        node: usize,
        /// Members.
        most: u32,
    },
    /// A part is moved without a codec that the optimum uses.
    WithoutCodec {
        /// Its place in [`Graph::parts`].
        part: usize,
        /// The codec's name.
        codec: String,
    },
}

/// A choice that is not the best.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// In what it differs.
    pub difference: Difference,
    /// Bytes of the source per second.
    pub rate: f64,
    /// CPU seconds per second; `None` if the rate alone decides.
    pub cpu: Option<f64>,
    /// Flows in all nodes together; none likewise.
    pub flows: Option<u64>,
    /// What limits it, for the first of a list; empty for the others.
    pub binding: Vec<Vec<Constraint>>,
}

/// Rates that differ by less, relative, are the same.
const SAME_RATE: f64 = 1e-5;

/// CPU that differs by less, relative, is the same.
const SAME_CPU: f64 = 2e-3;

/// Nodes of branch and bound for one of them: it need not be the exact optimum of what is left, and
/// there are many.
const NODES: u64 = 200;

/// All of them, the best first. What cannot be solved is left out. CPU and flows are those of the
/// best ones alone; the others lose by their rate.
pub fn alternatives(graph: &Graph, optimum: &Optimum, bound: Bound) -> Vec<Alternative> {
    let bound = Bound {
        nodes: bound.nodes.min(NODES),
        ..bound
    };
    // Streams were chosen by these.
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

/// The fastest first, then the one with the least CPU, then the one with the fewest flows. By
/// steps, so that it is an order: what rounds to the same is the same.
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

/// The graph in which only choices with a difference are possible.
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
