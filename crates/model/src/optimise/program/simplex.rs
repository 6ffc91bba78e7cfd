//! The state of a linear program during the simplex method: its basis, values and reduced costs.
//!
//! All columns have finite bounds, and slacks have at least one. So every basis can be made dual
//! feasible at the beginning, and the dual method ([`super::dual`]) needs no first phase.

use std::rc::Rc;

use super::factor::{Factor, Factorised};
use super::standard::Standard;

/// Tolerance of bounds.
pub const FEASIBLE: f64 = 1e-9;

/// Tolerance of reduced costs.
pub const OPTIMAL: f64 = 1e-9;

/// Position of a column that is not basic.
const NOT_BASIC: u32 = u32::MAX;

/// A basis that another search step can continue from.
#[derive(Clone, Debug)]
pub struct Basis {
    /// Basic variable of each row.
    pub head: Vec<u32>,
    /// For each variable, true if it is at its upper bound when it is not basic.
    pub at_upper: Vec<bool>,
    /// Weights of rows for the choice of the leaving variable.
    pub weights: Vec<f64>,
}

/// The outcome of the simplex method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The optimum was found.
    Optimal,
    /// The rows and bounds contradict each other.
    Infeasible,
    /// The limit on work was reached.
    Stopped,
    /// Rounding errors prevented a result.
    Lost,
}

/// A linear program with a basis.
#[derive(Clone, Debug)]
pub struct Simplex {
    pub(super) standard: Rc<Standard>,
    /// Bounds by variable: columns, then slacks.
    pub lower: Vec<f64>,
    /// Upper bounds.
    pub upper: Vec<f64>,
    /// Costs that the method uses. They may differ slightly from the true costs.
    pub(super) costs: Vec<f64>,
    pub(super) is_perturbed: bool,
    pub(super) head: Vec<u32>,
    position: Vec<u32>,
    pub(super) at_upper: Vec<bool>,
    /// Values of the basic variables by row.
    pub(super) values: Vec<f64>,
    /// Reduced costs by variable.
    pub(super) reduced: Vec<f64>,
    pub(super) weights: Vec<f64>,
    pub(super) factor: Factor,
    /// Work so far: about the number of multiplications.
    pub work: u64,
    /// Limit on the work.
    pub most_work: u64,
    /// Row of the inverse, scattered over the variables that are not basic.
    pub(super) alpha: Vec<f64>,
    pub(super) touched: Vec<u32>,
}

impl Simplex {
    /// Creates the state with a basis of all slacks.
    pub fn new(standard: Rc<Standard>, bounds: impl Iterator<Item = (f64, f64)>) -> Simplex {
        let (rows, columns) = (standard.rows, standard.columns);
        let all = rows + columns;
        let (mut lower, mut upper) = (Vec::with_capacity(all), Vec::with_capacity(all));
        let slacks = standard.slacks.iter().copied();
        for (low, high) in bounds.chain(slacks) {
            lower.push(low);
            upper.push(high);
        }
        let mut costs = standard.costs.clone();
        costs.resize(all, 0.0);
        let mut simplex = Simplex {
            lower,
            upper,
            costs,
            is_perturbed: false,
            head: Vec::new(),
            position: vec![NOT_BASIC; all],
            at_upper: vec![false; all],
            values: vec![0.0; rows],
            reduced: vec![0.0; all],
            weights: vec![1.0; rows],
            factor: Factor::default(),
            work: 0,
            most_work: u64::MAX,
            alpha: vec![0.0; all],
            touched: Vec::new(),
            standard,
        };
        simplex.reset();
        simplex
    }

    /// Returns to the basis of all slacks.
    pub fn reset(&mut self) {
        let (rows, columns) = (self.standard.rows, self.standard.columns);
        let basis = Basis {
            head: (columns..columns + rows).map(|it| it as u32).collect(),
            at_upper: vec![false; rows + columns],
            weights: vec![1.0; rows],
        };
        self.load(&basis);
    }

    /// Returns the basis.
    pub fn basis(&self) -> Basis {
        Basis {
            head: self.head.clone(),
            at_upper: self.at_upper.clone(),
            weights: self.weights.clone(),
        }
    }

    /// Continues from a basis. The next solution uses it.
    pub fn load(&mut self, basis: &Basis) {
        self.head.clone_from(&basis.head);
        self.at_upper.clone_from(&basis.at_upper);
        self.weights.clone_from(&basis.weights);
        self.position.fill(NOT_BASIC);
        for (row, &var) in self.head.iter().enumerate() {
            self.position[var as usize] = row as u32;
        }
        self.restore_costs();
        self.factorise();
    }

    /// Uses the true costs again.
    pub(super) fn restore_costs(&mut self) {
        let columns = self.standard.columns;
        self.costs[..columns].copy_from_slice(&self.standard.costs);
        self.costs[columns..].fill(0.0);
        self.is_perturbed = false;
    }

    /// True if a variable is basic.
    pub fn is_basic(&self, var: usize) -> bool {
        self.position[var] != NOT_BASIC
    }

    /// True if both bounds of a variable are equal.
    pub(super) fn is_fixed(&self, var: usize) -> bool {
        self.lower[var] == self.upper[var]
    }

    /// True if a variable that is not basic can only decrease from its value.
    pub(super) fn rests_above(&self, var: usize) -> bool {
        self.at_upper[var] || self.lower[var].is_infinite()
    }

    /// Returns the value of a variable that is not basic.
    pub(super) fn resting(&self, var: usize) -> f64 {
        if self.at_upper[var] && self.upper[var].is_finite() {
            self.upper[var]
        } else if self.lower[var].is_finite() {
            self.lower[var]
        } else {
            self.upper[var]
        }
    }

    /// Returns the value of a variable.
    pub fn value(&self, var: usize) -> f64 {
        if self.is_basic(var) {
            self.values[self.position[var] as usize]
        } else {
            self.resting(var)
        }
    }

    /// Returns the reduced cost of a variable at the optimum, and zero for a basic one.
    pub fn reduced_cost(&self, var: usize) -> f64 {
        if self.is_basic(var) {
            0.0
        } else {
            self.reduced[var]
        }
    }

    /// Returns the objective with the true costs.
    pub fn objective(&self) -> f64 {
        let costs = self.standard.costs.iter().enumerate();
        costs
            .filter(|it| *it.1 != 0.0)
            .map(|(var, cost)| cost * self.value(var))
            .sum()
    }

    /// Calls a function for each entry of a variable's column.
    pub(super) fn each_entry(&self, var: usize, mut call: impl FnMut(usize, f64)) {
        let columns = self.standard.columns;
        if var >= columns {
            call(var - columns, 1.0);
        } else {
            for &(row, value) in self.standard.column(var) {
                call(row as usize, value);
            }
        }
    }

    /// Factorises the basis again. Replaces dependent columns by slacks.
    pub(super) fn factorise(&mut self) {
        let rows = self.standard.rows;
        let columns = self.standard.columns;
        for _ in 0..3 {
            let lists = self.head.iter().map(|&var| {
                let mut list = Vec::new();
                self.each_entry(var as usize, |row, value| list.push((row as u32, value)));
                list
            });
            let Factorised { factor, column_of } = Factor::of(rows, lists.collect());
            let weight_of: Vec<f64> = self.weights.clone();
            let before = self.head.clone();
            let mut used = vec![false; rows];
            let mut is_whole = true;
            for (row, column) in column_of.iter().enumerate() {
                match column {
                    Some(column) => {
                        used[*column as usize] = true;
                        self.head[row] = before[*column as usize];
                        self.weights[row] = weight_of[*column as usize];
                    }
                    None => {
                        self.head[row] = (columns + row) as u32;
                        self.weights[row] = 1.0;
                        is_whole = false;
                    }
                }
            }
            for (column, _) in used.iter().enumerate().filter(|it| !it.1) {
                self.position[before[column] as usize] = NOT_BASIC;
            }
            for (row, &var) in self.head.iter().enumerate() {
                self.position[var as usize] = row as u32;
            }
            self.factor = factor;
            self.work += 20 * rows as u64;
            if is_whole {
                return;
            }
        }
    }

    /// Computes the values of the basic variables from those of the others.
    pub(super) fn compute_values(&mut self) {
        let mut right = self.standard.right.clone();
        for var in 0..self.position.len() {
            if !self.is_basic(var) {
                let value = self.resting(var);
                if value != 0.0 {
                    self.each_entry(var, |row, entry| right[row] -= entry * value);
                }
            }
        }
        self.factor.solve(&mut right);
        self.values = right;
    }

    /// Computes the reduced costs.
    pub(super) fn compute_reduced(&mut self) {
        let mut prices: Vec<f64> = self
            .head
            .iter()
            .map(|&var| self.costs[var as usize])
            .collect();
        self.factor.solve_transposed(&mut prices);
        for var in 0..self.position.len() {
            if self.is_basic(var) {
                self.reduced[var] = 0.0;
                continue;
            }
            let mut cost = self.costs[var];
            self.each_entry(var, |row, entry| cost -= prices[row] * entry);
            self.reduced[var] = cost;
        }
        self.work += (self.standard.rows + self.position.len()) as u64;
    }

    /// Moves each variable that is not basic to the bound that fits the sign of its reduced cost.
    pub(super) fn settle(&mut self) {
        for var in 0..self.position.len() {
            if self.is_basic(var) {
                continue;
            }
            let cost = self.reduced[var];
            if cost > OPTIMAL && self.lower[var].is_finite() {
                self.at_upper[var] = false;
            } else if cost < -OPTIMAL && self.upper[var].is_finite() {
                self.at_upper[var] = true;
            }
        }
    }

    /// Returns a variable's column after the solution with the basis.
    pub(super) fn solved_column(&mut self, var: usize) -> Vec<f64> {
        let mut column = vec![0.0; self.standard.rows];
        self.each_entry(var, |row, value| column[row] += value);
        self.factor.solve(&mut column);
        self.work += 4 * column.len() as u64;
        column
    }

    /// Computes a row of the inverse of the basis.
    pub(super) fn inverse_row(&mut self, row: usize) -> Vec<f64> {
        let mut rho = vec![0.0; self.standard.rows];
        rho[row] = 1.0;
        self.factor.solve_transposed(&mut rho);
        self.work += 4 * rho.len() as u64;
        rho
    }

    /// Scatters a row of the inverse times the matrix over the variables that are not basic.
    pub(super) fn scatter(&mut self, rho: &[f64]) {
        for &var in &self.touched {
            self.alpha[var as usize] = 0.0;
        }
        self.touched.clear();
        let columns = self.standard.columns;
        let standard = Rc::clone(&self.standard);
        for (row, &factor) in rho.iter().enumerate() {
            if factor.abs() < 1e-14 {
                continue;
            }
            for &(var, value) in standard.row(row) {
                let entry = &mut self.alpha[var as usize];
                if *entry == 0.0 {
                    self.touched.push(var);
                    *entry = 1e-300;
                }
                *entry += factor * value;
            }
            self.alpha[columns + row] = factor;
            self.touched.push((columns + row) as u32);
            self.work += standard.row(row).len() as u64;
        }
    }

    /// Exchanges the basic variable of a row with another variable. `column` is the entering
    /// variable's column, `rho` the row of the inverse; both before the exchange. `alpha` must be
    /// scattered.
    pub(super) fn exchange(&mut self, row: usize, entering: usize, column: &[f64], rho: &[f64]) {
        let pivot = column[row];
        let leaving = self.head[row] as usize;
        let step = self.reduced[entering] / pivot;
        for &var in &self.touched {
            let var = var as usize;
            if self.position[var] == NOT_BASIC {
                self.reduced[var] -= step * self.alpha[var];
            }
        }
        self.reduced[leaving] = -step;
        self.reduced[entering] = 0.0;
        let mut tau = rho.to_vec();
        self.factor.solve(&mut tau);
        let own = self.weights[row];
        for (at, &entry) in column.iter().enumerate() {
            if at != row && entry != 0.0 {
                let ratio = entry / pivot;
                let weight = self.weights[at] - 2.0 * ratio * tau[at] + ratio * ratio * own;
                self.weights[at] = weight.max(1e-4).max(ratio * ratio * own * 0.01);
            }
        }
        self.weights[row] = (own / (pivot * pivot)).max(1e-4);
        self.factor.update(row, column);
        self.head[row] = entering as u32;
        self.position[entering] = row as u32;
        self.position[leaving] = NOT_BASIC;
        self.work += 8 * column.len() as u64 + self.touched.len() as u64;
    }
}
