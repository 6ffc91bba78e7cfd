//! A small dense simplex solver, independent of the solver under test: maximise c·x with A·x ≤ b, x
//! ≥ 0, b ≥ 0. Uses Bland's rule, so that it terminates.

pub struct Linear {
    rows: Vec<Vec<f64>>,
    right: Vec<f64>,
    objective: Vec<f64>,
}

const TINY: f64 = 1e-10;

impl Linear {
    pub fn new(columns: usize) -> Linear {
        Linear {
            rows: Vec::new(),
            right: Vec::new(),
            objective: vec![0.0; columns],
        }
    }

    pub fn at_most(&mut self, terms: &[(usize, f64)], right: f64) {
        let mut row = vec![0.0; self.objective.len()];
        for &(at, factor) in terms {
            row[at] += factor;
        }
        self.rows.push(row);
        self.right.push(right);
    }

    pub fn maximise(&mut self, column: usize, factor: f64) {
        self.objective[column] += factor;
    }

    /// Returns the values of the variables, or `None` if the objective is unbounded.
    pub fn solve(&self) -> Option<Vec<f64>> {
        let (n, m) = (self.objective.len(), self.rows.len());
        let mut table: Vec<Vec<f64>> = self
            .rows
            .iter()
            .enumerate()
            .map(|(at, row)| {
                let slack = (0..m).map(|other| f64::from(u8::from(other == at)));
                let right = std::iter::once(self.right[at]);
                row.iter().copied().chain(slack).chain(right).collect()
            })
            .collect();
        let mut costs: Vec<f64> = self.objective.iter().map(|c| -c).collect();
        costs.resize(n + m + 1, 0.0);
        let mut basis: Vec<usize> = (n..n + m).collect();
        while let Some(column) = (0..n + m).find(|&at| costs[at] < -TINY) {
            let row = (0..m)
                .filter(|&row| table[row][column] > TINY)
                .min_by(|&a, &b| {
                    let ratio = |row: usize| table[row][n + m] / table[row][column];
                    ratio(a).total_cmp(&ratio(b)).then(basis[a].cmp(&basis[b]))
                })?;
            let pivot = table[row][column];
            table[row].iter_mut().for_each(|value| *value /= pivot);
            let chosen = table[row].clone();
            let clear = |line: &mut Vec<f64>| {
                let factor = line[column];
                if factor != 0.0 {
                    line.iter_mut()
                        .zip(&chosen)
                        .for_each(|(value, it)| *value -= factor * it);
                }
            };
            for (at, line) in table.iter_mut().enumerate() {
                if at != row {
                    clear(line);
                }
            }
            clear(&mut costs);
            basis[row] = column;
        }
        let mut values = vec![0.0; n];
        for (row, &column) in basis.iter().enumerate() {
            if column < n {
                values[column] = table[row][n + m];
            }
        }
        Some(values)
    }
}

#[test]
fn solves_a_textbook_problem() {
    // Maximise 3x + 5y with x ≤ 4, 2y ≤ 12, 3x + 2y ≤ 18: the optimum is x = 2, y = 6.
    let mut linear = Linear::new(2);
    linear.at_most(&[(0, 1.0)], 4.0);
    linear.at_most(&[(1, 2.0)], 12.0);
    linear.at_most(&[(0, 3.0), (1, 2.0)], 18.0);
    linear.maximise(0, 3.0);
    linear.maximise(1, 5.0);
    assert_eq!(linear.solve().unwrap(), [2.0, 6.0]);
}
