//! What a graph's file has, as it is read and written; `docs/graph.md` describes it.

use serde::{Deserialize, Serialize};

use super::quantity::{OfCost, OfRate, OfShare, OfSize, OfTime, Quantity};

/// A whole file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphFile {
    /// Round trips and handshakes before the first byte and after the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Quantity<OfTime>>,
    /// Groups of nodes with one number of flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tied: Vec<Vec<String>>,
    /// Computers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostEntry>,
    /// Components.
    #[serde(default)]
    pub node: Vec<NodeEntry>,
    /// What is moved.
    #[serde(default)]
    pub part: Vec<PartEntry>,
}

/// A computer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    /// Its name.
    pub name: String,
    /// CPU seconds per second; absent where they do not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// For blocks; absent where it does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity<OfSize>>,
}

/// What a component is.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindEntry {
    /// Where data begin.
    Start,
    /// A storage device.
    Disk,
    /// What disks share.
    Channel,
    /// Work on data.
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
    /// Work with a smaller output.
    Compress,
    /// Its inverse.
    Decompress,
    /// A network card.
    Nic,
    /// Streams over a path.
    Path,
    /// Where data end.
    End,
}

/// A class of equal components.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Its name, once in a file.
    pub name: String,
    /// What it is.
    pub kind: KindEntry,
    /// Whose cores and memory it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How many equal ones there are.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub members: u32,
    /// All members that are used have the same number of flows.
    #[serde(default, skip_serializing_if = "is_false")]
    pub same_flows: bool,
    /// Flows of one member at least.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub least_flows: u32,
    /// Flows of one member at most; absent: as many as at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_flows: Option<u32>,
    /// Nodes whose flows are this one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows_of: Vec<String>,
    /// Where its data go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// What one member carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityEntry>,
    /// Half the width of the capacity's 95 % interval, as a share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertainty: Option<Quantity<OfShare>>,
    /// CPU time by bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity<OfCost>>,
    /// What a flow spends on each file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_per_file: Option<Quantity<OfTime>>,
    /// CPU time for each file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_per_file: Option<Quantity<OfTime>>,
    /// What each flow holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_per_flow: Option<Quantity<OfSize>>,
}

fn one() -> u32 {
    1
}

// serde asks by reference.
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
    /// Nothing limits it.
    Unlimited,
    /// The same for any number of flows.
    Constant {
        /// Of all flows together.
        rate: Quantity<OfRate>,
    },
    /// A line of the network: what TCP payload can carry of it.
    Line {
        /// Bits on the line.
        rate: Quantity<OfRate>,
        /// Bytes of an IP packet.
        mtu: u32,
    },
    /// α / (L + γ).
    Falling {
        /// Times flows.
        alpha: Quantity<OfRate>,
        /// Flows.
        gamma: f64,
    },
    /// αL / (L + γ).
    Saturating {
        /// What it approaches.
        alpha: Quantity<OfRate>,
        /// Flows.
        gamma: f64,
    },
    /// αn + γ up to `most` flows.
    Linear {
        /// Of each flow.
        alpha: Quantity<OfRate>,
        /// On top.
        #[serde(default = "nothing")]
        gamma: Quantity<OfRate>,
        /// Flows that still add something.
        most: u32,
    },
    /// a + bn + cn².
    Quadratic {
        /// Constant.
        a: Quantity<OfRate>,
        /// Of each flow.
        b: Quantity<OfRate>,
        /// Of each flow squared.
        c: Quantity<OfRate>,
    },
    /// λn / (1 + σ(n-1) + κn(n-1)).
    Scalability {
        /// Of one flow.
        lambda: Quantity<OfRate>,
        /// What is done in turn, 0 to 1.
        sigma: f64,
        /// What each pair costs.
        kappa: f64,
    },
    /// Entry n - 1 is the rate of n flows.
    Table {
        /// The rates.
        rates: Vec<Quantity<OfRate>>,
    },
    /// TCP streams over a path.
    Tcp(TcpEntry),
}

fn nothing() -> Quantity<OfRate> {
    Quantity::new(0.0)
}

/// TCP streams over a path. Its rate is `line`, of which headers take their part, or `payload`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpEntry {
    /// Bits on the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Quantity<OfRate>>,
    /// What TCP payload can carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Quantity<OfRate>>,
    /// Payload of the card in front of it; absent where another node stands for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<Quantity<OfRate>>,
    /// The least round trip.
    pub rtt: Quantity<OfTime>,
    /// What one stream has in flight at most; absent where nothing bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Quantity<OfSize>>,
    /// What that is at least; absent where it is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_window: Option<Quantity<OfSize>>,
    /// The share of segments that is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Quantity<OfShare>>,
    /// Bytes of an IP packet.
    #[serde(default = "ethernet")]
    pub mtu: u32,
    /// What governs the windows, as the kernel calls it.
    pub congestion: String,
}

/// Ethernet's, without jumbo frames.
fn ethernet() -> u32 {
    1500
}

/// Data of one kind.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartEntry {
    /// Its name.
    pub name: String,
    /// All of it.
    pub bytes: Quantity<OfSize>,
    /// Its files.
    pub files: f64,
    /// How it can be compressed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codec: Vec<CodecEntry>,
}

/// What one codec makes of a part.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecEntry {
    /// Its name and level.
    pub name: String,
    /// Bytes before by bytes after.
    pub ratio: f64,
    /// By flows, in bytes before.
    pub compress: CapacityEntry,
    /// By flows, in bytes after decompression.
    pub decompress: CapacityEntry,
    /// CPU time by bytes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compress_cpu: Option<Quantity<OfCost>>,
    /// CPU time by bytes after decompression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decompress_cpu: Option<Quantity<OfCost>>,
}
