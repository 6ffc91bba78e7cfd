//! A mixed-integer linear program and its exact solution.
//!
//! - `standard`: the program as a matrix
//! - `factor`: the factors of a basis
//! - `simplex`: the state of a linear program
//! - `dual`: the dual simplex method
//! - `propagate`: tighter bounds by the rows
//! - `branch`: the choice of a variable to divide
//! - `tree`: branch and bound

mod branch;
mod dual;
mod factor;
mod propagate;
mod simplex;
mod standard;
mod tree;

use super::Bound;
use tree::Tree;

/// A variable of a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Var(usize);

/// The relation of a row to its right side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// At most.
    Le,
    /// Equal.
    Eq,
    /// At least.
    Ge,
}

/// Terms below this share of the largest in their row are omitted: the solver has six orders of
/// magnitude in a row, and smaller terms do not affect the result.
const LEAST_SHARE: f64 = 1e-7;

/// Variables, rows and an objective to maximise.
#[derive(Clone, Debug, Default)]
pub struct Program {
    columns: Vec<Column>,
    rows: Vec<Row>,
    objective: Vec<(Var, f64)>,
    choices: Vec<Choice>,
}

/// Members by their number of flows, and the total of their flows.
#[derive(Clone, Debug)]
struct Choice {
    total: Var,
    counts: Vec<(Var, u32)>,
    members: u32,
}

/// Limits of a search, and the precision of its result.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum number of nodes.
    nodes: u64,
    /// Maximum work, about the number of multiplications.
    work: u64,
    /// Relative difference below which a solution is not better.
    tolerance: f64,
    /// Only solutions with a greater objective are wanted.
    above: Option<f64>,
}

/// Relative difference of objectives that count as equal.
pub const SAME: f64 = 2e-7;

#[derive(Clone, Copy, Debug)]
struct Column {
    most: f64,
    whole: bool,
}

#[derive(Clone, Debug)]
struct Row {
    terms: Vec<(Var, f64)>,
    relation: Relation,
    right: f64,
}

/// A solution.
#[derive(Clone, Debug)]
pub struct Found {
    /// Value of the objective.
    pub objective: f64,
    /// Relative amount by which a better solution may exist. Zero if this is the optimum.
    pub gap: f64,
    values: Vec<f64>,
}

impl Var {
    /// Returns the index of the variable in the values of its program.
    pub fn index(self) -> usize {
        self.0
    }
}

impl Found {
    /// Returns the values of all variables.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Returns the value of a variable.
    pub fn value(&self, var: Var) -> f64 {
        self.values[var.0]
    }
}

/// Reasons why there is no solution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsolved {
    /// The rows contradict each other.
    Infeasible,
    /// The limit of the search was reached before a solution was found.
    Stopped,
}

impl Program {
    /// Adds a real variable from zero to `most`.
    pub fn real(&mut self, most: f64) -> Var {
        self.column(most, false)
    }

    /// Adds an integer variable from zero to `most`.
    pub fn whole(&mut self, most: u32) -> Var {
        self.column(f64::from(most), true)
    }

    fn column(&mut self, most: f64, whole: bool) -> Var {
        self.columns.push(Column { most, whole });
        Var(self.columns.len() - 1)
    }

    /// Adds a row. Coefficients of the same variable are summed.
    pub fn row(&mut self, terms: Vec<(Var, f64)>, relation: Relation, right: f64) {
        self.rows.push(Row {
            terms: gathered(terms),
            relation,
            right,
        });
    }

    /// Sets the objective to maximise.
    pub fn maximise(&mut self, terms: Vec<(Var, f64)>) {
        self.objective = gathered(terms);
    }

    /// Sets an objective to minimise. [`Found::objective`] is then its negative.
    pub fn minimise(&mut self, terms: &[(Var, f64)]) {
        self.maximise(terms.iter().map(|&(var, factor)| (var, -factor)).collect());
    }

    /// Returns the terms of the objective, with variables by index.
    pub fn objective_terms(&self) -> impl Iterator<Item = (usize, f64)> {
        self.objective.iter().map(|&(Var(at), factor)| (at, factor))
    }

    /// Returns the rows, with variables by index.
    pub fn row_terms(&self) -> impl Iterator<Item = (Vec<(usize, f64)>, Relation, f64)> {
        self.rows.iter().map(|row| {
            let terms = row.terms.iter().map(|&(Var(at), factor)| (at, factor));
            (terms.collect(), row.relation, row.right)
        })
    }

    /// Returns the maximum of each variable, and true if it is an integer.
    pub fn column_bounds(&self) -> impl Iterator<Item = (f64, bool)> {
        self.columns
            .iter()
            .map(|column| (column.most, column.whole))
    }

    /// Adds a variable for the total flows of at most `members` members, whose numbers of flows are
    /// those of `counts`. The search divides the range of the total.
    pub fn choice(&mut self, counts: Vec<(Var, u32)>, members: u32) -> Var {
        let most = counts.iter().map(|it| it.1).max().unwrap_or(0);
        let total = self.whole(most.saturating_mul(members));
        let mut terms: Vec<(Var, f64)> = counts
            .iter()
            .map(|&(var, flows)| (var, f64::from(flows)))
            .collect();
        terms.push((total, -1.0));
        self.row(terms, Relation::Eq, 0.0);
        self.choices.push(Choice {
            total,
            counts,
            members,
        });
        total
    }

    /// Sets the totals of all choices to the sums of their counts.
    pub fn set_totals(&self, values: &mut [f64]) {
        for choice in &self.choices {
            let counts = choice.counts.iter();
            let sum = counts
                .map(|&(var, flows)| values[var.0] * f64::from(flows))
                .sum();
            values[choice.total.0] = sum;
        }
    }

    /// Solves the program within limits.
    ///
    /// # Errors
    ///
    /// If there is no solution, or none was found within the limits.
    pub fn solve(&self, bound: Bound) -> Result<Found, Unsolved> {
        self.solve_from(bound, &[], None, SAME)
    }

    /// Returns the maximum if all integer variables may be fractions.
    ///
    /// # Errors
    ///
    /// The same as for [`Program::solve`].
    pub fn relaxed(&self, bound: Bound) -> Result<f64, Unsolved> {
        let mut program = self.clone();
        program.columns.iter_mut().for_each(|it| it.whole = false);
        program.choices.clear();
        Ok(program.solve(bound)?.objective)
    }

    /// Solves the program, starting from values of the integer variables. Only a solution with an
    /// objective greater than `above` is wanted. Objectives with a smaller relative difference than
    /// `tolerance` are equal.
    ///
    /// # Errors
    ///
    /// The same as for [`Program::solve`]; [`Unsolved::Infeasible`] if no solution is above.
    pub fn solve_from(
        &self,
        bound: Bound,
        starts: &[Vec<f64>],
        above: Option<f64>,
        tolerance: f64,
    ) -> Result<Found, Unsolved> {
        let limits = Limits {
            nodes: bound.nodes,
            work: bound.work,
            tolerance,
            above,
        };
        Tree::solve(self, limits, starts)
    }
}

/// Sums the terms of each variable, and omits those that are too small to matter.
fn gathered(mut terms: Vec<(Var, f64)>) -> Vec<(Var, f64)> {
    terms.sort_by_key(|&(var, _)| var);
    let mut sums: Vec<(Var, f64)> = Vec::with_capacity(terms.len());
    for (var, factor) in terms {
        match sums.last_mut() {
            Some((last, sum)) if *last == var => *sum += factor,
            _ => sums.push((var, factor)),
        }
    }
    let largest = sums
        .iter()
        .fold(0.0_f64, |most, term| most.max(term.1.abs()));
    sums.retain(|term| term.1.abs() > largest * LEAST_SHARE);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_variables_have_integer_values() {
        let mut program = Program::default();
        let (a, b) = (program.whole(10), program.real(10.0));
        // 2a + b ≤ 7, maximise 3a + b: the optimum is a = 3, b = 1.
        program.row(vec![(a, 1.0), (b, 1.0), (a, 1.0)], Relation::Le, 7.0);
        program.maximise(vec![(a, 3.0), (b, 1.0)]);
        let found = program.solve(Bound::DEFAULT).unwrap();
        assert_eq!((found.value(a), found.value(b).round()), (3.0, 1.0));
        assert!((found.objective - 10.0).abs() < 1e-6 && found.gap == 0.0);
    }

    #[test]
    fn contradictions_are_reported() {
        let mut program = Program::default();
        let a = program.real(1.0);
        program.row(vec![(a, 1.0)], Relation::Ge, 2.0);
        program.maximise(vec![(a, 1.0)]);
        assert_eq!(
            program.solve(Bound::DEFAULT).unwrap_err(),
            Unsolved::Infeasible
        );
    }
}
