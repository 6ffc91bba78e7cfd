//! Checks that a graph can be solved.

use std::collections::BTreeSet;
use std::fmt;

use super::{Graph, Node, NodeKind, Part};
use crate::capacity::Capacity;

/// Reasons why a graph cannot be solved.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphError {
    /// The edges form a cycle.
    Cycle {
        /// A node of the cycle.
        node: String,
    },
    /// An edge, a host or a group refers to an unknown node or host.
    Unknown {
        /// Description of the reference.
        by: String,
    },
    /// Two nodes, hosts or parts have the same name.
    Twice {
        /// The duplicate name.
        name: String,
    },
    /// The number of starts or ends is not one.
    Ends {
        /// Kind of the node: start or end.
        kind: NodeKind,
        /// Number of such nodes.
        count: usize,
    },
    /// No path leads from the start to this node, or from this node to the end.
    Apart {
        /// Name of the node.
        node: String,
    },
    /// Some paths through the graph pass a compressing node and others do not.
    Mixed {
        /// Name of the node where the paths meet.
        node: String,
    },
    /// A quantity is negative, missing or not a number.
    Quantity {
        /// Name of the node, host or part.
        of: String,
        /// The quantity and its range.
        what: String,
    },
    /// The graph has no parts to move.
    Empty,
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraphError::Cycle { node } => write!(
                f,
                "the edges form a cycle through node \"{node}\": remove one of them"
            ),
            GraphError::Unknown { by } => {
                write!(
                    f,
                    "{by} refers to an unknown name: define it, or correct the name"
                )
            }
            GraphError::Twice { name } => {
                write!(f, "\"{name}\" is defined twice: rename one")
            }
            GraphError::Ends { kind, count } => {
                write!(
                    f,
                    "there are {count} nodes of kind {kind:?}: there must be exactly one"
                )
            }
            GraphError::Apart { node } => write!(
                f,
                "node \"{node}\" is not on a path from the start to the end: connect it with edges, \
                or remove it"
            ),
            GraphError::Mixed { node } => write!(
                f,
                "compressed and uncompressed paths meet at node \"{node}\": lead all of them through \
                the compressing node, which can pass data uncompressed"
            ),
            GraphError::Quantity { of, what } => write!(f, "\"{of}\": {what}"),
            GraphError::Empty => f.write_str("there is no part to move: add one with its bytes"),
        }
    }
}

impl std::error::Error for GraphError {}

impl Graph {
    /// Checks that the graph can be solved.
    ///
    /// # Errors
    ///
    /// The first fault found, with its remedy.
    pub fn check(&self) -> Result<(), GraphError> {
        self.check_places()?;
        self.check_names()?;
        for node in &self.nodes {
            check_node(node)?;
        }
        for host in &self.hosts {
            quantity(
                &host.name,
                "cores must be greater than zero",
                host.cores > 0.0,
            )?;
            quantity(
                &host.name,
                "memory must be greater than zero",
                host.memory > 0.0,
            )?;
        }
        quantity(
            "startup",
            "it must be zero or more",
            self.startup.is_finite() && self.startup >= 0.0,
        )?;
        quantity(
            "round_trips",
            "it must be zero or more",
            self.round_trips.is_finite() && self.round_trips >= 0.0,
        )?;
        if self.parts.is_empty() {
            return Err(GraphError::Empty);
        }
        for part in &self.parts {
            check_part(part)?;
        }
        self.check_ways()
    }

    fn check_places(&self) -> Result<(), GraphError> {
        let known = |place: usize| place < self.nodes.len();
        let unknown = |by: String| Err(GraphError::Unknown { by });
        for (number, &(from, to)) in self.edges.iter().enumerate() {
            if !known(from) || !known(to) {
                return unknown(format!("edge {}", number + 1));
            }
        }
        for node in &self.nodes {
            if node.host.is_some_and(|host| host >= self.hosts.len()) {
                return unknown(format!("the host of node \"{}\"", node.name));
            }
        }
        if !self.tied.iter().flatten().all(|&place| known(place)) {
            return unknown("a group of tied nodes".to_owned());
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let mut of = node.flows_of.iter();
            if !of
                .all(|&place| known(place) && place != at && self.nodes[place].flows_of.is_empty())
            {
                return unknown(format!("\"flows of\" of node \"{}\"", node.name));
            }
            let one = node.flows_of.is_empty() || node.members == 1;
            quantity(
                &node.name,
                "a node with the flows of other nodes must have one member",
                one,
            )?;
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), GraphError> {
        let nodes = self.nodes.iter().map(|node| ("node", &node.name));
        let hosts = self.hosts.iter().map(|host| ("host", &host.name));
        let parts = self.parts.iter().map(|part| ("part", &part.name));
        let mut seen = BTreeSet::new();
        for (kind, name) in nodes.chain(hosts).chain(parts) {
            if !seen.insert((kind, name)) {
                return Err(GraphError::Twice { name: name.clone() });
            }
        }
        Ok(())
    }

    fn check_ways(&self) -> Result<(), GraphError> {
        for kind in [NodeKind::Start, NodeKind::End] {
            let count = self.nodes.iter().filter(|node| node.kind == kind).count();
            if count != 1 {
                return Err(GraphError::Ends { kind, count });
            }
        }
        let Some(order) = self.in_order() else {
            return Err(GraphError::Cycle {
                node: self.node_on_a_cycle(),
            });
        };
        let (mut from_start, mut to_end) = (vec![false; order.len()], vec![false; order.len()]);
        for &node in &order {
            let begins = self.nodes[node].kind == NodeKind::Start;
            let mut before = self.edges.iter().filter(|edge| edge.1 == node);
            from_start[node] = begins || before.any(|edge| from_start[edge.0]);
        }
        for &node in order.iter().rev() {
            let ends = self.nodes[node].kind == NodeKind::End;
            let mut behind = self.edges.iter().filter(|edge| edge.0 == node);
            to_end[node] = ends || behind.any(|edge| to_end[edge.1]);
        }
        if let Some(&node) = order
            .iter()
            .find(|&&node| !from_start[node] || !to_end[node])
        {
            return Err(GraphError::Apart {
                node: self.nodes[node].name.clone(),
            });
        }
        self.check_codecs(&order)
    }

    /// Checks that all paths to a node are compressed or all are not, and that they are not at the
    /// end.
    fn check_codecs(&self, order: &[usize]) -> Result<(), GraphError> {
        let compressed = self.compressed_nodes();
        for &node in order {
            let kind = self.nodes[node].kind;
            let mut before = self.edges.iter().filter(|edge| edge.1 == node);
            let out = |from: usize| match self.nodes[from].kind {
                NodeKind::Compress => true,
                NodeKind::Decompress => false,
                _ => compressed[from],
            };
            let arrives = before.clone().any(|edge| out(edge.0));
            let mixed = before.any(|edge| out(edge.0) != arrives);
            let wrong = match kind {
                NodeKind::End | NodeKind::Compress => arrives,
                NodeKind::Decompress => !arrives,
                _ => false,
            };
            if mixed || wrong {
                return Err(GraphError::Mixed {
                    node: self.nodes[node].name.clone(),
                });
            }
        }
        Ok(())
    }

    /// Returns a node that always has entering edges. The caller has found that there is a cycle.
    fn node_on_a_cycle(&self) -> String {
        let mut left: BTreeSet<usize> = (0..self.nodes.len()).collect();
        loop {
            let free = left.iter().copied().find(|node| {
                let mut entering = self.edges.iter().filter(|edge| edge.1 == *node);
                !entering.any(|edge| left.contains(&edge.0))
            });
            match free {
                Some(node) => left.remove(&node),
                None => break,
            };
        }
        left.first()
            .map_or_else(String::new, |&node| self.nodes[node].name.clone())
    }
}

fn quantity(of: &str, what: &str, is_right: bool) -> Result<(), GraphError> {
    if is_right {
        return Ok(());
    }
    Err(GraphError::Quantity {
        of: of.to_owned(),
        what: what.to_owned(),
    })
}

fn check_node(node: &Node) -> Result<(), GraphError> {
    let name = &node.name;
    quantity(
        name,
        "the number of members must be 1 or more",
        node.members >= 1,
    )?;
    quantity(
        name,
        "the least flows must be 1 or more, and not more than the most",
        (1..=node.most_flows).contains(&node.least_flows),
    )?;
    for (what, value) in [
        ("CPU per byte", node.cpu_per_byte),
        ("seconds per file", node.seconds_per_file),
        ("CPU per file", node.cpu_per_file),
        ("memory per flow", node.memory_per_flow),
    ] {
        let text = format!("{what} must be zero or more");
        quantity(name, &text, value.is_finite() && value >= 0.0)?;
    }
    quantity(
        name,
        "the uncertainty must be from 0 to less than 1",
        (0.0..1.0).contains(&node.uncertainty),
    )?;
    check_capacity(name, &node.capacity)
}

fn check_capacity(of: &str, capacity: &Capacity) -> Result<(), GraphError> {
    match capacity {
        Capacity::Flows(form) => form.check().map_err(|what| GraphError::Quantity {
            of: of.to_owned(),
            what: what.to_owned(),
        }),
        Capacity::Path(path) => {
            quantity(
                of,
                "the path's rate must be greater than zero",
                path.path > 0.0,
            )?;
            quantity(
                of,
                "the NIC's rate must be greater than zero",
                path.nic > 0.0,
            )?;
            quantity(
                of,
                "loss must be from 0 to less than 1",
                (0.0..1.0).contains(&path.loss),
            )?;
            quantity(
                of,
                "the window must be greater than zero",
                path.window.likely > 0.0,
            )?;
            quantity(
                of,
                "the least window must be greater than zero, and no more than the window",
                path.window.least > 0.0 && path.window.least <= path.window.likely,
            )?;
            quantity(
                of,
                "a segment must be greater than zero",
                path.segment > 0.0,
            )
        }
    }
}

fn check_part(part: &Part) -> Result<(), GraphError> {
    let finite = |value: f64| value.is_finite() && value > 0.0;
    quantity(
        &part.name,
        "its bytes must be greater than zero",
        finite(part.bytes),
    )?;
    quantity(
        &part.name,
        "its files must be 1 or more",
        part.files.is_finite() && part.files >= 1.0,
    )?;
    for codec in &part.codecs {
        let of = format!("{} with {}", part.name, codec.name);
        quantity(
            &of,
            "its ratio must be greater than zero",
            finite(codec.ratio),
        )?;
        let cpu = [codec.compress_cpu, codec.decompress_cpu];
        let right = cpu.iter().all(|value| value.is_finite() && *value >= 0.0);
        quantity(&of, "its CPU per byte must be zero or more", right)?;
        check_capacity(&of, &codec.compress)?;
        check_capacity(&of, &codec.decompress)?;
    }
    Ok(())
}
