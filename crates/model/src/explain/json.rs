//! An explanation as JSON: quantities in bytes, seconds and bytes per second, nodes and hosts by
//! name. `docs/model.md` lists the fields.

use serde_json::{Value, json};

use super::{CompressionGain, Difference, Explanation, Range};
use crate::graph::Graph;
use crate::optimise::prices::{Change, Constraint};

/// Schema version of the document.
const SCHEMA: u64 = 1;

impl Explanation {
    /// Converts the explanation to JSON.
    pub fn to_json(&self, graph: &Graph) -> Value {
        let sets = |sets: &[Vec<Constraint>]| -> Value {
            let names = |set: &Vec<Constraint>| -> Value {
                set.iter().map(|it| constraint(graph, *it)).collect()
            };
            sets.iter().map(names).collect()
        };
        let prediction = self.prediction;
        json!({
            "schema": SCHEMA,
            "kind": "plan",
            "bytes": graph.parts.iter().map(|part| part.bytes).sum::<f64>(),
            "prediction": {
                "rate_bytes_per_second": range(prediction.rate),
                "goodput_bytes_per_second": range(prediction.goodput),
                "seconds": range(prediction.seconds),
                "startup_seconds": prediction.startup,
                "ramp_seconds": prediction.ramp,
            },
            "binding": sets(&self.binding),
            "prices": self.prices.iter().map(|price| json!({
                "change": change(graph, &[price.change]),
                "gain_bytes_per_second": price.gain,
                "unlimited": price.gain.is_infinite(),
            })).collect::<Value>(),
            "joint_price": self.joint.as_ref().map(|joint| json!({
                "change": change(graph, &joint.changes),
                "gain_bytes_per_second": joint.gain,
                "unlimited": joint.gain.is_infinite(),
            })),
            "nodes": self.nodes(graph),
            "codecs": self.codecs(graph),
            "compression": self.compression.map(CompressionGain::to_json),
            "cpu_seconds_per_second": self.optimum.cpu,
            "flows": self.optimum.flows,
            "gap": self.optimum.gap,
            "alternatives": self.alternatives.iter().map(|other| json!({
                "difference": difference(graph, &other.difference),
                "rate_bytes_per_second": other.rate,
                "cpu_seconds_per_second": other.cpu,
                "flows": other.flows,
                "binding": sets(&other.binding),
            })).collect::<Value>(),
            "doubts": self.doubts,
        })
    }

    fn nodes(&self, graph: &Graph) -> Value {
        let nodes = graph.nodes.iter().zip(&self.optimum.nodes);
        nodes
            .filter(|(node, _)| !node.is_logical())
            .map(|(node, used)| {
                let members = used.members.iter();
                json!({
                    "name": node.name,
                    "members": members.map(|&(flows, members)| json!({
                        "flows": flows,
                        "members": members,
                    })).collect::<Value>(),
                    "rate_bytes_per_second": used.rate,
                    "utilisation": used.utilisation,
                    "cpu_seconds_per_second": used.cpu,
                })
            })
            .collect()
    }

    fn codecs(&self, graph: &Graph) -> Value {
        let codecs = self.optimum.codecs.iter();
        codecs
            .map(|&(it, rate)| {
                json!({
                    "part": graph.parts[it.part].name,
                    "codec": graph.codec_of(it).map(|codec| &codec.name),
                    "ratio": graph.codec_of(it).map(|codec| codec.ratio),
                    "rate_bytes_per_second": rate,
                })
            })
            .collect()
    }
}

impl CompressionGain {
    /// Converts the gain to JSON.
    pub fn to_json(self) -> Value {
        json!({
            "ratio": self.ratio,
            "plain_rate_bytes_per_second": self.plain_rate,
        })
    }
}

fn range(range: Range) -> Value {
    json!({ "low": range.low, "likely": range.likely, "high": range.high })
}

fn constraint(graph: &Graph, constraint: Constraint) -> Value {
    match constraint {
        Constraint::Node(at) => json!({ "node": graph.nodes[at].name }),
        Constraint::Cores(at) => json!({ "cores_of": graph.hosts[at].name }),
        Constraint::Memory(at) => json!({ "memory_of": graph.hosts[at].name }),
    }
}

fn change(graph: &Graph, changes: &[Change]) -> Value {
    let names: Vec<String> = changes.iter().map(|it| it.name(graph)).collect();
    Value::from(names.join(" and "))
}

fn difference(graph: &Graph, difference: &Difference) -> Value {
    let name = |node: &usize| &graph.nodes[*node].name;
    match difference {
        Difference::FewerFlows { node, most } => json!({ "node": name(node), "most_flows": most }),
        Difference::MoreFlows { node, least } => {
            json!({ "node": name(node), "least_flows": least })
        }
        Difference::FewerMembers { node, most } => {
            json!({ "node": name(node), "most_members": most })
        }
        Difference::WithoutCodec { part, codec } => {
            json!({ "part": graph.parts[*part].name, "without_codec": codec })
        }
    }
}
