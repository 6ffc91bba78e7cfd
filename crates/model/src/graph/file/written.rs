//! The contents of a graph's file; `docs/graph.md` describes them.

use serde::{Deserialize, Serialize};

use super::quantity::{OfCost, OfRate, OfShare, OfSize, OfTime, Quantity};

/// A whole file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphFile {
    /// Time in addition to the time for the bytes, without round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Quantity<OfTime>>,
    /// Number of round trips of the path before the first byte and after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<f64>,
    /// Groups of nodes with a common number of flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tied: Vec<Vec<String>>,
    /// Computers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostEntry>,
    /// Components.
    #[serde(default)]
    pub node: Vec<NodeEntry>,
    /// Data to move.
    #[serde(default)]
    pub part: Vec<PartEntry>,
}

/// A computer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    /// Name of the computer.
    pub name: String,
    /// CPU seconds per second. Absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// Memory for blocks. Absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity<OfSize>>,
}

/// The kinds of components.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindEntry {
    /// Origin of the data.
    Start,
    /// A storage device.
    Disk,
    /// A component that disks share.
    Channel,
    /// Computation on data.
    #[serde(
        alias = "walk",
        alias = "read",
        alias = "hash",
        alias = "seal",
        alias = "open",
        alias = "write",
        alias = "commit"
    )]
    Computation,
    /// Compression.
    Compress,
    /// Decompression.
    Decompress,
    /// A network card.
    Nic,
    /// Streams over a path.
    Path,
    /// Destination of the data.
    End,
}

/// A class of equal components.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Name, unique in the file.
    pub name: String,
    /// Kind of the component.
    pub kind: KindEntry,
    /// Host whose cores and memory the node uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Number of equal components.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub members: u32,
    /// True if all used members must have the same number of flows.
    #[serde(default, skip_serializing_if = "is_false")]
    pub same_flows: bool,
    /// Minimum number of flows of a member.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub least_flows: u32,
    /// Maximum number of flows of a member. Absent if equal to the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_flows: Option<u32>,
    /// Nodes whose flows pass this node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows_of: Vec<String>,
    /// Nodes that receive this node's data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Capacity of one member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityEntry>,
    /// Half the width of the capacity's 95 % interval, as a share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertainty: Option<Quantity<OfShare>>,
    /// CPU time per byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity<OfCost>>,
    /// Time that a flow spends on each file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_per_file: Option<Quantity<OfTime>>,
    /// CPU time per file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_per_file: Option<Quantity<OfTime>>,
    /// Memory that each flow holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_per_flow: Option<Quantity<OfSize>>,
}

fn one() -> u32 {
    1
}

// serde requires a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(value: &u32) -> bool {
    *value == 1
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

/// A capacity, by the name of its form.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CapacityEntry {
    /// No limit.
    Unlimited,
    /// The same rate for any number of flows.
    Constant {
        /// Rate of all flows together.
        rate: Quantity<OfRate>,
    },
    /// A network line, of which TCP payload uses a part.
    Line {
        /// Rate of the line.
        rate: Quantity<OfRate>,
        /// Bytes of an IP packet.
        mtu: u32,
    },
    /// α / (L + γ).
    Falling {
        /// α, in bytes per second times flows.
        alpha: Quantity<OfRate>,
        /// γ, in flows.
        gamma: f64,
    },
    /// αL / (L + γ).
    Saturating {
        /// Limit of the rate.
        alpha: Quantity<OfRate>,
        /// γ, in flows.
        gamma: f64,
    },
    /// αn + γ up to `most` flows.
    Linear {
        /// Rate of each flow.
        alpha: Quantity<OfRate>,
        /// Constant term.
        #[serde(default = "nothing")]
        gamma: Quantity<OfRate>,
        /// Number of flows up to which the rate rises.
        most: u32,
    },
    /// a + bn + cn².
    Quadratic {
        /// Constant term.
        a: Quantity<OfRate>,
        /// Coefficient of n.
        b: Quantity<OfRate>,
        /// Coefficient of n².
        c: Quantity<OfRate>,
    },
    /// λn / (1 + σ(n-1) + κn(n-1)).
    Scalability {
        /// Rate of one flow.
        lambda: Quantity<OfRate>,
        /// Serial share of the work, 0 to 1.
        sigma: f64,
        /// Cost of coordination for each pair of flows.
        kappa: f64,
    },
    /// Measured rates: entry n - 1 is the rate of n flows.
    Table {
        /// Rates by number of flows.
        rates: Vec<Quantity<OfRate>>,
    },
    /// TCP streams over a path.
    Tcp(TcpEntry),
}

fn nothing() -> Quantity<OfRate> {
    Quantity::new(0.0)
}

/// TCP streams over a path. Its rate is given as `line`, including headers, or as `payload`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpEntry {
    /// Rate of the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Quantity<OfRate>>,
    /// Rate of TCP payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Quantity<OfRate>>,
    /// Rate of payload of the network card. Absent if another node represents the card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<Quantity<OfRate>>,
    /// Least round-trip time.
    pub rtt: Quantity<OfTime>,
    /// Maximum bytes in flight of one stream. Absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Quantity<OfSize>>,
    /// Guaranteed bytes in flight of one stream. Absent if equal to `window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_window: Option<Quantity<OfSize>>,
    /// Share of segments that are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Quantity<OfShare>>,
    /// Bytes of an IP packet.
    #[serde(default = "ethernet")]
    pub mtu: u32,
    /// Kernel's name of the congestion control.
    pub congestion: String,
}

/// Returns the MTU of Ethernet without jumbo frames.
fn ethernet() -> u32 {
    1500
}

/// Data of one kind.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartEntry {
    /// Name of the part.
    pub name: String,
    /// Size of the part.
    pub bytes: Quantity<OfSize>,
    /// Number of files.
    pub files: f64,
    /// Possible codecs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codec: Vec<CodecEntry>,
}

/// The effect of one codec on a part.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecEntry {
    /// Name and level of the codec.
    pub name: String,
    /// Compression ratio: bytes before divided by bytes after.
    pub ratio: f64,
    /// Capacity by flows, in uncompressed bytes.
    pub compress: CapacityEntry,
    /// Capacity by flows, in bytes after decompression.
    pub decompress: CapacityEntry,
    /// CPU time per uncompressed byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compress_cpu: Option<Quantity<OfCost>>,
    /// CPU time per byte after decompression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decompress_cpu: Option<Quantity<OfCost>>,
}
