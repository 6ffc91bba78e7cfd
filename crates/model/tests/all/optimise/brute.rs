//! Exhaustive search over all numbers of flows of all members, with a linear program over the paths
//! through the graph for each.

use longhaul_model::graph::{Commodity, Graph, NodeKind};

use super::simplex::Linear;

/// The result of the search.
#[derive(Clone, Copy, Debug)]
pub struct Best {
    /// Rate in source bytes per second.
    pub rate: f64,
    /// CPU seconds per second for this rate.
    pub cpu: f64,
    /// Number of flows for this rate and CPU.
    pub flows: u32,
}

/// Relative difference below which values are equal. It is less than the tolerance of the solver
/// under test, which may therefore use no more CPU and flows than this search.
const SAME: f64 = 1e-7;

/// Unit of rates, so that the numbers of the linear program are near one.
const UNIT: f64 = 1e6;

/// A member of a class, with its number of flows.
#[derive(Clone, Copy)]
struct Member {
    node: usize,
    flows: u32,
}

/// Tries all choices. The graph must be small.
pub fn search(graph: &Graph) -> Best {
    let mut best: Option<Best> = None;
    let mut equal: Vec<Vec<Member>> = Vec::new();
    for members in choices(graph) {
        let rate = most(graph, &members, 0.0).map_or(0.0, |found| found.0);
        let before = best.map_or(-1.0, |best| best.rate);
        if rate > before * (1.0 + SAME) + 1e-9 {
            equal.clear();
        }
        if rate >= before * (1.0 - SAME) {
            equal.push(members);
        }
        if rate > before {
            best = Some(Best {
                rate,
                cpu: 0.0,
                flows: 0,
            });
        }
    }
    let mut best = best.unwrap();
    let counted: Vec<(f64, u32)> = equal
        .iter()
        .filter_map(|members| {
            let (rate, cpu) = most(graph, members, 1e-4)?;
            let own = |member: &&Member| graph.nodes[member.node].flows_of.is_empty();
            let flows = members.iter().filter(own).map(|member| member.flows).sum();
            (rate >= best.rate * (1.0 - SAME)).then_some((cpu, flows))
        })
        .collect();
    best.cpu = counted.iter().map(|it| it.0).fold(f64::INFINITY, f64::min);
    let lean = counted.iter().filter(|it| it.0 <= best.cpu * (1.0 + SAME));
    best.flows = lean.map(|it| it.1).min().unwrap_or(0);
    best
}

/// Returns all assignments of flows to members, including zero, that the graph allows.
fn choices(graph: &Graph) -> Vec<Vec<Member>> {
    let mut all: Vec<Vec<Member>> = vec![Vec::new()];
    for (node, it) in graph.nodes.iter().enumerate() {
        if it.is_logical() || !it.flows_of.is_empty() {
            continue;
        }
        for _ in 0..it.members {
            let mut longer = Vec::new();
            for members in &all {
                // Members are equal, so only ordered numbers of flows are tried.
                let last = members.iter().rev().find(|member| member.node == node);
                let most = last.map_or(it.most_flows, |member| member.flows);
                for flows in 0..=most {
                    let mut with = members.clone();
                    with.push(Member { node, flows });
                    longer.push(with);
                }
            }
            all = longer;
        }
    }
    let linked = all.into_iter().map(|members| with_linked(graph, members));
    linked
        .filter(|members| is_allowed(graph, members))
        .collect()
}

/// Adds the nodes whose flows follow from those of others.
fn with_linked(graph: &Graph, mut members: Vec<Member>) -> Vec<Member> {
    for (node, it) in graph.nodes.iter().enumerate() {
        if !it.flows_of.is_empty() {
            let of = members
                .iter()
                .filter(|member| it.flows_of.contains(&member.node));
            let flows = of.map(|member| member.flows).sum();
            members.push(Member { node, flows });
        }
    }
    members
}

fn is_allowed(graph: &Graph, members: &[Member]) -> bool {
    let used = || members.iter().filter(|member| member.flows > 0);
    let one_count = |nodes: &[usize]| {
        let mut counts = used().filter(|member| nodes.contains(&member.node));
        let first = counts.next().map(|member| member.flows);
        counts.all(|member| Some(member.flows) == first)
    };
    let memory = graph.hosts.iter().enumerate().all(|(at, host)| {
        let held: f64 = used()
            .filter(|member| graph.nodes[member.node].host == Some(at))
            .map(|member| graph.nodes[member.node].memory_per_flow * f64::from(member.flows))
            .sum();
        held <= host.memory * (1.0 + 1e-9)
    });
    let same = graph.nodes.iter().enumerate();
    memory
        && graph.tied.iter().all(|group| one_count(group))
        && same
            .filter(|(_, it)| it.same_flows)
            .all(|(node, _)| one_count(&[node]))
}

/// Returns the paths from start to end through used members.
fn ways(graph: &Graph, members: &[Member]) -> Vec<Vec<usize>> {
    let start = graph
        .nodes
        .iter()
        .position(|it| it.kind == NodeKind::Start)
        .unwrap();
    let mut ended = Vec::new();
    let mut open: Vec<(usize, Vec<usize>)> = vec![(start, Vec::new())];
    while let Some((node, way)) = open.pop() {
        if graph.nodes[node].kind == NodeKind::End {
            ended.push(way);
            continue;
        }
        for &(_, to) in graph.edges.iter().filter(|edge| edge.0 == node) {
            if graph.nodes[to].is_logical() {
                open.push((to, way.clone()));
                continue;
            }
            for (at, member) in members.iter().enumerate() {
                let passes = graph.nodes[to].is_passed_by_plain();
                if member.node == to && (member.flows > 0 || passes) {
                    let mut further = way.clone();
                    further.push(at);
                    open.push((to, further));
                }
            }
        }
    }
    ended
}

/// Returns the highest rate with these members, and its CPU. CPU costs `price` of the rate.
fn most(graph: &Graph, members: &[Member], price: f64) -> Option<(f64, f64)> {
    let compressed = graph.compressed_nodes();
    let commodities = graph.commodities();
    let ways = ways(graph, members);
    if ways.is_empty() {
        return None;
    }
    let column = |way: usize, commodity: usize| 1 + way * commodities.len() + commodity;
    let mut linear = Linear::new(1 + ways.len() * commodities.len());
    let demand = |member: &Member, it: Commodity| {
        graph.demand(member.node, compressed[member.node], it, member.flows)
    };
    let mut of_host: Vec<Vec<(usize, f64)>> = vec![Vec::new(); graph.hosts.len()];
    let mut all_cpu = Vec::new();
    for (at, member) in members.iter().enumerate() {
        let (mut seconds, mut cpu) = (Vec::new(), Vec::new());
        for (number, _) in ways.iter().enumerate().filter(|(_, way)| way.contains(&at)) {
            for (commodity, &it) in commodities.iter().enumerate() {
                let asked = demand(member, it);
                let column = column(number, commodity);
                if asked.seconds.is_infinite() {
                    linear.at_most(&[(column, 1.0)], 0.0);
                } else {
                    seconds.push((column, asked.seconds * UNIT));
                    cpu.push((column, asked.cpu * UNIT));
                }
            }
        }
        linear.at_most(&seconds, 1.0);
        linear.at_most(&cpu, f64::from(member.flows));
        if let Some(host) = graph.nodes[member.node].host {
            of_host[host].extend(&cpu);
        }
        all_cpu.extend(cpu);
    }
    for (host, cpu) in graph.hosts.iter().zip(&of_host) {
        if host.cores.is_finite() {
            linear.at_most(cpu, host.cores);
        }
    }
    for part in 0..graph.parts.len() {
        let mut terms = vec![(0, graph.weight(part))];
        for way in 0..ways.len() {
            for (commodity, it) in commodities.iter().enumerate() {
                if it.part == part {
                    terms.push((column(way, commodity), -1.0));
                }
            }
        }
        linear.at_most(&terms, 0.0);
    }
    linear.maximise(0, 1.0);
    for &(column, cpu) in &all_cpu {
        linear.maximise(column, -cpu * price);
    }
    let values = linear.solve()?;
    let cpu = all_cpu
        .iter()
        .map(|&(column, cpu)| values[column] * cpu)
        .sum();
    Some((values[0] * UNIT, cpu))
}
