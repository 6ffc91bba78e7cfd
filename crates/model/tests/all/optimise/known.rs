//! Tests with graphs whose optimum is known.

use longhaul_model::capacity::{Capacity, FlowCapacity};
use longhaul_model::graph::{Graph, GraphError, Node, NodeKind, Part};
use longhaul_model::optimise::{Bound, SolveError, best_rate, solve};

pub fn constant(rate: f64) -> Capacity {
    Capacity::Flows(FlowCapacity::Constant { rate })
}

pub fn part(bytes: f64, files: f64) -> Part {
    Part {
        name: "data".to_owned(),
        bytes,
        files,
        codecs: Vec::new(),
    }
}

/// Returns a chain: start, these nodes, end.
pub fn chain(nodes: Vec<Node>) -> Graph {
    let unlimited = || Capacity::Flows(FlowCapacity::Unlimited);
    let mut graph = Graph::default();
    graph
        .nodes
        .push(Node::new("start", NodeKind::Start, unlimited()));
    graph.nodes.extend(nodes);
    graph
        .nodes
        .push(Node::new("end", NodeKind::End, unlimited()));
    graph.edges = (1..graph.nodes.len()).map(|to| (to - 1, to)).collect();
    graph.parts.push(part(1e9, 1.0));
    graph
}

#[test]
fn the_smallest_capacity_is_the_rate() {
    let nodes = [300e6, 100e6, 200e6]
        .map(|rate| Node::new(&rate.to_string(), NodeKind::Disk, constant(rate)));
    let found = solve(&chain(nodes.into()), Bound::DEFAULT).unwrap();
    assert!((found.rate / 100e6 - 1.0).abs() < 1e-5, "{found:?}");
    assert!((found.seconds / 10.0 - 1.0).abs() < 1e-5);
    assert_eq!(found.flows, 3);
    assert!((found.nodes[2].utilisation - 1.0).abs() < 1e-4);
    assert!((found.nodes[1].utilisation - 1.0 / 3.0).abs() < 1e-4);
}

#[test]
fn a_graph_without_a_limit_is_an_error() {
    let free = Node::new(
        "free",
        NodeKind::Computation,
        Capacity::Flows(FlowCapacity::Unlimited),
    );
    assert_eq!(
        solve(&chain(vec![free]), Bound::DEFAULT),
        Err(SolveError::Unlimited)
    );
}

#[test]
fn invalid_graphs_are_rejected_with_their_fault() {
    let disk = || Node::new("disk", NodeKind::Disk, constant(1e6));
    let mut cycle = chain(vec![
        disk(),
        Node::new("read", NodeKind::Computation, constant(1e6)),
    ]);
    cycle.edges.push((2, 1));
    let error = |graph: &Graph| best_rate(graph, Bound::DEFAULT).unwrap_err().to_string();
    assert!(error(&cycle).contains("form a cycle"), "{}", error(&cycle));
    let mut unknown = chain(vec![disk()]);
    unknown.edges.push((0, 9));
    assert!(error(&unknown).contains("edge 3"));
    let mut twice = chain(vec![disk(), disk()]);
    assert_eq!(
        twice.check(),
        Err(GraphError::Twice {
            name: "disk".to_owned()
        })
    );
    twice.nodes[1].name = "other".to_owned();
    twice.nodes[1].cpu_per_byte = -1.0;
    assert!(error(&twice).contains("CPU per byte"));
    let mut apart = chain(vec![disk()]);
    apart
        .nodes
        .push(Node::new("alone", NodeKind::Nic, constant(1.0)));
    assert!(error(&apart).contains("alone"));
    let mut nothing = chain(vec![disk()]);
    nothing.parts.clear();
    assert!(error(&nothing).contains("no part"));
}
