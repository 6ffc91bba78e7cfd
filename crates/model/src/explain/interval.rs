//! How sure a rate is, from how sure the capacities are.

use super::Range;
use crate::graph::{Graph, NodeKind};
use crate::optimise::{Bound, Optimum, best_rate_near};

/// The range of the best rate where each capacity lies within its own interval, independently of
/// the others: what each one alone does, at either end of its interval, as the root of the sum of
/// squares. Each end is an exact optimum, so that a capacity that does not limit adds nothing, and
/// one that begins to limit at its lower end does.
pub fn of_rate(graph: &Graph, optimum: &Optimum, bound: Bound) -> Range {
    let rate = optimum.rate;
    let (mut below, mut above) = (0.0, 0.0);
    for at in 0..graph.nodes.len() {
        let share = graph.nodes[at].uncertainty;
        if share <= 0.0 {
            continue;
        }
        let with = |factor: f64| {
            best_rate_near(&scaled(graph, at, factor), rate, bound).map_or(rate, |(rate, _)| rate)
        };
        below += (rate - with(1.0 - share)).max(0.0).powi(2);
        above += (with(1.0 + share) - rate).max(0.0).powi(2);
    }
    Range {
        low: (rate - f64::sqrt(below)).max(rate * LEAST_SHARE),
        likely: rate,
        high: rate + f64::sqrt(above),
    }
}

/// A lower end below this share of the rate says nothing.
const LEAST_SHARE: f64 = 0.01;

/// The graph with one node's capacity times a factor.
fn scaled(graph: &Graph, at: usize, factor: f64) -> Graph {
    let mut graph = graph.clone();
    let kind = graph.nodes[at].kind;
    let node = &mut graph.nodes[at];
    node.capacity = node.capacity.scaled(factor);
    node.seconds_per_file /= factor;
    for codec in graph.parts.iter_mut().flat_map(|part| &mut part.codecs) {
        match kind {
            NodeKind::Compress => codec.compress = codec.compress.scaled(factor),
            NodeKind::Decompress => codec.decompress = codec.decompress.scaled(factor),
            _ => {}
        }
    }
    graph
}
