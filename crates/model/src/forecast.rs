//! Predicts a copy from facts that are cheap to obtain, and compares the prediction with the
//! outcome, layer by layer.
//!
//! - `text`: both as lines of text and as JSON

mod text;

use std::collections::BTreeMap;

use crate::explain::{CompressionGain, Prediction, gain_of, predict};
use crate::graph::{Graph, Node, NodeKind, Part};
use crate::limit::Limit;
use crate::optimise::prices::binding;
use crate::optimise::{Bound, NodeUse, Optimum, SolveError, solve};
use crate::transfer::{End, Filter, PathFacts, transfer_graph};

/// Limits of the search for a forecast. The graphs are small, and a forecast is not worth more
/// time.
const BOUND: Bound = Bound {
    nodes: 500,
    work: 200_000_000,
};

/// Facts known before a copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Sending end.
    pub source: End,
    /// Receiving end.
    pub destination: End,
    /// Path between the ends. `None` for a copy within a host.
    pub path: Option<PathFacts>,
    /// Parts of the dataset.
    pub parts: Vec<Part>,
    /// True if the dataset is known or estimated. If false, its parts represent large files.
    pub is_dataset_known: bool,
    /// Requested maximum rate in bytes per second. `None` for no limit.
    pub rate_limit: Option<f64>,
    /// Fixed numbers of flows for reading, compressing, the wire, decompressing and writing.
    pub fixed: BTreeMap<Limit, u32>,
    /// Command that all files pass, if any.
    pub filter: Option<Filter>,
    /// Reasons to mistrust the prediction.
    pub doubts: Vec<String>,
}

/// The prediction for a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Graph of the copy.
    pub graph: Graph,
    /// Optimum of the graph.
    pub optimum: Optimum,
    /// Predicted rate and time.
    pub prediction: Prediction,
    /// Bottlenecks. Several if they limit together or in part.
    pub limits: Vec<Limit>,
    /// Gain by codecs. `None` if no codec is used.
    pub compression: Option<CompressionGain>,
    /// True if the dataset is known or estimated.
    pub is_dataset_known: bool,
    /// Reasons to mistrust the prediction.
    pub doubts: Vec<String>,
}

/// Figures of a layer of the mover in a forecast or an outcome.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerFigures {
    /// Number of flows.
    pub flows: u32,
    /// Utilisation of the flows, 0 to 1.
    pub busy: f64,
    /// Rate at full utilisation in source bytes per second. `None` if the utilisation is too low
    /// for an estimate.
    pub could_carry: Option<f64>,
}

/// The result of a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Number of file bytes moved.
    pub bytes: f64,
    /// Number of files moved.
    pub files: u64,
    /// Duration of the session in seconds.
    pub seconds: f64,
    /// Figures of the layers at both ends.
    pub layers: Vec<(Limit, LayerFigures)>,
    /// Bottleneck, if there was one.
    pub limit: Option<Limit>,
}

/// Minimum utilisation for an estimate of a layer's maximum rate.
const LEAST_BUSY: f64 = 0.02;

impl LayerFigures {
    /// Computes the figures of a layer from its utilisation at `rate` bytes per second.
    pub fn of_use(flows: u32, busy: f64, rate: f64) -> LayerFigures {
        LayerFigures {
            flows,
            busy,
            could_carry: (busy >= LEAST_BUSY).then(|| rate / busy),
        }
    }
}

/// Predicts a copy.
///
/// # Errors
///
/// If nothing is known of the dataset, or nothing limits the rate.
pub fn forecast(known: &Known) -> Result<Forecast, SolveError> {
    let is_one_host = known.path.is_none();
    let mut path = known.path.clone();
    let is_bound = bind_rate(&mut path, known.rate_limit);
    let mut built = transfer_graph(
        &known.source,
        &known.destination,
        path.as_ref(),
        known.parts.clone(),
        is_one_host,
    );
    if let Some(filter) = known.filter {
        built.add_filter(filter);
    }
    fix(&mut built.graph, &known.fixed);
    let graph = built.graph;
    let optimum = solve(&graph, BOUND)?;
    let prediction = predict(&graph, &optimum, BOUND);
    let streams = streams(&graph, &optimum);
    let constraints = binding(&graph, &optimum, BOUND)?;
    let mut limits: Vec<Limit> = constraints
        .into_iter()
        .flatten()
        .filter_map(|constraint| Limit::of_constraint(&graph, constraint, streams))
        .map(|limit| match limit {
            Limit::Path if is_bound => Limit::Rate,
            limit => limit,
        })
        .collect();
    limits.sort_unstable();
    limits.dedup();
    let mut doubts = known.doubts.clone();
    doubts.extend(built.doubts);
    Ok(Forecast {
        compression: gain_of(&graph, &optimum, BOUND),
        graph,
        optimum,
        prediction,
        limits,
        is_dataset_known: known.is_dataset_known,
        doubts,
    })
}

/// Limits the path to the requested rate. Returns true if the path could carry more.
fn bind_rate(path: &mut Option<PathFacts>, rate_limit: Option<f64>) -> bool {
    let (Some(path), Some(limit)) = (path, rate_limit) else {
        return false;
    };
    if path.payload.is_some_and(|payload| payload <= limit) {
        return false;
    }
    (path.payload, path.uncertainty) = (Some(limit), 0.0);
    true
}

/// Sets the numbers of flows of nodes whose layers have a fixed number.
pub fn fix(graph: &mut Graph, fixed: &BTreeMap<Limit, u32>) {
    for node in &mut graph.nodes {
        let layer = match node.kind {
            NodeKind::Path => Some(Limit::Wire),
            _ => Limit::of_name(&node.name),
        };
        if let Some(&flows) = layer.and_then(|layer| fixed.get(&layer)) {
            (node.least_flows, node.most_flows) = (flows.max(1), flows.max(1));
        }
    }
}

fn streams(graph: &Graph, optimum: &Optimum) -> u32 {
    let mut nodes = graph.nodes.iter().zip(&optimum.nodes);
    let path = nodes.find(|(node, _)| node.kind == NodeKind::Path);
    path.map_or(1, |(_, used)| used.flows())
}

impl Forecast {
    /// Returns the layers in the order in which data pass them. Sealing and the path are one layer,
    /// the wire.
    pub fn layers(&self) -> Vec<(Limit, LayerFigures)> {
        let nodes = || self.graph.nodes.iter().zip(&self.optimum.nodes);
        let of_layer = |layer: Limit| {
            let is_of = |(node, _): &(&Node, &NodeUse)| layer_of(node) == Some(layer);
            // Sealing and the path count as the busier one of the two.
            let busiest = |a: &(&Node, &NodeUse), b: &(&Node, &NodeUse)| {
                a.1.utilisation.total_cmp(&b.1.utilisation)
            };
            let (_, used) = nodes().filter(is_of).max_by(busiest)?;
            let flows = match layer {
                Limit::Wire | Limit::Open => streams(&self.graph, &self.optimum),
                _ => used.flows(),
            };
            let busy = used.utilisation.max(used.cpu / f64::from(flows.max(1)));
            Some((
                layer,
                LayerFigures::of_use(flows, busy.min(1.0), self.optimum.rate),
            ))
        };
        Limit::LAYERS.into_iter().filter_map(of_layer).collect()
    }
}

fn layer_of(node: &Node) -> Option<Limit> {
    match node.kind {
        NodeKind::Path => Some(Limit::Wire),
        _ if node.name == "seal" => Some(Limit::Wire),
        _ => Limit::of_name(&node.name),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::capacity::{Capacity, FlowCapacity, Window};
    use crate::graph::PartCodec;
    use crate::response::Congestion;
    use crate::transfer::LayerCost;

    fn end(name: &str, layers: &[(Limit, f64)]) -> End {
        let cost = |&(layer, rate): &(Limit, f64)| {
            let cost = LayerCost {
                seconds_per_byte: 1.0 / rate,
                seconds_per_file: 0.0,
                flows: 4,
                uncertainty: 0.1,
            };
            (layer, cost)
        };
        End {
            name: name.to_owned(),
            cores: Some(16.0),
            seen: layers.iter().map(cost).collect(),
            ..End::default()
        }
    }

    fn known(write: f64) -> Known {
        Known {
            source: end("here", &[(Limit::Read, 1e9)]),
            destination: end("there", &[(Limit::Write, write), (Limit::Commit, 1e9)]),
            path: Some(PathFacts {
                payload: Some(117e6),
                rtt: Duration::from_millis(100),
                loss: 0.0,
                window: Some(Window::of(2.9e6)),
                segment: 1448.0,
                congestion: Congestion::Cubic,
                uncertainty: 0.05,
            }),
            parts: vec![Part {
                name: "dataset".to_owned(),
                bytes: 10e9,
                files: 1.0,
                codecs: Vec::new(),
            }],
            is_dataset_known: true,
            ..Known::default()
        }
    }

    #[test]
    fn the_path_limits_or_the_disk() {
        let by_path = forecast(&known(1e9)).unwrap();
        assert_eq!(by_path.limits, [Limit::Path]);
        let wire = by_path.layers().into_iter().find(|it| it.0 == Limit::Wire);
        let wire = wire.unwrap().1;
        assert!(wire.flows >= 5 && wire.busy > 0.99, "{wire:?}");
        // There are four writers of 20 MB/s each.
        let by_disk = forecast(&known(20e6)).unwrap();
        assert_eq!(by_disk.limits, [Limit::Write]);
        let rate = by_disk.prediction.rate.likely;
        assert!((rate / 80e6 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn codecs_are_predicted_by_part() {
        let of_thread = |rate: f64| {
            Capacity::Flows(FlowCapacity::Linear {
                alpha: rate,
                gamma: 0.0,
                most: 64,
            })
        };
        let part = |name: &str, ratio: Option<f64>| Part {
            name: name.to_owned(),
            bytes: 5e9,
            files: 1.0,
            codecs: ratio.map_or(Vec::new(), |ratio| {
                vec![PartCodec {
                    name: "zstd:3".to_owned(),
                    ratio,
                    compress: of_thread(2e8),
                    compress_cpu: 5e-9,
                    decompress: of_thread(1e9),
                    decompress_cpu: 1e-9,
                }]
            }),
        };
        let mut dataset = known(1e9);
        dataset.parts = vec![part("text", Some(4.0)), part("noise", None)];
        let forecast = forecast(&dataset).unwrap();
        // Two bytes of data, one of each part, are 0.25 and 1 bytes on the path.
        let gain = forecast.compression.unwrap();
        assert!((gain.ratio / 1.6 - 1.0).abs() < 0.01, "{gain:?}");
        assert!((gain.plain_rate / 117e6 - 1.0).abs() < 0.01, "{gain:?}");
        let rate = forecast.prediction.rate.likely;
        assert!((rate / 187e6 - 1.0).abs() < 0.01, "{rate}");
        let lines = forecast.lines().join("\n");
        for part in [
            "text by zstd:3, 4.00 times",
            "noise as they are",
            "1.60 times",
        ] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
    }

    #[test]
    fn fixed_numbers_of_flows_are_used() {
        let fixed = Known {
            fixed: [(Limit::Wire, 2)].into(),
            ..known(1e9)
        };
        let forecast = forecast(&fixed).unwrap();
        assert_eq!(forecast.limits, [Limit::Window]);
        let rate = forecast.prediction.rate.likely;
        assert!((rate / 58e6 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn a_requested_rate_is_the_bottleneck() {
        let bound = Known {
            rate_limit: Some(10e6),
            ..known(1e9)
        };
        assert_eq!(forecast(&bound).unwrap().limits, [Limit::Rate]);
        let wide = Known {
            rate_limit: Some(10e9),
            ..known(1e9)
        };
        assert_eq!(forecast(&wide).unwrap().limits, [Limit::Path]);
    }

    #[test]
    fn a_copy_within_a_host_has_no_path() {
        let local = Known {
            path: None,
            ..known(20e6)
        };
        let forecast = forecast(&local).unwrap();
        assert_eq!(forecast.limits, [Limit::Write]);
        assert!(forecast.prediction.startup < 0.1);
    }

    #[test]
    fn prediction_and_outcome_are_in_one_table() {
        let forecast = forecast(&known(20e6)).unwrap();
        let outcome = Outcome {
            bytes: 10e9,
            files: 1,
            seconds: 140.0,
            layers: vec![(Limit::Write, LayerFigures::of_use(4, 0.9, 71e6))],
            limit: Some(Limit::Write),
        };
        let lines = forecast.beside(&outcome).join("\n");
        for part in ["2 min 20 s", "write", "90 %", "limited by"] {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        let value = forecast.beside_json(&outcome);
        assert_eq!(value["limit"], "write");
        let of_write = value["layers"].as_array().unwrap().iter();
        let of_write = of_write.into_iter().find(|it| it["layer"] == "write");
        let of_write = of_write.unwrap();
        assert_eq!(of_write["outcome"]["flows"], 4);
        assert_eq!(of_write["predicted"]["flows"], 4);
    }
}
