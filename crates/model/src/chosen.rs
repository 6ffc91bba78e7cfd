//! The numbers of flows that a plan chose, for use by a copy. Read from the JSON of `longhaul
//! plan`, or computed from a graph's file.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::graph::{Graph, NodeKind};
use crate::limit::Limit;
use crate::optimise::{Bound, solve};

/// Maximum number of flows of a layer of the mover.
const MOST_FLOWS: u64 = 512;

/// The choices of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen {
    /// Number of flows for reading, compressing, the wire, decompressing and writing, if the plan
    /// has them.
    pub flows: BTreeMap<Limit, u32>,
    /// Codec for all data, or `off` if all data are sent uncompressed. `None` if the plan has no
    /// compression to decide, or chose several codecs.
    pub codec: Option<String>,
}

impl Chosen {
    /// Reads a plan or a graph.
    ///
    /// # Errors
    ///
    /// A description of the missing or invalid part.
    pub fn of_text(text: &str) -> Result<Chosen, String> {
        let chosen = match serde_json::from_str::<Value>(text) {
            Ok(value) if value["kind"] == "plan" => Chosen::of_plan(&value)?,
            _ => Chosen::of_graph(text)?,
        };
        if chosen.flows.is_empty() {
            Err(
                "it has no flows for a copy: name its nodes read, compress, path, decompress and \
             write, as `longhaul plan SRC DST` does"
                    .to_owned(),
            )
        } else {
            Ok(chosen)
        }
    }

    fn of_plan(plan: &Value) -> Result<Chosen, String> {
        if plan["schema"] != 1 {
            return Err("the plan is from another release: make it again".to_owned());
        }
        let mut chosen = Chosen::default();
        let nodes = plan["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        for node in nodes {
            let name = node["name"].as_str().unwrap_or_default();
            let members = node["members"].as_array().map_or(&[][..], Vec::as_slice);
            let count = |member: &Value| {
                let of = |field: &str| member[field].as_u64().unwrap_or(0);
                of("flows").saturating_mul(of("members"))
            };
            chosen.set(name, members.iter().map(count).fold(0, u64::saturating_add));
        }
        if nodes.iter().any(|node| node["name"] == "compress") {
            let codecs = plan["codecs"].as_array().map_or(&[][..], Vec::as_slice);
            chosen.codec = only_codec(codecs.iter().map(|it| it["codec"].as_str()));
        }
        Ok(chosen)
    }

    fn of_graph(text: &str) -> Result<Chosen, String> {
        let graph = Graph::from_text(text).map_err(|error| error.to_string())?;
        let optimum = solve(&graph, Bound::DEFAULT).map_err(|error| error.to_string())?;
        let mut chosen = Chosen::default();
        for (node, used) in graph.nodes.iter().zip(&optimum.nodes) {
            let name = match node.kind {
                NodeKind::Path => "path",
                _ => node.name.as_str(),
            };
            chosen.set(name, used.flows().into());
        }
        if graph
            .nodes
            .iter()
            .any(|node| node.kind == NodeKind::Compress)
        {
            let codecs = optimum.codecs.iter().map(|&(it, _)| graph.codec_of(it));
            chosen.codec = only_codec(codecs.map(|codec| codec.map(|it| it.name.as_str())));
        }
        Ok(chosen)
    }

    fn set(&mut self, name: &str, flows: u64) {
        let layer = match name {
            "path" => Limit::Wire,
            "read" => Limit::Read,
            "compress" => Limit::Compress,
            "decompress" => Limit::Decompress,
            "write" => Limit::Write,
            _ => return,
        };
        // The minimum with MOST_FLOWS makes the conversion lossless.
        if flows > 0 {
            self.flows.insert(layer, flows.min(MOST_FLOWS) as u32);
        }
    }
}

/// Returns the codec that all parts of the data have, where `None` is "uncompressed".
fn only_codec<'a>(mut codecs: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let first = codecs.next()?;
    codecs
        .all(|codec| codec == first)
        .then(|| first.unwrap_or("off").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::explain;

    const GRAPH: &str = r#"
[[node]]
name = "start"
kind = "start"
to = ["read"]

[[node]]
name = "read"
kind = "disk"
most_flows = 8
capacity.linear = { alpha = "300 MB/s", most = 8 }
to = ["path"]

[[node]]
name = "path"
kind = "path"
most_flows = 64
capacity.tcp = { line = "10 Gbit/s", rtt = "20 ms", window = "4 MiB", congestion = "cubic" }
to = ["end"]

[[node]]
name = "end"
kind = "end"

[[part]]
name = "fields"
bytes = "1 TB"
files = 10
"#;

    #[test]
    fn a_graph_and_its_plan_choose_the_same() {
        let of_graph = Chosen::of_text(GRAPH).unwrap();
        // 1.18 GB/s need four readers and six windows of 210 MB/s.
        assert_eq!(of_graph.flows[&Limit::Read], 4);
        assert_eq!(of_graph.flows[&Limit::Wire], 6);
        let graph = Graph::from_text(GRAPH).unwrap();
        let plan = explain(&graph, Bound::DEFAULT).unwrap().to_json(&graph);
        assert_eq!(Chosen::of_text(&plan.to_string()).unwrap(), of_graph);
    }

    #[test]
    fn a_plan_decides_on_compression_if_all_its_data_have_one_codec() {
        let codec = |nodes: &[&str], codecs: &[Option<&str>]| {
            let members = [serde_json::json!({ "flows": 1, "members": 1 })];
            let nodes = nodes.iter();
            let nodes = nodes.map(|name| serde_json::json!({ "name": name, "members": members }));
            let codecs = codecs.iter();
            let codecs = codecs.map(|codec| serde_json::json!({ "codec": codec }));
            let plan = serde_json::json!({
                "kind": "plan", "schema": 1,
                "nodes": nodes.collect::<Value>(), "codecs": codecs.collect::<Value>(),
            });
            Chosen::of_text(&plan.to_string()).unwrap().codec
        };
        let with = ["read", "compress", "path"];
        let zstd = Some("zstd:3");
        assert_eq!(codec(&with, &[zstd]).as_deref(), zstd);
        assert_eq!(codec(&with, &[zstd, zstd]).as_deref(), zstd);
        assert_eq!(codec(&with, &[None]).as_deref(), Some("off"));
        assert_eq!(codec(&with, &[zstd, None]), None);
        assert_eq!(codec(&with, &[]), None);
        assert_eq!(codec(&["read", "path"], &[None]), None);
    }

    #[test]
    fn errors_describe_texts_that_are_not_plans() {
        let other = Chosen::of_text("{\"kind\": \"plan\", \"schema\": 2}").unwrap_err();
        assert!(other.contains("another release"), "{other}");
        let none = Chosen::of_text("{\"kind\": \"plan\", \"schema\": 1}").unwrap_err();
        assert!(none.contains("no flows for a copy"), "{none}");
        assert!(Chosen::of_text("not a graph").is_err());
        let odd = serde_json::json!({
            "kind": "plan", "schema": 1,
            "nodes": [{ "name": "write", "members": [{ "flows": u64::MAX, "members": 3 }] }],
        });
        assert_eq!(
            Chosen::of_text(&odd.to_string()).unwrap().flows[&Limit::Write],
            512
        );
    }
}
