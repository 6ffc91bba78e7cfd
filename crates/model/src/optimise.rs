//! Finds the best numbers of flows for a graph exactly: paper 004, Figs. 4 and 8, without their
//! approximations.
//!
//! Capacities are tabulated over the numbers of flows, with an integer variable for each number, so
//! that no form is approximated by a quadratic one. The result is a mixed-integer linear program
//! ([`program`]). Its objective is lexicographic: the least time for the dataset, then the least
//! CPU, then the fewest flows.
//!
//! [`solve`] moves all parts of the dataset at the same time, each at its share of the bytes.
//!
//! - [`program`]: a mixed-integer linear program, and its solver
//! - `build`: conversion of a graph to its program
//! - `through`: limits of nodes that share the flows of others
//! - [`prices`]: the bottlenecks of an optimum, and the gain of more resources
//! - `sure`: enough streams for the guaranteed windows

mod build;
pub mod prices;
pub mod program;
mod sure;
mod through;

use std::fmt;

use crate::graph::{Commodity, Graph, GraphError};
pub use sure::with_least_windows;

use self::build::{Built, Counts};
use self::program::{Program, Unsolved};

/// The limits of the search for one program. At a limit, the best solution found is returned with
/// its gap. Limits count work, not time, so that the result is the same on every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Maximum number of nodes of branch and bound.
    pub nodes: u64,
    /// Maximum work, about the number of multiplications of the solver.
    pub work: u64,
}

impl Bound {
    /// Default limits. Graphs of the size in the papers need a thousandth of them.
    pub const DEFAULT: Bound = Bound {
        nodes: 100_000,
        work: 10_000_000_000,
    };
}

/// The search for the fewest flows may use this part of the work. It is the last objective.
const SHARE_FOR_FLOWS: u64 = 25;

/// Relative difference of rates that count as equal in the later steps of the lexicographic
/// objective. The solver's own tolerance is 1e-7.
const SAME_RATE: f64 = 1e-6;

/// Relative difference of CPU times that count as equal. A flow is not worth less than a
/// thousandth.
const SAME_CPU: f64 = 1e-3;

/// The best way to move a dataset through a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// Rate in source bytes per second.
    pub rate: f64,
    /// Seconds for the whole dataset at this rate, without ramp and round trips.
    pub seconds: f64,
    /// CPU seconds per second of all hosts together.
    pub cpu: f64,
    /// Total number of flows in all nodes.
    pub flows: u64,
    /// Use of each node, in the order of [`Graph::nodes`].
    pub nodes: Vec<NodeUse>,
    /// Rate on each edge in source bytes per second, in the order of [`Graph::edges`].
    pub edges: Vec<f64>,
    /// Rate of each part with each codec in source bytes per second. Omits those with a rate of
    /// zero.
    pub codecs: Vec<(Commodity, f64)>,
    /// Relative amount by which a better rate may exist. Zero if this is the optimum.
    pub gap: f64,
}

/// The use of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeUse {
    /// Used members by number of flows: `(flows, members)`, with at least one flow.
    pub members: Vec<(u32, u32)>,
    /// Rate in source bytes per second.
    pub rate: f64,
    /// Utilisation of the used members, 0 to 1.
    pub utilisation: f64,
    /// CPU seconds per second.
    pub cpu: f64,
}

impl NodeUse {
    /// Returns the total number of flows of all members.
    pub fn flows(&self) -> u32 {
        self.members
            .iter()
            .map(|&(flows, members)| flows * members)
            .sum()
    }
}

/// Reasons why a graph has no optimum.
#[derive(Clone, Debug, PartialEq)]
pub enum SolveError {
    /// The graph is invalid.
    Graph(GraphError),
    /// Nothing limits the rate.
    Unlimited,
    /// The solver found no solution within its limits.
    Stopped,
    /// The solver failed because of numerical problems.
    Numerical(String),
}

impl fmt::Display for SolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SolveError::Graph(error) => error.fmt(f),
            SolveError::Unlimited => f.write_str(
                "nothing in the graph limits the rate: give at least one node on each path a capacity",
            ),
            SolveError::Stopped => f.write_str(
                "no plan was found within the limit of work: lower \"most_flows\", or leave out parts \
                and codecs that matter little",
            ),
            SolveError::Numerical(what) => {
                write!(f, "the solver cannot compute this graph ({what}): check its units")
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
            Unsolved::Stopped => SolveError::Stopped,
            // A rate of zero is always feasible.
            Unsolved::Infeasible => SolveError::Numerical("infeasible".to_owned()),
        }
    }
}

/// Returns only the best rate, with all parts moving at the same time, in source bytes per second,
/// and the gap.
///
/// # Errors
///
/// If the graph is invalid or has no optimum.
pub fn best_rate(graph: &Graph, bound: Bound) -> Result<(f64, f64), SolveError> {
    graph.check()?;
    let (built, found) = fastest(graph, None, bound)?;
    Ok((built.rate(&found), found.gap))
}

/// Like [`best_rate`], but starts from a known similar rate in bytes per second.
///
/// # Errors
///
/// The same as for [`best_rate`].
pub fn best_rate_near(graph: &Graph, near: f64, bound: Bound) -> Result<(f64, f64), SolveError> {
    graph.check()?;
    let (built, found) = fastest(graph, Some(near), bound)?;
    Ok((built.rate(&found), found.gap))
}

/// Returns the best rate in bytes per second if numbers of flows and members may be fractions. It
/// is at least the best rate. `near` is a similar rate. Returns `None` if it cannot be computed.
pub fn relaxed_rate(graph: &Graph, near: f64, bound: Bound) -> Option<f64> {
    graph.check().ok()?;
    let scale = scale_near(graph, near).ok()?;
    let built = Built::new(graph, scale, Counts::Fastest, build::MOST);
    let share = built.relaxed_rate(bound).ok()?;
    (share < build::MOST * 0.999).then_some(share * scale)
}

/// Returns the best rate if it is greater than `above`, in bytes per second, else `None`. A bound
/// alone often proves that it is not greater.
///
/// # Errors
///
/// The same as for [`best_rate`].
pub fn best_rate_above(graph: &Graph, above: f64, bound: Bound) -> Result<Option<f64>, SolveError> {
    graph.check()?;
    if above.is_nan() || above <= 0.0 {
        return best_rate(graph, bound).map(|it| Some(it.0).filter(|rate| *rate > above));
    }
    let built = bounded(graph, above, bound)?;
    if built.most() <= 1.0 {
        return Ok(None);
    }
    match built.fastest(Some(above), bound) {
        Ok(found) => Ok(Some(built.rate(&found)).filter(|rate| *rate > above)),
        Err(Unsolved::Infeasible) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the program whose optimum is the best rate, with all numbers of flows, and the scale of
/// its objective in bytes per second. For other solvers.
///
/// # Errors
///
/// If the graph is invalid or nothing limits its rate.
pub fn rate_program(graph: &Graph) -> Result<(Program, f64), SolveError> {
    let (rate, _) = best_rate(graph, Bound::DEFAULT)?;
    let scale = scale_near(graph, rate)?;
    let counted = Built::new(graph, scale, Counts::All, build::MOST);
    Ok((counted.rate_program(), counted.scale()))
}

/// Finds the best rate, then the least CPU for it, then the fewest flows, with all parts moving at
/// the same time. The number of streams is also sufficient for the guaranteed windows.
///
/// # Errors
///
/// If the graph is invalid or has no optimum.
pub fn solve(graph: &Graph, bound: Bound) -> Result<Optimum, SolveError> {
    let mut optimum = leanest(graph, bound)?;
    sure::add_streams(graph, &mut optimum);
    Ok(optimum)
}

/// Finds the fastest solution with the least CPU and the fewest flows, with the expected windows.
fn leanest(graph: &Graph, bound: Bound) -> Result<Optimum, SolveError> {
    graph.check()?;
    let (mut built, fastest) = fastest(graph, None, bound)?;
    let gap = fastest.gap;
    let rate = built.rate(&fastest) * (1.0 - SAME_RATE);
    if rate <= 0.0 {
        return Ok(built.optimum(&fastest, gap));
    }
    built.keep_rate(rate);
    let leanest = built.least_cpu(&fastest, bound).unwrap_or(fastest);
    let cpu = built.cpu(&leanest) * (1.0 + SAME_CPU);
    let most = rate / built.scale() * (1.0 + 10.0 * SAME_RATE);
    let mut counted = Built::new(graph, built.scale(), Counts::Fewest { rate }, most);
    counted.keep_rate(rate);
    counted.keep_cpu(cpu);
    let starts = counted.starts(&built, &leanest);
    let for_flows = Bound {
        work: bound.work / SHARE_FOR_FLOWS,
        ..bound
    };
    match counted.fewest_flows(&starts, for_flows) {
        Some(fewest) => Ok(counted.optimum(&counted.fastest_with(fewest), gap)),
        None => Ok(built.optimum(&leanest, gap)),
    }
}

/// Returns a rate in bytes per second near the optimum: `near` if it is usable, else a guess.
fn scale_near(graph: &Graph, near: f64) -> Result<f64, SolveError> {
    if near.is_finite() && near > 0.0 {
        Ok(near)
    } else {
        build::first_scale(graph)
    }
}

/// Returns the program scaled to its optimum, with the fastest solution.
fn fastest(
    graph: &Graph,
    near: Option<f64>,
    bound: Bound,
) -> Result<(Built<'_>, program::Found), SolveError> {
    let mut scale = scale_near(graph, near.unwrap_or_default())?;
    // The optimum may be far below the first guess. The solver needs numbers near one. The rate
    // without integers is close enough to find the scale.
    for attempt in 0..4 {
        let built = bounded(graph, scale, bound)?;
        let share = built.most();
        if attempt == 3 || (0.1..=10.0).contains(&share) || share <= 0.0 {
            let found = built.fastest(None, bound)?;
            if built.rate(&found) <= 0.0 && found.gap > 0.0 {
                return Err(SolveError::Stopped);
            }
            return Ok((built, found));
        }
        scale *= share;
    }
    Err(SolveError::Stopped)
}

/// Returns the program for a scale in bytes per second, with the best rate without integers as the
/// maximum of the rate.
fn bounded(graph: &Graph, scale: f64, bound: Bound) -> Result<Built<'_>, SolveError> {
    let built = Built::new(graph, scale, Counts::Fastest, build::MOST);
    let share = built.relaxed_rate(bound)?;
    if share >= build::MOST * 0.999 {
        return Err(SolveError::Unlimited);
    }
    Ok(Built::new(
        graph,
        scale,
        Counts::Fastest,
        share * (1.0 + 1e-7),
    ))
}
