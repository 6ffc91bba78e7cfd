//! Branch and bound: divides the ranges of integer variables until the linear program of each part
//! has integer values or cannot be better than a known solution.
//!
//! The search counts its work, never time, so that it gives the same result on every host.

use std::collections::BinaryHeap;
use std::rc::Rc;

use super::branch::{Branching, Split};
use super::propagate::{Bounds, Propagation};
use super::simplex::{Basis, Simplex, Status};
use super::standard::Standard;
use super::{Found, Limits, Program, Unsolved};

/// Maximum distance of an integer variable from an integer.
pub const WHOLE: f64 = 1e-6;

/// Number of nodes between two attempts to round a relaxed solution.
const ROUNDING_PERIOD: u64 = 20;

/// Bounds of one variable, after those of another.
#[derive(Debug)]
struct Change {
    var: usize,
    lower: f64,
    upper: f64,
    before: Option<Rc<Change>>,
}

impl Drop for Change {
    /// Drops the list in a loop: it may be too long for a recursion.
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(mut change) = next.and_then(Rc::into_inner) {
            next = change.before.take();
        }
    }
}

/// A part of the search that is still open.
struct Open {
    /// No solution in this part has a smaller objective.
    bound: f64,
    order: u64,
    changes: Option<Rc<Change>>,
    basis: Rc<Basis>,
}

impl PartialEq for Open {
    fn eq(&self, other: &Open) -> bool {
        self.order == other.order
    }
}

impl Eq for Open {}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Open) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Open {
    fn cmp(&self, other: &Open) -> std::cmp::Ordering {
        // The greatest is the next: the least bound, then the newest.
        other
            .bound
            .total_cmp(&self.bound)
            .then(self.order.cmp(&other.order))
    }
}

/// The solution of a node's linear program.
enum Relaxed {
    /// Its objective.
    Solved(f64),
    /// No solution, or none better than the best one.
    Pruned,
    /// The limit on work was reached, or rounding errors prevented a solution.
    Open,
}

/// The state of a search. Objectives are minimised.
pub struct Tree<'a> {
    pub(super) program: &'a Program,
    pub(super) simplex: Simplex,
    pub(super) propagation: Propagation<'a>,
    branching: Branching,
    limits: Limits,
    /// Bounds that hold for all better solutions.
    pub(super) bounds: Bounds,
    best: Option<(f64, Vec<f64>)>,
    open: BinaryHeap<Open>,
    orders: u64,
    nodes: u64,
    /// All objectives are integers.
    steps_of_one: bool,
    /// Least bound of a node that was lost.
    lost: f64,
}

impl<'a> Tree<'a> {
    /// Solves a program. `starts` are values of the integer variables to try first.
    ///
    /// # Errors
    ///
    /// If there is no solution, or none was found within the limits.
    pub fn solve(
        program: &'a Program,
        limits: Limits,
        starts: &[Vec<f64>],
    ) -> Result<Found, Unsolved> {
        let standard = Rc::new(Standard::new(program));
        let bounds = Bounds::new(program);
        let in_standard = |at: usize| bounds.upper[at] / standard.factors[at];
        let columns: Vec<(f64, f64)> = (0..program.columns.len())
            .map(|at| (0.0, in_standard(at)))
            .collect();
        let simplex = Simplex::new(Rc::clone(&standard), columns.into_iter());
        let is_whole =
            |it: &(super::Var, f64)| program.columns[it.0.0].whole && it.1.fract() == 0.0;
        let mut tree = Tree {
            program,
            simplex,
            propagation: Propagation::new(program),
            branching: Branching::new(program),
            limits,
            bounds,
            best: None,
            open: BinaryHeap::new(),
            orders: 0,
            nodes: 0,
            steps_of_one: program.objective.iter().all(is_whole),
            lost: f64::INFINITY,
        };
        tree.simplex.most_work = limits.work;
        tree.run(starts)
    }

    fn run(mut self, starts: &[Vec<f64>]) -> Result<Found, Unsolved> {
        if !self.propagation.run(&mut self.bounds, None) {
            return Err(Unsolved::Infeasible);
        }
        for values in starts {
            self.try_values(values);
            self.simplex.reset();
        }
        let root = Open {
            bound: f64::NEG_INFINITY,
            order: 0,
            changes: None,
            basis: Rc::new(self.simplex.basis()),
        };
        let mut next = Some(root);
        while let Some(node) = next.take().or_else(|| self.open.pop()) {
            if node.bound >= self.cutoff() {
                continue;
            }
            if self.nodes >= self.limits.nodes || self.simplex.work > self.limits.work {
                self.open.push(node);
                break;
            }
            self.nodes += 1;
            next = self.divide(node);
        }
        self.outcome()
    }

    fn outcome(mut self) -> Result<Found, Unsolved> {
        let open = self.open.iter().map(|it| it.bound);
        let bound = open.fold(self.lost, f64::min);
        let is_open = bound < self.cutoff();
        let Some((objective, values)) = self.best.take() else {
            return Err(if is_open {
                Unsolved::Stopped
            } else {
                Unsolved::Infeasible
            });
        };
        let size = objective.abs().max(1e-12);
        let gap = if is_open {
            ((objective - bound) / size).min(f64::MAX)
        } else {
            0.0
        };
        Ok(Found {
            objective: -objective,
            gap,
            values,
        })
    }

    /// Returns the objective that a better solution is below.
    pub(super) fn cutoff(&self) -> f64 {
        let Some((best, _)) = &self.best else {
            return self.limits.above.map_or(f64::INFINITY, |above| -above);
        };
        if self.steps_of_one {
            return best - 1.0 + 1e-4;
        }
        best - (best.abs() * self.limits.tolerance).max(1e-12)
    }

    /// Returns the node's bounds after propagation, or `None` if they contradict each other.
    fn bounds_of(&self, changes: Option<&Rc<Change>>) -> Option<Bounds> {
        let mut bounds = self.bounds.clone();
        let mut changed = Vec::new();
        let mut at = changes;
        while let Some(change) = at {
            let var = change.var;
            bounds.lower[var] = bounds.lower[var].max(change.lower);
            bounds.upper[var] = bounds.upper[var].min(change.upper);
            changed.push(var);
            at = change.before.as_ref();
        }
        self.propagation
            .run(&mut bounds, Some(&changed))
            .then_some(bounds)
    }

    /// Sets the bounds of the linear program.
    pub(super) fn set(simplex: &mut Simplex, bounds: &Bounds) {
        let standard = Rc::clone(&simplex.standard);
        for (at, factor) in standard.factors.iter().enumerate() {
            simplex.lower[at] = bounds.lower[at] / factor;
            simplex.upper[at] = bounds.upper[at] / factor;
        }
    }

    fn relax(&mut self, bounds: &Bounds) -> Relaxed {
        Tree::set(&mut self.simplex, bounds);
        let mut status = self.simplex.solve();
        if status == Status::Lost {
            self.simplex.reset();
            status = self.simplex.solve();
        }
        match status {
            Status::Optimal => {
                let objective = self.simplex.objective();
                if objective >= self.cutoff() {
                    Relaxed::Pruned
                } else {
                    Relaxed::Solved(objective)
                }
            }
            Status::Infeasible => Relaxed::Pruned,
            Status::Stopped | Status::Lost => Relaxed::Open,
        }
    }

    /// Solves a node. Returns the part to examine next, if the node was divided.
    fn divide(&mut self, node: Open) -> Option<Open> {
        let mut changes = node.changes;
        self.simplex.load(&node.basis);
        loop {
            let mut bounds = self.bounds_of(changes.as_ref())?;
            let objective = match self.relax(&bounds) {
                Relaxed::Pruned => return None,
                Relaxed::Open => {
                    self.lost = self.lost.min(node.bound);
                    return None;
                }
                Relaxed::Solved(objective) => objective,
            };
            let bound = objective.max(node.bound);
            let values = self.values();
            let basis = Rc::new(self.simplex.basis());
            if self.nodes == 1 || self.best.is_none() || self.nodes.is_multiple_of(ROUNDING_PERIOD)
            {
                // The reduced costs of this node are used below.
                let solved = self.simplex.clone();
                self.round(&bounds, &values);
                let work = self.simplex.work;
                self.simplex = solved;
                self.simplex.work = work;
                if bound >= self.cutoff() {
                    return None;
                }
            }
            self.tighten_by_costs(objective, &mut bounds, &mut changes);
            let split = match self
                .branching
                .fractional(self.program, &bounds, &values, WHOLE)
            {
                splits if splits.is_empty() => {
                    self.try_values(&values);
                    if bound >= self.cutoff() {
                        return None;
                    }
                    // Rounding lost something: divides the small remainder.
                    let splits = self
                        .branching
                        .fractional(self.program, &bounds, &values, 1e-10);
                    let Some(split) = splits.into_iter().next() else {
                        // The part stays open: its only solution could not be computed.
                        self.lost = self.lost.min(bound);
                        return None;
                    };
                    split
                }
                splits => {
                    let mut branching = std::mem::take(&mut self.branching);
                    let chosen = branching.choose(self, splits, objective, &bounds);
                    self.branching = branching;
                    match chosen {
                        Ok(split) => split,
                        Err(tighter) => {
                            for (var, lower, upper) in tighter {
                                changes = Some(Rc::new(Change {
                                    var,
                                    lower,
                                    upper,
                                    before: changes,
                                }));
                            }
                            continue;
                        }
                    }
                }
            };
            return Some(self.children(split, bound, changes, basis));
        }
    }

    /// Divides a part in two. Returns the one to examine first, and keeps the other.
    fn children(
        &mut self,
        split: Split,
        bound: f64,
        changes: Option<Rc<Change>>,
        basis: Rc<Basis>,
    ) -> Open {
        let mut child = |lower: f64, upper: f64| {
            self.orders += 1;
            Open {
                bound,
                order: self.orders,
                changes: Some(Rc::new(Change {
                    var: split.var,
                    lower,
                    upper,
                    before: changes.clone(),
                })),
                basis: Rc::clone(&basis),
            }
        };
        let below = child(f64::NEG_INFINITY, split.below);
        let above = child(split.below + 1.0, f64::INFINITY);
        let (first, second) = if split.above_first {
            (above, below)
        } else {
            (below, above)
        };
        self.open.push(second);
        first
    }

    /// Returns the values of the linear program's solution.
    pub(super) fn values(&self) -> Vec<f64> {
        let factors = self.simplex.standard.factors.iter().enumerate();
        factors
            .map(|(at, factor)| self.simplex.value(at) * factor)
            .collect()
    }

    /// Tightens integer bounds beyond which no solution is better than the best one.
    fn tighten_by_costs(
        &mut self,
        objective: f64,
        bounds: &mut Bounds,
        changes: &mut Option<Rc<Change>>,
    ) {
        let room = self.cutoff() - objective;
        if !room.is_finite() {
            return;
        }
        for (var, column) in self.program.columns.iter().enumerate() {
            let (low, high) = (bounds.lower[var], bounds.upper[var]);
            if !column.whole || low >= high {
                continue;
            }
            let cost = self.simplex.reduced_cost(var);
            if cost.abs() < 1e-7 {
                continue;
            }
            let range = (room / cost.abs() + 1e-6).floor();
            if range >= high - low {
                continue;
            }
            let (low, high) = if cost > 0.0 {
                (low, low + range)
            } else {
                (high - range, high)
            };
            (bounds.lower[var], bounds.upper[var]) = (low, high);
            if changes.is_none() {
                (self.bounds.lower[var], self.bounds.upper[var]) = (low, high);
            } else {
                let before = changes.take();
                *changes = Some(Rc::new(Change {
                    var,
                    lower: low,
                    upper: high,
                    before,
                }));
            }
        }
    }

    /// Fixes the integer variables at rounded values and solves for the others. Keeps the best
    /// solution.
    fn try_values(&mut self, values: &[f64]) {
        let mut fixed = Bounds::new(self.program);
        for (at, column) in self.program.columns.iter().enumerate() {
            if column.whole {
                let value = values[at].round();
                (fixed.lower[at], fixed.upper[at]) = (value, value);
            }
        }
        self.try_fixed(&fixed)
    }

    fn try_fixed(&mut self, fixed: &Bounds) {
        Tree::set(&mut self.simplex, fixed);
        if self.simplex.solve() != Status::Optimal {
            return;
        }
        let objective = self.simplex.objective();
        if objective < self.cutoff() {
            let mut values = self.values();
            for (value, column) in values.iter_mut().zip(&self.program.columns) {
                if column.whole {
                    *value = value.round();
                }
            }
            self.best = Some((objective, values));
        }
    }

    /// Rounds one variable after the other and propagates each, to find a solution quickly.
    fn round(&mut self, bounds: &Bounds, values: &[f64]) {
        let mut bounds = bounds.clone();
        for var in self.branching.order(self.program, values) {
            let (low, high) = (bounds.lower[var], bounds.upper[var]);
            if low >= high {
                continue;
            }
            let near = values[var].round().clamp(low, high);
            let below = values[var].floor().clamp(low, high);
            let above = values[var].ceil().clamp(low, high);
            let mut is_set = false;
            for value in [near, below, above, low] {
                let mut tried = bounds.clone();
                (tried.lower[var], tried.upper[var]) = (value, value);
                if self.propagation.run(&mut tried, Some(&[var])) {
                    bounds = tried;
                    is_set = true;
                    break;
                }
            }
            if !is_set {
                return;
            }
        }
        self.try_fixed(&bounds);
    }
}
