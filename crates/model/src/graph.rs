//! A transfer as a graph of components, after paper 004, section 3.1, with its layers (section
//! 4.3).
//!
//! Data flow from [`NodeKind::Start`] to [`NodeKind::End`] along edges. A node stands for a class
//! of equal components: four disks are one node with `members` 4. Each member that is used has a
//! number of flows, one at least. The parts of a dataset are commodities: each has its own size of
//! files, its own codecs, and its own costs in every layer, and all share the nodes by time.
//!
//! **Rates count bytes of the source.** Between a compressing and a decompressing node a part's
//! bytes are divided by its codec's ratio; a node's capacity holds for the bytes that it sees.
//! Paper 004, Fig. 8, asks for the same T at both ends, so that compression could not show any
//! gain.
//!
//! - [`check`]: what makes a graph one that can be solved
//! - [`mod@file`]: a graph as TOML or JSON

pub mod check;
pub mod file;

use crate::capacity::Capacity;

pub use check::GraphError;
pub use file::GraphFileError;

/// Components, how they are joined, and what goes through them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// The computers, whose cores and memory are shared by their nodes.
    pub hosts: Vec<Host>,
    /// The components, by class.
    pub nodes: Vec<Node>,
    /// From a node to a node, by their places in `nodes`.
    pub edges: Vec<(usize, usize)>,
    /// What is moved.
    pub parts: Vec<Part>,
    /// Nodes with one number of flows for all of them, as in paper 004, Fig. 4, where a flow is not
    /// split on its way. Each group is a list of places in `nodes`. Empty: a number for each layer,
    /// as in Fig. 8.
    pub tied: Vec<Vec<usize>>,
    /// Seconds of round trips and handshakes before the first byte and after the last one, 0 or
    /// more.
    pub startup: f64,
}

/// A computer, or several that share one budget: in a lab both ends are one.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// CPU seconds per second that the transfer may use; infinite where it does not matter.
    pub cores: f64,
    /// Bytes for blocks; infinite where it does not matter.
    pub memory: f64,
}

/// What a component is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Where all data begin.
    Start,
    /// A storage device.
    Disk,
    /// What several disks share: an adapter, a bus.
    Channel,
    /// Work on data: walking, reading, hashing, sealing, opening, writing, making durable.
    Computation,
    /// Work whose output is smaller: each part chooses a codec.
    Compress,
    /// Its inverse.
    Decompress,
    /// A network card.
    Nic,
    /// TCP streams over a path.
    Path,
    /// Where all data end.
    End,
}

/// A class of equal components.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name, once in a graph.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// Whose cores and memory it uses: a place in [`Graph::hosts`].
    pub host: Option<usize>,
    /// How many equal ones there are, 1 or more. Some may stay unused.
    pub members: u32,
    /// All members that are used have the same number of flows. Otherwise each has its own.
    pub same_flows: bool,
    /// Flows of one member at least, where it is used: 1, or more where the number is fixed.
    pub least_flows: u32,
    /// Flows of one member at most, [`Node::least_flows`] or more.
    pub most_flows: u32,
    /// Nodes whose flows are this one's: an adapter sees the flows of all its disks. Places in
    /// [`Graph::nodes`]; empty where the number is its own. Such a node has one member.
    pub flows_of: Vec<usize>,
    /// What one member carries, by its flows.
    pub capacity: Capacity,
    /// Half the width of the 95 % interval of its capacity, as a share of it, 0 to 1. At a
    /// compressing or decompressing node, of its codecs' capacities.
    pub uncertainty: f64,
    /// CPU seconds for each byte that it sees: β of paper 004, Eqs. 5 and 7.
    pub cpu_per_byte: f64,
    /// Seconds that a flow spends on each file beside its bytes.
    pub seconds_per_file: f64,
    /// CPU seconds for each file.
    pub cpu_per_file: f64,
    /// Bytes of memory that each flow holds.
    pub memory_per_flow: f64,
}

impl Node {
    /// A component without limit and cost; one member and one flow.
    pub fn new(name: &str, kind: NodeKind, capacity: Capacity) -> Node {
        Node {
            name: name.to_owned(),
            kind,
            host: None,
            members: 1,
            same_flows: false,
            least_flows: 1,
            most_flows: 1,
            flows_of: Vec::new(),
            capacity,
            uncertainty: 0.0,
            cpu_per_byte: 0.0,
            seconds_per_file: 0.0,
            cpu_per_file: 0.0,
            memory_per_flow: 0.0,
        }
    }

    /// Whether data only begin or end here, so that it has no flows of its own.
    pub fn is_logical(&self) -> bool {
        matches!(self.kind, NodeKind::Start | NodeKind::End)
    }

    /// Whether data that are not compressed pass by without a flow.
    pub fn is_passed_by_plain(&self) -> bool {
        matches!(self.kind, NodeKind::Compress | NodeKind::Decompress)
    }
}

/// Data of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Its bytes, greater than zero.
    pub bytes: f64,
    /// Its files, 1 or more.
    pub files: f64,
    /// How it can be compressed. Plain is always possible.
    pub codecs: Vec<PartCodec>,
}

impl Part {
    /// Mean bytes of a file.
    pub fn file_bytes(&self) -> f64 {
        self.bytes / self.files.max(1.0)
    }
}

/// What one codec, at one level, makes of one part.
#[derive(Clone, Debug, PartialEq)]
pub struct PartCodec {
    /// Its name and level, as `zstd:3`.
    pub name: String,
    /// Bytes before by bytes after, greater than zero.
    pub ratio: f64,
    /// What the compressing node carries with this codec, in bytes before.
    pub compress: Capacity,
    /// CPU seconds for each byte before.
    pub compress_cpu: f64,
    /// What the decompressing node carries, in bytes after decompression.
    pub decompress: Capacity,
    /// CPU seconds for each byte after decompression.
    pub decompress_cpu: f64,
}

/// A part with one of its codecs: what flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commodity {
    /// Its place in [`Graph::parts`].
    pub part: usize,
    /// Its place in [`Part::codecs`]; none is plain.
    pub codec: Option<usize>,
}

/// What a commodity asks of a member of a node, for each byte of the source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Seconds of one member with this many flows.
    pub seconds: f64,
    /// CPU seconds.
    pub cpu: f64,
}

impl Graph {
    /// Every part in every way in which it can be moved. Codecs count only where there is a
    /// compressing node.
    pub fn commodities(&self) -> Vec<Commodity> {
        let compresses = self
            .nodes
            .iter()
            .any(|node| node.kind == NodeKind::Compress);
        let of_part = |(part, it): (usize, &Part)| {
            let codecs = if compresses { it.codecs.len() } else { 0 };
            std::iter::once(None)
                .chain((0..codecs).map(Some))
                .map(move |codec| Commodity { part, codec })
                .collect::<Vec<_>>()
        };
        self.parts.iter().enumerate().flat_map(of_part).collect()
    }

    /// The share of the dataset's bytes that a part has, 0 to 1.
    pub fn weight(&self, part: usize) -> f64 {
        let all: f64 = self.parts.iter().map(|part| part.bytes).sum();
        self.parts[part].bytes / all
    }

    /// The codec of a commodity.
    pub fn codec_of(&self, commodity: Commodity) -> Option<&PartCodec> {
        Some(&self.parts[commodity.part].codecs[commodity.codec?])
    }

    /// What a commodity asks of a node whose members have `flows` flows. `compressed` says whether
    /// the node lies between compression and decompression ([`Graph::compressed_nodes`]).
    pub fn demand(&self, node: usize, compressed: bool, it: Commodity, flows: u32) -> Demand {
        let part = &self.parts[it.part];
        let node = &self.nodes[node];
        let (capacity, cpu) = match (node.kind, self.codec_of(it)) {
            // What is not compressed passes by.
            (NodeKind::Compress | NodeKind::Decompress, None) => {
                return Demand {
                    seconds: 0.0,
                    cpu: 0.0,
                };
            }
            (NodeKind::Compress, Some(codec)) => (&codec.compress, codec.compress_cpu),
            (NodeKind::Decompress, Some(codec)) => (&codec.decompress, codec.decompress_cpu),
            _ => (&node.capacity, node.cpu_per_byte),
        };
        if flows == 0 {
            return Demand {
                seconds: f64::INFINITY,
                cpu: 0.0,
            };
        }
        let ratio = match self.codec_of(it) {
            Some(codec) if compressed => codec.ratio,
            _ => 1.0,
        };
        let for_bytes = seconds_per_byte(capacity.at(flows)) / ratio;
        let for_files = node.seconds_per_file / (f64::from(flows) * part.file_bytes());
        Demand {
            seconds: for_bytes + for_files,
            cpu: cpu / ratio + node.cpu_per_file / part.file_bytes(),
        }
    }

    /// For each node whether the bytes that it sees are compressed: behind a compressing node,
    /// before a decompressing one.
    pub fn compressed_nodes(&self) -> Vec<bool> {
        let mut compressed = vec![false; self.nodes.len()];
        for &node in &self.in_order().unwrap_or_default() {
            let before = self.edges.iter().filter(|edge| edge.1 == node);
            let behind = before.clone().any(|&(from, _)| {
                let kind = self.nodes[from].kind;
                kind == NodeKind::Compress || (compressed[from] && kind != NodeKind::Decompress)
            });
            compressed[node] = behind && self.nodes[node].kind != NodeKind::Decompress;
        }
        compressed
    }

    /// The nodes in an order in which every edge leads on; `None` if there is a cycle.
    pub fn in_order(&self) -> Option<Vec<usize>> {
        let mut entering = vec![0_usize; self.nodes.len()];
        for &(_, to) in &self.edges {
            entering[to] += 1;
        }
        let mut order: Vec<usize> = Vec::new();
        let mut free: Vec<usize> = (0..self.nodes.len())
            .filter(|&at| entering[at] == 0)
            .collect();
        while let Some(node) = free.pop() {
            order.push(node);
            for &(_, to) in self.edges.iter().filter(|edge| edge.0 == node) {
                entering[to] -= 1;
                if entering[to] == 0 {
                    free.push(to);
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }
}

fn seconds_per_byte(rate: f64) -> f64 {
    if rate.is_infinite() {
        0.0
    } else if rate > 0.0 {
        1.0 / rate
    } else {
        f64::INFINITY
    }
}
