//! Converts a graph to its program.
//!
//! Variables: the flow of each commodity on each edge; for each node and number of flows `n`, the
//! integer number `z` of members with `n` flows; and the flow `x` of a commodity through them.
//! Commodities share the time of members: Σ x · seconds(n) ≤ z. A node's flows are limited by their
//! cores, Σ x · CPU ≤ n · z (paper 004, Eq. 23, for each layer), and hosts by theirs.

use std::collections::BTreeMap;

use super::program::{Found, Program, Relation, SAME, Unsolved, Var};
use super::through::{self, Class};
use super::{Bound, NodeUse, Optimum, SolveError};
use crate::graph::{Commodity, Demand, Graph, Node, NodeKind};

// tidy: long file because variables and constraints of one problem are built from one graph.

/// Tolerance of the solver for a row, with a margin.
const TOLERANCE: f64 = 1e-6;

/// Maximum rate in a program, as a multiple of its scale.
pub const MOST: f64 = 1e4;

/// The numbers of flows in a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counts {
    /// The numbers that an optimum of rate or CPU may use. If more flows carry everything at least
    /// as fast and the number of flows has no cost, smaller numbers are omitted. CPU depends on
    /// bytes, not on flows.
    Fastest,
    /// The numbers that a solution with the fewest flows may use at a rate in source bytes per
    /// second. Omits numbers that are larger than the rate ever needs.
    Fewest {
        /// The rate.
        rate: f64,
    },
    /// All numbers.
    All,
}

/// The program of a graph, and the meaning of its variables.
pub struct Built<'a> {
    graph: &'a Graph,
    choice: Counts,
    commodities: Vec<Commodity>,
    /// Rate in bytes per second that the value 1 represents.
    scale: f64,
    /// Maximum of the rate in units of the scale.
    most: f64,
    program: Program,
    /// Rate of the whole dataset.
    rate: Var,
    /// Flows by edge and commodity.
    edges: Vec<Vec<Var>>,
    /// Counts by node. Empty for logical nodes.
    nodes: Vec<Vec<Count>>,
    /// Total flows by node, if the node has several possible numbers.
    totals: Vec<Option<Var>>,
    /// Groups of nodes with one number of flows, with the variable for each number.
    common: Vec<(Vec<usize>, BTreeMap<u32, Var>)>,
}

/// The members of a node with one number of flows.
struct Count {
    flows: u32,
    members: Var,
    /// Flow through these members and its demand, by commodity.
    through: Vec<(Var, Demand)>,
}

/// Returns a first estimate of the rate, usually at least as large as the optimum.
///
/// # Errors
///
/// If nothing limits the rate.
pub fn first_scale(graph: &Graph) -> Result<f64, SolveError> {
    let mut least = f64::INFINITY;
    let compressed = graph.compressed_nodes();
    for (at, node) in graph
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.is_logical())
    {
        let most = commodities_of(graph)
            .flat_map(|it| (1..=flows_at_most(graph, at)).map(move |flows| (it, flows)))
            .map(|(it, flows)| graph.demand(at, compressed[at], it, flows))
            .map(|demand| {
                demand
                    .seconds
                    .max(demand.cpu / cores_of(node, node.most_flows))
            })
            .fold(f64::INFINITY, f64::min);
        if most > 0.0 && most.is_finite() {
            let rate = f64::from(node.members) / most;
            // Members together may carry less than their sum. This is only an estimate of the
            // scale, not a bound.
            least = least.min(rate);
        }
    }
    for (at, host) in graph
        .hosts
        .iter()
        .enumerate()
        .filter(|(_, host)| host.cores.is_finite())
    {
        let cpu: f64 = graph
            .nodes
            .iter()
            .filter(|node| node.host == Some(at))
            .map(|node| node.cpu_per_byte)
            .sum();
        if cpu > 0.0 {
            least = least.min(host.cores / cpu);
        }
    }
    if least.is_finite() && least > 0.0 {
        Ok(least)
    } else {
        Err(SolveError::Unlimited)
    }
}

fn commodities_of(graph: &Graph) -> impl Iterator<Item = Commodity> {
    graph.commodities().into_iter()
}

/// Returns the number of cores that the flows of a member keep busy at most.
fn cores_of(node: &Node, flows: u32) -> f64 {
    node.cores_per_flow * f64::from(flows)
}

/// Returns the maximum number of flows of a member.
fn flows_at_most(graph: &Graph, node: usize) -> u32 {
    let node = &graph.nodes[node];
    if node.flows_of.is_empty() {
        return node.most_flows;
    }
    let of = node.flows_of.iter().map(|&of| &graph.nodes[of]);
    of.map(|of| of.members.saturating_mul(of.most_flows))
        .fold(0, u32::saturating_add)
}

impl<'a> Built<'a> {
    /// Creates the program of a checked graph. Rates are in units of `scale` bytes per second. No
    /// solution has a rate above `most`, in these units.
    pub fn new(graph: &'a Graph, scale: f64, choice: Counts, most: f64) -> Built<'a> {
        let mut program = Program::default();
        let commodities = graph.commodities();
        let most = most.min(MOST);
        let rate = program.real(most);
        let nodes = graph.nodes.len();
        let mut built = Built {
            graph,
            choice,
            commodities,
            scale,
            most,
            program,
            rate,
            edges: Vec::new(),
            nodes: Vec::new(),
            totals: vec![None; nodes],
            common: Vec::new(),
        };
        built.add_edges();
        built.conserve();
        let compressed = graph.compressed_nodes();
        for (node, &compressed) in compressed.iter().enumerate() {
            let counts = built.counts(node, compressed);
            built.nodes.push(counts);
        }
        built.tie();
        built.link_flows(&compressed);
        built.bind_hosts();
        built
    }

    /// Returns the greatest flow of a commodity, in units of the scale.
    fn most_of(&self, commodity: usize) -> f64 {
        self.most * self.graph.weight(self.commodities[commodity].part)
    }

    /// Adds the flows of edges. A node with one edge on each side has the same flow on both.
    fn add_edges(&mut self) {
        let edges = &self.graph.edges;
        let mut same: Vec<usize> = (0..edges.len()).collect();
        for &node in &self.graph.in_order().unwrap_or_default() {
            let touching = |side: fn(&(usize, usize)) -> usize| {
                let all = edges.iter().enumerate();
                let mut at = all.filter(|(_, edge)| side(edge) == node).map(|it| it.0);
                at.next().filter(|_| at.next().is_none())
            };
            if let (Some(before), Some(behind)) = (touching(|it| it.1), touching(|it| it.0)) {
                same[behind] = same[before];
            }
        }
        let mut vars: Vec<Option<Vec<Var>>> = vec![None; edges.len()];
        let most: Vec<f64> = (0..self.commodities.len())
            .map(|at| self.most_of(at))
            .collect();
        for at in 0..edges.len() {
            let flows = vars[same[at]]
                .get_or_insert_with(|| most.iter().map(|&most| self.program.real(most)).collect());
            let flows = flows.clone();
            self.edges.push(flows);
        }
    }

    /// Adds the conservation of flow at each node. Each part starts at its share of the rate.
    fn conserve(&mut self) {
        let graph = self.graph;
        for (node, it) in graph.nodes.iter().enumerate() {
            if it.is_logical() {
                continue;
            }
            for commodity in 0..self.commodities.len() {
                let mut terms = self.entering(node, commodity, 1.0);
                let leaving = self.leaving(node, commodity, -1.0);
                if let ([(before, _)], [(behind, _)]) = (&terms[..], &leaving[..])
                    && before == behind
                {
                    continue;
                }
                terms.extend(leaving);
                self.program.row(terms, Relation::Eq, 0.0);
            }
        }
        let start = graph
            .nodes
            .iter()
            .position(|node| node.kind == NodeKind::Start)
            .unwrap_or(0);
        for part in 0..graph.parts.len() {
            let mut terms = vec![(self.rate, -graph.weight(part))];
            for (commodity, it) in self.commodities.iter().enumerate() {
                if it.part == part {
                    terms.extend(self.leaving(start, commodity, 1.0));
                }
            }
            self.program.row(terms, Relation::Eq, 0.0);
        }
    }

    fn entering(&self, node: usize, commodity: usize, factor: f64) -> Vec<(Var, f64)> {
        self.at_edges(commodity, factor, |edge| edge.1 == node)
    }

    fn leaving(&self, node: usize, commodity: usize, factor: f64) -> Vec<(Var, f64)> {
        self.at_edges(commodity, factor, |edge| edge.0 == node)
    }

    fn at_edges(
        &self,
        commodity: usize,
        factor: f64,
        wanted: impl Fn((usize, usize)) -> bool,
    ) -> Vec<(Var, f64)> {
        let edges = self.graph.edges.iter().zip(&self.edges);
        edges
            .filter(|(edge, _)| wanted(**edge))
            .map(|(_, flows)| (flows[commodity], factor))
            .collect()
    }

    /// Adds the variables for the numbers of flows of a node's members, and the flow through them.
    fn counts(&mut self, node: usize, compressed: bool) -> Vec<Count> {
        let it = &self.graph.nodes[node];
        if it.is_logical() {
            return Vec::new();
        }
        let candidates = self.candidates(node, compressed);
        let is_single = candidates.len() == 1;
        let mut counts: Vec<Count> = Vec::new();
        for (flows, demands) in candidates {
            let members = self.program.whole(it.members);
            let through: Vec<(Var, Demand)> = demands
                .into_iter()
                .enumerate()
                .map(|(commodity, demand)| {
                    (self.through(node, commodity, demand, is_single), demand)
                })
                .collect();
            self.bind_by(&through, |demand| demand.seconds, members, 1.0);
            self.bind_by(&through, |demand| demand.cpu, members, cores_of(it, flows));
            let costs_nothing = through.iter().all(|(_, demand)| demand.seconds <= 0.0);
            if costs_nothing && !it.is_passed_by_plain() {
                // Data without a cost still need a flow.
                let least = 1e-9 / self.scale;
                self.bind_by(&through, |_| least, members, 1.0);
            }
            counts.push(Count {
                flows,
                members,
                through,
            });
        }
        for commodity in 0..self.commodities.len() {
            let mut terms = self.entering(node, commodity, -1.0);
            if let ([(edge, _)], [count]) = (&terms[..], &counts[..])
                && *edge == count.through[commodity].0
            {
                continue;
            }
            terms.extend(counts.iter().map(|count| (count.through[commodity].0, 1.0)));
            self.program.row(terms, Relation::Eq, 0.0);
        }
        if counts.len() > 1 {
            let all = counts.iter().map(|count| (count.members, 1.0)).collect();
            self.program.row(all, Relation::Le, f64::from(it.members));
            let flows = counts.iter().map(|count| (count.members, count.flows));
            self.totals[node] = Some(self.program.choice(flows.collect(), it.members));
        }
        if it.same_flows && it.members > 1 {
            self.choose_one(&[node], std::slice::from_ref(&counts));
        }
        counts
    }

    /// Returns the variable for the flow of a commodity through members with one number of flows:
    /// the flow of the edge, if the node has one edge and one number of flows.
    fn through(&mut self, node: usize, commodity: usize, demand: Demand, is_single: bool) -> Var {
        if demand.seconds.is_infinite() {
            return self.program.real(0.0);
        }
        if is_single && let [(edge, _)] = self.entering(node, commodity, 1.0)[..] {
            return edge;
        }
        let most = self.most_of(commodity);
        self.program.real(most)
    }

    /// Adds the row Σ x · demand ≤ factor · members. If one member is enough for all data, the row
    /// still requires this member: the demand is then a share of the greatest possible one.
    fn bind_by(
        &mut self,
        through: &[(Var, Demand)],
        asked: impl Fn(&Demand) -> f64,
        members: Var,
        factor: f64,
    ) {
        let scale = self.scale;
        let mut terms: Vec<(Var, f64)> = Vec::new();
        let mut most = vec![0.0_f64; self.graph.parts.len()];
        for (commodity, (var, demand)) in through.iter().enumerate() {
            if demand.seconds.is_infinite() {
                continue;
            }
            let asked = asked(demand) * scale;
            if asked > 0.0 {
                terms.push((*var, asked));
                // The codecs of a part share its flow.
                let of_part = &mut most[self.commodities[commodity].part];
                *of_part = of_part.max(asked * self.most_of(commodity));
            }
        }
        if terms.is_empty() {
            return;
        }
        let most: f64 = most.iter().sum();
        if most < factor && most > 0.0 {
            terms.iter_mut().for_each(|term| term.1 *= factor / most);
        }
        terms.push((members, -factor));
        self.program.row(terms, Relation::Le, 0.0);
    }

    /// Returns the possible numbers of flows with the demand of each commodity. Omits numbers that
    /// are not better than a smaller one.
    fn candidates(&self, node: usize, compressed: bool) -> Vec<(u32, Vec<Demand>)> {
        let it = &self.graph.nodes[node];
        let linked = self.is_linked(node);
        let mut kept: Vec<(u32, Vec<Demand>)> = Vec::new();
        let most = flows_at_most(self.graph, node);
        let may_be_fewer = !linked && !self.counts_memory(node);
        for flows in it.least_flows..=most {
            let demands: Vec<Demand> = self
                .commodities
                .iter()
                .map(|&commodity| self.graph.demand(node, compressed, commodity, flows))
                .collect();
            let dominates = |fewer: &(u32, Vec<Demand>)| dominates(it, fewer, &demands);
            let useless = !linked && kept.iter().any(dominates);
            if useless {
                continue;
            }
            if self.choice == Counts::Fastest && may_be_fewer {
                kept.retain(|(_, fewer)| !is_as_fast(&demands, fewer));
            }
            let suffices =
                !linked && it.members == 1 && self.suffices(cores_of(it, flows), &demands);
            kept.push((flows, demands));
            if suffices {
                break;
            }
        }
        kept
    }

    /// True if one member with these cores can carry everything at the rate of the program.
    fn suffices(&self, cores: f64, demands: &[Demand]) -> bool {
        let Counts::Fewest { rate } = self.choice else {
            return false;
        };
        let (mut seconds, mut cpu) = (0.0, 0.0);
        for part in 0..self.graph.parts.len() {
            let share = rate * self.graph.weight(part) * (1.0 + TOLERANCE);
            let of_part = self
                .commodities
                .iter()
                .zip(demands)
                .filter(|it| it.0.part == part);
            seconds += share * of_part.clone().map(|it| it.1.seconds).fold(0.0, f64::max);
            cpu += share * of_part.map(|it| it.1.cpu).fold(0.0, f64::max);
        }
        seconds <= 1.0 && cpu <= cores
    }

    /// True if the memory of the node's flows can be a bottleneck.
    fn counts_memory(&self, node: usize) -> bool {
        let it = &self.graph.nodes[node];
        let Some(host) = it.host.filter(|_| it.memory_per_flow > 0.0) else {
            return false;
        };
        let of_host = |(_, other): &(usize, &Node)| other.host == Some(host);
        let nodes = self.graph.nodes.iter().enumerate().filter(of_host);
        let all: f64 = nodes
            .map(|(at, other)| {
                let flows = f64::from(flows_at_most(self.graph, at));
                f64::from(other.members) * flows * other.memory_per_flow
            })
            .sum();
        all > self.graph.hosts[host].memory
    }

    /// Requires one number of flows for all nodes of a group.
    fn tie(&mut self) {
        let nodes = std::mem::take(&mut self.nodes);
        for group in &self.graph.tied {
            let members: Vec<&[Count]> = group.iter().map(|&node| &nodes[node][..]).collect();
            self.choose_one(group, &members);
        }
        self.nodes = nodes;
    }

    /// Requires one number of flows for all members of these nodes: z ≤ members · y, Σ y ≤ 1.
    fn choose_one<C: AsRef<[Count]>>(&mut self, nodes: &[usize], counts: &[C]) {
        let mut chosen: BTreeMap<u32, Var> = BTreeMap::new();
        for (&node, counts) in nodes.iter().zip(counts) {
            let members = f64::from(self.graph.nodes[node].members);
            for count in counts.as_ref() {
                let one = *chosen
                    .entry(count.flows)
                    .or_insert_with(|| self.program.whole(1));
                let terms = vec![(count.members, 1.0), (one, -members)];
                self.program.row(terms, Relation::Le, 0.0);
            }
        }
        let all = chosen.values().map(|&one| (one, 1.0)).collect();
        self.program.row(all, Relation::Le, 1.0);
        let flows = chosen.iter().map(|(&flows, &one)| (one, flows));
        self.program.choice(flows.collect(), 1);
        self.common.push((nodes.to_vec(), chosen));
    }

    /// Sets the flows of a node with the flows of others to their sum.
    fn link_flows(&mut self, compressed: &[bool]) {
        for (node, it) in self.graph.nodes.iter().enumerate() {
            if it.flows_of.is_empty() {
                continue;
            }
            let mut terms = self.flows_of(node, -1.0);
            for &of in &it.flows_of {
                terms.extend(self.flows_of(of, 1.0));
            }
            self.program.row(terms, Relation::Eq, 0.0);
            self.limit_by_others(node, compressed);
        }
    }

    /// Returns the terms for the total flows of a node's members.
    fn flows_of(&self, node: usize, factor: f64) -> Vec<(Var, f64)> {
        match self.totals[node] {
            Some(total) => vec![(total, factor)],
            None => flows_of(&self.nodes[node], factor),
        }
    }

    /// Adds that a node with the flows of others carries at most as much as those can carry with
    /// the same flows. This follows from the other rows for integers, but not for fractions.
    fn limit_by_others(&mut self, node: usize, compressed: &[bool]) {
        if self.choice == Counts::All {
            // For other solvers, only the rows that define the problem.
            return;
        }
        let graph = self.graph;
        let others = &graph.nodes[node].flows_of;
        let are_all = |mut ends: Vec<usize>| {
            ends.dedup();
            !ends.is_empty() && ends.iter().all(|end| others.contains(end))
        };
        let before = graph
            .edges
            .iter()
            .filter(|edge| edge.1 == node)
            .map(|edge| edge.0);
        let behind = graph
            .edges
            .iter()
            .filter(|edge| edge.0 == node)
            .map(|edge| edge.1);
        if !are_all(before.collect()) && !are_all(behind.collect()) {
            return;
        }
        let classes: Vec<Class> = others
            .iter()
            .map(|&other| {
                let it = &graph.nodes[other];
                let rates = |flows: u32| {
                    let demands = self.commodities.iter();
                    let demands =
                        demands.map(|&of| graph.demand(other, compressed[other], of, flows));
                    demands
                        .map(|demand| 1.0 / (demand.seconds * self.scale))
                        .collect()
                };
                Class {
                    members: it.members,
                    least: it.least_flows,
                    rates: (it.least_flows..=it.most_flows).map(rates).collect(),
                }
            })
            .collect();
        let counts = self.nodes[node].iter();
        let totals: Vec<u32> = counts.map(|count| count.flows).collect();
        let Some((weights, most)) = through::limits(&classes, &totals) else {
            return;
        };
        for (count, most) in self.nodes[node].iter().zip(most) {
            let through = count.through.iter().zip(&weights);
            let mut terms: Vec<(Var, f64)> = through.map(|(it, &weight)| (it.0, weight)).collect();
            terms.push((count.members, -most));
            self.program.row(terms, Relation::Le, 0.0);
        }
    }

    /// Adds the limits on CPU and memory of each host.
    fn bind_hosts(&mut self) {
        for (at, host) in self.graph.hosts.iter().enumerate() {
            let (mut cpu, mut memory) = (Vec::new(), Vec::new());
            for (node, counts) in self.graph.nodes.iter().zip(&self.nodes) {
                if node.host != Some(at) {
                    continue;
                }
                let each = node.memory_per_flow / host.memory;
                for count in counts {
                    cpu.extend(self.cpu_of(count));
                    memory.push((count.members, each * f64::from(count.flows)));
                }
            }
            if host.cores.is_finite() && !cpu.is_empty() {
                self.program.row(cpu, Relation::Le, host.cores);
            }
            if host.memory.is_finite() && memory.iter().any(|term| term.1 > 0.0) {
                self.program.row(memory, Relation::Le, 1.0);
            }
        }
    }

    /// Returns the CPU seconds per second of the flow through these members.
    fn cpu_of(&self, count: &Count) -> Vec<(Var, f64)> {
        let terms = count.through.iter();
        terms
            .map(|(var, demand)| (*var, demand.cpu * self.scale))
            .filter(|term| term.1 > 0.0)
            .collect()
    }

    fn all_cpu(&self) -> Vec<(Var, f64)> {
        let counts = self.nodes.iter().flatten();
        counts.flat_map(|count| self.cpu_of(count)).collect()
    }

    fn all_flows(&self) -> Vec<(Var, f64)> {
        let nodes = 0..self.graph.nodes.len();
        let own = nodes.filter(|&node| self.graph.nodes[node].flows_of.is_empty());
        own.flat_map(|node| self.flows_of(node, 1.0)).collect()
    }

    /// Finds the fastest solution. Only a rate greater than `above`, in bytes per second, is
    /// wanted.
    ///
    /// # Errors
    ///
    /// If there is no solution.
    pub fn fastest(&self, above: Option<f64>, bound: Bound) -> Result<Found, Unsolved> {
        let above = above.map(|above| above / self.scale);
        self.rate_program().solve_from(bound, &[], above, SAME)
    }

    /// Returns the best rate if integers may be fractions, in units of the scale.
    ///
    /// # Errors
    ///
    /// If there is no solution.
    pub fn relaxed_rate(&self, bound: Bound) -> Result<f64, Unsolved> {
        self.rate_program().relaxed(bound)
    }

    /// Returns the fastest solution with the integers of another solution.
    pub fn fastest_with(&self, found: Found) -> Found {
        let none = Bound {
            nodes: 0,
            ..Bound::DEFAULT
        };
        let start = [found.values().to_vec()];
        let fastest = self.rate_program().solve_from(none, &start, None, SAME);
        fastest.unwrap_or(found)
    }

    /// Returns the program that maximises the rate.
    pub fn rate_program(&self) -> Program {
        let mut program = self.program.clone();
        program.maximise(vec![(self.rate, 1.0)]);
        program
    }

    /// Adds a minimum rate in bytes per second.
    pub fn keep_rate(&mut self, least: f64) {
        let least = least / self.scale;
        self.program
            .row(vec![(self.rate, 1.0)], Relation::Ge, least);
    }

    /// Finds the solution with the least CPU, from a known one. Returns `None` if the CPU costs
    /// nothing.
    pub fn least_cpu(&self, known: &Found, bound: Bound) -> Option<Found> {
        let start = [known.values().to_vec()];
        self.least(&self.all_cpu(), &start, bound, super::SAME_CPU / 10.0)
    }

    /// Returns the CPU seconds per second of a solution.
    pub fn cpu(&self, found: &Found) -> f64 {
        let cpu = self.all_cpu();
        cpu.iter()
            .map(|&(var, factor)| found.value(var) * factor)
            .sum()
    }

    /// Adds a maximum of CPU seconds per second.
    pub fn keep_cpu(&mut self, most: f64) {
        let cpu = self.all_cpu();
        if !cpu.is_empty() {
            self.program.row(cpu, Relation::Le, most + TOLERANCE);
        }
    }

    /// Returns integer values of this program for a solution of another program of the same graph:
    /// with its flows, or with the fewest flows with which nodes of one member carry the same.
    pub fn starts(&self, other: &Built<'_>, found: &Found) -> Vec<Vec<f64>> {
        let with = |is_fewest: bool| {
            let mut values = vec![0.0; self.program.column_bounds().count()];
            for (node, counts) in self.nodes.iter().enumerate() {
                let it = &self.graph.nodes[node];
                let used = other.node_use(&other.nodes[node], found);
                let is_single = it.members == 1 && !self.is_linked(node);
                for &(flows, members) in &used.members {
                    let flows = if is_single && is_fewest {
                        other.enough(node, found, flows)
                    } else {
                        flows
                    };
                    // A program for the fewest flows omits numbers that are larger than necessary.
                    let fits = counts.iter().rev().find(|count| count.flows <= flows);
                    if let Some(count) = fits {
                        values[count.members.index()] += f64::from(members);
                    }
                }
            }
            for (nodes, chosen) in &self.common {
                let counts = nodes.iter().flat_map(|&node| &self.nodes[node]);
                let used = counts.filter(|count| values[count.members.index()] > 0.5);
                let flows: Vec<u32> = used.map(|count| count.flows).collect();
                for (number, var) in chosen {
                    values[var.index()] = f64::from(u8::from(flows.contains(number)));
                }
            }
            self.program.set_totals(&mut values);
            values
        };
        vec![with(true), with(false)]
    }

    /// Returns the fewest flows of a node with one member for the flow through it.
    fn enough(&self, node: usize, found: &Found, used: u32) -> u32 {
        let compressed = self.graph.compressed_nodes()[node];
        let through: Vec<f64> = (0..self.commodities.len())
            .map(|at| {
                let counts = self.nodes[node].iter();
                counts
                    .map(|count| found.value(count.through[at].0) * self.scale)
                    .sum()
            })
            .collect();
        let fits = |&flows: &u32| {
            let (mut seconds, mut cpu) = (0.0, 0.0);
            for (&it, &rate) in self.commodities.iter().zip(&through) {
                if rate > self.scale * TOLERANCE {
                    let demand = self.graph.demand(node, compressed, it, flows);
                    seconds += rate * demand.seconds;
                    cpu += rate * demand.cpu;
                }
            }
            let cores = cores_of(&self.graph.nodes[node], flows);
            seconds <= 1.0 + TOLERANCE && cpu <= cores * (1.0 + TOLERANCE)
        };
        let least = self.graph.nodes[node].least_flows;
        (least..=used).find(fits).unwrap_or(used)
    }

    /// True if another constraint uses the node's number of flows.
    fn is_linked(&self, node: usize) -> bool {
        let graph = self.graph;
        !graph.nodes[node].flows_of.is_empty()
            || graph
                .nodes
                .iter()
                .any(|other| other.flows_of.contains(&node))
            || graph.tied.iter().any(|group| group.contains(&node))
    }

    /// Finds the solution with the fewest flows. Returns `None` if none was found.
    pub fn fewest_flows(&self, starts: &[Vec<f64>], bound: Bound) -> Option<Found> {
        self.least(&self.all_flows(), starts, bound, SAME)
    }

    fn least(
        &self,
        terms: &[(Var, f64)],
        starts: &[Vec<f64>],
        bound: Bound,
        tolerance: f64,
    ) -> Option<Found> {
        if terms.is_empty() {
            return None;
        }
        let mut program = self.program.clone();
        program.minimise(terms);
        program.solve_from(bound, starts, None, tolerance).ok()
    }

    /// Returns the maximum of the rate in units of the scale.
    pub fn most(&self) -> f64 {
        self.most
    }

    /// Returns the unit of rates in bytes per second.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns the rate of a solution in source bytes per second.
    pub fn rate(&self, found: &Found) -> f64 {
        found.value(self.rate) * self.scale
    }

    /// Converts a solution to an optimum.
    pub fn optimum(&self, found: &Found, gap: f64) -> Optimum {
        let nodes: Vec<NodeUse> = self
            .nodes
            .iter()
            .map(|it| self.node_use(it, found))
            .collect();
        let rate = self.rate(found);
        let bytes: f64 = self.graph.parts.iter().map(|part| part.bytes).sum();
        let own = self.graph.nodes.iter().zip(&nodes);
        Optimum {
            rate,
            seconds: bytes / rate,
            cpu: nodes.iter().map(|node| node.cpu).sum(),
            flows: own
                .filter(|(node, _)| node.flows_of.is_empty())
                .map(|(_, node)| u64::from(node.flows()))
                .sum(),
            edges: self
                .edges
                .iter()
                .map(|flows| {
                    flows
                        .iter()
                        .map(|&flow| found.value(flow) * self.scale)
                        .sum()
                })
                .collect(),
            codecs: self.codecs(found),
            nodes,
            gap,
        }
    }

    fn codecs(&self, found: &Found) -> Vec<(Commodity, f64)> {
        let start = self
            .graph
            .nodes
            .iter()
            .position(|node| node.kind == NodeKind::Start);
        let rate_of = |commodity: usize| {
            let leaving = self.leaving(start.unwrap_or(0), commodity, 1.0);
            leaving
                .iter()
                .map(|&(var, _)| found.value(var) * self.scale)
                .sum::<f64>()
        };
        let rates = self.commodities.iter().enumerate();
        rates
            .map(|(at, &commodity)| (commodity, rate_of(at)))
            .filter(|(_, rate)| *rate > self.scale * 1e-7)
            .collect()
    }

    fn node_use(&self, counts: &[Count], found: &Found) -> NodeUse {
        let mut used = NodeUse::default();
        let (mut busy, mut members) = (0.0, 0.0);
        for count in counts {
            let here = found.value(count.members);
            if here > 0.0 {
                // The number of members is at most that of the node, so the conversion is lossless.
                used.members.push((count.flows, here as u32));
            }
            members += here;
            for &(var, demand) in &count.through {
                let rate = found.value(var) * self.scale;
                if rate > 0.0 && demand.seconds.is_finite() {
                    used.rate += rate;
                    busy += rate * demand.seconds;
                    used.cpu += rate * demand.cpu;
                }
            }
        }
        used.utilisation = if members > 0.0 { busy / members } else { 0.0 };
        used
    }
}

/// Returns the terms for the total flows of a node's members.
fn flows_of(counts: &[Count], factor: f64) -> Vec<(Var, f64)> {
    let each = counts.iter();
    each.map(|count| (count.members, factor * f64::from(count.flows)))
        .collect()
}

/// True if the first demands need at most the time of the second, for every commodity.
fn is_as_fast(one: &[Demand], other: &[Demand]) -> bool {
    one.iter()
        .zip(other)
        .all(|(one, other)| one.seconds <= other.seconds)
}

/// True if fewer flows carry every commodity at least as fast, even if their cores limit them.
fn dominates(node: &Node, (flows, fewer): &(u32, Vec<Demand>), more: &[Demand]) -> bool {
    fewer.iter().zip(more).all(|(fewer, more)| {
        let by_cores = fewer.cpu / cores_of(node, *flows);
        fewer.seconds <= more.seconds && by_cores <= more.seconds
    })
}
