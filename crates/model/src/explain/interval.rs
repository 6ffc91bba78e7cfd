//! Computes the uncertainty of a rate from that of the capacities.

use longhaul_measure::stats::normal_quantile;
use longhaul_units::Random;

use super::Range;
use crate::graph::Graph;
use crate::optimise::{Bound, Optimum, relaxed_rate};

/// Number of draws of all capacities. The 2.5 % quantile is then the fifth value.
const DRAWS: usize = 200;

/// Number of draws beyond each end of a 95 % interval.
const BEYOND: usize = DRAWS / 40;

/// Seed of the draws. A graph always has the same interval.
const SEED: u64 = 9;

/// Quantile of the standard normal distribution at 97.5 %.
const TWO_SIDED: f64 = 1.959_964;

/// Returns the 95 % range of the best rate if all capacities are uncertain at the same time, each
/// independently of the others. Each draw multiplies every capacity by a random factor. The
/// logarithm of the factor has a normal distribution, whose 97.5 % quantile is the uncertainty. So
/// a capacity that is not a bottleneck counts only if it becomes one. A draw changes the rate in
/// proportion to the optimum without integers, which is fast to compute.
pub fn of_rate(graph: &Graph, optimum: &Optimum, bound: Bound) -> Range {
    let rate = optimum.rate;
    let exact = Range {
        low: rate,
        likely: rate,
        high: rate,
    };
    let uncertain: Vec<usize> = (0..graph.nodes.len())
        .filter(|&at| graph.nodes[at].uncertainty > 0.0)
        .collect();
    if uncertain.is_empty() {
        return exact;
    }
    let Some(relaxed) = relaxed_rate(graph, rate, bound).filter(|relaxed| *relaxed > 0.0) else {
        return exact;
    };
    let mut random = Random::for_purpose(SEED, 0);
    let mut rates: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let drawn = uncertain.iter().fold(graph.clone(), |graph, &at| {
                let spread = graph.nodes[at].uncertainty.ln_1p() / TWO_SIDED;
                let normal = normal_quantile(random.fraction().clamp(1e-9, 1.0 - 1e-9));
                graph.faster(at, (spread * normal).exp())
            });
            let with = relaxed_rate(&drawn, rate, bound).unwrap_or(relaxed);
            rate * with / relaxed
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    Range {
        low: rates[BEYOND - 1].min(rate),
        likely: rate,
        high: rates[DRAWS - BEYOND].max(rate),
    }
}
