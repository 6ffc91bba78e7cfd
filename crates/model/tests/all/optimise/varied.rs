//! Random graphs of realistic size: up to 20 nodes, 100 members and 3 parts. Their optima are
//! compared with those of HiGHS, if it is installed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use longhaul_model::capacity::{Capacity, FlowCapacity, PathCapacity, Window};
use longhaul_model::graph::{Graph, Host, Node, NodeKind, Part, PartCodec};
use longhaul_model::optimise::{Bound, best_rate, rate_program};
use longhaul_model::response::Congestion;

use super::oracle::to_lp;
use super::random::Chance;

fn one_of<T: Copy>(chance: &mut Chance, values: &[T]) -> T {
    values[chance.below(values.len() as u32) as usize]
}

fn form(chance: &mut Chance, low: f64, high: f64, kind: u32) -> Capacity {
    let rate = chance.between(low, high) * 1e9;
    Capacity::Flows(match kind {
        0 => FlowCapacity::Constant { rate },
        1 => FlowCapacity::Falling {
            alpha: rate * 3.0,
            gamma: chance.between(0.0, 4.0),
        },
        2 => FlowCapacity::Saturating {
            alpha: rate * 2.0,
            gamma: chance.between(0.2, 4.0),
        },
        3 => FlowCapacity::Linear {
            alpha: rate / 2.0,
            gamma: 0.0,
            most: 1 + chance.below(16),
        },
        4 => FlowCapacity::Quadratic {
            a: 0.0,
            b: rate,
            c: -rate * chance.between(0.03, 0.3),
        },
        _ => FlowCapacity::Scalability {
            lambda: rate,
            sigma: chance.between(0.0, 0.4),
            kappa: chance.between(0.0, 0.1),
        },
    })
}

/// A graph under construction, layer by layer.
struct Layers {
    graph: Graph,
    ends: Vec<usize>,
}

impl Layers {
    fn add(&mut self, nodes: Vec<Node>) -> Vec<usize> {
        let first = self.graph.nodes.len();
        let places: Vec<usize> = (first..first + nodes.len()).collect();
        for &to in &places {
            self.graph
                .edges
                .extend(self.ends.iter().map(|&from| (from, to)));
        }
        self.graph.nodes.extend(nodes);
        self.ends.clone_from(&places);
        places
    }

    /// Adds nodes with the flows of others: one for all of them, or one for each.
    fn add_channels(&mut self, chance: &mut Chance, disks: &[usize], is_one: bool) {
        let groups: Vec<Vec<usize>> = if is_one {
            vec![disks.to_vec()]
        } else {
            disks.iter().map(|&disk| vec![disk]).collect()
        };
        let mut ends = Vec::new();
        for group in groups {
            let kind = one_of(chance, &[1, 0, 2, 1]);
            let capacity = form(chance, 0.3, 6.0, kind);
            let name = format!("channel {}", group[0]);
            let mut channel = Node::new(&name, NodeKind::Channel, capacity);
            channel.flows_of.clone_from(&group);
            let at = self.graph.nodes.len();
            self.graph
                .edges
                .extend(group.iter().map(|&from| (from, at)));
            self.graph.nodes.push(channel);
            ends.push(at);
        }
        self.ends = ends;
    }
}

fn disk(chance: &mut Chance, name: &str, members: u32) -> Node {
    let kind = chance.below(6);
    let mut disk = Node::new(name, NodeKind::Disk, form(chance, 0.05, 0.6, kind));
    disk.members = members;
    disk.most_flows = one_of(chance, &[1, 2, 4, 8, 16]);
    disk.same_flows = members > 1 && chance.one_in(5);
    if chance.one_in(2) {
        disk.seconds_per_file = chance.between(0.1e-3, 20e-3);
    }
    if chance.one_in(3) {
        disk.host = Some(0);
        disk.cpu_per_byte = chance.between(0.05e-9, 1e-9);
    }
    disk
}

fn layer(chance: &mut Chance, name: &str, kind: NodeKind, host: usize) -> Node {
    let form_kind = chance.below(6);
    let mut node = Node::new(name, kind, form(chance, 0.3, 3.0, form_kind));
    node.host = Some(host);
    node.most_flows = one_of(chance, &[4, 8, 16, 32, 64]);
    if kind == NodeKind::Computation {
        node.cpu_per_byte = chance.between(0.05e-9, 1.5e-9);
        if chance.one_in(2) {
            node.seconds_per_file = chance.between(0.1e-3, 5e-3);
        }
        if chance.one_in(3) {
            node.cpu_per_file = chance.between(0.1e-3, 3e-3);
        }
    }
    if chance.one_in(3) {
        node.memory_per_flow = one_of(chance, &[16.0, 64.0, 256.0]) * 1_048_576.0;
    }
    node
}

fn path(chance: &mut Chance) -> Node {
    let capacity = PathCapacity {
        path: one_of(chance, &[1.0, 10.0, 40.0, 100.0]) * 117.7e6,
        nic: f64::INFINITY,
        rtt: Duration::from_millis(one_of(chance, &[1, 20, 100, 200])),
        window: Window::of(one_of(chance, &[1.0, 4.0, 16.0]) * 1_048_576.0),
        loss: one_of(chance, &[0.0, 0.0, 1e-5, 1e-4]),
        segment: 1448.0,
        congestion: Congestion::Cubic,
    };
    let mut path = Node::new("path", NodeKind::Path, Capacity::Path(capacity));
    path.most_flows = one_of(chance, &[16, 64, 128]);
    path
}

fn codec(chance: &mut Chance, number: u32) -> PartCodec {
    let threads = |chance: &mut Chance, low: f64, high: f64| {
        Capacity::Flows(FlowCapacity::Linear {
            alpha: chance.between(low, high) * 1e9,
            gamma: 0.0,
            most: one_of(chance, &[8, 16, 64]),
        })
    };
    PartCodec {
        name: format!("codec {number}"),
        ratio: chance.between(1.0, 6.0),
        compress: threads(chance, 0.05, 0.8),
        compress_cpu: chance.between(0.5e-9, 10e-9),
        decompress: threads(chance, 0.3, 2.0),
        decompress_cpu: chance.between(0.3e-9, 2e-9),
    }
}

// tidy: long because it lists the layers of one graph.
/// Returns a graph with classes of disks, adapters, computation, NICs and a path.
pub fn varied(seed: u64) -> Graph {
    let chance = &mut Chance::new(9_000_000 + seed);
    let logical =
        |name: &str, kind| Node::new(name, kind, Capacity::Flows(FlowCapacity::Unlimited));
    let host = |name: &str, chance: &mut Chance| Host {
        name: name.to_owned(),
        cores: one_of(
            chance,
            &[2.0, 4.0, 8.0, 16.0, 32.0, f64::INFINITY, f64::INFINITY],
        ),
        memory: one_of(chance, &[1.0, 2.0, 4.0, 8.0, f64::INFINITY, f64::INFINITY])
            * 1_073_741_824.0,
    };
    let mut layers = Layers {
        graph: Graph {
            hosts: vec![host("source", chance), host("destination", chance)],
            ..Graph::default()
        },
        ends: Vec::new(),
    };
    layers.add(vec![logical("start", NodeKind::Start)]);
    let (classes, members) = (1 + chance.below(5), 1 + chance.below(100));
    let disks = (0..classes)
        .map(|class| {
            disk(
                chance,
                &format!("disks {class}"),
                (members / classes).max(1),
            )
        })
        .collect();
    let disks = layers.add(disks);
    match chance.below(5) {
        0 | 1 => layers.add_channels(chance, &disks, true),
        2 => layers.add_channels(chance, &disks, false),
        _ => {}
    }
    let compresses = chance.one_in(2);
    layers.add(vec![layer(chance, "read", NodeKind::Computation, 0)]);
    if compresses {
        layers.add(vec![layer(chance, "compress", NodeKind::Compress, 0)]);
    }
    let nics: Vec<Node> = (0..chance.below(4))
        .map(|number| {
            let kind = chance.below(3);
            let capacity = form(chance, 0.2, 2.0, kind);
            let mut nic = Node::new(&format!("NICs {number}"), NodeKind::Nic, capacity);
            nic.members = 1 + chance.below(16);
            nic.most_flows = one_of(chance, &[1, 1, 4]);
            nic
        })
        .collect();
    if !nics.is_empty() {
        layers.add(nics);
    }
    layers.add(vec![path(chance)]);
    if compresses {
        layers.add(vec![layer(chance, "decompress", NodeKind::Decompress, 1)]);
    }
    layers.add(vec![layer(chance, "write", NodeKind::Computation, 1)]);
    layers.add(vec![logical("end", NodeKind::End)]);
    for part in 0..1 + chance.below(3) {
        layers.graph.parts.push(Part {
            name: format!("part {part}"),
            bytes: chance.between(0.1e12, 40e12),
            files: one_of(chance, &[10.0, 1e3, 1e5, 1e6]),
            codecs: (0..if compresses { chance.below(3) } else { 0 })
                .map(|number| codec(chance, number))
                .collect(),
        });
    }
    layers.graph
}

/// Solves a program with HiGHS, then solves it again with the integers fixed. Prints the objective
/// of the second solution, or `limit` if the first one took more than 60 s.
const SCRIPT: &str = r#"
import highspy, sys
def solver():
    highs = highspy.Highs()
    highs.silent()
    return highs
first = solver()
for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0), ("threads", 1), ("random_seed", 0), ("time_limit", 60.0)):
    first.setOptionValue(option, value)
first.readModel(sys.argv[1])
first.run()
if first.getModelStatus() != highspy.HighsModelStatus.kOptimal:
    print("limit")
    sys.exit()
values = first.getSolution().col_value
second = solver()
second.readModel(sys.argv[1])
kinds = second.getLp().integrality_
for at, kind in enumerate(kinds):
    if kind == highspy.HighsVarType.kInteger:
        second.changeColIntegrality(at, highspy.HighsVarType.kContinuous)
        second.changeColBounds(at, round(values[at]), round(values[at]))
second.run()
print(repr(second.getInfo().objective_function_value))
"#;

/// Returns the command of a Python with HiGHS: PyPI's package `highspy`.
fn python() -> Option<String> {
    let name = std::env::var("LONGHAUL_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&name).args(["-c", "import highspy"]).output();
    found.is_ok_and(|it| it.status.success()).then_some(name)
}

/// `LONGHAUL_GRAPHS` sets the number of graphs. Prints each seed with its rate.
#[test]
#[ignore = "needs PyPI's highspy: cargo xtask soak graphs"]
fn highs_agrees() {
    let Some(python) = python() else {
        panic!("HiGHS is missing: install PyPI's highspy, and set LONGHAUL_PYTHON");
    };
    let count = std::env::var("LONGHAUL_GRAPHS").ok();
    let count = count.and_then(|text| text.parse().ok()).unwrap_or(20);
    let directory = tempfile::tempdir().unwrap();
    let (script, file) = (
        directory.path().join("solve.py"),
        directory.path().join("graph.lp"),
    );
    fs::write(&script, SCRIPT).unwrap();
    for seed in 0..count {
        let graph = varied(seed);
        let (rate, gap) = best_rate(&graph, Bound::DEFAULT).unwrap();
        let (program, scale) = rate_program(&graph).unwrap();
        fs::write(&file, to_lp(&program)).unwrap();
        let output = Command::new(&python)
            .arg(&script)
            .arg(&file)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // The solver prints its version first.
        let last = text.lines().last().unwrap_or_default().trim();
        if last == "limit" {
            println!("seed {seed}: HiGHS reached its limit, the gap here is {gap:.1e}");
            continue;
        }
        let other = last.parse::<f64>().unwrap().abs() * scale;
        println!("{seed}\t{other}");
        assert!(
            (rate / other - 1.0).abs() < 1e-6 && gap == 0.0,
            "seed {seed}: {rate} instead of {other}, gap {gap:.1e}"
        );
    }
}
