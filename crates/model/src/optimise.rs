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
//! Most graphs do not need this program: if the members of each class can be combined, the search
//! uses one number of flows for each class (`compact`).
//!
//! - `compact`: branch and bound over the total flows of each class
//! - [`program`]: the linear program over all counts, and its solver
//! - `build`: conversion of a graph to its program
//! - [`prices`]: the bottlenecks of an optimum, and the gain of more resources
//! - `sure`: enough streams for the guaranteed windows

mod build;
mod compact;
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

/// The limits of the search for one program. At a limit, the best solution found is returned with
/// its gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Maximum number of nodes of branch and bound.
    pub nodes: u64,
    /// Time limit. The program over all counts measures the time itself. Elsewhere it is converted
    /// to a number of steps that a slow host performs in that time. It is extended at most 30 times
    /// until a solution is found. With `None`, only the number of nodes counts, so that the result
    /// is the same on every host.
    pub time: Option<Duration>,
    /// Maximum number of variables of a program for which the search for the fewest flows uses all
    /// numbers of flows. A larger program uses a range for each node.
    pub whole: u64,
    /// True to solve the program over all counts even if the flows of each class could be combined.
    /// Slower: a second method to find the same optimum.
    pub by_counts: bool,
}

impl Bound {
    /// Limits only the number of nodes. Graphs of the size in the papers need some tens.
    pub const DEFAULT: Bound = Bound {
        nodes: 20_000,
        time: None,
        whole: MOST_VARIABLES_WHOLE,
        by_counts: false,
    };
}

/// Limit on the search for the fewest flows: nodes of branch and bound times variables. Small
/// programs are searched completely, the largest benchmark graphs within a second.
const WORK_FOR_FLOWS: u64 = 250_000;

/// Default of [`Bound::whole`].
const MOST_VARIABLES_WHOLE: u64 = 400;

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
                "no solution was found within the limits: combine equal components into one node \
                with \"members\", or lower \"most_flows\"",
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
            Unsolved::Unbounded => SolveError::Unlimited,
            Unsolved::Stopped => SolveError::Stopped,
            // A rate of zero is always feasible.
            Unsolved::Infeasible => SolveError::Numerical("infeasible".to_owned()),
            Unsolved::Numerical(what) => SolveError::Numerical(what),
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
    if let Some(found) = by_classes(graph, None, bound, |it| it.rate_above(0.0, bound))? {
        return Ok(found.unwrap_or((0.0, 0.0)));
    }
    let (built, found) = fastest(graph, None, bound)?;
    Ok((built.rate(&found), found.gap))
}

/// Like [`best_rate`], but starts from a known similar rate in bytes per second, which halves the
/// time.
///
/// # Errors
///
/// The same as for [`best_rate`].
pub fn best_rate_near(graph: &Graph, near: f64, bound: Bound) -> Result<(f64, f64), SolveError> {
    graph.check()?;
    if let Some(found) = by_classes(graph, Some(near), bound, |it| it.rate_above(0.0, bound))? {
        return Ok(found.unwrap_or((0.0, 0.0)));
    }
    let (built, found) = fastest(graph, Some(near), bound)?;
    Ok((built.rate(&found), found.gap))
}

/// Returns the best rate if it is greater than `above`, in bytes per second, else `None`. A bound
/// alone often proves that it is not greater.
///
/// # Errors
///
/// The same as for [`best_rate`].
pub fn best_rate_above(graph: &Graph, above: f64, bound: Bound) -> Result<Option<f64>, SolveError> {
    graph.check()?;
    if let Some(found) = by_classes(graph, Some(above), bound, |it| it.rate_above(above, bound))? {
        return Ok(found.map(|it| it.0));
    }
    let (built, found) = fastest(graph, Some(above), bound)?;
    Ok(Some(built.rate(&found)).filter(|rate| *rate > above))
}

/// Solves a graph by the total flows of each class. Returns `None` if the graph needs the program
/// over all counts.
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

/// Returns the program whose optimum is the best rate, with all numbers of flows, and the scale of
/// its objective in bytes per second. For other solvers.
///
/// # Errors
///
/// If the graph is invalid or nothing limits its rate.
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
    // The numbers in `enough` are known to be feasible. They are used if the search for the fewest
    // flows reaches its limit, which is low because this is the last objective.
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

/// Returns the program scaled to its optimum, with the fastest solution.
fn fastest(
    graph: &Graph,
    near: Option<f64>,
    bound: Bound,
) -> Result<(Built<'_>, program::Found), SolveError> {
    let first = build::first_scale(graph)?;
    let mut scale = near
        .filter(|near| near.is_finite() && *near > 0.0)
        .unwrap_or(first);
    // The optimum may be far below the first guess. The solver needs numbers near one.
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
