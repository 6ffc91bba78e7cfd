//! An optimum with its reasons: what it predicts and how surely, what limits it, what more of each
//! resource would give, which other choice comes next and why it loses.
//!
//! - `interval`: from the capacities' uncertainty to the prediction's
//! - `alternatives`: the next best choices
//! - `compression`: what codecs give
//! - `text`: as a paragraph
//! - `json`: as JSON
//! - `figures`: as pictures

mod alternatives;
mod compression;
mod figures;
mod interval;
mod json;
mod text;

use crate::capacity::Capacity;
use crate::graph::{Graph, NodeKind};
use crate::optimise::prices::{Change, Constraint, Price, binding, changed, prices};
use crate::optimise::{Bound, Optimum, SolveError, best_rate_near, solve};

pub use alternatives::{Alternative, Difference};
pub use compression::CompressionGain;
pub(crate) use compression::gain_of;
pub use figures::{one_figure, page};
pub use text::{comparison, rate_text, span_text};

/// A value with the range that it lies in with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Its lower end.
    pub low: f64,
    /// The likeliest value.
    pub likely: f64,
    /// Its upper end.
    pub high: f64,
}

/// What a graph predicts for its dataset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Bytes of the source per second while all layers are busy.
    pub rate: Range,
    /// Bytes of the source by all of the time.
    pub goodput: Range,
    /// Seconds from the command to the last durable byte.
    pub seconds: Range,
    /// Seconds of these that are round trips and handshakes.
    pub startup: f64,
    /// Seconds of these by which the ramp of TCP's windows is slower than the full rate. Negative
    /// if loss limits: windows begin above what loss leaves of them in the long run.
    pub ramp: f64,
}

/// What several changes together would give.
#[derive(Clone, Debug, PartialEq)]
pub struct JointPrice {
    /// The changes.
    pub changes: Vec<Change>,
    /// Bytes of the source per second more, 0 or more.
    pub gain: f64,
}

/// An optimum and its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The optimum.
    pub optimum: Optimum,
    /// What it predicts.
    pub prediction: Prediction,
    /// What codecs give; none if none is used.
    pub compression: Option<CompressionGain>,
    /// What limits it: each set by itself is enough, the constraints of one set limit together.
    pub binding: Vec<Vec<Constraint>>,
    /// What each change by itself would give, the largest gain first.
    pub prices: Vec<Price>,
    /// What more of everything that limits together would give; `None` if one alone limits.
    pub joint: Option<JointPrice>,
    /// Other choices, the best first: the first is the runner-up.
    pub alternatives: Vec<Alternative>,
    /// What makes the answer less sure than it looks.
    pub doubts: Vec<String>,
}

/// Finds the optimum of a graph and its reasons.
///
/// # Errors
///
/// Where the graph is wrong or has no optimum.
pub fn explain(graph: &Graph, bound: Bound) -> Result<Explanation, SolveError> {
    let optimum = solve(graph, bound)?;
    let binding = binding(graph, &optimum, bound)?;
    let prices = prices(graph, optimum.rate, bound)?;
    let joint = joint(graph, &optimum, &binding, bound)?;
    let alternatives = alternatives::alternatives(graph, &optimum, bound);
    let prediction = predict(graph, &optimum, bound);
    Ok(Explanation {
        doubts: doubts(graph, &optimum),
        prediction,
        compression: gain_of(graph, &optimum, bound),
        binding,
        prices,
        joint,
        alternatives,
        optimum,
    })
}

/// What an optimum predicts for the dataset.
pub fn predict(graph: &Graph, optimum: &Optimum, bound: Bound) -> Prediction {
    let rate = interval::of_rate(graph, optimum, bound);
    let bytes: f64 = graph.parts.iter().map(|part| part.bytes).sum();
    let ramp = ramp(graph, optimum, bytes, bound);
    let at = |rate: f64| bytes / rate + graph.startup + ramp;
    let seconds = Range {
        low: at(rate.high),
        likely: at(rate.likely),
        high: at(rate.low),
    };
    Prediction {
        rate,
        goodput: Range {
            low: bytes / seconds.high,
            likely: bytes / seconds.likely,
            high: bytes / seconds.low,
        },
        seconds,
        startup: graph.startup,
        ramp,
    }
}

/// Segments of a stream's first window (RFC 6928).
const FIRST_WINDOW: f64 = 10.0;

/// Seconds by which the slowest path's start is behind its rate in the long run. Where loss limits,
/// the start is faster than that, and this is negative.
fn ramp(graph: &Graph, optimum: &Optimum, bytes: f64, bound: Bound) -> f64 {
    let compressed = graph.compressed_nodes();
    let on_wire: f64 = optimum
        .codecs
        .iter()
        .map(|&(it, rate)| rate / graph.codec_of(it).map_or(1.0, |codec| codec.ratio))
        .sum();
    let share = on_wire / optimum.rate.max(f64::MIN_POSITIVE);
    let mut slowest: Option<f64> = None;
    for (at, used) in optimum.nodes.iter().enumerate() {
        let Capacity::Path(path) = &graph.nodes[at].capacity else {
            continue;
        };
        let share = if compressed[at] { share } else { 1.0 };
        let (rate, flows) = (used.rate * share, used.flows());
        // The path's part of the dataset.
        let part = used.rate / optimum.rate.max(f64::MIN_POSITIVE) * share;
        let bytes = bytes * part;
        let first = FIRST_WINDOW * path.segment;
        let lossy = || {
            let free = rate_without_loss(graph, at, bound)? * part;
            path.lossy_seconds(bytes, flows, first, free)
        };
        let is_binding = path.is_limited_by_loss(flows) && rate > 0.99 * path.at(flows);
        let ramp = match is_binding.then(lossy).flatten() {
            Some(seconds) => seconds - bytes / rate,
            None => path.ramp_seconds(rate, bytes, first * f64::from(flows)),
        };
        slowest = Some(slowest.map_or(ramp, |slowest| slowest.max(ramp)));
    }
    slowest.unwrap_or(0.0)
}

/// What the graph would carry if one of its paths lost nothing.
fn rate_without_loss(graph: &Graph, node: usize, bound: Bound) -> Option<f64> {
    let mut free = graph.clone();
    if let Capacity::Path(path) = &mut free.nodes[node].capacity {
        path.loss = 0.0;
    }
    Some(solve(&free, bound).ok()?.rate)
}

/// The change that widens a constraint.
fn natural_change(graph: &Graph, constraint: Constraint) -> Change {
    match constraint {
        Constraint::Cores(host) => Change::Core(host),
        Constraint::Memory(host) => Change::Memory(host),
        Constraint::Node(node) => match graph.nodes[node].kind {
            NodeKind::Path => Change::Gigabit(node),
            _ if graph.nodes[node].flows_of.is_empty() => Change::Member(node),
            _ => Change::Flow(node),
        },
    }
}

fn joint(
    graph: &Graph,
    optimum: &Optimum,
    binding: &[Vec<Constraint>],
    bound: Bound,
) -> Result<Option<JointPrice>, SolveError> {
    let [together] = binding else {
        return Ok(None);
    };
    if together.len() < 2 {
        return Ok(None);
    }
    let changes: Vec<Change> = together
        .iter()
        .map(|&constraint| natural_change(graph, constraint))
        .collect();
    let more = changes
        .iter()
        .fold(graph.clone(), |graph, &change| changed(&graph, change));
    let rate = match best_rate_near(&more, optimum.rate, bound) {
        Ok((rate, _)) => rate,
        Err(SolveError::Unlimited) => f64::INFINITY,
        Err(error) => return Err(error),
    };
    Ok(Some(JointPrice {
        changes,
        gain: (rate - optimum.rate).max(0.0),
    }))
}

fn doubts(graph: &Graph, optimum: &Optimum) -> Vec<String> {
    let mut doubts = Vec::new();
    if optimum.gap > 0.0 {
        doubts.push(format!(
            "the search ended at its bound: a plan that is up to {:.1} % faster may exist",
            optimum.gap * 100.0
        ));
    }
    if graph.nodes.iter().all(|node| node.uncertainty == 0.0) {
        doubts.push(
            "no capacity has an uncertainty, so the prediction has no interval: give one to what \
             was measured"
                .to_owned(),
        );
    }
    doubts
}
