//! What compression gives an optimum.

use crate::graph::Graph;
use crate::optimise::{Bound, Optimum, best_rate_near};

/// What codecs do for a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompressionGain {
    /// Bytes of the source by bytes on the path, 1 or more as a rule.
    pub ratio: f64,
    /// Bytes of the source per second that would move without any codec.
    pub plain_rate: f64,
}

/// What the codecs of an optimum give; none if it uses none.
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
