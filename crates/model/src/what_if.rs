//! Changes the hardware of a graph: `nic=40gbit,cores=16,disks=2,rtt=20ms,loss=0`.

use std::fmt;

use longhaul_units::{BitRate, ByteCount, parse_share, parse_span};

use crate::capacity::{Capacity, FlowCapacity, USUAL_FRAMING, Window};
use crate::graph::{Graph, NodeKind};

/// A change that is not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIfError {
    /// Text of the change.
    pub change: String,
    /// Cause and remedy.
    pub text: String,
}

impl fmt::Display for WhatIfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\": {}", self.change, self.text)
    }
}

impl std::error::Error for WhatIfError {}

/// Supported changes, for help and errors.
pub const KEYS: &str = "nic, rate, rtt, loss, window, cores, memory, disks, nics, and one host or \
                        node as cores.HOST, memory.HOST, members.NODE, flows.NODE";

/// Maximum number of components and flows, as in a file.
const MOST_COUNT: u32 = 100_000;

/// Returns the graph with changes, which are separated by commas.
///
/// # Errors
///
/// If a change is invalid, or no component of the graph has the changed property.
pub fn what_if(graph: &Graph, changes: &str) -> Result<Graph, WhatIfError> {
    let mut graph = graph.clone();
    for change in changes
        .split(',')
        .map(str::trim)
        .filter(|it| !it.is_empty())
    {
        let failed = |text: String| WhatIfError {
            change: change.to_owned(),
            text,
        };
        let (key, value) = change
            .split_once('=')
            .ok_or_else(|| failed(format!("write NAME=VALUE, where NAME is {KEYS}")))?;
        let changed = apply(&mut graph, key.trim(), value.trim()).map_err(failed)?;
        if changed == 0 {
            return Err(failed("the graph has no such component".to_owned()));
        }
    }
    Ok(graph)
}

/// Applies a change. Returns the number of components changed.
fn apply(graph: &mut Graph, key: &str, value: &str) -> Result<usize, String> {
    let (what, name) = match key.split_once('.') {
        Some((what, name)) => (what, Some(name)),
        None => (key, None),
    };
    match (what, name) {
        ("cores" | "memory", _) => of_hosts(graph, what, name, value),
        ("members" | "flows", Some(name)) => {
            let count = whole(value)?;
            let mut nodes = graph.nodes.iter_mut().filter(|node| node.name == name);
            let Some(node) = nodes.next() else {
                return Err(format!("there is no node \"{name}\""));
            };
            match what {
                "members" => node.members = count,
                _ => (node.least_flows, node.most_flows) = (count, count),
            }
            Ok(1)
        }
        ("disks" | "nics", None) => {
            let kind = if what == "disks" {
                NodeKind::Disk
            } else {
                NodeKind::Nic
            };
            let count = whole(value)?;
            let of_kind = graph.nodes.iter_mut().filter(|node| node.kind == kind);
            Ok(of_kind.map(|node| node.members = count).count())
        }
        ("nic" | "rate" | "rtt" | "loss" | "window", None) => of_network(graph, what, value),
        _ => Err(format!("write one of {KEYS}")),
    }
}

fn whole(text: &str) -> Result<u32, String> {
    let count: Option<u32> = text.parse().ok();
    count
        .filter(|count| (1..=MOST_COUNT).contains(count))
        .ok_or_else(|| format!("a count is a whole number from 1 to {MOST_COUNT}"))
}

fn of_hosts(
    graph: &mut Graph,
    what: &str,
    name: Option<&str>,
    value: &str,
) -> Result<usize, String> {
    let amount = match what {
        "cores" => {
            let cores: Option<f64> = value.parse().ok();
            let positive = cores.filter(|cores| cores.is_finite() && *cores > 0.0);
            positive.ok_or("cores must be a number greater than zero")?
        }
        _ => {
            let size: ByteCount = value.parse().map_err(|error| format!("{error}"))?;
            size.0 as f64
        }
    };
    let wanted = |host: &&mut crate::graph::Host| name.is_none_or(|name| host.name == name);
    let hosts = graph.hosts.iter_mut().filter(wanted);
    let count = hosts
        .map(|host| match what {
            "cores" => host.cores = amount,
            _ => host.memory = amount,
        })
        .count();
    match (count, name) {
        (0, Some(name)) => Err(format!("there is no host \"{name}\"")),
        _ => Ok(count),
    }
}

fn of_network(graph: &mut Graph, what: &str, value: &str) -> Result<usize, String> {
    let rate = |framing: f64| -> Result<f64, String> {
        let rate: BitRate = value.parse().map_err(|error| format!("{error}"))?;
        let payload = rate.bits_per_second() / 8.0 * framing;
        (payload > 0.0)
            .then_some(payload)
            .ok_or("a rate must be greater than zero".to_owned())
    };
    // A path has its own limit for the NICs only if no node represents them.
    let has_nics = graph.nodes.iter().any(|node| node.kind == NodeKind::Nic);
    let mut changed = 0;
    for node in &mut graph.nodes {
        match (&mut node.capacity, what) {
            (Capacity::Path(path), "rate") => path.path = rate(path.framing())?,
            (Capacity::Path(path), "nic") if !has_nics => path.nic = rate(path.framing())?,
            (Capacity::Path(path), "rtt") => {
                path.rtt = parse_span(value).map_err(|error| error.to_string())?;
            }
            (Capacity::Path(path), "loss") => {
                path.loss = parse_share(value).map_err(|error| error.to_string())?;
            }
            (Capacity::Path(path), "window") => {
                let size: ByteCount = value.parse().map_err(|error| format!("{error}"))?;
                path.window = Window::of(size.0 as f64);
            }
            (Capacity::Flows(FlowCapacity::Constant { rate: old }), "nic")
                if node.kind == NodeKind::Nic =>
            {
                *old = rate(USUAL_FRAMING)?;
            }
            (Capacity::Flows(FlowCapacity::Constant { rate: old }), "rate")
                if node.kind == NodeKind::Path =>
            {
                *old = rate(USUAL_FRAMING)?;
            }
            _ => continue,
        }
        changed += 1;
    }
    Ok(changed)
}
