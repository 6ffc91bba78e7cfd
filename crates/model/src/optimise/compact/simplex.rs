//! Solves small linear programs: maximise c·x with A·x ≤ b and x ≥ 0, in a dense table. Rows can be
//! added to a solved program. The dual simplex method then restores feasibility.
//!
//! Dantzig, *Linear Programming and Extensions* (1963), and Lemke, "The dual method of solving the
//! linear programming problem" (1954). Bland's rule ("New finite pivoting rules for the simplex
//! method", 1977) prevents cycling.

/// Tolerance for zero in right sides and costs. Numbers are near one.
const TINY: f64 = 1e-9;

/// Minimum absolute value of a pivot.
const LEAST_PIVOT: f64 = 1e-8;

/// The result of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The optimum was found.
    Optimal,
    /// The rows contradict each other.
    Infeasible,
    /// Nothing limits the objective.
    Unbounded,
    /// Too many steps, because of rounding errors.
    Lost,
}

/// A program and its table: each basic variable is its right side minus the row times the other
/// variables.
#[derive(Clone, Debug)]
pub struct Linear {
    variables: usize,
    /// Coefficients of the nonbasic variables, then the right side.
    rows: Vec<Vec<f64>>,
    /// Gain of the objective per unit of each nonbasic variable, then the value of the objective.
    costs: Vec<f64>,
    /// Variable of each row: a variable of the program if below `variables`, else the slack of a
    /// row.
    basis: Vec<usize>,
    /// Variable of each column.
    outside: Vec<usize>,
    /// Position of each variable of the program: a row or a column.
    places: Vec<Place>,
    /// Number of table entries changed.
    work: u64,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Row(usize),
    Column(usize),
}

impl Linear {
    /// Creates a program without rows.
    pub fn new(variables: usize) -> Linear {
        Linear {
            variables,
            rows: Vec::new(),
            costs: vec![0.0; variables + 1],
            basis: Vec::new(),
            outside: (0..variables).collect(),
            places: (0..variables).map(Place::Column).collect(),
            work: 0,
        }
    }

    /// Adds a row: Σ factor · variable ≤ right.
    pub fn at_most(&mut self, terms: impl IntoIterator<Item = (usize, f64)>, right: f64) {
        let mut row = vec![0.0; self.variables + 1];
        row[self.variables] = right;
        for (variable, factor) in terms {
            match self.places[variable] {
                Place::Column(column) => row[column] += factor,
                Place::Row(at) => subtract(&mut row, factor, &self.rows[at]),
            }
        }
        // Slack variables are numbered after the variables of the program.
        self.basis.push(self.variables + self.rows.len());
        self.rows.push(row);
    }

    /// Sets the objective to maximise.
    pub fn maximise(&mut self, terms: impl IntoIterator<Item = (usize, f64)>) {
        let mut costs = vec![0.0; self.variables + 1];
        let mut value = 0.0;
        for (variable, factor) in terms {
            match self.places[variable] {
                Place::Column(column) => costs[column] += factor,
                Place::Row(at) => {
                    value += factor * self.rows[at][self.variables];
                    subtract(&mut costs, factor, &self.rows[at]);
                }
            }
        }
        costs[self.variables] = value;
        self.costs = costs;
    }

    /// Returns the value of the objective.
    pub fn objective(&self) -> f64 {
        self.costs[self.variables]
    }

    /// Returns the value of a variable.
    pub fn value(&self, variable: usize) -> f64 {
        match self.places[variable] {
            Place::Column(_) => 0.0,
            Place::Row(at) => self.rows[at][self.variables].max(0.0),
        }
    }

    /// Returns the number of table entries changed so far, as a measure of cost.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Solves the program, starting from the last solution.
    pub fn solve(&mut self) -> End {
        let most = 1000 + 20 * (self.rows.len() + self.variables);
        for step in 0..most {
            let by_number = step > most / 2;
            if let Some(row) = self.short_row(by_number) {
                let is_dual = self.costs[..self.variables].iter().all(|&it| it <= TINY);
                match self.entering(row, is_dual, by_number) {
                    Some(column) => self.pivot(row, column),
                    None => return End::Infeasible,
                }
                continue;
            }
            let Some(column) = self.gaining(by_number) else {
                return End::Optimal;
            };
            match self.leaving(column) {
                Some(row) => self.pivot(row, column),
                None => return End::Unbounded,
            }
        }
        End::Lost
    }

    /// Returns a row whose variable is negative.
    fn short_row(&self, by_number: bool) -> Option<usize> {
        let right = |row: usize| self.rows[row][self.variables];
        let mut short = (0..self.rows.len()).filter(|&row| right(row) < -TINY);
        if by_number {
            return short.min_by_key(|&row| self.basis[row]);
        }
        let first = short.next()?;
        Some(short.fold(first, |least, row| {
            if right(row) < right(least) {
                row
            } else {
                least
            }
        }))
    }

    /// Returns the column that raises a negative row: one that keeps all costs at or below zero if
    /// they are (`is_dual`), else the one with the largest pivot.
    fn entering(&self, row: usize, is_dual: bool, by_number: bool) -> Option<usize> {
        let line = &self.rows[row];
        let mut best: Option<(usize, f64)> = None;
        for column in (0..self.variables).filter(|&column| line[column] < -LEAST_PIVOT) {
            let ratio = if is_dual {
                self.costs[column].min(0.0) / line[column]
            } else {
                0.0
            };
            let better = best.is_none_or(|(other, least)| {
                if (ratio - least).abs() > TINY {
                    return ratio < least;
                }
                if by_number {
                    self.outside[column] < self.outside[other]
                } else {
                    line[column] < line[other]
                }
            });
            if better {
                best = Some((column, ratio));
            }
        }
        best.map(|it| it.0)
    }

    /// Returns a column whose variable raises the objective.
    fn gaining(&self, by_number: bool) -> Option<usize> {
        let mut gaining = (0..self.variables).filter(|&column| self.costs[column] > TINY);
        if by_number {
            return gaining.min_by_key(|&column| self.outside[column]);
        }
        let first = gaining.next()?;
        Some(gaining.fold(first, |most, column| {
            if self.costs[column] > self.costs[most] {
                column
            } else {
                most
            }
        }))
    }

    /// Returns the row that limits a column's variable first.
    fn leaving(&self, column: usize) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (row, line) in self.rows.iter().enumerate() {
            if line[column] <= LEAST_PIVOT {
                continue;
            }
            let ratio = line[self.variables].max(0.0) / line[column];
            let better = best.is_none_or(|(other, least)| {
                ratio < least - TINY
                    || (ratio <= least + TINY && self.basis[row] < self.basis[other])
            });
            if better {
                best = Some((row, ratio));
            }
        }
        best.map(|it| it.0)
    }

    fn pivot(&mut self, row: usize, column: usize) {
        self.work += ((self.rows.len() + 1) * (self.variables + 1)) as u64;
        let mut chosen = std::mem::take(&mut self.rows[row]);
        let by = 1.0 / chosen[column];
        chosen[column] = 1.0;
        chosen.iter_mut().for_each(|it| *it *= by);
        let clear = |line: &mut Vec<f64>| {
            let factor = line[column];
            if factor != 0.0 {
                line[column] = 0.0;
                subtract(line, factor, &chosen);
            }
        };
        self.rows
            .iter_mut()
            .filter(|line| !line.is_empty())
            .for_each(clear);
        // Updates the objective for the entering variable.
        let factor = self.costs[column];
        if factor != 0.0 {
            let value = self.costs[self.variables];
            self.costs[column] = 0.0;
            subtract(&mut self.costs, factor, &chosen);
            self.costs[self.variables] = value + factor * chosen[self.variables];
        }
        self.rows[row] = chosen;
        std::mem::swap(&mut self.basis[row], &mut self.outside[column]);
        if let Some(place) = self.places.get_mut(self.basis[row]) {
            *place = Place::Row(row);
        }
        if let Some(place) = self.places.get_mut(self.outside[column]) {
            *place = Place::Column(column);
        }
    }
}

fn subtract(line: &mut [f64], factor: f64, other: &[f64]) {
    for (it, other) in line.iter_mut().zip(other) {
        *it -= factor * other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the program: maximise 3x + 5y with x ≤ 4, 2y ≤ 12, 3x + 2y ≤ 18. The optimum is x =
    /// 2, y = 6.
    fn textbook() -> Linear {
        let mut linear = Linear::new(2);
        linear.at_most([(0, 1.0)], 4.0);
        linear.at_most([(1, 2.0)], 12.0);
        linear.at_most([(0, 3.0), (1, 2.0)], 18.0);
        linear.maximise([(0, 3.0), (1, 5.0)]);
        assert_eq!(linear.solve(), End::Optimal);
        linear
    }

    #[test]
    fn the_optimum_is_found_and_restored_after_a_further_row() {
        let mut linear = textbook();
        assert_eq!((linear.value(0), linear.value(1)), (2.0, 6.0));
        assert!((linear.objective() - 36.0).abs() < 1e-9);
        linear.at_most([(1, 1.0)], 3.0);
        assert_eq!(linear.solve(), End::Optimal);
        assert!((linear.value(0) - 4.0).abs() < 1e-9 && (linear.value(1) - 3.0).abs() < 1e-9);
        assert!((linear.objective() - 27.0).abs() < 1e-9);
        linear.at_most([(0, -1.0), (1, -1.0)], -8.0);
        assert_eq!(linear.solve(), End::Infeasible);
    }

    #[test]
    fn an_infeasible_start_is_repaired_first() {
        // x + y ≥ 2, x ≤ 1.5. Minimises 2x + y, then maximises x.
        let mut linear = Linear::new(2);
        linear.at_most([(0, -1.0), (1, -1.0)], -2.0);
        linear.at_most([(0, 1.0)], 1.5);
        linear.maximise([(0, -2.0), (1, -1.0)]);
        assert_eq!(linear.solve(), End::Optimal);
        assert!((linear.objective() + 2.0).abs() < 1e-9);
        linear.maximise([(0, 1.0)]);
        assert_eq!(linear.solve(), End::Optimal);
        assert!((linear.objective() - 1.5).abs() < 1e-9);
        linear.maximise([(1, 1.0)]);
        assert_eq!(linear.solve(), End::Unbounded);
    }
}
