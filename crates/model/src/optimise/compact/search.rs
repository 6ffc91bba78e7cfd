//! Branch and bound over the numbers of flows of components.
//!
//! Each branch splits the range of one component in two. Branches that cannot be better than the
//! best solution are discarded. The relaxation is exact if each range is a single number, so the
//! search ends.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::component::Carries;
use super::relax::{Goal, NoPoint, Point, Relaxation};
use crate::optimise::Bound;

/// Maximum number of nodes at which flows are rounded and solved for.
const ROUNDED: u64 = 100;

/// Number of values that a slow host computes in a second. A time limit is converted to this
/// number, so that no clock is read and the result is the same on every host.
const SPEED: f64 = 2e8;

/// A feasible choice of flows.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The rate, or the negative of CPU or flows.
    pub score: f64,
    /// Flow along each path.
    pub flow: Vec<f64>,
    /// Flows of each component whose number is a variable, else zero.
    pub flows: Vec<u32>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Best choice that is better than the known one.
    pub choice: Option<Choice>,
    /// Upper bound of the score of any choice, within the tolerance of the objective.
    pub limit: f64,
}

struct Open {
    limit: f64,
    depth: u32,
    bounds: Vec<(u32, u32)>,
    point: Point,
}

impl PartialEq for Open {
    fn eq(&self, other: &Open) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Open {}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Open) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Open {
    fn cmp(&self, other: &Open) -> Ordering {
        let by_limit = self.limit.total_cmp(&other.limit);
        by_limit.then(self.depth.cmp(&other.depth))
    }
}

/// A search in progress.
pub struct Search<'a, 'b> {
    relaxation: &'b mut Relaxation<'a>,
    /// Score that must be exceeded.
    known: f64,
    best: Option<Choice>,
    open: BinaryHeap<Open>,
    nodes: u64,
}

impl<'a, 'b> Search<'a, 'b> {
    /// Finds the best choice with a score above `known`. Adds the work to `spent`, which the time
    /// limit applies to.
    ///
    /// # Errors
    ///
    /// If nothing limits the rate, or the arithmetic fails.
    pub fn run(
        relaxation: &'b mut Relaxation<'a>,
        known: f64,
        bound: Bound,
        spent: &mut u64,
    ) -> Result<Outcome, NoPoint> {
        let bounds = relaxation.bounds();
        let mut search = Search {
            relaxation,
            known,
            best: None,
            open: BinaryHeap::new(),
            nodes: 0,
        };
        search.visit(bounds, 0)?;
        *spent += std::mem::take(&mut search.relaxation.work);
        while let Some(open) = search.open.pop() {
            if !search.can_gain(open.limit) {
                // The remaining nodes are not better.
                break;
            }
            // A late solution is better than no solution.
            let is_known = search.best.is_some() || search.known > 0.0;
            let late = bound
                .time
                .is_some_and(|most| *spent as f64 >= most.as_secs_f64() * SPEED);
            if search.nodes >= bound.nodes || (late && is_known) {
                let limit = open.limit;
                return Ok(search.outcome(limit));
            }
            search.branch(open)?;
            *spent += std::mem::take(&mut search.relaxation.work);
        }
        let limit = search.known;
        Ok(search.outcome(limit))
    }

    fn outcome(self, limit: f64) -> Outcome {
        Outcome {
            limit: limit.max(self.known),
            choice: self.best,
        }
    }

    /// True if a score of `limit` exceeds the known one by more than the tolerance of the
    /// objective.
    fn can_gain(&self, limit: f64) -> bool {
        if self.known == f64::NEG_INFINITY {
            return true;
        }
        let size = self.known.abs();
        match self.relaxation.goal {
            Goal::Rate => limit > self.known + 1e-7 * size,
            Goal::Cpu { .. } => limit > self.known + 1e-4 * size + 1e-7,
            // Scores are integers.
            Goal::Flows { .. } => limit >= self.known + 1.0 - 1e-5,
        }
    }

    fn accept(&mut self, score: f64, flow: &[f64], flows: Vec<u32>) {
        if self.best.is_none() && self.known == f64::NEG_INFINITY || score > self.known {
            self.known = score;
            self.best = Some(Choice {
                score,
                flow: flow.to_vec(),
                flows,
            });
        }
    }

    /// Solves the relaxation within bounds, and keeps the node if it may contain a better choice.
    fn visit(&mut self, mut bounds: Vec<(u32, u32)>, depth: u32) -> Result<(), NoPoint> {
        self.nodes += 1;
        if !self.narrow(&mut bounds) {
            return Ok(());
        }
        let point = match self.relaxation.solve(&bounds) {
            Ok(point) => point,
            Err(NoPoint::Infeasible) => return Ok(()),
            Err(error) => return Err(error),
        };
        if !self.can_gain(point.score) {
            return Ok(());
        }
        let exact = self.try_choices(&point, &bounds);
        if exact || !self.can_gain(point.score) {
            return Ok(());
        }
        self.open.push(Open {
            limit: point.score,
            depth,
            bounds,
            point,
        });
        Ok(())
    }

    /// Searches for a choice near a solution of the relaxation. Returns true if it is the best
    /// within the bounds.
    fn try_choices(&mut self, point: &Point, bounds: &[(u32, u32)]) -> bool {
        let whole = |it: &f64| (it - it.round()).abs() < 1e-6;
        let own_score = |search: &Self, flows: &[u32]| match search.relaxation.goal {
            Goal::Flows { .. } => -search.relaxation.count(flows),
            _ => point.score,
        };
        let none = vec![0.0; point.flows.len()];
        for from in [&none, &point.flows] {
            if let Some(flows) = self.relaxation.fitting(from, &point.flow) {
                let score = own_score(self, &flows);
                self.accept(score, &point.flow, flows);
                if !self.can_gain(point.score) {
                    return true;
                }
            }
        }
        let is_single = |at: usize| bounds[at].0 >= bounds[at].1 || !self.is_split(at);
        if (0..bounds.len()).all(is_single) && point.flows.iter().all(whole) {
            let flows: Vec<u32> = point.flows.iter().map(|it| it.round() as u32).collect();
            let score = own_score(self, &flows);
            self.accept(score, &point.flow, flows);
            return true;
        }
        if self.nodes <= ROUNDED {
            self.round(point);
        }
        false
    }

    /// Solves with the rounded flows of a solution of the relaxation.
    fn round(&mut self, point: &Point) {
        let problem = self.relaxation.problem;
        let mut flows: Vec<u32> = vec![0; point.flows.len()];
        for (at, it) in problem.components.iter().enumerate() {
            if self.relaxation.counted[at] && problem.flows_of[at].is_empty() {
                let most = it.flows_at_most();
                let near = (point.flows[at] - 1e-6).ceil().max(0.0) as u32;
                flows[at] = near.min(most);
            }
        }
        let mut bounds = self.relaxation.bounds();
        while !self.relaxation.has_memory(&flows) {
            // Reduces the component that was rounded up the most. The last flow of a component is
            // removed last.
            let over = |at: &usize| f64::from(flows[*at]) - point.flows[*at];
            let more = (0..flows.len()).filter(|&at| flows[at] > 0 && self.holds_memory(at));
            let order = |at: &usize| (flows[*at] > 1, over(at));
            let Some(at) = more.max_by(|a, b| {
                let (a, b) = (order(a), order(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
            }) else {
                return;
            };
            flows[at] -= 1;
        }
        self.relaxation.link(&mut flows);
        for (at, bounds) in bounds.iter_mut().enumerate() {
            if self.relaxation.counted[at] {
                *bounds = (flows[at], flows[at]);
            }
        }
        let Ok(rounded) = self.relaxation.solve(&bounds) else {
            return;
        };
        if self.can_gain(rounded.score)
            && let Some(flows) = self.relaxation.fitting(&rounded.flows, &rounded.flow)
        {
            let score = match self.relaxation.goal {
                Goal::Flows { .. } => -self.relaxation.count(&flows),
                _ => rounded.score,
            };
            self.accept(score, &rounded.flow, flows);
        }
    }

    /// True if the flows of a component use a memory that may be full.
    fn holds_memory(&self, at: usize) -> bool {
        let memory = &self.relaxation.problem.memory;
        memory.iter().any(|each| each[at] > 0.0)
    }

    /// Tightens bounds that follow from each other. Returns false if no choice is left.
    fn narrow(&self, bounds: &mut [(u32, u32)]) -> bool {
        let relaxation = &self.relaxation;
        let problem = relaxation.problem;
        let own: Vec<usize> = (0..bounds.len())
            .filter(|&at| relaxation.counted[at] && problem.flows_of[at].is_empty())
            .collect();
        for (at, of) in problem.flows_of.iter().enumerate() {
            if !relaxation.counted[at] || of.is_empty() {
                continue;
            }
            let low: u32 = of.iter().map(|&of| bounds[of].0).sum();
            let high: u32 = of.iter().map(|&of| bounds[of].1).sum();
            bounds[at] = (bounds[at].0.max(low), bounds[at].1.min(high));
            let (least, most) = bounds[at];
            if least > most {
                return false;
            }
            for &of in of {
                let (others_low, others_high) = (low - bounds[of].0, high - bounds[of].1);
                let range = &mut bounds[of];
                range.1 = range.1.min(most.saturating_sub(others_low));
                range.0 = range.0.max(least.saturating_sub(others_high));
            }
        }
        for each in &problem.memory {
            let least = |at: &usize| each[*at] * f64::from(bounds[*at].0);
            let held: f64 = own.iter().map(least).sum();
            if held > 1.0 + 1e-8 {
                return false;
            }
            for &at in own.iter().filter(|&&at| each[at] > 0.0) {
                let room = (1.0 + 1e-8 - held) / each[at];
                let most = f64::from(bounds[at].0) + room.floor();
                if most < f64::from(bounds[at].1) {
                    bounds[at].1 = most as u32;
                }
            }
        }
        if matches!(relaxation.goal, Goal::Flows { .. }) && self.known.is_finite() {
            let least: u32 = own.iter().map(|&at| bounds[at].0).sum();
            let most = -self.known - 1.0;
            let room = most - f64::from(least);
            if room < -1e-6 {
                return false;
            }
            for &at in &own {
                let high = f64::from(bounds[at].0) + room;
                if high < f64::from(bounds[at].1) {
                    bounds[at].1 = (high + 1e-6) as u32;
                }
            }
        }
        bounds
            .iter()
            .zip(&relaxation.counted)
            .all(|(it, counted)| !counted || it.0 <= it.1)
    }

    fn branch(&mut self, open: Open) -> Result<(), NoPoint> {
        let Some((at, last)) = self.split(&open) else {
            return Ok(());
        };
        let (low, high) = open.bounds[at];
        for range in [(low, last), (last + 1, high)] {
            let mut bounds = open.bounds.clone();
            bounds[at] = range;
            self.visit(bounds, open.depth + 1)?;
        }
        Ok(())
    }

    /// True if the number of flows of a component matters.
    fn is_split(&self, at: usize) -> bool {
        let carries = &self.relaxation.problem.components[at].carries;
        self.relaxation.counted[at] || matches!(carries, Carries::Mixed { .. })
    }

    /// Returns the component whose relaxed flows differ most from its capacity, and the last number
    /// of flows of the lower half.
    fn split(&self, open: &Open) -> Option<(usize, u32)> {
        let relaxation = &self.relaxation;
        let mut best: Option<(f64, usize, u32)> = None;
        for (at, &(low, high)) in open.bounds.iter().enumerate() {
            if low >= high || !self.is_split(at) {
                continue;
            }
            let (load, mix) = relaxation.load(at, &open.point.flow);
            let (far, last) = if relaxation.counted[at] {
                let flows = open.point.flows[at];
                let below = ((flows + 1e-6).floor() as u32).clamp(low, high);
                let here = relaxation.capacity(at, below, &mix);
                let short = (load - here.max(0.0)).max(0.0) / load.max(1e-9);
                let broken = (flows - flows.round()).abs().min(0.5);
                (short + 0.1 * broken, below.min(high - 1))
            } else {
                let fits = relaxation.fewest(at, (low, high), &open.point.flow);
                let far = if fits.is_some() { 0.0 } else { 1.0 };
                (far, low + (high - low) / 2)
            };
            let wide = 1e-6 * f64::from(high - low) / f64::from(high);
            if best.is_none_or(|it| far + wide > it.0) {
                best = Some((far + wide, at, last));
            }
        }
        best.map(|it| (it.1, it.2))
    }
}
