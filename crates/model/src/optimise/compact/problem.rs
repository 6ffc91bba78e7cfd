//! A graph as paths from its start to its end through components.

use super::component::{Carries, Component};
use crate::graph::{Commodity, Graph, NodeKind};

/// Maximum number of variables for the flow along paths. Larger graphs need the program over all
/// counts.
const MOST_FLOWS: usize = 1500;

/// Maximum number of choices of flows for tied groups.
const MOST_TIED: usize = 200;

/// Maximum number of flows of one member.
const MOST_COUNTS: u32 = 100_000;

/// A graph in which the number of flows of each tied group is fixed.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Commodities of the graph.
    pub commodities: Vec<Commodity>,
    /// Share of the dataset for each part.
    pub weights: Vec<f64>,
    /// All paths from the start to the end, as indices in [`Graph::nodes`].
    pub ways: Vec<Vec<usize>>,
    /// All nodes that are not logical.
    pub components: Vec<Component>,
    /// Paths through each component.
    pub through: Vec<Vec<usize>>,
    /// For each component, the components whose flows pass it. Empty if it has its own number of
    /// flows.
    pub flows_of: Vec<Vec<usize>>,
    /// For each limited memory, the share of it that a flow of each component holds.
    pub memory: Vec<Vec<f64>>,
    /// Limited numbers of cores, and the components of their hosts.
    pub cores: Vec<(f64, Vec<usize>)>,
}

impl Problem {
    /// Creates the problems of a checked graph, one for each choice of flows of its tied groups.
    /// Returns `None` if members must be distinguished or there are too many paths. Rates are in
    /// units of `scale`.
    pub fn all(graph: &Graph, scale: f64) -> Option<Vec<Problem>> {
        let ways = ways(graph)?;
        let mut choices: Vec<Vec<u32>> = vec![Vec::new()];
        for group in &graph.tied {
            let nodes = || group.iter().map(|&node| &graph.nodes[node]);
            let least = nodes().map(|node| node.least_flows).min()?;
            let most = nodes().map(|node| node.most_flows).max()?;
            if choices.len().saturating_mul(most as usize) > MOST_TIED {
                return None;
            }
            let more = |choice: &Vec<u32>| {
                let with = |flows: u32| [&choice[..], &[flows]].concat();
                (least..=most).map(with).collect::<Vec<_>>()
            };
            choices = choices.iter().flat_map(more).collect();
        }
        let tied: Vec<usize> = graph.tied.iter().flatten().copied().collect();
        let is_odd = |&node: &usize| {
            let twice = tied.iter().filter(|&&other| other == node).count() > 1;
            twice || !graph.nodes[node].flows_of.is_empty() || graph.nodes[node].is_logical()
        };
        if tied.iter().any(is_odd) {
            return None;
        }
        let problems = choices.iter().map(|choice| {
            let tied = graph.tied.iter().zip(choice);
            let fixed = |node: usize| {
                let mut tied = tied.clone();
                tied.find(|(group, _)| group.contains(&node))
                    .map(|(_, &flows)| flows)
            };
            Problem::new(graph, scale, &ways, fixed)
        });
        problems.collect()
    }

    fn new(
        graph: &Graph,
        scale: f64,
        ways: &[Vec<usize>],
        fixed: impl Fn(usize) -> Option<u32>,
    ) -> Option<Problem> {
        let mut components = Vec::new();
        let mut places = vec![None; graph.nodes.len()];
        let compressed = graph.compressed_nodes();
        for (node, it) in graph.nodes.iter().enumerate() {
            if it.is_logical() {
                continue;
            }
            let mut flows = (it.least_flows, flows_at_most(graph, node));
            if let Some(fixed) = fixed(node) {
                let possible = (flows.0..=flows.1).contains(&fixed);
                flows = (fixed, if possible { fixed } else { 0 });
            }
            places[node] = Some(components.len());
            if flows.1 > MOST_COUNTS {
                return None;
            }
            let component = Component::new(graph, (node, compressed[node]), scale, flows)?;
            if !component.is_small() {
                return None;
            }
            components.push(component);
        }
        let through = |component: &Component| {
            let ways = ways.iter().enumerate();
            let passing = ways.filter(|(_, way)| way.contains(&component.node));
            passing.map(|(at, _)| at).collect()
        };
        let flows_of = |component: &Component| {
            let of = graph.nodes[component.node].flows_of.iter();
            of.filter_map(|&of| places[of]).collect()
        };
        let flows_of: Vec<Vec<usize>> = components.iter().map(flows_of).collect();
        let mut problem = Problem {
            commodities: graph.commodities(),
            weights: (0..graph.parts.len()).map(|at| graph.weight(at)).collect(),
            ways: ways.to_vec(),
            through: components.iter().map(through).collect(),
            flows_of,
            memory: Vec::new(),
            cores: Vec::new(),
            components,
        };
        for (at, host) in graph.hosts.iter().enumerate() {
            let on: Vec<usize> = (0..problem.components.len())
                .filter(|&it| graph.nodes[problem.components[it].node].host == Some(at))
                .collect();
            if host.memory.is_finite() {
                problem.bind_memory(graph, host.memory, &on);
            }
            if host.cores.is_finite() {
                problem.cores.push((host.cores, on));
            }
        }
        Some(problem)
    }

    /// Adds a limited memory, if the components can exceed it together.
    fn bind_memory(&mut self, graph: &Graph, memory: f64, on: &[usize]) {
        let mut each = vec![0.0; self.components.len()];
        for &at in on {
            let share = graph.nodes[self.components[at].node].memory_per_flow / memory;
            match &self.flows_of[at][..] {
                [] => each[at] += share,
                of => of.iter().for_each(|&of| each[of] += share),
            }
        }
        let all = self.components.iter().zip(&each);
        let all = all.map(|(it, each)| f64::from(it.flows_at_most()) * each);
        if all.sum::<f64>() > 1.0 {
            self.memory.push(each);
        }
    }

    /// Returns the variable of a commodity on a path.
    pub fn variable(&self, way: usize, commodity: usize) -> usize {
        way * self.commodities.len() + commodity
    }

    /// Returns the number of such variables.
    pub fn flows(&self) -> usize {
        self.ways.len() * self.commodities.len()
    }

    /// Returns the variables of the flow through a component with a factor for each commodity.
    /// Omits factors of zero.
    pub fn passing(
        &self,
        component: usize,
        factor: impl Fn(usize) -> f64,
    ) -> impl Iterator<Item = (usize, f64)> {
        let through = &self.through[component];
        let factors: Vec<f64> = (0..self.commodities.len()).map(factor).collect();
        through.iter().flat_map(move |&way| {
            let some = factors.clone().into_iter().enumerate();
            some.filter(|it| it.1 != 0.0)
                .map(move |(at, factor)| (self.variable(way, at), factor))
                .collect::<Vec<_>>()
        })
    }

    /// Returns the flow of each commodity through a component.
    pub fn rates(&self, component: usize, flow: &[f64]) -> Vec<f64> {
        let through = &self.through[component];
        let of = |at: usize| {
            through
                .iter()
                .map(|&way| flow[self.variable(way, at)])
                .sum()
        };
        (0..self.commodities.len()).map(of).collect()
    }

    /// Returns the CPU time of each variable.
    pub fn cpu(&self) -> Vec<f64> {
        let mut cpu = vec![0.0; self.flows()];
        for (at, it) in self.components.iter().enumerate() {
            for (variable, each) in self.passing(at, |commodity| it.cpu[commodity]) {
                cpu[variable] += each;
            }
        }
        cpu
    }

    /// True if a constraint other than the component's capacity depends on its number of flows.
    pub fn counts(&self, component: usize) -> bool {
        !self.flows_of[component].is_empty()
            || self.flows_of.iter().any(|of| of.contains(&component))
            || self.memory.iter().any(|each| each[component] > 0.0)
    }

    /// Returns the greatest load of a component if the rate of the dataset is `top`.
    pub fn load_at_most(&self, component: usize, top: f64) -> f64 {
        let Carries::Alike { weights, .. } = &self.components[component].carries else {
            return top;
        };
        let of_part = |part: usize| {
            let codecs = self.commodities.iter().zip(weights);
            let codecs = codecs.filter(|(commodity, _)| commodity.part == part);
            let most = codecs.fold(0.0, |most: f64, it| most.max(*it.1));
            most * self.weights[part]
        };
        top * (0..self.weights.len()).map(of_part).sum::<f64>()
    }
}

/// Returns the maximum number of flows of a member.
fn flows_at_most(graph: &Graph, node: usize) -> u32 {
    let it = &graph.nodes[node];
    if it.flows_of.is_empty() {
        return it.most_flows;
    }
    let of = it.flows_of.iter().map(|&of| &graph.nodes[of]);
    of.map(|of| of.members.saturating_mul(of.most_flows))
        .fold(0, u32::saturating_add)
}

/// Returns all paths from the start to the end, or `None` if there are too many.
fn ways(graph: &Graph) -> Option<Vec<Vec<usize>>> {
    let start = graph
        .nodes
        .iter()
        .position(|it| it.kind == NodeKind::Start)?;
    let most = MOST_FLOWS / graph.commodities().len().max(1);
    let mut ended = Vec::new();
    let mut open: Vec<(usize, Vec<usize>)> = vec![(start, vec![start])];
    while let Some((node, way)) = open.pop() {
        if graph.nodes[node].kind == NodeKind::End {
            ended.push(way);
            continue;
        }
        if ended.len() + open.len() > most {
            return None;
        }
        for &(_, to) in graph.edges.iter().filter(|edge| edge.0 == node) {
            let mut further = way.clone();
            further.push(to);
            open.push((to, further));
        }
    }
    Some(ended)
}
