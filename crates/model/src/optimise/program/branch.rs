//! Chooses the variable by which branch and bound divides a part of the search.

use super::propagate::Bounds;
use super::simplex::Status;
use super::tree::Tree;
use super::{Program, Var};

/// Number of observations after which the estimates of a variable are used without trial.
const RELIABLE: u32 = 4;

/// Maximum number of variables that are tried for one node.
const MOST_TRIALS: usize = 10;

/// Work of a trial, as a multiple of the rows and columns.
const TRIAL_WORK: u64 = 400;

/// Least improvement that counts in a score.
const LEAST: f64 = 1e-9;

/// A division of the range of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The variable.
    pub var: usize,
    /// Greatest value in the lower part. The upper part begins with the next integer.
    pub below: f64,
    /// True to examine the upper part first.
    pub above_first: bool,
    /// Distance of the relaxed value from the lower part.
    share: f64,
}

/// Observed changes of the objective.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    sum: f64,
    count: u32,
}

impl Observed {
    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }

    fn add(&mut self, change: f64) {
        self.sum += change;
        self.count += 1;
    }
}

/// Estimates of the effect of dividing each variable.
#[derive(Clone, Debug, Default)]
pub struct Branching {
    /// Changes by variable: for the lower part, for the upper part.
    observed: Vec<[Observed; 2]>,
    /// For each variable, its choice as an index, if it is one of the counts.
    choice_of: Vec<Option<u32>>,
    is_total: Vec<bool>,
}

/// Bounds that hold in a part: variable, lower, upper.
pub type Tighter = Vec<(usize, f64, f64)>;

impl Branching {
    /// Creates empty estimates.
    pub fn new(program: &Program) -> Branching {
        let columns = program.columns.len();
        let mut branching = Branching {
            observed: vec![<[Observed; 2]>::default(); columns],
            choice_of: vec![None; columns],
            is_total: vec![false; columns],
        };
        for (at, choice) in program.choices.iter().enumerate() {
            branching.is_total[choice.total.0] = true;
            for &(Var(var), _) in &choice.counts {
                branching.choice_of[var] = Some(at as u32);
            }
        }
        branching
    }

    /// Returns the divisions that exclude a relaxed solution.
    pub fn fractional(
        &self,
        program: &Program,
        bounds: &Bounds,
        values: &[f64],
        tolerance: f64,
    ) -> Vec<Split> {
        let mut splits = Vec::new();
        let is_open = |var: usize| {
            let distance = (values[var] - values[var].round()).abs();
            distance > tolerance && bounds.lower[var] < bounds.upper[var]
        };
        for choice in &program.choices {
            if choice.members > 1 || !choice.counts.iter().any(|it| is_open(it.0.0)) {
                continue;
            }
            // The mean number of flows divides the numbers that are mixed.
            let var = choice.total.0;
            let (low, high) = (bounds.lower[var], bounds.upper[var]);
            if low >= high {
                continue;
            }
            let below = (values[var] + tolerance).floor().clamp(low, high - 1.0);
            splits.push(Split {
                var,
                below,
                above_first: false,
                share: (values[var] - below).clamp(0.1, 0.9),
            });
        }
        for (var, column) in program.columns.iter().enumerate() {
            let is_divided = self.choice_of[var].is_some_and(|at| {
                let choice = &program.choices[at as usize];
                let total = choice.total.0;
                choice.members == 1 && bounds.lower[total] < bounds.upper[total]
            });
            let is_listed = splits.iter().any(|it| it.var == var);
            if column.whole && !is_divided && !is_listed && is_open(var) {
                let below = values[var].floor();
                splits.push(Split {
                    var,
                    below,
                    above_first: false,
                    share: values[var] - below,
                });
            }
        }
        splits
    }

    /// Returns the integer variables in the order in which rounding fixes them: totals first.
    pub fn order(&self, program: &Program, values: &[f64]) -> Vec<usize> {
        let columns = program.columns.iter().enumerate();
        let mut order: Vec<usize> = columns.filter(|it| it.1.whole).map(|it| it.0).collect();
        let distance = |var: usize| (values[var] - values[var].round()).abs();
        order.sort_by(|&a, &b| {
            let totals = self.is_total[b].cmp(&self.is_total[a]);
            let values = values[b].total_cmp(&values[a]);
            totals
                .then(distance(a).total_cmp(&distance(b)))
                .then(values)
                .then(a.cmp(&b))
        });
        order
    }

    fn score(&self, split: &Split) -> f64 {
        let [below, above] = self.observed[split.var].map(|it| it.mean().unwrap_or(1.0));
        (below * split.share).max(LEAST) * (above * (1.0 - split.share)).max(LEAST)
    }

    /// Chooses a division. Variables without reliable estimates are tried first.
    ///
    /// # Errors
    ///
    /// Bounds that hold for all better solutions of this part, if a trial found some.
    pub fn choose(
        &mut self,
        tree: &mut Tree<'_>,
        mut splits: Vec<Split>,
        objective: f64,
        bounds: &Bounds,
    ) -> Result<Split, Tighter> {
        let rank = |it: &Split| self.is_total[it.var];
        splits.sort_by(|a, b| {
            let scores = self.score(b).total_cmp(&self.score(a));
            rank(b).cmp(&rank(a)).then(scores).then(a.var.cmp(&b.var))
        });
        let mut best: Option<(f64, Split)> = None;
        let mut trials = 0;
        let mut tighter = Tighter::new();
        for mut split in splits {
            let counts = self.observed[split.var].map(|it| it.count);
            let is_reliable = counts.iter().all(|&count| count >= RELIABLE);
            let mut score = self.score(&split);
            if !is_reliable && trials < MOST_TRIALS {
                trials += 1;
                let [below, above] = self.try_both(tree, split, objective, bounds);
                match (below, above) {
                    (None, None) => return Err(vec![(split.var, 1.0, 0.0)]),
                    (None, Some(_)) => tighter.push((split.var, split.below + 1.0, f64::INFINITY)),
                    (Some(_), None) => tighter.push((split.var, f64::NEG_INFINITY, split.below)),
                    (Some(below), Some(above)) => {
                        score = below.max(LEAST) * above.max(LEAST);
                        split.above_first = above < below;
                    }
                }
            } else {
                let [below, above] = self.observed[split.var].map(|it| it.mean().unwrap_or(0.0));
                split.above_first = above * (1.0 - split.share) < below * split.share;
            }
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, split));
            }
        }
        if !tighter.is_empty() {
            return Err(tighter);
        }
        best.map(|it| it.1).ok_or_else(Vec::new)
    }

    /// Solves both parts with limited work. Returns the increase of the objective in each, or
    /// `None` for a part without a better solution.
    fn try_both(
        &mut self,
        tree: &mut Tree<'_>,
        split: Split,
        objective: f64,
        bounds: &Bounds,
    ) -> [Option<f64>; 2] {
        let size = (tree.program.rows.len() + tree.program.columns.len()) as u64;
        [false, true].map(|above| {
            let mut part = bounds.clone();
            let distance = if above {
                part.lower[split.var] = split.below + 1.0;
                1.0 - split.share
            } else {
                part.upper[split.var] = split.below;
                split.share
            };
            if !tree.propagation.run(&mut part, Some(&[split.var])) {
                return None;
            }
            let mut simplex = tree.simplex.clone();
            simplex.most_work = (simplex.work + TRIAL_WORK * size).min(simplex.most_work);
            Tree::set(&mut simplex, &part);
            let status = simplex.solve();
            tree.simplex.work = simplex.work;
            match status {
                Status::Infeasible => return None,
                Status::Optimal if simplex.objective() >= tree.cutoff() => return None,
                _ => {}
            }
            let change = if status == Status::Lost {
                0.0
            } else {
                (simplex.objective() - objective).max(0.0)
            };
            self.observed[split.var][usize::from(above)].add(change / distance);
            Some(change)
        })
    }
}
