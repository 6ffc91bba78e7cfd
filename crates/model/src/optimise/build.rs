//! Converts a graph to its program.
//!
//! Variables: the flow of each commodity on each edge; for each node and number of flows `n`, the
//! integer number `z` of members with `n` flows; and the flow `x` of a commodity through them.
//! Commodities share the time of members: Σ x · seconds(n) ≤ z. A node's flows are limited by their
//! cores, Σ x · CPU ≤ n · z (paper 004, Eq. 23, for each layer), and hosts by theirs.

use std::collections::BTreeMap;

use super::program::{Found, Program, Relation, Unsolved, Var};
use super::{Bound, NodeUse, Optimum, SolveError};
use crate::graph::{Commodity, Demand, Graph, Node, NodeKind};

// tidy: long file because variables and constraints of one problem are built from one graph.

/// Tolerance of the solver for a row, with a margin.
const TOLERANCE: f64 = 1e-6;

/// Maximum rate in a program, as a multiple of its scale.
pub const MOST: f64 = 1e4;

/// The numbers of flows in a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Counts {
    /// The numbers that an optimum of rate or CPU may use. If more flows carry everything at least
    /// as fast and the number of flows has no cost, smaller numbers are omitted. CPU depends on
    /// bytes, not on flows.
    Fastest,
    /// For each node, the numbers in a range (least, greatest).
    Within(Vec<(u32, u32)>),
}

/// The program of a graph, and the meaning of its variables.
pub struct Built<'a> {
    graph: &'a Graph,
    choice: Counts,
    commodities: Vec<Commodity>,
    /// Rate in bytes per second that the value 1 represents.
    scale: f64,
    program: Program,
    /// Rate of the whole dataset.
    rate: Var,
    /// Flows by edge and commodity.
    edges: Vec<Vec<Var>>,
    /// Counts by node. Empty for logical nodes.
    nodes: Vec<Vec<Count>>,
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
            .map(|demand| demand.seconds.max(demand.cpu / f64::from(node.most_flows)))
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
    /// Creates the program of a checked graph. Rates are in units of `scale` bytes per second.
    pub fn new(graph: &'a Graph, scale: f64, choice: Counts) -> Built<'a> {
        let mut program = Program::default();
        let commodities = graph.commodities();
        let rate = program.real(MOST);
        let edges = graph
            .edges
            .iter()
            .map(|_| commodities.iter().map(|_| program.real(MOST)).collect())
            .collect();
        let mut built = Built {
            graph,
            choice,
            commodities,
            scale,
            program,
            rate,
            edges,
            nodes: Vec::new(),
        };
        built.conserve();
        let compressed = graph.compressed_nodes();
        for (node, &compressed) in compressed.iter().enumerate() {
            let counts = built.counts(node, compressed);
            built.nodes.push(counts);
        }
        built.tie();
        built.link_flows();
        built.bind_hosts();
        built
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
                terms.extend(self.leaving(node, commodity, -1.0));
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
        let mut counts: Vec<Count> = Vec::new();
        for (flows, demands) in self.candidates(node, compressed) {
            let members = self.program.whole(it.members);
            let through: Vec<(Var, Demand)> = demands
                .into_iter()
                .map(|demand| {
                    let possible = demand.seconds.is_finite();
                    (self.program.real(if possible { MOST } else { 0.0 }), demand)
                })
                .collect();
            self.bind_by(&through, |demand| demand.seconds, members, 1.0);
            self.bind_by(&through, |demand| demand.cpu, members, f64::from(flows));
            let costs_nothing = through.iter().all(|(_, demand)| demand.seconds <= 0.0);
            if costs_nothing && !it.is_passed_by_plain() {
                // Data without a cost still need a flow.
                let least = 1.0 / (MOST * self.scale);
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
            terms.extend(counts.iter().map(|count| (count.through[commodity].0, 1.0)));
            self.program.row(terms, Relation::Eq, 0.0);
        }
        let all = counts.iter().map(|count| (count.members, 1.0)).collect();
        self.program.row(all, Relation::Le, f64::from(it.members));
        if it.same_flows && it.members > 1 {
            self.choose_one(&[node], std::slice::from_ref(&counts));
        }
        counts
    }

    /// Adds the row Σ x · demand ≤ factor · members.
    fn bind_by(
        &mut self,
        through: &[(Var, Demand)],
        asked: impl Fn(&Demand) -> f64,
        members: Var,
        factor: f64,
    ) {
        let scale = self.scale;
        let mut terms: Vec<(Var, f64)> = through
            .iter()
            .filter(|(_, demand)| demand.seconds.is_finite())
            .map(|(var, demand)| (*var, asked(demand) * scale))
            .filter(|term| term.1 > 0.0)
            .collect();
        if terms.is_empty() {
            return;
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
        let (mut least, mut most) = (it.least_flows, flows_at_most(self.graph, node));
        if let Counts::Within(ranges) = &self.choice {
            (least, most) = (least.max(ranges[node].0), most.min(ranges[node].1));
        }
        for flows in least..=most {
            let demands: Vec<Demand> = self
                .commodities
                .iter()
                .map(|&commodity| self.graph.demand(node, compressed, commodity, flows))
                .collect();
            let useless = !linked && kept.iter().any(|fewer| dominates(fewer, &demands));
            if useless {
                continue;
            }
            if self.choice == Counts::Fastest && !linked && !self.counts_memory(node) {
                kept.retain(|(_, fewer)| !is_as_fast(&demands, fewer));
            }
            kept.push((flows, demands));
        }
        kept
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
    }

    /// Sets the flows of a node with the flows of others to their sum.
    fn link_flows(&mut self) {
        for (node, it) in self.graph.nodes.iter().enumerate() {
            if it.flows_of.is_empty() {
                continue;
            }
            let mut terms = flows_of(&self.nodes[node], -1.0);
            for &of in &it.flows_of {
                terms.extend(flows_of(&self.nodes[of], 1.0));
            }
            self.program.row(terms, Relation::Eq, 0.0);
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
        let own = self.graph.nodes.iter().zip(&self.nodes);
        own.filter(|(node, _)| node.flows_of.is_empty())
            .flat_map(|(_, counts)| flows_of(counts, 1.0))
            .collect()
    }

    /// Finds the fastest solution.
    ///
    /// # Errors
    ///
    /// If there is no solution.
    pub fn fastest(&self, bound: Bound) -> Result<Found, Unsolved> {
        self.rate_program().solve(bound)
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

    /// Finds the solution with the least CPU. Returns `None` if none was found.
    pub fn least_cpu(&self, bound: Bound) -> Option<Found> {
        self.least(&self.all_cpu(), bound)
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

    /// Returns for each node a range that contains its flows in a solution with the fewest flows,
    /// and the number of flows with which a node with one member carries the flow of this solution.
    ///
    /// The range follows from the minimum that each node needs for the rate, and from the flows of
    /// this solution: a node cannot have more additional flows than all other nodes together could
    /// save.
    pub fn ranges(&self, found: &Found, bound: Bound) -> Ranges {
        let count = self.graph.nodes.len();
        let mut ranges = Ranges {
            within: vec![(1, 1); count],
            enough: vec![(1, 1); count],
        };
        let mut spare = vec![0_u32; count];
        for (node, spare) in spare.iter_mut().enumerate() {
            let it = &self.graph.nodes[node];
            let most = flows_at_most(self.graph, node);
            ranges.enough[node] = (it.least_flows, most);
            if it.is_logical() || !it.flows_of.is_empty() {
                ranges.within[node] = (1, most);
                continue;
            }
            let used = self.node_use(&self.nodes[node], found).flows();
            let is_single = it.members == 1 && !self.is_linked(node);
            let enough = if is_single && used > 0 {
                self.enough(node, found, used)
            } else {
                used
            };
            if is_single {
                ranges.enough[node] = (it.least_flows, enough.max(it.least_flows));
            }
            let least = if enough > 0 {
                self.least_for(node, enough, bound)
            } else {
                0
            };
            *spare = enough.saturating_sub(least);
            ranges.within[node] = (if is_single { least.max(1) } else { 1 }, enough);
        }
        let all = spare.iter().fold(0_u32, |all, it| all.saturating_add(*it));
        for (node, within) in ranges.within.iter_mut().enumerate() {
            if self.graph.nodes[node].flows_of.is_empty() {
                let most = flows_at_most(self.graph, node);
                within.1 = within.1.saturating_add(all - spare[node]).min(most);
            }
        }
        ranges
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
            seconds <= 1.0 + TOLERANCE && cpu <= f64::from(flows) * (1.0 + TOLERANCE)
        };
        let least = self.graph.nodes[node].least_flows;
        (least..=used).find(fits).unwrap_or(used)
    }

    /// Returns a lower bound of the flows that a node needs for the fixed rate and CPU with any
    /// choice of the others. `enough` flows are known to suffice. Not always the greatest lower
    /// bound.
    fn least_for(&self, node: usize, enough: u32, bound: Bound) -> u32 {
        let it = &self.graph.nodes[node];
        if it.members > 1 {
            // Divides the minimum load of the node by the best rate of one flow.
            let must = self.least_load(node, bound, |_| 1.0);
            let compressed = self.graph.compressed_nodes()[node];
            let seconds = |flows: u32| {
                let demands = self.commodities.iter();
                let demands = demands.map(|&it| self.graph.demand(node, compressed, it, flows));
                demands
                    .map(|demand| demand.seconds)
                    .fold(f64::INFINITY, f64::min)
            };
            let counts = it.least_flows..=it.most_flows;
            let best = counts.map(|flows| 1.0 / (f64::from(flows) * seconds(flows)));
            let of_one_flow = best.fold(0.0, f64::max);
            // The number of flows is small, so the conversion is lossless.
            return (must / of_one_flow).ceil().clamp(0.0, f64::from(enough)) as u32;
        }
        if enough <= it.least_flows {
            // The node either needs this number of flows or none. Data that bypass it need no flow.
            let passes = |commodity: usize| {
                it.is_passed_by_plain() && self.commodities[commodity].codec.is_none()
            };
            let asks = |commodity| if passes(commodity) { 0.0 } else { 1.0 };
            let must = self.least_load(node, bound, asks);
            return if must > self.scale * TOLERANCE {
                enough
            } else {
                0
            };
        }
        let compressed = self.graph.compressed_nodes()[node];
        // A smaller number of flows can carry more than a larger one, so all smaller numbers are
        // checked together.
        let least = |commodity: usize, of: fn(Demand, u32) -> f64| {
            let it = self.commodities[commodity];
            let fewer = self.graph.nodes[node].least_flows..enough;
            fewer
                .map(|flows| of(self.graph.demand(node, compressed, it, flows), flows))
                .fold(f64::INFINITY, f64::min)
        };
        // Checks the limit by time, and the limit by the cores of the flows.
        let by_time = |commodity| least(commodity, |demand, _| demand.seconds.min(1e6));
        let by_cores = |commodity| least(commodity, |demand, flows| demand.cpu / f64::from(flows));
        let is_short = self.least_load(node, bound, by_time) > 1.0 + TOLERANCE
            || self.least_load(node, bound, by_cores) > 1.0 + TOLERANCE;
        if is_short { enough } else { 0 }
    }

    /// Returns the minimum of the flow through a node in bytes per second, weighted by commodity.
    fn least_load(&self, node: usize, bound: Bound, weight: impl Fn(usize) -> f64) -> f64 {
        let through: Vec<(Var, f64)> = self.nodes[node]
            .iter()
            .flat_map(|count| count.through.iter().enumerate())
            .map(|(commodity, (var, _))| (*var, weight(commodity) * self.scale))
            .collect();
        let mut program = self.program.clone();
        program.minimise(&through);
        match program.solve(bound) {
            // If the search has a gap, the true minimum may be less.
            Ok(found) => -found.objective * (1.0 - found.gap.min(1.0)) * (1.0 - 1e-5),
            Err(_) => 0.0,
        }
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
    pub fn fewest_flows(&self, bound: Bound) -> Option<Found> {
        self.least(&self.all_flows(), bound)
    }

    fn least(&self, terms: &[(Var, f64)], bound: Bound) -> Option<Found> {
        if terms.is_empty() {
            return None;
        }
        let mut program = self.program.clone();
        program.minimise(terms);
        program.solve(bound).ok()
    }

    /// Returns the number of variables of the program.
    pub fn variables(&self) -> u64 {
        self.program.column_bounds().count() as u64
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

/// Ranges of the number of flows for each node.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranges {
    /// Range that contains a solution with the fewest flows.
    pub within: Vec<(u32, u32)>,
    /// Range within which the solution that was given can be carried.
    pub enough: Vec<(u32, u32)>,
}

/// True if the first demands need at most the time of the second, for every commodity.
fn is_as_fast(one: &[Demand], other: &[Demand]) -> bool {
    one.iter()
        .zip(other)
        .all(|(one, other)| one.seconds <= other.seconds)
}

/// True if fewer flows carry every commodity at least as fast, even if their cores limit them.
fn dominates((flows, fewer): &(u32, Vec<Demand>), more: &[Demand]) -> bool {
    fewer.iter().zip(more).all(|(fewer, more)| {
        let by_cores = fewer.cpu / f64::from(*flows);
        fewer.seconds <= more.seconds && by_cores <= more.seconds
    })
}
