//! The dual simplex method with bound flips and steepest edges, and the primal method that ends it
//! after costs were changed slightly.

use super::simplex::{FEASIBLE, OPTIMAL, Simplex, Status};

/// Entries below this size are not pivots.
const LEAST_PIVOT: f64 = 1e-8;

/// Relative change of costs against cycles.
const PERTURBATION: f64 = 5e-7;

/// Number of pivots after which a search that started from an optimal basis changes its costs.
const PATIENCE: u64 = 40;

/// Number of failures because of rounding errors after which the search ends.
const MOST_FAILURES: u32 = 30;

/// A candidate to enter the basis.
#[derive(Clone, Copy)]
struct Candidate {
    var: usize,
    ratio: f64,
    size: f64,
}

/// The result of one pivot.
enum Step {
    Done,
    Optimal,
    Infeasible,
    Failed,
}

impl Simplex {
    /// Finds the minimum from the current basis.
    pub fn solve(&mut self) -> Status {
        self.start();
        let (mut pivots, mut failures) = (0_u64, 0);
        let mut is_fresh = self.factor.updates() == 0;
        if self
            .head
            .iter()
            .all(|&var| var as usize >= self.standard.columns)
        {
            self.perturb();
        }
        let pivots_allowed = 50_000 + 100 * self.standard.rows as u64;
        loop {
            if self.work > self.most_work {
                return Status::Stopped;
            }
            if pivots > pivots_allowed || failures > MOST_FAILURES {
                return Status::Lost;
            }
            if self.factor.is_long() {
                self.refactor();
                is_fresh = true;
            }
            match self.dual_step() {
                Step::Done => {
                    pivots += 1;
                    is_fresh = false;
                    if pivots == PATIENCE && !self.is_perturbed {
                        self.perturb();
                    }
                }
                Step::Optimal => {
                    if !is_fresh {
                        self.refactor();
                        is_fresh = true;
                        continue;
                    }
                    if !self.is_perturbed {
                        return Status::Optimal;
                    }
                    match self.finish() {
                        Status::Optimal if !self.is_infeasible() => return Status::Optimal,
                        Status::Stopped => return Status::Stopped,
                        _ => {
                            failures += 5;
                            is_fresh = false;
                        }
                    }
                }
                Step::Infeasible | Step::Failed if !is_fresh => {
                    failures += 1;
                    self.refactor();
                    is_fresh = true;
                }
                Step::Infeasible => return Status::Infeasible,
                Step::Failed => {
                    // Another choice of pivots may avoid the small one.
                    failures += 5;
                    self.weights.fill(1.0);
                    self.perturb();
                }
            }
        }
    }

    /// Makes the current basis dual feasible.
    fn start(&mut self) {
        self.restore_costs();
        self.price();
    }

    fn refactor(&mut self) {
        self.factorise();
        self.price();
    }

    /// Computes costs and values for the current factors, and makes the basis dual feasible.
    fn price(&mut self) {
        self.compute_reduced();
        self.settle();
        self.shift();
        self.compute_values();
    }

    /// Changes the costs of variables whose reduced cost has the wrong sign for their only bound.
    fn shift(&mut self) {
        for var in 0..self.reduced.len() {
            if self.is_basic(var) || self.is_fixed(var) {
                continue;
            }
            let cost = self.reduced[var];
            let is_wrong = if self.rests_above(var) {
                cost > OPTIMAL
            } else {
                cost < -OPTIMAL
            };
            if is_wrong {
                self.costs[var] -= cost;
                self.reduced[var] = 0.0;
                self.is_perturbed = true;
            }
        }
    }

    /// Changes all costs slightly in the direction that keeps the basis dual feasible. Prevents
    /// cycles and long sequences of pivots without progress.
    fn perturb(&mut self) {
        self.is_perturbed = true;
        for var in 0..self.standard.columns {
            if self.is_basic(var) || self.is_fixed(var) {
                continue;
            }
            // A hash of the index spreads the changes.
            let mixed = (var as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let spread = (mixed >> 40) as f64 / f64::from(1_u32 << 24);
            let change = PERTURBATION * (1.0 + self.costs[var].abs()) * (1.0 + spread);
            let change = if self.at_upper[var] { -change } else { change };
            self.costs[var] += change;
            self.reduced[var] += change;
        }
    }

    /// Returns the row whose basic variable leaves the basis.
    fn leaving(&self) -> Option<usize> {
        let mut best = None;
        let mut most = 0.0;
        for (row, &value) in self.values.iter().enumerate() {
            let var = self.head[row] as usize;
            let (low, high) = (self.lower[var], self.upper[var]);
            let beyond = if value < low {
                low - value
            } else {
                value - high
            };
            if beyond <= FEASIBLE * (1.0 + value.abs().min(1.0)) {
                continue;
            }
            let score = beyond * beyond / self.weights[row];
            if score > most {
                (best, most) = (Some(row), score);
            }
        }
        best
    }

    fn is_infeasible(&self) -> bool {
        self.leaving().is_some()
    }

    fn dual_step(&mut self) -> Step {
        let Some(row) = self.leaving() else {
            return Step::Optimal;
        };
        self.work += self.values.len() as u64;
        let rho = self.inverse_row(row);
        self.weights[row] = rho.iter().map(|it| it * it).sum::<f64>().max(1e-4);
        self.scatter(&rho);
        let leaving = self.head[row] as usize;
        let value = self.values[row];
        let is_below = value < self.lower[leaving];
        let target = if is_below {
            self.lower[leaving]
        } else {
            self.upper[leaving]
        };
        let Some((entering, flips)) = self.entering(is_below, (value - target).abs()) else {
            return Step::Infeasible;
        };
        let column = self.solved_column(entering);
        let (pivot, expected) = (column[row], self.alpha[entering]);
        if pivot.abs() < LEAST_PIVOT || (pivot - expected).abs() > 1e-7 * (1.0 + pivot.abs()) {
            return Step::Failed;
        }
        self.flip(&flips);
        let from = self.resting(entering);
        let step = (self.values[row] - target) / pivot;
        for (value, entry) in self.values.iter_mut().zip(&column) {
            *value -= step * entry;
        }
        self.keep_sign(entering);
        self.exchange(row, entering, &column, &rho);
        self.values[row] = from + step;
        self.at_upper[leaving] = !is_below;
        Step::Done
    }

    /// Shifts the cost of an entering variable whose reduced cost has the wrong sign.
    fn keep_sign(&mut self, entering: usize) {
        let cost = self.reduced[entering];
        let is_upper = self.rests_above(entering);
        let fixed = self.is_fixed(entering);
        if !fixed && (is_upper && cost > 0.0 || !is_upper && cost < 0.0) {
            self.costs[entering] -= cost;
            self.reduced[entering] = 0.0;
            self.is_perturbed = true;
        }
    }

    /// Returns the entering variable, and the variables that move to their other bound.
    fn entering(&self, is_below: bool, beyond: f64) -> Option<(usize, Vec<usize>)> {
        let sign = if is_below { -1.0 } else { 1.0 };
        let mut open: Vec<Candidate> = Vec::new();
        for &var in &self.touched {
            let var = var as usize;
            if self.is_basic(var) || self.is_fixed(var) {
                continue;
            }
            let entry = sign * self.alpha[var];
            let is_upper = self.rests_above(var);
            let helps = if is_upper {
                entry < -LEAST_PIVOT
            } else {
                entry > LEAST_PIVOT
            };
            if helps {
                let size = entry.abs();
                let cost = if is_upper {
                    -self.reduced[var]
                } else {
                    self.reduced[var]
                };
                open.push(Candidate {
                    var,
                    ratio: cost.max(0.0) / size,
                    size,
                });
            }
        }
        let mut slope = beyond;
        let mut flips = Vec::new();
        while !open.is_empty() {
            let relaxed = open.iter().map(|it| it.ratio + OPTIMAL / it.size);
            let limit = relaxed.fold(f64::INFINITY, f64::min);
            let (group, rest): (Vec<Candidate>, Vec<Candidate>) =
                open.iter().partition(|it| it.ratio <= limit);
            let range = |it: &Candidate| self.upper[it.var] - self.lower[it.var];
            let fall: f64 = group.iter().map(|it| it.size * range(it)).sum();
            if rest.is_empty() || slope - fall < 0.0 {
                let best = group
                    .iter()
                    .max_by(|a, b| a.size.total_cmp(&b.size).then(b.var.cmp(&a.var)));
                return best.map(|it| (it.var, flips));
            }
            slope -= fall;
            flips.extend(group.iter().map(|it| it.var));
            open = rest;
        }
        None
    }

    /// Moves variables to their other bound.
    fn flip(&mut self, vars: &[usize]) {
        if vars.is_empty() {
            return;
        }
        let mut change = vec![0.0; self.values.len()];
        for &var in vars {
            let before = self.resting(var);
            self.at_upper[var] = !self.at_upper[var];
            let moved = self.resting(var) - before;
            self.each_entry(var, |row, entry| change[row] += entry * moved);
        }
        self.factor.solve(&mut change);
        for (value, change) in self.values.iter_mut().zip(&change) {
            *value -= change;
        }
        self.work += 4 * change.len() as u64;
    }

    /// Restores the true costs and finds their optimum with the primal method.
    fn finish(&mut self) -> Status {
        self.restore_costs();
        self.compute_reduced();
        let most = 200 + 10 * self.standard.rows;
        for _ in 0..most {
            if self.work > self.most_work {
                return Status::Stopped;
            }
            let Some(entering) = self.improving() else {
                return Status::Optimal;
            };
            if !self.primal_step(entering) {
                return Status::Lost;
            }
            if self.factor.is_long() {
                self.factorise();
                self.compute_reduced();
                self.compute_values();
            }
        }
        Status::Lost
    }

    /// Returns the variable whose change reduces the true costs most.
    fn improving(&self) -> Option<usize> {
        let wrong = |var: usize| {
            if self.is_basic(var) || self.is_fixed(var) {
                return 0.0;
            }
            let is_upper = self.rests_above(var);
            let cost = if is_upper {
                self.reduced[var]
            } else {
                -self.reduced[var]
            };
            cost.max(0.0)
        };
        let all = (0..self.reduced.len()).map(|var| (var, wrong(var)));
        let best = all.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        best.filter(|it| it.1 > OPTIMAL).map(|it| it.0)
    }

    /// Moves a variable until another one reaches a bound. Returns false after a rounding error.
    fn primal_step(&mut self, entering: usize) -> bool {
        let column = self.solved_column(entering);
        let is_upper = self.rests_above(entering);
        let direction = if is_upper { -1.0 } else { 1.0 };
        let room = |row: usize, slack: f64| {
            let var = self.head[row] as usize;
            let change = -direction * column[row];
            let free = if change > 0.0 {
                self.upper[var] - self.values[row]
            } else {
                self.values[row] - self.lower[var]
            };
            (free.max(0.0) + slack) / change.abs()
        };
        let pivots = (0..column.len()).filter(|&row| column[row].abs() > LEAST_PIVOT);
        let limit = pivots
            .clone()
            .map(|row| room(row, FEASIBLE))
            .fold(f64::INFINITY, f64::min);
        let range = self.upper[entering] - self.lower[entering];
        if range <= limit {
            self.flip(&[entering]);
            return true;
        }
        let within = pivots.filter(|&row| room(row, 0.0) <= limit);
        let largest =
            within.max_by(|&a, &b| column[a].abs().total_cmp(&column[b].abs()).then(b.cmp(&a)));
        let Some(row) = largest else {
            return false;
        };
        let step = direction * room(row, 0.0);
        let leaves_upper = -direction * column[row] > 0.0;
        let from = self.resting(entering);
        let rho = self.inverse_row(row);
        self.scatter(&rho);
        for (value, entry) in self.values.iter_mut().zip(&column) {
            *value -= step * entry;
        }
        let leaving = self.head[row] as usize;
        self.exchange(row, entering, &column, &rho);
        self.values[row] = from + step;
        self.at_upper[leaving] = leaves_upper;
        true
    }
}
