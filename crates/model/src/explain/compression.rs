//! The gain of an optimum by compression.

use crate::graph::Graph;
use crate::optimise::{Bound, Optimum, best_rate_near};

/// The effect of codecs on a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompressionGain {
    /// Source bytes divided by bytes on the path, usually at least 1.
    pub ratio: f64,
    /// Rate without any codec, in source bytes per second.
    pub plain_rate: f64,
}

/// Returns the gain by the codecs of an optimum, or `None` if it uses no codec.
pub(crate) fn gain_of(graph: &Graph, optimum: &Optimum, bound: Bound) -> Option<CompressionGain> {
    let coded = |&(it, rate): &(_, f64)| Some((graph.codec_of(it)?, rate));
    optimum.codecs.iter().find_map(coded)?;
    let on_path: f64 = optimum
        .codecs
        .iter()
        .map(|&(it, rate)| rate / graph.codec_of(it).map_or(1.0, |codec| codec.ratio))
        .sum();
    let mut plain = graph.clone();
    plain.parts.iter_mut().for_each(|part| part.codecs.clear());
    let (plain_rate, _) = best_rate_near(&plain, optimum.rate, bound).ok()?;
    Some(CompressionGain {
        ratio: optimum.rate / on_path.max(f64::MIN_POSITIVE),
        plain_rate,
    })
}
