//! A confidence bound that is valid for any distribution.

/// A bound on the error of a weighted sum of means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoeffdingBound {
    /// Maximum distance of the true value from the estimate, at the given confidence.
    pub half_width: f64,
    /// Length of the range of possible sums, Σ|w|.
    pub reachable: f64,
}

impl HoeffdingBound {
    /// True if the bound has no information: the interval covers the whole range of possible sums.
    pub fn is_vacuous(self) -> bool {
        2.0 * self.half_width >= self.reachable
    }
}

/// Returns Hoeffding's bound for Σ w·mean of independent repetitions in [0, 1]. Each term is a
/// weight and the number of repetitions of its mean.
///
/// P(|estimate − truth| ≥ ε) ≤ 2 exp(−2ε² / Σ w²/n) (Hoeffding 1963, theorem 2, with the range w/n
/// for each repetition). It makes no assumption about the distribution, so it is many times wider
/// than a bootstrap interval. `confidence` is between 0 and 1. A nonzero weight without repetitions
/// makes the bound infinite.
pub fn hoeffding(terms: &[(f64, usize)], confidence: f64) -> HoeffdingBound {
    let squares: f64 = terms
        .iter()
        .filter(|(weight, _)| *weight != 0.0)
        .map(|(weight, count)| weight * weight / *count as f64)
        .sum();
    HoeffdingBound {
        half_width: (squares * (2.0 / (1.0 - confidence)).ln() / 2.0).sqrt(),
        reachable: terms.iter().map(|(weight, _)| weight.abs()).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn one_mean_has_the_textbook_bound() {
        // sqrt(ln(2/0.05) / (2 · 100)) = 0.1358...
        let bound = hoeffding(&[(1.0, 100)], 0.95);
        assert!((bound.half_width - (40_f64.ln() / 200.0).sqrt()).abs() < 1e-12);
        assert!(!bound.is_vacuous());
        assert!(hoeffding(&[(1.0, 1)], 0.95).is_vacuous());
        assert!(hoeffding(&[(1.0, 0)], 0.95).is_vacuous());
    }

    #[test]
    fn the_bound_holds_for_the_widest_distribution() {
        // Values are 0 or 1, and the weights are 1 and -0.5. More than 95 % of the sums must be
        // within the bound.
        let bound = hoeffding(&[(1.0, 20), (-0.5, 20)], 0.95);
        let mut random = Random::new(3);
        let mut coin = || (0..20).map(|_| random.below(2) as f64).sum::<f64>() / 20.0;
        let outside = (0..10_000)
            .filter(|_| (coin() - 0.5 * coin() - 0.25).abs() > bound.half_width)
            .count();
        assert!(outside < 500, "{outside}");
        assert!(outside > 0, "so wide a bound would prove nothing here");
    }
}
