//! Computes the uncertainty of a rate from that of the capacities.

use super::Range;
use crate::graph::{Graph, NodeKind};
use crate::optimise::{Bound, Optimum, best_rate_near};

/// Returns the range of the best rate if each capacity lies in its own interval, independently of
/// the others: the root of the sum of squares of the individual effects at either end. Each effect
/// is the difference of two exact optima. So a capacity that is not a bottleneck adds nothing, and
/// a capacity that becomes a bottleneck at its lower end is included.
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

/// Minimum lower end, as a share of the rate. A smaller one would have no meaning.
const LEAST_SHARE: f64 = 0.01;

/// Returns the graph with one node's capacity multiplied by a factor.
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
