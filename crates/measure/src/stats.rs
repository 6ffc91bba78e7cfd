//! Statistics of repetitions: centre, spread and confidence intervals.
//!
//! Values are plain numbers in any unit, and results are in the same unit. Callers must exclude
//! non-finite values. A NaN in the input gives a NaN in the result.

mod bootstrap;
mod bound;
mod normal;
mod order;
mod repetitions;
mod student;

pub use bootstrap::{
    Draws, Resampling, acceleration_of_mean, bca_interval, bootstrap, bootstrap_means,
    bootstrap_paired_means, percentile_interval,
};
pub use bound::{HoeffdingBound, hoeffding};
pub use normal::{normal_below, normal_quantile};
pub use order::median_interval;
pub(crate) use repetitions::{Aligned, pairs_of, weighted_differences};
pub use repetitions::{
    Difference, FEWEST_TOLD_APART, Figure, Repetitions, difference_of_means, mean_of_means,
};
pub use student::student_within;

/// A range that contains a figure with a stated confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end, not less than the lower end.
    pub high: f64,
}

impl Interval {
    /// Returns the length, which is not negative.
    pub fn width(self) -> f64 {
        self.high - self.low
    }

    /// True if the interval contains a value. The ends are included.
    pub fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Returns the arithmetic mean, or `None` for no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    match values.len() {
        0 => None,
        count => Some(values.iter().sum::<f64>() / count as f64),
    }
}

/// Returns the standard deviation of a sample, with the divisor n - 1. Returns `None` for fewer
/// than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let centre = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - centre) * (v - centre)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Returns the standard error of the mean, s/√n, as in the error bars of paper 000 (Figs. 2 to 6).
/// Returns `None` for fewer than two values.
pub fn standard_error(values: &[f64]) -> Option<f64> {
    Some(standard_deviation(values)? / (values.len() as f64).sqrt())
}

/// Returns the values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the quantile of ascending values at a probability from 0 to 1. Interpolates linearly
/// between the two order statistics next to (n - 1)p: definition 7 of Hyndman and Fan (1996), the
/// default of numpy, R and pandas. Returns `None` for no values.
pub fn quantile(ascending: &[f64], probability: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let place = probability.clamp(0.0, 1.0) * last as f64;
    let below = (place.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let share = place - below as f64;
    Some(ascending[below] + (ascending[above] - ascending[below]) * share)
}

/// Returns the median of values in any order, or `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(&sorted(values), 0.5)
}

/// 1/Φ⁻¹(3/4): the ratio of the standard deviation to the median absolute deviation in a normal
/// distribution.
const DEVIATIONS_PER_MEDIAN_DEVIATION: f64 = 1.482_602_218_505_602;

/// Returns the robust spread: the median absolute deviation, scaled so that it estimates σ of a
/// normal distribution. Even if one value in three is an outlier, it changes little. Returns `None`
/// for no values.
pub fn robust_spread(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    Some(median(&distances)? * DEVIATIONS_PER_MEDIAN_DEVIATION)
}

/// The most important figures of repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of values, at least 1.
    pub count: usize,
    /// Mean of the values.
    pub mean: f64,
    /// Standard error of the mean. `None` for a single value.
    pub standard_error: Option<f64>,
    /// Smallest value.
    pub least: f64,
    /// The 1/4 quantile, as defined by [`quantile`].
    pub lower_quartile: f64,
    /// Median.
    pub median: f64,
    /// The 3/4 quantile.
    pub upper_quartile: f64,
    /// Greatest value.
    pub greatest: f64,
    /// Spread as defined by [`robust_spread`].
    pub robust_spread: f64,
}

impl Summary {
    /// Computes the figures of values in any order. Returns `None` for no values.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let ascending = sorted(values);
        Some(Summary {
            count: values.len(),
            mean: mean(values)?,
            standard_error: standard_error(values),
            least: *ascending.first()?,
            lower_quartile: quantile(&ascending, 0.25)?,
            median: quantile(&ascending, 0.5)?,
            upper_quartile: quantile(&ascending, 0.75)?,
            greatest: *ascending.last()?,
            robust_spread: robust_spread(values)?,
        })
    }
}

/// Returns the number of further repetitions that would halve the width of an interval.
///
/// The bootstrap interval of a mean and Hoeffding's bound both shrink as 1/√n. So half the width
/// needs four times as many repetitions, three times as many in addition.
pub fn repetitions_to_halve(repetitions: usize) -> usize {
    repetitions.saturating_mul(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_values_have_no_figures() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(mean(&[]), None);
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(standard_error(&[1.0]), None);
        let one = Summary::of(&[3.25]).unwrap();
        assert_eq!((one.median, one.robust_spread), (3.25, 0.0));
    }

    #[test]
    fn an_outlier_changes_the_mean_but_not_the_median() {
        let summary = Summary::of(&[10.0, 10.1, 0.0, 9.9, 10.0]).unwrap();
        assert_eq!(summary.median, 10.0);
        assert!((summary.mean - 8.0).abs() < 1e-12);
        assert!(summary.robust_spread < 0.2);
    }

    #[test]
    fn half_the_width_needs_four_times_the_repetitions() {
        let width = |count: usize| 1.0 / (count as f64).sqrt();
        let more = repetitions_to_halve(5);
        assert!((width(5 + more) - width(5) / 2.0).abs() < 1e-12);
    }
}
