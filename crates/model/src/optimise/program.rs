//! A mixed-integer linear program. This is the only module that uses the external solver for it.

use super::Bound;
use microlp::{ComparisonOp, Error, OptimizationDirection, Problem, SolveOptions, Variable};

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
}

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

impl Found {
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
    /// Nothing limits the objective.
    Unbounded,
    /// The limit of the search was reached before a solution was found.
    Stopped,
    /// The solver failed because of numerical problems.
    Numerical(String),
}

/// Maximum number of extensions of a time limit while there is no solution. On a slow or busy host,
/// a late solution is better than none.
const MOST_EXTENSIONS: usize = 30;

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

    /// Solves the program within limits.
    ///
    /// # Errors
    ///
    /// If there is no solution, or none was found within the limits.
    pub fn solve(&self, bound: Bound) -> Result<Found, Unsolved> {
        let mut factors = vec![0.0; self.columns.len()];
        for &(Var(at), factor) in &self.objective {
            factors[at] = factor;
        }
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let variables: Vec<Variable> = self
            .columns
            .iter()
            .zip(&factors)
            .map(|(column, &factor)| {
                if column.whole {
                    // The maximum is far below the solver's limit of 2^31.
                    problem.add_integer_var(factor, (0, column.most as i32))
                } else {
                    problem.add_var(factor, (0.0, column.most))
                }
            })
            .collect();
        for row in &self.rows {
            let terms: Vec<(Variable, f64)> = row
                .terms
                .iter()
                .map(|&(Var(at), factor)| (variables[at], factor))
                .collect();
            let relation = match row.relation {
                Relation::Le => ComparisonOp::Le,
                Relation::Eq => ComparisonOp::Eq,
                Relation::Ge => ComparisonOp::Ge,
            };
            problem.add_constraint(&terms[..], relation, row.right);
        }
        let mut options = SolveOptions::default();
        options.node_limit = Some(bound.nodes);
        options.time_limit = bound.time;
        let mut outcome = problem.solve_with(options).map_err(unsolved)?;
        if bound.time.is_some() {
            outcome = extended(
                outcome,
                |outcome| outcome.solution().is_some(),
                |outcome| outcome.resume().map_err(unsolved),
            )?;
        }
        let solution = outcome.into_solution().map_err(|_| Unsolved::Stopped)?;
        let values = variables
            .iter()
            .zip(&self.columns)
            .map(|(&variable, column)| {
                if column.whole {
                    solution.var_value(variable).round()
                } else {
                    solution.var_value(variable)
                }
            })
            .collect();
        Ok(Found {
            objective: solution.objective(),
            gap: solution.gap().unwrap_or(0.0),
            values,
        })
    }
}

/// Continues a search until it has a solution, at most [`MOST_EXTENSIONS`] times.
fn extended<T, E>(
    mut search: T,
    has_solution: impl Fn(&T) -> bool,
    mut resume: impl FnMut(T) -> Result<T, E>,
) -> Result<T, E> {
    for _ in 0..MOST_EXTENSIONS {
        if has_solution(&search) {
            break;
        }
        search = resume(search)?;
    }
    Ok(search)
}

fn unsolved(error: Error) -> Unsolved {
    match error {
        Error::Infeasible => Unsolved::Infeasible,
        Error::Unbounded => Unsolved::Unbounded,
        other => Unsolved::Numerical(other.to_string()),
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
    fn a_time_limit_is_extended_until_there_is_a_solution() {
        // The test's search counts its extensions.
        let extensions = |needed: usize| {
            extended(
                0,
                |&done| done >= needed,
                |done| Ok::<_, Unsolved>(done + 1),
            )
            .unwrap()
        };
        assert_eq!(extensions(0), 0);
        assert_eq!(extensions(7), 7);
        assert_eq!(extensions(1000), MOST_EXTENSIONS);
        let failed = extended((), |()| false, |()| Err(Unsolved::Infeasible));
        assert_eq!(failed, Err(Unsolved::Infeasible));
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
