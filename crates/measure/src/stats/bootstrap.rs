//! Confidence intervals by resampling (Efron and Tibshirani, "An Introduction to the Bootstrap",
//! 1993).
//!
//! These intervals assume independent and identically distributed repetitions. With few repetitions
//! they are too narrow: a 95 % interval of five repetitions contains the true value only about four
//! times in five. [`crate::doubt`] warns about few repetitions.

use super::{Interval, mean, normal_below, normal_quantile};
use crate::random::Random;

/// The settings of resampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resampling {
    /// Number of resamples, at least 1. With 1,000 resamples, the error of an end of a 95 %
    /// interval is about a tenth of the interval's half width.
    pub draws: usize,
    /// Seed of the random numbers. The same seed gives the same interval.
    pub seed: u64,
    /// Confidence level, between 0 and 1.
    pub level: f64,
}

impl Default for Resampling {
    /// 1,000 resamples and a level of 95 %.
    fn default() -> Resampling {
        Resampling {
            draws: 1_000,
            seed: 1,
            level: 0.95,
        }
    }
}

/// The values of a statistic for each resample, in the order of drawing. Statistics of the same
/// resamples have the same order.
pub type Draws = Vec<f64>;

/// Computes a statistic of resamples of `values`. Returns an empty list for no values. The order of
/// values within a resample has no meaning.
pub fn bootstrap(
    values: &[f64],
    draws: usize,
    random: &mut Random,
    mut statistic: impl FnMut(&mut [f64]) -> f64,
) -> Draws {
    if values.is_empty() {
        return Draws::new();
    }
    let mut resample = vec![0.0; values.len()];
    (0..draws)
        .map(|_| {
            for place in &mut resample {
                *place = values[random.below(values.len())];
            }
            statistic(&mut resample)
        })
        .collect()
}

/// Computes the means of resamples. Equivalent to [`bootstrap`] with the mean, but does not store
/// the resamples.
pub fn bootstrap_means(values: &[f64], draws: usize, random: &mut Random) -> Draws {
    if values.is_empty() {
        return Draws::new();
    }
    let scale = 1.0 / values.len() as f64;
    (0..draws)
        .map(|_| {
            let sum: f64 = (0..values.len())
                .map(|_| values[random.below(values.len())])
                .sum();
            sum * scale
        })
        .collect()
}

/// Computes the means of both elements of resampled pairs. Effects of a round of an interleaved
/// sweep on both methods stay paired.
pub fn bootstrap_paired_means(
    pairs: &[(f64, f64)],
    draws: usize,
    random: &mut Random,
) -> (Draws, Draws) {
    if pairs.is_empty() {
        return (Draws::new(), Draws::new());
    }
    let scale = 1.0 / pairs.len() as f64;
    (0..draws)
        .map(|_| {
            let (mut first, mut second) = (0.0, 0.0);
            for _ in 0..pairs.len() {
                let pair = pairs[random.below(pairs.len())];
                first += pair.0;
                second += pair.1;
            }
            (first * scale, second * scale)
        })
        .unzip()
}

/// Returns the percentile interval: the quantiles of the draws at (1 ∓ level)/2 (Efron and
/// Tibshirani, equation 13.5, with [`super::quantile`] for the order statistics). Returns `None`
/// without draws. Reorders the draws.
pub fn percentile_interval(draws: &mut [f64], level: f64) -> Option<Interval> {
    Some(Interval {
        low: selected_quantile(draws, (1.0 - level) / 2.0)?,
        high: selected_quantile(draws, f64::midpoint(1.0, level))?,
    })
}

/// Computes [`super::quantile`] of values in any order and reorders them. Selects two order
/// statistics instead of sorting.
fn selected_quantile(values: &mut [f64], probability: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let place = probability.clamp(0.0, 1.0) * last as f64;
    let below = (place.floor() as usize).min(last);
    let (_, low, greater) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let next = greater.iter().copied().min_by(f64::total_cmp);
    Some(low + (next.unwrap_or(low) - low) * (place - below as f64))
}

/// Returns the BCa interval (bias-corrected and accelerated; Efron and Tibshirani, equations 14.9
/// to 14.15) of an estimate from the sample itself. If the estimate is outside all draws, returns
/// the percentile interval. Returns `None` without draws. Reorders the draws.
pub fn bca_interval(
    draws: &mut [f64],
    estimate: f64,
    acceleration: f64,
    level: f64,
) -> Option<Interval> {
    let below = draws.iter().filter(|draw| **draw < estimate).count();
    let not_above = draws.iter().filter(|draw| **draw <= estimate).count();
    // Counts half of the ties as below, like scipy.
    let share = (below + not_above) as f64 / 2.0 / draws.len().max(1) as f64;
    let bias = normal_quantile(share);
    if !bias.is_finite() {
        return percentile_interval(draws, level);
    }
    let shifted_probability = |tail: f64| {
        let shifted = bias + normal_quantile(tail);
        normal_below(bias + shifted / (1.0 - acceleration * shifted))
    };
    Some(Interval {
        low: selected_quantile(draws, shifted_probability((1.0 - level) / 2.0))?,
        high: selected_quantile(draws, shifted_probability(f64::midpoint(1.0, level)))?,
    })
}

/// Returns the acceleration of a weighted sum of means. Each term is a weight and its values.
///
/// Omitting one value moves a mean by the value's distance from the mean divided by n - 1. So the
/// jackknife of equation 14.15 becomes Σ d³ / (6 (Σ d²)^{3/2}) with d = w (value − mean)/(n − 1).
/// For one mean this is exactly that equation. For several strata it is the sum over all of them
/// (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 5.3.2). Zero if
/// the values do not vary.
pub fn acceleration_of_mean<'a>(terms: impl IntoIterator<Item = (f64, &'a [f64])>) -> f64 {
    let (mut squares, mut cubes) = (0.0, 0.0);
    for (weight, values) in terms {
        let Some(centre) = mean(values) else {
            continue;
        };
        let scale = weight / (values.len().max(2) - 1) as f64;
        for value in values {
            let influence = (value - centre) * scale;
            squares += influence * influence;
            cubes += influence * influence * influence;
        }
    }
    let acceleration = cubes / (6.0 * squares.powf(1.5));
    // The quotient is not finite if the values do not vary or the variation is too small.
    if acceleration.is_finite() {
        acceleration
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::{quantile, sorted};
    use super::*;

    #[test]
    fn selected_quantiles_equal_those_of_sorted_values() {
        let mut random = Random::new(9);
        for count in [1, 2, 3, 10, 1_000] {
            let mut values: Vec<f64> = (0..count).map(|_| random.below(50) as f64).collect();
            let ascending = sorted(&values);
            for probability in [0.0, 0.025, 0.31, 0.5, 0.975, 1.0] {
                let found = selected_quantile(&mut values, probability);
                assert_eq!(
                    found,
                    quantile(&ascending, probability),
                    "{count} {probability}"
                );
            }
        }
        assert_eq!(selected_quantile(&mut [], 0.5), None);
    }
}
