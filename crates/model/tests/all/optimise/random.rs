//! Random graphs that are small enough for an exhaustive search.

use longhaul_model::capacity::{Capacity, FlowCapacity};
use longhaul_model::graph::{Graph, Host, Node, NodeKind, Part, PartCodec};
use longhaul_model::optimise::{Bound, best_rate, solve};
use longhaul_units::Random;

use super::brute;

/// A generator of random graphs. A printed seed reproduces its graph.
pub struct Chance(Random);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        // Spreads consecutive seeds and separates them from those of other tests.
        let spread = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Chance(Random::new(spread ^ 0x5851_f42d_4c95_7f2d))
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        self.0.below(u64::from(bound)) as u32
    }

    pub fn one_in(&mut self, bound: u32) -> bool {
        self.below(bound) == 0
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.fraction()
    }
}

fn form(chance: &mut Chance) -> Capacity {
    let rate = chance.between(0.2e6, 4e6);
    Capacity::Flows(match chance.below(6) {
        0 => FlowCapacity::Constant { rate },
        1 => FlowCapacity::Falling {
            alpha: rate * 3.0,
            gamma: chance.between(0.0, 3.0),
        },
        2 => FlowCapacity::Saturating {
            alpha: rate * 2.0,
            gamma: chance.between(0.1, 3.0),
        },
        3 => FlowCapacity::Linear {
            alpha: rate,
            gamma: chance.between(-0.1e6, 0.3e6),
            most: 1 + chance.below(4),
        },
        4 => FlowCapacity::Quadratic {
            a: 0.0,
            b: rate,
            c: -rate * chance.between(0.1, 0.4),
        },
        _ => FlowCapacity::Scalability {
            lambda: rate,
            sigma: chance.between(0.0, 0.4),
            kappa: chance.between(0.0, 0.2),
        },
    })
}

fn codec(chance: &mut Chance, number: u32) -> PartCodec {
    let computation = |chance: &mut Chance| {
        Capacity::Flows(FlowCapacity::Linear {
            alpha: chance.between(0.2e6, 3e6),
            gamma: 0.0,
            most: 4,
        })
    };
    PartCodec {
        name: format!("codec {number}"),
        ratio: chance.between(0.9, 6.0),
        compress: computation(chance),
        compress_cpu: if chance.one_in(2) {
            chance.between(0.0, 1e-6)
        } else {
            0.0
        },
        decompress: computation(chance),
        decompress_cpu: 0.0,
    }
}

fn node(chance: &mut Chance, name: &str, kind: NodeKind, members: u32) -> Node {
    let mut node = Node::new(name, kind, form(chance));
    node.members = members;
    node.most_flows = 1 + chance.below(3);
    node.same_flows = members > 1 && chance.one_in(3);
    node.host = Some(chance.below(2) as usize);
    if chance.one_in(2) {
        node.cpu_per_byte = chance.between(0.0, 0.8e-6);
    }
    if chance.one_in(3) {
        node.seconds_per_file = chance.between(0.0, 0.5);
        node.cpu_per_file = node.seconds_per_file * chance.between(0.0, 1.0);
    }
    if chance.one_in(4) {
        node.memory_per_flow = 1.0;
    }
    node
}

/// Returns a graph with disks, perhaps an adapter, computation, perhaps compression, and a path.
pub fn graph(chance: &mut Chance) -> Graph {
    let mut graph = Graph {
        hosts: ["sending", "receiving"]
            .map(|name| host(chance, name))
            .into(),
        ..Graph::default()
    };
    graph.nodes.push(logical("start", NodeKind::Start));
    let classes = 1 + chance.below(2);
    let disks: Vec<usize> = (1..=classes as usize).collect();
    for class in 0..classes {
        let members = if classes == 1 { 1 + chance.below(2) } else { 1 };
        let disk = node(chance, &format!("disk {class}"), NodeKind::Disk, members);
        graph.nodes.push(disk);
        graph.edges.push((0, graph.nodes.len() - 1));
    }
    let mut ends = disks.clone();
    for node in behind_disks(chance, &disks) {
        graph.nodes.push(node);
        let at = graph.nodes.len() - 1;
        graph.edges.extend(ends.iter().map(|&end| (end, at)));
        ends = vec![at];
    }
    for part in 0..1 + chance.below(2) {
        let bytes = chance.between(1e6, 100e6);
        graph.parts.push(Part {
            name: format!("part {part}"),
            bytes,
            files: chance.between(1.0, 50.0),
            codecs: (0..chance.below(3))
                .map(|number| codec(chance, number))
                .collect(),
        });
    }
    if chance.one_in(5) {
        let reading = graph.nodes.iter().position(|it| it.name == "read").unwrap();
        graph.tied.push([&disks[..], &[reading]].concat());
    }
    graph
}

/// Returns a graph with more components and flows than an exhaustive search could handle.
pub fn larger_graph(chance: &mut Chance) -> Graph {
    let mut graph = graph(chance);
    for node in &mut graph.nodes {
        if node.flows_of.is_empty() && !matches!(node.kind, NodeKind::Start | NodeKind::End) {
            node.members += chance.below(4);
            node.most_flows += chance.below(6);
        }
    }
    for host in &mut graph.hosts {
        if host.cores.is_finite() {
            host.cores *= 1.0 + chance.between(0.0, 5.0);
        }
        if host.memory.is_finite() {
            host.memory += f64::from(chance.below(30));
        }
    }
    graph
}

fn host(chance: &mut Chance, name: &str) -> Host {
    Host {
        name: name.to_owned(),
        cores: if chance.one_in(2) {
            chance.between(0.5, 4.0)
        } else {
            f64::INFINITY
        },
        memory: if chance.one_in(3) {
            f64::from(2 + chance.below(5))
        } else {
            f64::INFINITY
        },
    }
}

fn logical(name: &str, kind: NodeKind) -> Node {
    Node::new(name, kind, Capacity::Flows(FlowCapacity::Unlimited))
}

/// Returns the nodes after the disks, one behind the other.
fn behind_disks(chance: &mut Chance, disks: &[usize]) -> Vec<Node> {
    let mut nodes = Vec::new();
    if chance.one_in(2) {
        let mut channel = Node::new("channel", NodeKind::Channel, form(chance));
        channel.flows_of = disks.to_vec();
        nodes.push(channel);
    }
    let compresses = chance.one_in(2);
    nodes.push(node(chance, "read", NodeKind::Computation, 1));
    if compresses {
        nodes.push(node(chance, "compress", NodeKind::Compress, 1));
    }
    nodes.push(node(chance, "path", NodeKind::Path, 1));
    if compresses {
        nodes.push(node(chance, "decompress", NodeKind::Decompress, 1));
    }
    nodes.push(logical("end", NodeKind::End));
    nodes
}

/// Returns the number of graphs to search. `LONGHAUL_GRAPHS` can increase it.
fn graphs() -> u64 {
    let more = std::env::var("LONGHAUL_GRAPHS").ok();
    more.and_then(|text| text.parse().ok()).unwrap_or(5000)
}

#[test]
fn agrees_with_an_exhaustive_search() {
    agrees(0..graphs(), Bound::DEFAULT);
}

/// A search that ends at a limit reports how much better another choice may be.
#[test]
fn the_gap_at_a_limit_is_valid() {
    let mut open = [0, 0];
    let one_node = Bound {
        nodes: 1,
        ..Bound::DEFAULT
    };
    let little_work = Bound {
        work: 100_000,
        ..Bound::DEFAULT
    };
    for seed in 0..300 {
        let graph = larger_graph(&mut Chance::new(4_000_000 + seed));
        let (best, gap) = best_rate(&graph, Bound::DEFAULT).unwrap();
        assert_eq!(gap, 0.0, "seed {seed}");
        for (open, bound) in open.iter_mut().zip([one_node, little_work]) {
            let Ok((rate, gap)) = best_rate(&graph, bound) else {
                continue;
            };
            if rate <= 0.0 {
                assert!(gap > 0.0 || best <= 0.0, "seed {seed}");
                continue;
            }
            assert!(
                rate <= best * (1.0 + 1e-6) && rate * (1.0 + gap) >= best * (1.0 - 1e-6),
                "seed {seed}: {rate} with a gap of {gap}, {best}, {bound:?}"
            );
            *open += u32::from(gap > 0.0);
        }
    }
    assert!(open.iter().all(|&open| open > 3), "{open:?}");
}

fn agrees(seeds: std::ops::Range<u64>, bound: Bound) {
    let (mut limited, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        let graph = graph(&mut Chance::new(seed));
        let best = brute::search(&graph);
        if best.rate <= 0.0 {
            continue;
        }
        limited += 1;
        let found = solve(&graph, bound).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let near =
            |a: f64, b: f64, share: f64| (a - b).abs() <= share * a.abs().max(b.abs()) + 1e-6;
        assert!(
            near(found.rate, best.rate, 1e-4),
            "seed {seed}: {} instead of {}\n{graph:#?}",
            found.rate,
            best.rate
        );
        assert_eq!(found.gap, 0.0, "seed {seed}");
        assert!(
            found.cpu <= best.cpu * 1.002 + 1e-4,
            "seed {seed}: CPU {} instead of {}",
            found.cpu,
            best.cpu
        );
        assert!(
            found.flows <= u64::from(best.flows),
            "seed {seed}: {} flows instead of {}\n{found:#?}\n{graph:#?}",
            found.flows,
            best.flows
        );
    }
    assert!(limited >= count * 9 / 10, "{limited}");
}
