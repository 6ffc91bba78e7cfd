//! Weighted least squares with up to three unknowns.

/// The equation Σ terms · unknowns = right. If both sides were divided by the measured value, the
/// residual is relative.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Coefficients of the unknowns.
    pub terms: [f64; 3],
    /// Right side.
    pub right: f64,
}

/// Number of standard deviations above which residuals count linearly instead of quadratically.
/// With this value the efficiency is 95 % of least squares without outliers (Huber, 1964).
const HUBER: f64 = 1.345;

/// Maximum number of iterations of the weights.
const ROUNDS: usize = 30;

/// Returns the first `unknowns` of three unknowns, and the cost: the sum of Huber's loss, which is
/// the sum of squares without outliers. `spread` is the standard deviation of a residual; if
/// `None`, it is estimated from the residuals. Returns `None` if the rows do not determine the
/// unknowns.
pub fn robust(rows: &[Row], unknowns: usize, spread: Option<f64>) -> Option<([f64; 3], f64)> {
    let mut weights = vec![1.0; rows.len()];
    let mut found = solve(rows, &weights, unknowns)?;
    let mut scale = spread.unwrap_or(f64::INFINITY);
    for _ in 0..ROUNDS {
        let residuals: Vec<f64> = rows.iter().map(|row| residual(row, &found)).collect();
        if spread.is_none() {
            scale = deviation(&residuals, unknowns);
        }
        for (weight, residual) in weights.iter_mut().zip(&residuals) {
            *weight = (HUBER * scale / residual.abs()).min(1.0);
        }
        let next = solve(rows, &weights, unknowns)?;
        let moved = next
            .iter()
            .zip(&found)
            .any(|(a, b)| (a - b).abs() > 1e-12 * b.abs());
        found = next;
        if !moved {
            break;
        }
    }
    let cost = rows
        .iter()
        .map(|row| loss(residual(row, &found), scale))
        .sum();
    Some((found, cost))
}

/// Estimates the standard deviation from the median of the residuals.
fn deviation(residuals: &[f64], unknowns: usize) -> f64 {
    let mut sizes: Vec<f64> = residuals.iter().map(|it| it.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    // As many residuals as unknowns are zero because of the fit, so the smallest ones are omitted.
    let left = sizes.get(unknowns..).unwrap_or_default();
    let middle = left.get(left.len() / 2).copied().unwrap_or(0.0);
    (middle / 0.6745).max(1e-9)
}

/// Returns twice Huber's loss, which equals the square within the bound.
fn loss(residual: f64, scale: f64) -> f64 {
    let bound = HUBER * scale;
    if residual.abs() <= bound {
        residual * residual
    } else {
        2.0 * bound * residual.abs() - bound * bound
    }
}

fn residual(row: &Row, found: &[f64; 3]) -> f64 {
    let sum: f64 = row.terms.iter().zip(found).map(|(a, b)| a * b).sum();
    sum - row.right
}

/// Solves the normal equations by elimination with pivots, after scaling the columns to one size.
fn solve(rows: &[Row], weights: &[f64], unknowns: usize) -> Option<[f64; 3]> {
    let mut sizes = [0.0; 3];
    for (column, size) in sizes.iter_mut().enumerate().take(unknowns) {
        let most = rows.iter().map(|row| row.terms[column].abs());
        *size = most.fold(0.0, f64::max);
        if *size <= 0.0 || !size.is_finite() {
            return None;
        }
    }
    let mut table = [[0.0; 4]; 3];
    for (row, weight) in rows.iter().zip(weights) {
        for i in 0..unknowns {
            for j in 0..unknowns {
                table[i][j] += weight * row.terms[i] / sizes[i] * row.terms[j] / sizes[j];
            }
            table[i][3] += weight * row.terms[i] / sizes[i] * row.right;
        }
    }
    for column in 0..unknowns {
        let pivot = (column..unknowns)
            .max_by(|&a, &b| table[a][column].abs().total_cmp(&table[b][column].abs()))?;
        table.swap(column, pivot);
        if table[column][column].abs() < 1e-13 * rows.len() as f64 {
            return None;
        }
        for below in 0..unknowns {
            if below != column {
                let factor = table[below][column] / table[column][column];
                let chosen = table[column];
                for (value, it) in table[below].iter_mut().zip(chosen) {
                    *value -= factor * it;
                }
            }
        }
    }
    let mut found = [0.0; 3];
    for (at, value) in found.iter_mut().enumerate().take(unknowns) {
        *value = table[at][3] / table[at][at] / sizes[at];
    }
    found.iter().all(|value| value.is_finite()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(terms: [f64; 3], right: f64) -> Row {
        Row { terms, right }
    }

    #[test]
    fn a_parabola_is_fitted_despite_an_outlier() {
        let value = |x: f64| 1.0 + 2.0 * x - 0.5 * x * x;
        let mut rows: Vec<Row> = (0..8)
            .map(f64::from)
            .map(|x| row([1.0, x, x * x], value(x)))
            .collect();
        let (found, cost) = robust(&rows, 3, None).unwrap();
        assert!((found[2] + 0.5).abs() < 1e-9 && cost < 1e-9, "{found:?}");
        rows[3].right += 100.0;
        let (found, _) = robust(&rows, 3, None).unwrap();
        assert!((found[2] + 0.5).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn too_few_rows_have_no_solution() {
        let rows = [row([1.0, 2.0, 0.0], 3.0), row([1.0, 2.0, 0.0], 3.0)];
        assert!(robust(&rows, 2, None).is_none());
    }
}
