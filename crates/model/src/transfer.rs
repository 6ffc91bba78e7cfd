//! Builds the graph of one of longhaul's own transfers from known facts about hosts and path:
//! storage, sealing, path, opening, storage. Unknown capacities get a wide uncertainty and raise a
//! doubt.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::capacity::{Capacity, FlowCapacity, PathCapacity, Window};
use crate::fit::Fitted;
use crate::graph::{Graph, Host, Node, NodeKind, Part, PartCodec};
use crate::host::HostModel;
use crate::limit::Limit;
use crate::response::Congestion;

/// Maximum number of flows of a layer: the limit of the mover's options for readers and writers.
const MOST_FLOWS: u32 = 64;

/// Number of flows of unknown storage: the maximum that the mover chooses automatically.
const USUAL_FLOWS: u32 = 8;

/// Maximum number of streams of a transfer.
const MOST_STREAMS: u32 = 512;

/// CPU seconds per byte at either end if nothing was measured: 0.3 per gigabyte, half of the CPU
/// time of a copy over TLS on the hosts measured so far (`bench/runs/2026-11-25-pieces.md`).
const USUAL_CPU: f64 = 0.3e-9;

/// Assumed rate of unknown storage in bytes per second. This is a guess, so its uncertainty is
/// wide.
const UNKNOWN_STORAGE: f64 = 1e9;
/// Uncertainty of a capacity that was not measured.
pub const UNKNOWN: f64 = 0.9;

/// Seconds of a flow per file if nothing was measured.
const USUAL_FILE_SECONDS: f64 = 0.5e-3;

/// Number of round trips from the command to the first byte and from the last byte to success, with
/// a daemon (see docs/architecture), and the seconds of a start.
const DAEMON_ROUND_TRIPS: f64 = 6.0;
const START_SECONDS: f64 = 0.05;

/// The known facts of one end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// Name of the end, as displayed.
    pub name: String,
    /// Number of cores, if known.
    pub cores: Option<f64>,
    /// Capacities from the host's profile, if there is one.
    pub model: Option<HostModel>,
    /// Costs of its layers in earlier transfers, if known.
    pub seen: BTreeMap<Limit, LayerCost>,
    /// Total CPU seconds per byte and per file in earlier transfers, if known.
    pub cpu: Option<(f64, f64)>,
}

impl End {
    /// True if a layer of its storage was measured. If not, its capacity is a guess.
    pub fn knows(&self, layer: Limit) -> bool {
        let of_model = |model: &HostModel| match layer {
            Limit::Read => model.read.is_some(),
            Limit::Write => model.write.is_some(),
            Limit::Commit => model.commit_seconds.is_some(),
            _ => true,
        };
        self.seen.contains_key(&layer) || self.model.as_ref().is_some_and(of_model)
    }
}

/// The cost of a layer's flows in earlier transfers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerCost {
    /// Seconds of a flow per byte, at least 0.
    pub seconds_per_byte: f64,
    /// Seconds of a flow per file, at least 0.
    pub seconds_per_file: f64,
    /// Number of flows that the layer had. The rate of more flows is unknown.
    pub flows: u32,
    /// Relative uncertainty of the cost, 0 to 1.
    pub uncertainty: f64,
}

/// The known facts of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathFacts {
    /// Rate of TCP payload in bytes per second, if known.
    pub payload: Option<f64>,
    /// Least round-trip time.
    pub rtt: Duration,
    /// Share of segments lost at random, 0 to 1.
    pub loss: f64,
    /// Window of a stream in bytes in flight, if known.
    pub window: Option<Window>,
    /// Payload of a segment in bytes.
    pub segment: f64,
    /// Congestion control of the streams.
    pub congestion: Congestion,
    /// Relative uncertainty of the payload rate.
    pub uncertainty: f64,
}

/// A command that all files pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// True if the command runs at the source before sending, false if at the destination.
    pub at_source: bool,
    /// Number of commands that run at the same time, at least 1.
    pub flows: u32,
    /// Rate at which one command reads, in bytes per second. `None` if not measured.
    pub rate: Option<f64>,
}

/// A graph and its doubts.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferGraph {
    /// The graph.
    pub graph: Graph,
    /// Assumptions that the graph contains.
    pub doubts: Vec<String>,
}

/// Window of a stream if the kernels' limits are unknown: Linux's default send limit of 4 MiB, of
/// which 0.69 to 0.88 is payload (see `kernel`).
const USUAL_WINDOW: Window = Window {
    likely: 3.69e6,
    least: 2.9e6,
};

/// Builds the graph of a transfer of `parts` from one end to another, or within a host if there is
/// no `path`. `is_one_host` is true if both ends share their cores.
pub fn transfer_graph(
    source: &End,
    destination: &End,
    path: Option<&PathFacts>,
    parts: Vec<Part>,
    is_one_host: bool,
) -> TransferGraph {
    let mut doubts = Vec::new();
    let hosts = if is_one_host {
        vec![host(source)]
    } else {
        vec![host(source), host(destination)]
    };
    let far = hosts.len() - 1;
    let mut graph = Graph {
        hosts,
        parts: with_codecs(parts, source, destination),
        startup: START_SECONDS,
        round_trips: if path.is_some() {
            DAEMON_ROUND_TRIPS
        } else {
            0.0
        },
        ..Graph::default()
    };
    let compresses = graph.parts.iter().any(|part| !part.codecs.is_empty());
    let logical = |name: &str, kind| Node::new(name, kind, unlimited());
    graph.nodes.push(logical("start", NodeKind::Start));
    graph.nodes.push(storage("read", source, 0, &mut doubts));
    if compresses {
        graph
            .nodes
            .push(coding("compress", NodeKind::Compress, source, 0));
    }
    graph.nodes.push(sealing("seal", source, 0));
    if let Some(path) = path {
        graph.nodes.push(streams(path, &mut doubts));
    }
    graph.nodes.push(sealing("open", destination, far));
    if compresses {
        graph
            .nodes
            .push(coding("decompress", NodeKind::Decompress, destination, far));
    }
    graph
        .nodes
        .push(storage("write", destination, far, &mut doubts));
    graph.nodes.push(committing(destination, far));
    graph.nodes.push(logical("end", NodeKind::End));
    graph.edges = (1..graph.nodes.len()).map(|to| (to - 1, to)).collect();
    TransferGraph { graph, doubts }
}

impl TransferGraph {
    /// Adds a command that all files pass: behind the source's storage, or before the
    /// destination's. Its output is assumed to be as large as its input.
    pub fn add_filter(&mut self, filter: Filter) {
        let graph = &mut self.graph;
        let of_name = |name: &str| graph.nodes.iter().position(|node| node.name == name);
        let place = if filter.at_source {
            of_name("read").map(|at| at + 1)
        } else {
            of_name("write")
        };
        let Some(place) = place else { return };
        let mut node = Node::new("filter", NodeKind::Computation, unlimited());
        node.host = if filter.at_source {
            Some(0)
        } else {
            graph.hosts.len().checked_sub(1)
        };
        node.most_flows = filter.flows.max(1);
        let mut doubts =
            vec!["the filter is assumed to write as many bytes as it reads".to_owned()];
        match filter.rate {
            Some(rate) => {
                node.capacity = Capacity::Flows(FlowCapacity::Linear {
                    alpha: rate,
                    gamma: 0.0,
                    most: node.most_flows,
                });
            }
            None => doubts.push(
                "the filter's speed is unknown: give the rate of one command with `longhaul plan \
                --filter-rate`"
                    .to_owned(),
            ),
        }
        graph.nodes.insert(place, node);
        graph.edges = (1..graph.nodes.len()).map(|to| (to - 1, to)).collect();
        self.doubts.append(&mut doubts);
    }
}

fn unlimited() -> Capacity {
    Capacity::Flows(FlowCapacity::Unlimited)
}

fn host(end: &End) -> Host {
    Host {
        name: end.name.clone(),
        cores: cores(end).unwrap_or(f64::INFINITY),
        memory: f64::INFINITY,
    }
}

fn cores(end: &End) -> Option<f64> {
    let measured = end.model.as_ref().map(|model| f64::from(model.cores));
    end.cores.or(measured)
}

/// Returns the maximum number of threads for computation: the number of cores.
fn most_threads(end: &End) -> u32 {
    // The number of cores is small, so the conversion is lossless.
    cores(end).map_or(MOST_FLOWS, |cores| (cores.ceil() as u32).clamp(1, 4096))
}

/// Creates a layer with the costs of earlier transfers.
fn seen(name: &str, kind: NodeKind, at: usize, cost: &LayerCost) -> Node {
    let mut node = Node::new(name, kind, unlimited());
    node.host = Some(at);
    node.most_flows = cost.flows.max(1);
    if cost.seconds_per_byte > 0.0 {
        node.capacity = Capacity::Flows(FlowCapacity::Linear {
            alpha: 1.0 / cost.seconds_per_byte,
            gamma: 0.0,
            most: node.most_flows,
        });
    }
    node.seconds_per_file = cost.seconds_per_file;
    node.uncertainty = cost.uncertainty;
    node
}

/// Creates the layer that makes files durable and names them.
fn committing(end: &End, at: usize) -> Node {
    if let Some(cost) = end.seen.get(&Limit::Commit) {
        return seen("commit", NodeKind::Computation, at, cost);
    }
    let mut node = Node::new("commit", NodeKind::Computation, unlimited());
    node.host = Some(at);
    node.most_flows = MOST_FLOWS;
    let per_file = end.model.as_ref().and_then(|model| model.commit_seconds);
    node.seconds_per_file = per_file.unwrap_or(USUAL_FILE_SECONDS);
    node
}

fn storage(name: &str, end: &End, at: usize, doubts: &mut Vec<String>) -> Node {
    let reads = name == "read";
    let layer = if reads { Limit::Read } else { Limit::Write };
    let model = end.model.as_ref();
    let fitted = model.and_then(|model| {
        if reads {
            model.read.as_ref()
        } else {
            model.write.as_ref()
        }
    });
    if let (Some(cost), None) = (end.seen.get(&layer), fitted) {
        return seen(name, NodeKind::Disk, at, cost);
    }
    let mut node = Node::new(name, NodeKind::Disk, unlimited());
    node.host = Some(at);
    node.most_flows = MOST_FLOWS;
    match fitted {
        Some(fitted) => {
            node.capacity = Capacity::Flows(fitted.best.capacity.clone());
            node.uncertainty = fitted.best.uncertainty;
            let told = fitted.doubts.iter();
            doubts
                .extend(told.map(|doubt| format!("the storage of {} ({name}): {doubt}", end.name)));
        }
        None => {
            node.capacity = Capacity::Flows(FlowCapacity::Constant {
                rate: UNKNOWN_STORAGE,
            });
            node.uncertainty = UNKNOWN;
            // More flows would only divide the unknown rate.
            node.most_flows = USUAL_FLOWS;
            doubts.push(format!(
                "the rate of the storage of {} ({name}) is unknown: measure it with `bench disk`",
                end.name
            ));
        }
    }
    if reads {
        let per_file = model.and_then(|model| model.open_seconds);
        node.seconds_per_file = per_file.unwrap_or(USUAL_FILE_SECONDS);
    }
    node
}

/// Creates the layer that seals or opens with TLS, hashes and copies.
fn sealing(name: &str, end: &End, at: usize) -> Node {
    let model = end.model.as_ref();
    let mut node = Node::new(name, NodeKind::Computation, unlimited());
    node.host = Some(at);
    node.most_flows = most_threads(end);
    node.cpu_per_byte = model
        .and_then(|model| model.tls_cpu)
        .unwrap_or(0.0)
        .max(USUAL_CPU);
    if let Some((per_byte, per_file)) = end.cpu {
        (node.cpu_per_byte, node.cpu_per_file) = (per_byte, per_file);
    }
    node.uncertainty = 0.0;
    node
}

fn coding(name: &str, kind: NodeKind, end: &End, at: usize) -> Node {
    let mut node = Node::new(name, kind, unlimited());
    node.host = Some(at);
    node.most_flows = most_threads(end);
    node
}

fn streams(path: &PathFacts, doubts: &mut Vec<String>) -> Node {
    if path.payload.is_none() {
        doubts.push(
            "the path's rate is unknown: give --rate, or measure it with `longhaul probe`"
                .to_owned(),
        );
    }
    if path.window.is_none() {
        doubts.push("the kernels' windows are unknown: 4 MiB of tcp_wmem are assumed".to_owned());
    }
    let capacity = PathCapacity {
        path: path.payload.unwrap_or(UNKNOWN_STORAGE),
        nic: f64::INFINITY,
        rtt: path.rtt,
        window: path.window.unwrap_or(USUAL_WINDOW),
        loss: path.loss,
        segment: path.segment,
        congestion: path.congestion.clone(),
    };
    let mut node = Node::new("path", NodeKind::Path, Capacity::Path(capacity));
    node.most_flows = MOST_STREAMS;
    node.uncertainty = if path.payload.is_some() {
        path.uncertainty
    } else {
        UNKNOWN
    };
    node
}

/// Adds the source's codecs to the parts. The speed of decompression is the destination's if its
/// profile has the codec, else the source's.
fn with_codecs(mut parts: Vec<Part>, source: &End, destination: &End) -> Vec<Part> {
    let Some(model) = &source.model else {
        return parts;
    };
    let capacity = |fitted: &Fitted| Capacity::Flows(fitted.best.capacity.clone());
    for part in &mut parts {
        for codec in &model.codecs {
            let far = destination.model.as_ref();
            let far = far.and_then(|far| far.codecs.iter().find(|it| it.name == codec.name));
            let far = far.unwrap_or(codec);
            part.codecs.push(PartCodec {
                name: codec.name.clone(),
                ratio: codec.ratio,
                compress: capacity(&codec.compress),
                compress_cpu: codec.compress_cpu,
                decompress: capacity(&far.decompress),
                decompress_cpu: far.decompress_cpu,
            });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimise::{Bound, solve};

    fn rate_with(filter: Option<Filter>) -> (Vec<String>, f64, Vec<String>) {
        let path = PathFacts {
            payload: Some(1e8),
            rtt: Duration::from_millis(10),
            loss: 0.0,
            window: None,
            segment: 1448.0,
            congestion: Congestion::Cubic,
            uncertainty: 0.0,
        };
        let end = |name: &str| End {
            name: name.to_owned(),
            ..End::default()
        };
        let parts = vec![Part {
            name: "all".to_owned(),
            bytes: 1e10,
            files: 10.0,
            codecs: Vec::new(),
        }];
        let mut built = transfer_graph(&end("a"), &end("b"), Some(&path), parts, false);
        let known = built.doubts.len();
        if let Some(filter) = filter {
            built.add_filter(filter);
        }
        let optimum = solve(&built.graph, Bound::DEFAULT).unwrap();
        let names = built.graph.nodes.iter().map(|node| node.name.clone());
        (names.collect(), optimum.rate, built.doubts.split_off(known))
    }

    #[test]
    fn a_filter_is_a_separate_layer_at_either_end() {
        let (names, rate, _) = rate_with(None);
        assert!((rate / 1e8 - 1.0).abs() < 0.01, "{rate:.3e}");
        assert!(!names.contains(&"filter".to_owned()));
        for at_source in [true, false] {
            let filter = |rate| Filter {
                at_source,
                flows: 4,
                rate,
            };
            let (names, rate, doubts) = rate_with(Some(filter(Some(1e7))));
            assert!((rate / 4e7 - 1.0).abs() < 0.01, "{rate:.3e}");
            let at = names.iter().position(|name| name == "filter").unwrap();
            if at_source {
                assert_eq!(names[at - 1], "read");
            } else {
                assert_eq!(names[at + 1], "write");
            }
            assert_eq!(doubts.len(), 1, "{doubts:?}");
            let (_, rate, doubts) = rate_with(Some(filter(None)));
            assert!((rate / 1e8 - 1.0).abs() < 0.01, "{rate:.3e}");
            assert!(doubts[1].contains("--filter-rate"), "{doubts:?}");
        }
    }
}
