//! Finds the exact optimum by the total flows of each component. A class of equal members has one
//! number of flows, with the best split over the members, and branch and bound divides its range.
//!
//! The program over all counts ([`super::program`]) has an integer for each class and number of
//! flows. This method has one integer for each class, and a tighter relaxation. It requires classes
//! whose members can be combined, as in most graphs. Other graphs need that program.
//!
//! - [`simplex`]: small linear programs
//! - [`component`]: the capacity of a class by its number of flows
//! - [`hull`]: lines that bound the capacity from above
//! - [`problem`]: a graph as paths through components
//! - [`relax`]: the linear relaxation
//! - [`choice`]: numbers of flows for a solution of the relaxation
//! - [`search`]: branch and bound

mod choice;
mod component;
mod hull;
mod problem;
mod relax;
mod search;
mod simplex;

use self::problem::Problem;
use self::relax::{Counted, Goal, NoPoint, Point, Relaxation};
use self::search::{Choice, Outcome, Search};
use super::build::MOST;
use super::{Bound, NodeUse, Optimum, SAME_CPU, SAME_RATE};
use crate::graph::Graph;

/// Maximum number of nodes of branch and bound for the fewest flows.
const NODES_FOR_FLOWS: u64 = 5_000;

/// Tolerance of the CPU limit, in CPU seconds per second.
const TOLERANCE: f64 = 1e-6;

/// Reasons why there is no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Nothing limits the rate.
    Unlimited,
    /// The graph needs the program over all counts.
    Other,
}

impl From<NoPoint> for Failed {
    fn from(error: NoPoint) -> Failed {
        match error {
            NoPoint::Unlimited => Failed::Unlimited,
            NoPoint::Infeasible | NoPoint::Lost => Failed::Other,
        }
    }
}

/// The problems of a graph, one for each choice of flows of its tied groups, with their
/// relaxations.
pub struct Compact<'a> {
    graph: &'a Graph,
    scale: f64,
    /// Problems, the one with the highest possible rate first.
    problems: Vec<Bounded>,
}

struct Bounded {
    problem: Problem,
    relaxed: Point,
}

/// The fastest choice.
struct Fastest {
    problem: usize,
    choice: Choice,
    gap: f64,
}

impl<'a> Compact<'a> {
    /// Creates the problems of a checked graph. `guess` is an estimate of its rate.
    ///
    /// # Errors
    ///
    /// If nothing limits the rate, or the graph needs the program over all counts.
    pub fn new(graph: &'a Graph, guess: f64) -> Result<Compact<'a>, Failed> {
        let mut scale = guess;
        for _ in 0..4 {
            let problems = Problem::all(graph, scale).ok_or(Failed::Other)?;
            let mut bounded = Vec::new();
            for problem in problems {
                let mut relaxation = Relaxation::new(&problem, Goal::Rate, MOST, Counted::None);
                let relaxed = relaxation.solve(&relaxation.bounds())?;
                bounded.push(Bounded { problem, relaxed });
            }
            bounded.sort_by(|a, b| b.relaxed.score.total_cmp(&a.relaxed.score));
            let top = bounded.first().map_or(0.0, |it| it.relaxed.score);
            if (0.1..=10.0).contains(&top) || top <= 0.0 {
                return Ok(Compact {
                    graph,
                    scale,
                    problems: bounded,
                });
            }
            scale *= top;
        }
        Err(Failed::Other)
    }

    /// Returns the best rate above `above` in bytes per second, with its gap, or `None` if there is
    /// none.
    ///
    /// # Errors
    ///
    /// If the arithmetic fails.
    pub fn rate_above(&self, above: f64, bound: Bound) -> Result<Option<(f64, f64)>, Failed> {
        let found = self.fastest(above / self.scale, bound, &mut 0)?;
        Ok(found.map(|it| (it.choice.score * self.scale, it.gap)))
    }

    fn fastest(
        &self,
        above: f64,
        bound: Bound,
        spent: &mut u64,
    ) -> Result<Option<Fastest>, Failed> {
        let mut best: Option<Fastest> = None;
        let (mut known, mut limit) = (above, above);
        for (at, Bounded { problem, relaxed }) in self.problems.iter().enumerate() {
            if relaxed.score <= known * (1.0 + 1e-7) {
                continue;
            }
            let top = relaxed.score * (1.0 + 1e-9);
            let mut relaxation = Relaxation::new(problem, Goal::Rate, top, Counted::Needed);
            let counts = relaxation.counted.contains(&true);
            let free = if counts {
                None
            } else {
                relaxation.fitting(&relaxed.flows, &relaxed.flow)
            };
            let outcome = match free {
                Some(flows) => Outcome {
                    choice: Some(Choice {
                        score: relaxed.score,
                        flow: relaxed.flow.clone(),
                        flows,
                    }),
                    limit: relaxed.score,
                },
                None => Search::run(&mut relaxation, known, bound, spent)?,
            };
            limit = limit.max(outcome.limit);
            if let Some(choice) = outcome.choice {
                known = choice.score;
                best = Some(Fastest {
                    problem: at,
                    choice,
                    gap: 0.0,
                });
            }
        }
        if best.is_none() && above <= 0.0 && limit > 0.0 {
            return Err(Failed::Other);
        }
        // Within the tolerance of the search, this is the optimum.
        let gap = limit / known.max(f64::MIN_POSITIVE) - 1.0;
        Ok(best.map(|it| Fastest {
            gap: if gap > 2e-7 { gap } else { 0.0 },
            ..it
        }))
    }

    /// Finds the best rate, then the least CPU for it, then the fewest flows.
    ///
    /// # Errors
    ///
    /// If the arithmetic fails, or no solution was found within the limits.
    pub fn solve(&self, bound: Bound) -> Result<Optimum, Failed> {
        // Work spent on all three searches together.
        let spent = &mut 0;
        let Some(fastest) = self.fastest(0.0, bound, spent)? else {
            let is_proven = self.problems.iter().all(|it| it.relaxed.score <= 0.0);
            return match self.problems.first() {
                Some(first) if is_proven => Ok(self.nothing(&first.problem)),
                _ => Err(Failed::Other),
            };
        };
        let rate = fastest.choice.score * (1.0 - SAME_RATE);
        let (at, leanest) = self.leanest(&fastest, rate, bound, spent)?;
        let cpu = self.cpu(at, &leanest.flow) * (1.0 + SAME_CPU) + TOLERANCE;
        let (at, fewest) = self.fewest(at, &leanest, Goal::Flows { rate, cpu }, bound, spent)?;
        let problem = &self.problems[at].problem;
        // Minimises CPU again with these flows.
        let mut relaxation = Relaxation::new(problem, Goal::Cpu { rate }, rate, Counted::All);
        let bounds: Vec<(u32, u32)> = fewest.flows.iter().map(|&it| (it, it)).collect();
        let flow = relaxation.solve(&bounds).map_or(fewest.flow, |it| it.flow);
        Ok(self.optimum(problem, &flow, &fewest.flows, fastest.gap))
    }

    fn cpu(&self, problem: usize, flow: &[f64]) -> f64 {
        let cpu = self.problems[problem].problem.cpu();
        cpu.iter().zip(flow).map(|(cpu, flow)| cpu * flow).sum()
    }

    /// Returns the problems that may reach a rate.
    fn as_fast(&self, rate: f64) -> impl Iterator<Item = (usize, &Problem)> {
        let problems = self.problems.iter().enumerate();
        let fast = problems.filter(move |(_, it)| it.relaxed.score >= rate);
        fast.map(|(at, it)| (at, &it.problem))
    }

    fn leanest(
        &self,
        fastest: &Fastest,
        rate: f64,
        bound: Bound,
        spent: &mut u64,
    ) -> Result<(usize, Choice), Failed> {
        let mut best = (fastest.problem, fastest.choice.clone());
        let mut known = -self.cpu(best.0, &best.1.flow);
        if self
            .problems
            .iter()
            .all(|it| it.problem.cpu().iter().all(|&cpu| cpu <= 0.0))
        {
            return Ok(best);
        }
        for (at, problem) in self.as_fast(rate) {
            let top = rate * (1.0 + 1e-9);
            let mut relaxation = Relaxation::new(problem, Goal::Cpu { rate }, top, Counted::Needed);
            let outcome = Search::run(&mut relaxation, known, bound, spent)?;
            if let Some(choice) = outcome.choice {
                known = choice.score;
                best = (at, choice);
            }
        }
        Ok(best)
    }

    fn fewest(
        &self,
        leanest_at: usize,
        leanest: &Choice,
        goal: Goal,
        bound: Bound,
        spent: &mut u64,
    ) -> Result<(usize, Choice), Failed> {
        let Goal::Flows { rate, .. } = goal else {
            return Err(Failed::Other);
        };
        let bound = Bound {
            nodes: bound.nodes.min(NODES_FOR_FLOWS),
            ..bound
        };
        let top = rate * (1.0 + 1e-9);
        let mut best: Option<(usize, Choice)> = None;
        let mut known = f64::NEG_INFINITY;
        let lean = &self.problems[leanest_at].problem;
        let first = Relaxation::new(lean, goal, top, Counted::All);
        let before: Vec<f64> = leanest.flows.iter().map(|&it| f64::from(it)).collect();
        let none = vec![0.0; before.len()];
        for from in [&none, &before] {
            let Some(flows) = first.fitting(from, &leanest.flow) else {
                continue;
            };
            let score = -first.count(&flows);
            if score > known {
                known = score;
                let flow = leanest.flow.clone();
                best = Some((leanest_at, Choice { score, flow, flows }));
            }
        }
        let hints: Vec<f64> = (0..before.len())
            .map(|at| first.load(at, &leanest.flow).0)
            .collect();
        for (at, problem) in self.as_fast(rate) {
            let mut relaxation = Relaxation::new(problem, goal, top, Counted::All);
            relaxation.hints.clone_from(&hints);
            let outcome = Search::run(&mut relaxation, known, bound, spent)?;
            if let Some(choice) = outcome.choice {
                known = choice.score;
                best = Some((at, choice));
            }
        }
        best.ok_or(Failed::Other)
    }

    /// Returns the optimum if no data can be moved.
    fn nothing(&self, problem: &Problem) -> Optimum {
        let flow = vec![0.0; problem.flows()];
        let flows = vec![0; problem.components.len()];
        self.optimum(problem, &flow, &flows, 0.0)
    }

    /// Converts a solution to an optimum.
    fn optimum(&self, problem: &Problem, flow: &[f64], flows: &[u32], gap: f64) -> Optimum {
        let graph = self.graph;
        let mut nodes = vec![NodeUse::default(); graph.nodes.len()];
        let compressed = graph.compressed_nodes();
        for (at, it) in problem.components.iter().enumerate() {
            let rates = problem.rates(at, flow);
            let is_compressed = compressed[it.node];
            nodes[it.node] = self.node_use(problem, at, &rates, flows[at], is_compressed);
        }
        let of_part = |part: usize| {
            let rates = problem
                .commodities
                .iter()
                .zip(self.commodity_rates(problem, flow));
            let rates = rates.filter(|(commodity, _)| commodity.part == part);
            rates.map(|it| it.1).sum::<f64>() / problem.weights[part]
        };
        let parts = 0..graph.parts.len();
        let rate = parts.map(of_part).fold(f64::INFINITY, f64::min);
        let bytes: f64 = graph.parts.iter().map(|part| part.bytes).sum();
        let own = graph.nodes.iter().zip(&nodes);
        let codecs = problem
            .commodities
            .iter()
            .zip(self.commodity_rates(problem, flow));
        Optimum {
            rate,
            seconds: bytes / rate,
            cpu: nodes.iter().map(|node| node.cpu).sum(),
            flows: own
                .filter(|(node, _)| node.flows_of.is_empty())
                .map(|(_, node)| u64::from(node.flows()))
                .sum(),
            edges: self.edges(problem, flow),
            codecs: codecs
                .filter(|(_, rate)| *rate > self.scale * 1e-7)
                .map(|(&commodity, rate)| (commodity, rate))
                .collect(),
            nodes,
            gap,
        }
    }

    /// Returns the rate of each commodity in bytes per second.
    fn commodity_rates(&self, problem: &Problem, flow: &[f64]) -> Vec<f64> {
        let of = |at: usize| {
            let ways = 0..problem.ways.len();
            ways.map(|way| flow[problem.variable(way, at)]).sum::<f64>() * self.scale
        };
        (0..problem.commodities.len()).map(of).collect()
    }

    fn edges(&self, problem: &Problem, flow: &[f64]) -> Vec<f64> {
        let along = |edge: &(usize, usize)| {
            let ways = problem.ways.iter().enumerate();
            let along = ways.filter(|(_, way)| way.windows(2).any(|it| (it[0], it[1]) == *edge));
            let rates = along.flat_map(|(way, _)| {
                (0..problem.commodities.len()).map(move |at| flow[problem.variable(way, at)])
            });
            rates.sum::<f64>() * self.scale
        };
        self.graph.edges.iter().map(along).collect()
    }

    fn node_use(
        &self,
        problem: &Problem,
        at: usize,
        rates: &[f64],
        flows: u32,
        compressed: bool,
    ) -> NodeUse {
        let it = &problem.components[at];
        let members = it.split(flows);
        let used: u32 = members.iter().map(|it| it.1).sum();
        // Each member has the same utilisation.
        let shares = it.shares(&members);
        let mut busy = 0.0;
        for (&(flows, _), share) in members.iter().zip(shares) {
            for (&commodity, rate) in problem.commodities.iter().zip(rates) {
                let demand = self.graph.demand(it.node, compressed, commodity, flows);
                if *rate > 0.0 && demand.seconds.is_finite() {
                    busy += rate * share * self.scale * demand.seconds;
                }
            }
        }
        NodeUse {
            rate: rates.iter().sum::<f64>() * self.scale,
            utilisation: if used > 0 {
                busy / f64::from(used)
            } else {
                0.0
            },
            cpu: rates
                .iter()
                .zip(&it.cpu)
                .map(|(rate, cpu)| rate * cpu)
                .sum(),
            members,
        }
    }
}
