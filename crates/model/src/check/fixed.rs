//! Applies the settings that a run fixed: numbers of flows, and a codec for all data.

use longhaul_measure::record::{Knob, RunRecord};

use super::Unpredicted;
use crate::capacity::{Capacity, FlowCapacity};
use crate::graph::{Graph, Node, NodeKind};
use crate::host::{CodecModel, HostModel};

/// Minimum compression ratio. The mover sends a block uncompressed if the ratio is less.
const LEAST_RATIO: f64 = 1.03;

/// Maximum number of flows that a run may fix.
const MOST_FLOWS: u64 = 10_000;

/// Knobs of `cp`, and the nodes whose flows they fix.
const FLOWS: [(&str, &str); 3] = [
    ("streams", "path"),
    ("readers", "read"),
    ("writers", "write"),
];

/// Returns the codec that a run fixed for all data.
pub(super) fn codec_of(record: &RunRecord) -> Option<&str> {
    match record.knobs.get("compress") {
        Some(Knob::Word(codec)) if codec != "off" && codec != "auto" => Some(codec),
        _ => None,
    }
}

/// Applies the settings that a run fixed to its graph.
///
/// # Errors
///
/// If the run fixed a codec that the source's profile does not have.
pub(super) fn apply(
    record: &RunRecord,
    source: Option<&HostModel>,
    graph: &mut Graph,
) -> Result<(), Unpredicted> {
    for (knob, name) in FLOWS {
        let Some(Knob::Count(flows)) = record.knobs.get(knob) else {
            continue;
        };
        // At most 10,000, so the conversion is lossless.
        let flows = (*flows).clamp(1, MOST_FLOWS) as u32;
        for node in graph.nodes.iter_mut().filter(|node| node.name == name) {
            (node.least_flows, node.most_flows) = (flows, flows);
        }
    }
    // All data are sent uncompressed, or all pass the one codec.
    graph.parts.iter_mut().for_each(|part| part.codecs.clear());
    let Some(name) = codec_of(record) else {
        return Ok(());
    };
    let known = source.and_then(|source| source.codecs.iter().find(|it| it.name == name));
    let known = known.ok_or_else(|| Unpredicted::Codec(name.to_owned()))?;
    compress_all(known, graph);
    Ok(())
}

/// Adds the codec to the graph: a layer before the path and a layer after it, with less data
/// between them. If the codec does not reduce the data, only the first layer is added.
fn compress_all(codec: &CodecModel, graph: &mut Graph) {
    let is_smaller = codec.ratio >= LEAST_RATIO;
    let old = std::mem::take(&mut graph.nodes);
    let threads = |name: &str| {
        old.iter()
            .find(|it| it.name == name)
            .map(|it| it.most_flows)
    };
    let (before, after) = (threads("seal").unwrap_or(1), threads("open").unwrap_or(1));
    let node = |name: &str, capacity: &FlowCapacity, cpu: f64, host, most: u32, doubt: f64| Node {
        host,
        most_flows: most,
        cpu_per_byte: cpu,
        uncertainty: doubt,
        ..Node::new(
            name,
            NodeKind::Computation,
            Capacity::Flows(capacity.clone()),
        )
    };
    let kept = old
        .into_iter()
        .filter(|it| !matches!(it.kind, NodeKind::Compress | NodeKind::Decompress));
    for mut it in kept {
        let host = it.host;
        match it.name.as_str() {
            "seal" => {
                let (best, cpu) = (&codec.compress.best, codec.compress_cpu);
                let doubt = best.uncertainty;
                let layer = node("compress", &best.capacity, cpu, host, before, doubt);
                graph.nodes.extend([layer, it]);
            }
            "open" if is_smaller => {
                let (best, cpu) = (&codec.decompress.best, codec.decompress_cpu);
                let doubt = best.uncertainty;
                let layer = node("decompress", &best.capacity, cpu, host, after, doubt);
                graph.nodes.extend([it, layer]);
            }
            "path" if is_smaller => {
                it.capacity = it.capacity.scaled(codec.ratio);
                graph.nodes.push(it);
            }
            _ => graph.nodes.push(it),
        }
    }
    graph.edges = (1..graph.nodes.len()).map(|to| (to - 1, to)).collect();
}
