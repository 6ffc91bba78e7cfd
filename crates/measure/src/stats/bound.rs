//! A bound that holds whatever the distribution is.

/// How far a weighted sum of means may lie from the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoeffdingBound {
    /// The truth lies within this of the estimate, at least with the confidence
    /// that was asked for.
    pub half_width: f64,
    /// The length of the range that the sum can have at all, Σ|w|.
    pub reachable: f64,
}

impl HoeffdingBound {
    /// Whether the bound says nothing: an interval of its width covers all that
    /// the sum could be without any measurement.
    pub fn is_vacuous(self) -> bool {
        2.0 * self.half_width >= self.reachable
    }
}

/// Hoeffding's bound for Σ w·mean, over independent repetitions that lie in
/// [0, 1]: each term is a weight and how many repetitions its mean has.
///
/// P(|estimate − truth| ≥ ε) ≤ 2 exp(−2ε² / Σ w²/n) (Hoeffding 1963, theorem
/// 2, with each repetition's range w/n). It needs nothing of the distribution,
/// and that is its price: it is many times wider than a bootstrap interval.
/// `confidence` is between 0 and 1. A weight without repetitions makes it
/// infinite.
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
    fn one_mean_is_the_textbook_case() {
        // sqrt(ln(2/0.05) / (2 · 100)) = 0.1358...
        let bound = hoeffding(&[(1.0, 100)], 0.95);
        assert!((bound.half_width - (40_f64.ln() / 200.0).sqrt()).abs() < 1e-12);
        assert!(!bound.is_vacuous());
        assert!(hoeffding(&[(1.0, 1)], 0.95).is_vacuous());
        assert!(hoeffding(&[(1.0, 0)], 0.95).is_vacuous());
    }

    #[test]
    fn holds_for_the_widest_distribution_there_is() {
        // Coins of 0 and 1 with weights 1 and -0.5: more than 95 of 100 lie within.
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
