//! The largest benchmark graph: 100 disks in three classes, 16 NICs, six layers, three parts.

use longhaul_model::capacity::{Capacity, FlowCapacity};
use longhaul_model::graph::{Graph, Host, Node, NodeKind, Part, PartCodec};
use longhaul_model::optimise::{Bound, best_rate};

fn linear(rate: f64, most: u32) -> Capacity {
    Capacity::Flows(FlowCapacity::Linear {
        alpha: rate,
        gamma: 0.0,
        most,
    })
}

// tidy: long because it lists the components of one graph.
pub fn large() -> Graph {
    let mut graph = Graph::default();
    for name in ["source", "destination"] {
        graph.hosts.push(Host {
            name: name.to_owned(),
            cores: 128.0,
            memory: 256e9,
        });
    }
    let unlimited = || Capacity::Flows(FlowCapacity::Unlimited);
    graph
        .nodes
        .push(Node::new("start", NodeKind::Start, unlimited()));
    let add = |graph: &mut Graph, mut node: Node, from: &[usize], host: Option<usize>| {
        node.host = host;
        graph.nodes.push(node);
        let at = graph.nodes.len() - 1;
        graph.edges.extend(from.iter().map(|&from| (from, at)));
        at
    };
    let mut disks = Vec::new();
    for (class, count) in [(0, 50), (1, 30), (2, 20)] {
        let form = FlowCapacity::Falling {
            alpha: 1e9 + 5e8 * f64::from(class),
            gamma: 2.0 + f64::from(class),
        };
        let mut disk = Node::new(
            &format!("disks {class}"),
            NodeKind::Disk,
            Capacity::Flows(form),
        );
        (disk.members, disk.most_flows) = (count, 4);
        disks.push(add(&mut graph, disk, &[0], None));
    }
    let layer = |graph: &mut Graph, name: &str, kind, capacity, most, cpu, from: &[usize], host| {
        let mut node = Node::new(name, kind, capacity);
        node.most_flows = most;
        node.cpu_per_byte = cpu;
        node.seconds_per_file = 1e-4;
        node.memory_per_flow = 64e6;
        add(graph, node, from, Some(host))
    };
    let read = layer(
        &mut graph,
        "read",
        NodeKind::Computation,
        linear(900e6, 64),
        64,
        0.2e-9,
        &disks,
        0,
    );
    let compress = layer(
        &mut graph,
        "compress",
        NodeKind::Compress,
        unlimited(),
        128,
        0.0,
        &[read],
        0,
    );
    let seal = layer(
        &mut graph,
        "seal",
        NodeKind::Computation,
        linear(2e9, 64),
        64,
        0.3e-9,
        &[compress],
        0,
    );
    let mut nics = Vec::new();
    for class in 0..2 {
        let rate = if class == 0 { 1.17e9 } else { 2.9e9 };
        let mut nic = Node::new(
            &format!("NICs {class}"),
            NodeKind::Nic,
            Capacity::Flows(FlowCapacity::Constant { rate }),
        );
        nic.members = 8;
        graph.nodes.push(nic);
        let at = graph.nodes.len() - 1;
        graph.edges.push((seal, at));
        nics.push(at);
    }
    let open = layer(
        &mut graph,
        "open",
        NodeKind::Computation,
        linear(2e9, 64),
        64,
        0.3e-9,
        &nics,
        1,
    );
    let decompress = layer(
        &mut graph,
        "decompress",
        NodeKind::Decompress,
        unlimited(),
        128,
        0.0,
        &[open],
        1,
    );
    let write = layer(
        &mut graph,
        "write",
        NodeKind::Computation,
        linear(1.2e9, 48),
        64,
        0.4e-9,
        &[decompress],
        1,
    );
    graph
        .nodes
        .push(Node::new("end", NodeKind::End, unlimited()));
    let end = graph.nodes.len() - 1;
    graph.edges.push((write, end));
    for (at, (bytes, files, ratio)) in [(40e12, 4e4, 2.5), (5e12, 5e6, 1.3), (1e12, 10.0, 8.0)]
        .into_iter()
        .enumerate()
    {
        graph.parts.push(Part {
            name: format!("part {at}"),
            bytes,
            files,
            codecs: vec![PartCodec {
                name: "zstd:1".to_owned(),
                ratio,
                compress: linear(500e6, 128),
                compress_cpu: 2e-9,
                decompress: linear(1500e6, 128),
                decompress_cpu: 0.7e-9,
            }],
        });
    }
    graph
}

#[test]
fn the_largest_benchmark_graph_is_solved_exactly() {
    let graph = large();
    let (rate, gap) = best_rate(&graph, Bound::DEFAULT).unwrap();
    assert_eq!(gap, 0.0);
    // All disks have one flow each: 50 × 333, 30 × 375 and 20 × 400 MB/s.
    assert!((rate / 35.9167e9 - 1.0).abs() < 1e-4, "{rate}");
}
