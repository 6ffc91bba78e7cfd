//! A mixed-integer linear program, and the one place that knows a solver for it.

use super::Bound;
use microlp::{ComparisonOp, Error, OptimizationDirection, Problem, SolveOptions, Variable};

/// A variable of a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Var(usize);

/// How a row compares with its right side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// At most.
    Le,
    /// Equal.
    Eq,
    /// At least.
    Ge,
}

/// Terms below this share of the largest one in their row are left out: the solver keeps six orders
/// of magnitude in a row, and what they stand for is not seen in the result.
const LEAST_SHARE: f64 = 1e-7;

/// Variables, rows and an objective that is maximised.
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

/// What a solver found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The objective's value.
    pub objective: f64,
    /// By how much, relative to the objective, a better one may exist; zero where this is the best.
    pub gap: f64,
    values: Vec<f64>,
}

impl Found {
    /// The value of a variable.
    pub fn value(&self, var: Var) -> f64 {
        self.values[var.0]
    }
}

/// Why there is no solution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsolved {
    /// The rows contradict each other.
    Infeasible,
    /// Nothing bounds the objective.
    Unbounded,
    /// The bound on the search was reached before anything was found.
    Stopped,
    /// The solver gave up for reasons of arithmetic.
    Numerical(String),
}

/// A bound in time is given again this often while there is no solution yet: on a slow or busy host
/// a late answer is better than none.
const MOST_EXTENSIONS: usize = 30;

impl Program {
    /// A real variable from zero to `most`.
    pub fn real(&mut self, most: f64) -> Var {
        self.column(most, false)
    }

    /// A whole number from zero to `most`.
    pub fn whole(&mut self, most: u32) -> Var {
        self.column(f64::from(most), true)
    }

    fn column(&mut self, most: f64, whole: bool) -> Var {
        self.columns.push(Column { most, whole });
        Var(self.columns.len() - 1)
    }

    /// A row. A variable may stand in it several times; its factors are added.
    pub fn row(&mut self, terms: Vec<(Var, f64)>, relation: Relation, right: f64) {
        self.rows.push(Row {
            terms: gathered(terms),
            relation,
            right,
        });
    }

    /// What is maximised from now on.
    pub fn maximise(&mut self, terms: Vec<(Var, f64)>) {
        self.objective = gathered(terms);
    }

    /// What is minimised from now on; [`Found::objective`] is then its negative.
    pub fn minimise(&mut self, terms: &[(Var, f64)]) {
        self.maximise(terms.iter().map(|&(var, factor)| (var, -factor)).collect());
    }

    /// What is maximised, by place.
    pub(super) fn objective_terms(&self) -> impl Iterator<Item = (usize, f64)> {
        self.objective.iter().map(|&(Var(at), factor)| (at, factor))
    }

    /// The rows, with their variables by place.
    pub(super) fn row_terms(&self) -> impl Iterator<Item = (Vec<(usize, f64)>, Relation, f64)> {
        self.rows.iter().map(|row| {
            let terms = row.terms.iter().map(|&(Var(at), factor)| (at, factor));
            (terms.collect(), row.relation, row.right)
        })
    }

    /// The most that each variable may be, and whether it is a whole number.
    pub(super) fn column_bounds(&self) -> impl Iterator<Item = (f64, bool)> {
        self.columns
            .iter()
            .map(|column| (column.most, column.whole))
    }

    /// Solves it within a bound.
    ///
    /// # Errors
    ///
    /// Where there is no solution, or none was found within the bound.
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
                    // A count is far below the solver's bound of 2^31.
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

/// Continues a search until it has something, [`MOST_EXTENSIONS`] times at most.
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

/// Terms with each variable once, without those that are too small to matter.
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
    fn whole_numbers_stay_whole() {
        let mut program = Program::default();
        let (a, b) = (program.whole(10), program.real(10.0));
        // 2a + b ≤ 7, maximise 3a + b: a = 3, b = 1.
        program.row(vec![(a, 1.0), (b, 1.0), (a, 1.0)], Relation::Le, 7.0);
        program.maximise(vec![(a, 3.0), (b, 1.0)]);
        let found = program.solve(Bound::DEFAULT).unwrap();
        assert_eq!((found.value(a), found.value(b).round()), (3.0, 1.0));
        assert!((found.objective - 10.0).abs() < 1e-6 && found.gap == 0.0);
    }

    #[test]
    fn a_bound_in_time_is_extended_until_there_is_a_solution() {
        // What is searched is a count of the extensions.
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
    fn contradictions_are_told() {
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
