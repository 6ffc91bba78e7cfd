//! Explains an optimum: its prediction and uncertainty, the bottleneck, the gain of more of each
//! resource, and the next best choice.
//!
//! - `interval`: from the uncertainty of the capacities to that of the prediction
//! - `alternatives`: the next best choices
//! - `compression`: the gain by codecs
//! - `text`: the explanation as a paragraph
//! - `json`: the explanation as JSON
//! - `figures`: the explanation as figures

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

/// Gap up to which an optimum counts as proven.
const PROVEN: f64 = 0.01;

/// Each price, limit and alternative may use this part of the work for the optimum. There are tens
/// of them.
const SHARE_FOR_EACH: u64 = 20;

/// A value with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Lower end.
    pub low: f64,
    /// Expected value.
    pub likely: f64,
    /// Upper end.
    pub high: f64,
}

/// The prediction of a graph for its dataset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Rate in source bytes per second while all layers are busy.
    pub rate: Range,
    /// Source bytes divided by the total time, in bytes per second.
    pub goodput: Range,
    /// Time in seconds from the command until the last byte is durable.
    pub seconds: Range,
    /// Part of the time for round trips and handshakes, in seconds.
    pub startup: f64,
    /// Part of the time that the ramp of TCP's windows loses, compared with the full rate, in
    /// seconds. Negative if loss is the bottleneck: windows are then larger at the start than in
    /// the long run.
    pub ramp: f64,
}

/// The gain of several changes together.
#[derive(Clone, Debug, PartialEq)]
pub struct JointPrice {
    /// Changes that are made together.
    pub changes: Vec<Change>,
    /// Additional source bytes per second, at least 0.
    pub gain: f64,
}

/// An optimum and its explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The optimum itself.
    pub optimum: Optimum,
    /// Prediction for the dataset.
    pub prediction: Prediction,
    /// Gain by codecs. `None` if no codec is used.
    pub compression: Option<CompressionGain>,
    /// Bottlenecks. The rate rises if one whole set is removed. The constraints in one set limit
    /// the rate together.
    pub binding: Vec<Vec<Constraint>>,
    /// Gain of each single change, the largest first.
    pub prices: Vec<Price>,
    /// Gain of more of all constraints that limit together. `None` if a single constraint limits.
    pub joint: Option<JointPrice>,
    /// Other choices, the best first. The first is the runner-up.
    pub alternatives: Vec<Alternative>,
    /// Reasons to mistrust the prediction.
    pub doubts: Vec<String>,
}

/// Finds the optimum of a graph and explains it.
///
/// # Errors
///
/// If the graph is invalid or has no optimum.
pub fn explain(graph: &Graph, bound: Bound) -> Result<Explanation, SolveError> {
    let optimum = solve(graph, bound)?;
    let bound = Bound {
        work: bound.work / SHARE_FOR_EACH,
        ..bound
    };
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

impl Explanation {
    /// True if no plan is much faster than this one.
    pub fn is_proven(&self) -> bool {
        self.optimum.gap <= PROVEN
    }
}

/// Predicts the rate and the time of an optimum for the dataset.
pub fn predict(graph: &Graph, optimum: &Optimum, bound: Bound) -> Prediction {
    let rate = interval::of_rate(graph, optimum, bound);
    let bytes: f64 = graph.parts.iter().map(|part| part.bytes).sum();
    let ramp = ramp(graph, optimum, bytes, bound);
    let at = |rate: f64| bytes / rate + graph.startup_seconds() + ramp;
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
        startup: graph.startup_seconds(),
        ramp,
    }
}

/// Size of a stream's first window in segments (RFC 6928).
const FIRST_WINDOW: f64 = 10.0;

/// Returns the time in seconds that the start of the slowest path loses, compared with its rate in
/// the long run. Negative if loss is the bottleneck, because the start is then faster.
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
        // Bytes of the dataset that take this path.
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

/// Returns the rate of the graph if one of its paths had no loss.
fn rate_without_loss(graph: &Graph, node: usize, bound: Bound) -> Option<f64> {
    let mut free = graph.clone();
    if let Capacity::Path(path) = &mut free.nodes[node].capacity {
        path.loss = 0.0;
    }
    Some(solve(&free, bound).ok()?.rate)
}

/// Returns the change that relaxes a constraint.
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
    if binding.iter().any(|set| set.len() < 2) {
        return Ok(None);
    }
    let Some(together) = binding.first() else {
        return Ok(None);
    };
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
        Err(SolveError::Stopped) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(JointPrice {
        changes,
        gain: (rate - optimum.rate).max(0.0),
    }))
}

fn doubts(graph: &Graph, optimum: &Optimum) -> Vec<String> {
    let mut doubts = Vec::new();
    if optimum.gap > 0.0 && optimum.gap <= PROVEN {
        doubts.push(format!(
            "the search ended at its limit of work: a plan that is up to {:.2} % faster may exist",
            optimum.gap * 100.0
        ));
    }
    if graph.nodes.iter().all(|node| node.uncertainty == 0.0) {
        doubts.push(
            "no capacity has an uncertainty, so the prediction has no interval: give measured capacities \
            an uncertainty"
                .to_owned(),
        );
    }
    doubts
}
