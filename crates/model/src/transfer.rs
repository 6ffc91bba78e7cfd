//! The graph of one of longhaul's own transfers: storage, sealing, path, opening, storage, with
//! what is known of the hosts and the path; what is not known is taken wide, and is a doubt.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::capacity::{Capacity, FlowCapacity, PathCapacity, Window};
use crate::fit::Fitted;
use crate::graph::{Graph, Host, Node, NodeKind, Part, PartCodec};
use crate::host::HostModel;
use crate::limit::Limit;
use crate::response::Congestion;

/// Flows that a layer may have: what the mover's own flags allow for readers and writers.
const MOST_FLOWS: u32 = 64;

/// Flows of storage of which nothing is known: what the mover gives it at most by itself.
const USUAL_FLOWS: u32 = 8;

/// Streams that a transfer may have.
const MOST_STREAMS: u32 = 512;

/// CPU seconds for each byte at either end where nothing is measured: 0.3 for each gigabyte, half
/// of what a copy over TLS took on the hosts measured so far (`bench/runs/2026-11-25-pieces.md`).
const USUAL_CPU: f64 = 0.3e-9;

/// Storage of which nothing is known: bytes per second, and how wrong that may be. A bare guess, so
/// that the prediction says how little it knows.
const UNKNOWN_STORAGE: f64 = 1e9;
const UNKNOWN: f64 = 0.9;

/// Seconds of a flow for each file where nothing is measured.
const USUAL_FILE_SECONDS: f64 = 0.5e-3;

/// Round trips from the command to the first byte and from the last byte to success, over a daemon
/// (docs/architecture has the number), and the seconds of a start.
const DAEMON_ROUND_TRIPS: f64 = 6.0;
const START_SECONDS: f64 = 0.05;

/// What is known of one end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// Its name, as results show it.
    pub name: String,
    /// Its cores; `None` if they are not known.
    pub cores: Option<f64>,
    /// What its profile says; none without one.
    pub model: Option<HostModel>,
    /// What its layers took in earlier transfers, where that is remembered.
    pub seen: BTreeMap<Limit, LayerCost>,
    /// CPU seconds of all of it for each byte and for each file, likewise.
    pub cpu: Option<(f64, f64)>,
}

impl End {
    /// Whether anything was measured of a layer of its storage: what is taken instead is a guess.
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

/// What a layer's flows take, as earlier transfers had it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerCost {
    /// Seconds of a flow for each byte, 0 or more.
    pub seconds_per_byte: f64,
    /// Seconds of a flow for each file, 0 or more.
    pub seconds_per_file: f64,
    /// Flows that the layer had: what more of them carry is not known.
    pub flows: u32,
    /// How wrong that may be, as a share of it, 0 to 1.
    pub uncertainty: f64,
}

/// What is known of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathFacts {
    /// What TCP payload can carry, in bytes per second; `None` if it is not known.
    pub payload: Option<f64>,
    /// The least round trip.
    pub rtt: Duration,
    /// The share of segments that is lost at random, 0 to 1.
    pub loss: f64,
    /// Bytes that a stream has in flight at most; `None` if it is not known.
    pub window: Option<Window>,
    /// Bytes of payload in a segment.
    pub segment: f64,
    /// What governs the windows.
    pub congestion: Congestion,
    /// How wrong the payload may be, as a share of it.
    pub uncertainty: f64,
}

/// A command that all files go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// It runs at the source, before anything is sent; else at the destination.
    pub at_source: bool,
    /// Commands that run at a time, 1 or more.
    pub flows: u32,
    /// Bytes per second that one of them reads; `None` if nobody measured it.
    pub rate: Option<f64>,
}

/// A graph and what is not known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferGraph {
    /// The graph.
    pub graph: Graph,
    /// What it was guessed from.
    pub doubts: Vec<String>,
}

/// The window of a stream whose kernels are not known: Linux's own limit of 4 MiB for what is sent,
/// of which 0.69 to 0.88 is payload (`kernel`).
const USUAL_WINDOW: Window = Window {
    likely: 3.69e6,
    least: 2.9e6,
};

/// The graph of a transfer of `parts` from one end to another, within a host where there is no
/// `path`. `is_one_host` says that both ends share their cores.
pub fn transfer_graph(
    source: &End,
    destination: &End,
    path: Option<&PathFacts>,
    parts: Vec<Part>,
    is_one_host: bool,
) -> TransferGraph {
    let rtt = path.map_or(0.0, |path| path.rtt.as_secs_f64());
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
        startup: START_SECONDS + DAEMON_ROUND_TRIPS * rtt,
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
    /// Has all files go through a command: behind the source's storage, or before the
    /// destination's. Its output is taken to be as large as its input.
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
        let mut doubts = vec!["the filter is taken to write as many bytes as it reads".to_owned()];
        match filter.rate {
            Some(rate) => {
                node.capacity = Capacity::Flows(FlowCapacity::Linear {
                    alpha: rate,
                    gamma: 0.0,
                    most: node.most_flows,
                });
            }
            None => doubts.push(
                "nothing is known of the filter's speed: `longhaul plan --filter-rate` takes what one \
                 command reads"
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

/// Threads for computation: as many as cores.
fn most_threads(end: &End) -> u32 {
    // A count of cores.
    cores(end).map_or(MOST_FLOWS, |cores| (cores.ceil() as u32).clamp(1, 4096))
}

/// A layer as earlier transfers had it.
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

/// Making files durable and giving them names.
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
            // More would only share out what is not known.
            node.most_flows = USUAL_FLOWS;
            doubts.push(format!(
                "nothing is known of the storage of {} ({name}): measure it with `bench disk`",
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

/// Sealing or opening with TLS, hashing and copying.
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
            "the path's rate is not known: give --rate, or measure it with `longhaul probe`"
                .to_owned(),
        );
    }
    if path.window.is_none() {
        doubts.push("the kernels' windows are not known: 4 MiB of tcp_wmem are assumed".to_owned());
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

/// The source's codecs with the destination's speed of decompression, where both were measured; the
/// source's own for both where the destination has no profile.
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
    fn a_filter_is_a_layer_of_its_own_at_either_end() {
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
