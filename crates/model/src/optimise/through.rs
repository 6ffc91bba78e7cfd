//! Limits on the flow of a node that has the flows of others: with the same flows, those can carry
//! only a certain amount.

/// A class of equal members whose flows pass another node.
#[derive(Clone, Debug)]
pub struct Class {
    /// Number of members.
    pub members: u32,
    /// Minimum number of flows of a used member.
    pub least: u32,
    /// Rate of one member by number of flows, from `least`, and by commodity.
    pub rates: Vec<Vec<f64>>,
}

/// Maximum number of steps to combine the members of a class exactly.
const MOST_STEPS: u64 = 1_000_000;

/// Relative margin for rounding errors.
const MARGIN: f64 = 1e-9;

/// Returns a weight for each commodity, and for each total number of flows the maximum of the
/// weighted sum of rates. Returns `None` if the classes have no limit.
pub fn limits(classes: &[Class], totals: &[u32]) -> Option<(Vec<f64>, Vec<f64>)> {
    let commodities = classes.first()?.rates.first()?.len();
    let most = *totals.iter().max()? as usize;
    let mut weights = Vec::with_capacity(commodities);
    for commodity in 0..commodities {
        let mut all = 0.0;
        for class in classes {
            let best = class
                .rates
                .iter()
                .map(|it| it[commodity])
                .fold(0.0, f64::max);
            all += f64::from(class.members) * best;
        }
        if !(all.is_finite() && all > 0.0) {
            return None;
        }
        weights.push(1.0 / all);
    }
    let mut together = vec![0.0];
    for class in classes {
        let values = class.rates.iter().map(|rates| {
            let values = rates
                .iter()
                .zip(&weights)
                .map(|(rate, weight)| rate * weight);
            values.fold(0.0, f64::max)
        });
        let own = of_class(class, &values.collect::<Vec<f64>>(), most);
        together = combined(&together, &own, most);
    }
    let of_total = |&total: &u32| together.get(total as usize).copied().unwrap_or(0.0);
    let most = totals
        .iter()
        .map(of_total)
        .map(|it| it.max(0.0) * (1.0 + MARGIN));
    Some((weights, most.collect()))
}

/// Returns the maximum by total flows of a class. Minus infinity for a total that is not possible.
fn of_class(class: &Class, values: &[f64], most: usize) -> Vec<f64> {
    let each = class.least as usize + values.len() - 1;
    let all = (each * class.members as usize).min(most);
    let steps = u64::from(class.members) * all as u64 * values.len() as u64;
    if steps > MOST_STEPS {
        return bound_of_class(class, values, all);
    }
    let mut best = vec![f64::NEG_INFINITY; all + 1];
    best[0] = 0.0;
    for _ in 0..class.members {
        for total in (1..=all).rev() {
            let mut value = best[total];
            for (at, own) in values.iter().enumerate() {
                let flows = class.least as usize + at;
                if flows <= total {
                    value = value.max(best[total - flows] + own);
                }
            }
            best[total] = value;
        }
    }
    best
}

/// Returns an upper limit of the maximum by total flows.
fn bound_of_class(class: &Class, values: &[f64], all: usize) -> Vec<f64> {
    let of_member = values.iter().copied().fold(0.0, f64::max);
    let per_flow = values.iter().enumerate();
    let of_flow = per_flow
        .map(|(at, value)| value / (f64::from(class.least) + at as f64))
        .fold(0.0, f64::max);
    let most = of_member * f64::from(class.members);
    (0..=all)
        .map(|total| (of_flow * total as f64).min(most))
        .collect()
}

/// Returns the maximum by total flows of two groups together.
fn combined(a: &[f64], b: &[f64], most: usize) -> Vec<f64> {
    if a.len() == 1 {
        return b.to_vec();
    }
    let all = (a.len() + b.len() - 2).min(most);
    let mut best = vec![f64::NEG_INFINITY; all + 1];
    for (first, one) in a.iter().enumerate().filter(|it| it.1.is_finite()) {
        for (second, other) in b.iter().enumerate().take((all + 1).saturating_sub(first)) {
            best[first + second] = best[first + second].max(one + other);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_best_split() {
        let falling = Class {
            members: 2,
            least: 1,
            rates: vec![vec![10.0], vec![6.0]],
        };
        let (weights, most) = limits(&[falling], &[1, 2, 3, 4, 5]).unwrap();
        let rates: Vec<f64> = most.iter().map(|it| (it / weights[0]).round()).collect();
        assert_eq!(rates, [10.0, 20.0, 16.0, 12.0, 0.0]);
    }

    #[test]
    fn large_classes_have_a_valid_bound() {
        let class = |members| Class {
            members,
            least: 1,
            rates: (1..=16)
                .map(|flows| vec![f64::from(flows).sqrt()])
                .collect(),
        };
        let values: Vec<f64> = class(1).rates.iter().map(|it| it[0]).collect();
        let exact = of_class(&class(9), &values, 200);
        let bound = bound_of_class(&class(9), &values, 144);
        assert!(
            exact
                .iter()
                .zip(&bound)
                .all(|(exact, bound)| *bound >= exact - 1e-9)
        );
    }
}
