//! Converts the contents of a file to a graph, and back.

use std::time::Duration;

use super::quantity::Quantity;
use super::written::{
    CapacityEntry, CodecEntry, GraphFile, HostEntry, KindEntry, NodeEntry, PartEntry, TcpEntry,
};
use crate::capacity::{Capacity, FlowCapacity, PACKET_HEADERS, PathCapacity, Window, framing_of};
use crate::graph::{Graph, GraphError, Host, Node, NodeKind, Part, PartCodec};
use crate::response::Congestion;

/// Maximum number of components, of hosts, of parts and of groups. People describe far fewer.
const MOST_ENTRIES: usize = 1000;

/// Maximum number of flows of a member, and of members of a class.
const MOST_COUNT: u32 = 100_000;

/// Minimum MTU of IPv4 (RFC 791).
const LEAST_MTU: u32 = 68;

/// A fault and the information to find its line.
pub struct Fault {
    /// Cause and remedy.
    pub text: String,
    /// Names in the line.
    pub names: Vec<String>,
    /// Keys of these names.
    pub keys: &'static [&'static str],
}

impl Fault {
    fn new(name: &str, keys: &'static [&'static str], text: String) -> Fault {
        Fault {
            text,
            names: vec![name.to_owned()],
            keys,
        }
    }

    fn whole(text: String) -> Fault {
        Fault {
            text,
            names: Vec::new(),
            keys: &[],
        }
    }

    /// Converts an error of the graph's own check.
    pub fn of(error: &GraphError) -> Fault {
        let text = error.to_string();
        match error {
            GraphError::Cycle { node: name }
            | GraphError::Apart { node: name }
            | GraphError::Mixed { node: name }
            | GraphError::Twice { name } => Fault::new(name, &["name"], text),
            GraphError::Quantity { of, .. } => {
                let part = of.split(" with ").next().unwrap_or(of);
                Fault {
                    text,
                    names: vec![of.clone(), part.to_owned()],
                    keys: &["name"],
                }
            }
            GraphError::Unknown { .. } | GraphError::Ends { .. } | GraphError::Empty => {
                Fault::whole(text)
            }
        }
    }
}

/// Converts the contents of a file to a graph, without checking it.
pub fn graph(file: GraphFile) -> Result<Graph, Fault> {
    let many = [file.host.len(), file.node.len(), file.part.len()];
    let tied = [file.tied.len(), file.tied.iter().map(Vec::len).sum()];
    if many
        .into_iter()
        .chain(tied)
        .any(|count| count > MOST_ENTRIES)
    {
        return Err(Fault::whole(format!(
            "it has more than {MOST_ENTRIES} entries of a kind: combine equal ones with \
            \"members\""
        )));
    }
    let names: Vec<String> = file.node.iter().map(|node| node.name.clone()).collect();
    let hosts: Vec<String> = file.host.iter().map(|host| host.name.clone()).collect();
    let edges = edges(&file.node, &names)?;
    let nodes = file
        .node
        .into_iter()
        .map(|node| of_node(node, &names, &hosts))
        .collect::<Result<_, _>>()?;
    let group = |group: &Vec<String>| places(group, &names, "tied", &["tied"]);
    Ok(Graph {
        hosts: file.host.into_iter().map(of_host).collect(),
        nodes,
        edges,
        parts: file
            .part
            .into_iter()
            .map(of_part)
            .collect::<Result<_, _>>()?,
        tied: file.tied.iter().map(group).collect::<Result<_, _>>()?,
        startup: file.startup.map_or(0.0, |it| it.value),
        round_trips: file.round_trips.unwrap_or(0.0),
    })
}

fn edges(nodes: &[NodeEntry], names: &[String]) -> Result<Vec<(usize, usize)>, Fault> {
    let mut edges = Vec::new();
    for (from, node) in nodes.iter().enumerate() {
        for to in places(&node.to, names, "to", &["to"])? {
            if edges.contains(&(from, to)) {
                let text = format!(
                    "node \"{}\" leads to \"{}\" twice: remove one",
                    node.name, names[to]
                );
                return Err(Fault::new(&node.name, &["name"], text));
            }
            edges.push((from, to));
        }
    }
    Ok(edges)
}

/// Returns the indices of named nodes.
fn places(
    wanted: &[String],
    names: &[String],
    key: &str,
    keys: &'static [&'static str],
) -> Result<Vec<usize>, Fault> {
    let place = |name: &String| {
        names.iter().position(|it| it == name).ok_or_else(|| {
            let text = format!(
                "\"{key}\" names node \"{name}\", which does not exist: {}",
                meant(name, names)
            );
            Fault::new(name, keys, text)
        })
    };
    wanted.iter().map(place).collect()
}

/// Returns the remedy for an unknown name.
fn meant(name: &str, names: &[String]) -> String {
    let lower = name.to_lowercase();
    let alike = names.iter().find(|it| {
        let it = it.to_lowercase();
        it.contains(&lower) || lower.contains(&it)
    });
    match alike {
        Some(alike) => format!("define it, or write \"{alike}\""),
        None => "define it, or fix the name".to_owned(),
    }
}

fn of_host(host: HostEntry) -> Host {
    Host {
        name: host.name,
        cores: host.cores.unwrap_or(f64::INFINITY),
        memory: host.memory.map_or(f64::INFINITY, |it| it.value),
    }
}

fn kind(entry: KindEntry) -> NodeKind {
    match entry {
        KindEntry::Start => NodeKind::Start,
        KindEntry::Disk => NodeKind::Disk,
        KindEntry::Channel => NodeKind::Channel,
        KindEntry::Computation => NodeKind::Computation,
        KindEntry::Compress => NodeKind::Compress,
        KindEntry::Decompress => NodeKind::Decompress,
        KindEntry::Nic => NodeKind::Nic,
        KindEntry::Path => NodeKind::Path,
        KindEntry::End => NodeKind::End,
    }
}

fn of_node(entry: NodeEntry, names: &[String], hosts: &[String]) -> Result<Node, Fault> {
    let kind = kind(entry.kind);
    let host = match &entry.host {
        Some(host) => Some(hosts.iter().position(|it| it == host).ok_or_else(|| {
            let text = format!(
                "\"host\" names \"{host}\", which does not exist: {}",
                meant(host, hosts)
            );
            Fault::new(host, &["host"], text)
        })?),
        None => None,
    };
    let most_flows = entry.most_flows.unwrap_or(entry.least_flows);
    let counts = [entry.members, entry.least_flows, most_flows];
    if counts.iter().any(|count| !(1..=MOST_COUNT).contains(count))
        || most_flows < entry.least_flows
    {
        let text = format!(
            "node \"{}\": \"members\" and flows go from 1 to {MOST_COUNT}, and \"least_flows\" is \
             not above \"most_flows\"",
            entry.name
        );
        return Err(Fault::new(&entry.name, &["name"], text));
    }
    refuse_without_effect(&entry, kind)?;
    let flows_of = places(&entry.flows_of, names, "flows_of", &["flows_of"])?;
    let given = match entry.capacity {
        Some(capacity) => Some(capacity_of(&entry.name, capacity)?),
        None => None,
    };
    let mut node = Node::new(
        &entry.name,
        kind,
        given
            .clone()
            .unwrap_or(Capacity::Flows(FlowCapacity::Unlimited)),
    );
    let carries_by_codec = node.is_passed_by_plain();
    if given.is_none() && !node.is_logical() && !carries_by_codec {
        let text = format!(
            "node \"{}\" has no capacity: give it one, or capacity = \"unlimited\" if it has \
            no limit",
            entry.name
        );
        return Err(Fault::new(&entry.name, &["name"], text));
    }
    if given.is_some() && (node.is_logical() || carries_by_codec) {
        let text = format!(
            "node \"{}\" must not have a capacity: codecs have their own, start and end have none",
            entry.name
        );
        return Err(Fault::new(&entry.name, &["name"], text));
    }
    node.host = host;
    node.members = entry.members;
    node.same_flows = entry.same_flows;
    (node.least_flows, node.most_flows) = (entry.least_flows, most_flows);
    node.flows_of = flows_of;
    node.uncertainty = entry.uncertainty.map_or(0.0, |it| it.value);
    node.cpu_per_byte = entry.cpu.map_or(0.0, |it| it.value);
    node.seconds_per_file = entry.time_per_file.map_or(0.0, |it| it.value);
    node.cpu_per_file = entry.cpu_per_file.map_or(0.0, |it| it.value);
    node.memory_per_flow = entry.memory_per_flow.map_or(0.0, |it| it.value);
    Ok(node)
}

/// Returns an error for a field that has no effect on a node of its kind.
fn refuse_without_effect(entry: &NodeEntry, kind: NodeKind) -> Result<(), Fault> {
    let is_logical = matches!(kind, NodeKind::Start | NodeKind::End);
    let is_by_codec = matches!(kind, NodeKind::Compress | NodeKind::Decompress);
    let has_others = !entry.flows_of.is_empty();
    let is_one = entry.members == 1;
    let costs = entry.cpu.is_some()
        || entry.cpu_per_file.is_some()
        || entry.time_per_file.is_some()
        || entry.memory_per_flow.is_some();
    let has_flows = entry.least_flows != 1 || entry.most_flows.is_some();
    let without = [
        (
            is_by_codec && entry.cpu.is_some(),
            "cpu",
            "the codecs of parts have \"compress_cpu\" and \"decompress_cpu\"",
        ),
        (
            is_logical && costs,
            "costs",
            "a start or an end takes no time",
        ),
        (
            is_logical && (has_flows || has_others || !is_one || entry.same_flows),
            "flows",
            "a start or an end has none",
        ),
        (
            is_logical && entry.uncertainty.is_some(),
            "uncertainty",
            "a start or an end has no capacity",
        ),
        (
            is_logical && entry.host.is_some(),
            "host",
            "a start or an end uses no host",
        ),
        (
            has_others && has_flows,
            "least_flows and most_flows",
            "its flows are those of the nodes in \"flows_of\"",
        ),
        (
            is_one && entry.same_flows,
            "same_flows",
            "it has one member",
        ),
        (
            entry.memory_per_flow.is_some() && entry.host.is_none(),
            "memory_per_flow",
            "it has no host whose memory it uses",
        ),
    ];
    match without.iter().find(|it| it.0) {
        Some((_, field, because)) => {
            let text = format!(
                "node \"{}\": \"{field}\" has no effect, because {because}: remove it",
                entry.name
            );
            Err(Fault::new(&entry.name, &["name"], text))
        }
        None => Ok(()),
    }
}

/// Returns the rate of TCP payload on an Ethernet line: 0.9415 of the line rate at an MTU of 1500.
fn payload_of_line(of: &str, rate: f64, mtu: u32) -> Result<f64, Fault> {
    if mtu < LEAST_MTU {
        let text = format!("\"{of}\": an MTU must be at least {LEAST_MTU} bytes");
        return Err(Fault::new(of, &["name"], text));
    }
    Ok(rate * framing_of(f64::from(mtu - PACKET_HEADERS)))
}

fn capacity_of(of: &str, entry: CapacityEntry) -> Result<Capacity, Fault> {
    let form = match entry {
        CapacityEntry::Unlimited => FlowCapacity::Unlimited,
        CapacityEntry::Constant { rate } => FlowCapacity::Constant { rate: rate.value },
        CapacityEntry::Line { rate, mtu } => FlowCapacity::Constant {
            rate: payload_of_line(of, rate.value, mtu)?,
        },
        CapacityEntry::Falling { alpha, gamma } => FlowCapacity::Falling {
            alpha: alpha.value,
            gamma,
        },
        CapacityEntry::Saturating { alpha, gamma } => FlowCapacity::Saturating {
            alpha: alpha.value,
            gamma,
        },
        CapacityEntry::Linear { alpha, gamma, most } => FlowCapacity::Linear {
            alpha: alpha.value,
            gamma: gamma.value,
            most,
        },
        CapacityEntry::Quadratic { a, b, c } => FlowCapacity::Quadratic {
            a: a.value,
            b: b.value,
            c: c.value,
        },
        CapacityEntry::Scalability {
            lambda,
            sigma,
            kappa,
        } => FlowCapacity::Scalability {
            lambda: lambda.value,
            sigma,
            kappa,
        },
        CapacityEntry::Table { rates } => {
            FlowCapacity::Tabulated(rates.iter().map(|rate| rate.value).collect())
        }
        CapacityEntry::Tcp(path) => return path_of(of, path).map(Capacity::Path),
    };
    Ok(Capacity::Flows(form))
}

fn path_of(of: &str, entry: TcpEntry) -> Result<PathCapacity, Fault> {
    let line = entry
        .line
        .map(|line| payload_of_line(of, line.value, entry.mtu));
    let path = match (line, entry.payload) {
        (Some(line), None) => line?,
        (None, Some(payload)) => {
            payload_of_line(of, 0.0, entry.mtu)?;
            payload.value
        }
        _ => {
            let text = format!(
                "the path of \"{of}\" needs \"line\", the line rate, or \"payload\", the rate of TCP \
                payload: give one of them"
            );
            return Err(Fault::new(of, &["name"], text));
        }
    };
    let congestion = Congestion::of_name(&entry.congestion);
    if !congestion.is_known() {
        let text = format!(
            "the path of \"{of}\": \"{}\" is no congestion control of Linux: write \"cubic\", \
            \"bbr\", \"reno\" or another one",
            entry.congestion
        );
        return Err(Fault::new(&entry.congestion, &["congestion"], text));
    }
    let likely = entry.window.map_or(f64::INFINITY, |it| it.value);
    Ok(PathCapacity {
        path,
        nic: entry.nic.map_or(f64::INFINITY, |it| it.value),
        rtt: Duration::try_from_secs_f64(entry.rtt.value).unwrap_or_default(),
        window: Window {
            likely,
            least: entry.least_window.map_or(likely, |it| it.value),
        },
        loss: entry.loss.map_or(0.0, |it| it.value),
        segment: f64::from(entry.mtu - PACKET_HEADERS),
        congestion,
    })
}

fn of_part(entry: PartEntry) -> Result<Part, Fault> {
    let codec = |codec: CodecEntry| {
        Ok(PartCodec {
            compress: capacity_of(&codec.name, codec.compress)?,
            decompress: capacity_of(&codec.name, codec.decompress)?,
            name: codec.name,
            ratio: codec.ratio,
            compress_cpu: codec.compress_cpu.map_or(0.0, |it| it.value),
            decompress_cpu: codec.decompress_cpu.map_or(0.0, |it| it.value),
        })
    };
    Ok(Part {
        name: entry.name,
        bytes: entry.bytes.value,
        files: entry.files,
        codecs: entry
            .codec
            .into_iter()
            .map(codec)
            .collect::<Result<_, Fault>>()?,
    })
}

/// Converts a graph to the contents of a file.
pub fn file(graph: &Graph) -> GraphFile {
    let name = |place: &usize| {
        graph
            .nodes
            .get(*place)
            .map_or_else(String::new, |node| node.name.clone())
    };
    let node = |(at, node): (usize, &Node)| NodeEntry {
        to: graph
            .edges
            .iter()
            .filter(|edge| edge.0 == at)
            .map(|edge| name(&edge.1))
            .collect(),
        flows_of: node.flows_of.iter().map(name).collect(),
        host: node
            .host
            .and_then(|host| graph.hosts.get(host))
            .map(|host| host.name.clone()),
        ..written_node(node)
    };
    GraphFile {
        startup: above_zero(graph.startup),
        round_trips: (graph.round_trips > 0.0).then_some(graph.round_trips),
        tied: graph
            .tied
            .iter()
            .map(|group| group.iter().map(name).collect())
            .collect(),
        host: graph.hosts.iter().map(written_host).collect(),
        node: graph.nodes.iter().enumerate().map(node).collect(),
        part: graph.parts.iter().map(written_part).collect(),
    }
}

fn above_zero<K>(value: f64) -> Option<Quantity<K>> {
    (value > 0.0).then(|| Quantity::new(value))
}

fn finite<K>(value: f64) -> Option<Quantity<K>> {
    value.is_finite().then(|| Quantity::new(value))
}

fn written_host(host: &Host) -> HostEntry {
    HostEntry {
        name: host.name.clone(),
        cores: host.cores.is_finite().then_some(host.cores),
        memory: finite(host.memory),
    }
}

/// Converts a node, except for its references to others.
fn written_node(node: &Node) -> NodeEntry {
    let has_capacity = !node.is_logical() && !node.is_passed_by_plain();
    NodeEntry {
        name: node.name.clone(),
        kind: match node.kind {
            NodeKind::Start => KindEntry::Start,
            NodeKind::Disk => KindEntry::Disk,
            NodeKind::Channel => KindEntry::Channel,
            NodeKind::Computation => KindEntry::Computation,
            NodeKind::Compress => KindEntry::Compress,
            NodeKind::Decompress => KindEntry::Decompress,
            NodeKind::Nic => KindEntry::Nic,
            NodeKind::Path => KindEntry::Path,
            NodeKind::End => KindEntry::End,
        },
        host: None,
        members: node.members,
        same_flows: node.same_flows,
        least_flows: node.least_flows,
        most_flows: (node.most_flows != node.least_flows).then_some(node.most_flows),
        flows_of: Vec::new(),
        to: Vec::new(),
        capacity: has_capacity.then(|| written_capacity(&node.capacity)),
        uncertainty: above_zero(node.uncertainty),
        cpu: above_zero(node.cpu_per_byte),
        time_per_file: above_zero(node.seconds_per_file),
        cpu_per_file: above_zero(node.cpu_per_file),
        memory_per_flow: above_zero(node.memory_per_flow),
    }
}

fn written_capacity(capacity: &Capacity) -> CapacityEntry {
    let form = match capacity {
        Capacity::Path(path) => return CapacityEntry::Tcp(written_path(path)),
        Capacity::Flows(form) => form,
    };
    match form {
        FlowCapacity::Unlimited => CapacityEntry::Unlimited,
        FlowCapacity::Constant { rate } => CapacityEntry::Constant {
            rate: Quantity::new(*rate),
        },
        FlowCapacity::Falling { alpha, gamma } => CapacityEntry::Falling {
            alpha: Quantity::new(*alpha),
            gamma: *gamma,
        },
        FlowCapacity::Saturating { alpha, gamma } => CapacityEntry::Saturating {
            alpha: Quantity::new(*alpha),
            gamma: *gamma,
        },
        FlowCapacity::Linear { alpha, gamma, most } => CapacityEntry::Linear {
            alpha: Quantity::new(*alpha),
            gamma: Quantity::new(*gamma),
            most: *most,
        },
        FlowCapacity::Quadratic { a, b, c } => CapacityEntry::Quadratic {
            a: Quantity::new(*a),
            b: Quantity::new(*b),
            c: Quantity::new(*c),
        },
        FlowCapacity::Scalability {
            lambda,
            sigma,
            kappa,
        } => CapacityEntry::Scalability {
            lambda: Quantity::new(*lambda),
            sigma: *sigma,
            kappa: *kappa,
        },
        FlowCapacity::Tabulated(rates) => CapacityEntry::Table {
            rates: rates.iter().map(|rate| Quantity::new(*rate)).collect(),
        },
    }
}

fn written_path(path: &PathCapacity) -> TcpEntry {
    let known = Window::of(path.window.likely);
    TcpEntry {
        line: None,
        payload: Some(Quantity::new(path.path)),
        nic: finite(path.nic),
        rtt: Quantity::new(path.rtt.as_secs_f64()),
        window: finite(path.window.likely),
        least_window: finite(path.window.least).filter(|_| path.window != known),
        loss: above_zero(path.loss),
        // A segment is a packet without its headers, so the result is a small integer.
        mtu: path.segment.round().max(0.0) as u32 + PACKET_HEADERS,
        congestion: path.congestion.name().to_owned(),
    }
}

fn written_part(part: &Part) -> PartEntry {
    let codec = |codec: &PartCodec| CodecEntry {
        name: codec.name.clone(),
        ratio: codec.ratio,
        compress: written_capacity(&codec.compress),
        decompress: written_capacity(&codec.decompress),
        compress_cpu: above_zero(codec.compress_cpu),
        decompress_cpu: above_zero(codec.decompress_cpu),
    };
    PartEntry {
        name: part.name.clone(),
        bytes: Quantity::new(part.bytes),
        files: part.files,
        codec: part.codecs.iter().map(codec).collect(),
    }
}
