//! Derives tighter bounds of integer variables from the rows and choices of a program.

use super::{Program, Relation, Var};

/// Tolerance of a row.
const TOLERANCE: f64 = 1e-6;

/// Maximum number of rows that one call examines, as a multiple of all rows.
const MOST_PASSES: usize = 20;

/// Bounds of all variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// Lower bounds.
    pub lower: Vec<f64>,
    /// Upper bounds.
    pub upper: Vec<f64>,
}

impl Bounds {
    /// Returns the bounds of a program.
    pub fn new(program: &Program) -> Bounds {
        Bounds {
            lower: vec![0.0; program.columns.len()],
            upper: program.columns.iter().map(|it| it.most).collect(),
        }
    }
}

/// A row Σ terms ≤ right.
struct AtMost {
    terms: Vec<(usize, f64)>,
    right: f64,
}

/// Rows and choices by variable.
pub struct Propagation<'a> {
    program: &'a Program,
    rows: Vec<AtMost>,
    rows_of: Vec<Vec<u32>>,
    choices_of: Vec<Vec<u32>>,
}

impl<'a> Propagation<'a> {
    /// Collects the rows with integer variables.
    pub fn new(program: &'a Program) -> Propagation<'a> {
        let mut rows: Vec<AtMost> = Vec::new();
        let has_whole = |terms: &[(Var, f64)]| terms.iter().any(|it| program.columns[it.0.0].whole);
        for row in program.rows.iter().filter(|row| has_whole(&row.terms)) {
            let mut add = |sign: f64| {
                rows.push(AtMost {
                    terms: row.terms.iter().map(|it| (it.0.0, sign * it.1)).collect(),
                    right: sign * row.right,
                });
            };
            if row.relation != Relation::Ge {
                add(1.0);
            }
            if row.relation != Relation::Le {
                add(-1.0);
            }
        }
        let mut rows_of = vec![Vec::new(); program.columns.len()];
        for (at, row) in rows.iter().enumerate() {
            for &(var, _) in &row.terms {
                rows_of[var].push(at as u32);
            }
        }
        let mut choices_of = vec![Vec::new(); program.columns.len()];
        for (at, choice) in program.choices.iter().enumerate() {
            choices_of[choice.total.0].push(at as u32);
            for (var, _) in &choice.counts {
                choices_of[var.0].push(at as u32);
            }
        }
        Propagation {
            program,
            rows,
            rows_of,
            choices_of,
        }
    }

    /// Tightens bounds after those of some variables changed; all rows if `changed` is `None`.
    /// Returns false if no values satisfy all bounds.
    pub fn run(&self, bounds: &mut Bounds, changed: Option<&[usize]>) -> bool {
        let mut is_queued = vec![changed.is_none(); self.rows.len()];
        let mut queue: Vec<u32> = if changed.is_none() {
            (0..self.rows.len() as u32).rev().collect()
        } else {
            Vec::new()
        };
        let all: Vec<usize>;
        let first = match changed {
            Some(changed) => changed,
            None => {
                all = (0..bounds.lower.len()).collect();
                &all
            }
        };
        let mut moved: Vec<usize> = first.to_vec();
        let mut left = MOST_PASSES * self.rows.len() + 100;
        loop {
            while let Some(var) = moved.pop() {
                if bounds.lower[var] > bounds.upper[var] + TOLERANCE {
                    return false;
                }
                for &choice in &self.choices_of[var] {
                    if !self.choose(choice as usize, bounds, &mut moved) {
                        return false;
                    }
                }
                for &row in &self.rows_of[var] {
                    if !std::mem::replace(&mut is_queued[row as usize], true) {
                        queue.push(row);
                    }
                }
            }
            let Some(row) = queue.pop() else {
                return true;
            };
            is_queued[row as usize] = false;
            left -= 1;
            if !self.tighten(row as usize, bounds, &mut moved) {
                return false;
            }
            if left == 0 {
                return true;
            }
        }
    }

    /// Excludes the numbers of flows that do not fit the bounds of a total.
    fn choose(&self, at: usize, bounds: &mut Bounds, moved: &mut Vec<usize>) -> bool {
        let choice = &self.program.choices[at];
        let (low, high) = (bounds.lower[choice.total.0], bounds.upper[choice.total.0]);
        let open = choice.counts.iter().filter(|it| bounds.upper[it.0.0] > 0.5);
        let most = open.map(|it| it.1).max().unwrap_or(0);
        let others = f64::from(choice.members - 1) * f64::from(most);
        for &(Var(var), flows) in &choice.counts {
            let flows = f64::from(flows);
            if bounds.upper[var] < 0.5 {
                continue;
            }
            let fits = if flows + others < low - TOLERANCE {
                0.0
            } else {
                (high / flows + TOLERANCE).floor()
            };
            if fits < bounds.upper[var] - 0.5 {
                if fits < bounds.lower[var] - 0.5 {
                    return false;
                }
                bounds.upper[var] = fits;
                moved.push(var);
            }
        }
        true
    }

    /// Tightens the bounds of a row's variables. Returns false if the row cannot be satisfied.
    fn tighten(&self, at: usize, bounds: &mut Bounds, moved: &mut Vec<usize>) -> bool {
        let row = &self.rows[at];
        let least_of = |bounds: &Bounds, var: usize, factor: f64| {
            factor
                * if factor > 0.0 {
                    bounds.lower[var]
                } else {
                    bounds.upper[var]
                }
        };
        let terms = row.terms.iter();
        let least: f64 = terms.map(|&(var, it)| least_of(bounds, var, it)).sum();
        let spare = row.right - least;
        let scale = row.right.abs().max(1.0);
        if spare < -TOLERANCE * scale {
            return false;
        }
        for &(var, factor) in &row.terms {
            let range = bounds.upper[var] - bounds.lower[var];
            let room = spare.max(0.0) / factor.abs();
            if range <= 0.0 || room >= range {
                continue;
            }
            if !self.program.columns[var].whole {
                // Real variables are only fixed at zero.
                if factor > 0.0 && room < 1e-12 && bounds.lower[var] == 0.0 {
                    bounds.upper[var] = 0.0;
                    moved.push(var);
                }
                continue;
            }
            if factor > 0.0 {
                let most = (bounds.lower[var] + room + TOLERANCE).floor();
                if most < bounds.upper[var] - 0.5 {
                    bounds.upper[var] = most;
                    moved.push(var);
                }
            } else {
                let least = (bounds.upper[var] - room - TOLERANCE).ceil();
                if least > bounds.lower[var] + 0.5 {
                    bounds.lower[var] = least;
                    moved.push(var);
                }
            }
        }
        true
    }
}
