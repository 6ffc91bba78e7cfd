//! Factorises the basis of a linear program as L · U, and updates the factors after each pivot.

/// Minimum size of a pivot, as a share of the largest entry in its column.
const THRESHOLD: f64 = 0.1;

/// Pivots below this size count as zero.
const LEAST_PIVOT: f64 = 1e-11;

/// Number of columns that the search for a pivot compares.
const COMPARED: usize = 4;

/// Vectors of one length, stored one after the other.
#[derive(Clone, Debug, Default)]
struct Lists {
    starts: Vec<usize>,
    entries: Vec<(u32, f64)>,
}

impl Lists {
    fn of(&self, at: usize) -> &[(u32, f64)] {
        &self.entries[self.starts[at]..self.starts[at + 1]]
    }

    /// Returns lists of the given sizes with these entries, each with the index of its list.
    fn new(sizes: &[usize], entries: impl Iterator<Item = (usize, (u32, f64))>) -> Lists {
        let mut starts = vec![0; sizes.len() + 1];
        for (at, size) in sizes.iter().enumerate() {
            starts[at + 1] = starts[at] + size;
        }
        let mut next = starts.clone();
        let mut all = vec![(0, 0.0); starts[sizes.len()]];
        for (list, entry) in entries {
            all[next[list]] = entry;
            next[list] += 1;
        }
        Lists {
            starts,
            entries: all,
        }
    }
}

/// A step of elimination: multiples of one row are subtracted from others.
#[derive(Clone, Debug)]
struct Step {
    row: u32,
    /// Entry of the pivot, for updates.
    pivot: f64,
    entries: Vec<(u32, f64)>,
}

/// The factors of a basis. Each basic variable has the row in which it is the pivot.
#[derive(Clone, Debug, Default)]
pub struct Factor {
    /// Rows in the order of their pivots.
    order: Vec<u32>,
    /// Pivots by row.
    pivots: Vec<f64>,
    lower: Vec<Step>,
    /// Entries of U by the pivot row of their column, and by their row.
    by_column: Lists,
    by_row: Lists,
    updates: Vec<Step>,
    /// Number of entries of the updates.
    update_entries: usize,
}

/// A basis with its factors.
pub struct Factorised {
    /// The factors.
    pub factor: Factor,
    /// For each row, the index of the column whose pivot is in it. `None` if the columns are
    /// dependent, and no column is left for the row.
    pub column_of: Vec<Option<u32>>,
}

/// The remaining part of a matrix during elimination.
struct Active {
    columns: Vec<Vec<(u32, f64)>>,
    /// Columns with an entry in each row. May include columns that are finished.
    in_row: Vec<Vec<u32>>,
    row_size: Vec<usize>,
    is_row_done: Vec<bool>,
    is_column_done: Vec<bool>,
    upper: Vec<Vec<(u32, f64)>>,
    short_columns: Vec<u32>,
    short_rows: Vec<u32>,
    /// Position plus one of each row in the column at work.
    place: Vec<u32>,
}

impl Active {
    fn new(rows: usize, columns: Vec<Vec<(u32, f64)>>) -> Active {
        let mut in_row = vec![Vec::new(); rows];
        for (at, column) in columns.iter().enumerate() {
            for &(row, _) in column {
                in_row[row as usize].push(at as u32);
            }
        }
        let row_size: Vec<usize> = in_row.iter().map(Vec::len).collect();
        let single = |&at: &usize| columns[at].len() == 1;
        let short_columns = (0..columns.len()).rev().filter(single).map(|at| at as u32);
        let short_rows = (0..rows).rev().filter(|&row| row_size[row] == 1);
        Active {
            short_columns: short_columns.collect(),
            short_rows: short_rows.map(|row| row as u32).collect(),
            row_size,
            is_row_done: vec![false; rows],
            is_column_done: vec![false; columns.len()],
            upper: vec![Vec::new(); columns.len()],
            place: vec![0; rows],
            in_row,
            columns,
        }
    }

    /// Returns the next pivot: row, column.
    fn next(&mut self) -> Option<(usize, usize)> {
        while let Some(column) = self.short_columns.pop() {
            let column = column as usize;
            if self.is_column_done[column] || self.columns[column].len() != 1 {
                continue;
            }
            let (row, value) = self.columns[column][0];
            if value.abs() > LEAST_PIVOT {
                return Some((row as usize, column));
            }
        }
        while let Some(row) = self.short_rows.pop() {
            let row = row as usize;
            if self.is_row_done[row] || self.row_size[row] != 1 {
                continue;
            }
            let open = self.in_row[row].iter().map(|&it| it as usize);
            let mut open = open.filter(|&it| !self.is_column_done[it]);
            let is_large = |column: usize| {
                let entries = &self.columns[column];
                let of_row = entries.iter().find(|it| it.0 as usize == row);
                let largest = entries
                    .iter()
                    .fold(0.0_f64, |most, it| most.max(it.1.abs()));
                of_row.is_some_and(|it| it.1.abs() > LEAST_PIVOT.max(largest * 1e-3))
            };
            if let Some(column) = open.find(|&column| is_large(column)) {
                return Some((row, column));
            }
        }
        self.search()
    }

    /// Returns the pivot that causes the least new entries, by the rule of Markowitz.
    fn search(&self) -> Option<(usize, usize)> {
        let mut shortest: Vec<(usize, usize)> = Vec::with_capacity(COMPARED + 1);
        for (at, column) in self.columns.iter().enumerate() {
            if self.is_column_done[at] || column.is_empty() {
                continue;
            }
            if shortest.len() < COMPARED || column.len() < shortest[COMPARED - 1].0 {
                let place = shortest.partition_point(|it| it.0 <= column.len());
                shortest.insert(place, (column.len(), at));
                shortest.truncate(COMPARED);
            }
        }
        let mut best: Option<(usize, usize, usize, f64)> = None;
        for &(length, at) in &shortest {
            let column = &self.columns[at];
            let largest = column.iter().fold(0.0_f64, |most, it| most.max(it.1.abs()));
            for &(row, value) in column {
                let size = value.abs();
                if size < largest * THRESHOLD || size <= LEAST_PIVOT {
                    continue;
                }
                let cost = (self.row_size[row as usize] - 1) * (length - 1);
                let better = best.is_none_or(|(least, _, _, other)| {
                    cost < least || cost == least && size > other
                });
                if better {
                    best = Some((cost, row as usize, at, size));
                }
            }
        }
        if best.is_some() {
            return best.map(|it| (it.1, it.2));
        }
        // Other columns may have a pivot even if the shortest ones are zero.
        let mut open = self.columns.iter().enumerate();
        open.find_map(|(at, column)| {
            let large = column.iter().find(|it| it.1.abs() > LEAST_PIVOT);
            let open = !self.is_column_done[at];
            large.filter(|_| open).map(|it| (it.0 as usize, at))
        })
    }

    /// Eliminates a pivot and returns its step.
    fn eliminate(&mut self, row: usize, column: usize) -> Step {
        self.is_row_done[row] = true;
        self.is_column_done[column] = true;
        let own = std::mem::take(&mut self.columns[column]);
        let of_row = own.iter().find(|it| it.0 as usize == row);
        let pivot = of_row.map_or(1.0, |it| it.1);
        let others = own.iter().filter(|it| it.0 as usize != row);
        let entries: Vec<(u32, f64)> = others.map(|&(at, value)| (at, value / pivot)).collect();
        for &(at, _) in &entries {
            self.shorten(at as usize);
        }
        for other in std::mem::take(&mut self.in_row[row]) {
            let other = other as usize;
            if self.is_column_done[other] {
                continue;
            }
            let list = &mut self.columns[other];
            let Some(place) = list.iter().position(|it| it.0 as usize == row) else {
                continue;
            };
            let (_, value) = list.swap_remove(place);
            self.upper[other].push((row as u32, value));
            if !entries.is_empty() && value != 0.0 {
                self.subtract(other, value, &entries);
            }
            if self.columns[other].len() == 1 {
                self.short_columns.push(other as u32);
            }
        }
        Step {
            row: row as u32,
            pivot,
            entries,
        }
    }

    fn shorten(&mut self, row: usize) {
        self.row_size[row] -= 1;
        if self.row_size[row] == 1 {
            self.short_rows.push(row as u32);
        }
    }

    /// Subtracts a multiple of a pivot's column from another column.
    fn subtract(&mut self, other: usize, value: f64, entries: &[(u32, f64)]) {
        let list = &mut self.columns[other];
        for (at, entry) in list.iter().enumerate() {
            self.place[entry.0 as usize] = at as u32 + 1;
        }
        for &(row, factor) in entries {
            match self.place[row as usize] {
                0 => {
                    list.push((row, -factor * value));
                    self.in_row[row as usize].push(other as u32);
                    self.row_size[row as usize] += 1;
                }
                place => list[place as usize - 1].1 -= factor * value,
            }
        }
        for entry in list.iter() {
            self.place[entry.0 as usize] = 0;
        }
    }
}

impl Factor {
    /// Factorises columns with entries `(row, value)`.
    pub fn of(rows: usize, columns: Vec<Vec<(u32, f64)>>) -> Factorised {
        let mut active = Active::new(rows, columns);
        let mut factor = Factor {
            pivots: vec![1.0; rows],
            ..Factor::default()
        };
        let mut column_of = vec![None; rows];
        let mut row_of = vec![0_u32; active.columns.len()];
        while let Some((row, column)) = active.next() {
            column_of[row] = Some(column as u32);
            row_of[column] = row as u32;
            let step = active.eliminate(row, column);
            factor.order.push(row as u32);
            factor.pivots[row] = step.pivot;
            if !step.entries.is_empty() {
                factor.lower.push(step);
            }
        }
        let mut by_column = vec![0; rows];
        let mut by_row = vec![0; rows];
        let chosen = column_of.iter().flatten().map(|&it| it as usize);
        let upper: Vec<(u32, u32, f64)> = chosen
            .flat_map(|column| {
                let own = row_of[column];
                active.upper[column]
                    .iter()
                    .map(move |&(row, value)| (own, row, value))
            })
            .collect();
        for &(own, row, _) in &upper {
            by_column[own as usize] += 1;
            by_row[row as usize] += 1;
        }
        let entries = upper.iter();
        factor.by_column = Lists::new(
            &by_column,
            entries
                .clone()
                .map(|&(own, row, value)| (own as usize, (row, value))),
        );
        factor.by_row = Lists::new(
            &by_row,
            entries.map(|&(own, row, value)| (row as usize, (own, value))),
        );
        Factorised { factor, column_of }
    }

    /// Returns the number of updates since the factorisation.
    pub fn updates(&self) -> usize {
        self.updates.len()
    }

    /// True if a new factorisation costs less than further updates.
    pub fn is_long(&self) -> bool {
        let own = self.by_column.entries.len() + self.pivots.len();
        self.updates.len() >= 100 || self.updates.len() > 20 && self.update_entries > 3 * own
    }

    /// Solves B · x = v in place. Values are by row, then by the pivot's row.
    pub fn solve(&self, values: &mut [f64]) {
        for step in &self.lower {
            let value = values[step.row as usize];
            if value != 0.0 {
                for &(row, factor) in &step.entries {
                    values[row as usize] -= factor * value;
                }
            }
        }
        for &row in self.order.iter().rev() {
            let row = row as usize;
            if values[row] != 0.0 {
                let value = values[row] / self.pivots[row];
                values[row] = value;
                for &(other, factor) in self.by_column.of(row) {
                    values[other as usize] -= factor * value;
                }
            }
        }
        for step in &self.updates {
            let value = values[step.row as usize];
            if value != 0.0 {
                let value = value / step.pivot;
                for &(row, factor) in &step.entries {
                    values[row as usize] -= factor * value;
                }
                values[step.row as usize] = value;
            }
        }
    }

    /// Solves Bᵀ · y = v in place. Values are by the pivot's row, then by row.
    pub fn solve_transposed(&self, values: &mut [f64]) {
        for step in self.updates.iter().rev() {
            let entries = step.entries.iter();
            let sum: f64 = entries
                .map(|&(row, factor)| factor * values[row as usize])
                .sum();
            let row = step.row as usize;
            values[row] = (values[row] - sum) / step.pivot;
        }
        for &row in &self.order {
            let row = row as usize;
            if values[row] != 0.0 {
                let value = values[row] / self.pivots[row];
                values[row] = value;
                for &(other, factor) in self.by_row.of(row) {
                    values[other as usize] -= factor * value;
                }
            }
        }
        for step in self.lower.iter().rev() {
            let entries = step.entries.iter();
            let sum: f64 = entries
                .map(|&(row, factor)| factor * values[row as usize])
                .sum();
            values[step.row as usize] -= sum;
        }
    }

    /// Replaces the basic variable of a row. `column` is the new column after [`Factor::solve`].
    pub fn update(&mut self, row: usize, column: &[f64]) {
        let others = column.iter().enumerate();
        let entries: Vec<(u32, f64)> = others
            .filter(|&(at, &value)| at != row && value.abs() > 1e-14)
            .map(|(at, &value)| (at as u32, value))
            .collect();
        self.update_entries += entries.len() + 1;
        self.updates.push(Step {
            row: row as u32,
            pivot: column[row],
            entries,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Random;

    fn product(columns: &[Vec<(u32, f64)>], x: &[f64]) -> Vec<f64> {
        let mut result = vec![0.0; x.len()];
        for (column, value) in columns.iter().zip(x) {
            for &(row, entry) in column {
                result[row as usize] += entry * value;
            }
        }
        result
    }

    #[test]
    fn solves_random_systems_before_and_after_updates() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let size = 1 + random.below(30) as usize;
            let mut draw = || {
                let mut column = vec![0.0; size];
                for _ in 0..1 + random.below(4) {
                    column[random.below(size as u64) as usize] = random.fraction() * 2.0 - 0.9;
                }
                column
            };
            let sparse = |column: &[f64]| -> Vec<(u32, f64)> {
                let entries = column.iter().enumerate().filter(|it| *it.1 != 0.0);
                entries.map(|(at, &value)| (at as u32, value)).collect()
            };
            let mut columns: Vec<Vec<(u32, f64)>> = (0..size)
                .map(|at| {
                    let mut column = draw();
                    column[at] += 3.0;
                    sparse(&column)
                })
                .collect();
            let Factorised {
                mut factor,
                column_of,
            } = Factor::of(size, columns.clone());
            let order: Vec<usize> = column_of.iter().map(|it| it.unwrap() as usize).collect();
            columns = order.iter().map(|&at| columns[at].clone()).collect();
            for round in 0..5 {
                let right: Vec<f64> = (0..size).map(|at| (at as f64 * 7.3).sin()).collect();
                let mut x = right.clone();
                factor.solve(&mut x);
                let back = product(&columns, &x);
                let error = back.iter().zip(&right).map(|(a, b)| (a - b).abs());
                assert!(
                    error.fold(0.0, f64::max) < 1e-8,
                    "seed {seed} round {round}"
                );
                let mut y = right.clone();
                factor.solve_transposed(&mut y);
                for (column, value) in columns.iter().zip(&right) {
                    let sum: f64 = column.iter().map(|&(row, it)| it * y[row as usize]).sum();
                    assert!((sum - value).abs() < 1e-8, "seed {seed} round {round}");
                }
                let row = round % size;
                let mut new = vec![0.1; size];
                new[row] = 5.0;
                let mut solved = new.clone();
                factor.solve(&mut solved);
                if solved[row].abs() < 0.01 {
                    break;
                }
                factor.update(row, &solved);
                columns[row] = sparse(&new);
            }
        }
    }

    #[test]
    fn dependent_columns_leave_a_row_open() {
        let columns = vec![vec![(0, 1.0), (1, 2.0)], vec![(0, 2.0), (1, 4.0)]];
        let found = Factor::of(2, columns);
        assert_eq!(found.column_of.iter().flatten().count(), 1);
    }
}
