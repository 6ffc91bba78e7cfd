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
//! - [`program`]: the linear program and its solver
//! - `build`: from a graph to its program
//! - [`prices`]: what limits an optimum, and what more of a resource would give

mod build;
pub mod prices;
pub mod program;

use std::fmt;

use crate::graph::{Commodity, Graph, GraphError};

use self::build::Built;
use self::program::Unsolved;

/// Nodes of branch and bound for one program: paper-sized graphs need some tens. At the bound the
/// best found is returned, with its gap.
pub const DEFAULT_NODES: u64 = 20_000;

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
pub fn best_rate(graph: &Graph, nodes: u64) -> Result<(f64, f64), SolveError> {
    graph.check()?;
    let (built, found) = fastest(graph, nodes)?;
    Ok((built.rate(&found), found.gap))
}

/// The best rate, then the least CPU for it, then the fewest flows, with all parts moving at the
/// same time.
///
/// # Errors
///
/// Where the graph is wrong or has no optimum.
pub fn solve(graph: &Graph, nodes: u64) -> Result<Optimum, SolveError> {
    graph.check()?;
    let (mut built, fastest) = fastest(graph, nodes)?;
    let gap = fastest.gap;
    built.keep_rate(&fastest, SAME_RATE);
    let leanest = built.least_cpu(nodes).unwrap_or(fastest);
    built.keep_cpu(&leanest, SAME_CPU);
    let fewest = built.fewest_flows(nodes).unwrap_or(leanest);
    Ok(built.optimum(&fewest, gap))
}

/// The program at the scale of its own optimum, with the fastest solution.
fn fastest(graph: &Graph, nodes: u64) -> Result<(Built<'_>, program::Found), SolveError> {
    let mut scale = build::first_scale(graph)?;
    // The optimum may be far below the first guess: numbers near one are what the solver likes.
    for _ in 0..3 {
        let built = Built::new(graph, scale);
        let found = built.fastest(nodes)?;
        let share = found.objective;
        if share >= build::MOST {
            return Err(SolveError::Unlimited);
        }
        if (0.1..=10.0).contains(&share) || share <= 0.0 {
            return Ok((built, found));
        }
        scale *= share;
    }
    let built = Built::new(graph, scale);
    let found = built.fastest(nodes)?;
    Ok((built, found))
}

/// Each part by itself, one after the other: the optimum of each, in the order of the parts.
///
/// # Errors
///
/// As [`solve`].
pub fn solve_in_turn(graph: &Graph, nodes: u64) -> Result<Vec<Optimum>, SolveError> {
    graph.check()?;
    let alone = |part: usize| {
        let alone = Graph {
            parts: vec![graph.parts[part].clone()],
            ..graph.clone()
        };
        solve(&alone, nodes)
    };
    (0..graph.parts.len()).map(alone).collect()
}
