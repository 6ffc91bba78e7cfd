//! A linear program in the form of the simplex method: minimise c · x, with A · x + s = b and
//! bounds for every column x and slack s. Rows and real columns are scaled by powers of two.

use super::{Program, Relation};

/// Number of passes that scale rows and columns.
const PASSES: usize = 4;

/// The matrix and the costs of a program. Bounds of columns belong to the search.
#[derive(Clone, Debug, Default)]
pub struct Standard {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns without slacks. Slack `row` is column `columns + row`.
    pub columns: usize,
    column_starts: Vec<usize>,
    column_entries: Vec<(u32, f64)>,
    row_starts: Vec<usize>,
    row_entries: Vec<(u32, f64)>,
    /// Right sides.
    pub right: Vec<f64>,
    /// Bounds of the slacks.
    pub slacks: Vec<(f64, f64)>,
    /// Costs of the columns.
    pub costs: Vec<f64>,
    /// A column's value times its factor is the value in the program.
    pub factors: Vec<f64>,
}

impl Standard {
    /// Converts a program.
    pub fn new(program: &Program) -> Standard {
        let (rows, columns) = (program.rows.len(), program.columns.len());
        let (row_factors, factors) = scaling(program);
        let mut entries: Vec<Vec<(u32, f64)>> = vec![Vec::new(); columns];
        let (mut row_starts, mut row_entries) = (vec![0], Vec::new());
        let (mut right, mut slacks) = (Vec::new(), Vec::new());
        for (row, it) in program.rows.iter().enumerate() {
            for &(var, value) in &it.terms {
                let value = value * row_factors[row] * factors[var.0];
                entries[var.0].push((row as u32, value));
                row_entries.push((var.0 as u32, value));
            }
            row_starts.push(row_entries.len());
            right.push(it.right * row_factors[row]);
            slacks.push(match it.relation {
                Relation::Le => (0.0, f64::INFINITY),
                Relation::Eq => (0.0, 0.0),
                Relation::Ge => (f64::NEG_INFINITY, 0.0),
            });
        }
        let mut costs = vec![0.0; columns];
        for &(var, factor) in &program.objective {
            costs[var.0] = -factor * factors[var.0];
        }
        let mut column_starts = vec![0];
        let mut column_entries = Vec::new();
        for list in entries {
            column_entries.extend(list);
            column_starts.push(column_entries.len());
        }
        Standard {
            rows,
            columns,
            column_starts,
            column_entries,
            row_starts,
            row_entries,
            right,
            slacks,
            costs,
            factors,
        }
    }

    /// Returns the entries of a column that is not a slack.
    pub fn column(&self, at: usize) -> &[(u32, f64)] {
        &self.column_entries[self.column_starts[at]..self.column_starts[at + 1]]
    }

    /// Returns the entries of a row, without its slack.
    pub fn row(&self, at: usize) -> &[(u32, f64)] {
        &self.row_entries[self.row_starts[at]..self.row_starts[at + 1]]
    }
}

/// Returns the factors of rows and columns. Columns of integers keep their scale.
fn scaling(program: &Program) -> (Vec<f64>, Vec<f64>) {
    let mut of_row = vec![1.0_f64; program.rows.len()];
    let mut of_column = vec![1.0_f64; program.columns.len()];
    let middle = |least: f64, most: f64| {
        if most > 0.0 {
            1.0 / (least * most).sqrt()
        } else {
            1.0
        }
    };
    for _ in 0..PASSES {
        let mut range = vec![(f64::INFINITY, 0.0_f64); of_column.len()];
        for (row, factor) in program.rows.iter().zip(&mut of_row) {
            let sizes = row
                .terms
                .iter()
                .map(|&(var, it)| it.abs() * of_column[var.0]);
            let least = sizes.clone().fold(f64::INFINITY, f64::min);
            *factor = middle(least, sizes.fold(0.0, f64::max));
            for &(var, value) in &row.terms {
                let size = value.abs() * *factor;
                let (least, most) = &mut range[var.0];
                (*least, *most) = (least.min(size), most.max(size));
            }
        }
        for ((factor, (least, most)), column) in
            of_column.iter_mut().zip(range).zip(&program.columns)
        {
            if !column.whole {
                *factor = middle(least, most);
            }
        }
    }
    let power = |factor: &mut f64| {
        *factor = power_of_two(*factor);
    };
    of_row.iter_mut().for_each(power);
    of_column.iter_mut().for_each(power);
    (of_row, of_column)
}

/// Returns the greatest power of two that is not greater than a positive number.
fn power_of_two(value: f64) -> f64 {
    let exponent = value.to_bits() & (0x7ff << 52);
    if value.is_normal() && value > 0.0 {
        f64::from_bits(exponent)
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact() {
        assert_eq!(power_of_two(1.0), 1.0);
        assert_eq!(power_of_two(1.9), 1.0);
        assert_eq!(power_of_two(0.3), 0.25);
        assert_eq!(power_of_two(1000.0), 512.0);
        assert_eq!(power_of_two(f64::INFINITY), 1.0);
    }
}
