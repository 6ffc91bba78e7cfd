//! Names of bottlenecks. The summary of a copy and a plan use the same names.

use std::fmt;

use crate::capacity::{Capacity, PathCapacity};
use crate::control::Bound;
use crate::graph::{Graph, NodeKind};
use crate::optimise::prices::Constraint;

/// A bottleneck of a transfer: a layer of the mover, or a resource below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// Listing the source.
    Walk,
    /// Reading the source.
    Read,
    /// A command that files pass, at either end.
    Filter,
    /// Compressing.
    Compress,
    /// Sealing and sending: the threads of the streams, or the resources that they wait for.
    Wire,
    /// Opening received data.
    Open,
    /// Decompressing and verifying.
    Decompress,
    /// Writing.
    Write,
    /// Making files durable and naming them.
    Commit,
    /// Commands for received files.
    OnCommit,
    /// The path is full.
    Path,
    /// The windows of the streams are limited by a kernel's buffer, or are smaller than the path
    /// requires.
    Window,
    /// Loss keeps the windows small.
    Loss,
    /// The cores of a host.
    Cores,
    /// A host's memory for blocks.
    Memory,
    /// A requested rate.
    Rate,
}

impl Limit {
    /// The layers of the mover, in the order in which data pass them.
    pub const LAYERS: [Limit; 10] = [
        Limit::Walk,
        Limit::Read,
        Limit::Filter,
        Limit::Compress,
        Limit::Wire,
        Limit::Open,
        Limit::Decompress,
        Limit::Write,
        Limit::Commit,
        Limit::OnCommit,
    ];

    /// The bottlenecks that are not layers.
    const OTHERS: [Limit; 6] = [
        Limit::Path,
        Limit::Window,
        Limit::Loss,
        Limit::Cores,
        Limit::Memory,
        Limit::Rate,
    ];

    /// Returns the name used in summaries, plans, JSON and histories.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Walk => "walk",
            Limit::Read => "read",
            Limit::Filter => "filter",
            Limit::Compress => "compress",
            Limit::Wire => "wire",
            Limit::Open => "open",
            Limit::Decompress => "decompress",
            Limit::Write => "write",
            Limit::Commit => "commit",
            Limit::OnCommit => "on-commit",
            Limit::Path => "path",
            Limit::Window => "window",
            Limit::Loss => "loss",
            Limit::Cores => "cores",
            Limit::Memory => "memory",
            Limit::Rate => "bwlimit",
        }
    }

    /// Returns the bottleneck with this name.
    pub fn of_name(name: &str) -> Option<Limit> {
        let all = Limit::LAYERS.into_iter().chain(Limit::OTHERS);
        all.into_iter().find(|limit| limit.name() == name)
    }

    /// Returns the bottleneck of a fully utilised layer. For the threads of the streams, the
    /// bottleneck observed by the controller is more specific.
    pub fn of_layer(layer: &str, streams: Option<Bound>) -> Option<Limit> {
        let layer = Limit::of_name(layer)?;
        if !matches!(layer, Limit::Wire | Limit::Open) {
            return Some(layer);
        }
        Some(match streams {
            Some(Bound::Path) => Limit::Path,
            Some(Bound::SendBuffer | Bound::ReceiveBuffer | Bound::Window) => Limit::Window,
            Some(Bound::Loss) => Limit::Loss,
            Some(Bound::Processor) => Limit::Cores,
            _ => layer,
        })
    }

    /// Returns the bottleneck for a constraint of a graph with `streams` flows in its paths.
    pub fn of_constraint(graph: &Graph, constraint: Constraint, streams: u32) -> Option<Limit> {
        let node = match constraint {
            Constraint::Node(node) => &graph.nodes[node],
            Constraint::Cores(_) => return Some(Limit::Cores),
            Constraint::Memory(_) => return Some(Limit::Memory),
        };
        match (node.kind, &node.capacity) {
            (NodeKind::Path, Capacity::Path(path)) => Some(of_path(path, streams)),
            (NodeKind::Path | NodeKind::Nic, _) => Some(Limit::Path),
            (NodeKind::Compress, _) => Some(Limit::Compress),
            (NodeKind::Decompress, _) => Some(Limit::Decompress),
            // The threads of the streams do the sealing.
            _ if node.name == "seal" => Some(Limit::Wire),
            _ => Limit::of_name(&node.name),
        }
    }
}

/// Returns the bottleneck of this number of streams on a path.
fn of_path(path: &PathCapacity, streams: u32) -> Limit {
    if path.at(streams) >= path.most() * 0.999 {
        return Limit::Path;
    }
    let without_loss = PathCapacity {
        loss: 0.0,
        ..path.clone()
    };
    if without_loss.of_one_stream() > path.of_one_stream() {
        Limit::Loss
    } else {
        Limit::Window
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::graph::Node;
    use crate::response::Congestion;

    #[test]
    fn every_bottleneck_has_a_unique_name() {
        for limit in Limit::LAYERS.into_iter().chain(Limit::OTHERS) {
            assert_eq!(Limit::of_name(limit.name()), Some(limit));
        }
        assert_eq!(Limit::of_name("digest"), None);
    }

    #[test]
    fn the_bottleneck_of_the_wire_is_that_of_the_controller() {
        let wire = |bound| Limit::of_layer("wire", bound);
        assert_eq!(wire(Some(Bound::Path)), Some(Limit::Path));
        assert_eq!(wire(Some(Bound::SendBuffer)), Some(Limit::Window));
        assert_eq!(wire(Some(Bound::Supply)), Some(Limit::Wire));
        assert_eq!(wire(None), Some(Limit::Wire));
        assert_eq!(
            Limit::of_layer("write", Some(Bound::Path)),
            Some(Limit::Write)
        );
    }

    #[test]
    fn a_path_is_full_or_its_windows_are_small() {
        let path = |loss| PathCapacity {
            path: 117e6,
            nic: f64::INFINITY,
            rtt: Duration::from_millis(100),
            window: crate::capacity::Window::of(2.9e6),
            loss,
            segment: 1448.0,
            congestion: Congestion::Cubic,
        };
        let limit = |loss, streams| {
            let mut graph = Graph::default();
            let capacity = Capacity::Path(path(loss));
            graph
                .nodes
                .push(Node::new("path", NodeKind::Path, capacity));
            Limit::of_constraint(&graph, Constraint::Node(0), streams)
        };
        assert_eq!(limit(0.0, 8), Some(Limit::Path));
        assert_eq!(limit(0.0, 2), Some(Limit::Window));
        assert_eq!(limit(1e-3, 2), Some(Limit::Loss));
    }
}
