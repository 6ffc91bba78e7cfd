//! A transfer as a graph of components, after paper 004, section 3.1, with layers (section 4.3).
//!
//! Data flow from [`NodeKind::Start`] to [`NodeKind::End`] along edges. A node represents a class
//! of equal components: four disks are one node with `members` 4. Each used member has at least one
//! flow. The parts of a dataset are commodities: each has its own file sizes, codecs, and costs in
//! every layer, and all share the time of the nodes.
//!
//! **Rates are in source bytes.** Between a compressing and a decompressing node, a part's bytes
//! are divided by its codec's ratio. A node's capacity is for the bytes that it processes. Paper
//! 004, Fig. 8, requires the same T at both ends, so that compression could not have any gain.
//!
//! - [`check`]: the conditions for a graph that can be solved
//! - [`mod@file`]: a graph as TOML or JSON

pub mod check;
pub mod file;

use crate::capacity::Capacity;

pub use check::GraphError;
pub use file::GraphFileError;

/// Components, their connections, and the data that pass them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Computers. Their nodes share their cores and memory.
    pub hosts: Vec<Host>,
    /// Components by class.
    pub nodes: Vec<Node>,
    /// Edges from a node to a node, as indices in `nodes`.
    pub edges: Vec<(usize, usize)>,
    /// Data to move.
    pub parts: Vec<Part>,
    /// Groups of nodes with a common number of flows, as in paper 004, Fig. 4, in which a flow
    /// keeps its identity through all layers. Each group is a list of indices in `nodes`. If empty,
    /// each layer has its own number, as in Fig. 8.
    pub tied: Vec<Vec<usize>>,
    /// Seconds before the first byte and after the last one that do not depend on the path, at
    /// least 0.
    pub startup: f64,
    /// Number of round trips of the path before the first byte and after the last one, at least 0.
    pub round_trips: f64,
}

/// A computer, or several with one budget, as both ends in a lab.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Name of the computer.
    pub name: String,
    /// CPU seconds per second that the transfer may use. Infinite without a limit.
    pub cores: f64,
    /// Memory for blocks in bytes. Infinite without a limit.
    pub memory: f64,
}

/// The kinds of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// Origin of all data.
    Start,
    /// A storage device.
    Disk,
    /// A component that several disks share: an adapter, a bus.
    Channel,
    /// Computation on data: listing, reading, hashing, sealing, opening, writing, making durable.
    Computation,
    /// Compression. Each part chooses a codec.
    Compress,
    /// Decompression.
    Decompress,
    /// A network card.
    Nic,
    /// TCP streams over a path.
    Path,
    /// Destination of all data.
    End,
}

/// A class of equal components.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name, unique in the graph.
    pub name: String,
    /// Kind of the component.
    pub kind: NodeKind,
    /// Host whose cores and memory the node uses: an index in [`Graph::hosts`].
    pub host: Option<usize>,
    /// Number of equal components, at least 1. Some may stay unused.
    pub members: u32,
    /// True if all used members must have the same number of flows. If false, each has its own.
    pub same_flows: bool,
    /// Minimum number of flows of a used member: 1, or more if the number is fixed.
    pub least_flows: u32,
    /// Maximum number of flows of a member, at least [`Node::least_flows`].
    pub most_flows: u32,
    /// Nodes whose flows pass this node, as indices in [`Graph::nodes`]: an adapter has the flows
    /// of all its disks. Empty if the node has its own number of flows. Such a node has one member.
    pub flows_of: Vec<usize>,
    /// Capacity of one member, by its number of flows.
    pub capacity: Capacity,
    /// Half the width of the 95 % interval of the capacity, as a share of it, 0 to 1. For a
    /// compressing or decompressing node, of its codecs' capacities.
    pub uncertainty: f64,
    /// CPU seconds per processed byte: β of paper 004, Eqs. 5 and 7.
    pub cpu_per_byte: f64,
    /// Seconds that a flow spends on each file beside its bytes.
    pub seconds_per_file: f64,
    /// CPU seconds per file.
    pub cpu_per_file: f64,
    /// Bytes of memory that each flow holds.
    pub memory_per_flow: f64,
    /// Maximum number of cores that one flow keeps busy, greater than zero. 1 for a thread.
    pub cores_per_flow: f64,
}

impl Node {
    /// Creates a component without further limits and costs, with one member and one flow.
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
            cores_per_flow: 1.0,
        }
    }

    /// True if data only begin or end here. The node then has no flows of its own.
    pub fn is_logical(&self) -> bool {
        matches!(self.kind, NodeKind::Start | NodeKind::End)
    }

    /// True if uncompressed data bypass the node without a flow.
    pub fn is_passed_by_plain(&self) -> bool {
        matches!(self.kind, NodeKind::Compress | NodeKind::Decompress)
    }
}

/// Data of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name of the part.
    pub name: String,
    /// Size in bytes, greater than zero.
    pub bytes: f64,
    /// Number of files, at least 1.
    pub files: f64,
    /// Possible codecs. Data can always be sent uncompressed.
    pub codecs: Vec<PartCodec>,
}

impl Part {
    /// Returns the mean size of a file in bytes.
    pub fn file_bytes(&self) -> f64 {
        self.bytes / self.files.max(1.0)
    }
}

/// The effect of one codec, at one level, on one part.
#[derive(Clone, Debug, PartialEq)]
pub struct PartCodec {
    /// Name and level, such as `zstd:3`.
    pub name: String,
    /// Compression ratio: bytes before divided by bytes after, greater than zero.
    pub ratio: f64,
    /// Capacity of the compressing node with this codec, in uncompressed bytes.
    pub compress: Capacity,
    /// CPU seconds per uncompressed byte.
    pub compress_cpu: f64,
    /// Capacity of the decompressing node, in uncompressed bytes.
    pub decompress: Capacity,
    /// CPU seconds per byte after decompression.
    pub decompress_cpu: f64,
}

/// A part with one of its codecs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commodity {
    /// Index in [`Graph::parts`].
    pub part: usize,
    /// Index in [`Part::codecs`]. `None` for uncompressed data.
    pub codec: Option<usize>,
}

/// The demand of a commodity on a member of a node, per source byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Seconds of a member with this number of flows.
    pub seconds: f64,
    /// CPU seconds.
    pub cpu: f64,
}

impl Graph {
    /// Returns the seconds before the first byte and after the last one. With several paths, the
    /// longest one counts.
    pub fn startup_seconds(&self) -> f64 {
        let paths = self.nodes.iter().filter_map(|node| match &node.capacity {
            Capacity::Path(path) => Some(path.rtt.as_secs_f64()),
            Capacity::Flows(_) => None,
        });
        self.startup + self.round_trips * paths.fold(0.0, f64::max)
    }

    /// Returns every part with each of its codecs and without one. Omits codecs if the graph has no
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

    /// Returns a part's share of the dataset's bytes, 0 to 1.
    pub fn weight(&self, part: usize) -> f64 {
        let all: f64 = self.parts.iter().map(|part| part.bytes).sum();
        self.parts[part].bytes / all
    }

    /// Returns the codec of a commodity, or `None` for uncompressed data.
    pub fn codec_of(&self, commodity: Commodity) -> Option<&PartCodec> {
        Some(&self.parts[commodity.part].codecs[commodity.codec?])
    }

    /// Returns the demand of a commodity on a node whose members have `flows` flows. `compressed`
    /// is true if the node lies between compression and decompression
    /// ([`Graph::compressed_nodes`]).
    pub fn demand(&self, node: usize, compressed: bool, it: Commodity, flows: u32) -> Demand {
        let part = &self.parts[it.part];
        let node = &self.nodes[node];
        let (capacity, cpu) = match (node.kind, self.codec_of(it)) {
            // Uncompressed data bypass the node.
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

    /// Returns for each node true if its data are compressed: it is behind a compressing node and
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

    /// Returns the graph with the capacity of a node multiplied by a factor greater than zero. For
    /// a compressing or decompressing node, the capacities of all codecs are multiplied.
    #[must_use]
    pub fn faster(mut self, at: usize, factor: f64) -> Graph {
        let kind = self.nodes[at].kind;
        let node = &mut self.nodes[at];
        node.capacity = node.capacity.scaled(factor);
        node.seconds_per_file /= factor;
        for codec in self.parts.iter_mut().flat_map(|part| &mut part.codecs) {
            match kind {
                NodeKind::Compress => codec.compress = codec.compress.scaled(factor),
                NodeKind::Decompress => codec.decompress = codec.decompress.scaled(factor),
                _ => {}
            }
        }
        self
    }

    /// Returns the nodes in topological order, or `None` if there is a cycle.
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
