//! What repetitions say: centre, spread, and how sure that is.
//!
//! Values are plain numbers in whatever unit the caller has; a result is in the
//! same unit. Callers keep out what is not finite: a NaN in gives a NaN out.

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

/// A range in which a figure lies with a stated confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end, not below the lower.
    pub high: f64,
}

impl Interval {
    /// Its length, not negative.
    pub fn width(self) -> f64 {
        self.high - self.low
    }

    /// Whether a value lies in it, ends included.
    pub fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    match values.len() {
        0 => None,
        count => Some(values.iter().sum::<f64>() / count as f64),
    }
}

/// The standard deviation of a sample (divided by n - 1); `None` of fewer than
/// two.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let centre = mean(values)?;
    let squares: f64 = values.iter().map(|v| (v - centre) * (v - centre)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The standard error of the mean, as in the error bars of paper 000 (Figs. 2 to 6): s/√n; `None`
/// for fewer than two.
pub fn standard_error(values: &[f64]) -> Option<f64> {
    Some(standard_deviation(values)? / (values.len() as f64).sqrt())
}

/// Values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The quantile of ascending values at a probability of 0 to 1, linear between
/// the two order statistics beside (n - 1)p: definition 7 of Hyndman and Fan
/// (1996), the default of numpy, R and pandas. `None` of nothing.
pub fn quantile(ascending: &[f64], probability: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let place = probability.clamp(0.0, 1.0) * last as f64;
    let below = (place.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let share = place - below as f64;
    Some(ascending[below] + (ascending[above] - ascending[below]) * share)
}

/// The median of values in any order; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(&sorted(values), 0.5)
}

/// 1/Φ⁻¹(3/4): with it the median absolute deviation of normally distributed
/// values estimates their standard deviation.
const DEVIATIONS_PER_MEDIAN_DEVIATION: f64 = 1.482_602_218_505_602;

/// The robust spread: the median of the distances from the median, scaled so
/// that it estimates σ of a normal distribution. One run in three may be far off
/// without moving it much. `None` of nothing.
pub fn robust_spread(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    Some(median(&distances)? * DEVIATIONS_PER_MEDIAN_DEVIATION)
}

/// Repetitions in a few figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many values, at least 1.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// The mean's standard error; none of a single value.
    pub standard_error: Option<f64>,
    /// The least value.
    pub least: f64,
    /// The quantile at 1/4, as [`quantile`] defines it.
    pub lower_quartile: f64,
    /// The middle.
    pub median: f64,
    /// The quantile at 3/4.
    pub upper_quartile: f64,
    /// The greatest value.
    pub greatest: f64,
    /// As [`robust_spread`] defines it.
    pub robust_spread: f64,
}

impl Summary {
    /// Of values in any order; `None` of nothing.
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

/// Repetitions that would halve an interval's width, beside those there are.
///
/// A bootstrap interval of a mean and Hoeffding's bound both shrink as 1/√n, so
/// half the width wants four times as many, three times as many more.
pub fn repetitions_to_halve(repetitions: usize) -> usize {
    repetitions.saturating_mul(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_figures() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(mean(&[]), None);
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(standard_error(&[1.0]), None);
        let one = Summary::of(&[3.25]).unwrap();
        assert_eq!((one.median, one.robust_spread), (3.25, 0.0));
    }

    #[test]
    fn one_run_far_off_moves_the_mean_and_not_the_median() {
        let summary = Summary::of(&[10.0, 10.1, 0.0, 9.9, 10.0]).unwrap();
        assert_eq!(summary.median, 10.0);
        assert!((summary.mean - 8.0).abs() < 1e-12);
        assert!(summary.robust_spread < 0.2);
    }

    #[test]
    fn half_the_width_wants_four_times_the_repetitions() {
        let width = |count: usize| 1.0 / (count as f64).sqrt();
        let more = repetitions_to_halve(5);
        assert!((width(5 + more) - width(5) / 2.0).abs() < 1e-12);
    }
}
