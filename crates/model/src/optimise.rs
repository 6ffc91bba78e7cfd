//! The best numbers of flows for a graph, exactly: paper 004, Figs. 4 and 8, without their
//! approximations.
//!
//! Capacities are tabulated over the numbers of flows, with one whole number for each, so that no
//! form has to be approximated by a quadratic one. What remains is a mixed-integer linear program
//! ([`program`]). Its objective is lexicographic: the least time for the dataset, then the least
//! CPU, then the fewest flows.
//!
//! All parts of the dataset move at the same time here ([`solve`]), each at its share of the bytes;
//! [`solve_in_turn`] moves one after the other, as a mover does that sends in the order of a walk.
//!
//! Most graphs need no such program: where the members of each class can be taken together, the
//! search is over one number of flows for each class (`compact`).
//!
//! - `compact`: branch and bound over the flows of each class together
//! - [`program`]: the linear program over all counts and its solver
//! - `build`: from a graph to its program
//! - `lp`: a program as a file for other solvers
//! - [`prices`]: what limits an optimum, and what more of a resource would give
//! - `sure`: streams enough for the windows that kernels surely give

mod build;
mod compact;
mod lp;
pub mod prices;
pub mod program;
mod sure;

use std::fmt;
use std::time::Duration;

use crate::graph::{Commodity, Graph, GraphError};
pub use sure::with_least_windows;

use self::build::{Built, Counts};
use self::compact::{Compact, Failed};
use self::program::{Program, Unsolved};

/// How long is searched for one program. At the bound the best found is returned, with its gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Nodes of branch and bound.
    pub nodes: u64,
    /// Time on the wall: the program over all counts measures it itself; elsewhere it is a number
    /// of steps that a slow host does in it. It is extended, 30 times at most, while
    /// there is no solution yet. `None` if only the nodes count, so that
    /// the result is the same on every host.
    pub time: Option<Duration>,
    /// A program of at most this many variables is searched for the fewest flows with all numbers
    /// of flows; a larger one within a range for each node.
    pub whole: u64,
    /// Whether the program over all counts is solved where the flows of each class together would
    /// do: slower, and a second way to the same optimum.
    pub by_counts: bool,
}

impl Bound {
    /// Nodes alone: paper-sized graphs need some tens.
    pub const DEFAULT: Bound = Bound {
        nodes: 20_000,
        time: None,
        whole: MOST_VARIABLES_WHOLE,
        by_counts: false,
    };
}

/// What is spent on the fewest flows: nodes of branch and bound times variables. Small programs are
/// searched to their end, the largest of the bars within a second.
const WORK_FOR_FLOWS: u64 = 250_000;

/// A program of so few variables is searched for the fewest flows with all numbers of flows.
const MOST_VARIABLES_WHOLE: u64 = 400;

/// What counts as the same rate in the next steps of the lexicographic objective, relative. The
/// solver's own tolerance is 1e-7.
const SAME_RATE: f64 = 1e-6;

/// What counts as the same CPU, relative: a flow is not worth less than a thousandth.
const SAME_CPU: f64 = 1e-3;

/// The best way to move a dataset through a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// Bytes of the source per second.
    pub rate: f64,
    /// Seconds for the whole dataset at this rate; a ramp and round trips come on top.
    pub seconds: f64,
    /// CPU seconds per second, of all hosts together.
    pub cpu: f64,
    /// Flows in all nodes together.
    pub flows: u64,
    /// How each node is used, as in [`Graph::nodes`].
    pub nodes: Vec<NodeUse>,
    /// Bytes of the source per second on each edge, as in [`Graph::edges`].
    pub edges: Vec<f64>,
    /// Bytes of the source per second of each part with each codec; those that carry nothing are
    /// left out.
    pub codecs: Vec<(Commodity, f64)>,
    /// By how much, relative, a better rate may exist; zero where this is the best.
    pub gap: f64,
}

/// How a node is used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUse {
    /// Members with their number of flows: `(flows, members)`, flows 1 or more.
    pub members: Vec<(u32, u32)>,
    /// Bytes of the source per second.
    pub rate: f64,
    /// The share of the time of the members in use, 0 to 1.
    pub utilisation: f64,
    /// CPU seconds per second.
    pub cpu: f64,
}

impl NodeUse {
    /// Flows of all members together.
    pub fn flows(&self) -> u32 {
        self.members
            .iter()
            .map(|&(flows, members)| flows * members)
            .sum()
    }
}

/// Why a graph has no optimum.
#[derive(Clone, Debug, PartialEq)]
pub enum SolveError {
    /// The graph itself is wrong.
    Graph(GraphError),
    /// Nothing in it limits the rate.
    Unlimited,
    /// The solver found nothing within its bound.
    Stopped,
    /// The solver gave up for reasons of arithmetic.
    Numerical(String),
}

impl fmt::Display for SolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SolveError::Graph(error) => error.fmt(f),
            SolveError::Unlimited => f.write_str(
                "nothing in the graph limits the rate: give at least one node on each way a capacity",
            ),
            SolveError::Stopped => f.write_str(
                "no solution was found within the bound: join equal components into one node with a \
                 count, or lower the most flows",
            ),
            SolveError::Numerical(what) => {
                write!(f, "the solver cannot compute this graph ({what}): compare its units")
            }
        }
    }
}

impl std::error::Error for SolveError {}

impl From<GraphError> for SolveError {
    fn from(error: GraphError) -> SolveError {
        SolveError::Graph(error)
    }
}

impl From<Unsolved> for SolveError {
    fn from(unsolved: Unsolved) -> SolveError {
        match unsolved {
            Unsolved::Unbounded => SolveError::Unlimited,
            Unsolved::Stopped => SolveError::Stopped,
            // No rate at all is always possible.
            Unsolved::Infeasible => SolveError::Numerical("infeasible".to_owned()),
            Unsolved::Numerical(what) => SolveError::Numerical(what),
        }
    }
}

/// The best rate alone, with all parts moving at the same time: bytes of the source per second, and
/// the gap.
///
/// # Errors
///
/// Where the graph is wrong or has no optimum.
pub fn best_rate(graph: &Graph, bound: Bound) -> Result<(f64, f64), SolveError> {
    graph.check()?;
    if let Some(found) = by_classes(graph, None, bound, |it| it.rate_above(0.0, bound))? {
        return Ok(found.unwrap_or((0.0, 0.0)));
    }
    let (built, found) = fastest(graph, None, bound)?;
    Ok((built.rate(&found), found.gap))
}

/// As [`best_rate`], where a rate near it is known, in bytes per second: in half of the time.
///
/// # Errors
///
/// As [`best_rate`].
pub fn best_rate_near(graph: &Graph, near: f64, bound: Bound) -> Result<(f64, f64), SolveError> {
    graph.check()?;
    if let Some(found) = by_classes(graph, Some(near), bound, |it| it.rate_above(0.0, bound))? {
        return Ok(found.unwrap_or((0.0, 0.0)));
    }
    let (built, found) = fastest(graph, Some(near), bound)?;
    Ok((built.rate(&found), found.gap))
}

/// The best rate where it is above another one, in bytes per second; `None` if it is not, which is
/// often proven by a bound alone.
///
/// # Errors
///
/// As [`best_rate`].
pub fn best_rate_above(graph: &Graph, above: f64, bound: Bound) -> Result<Option<f64>, SolveError> {
    graph.check()?;
    if let Some(found) = by_classes(graph, Some(above), bound, |it| it.rate_above(above, bound))? {
        return Ok(found.map(|it| it.0));
    }
    let (built, found) = fastest(graph, Some(above), bound)?;
    Ok(Some(built.rate(&found)).filter(|rate| *rate > above))
}

/// Solves a graph by the flows of each class together; `None` if it is one for the program over
/// all counts.
fn by_classes<'a, T>(
    graph: &'a Graph,
    near: Option<f64>,
    bound: Bound,
    work: impl FnOnce(&Compact<'a>) -> Result<T, Failed>,
) -> Result<Option<T>, SolveError> {
    if bound.by_counts {
        return Ok(None);
    }
    let guess = match near.filter(|near| near.is_finite() && *near > 0.0) {
        Some(near) => near,
        None => build::first_scale(graph)?,
    };
    match Compact::new(graph, guess).and_then(|it| work(&it)) {
        Ok(found) => Ok(Some(found)),
        Err(Failed::Unlimited) => Err(SolveError::Unlimited),
        Err(Failed::Other) => Ok(None),
    }
}

/// The program whose optimum is the best rate, with all numbers of flows, and the bytes per second
/// in which its objective is counted: for other solvers.
///
/// # Errors
///
/// Where the graph is wrong or nothing limits it.
pub fn rate_program(graph: &Graph) -> Result<(Program, f64), SolveError> {
    let (rate, _) = best_rate(graph, Bound::DEFAULT)?;
    let scale = if rate > 0.0 {
        rate
    } else {
        build::first_scale(graph)?
    };
    let all = Counts::Within(vec![(1, u32::MAX); graph.nodes.len()]);
    let counted = Built::new(graph, scale, all);
    Ok((counted.rate_program(), counted.scale()))
}

/// The best rate, then the least CPU for it, then the fewest flows, with all parts moving at the
/// same time. Streams are as many as carry it with the least windows, too.
///
/// # Errors
///
/// Where the graph is wrong or has no optimum.
pub fn solve(graph: &Graph, bound: Bound) -> Result<Optimum, SolveError> {
    let mut optimum = leanest(graph, bound)?;
    sure::add_streams(graph, &mut optimum);
    Ok(optimum)
}

/// The fastest with the least CPU and the fewest flows, by the likely windows.
fn leanest(graph: &Graph, bound: Bound) -> Result<Optimum, SolveError> {
    graph.check()?;
    if let Some(optimum) = by_classes(graph, None, bound, |it| it.solve(bound))? {
        return Ok(optimum);
    }
    let (mut built, fastest) = fastest(graph, None, bound)?;
    let gap = fastest.gap;
    let rate = built.rate(&fastest) * (1.0 - SAME_RATE);
    built.keep_rate(rate);
    let leanest = built.least_cpu(bound).unwrap_or(fastest);
    let cpu = built.cpu(&leanest) * (1.0 + SAME_CPU);
    built.keep_cpu(cpu);
    let ranges = built.ranges(&leanest, bound);
    // What is enough here is known to be possible: it is what remains where the search for the
    // fewest flows ends at its bound, which is lower since it is the last of the objectives.
    let all = vec![(1, u32::MAX); graph.nodes.len()];
    for (number, within) in [all, ranges.within, ranges.enough].into_iter().enumerate() {
        let mut counted = Built::new(graph, built.scale(), Counts::Within(within));
        if number == 0 && counted.variables() > bound.whole {
            continue;
        }
        counted.keep_rate(rate);
        counted.keep_cpu(cpu);
        let work = WORK_FOR_FLOWS / counted.variables().max(1);
        let least = Bound {
            nodes: bound.nodes.min(work),
            ..bound
        };
        if let Some(fewest) = counted.fewest_flows(least) {
            return Ok(counted.optimum(&fewest, gap));
        }
    }
    Ok(built.optimum(&leanest, gap))
}

/// The program at the scale of its own optimum, with the fastest solution.
fn fastest(
    graph: &Graph,
    near: Option<f64>,
    bound: Bound,
) -> Result<(Built<'_>, program::Found), SolveError> {
    let first = build::first_scale(graph)?;
    let mut scale = near
        .filter(|near| near.is_finite() && *near > 0.0)
        .unwrap_or(first);
    // The optimum may be far below the first guess: numbers near one are what the solver likes.
    for _ in 0..3 {
        let built = Built::new(graph, scale, Counts::Fastest);
        let found = built.fastest(bound)?;
        let share = found.objective;
        if share >= build::MOST {
            return Err(SolveError::Unlimited);
        }
        if (0.1..=10.0).contains(&share) || share <= 0.0 {
            return Ok((built, found));
        }
        scale *= share;
    }
    let built = Built::new(graph, scale, Counts::Fastest);
    let found = built.fastest(bound)?;
    Ok((built, found))
}

/// Each part by itself, one after the other: the optimum of each, in the order of the parts.
///
/// # Errors
///
/// As [`solve`].
pub fn solve_in_turn(graph: &Graph, bound: Bound) -> Result<Vec<Optimum>, SolveError> {
    graph.check()?;
    let alone = |part: usize| {
        let alone = Graph {
            parts: vec![graph.parts[part].clone()],
            ..graph.clone()
        };
        solve(&alone, bound)
    };
    (0..graph.parts.len()).map(alone).collect()
}
