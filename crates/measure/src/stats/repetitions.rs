//! Repetitions with the rounds in which they were interleaved, and statistics of their means.

use super::{
    Interval, Resampling, acceleration_of_mean, bca_interval, bootstrap_means, mean,
    normal_quantile,
};
use crate::random::Random;

/// An estimate with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Estimate from the repetitions.
    pub estimate: f64,
    /// Confidence interval of the true value.
    pub interval: Interval,
}

impl Figure {
    /// Multiplies the figure by `factor`, which must not be negative. For a conversion of units.
    pub fn scaled(self, factor: f64) -> Figure {
        Figure {
            estimate: self.estimate * factor,
            interval: Interval {
                low: self.interval.low * factor,
                high: self.interval.high * factor,
            },
        }
    }

    /// Returns 1 minus the figure.
    pub fn complement(self) -> Figure {
        Figure {
            estimate: 1.0 - self.estimate,
            interval: Interval {
                low: 1.0 - self.interval.high,
                high: 1.0 - self.interval.low,
            },
        }
    }
}

/// The difference between two methods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Estimate of the first method minus the second.
    pub estimate: f64,
    /// Bootstrap interval of the difference.
    pub interval: Interval,
    /// True if repetitions of the same round were compared with each other.
    pub is_paired: bool,
    /// Smallest number of values on either side at any point, or of pairs if paired.
    pub repetitions: usize,
}

/// Minimum number of repetitions to distinguish two methods. With fewer, the interval is
/// unreliable. For two equal methods, the interval of their difference excludes zero always with
/// one repetition, half of the time with two, and one time in six with five.
pub const FEWEST_TOLD_APART: usize = 5;

impl Difference {
    /// True if the interval excludes zero and there are enough repetitions.
    pub fn is_told_apart(&self) -> bool {
        let Interval { low, high } = self.interval;
        self.repetitions >= FEWEST_TOLD_APART && (low > 0.0 || high < 0.0)
    }

    /// Returns the reason if the difference is not distinguished although its interval excludes
    /// zero.
    pub fn too_few(&self) -> Option<String> {
        let Interval { low, high } = self.interval;
        let count = self.repetitions;
        let runs = if count == 1 {
            "repetition"
        } else {
            "repetitions"
        };
        let is_too_few = count < FEWEST_TOLD_APART && (low > 0.0 || high < 0.0);
        is_too_few.then(|| format!("{count} {runs}, and {FEWEST_TOLD_APART} are needed"))
    }
}

/// Repeated measurements of one quantity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repetitions {
    /// Values in any unit.
    pub values: Vec<f64>,
    /// Round of an interleaved sweep for each of `values`. Empty if the runs were not interleaved.
    pub rounds: Vec<u64>,
}

impl Repetitions {
    /// Collects values and their rounds. Discards the rounds unless every value has one.
    pub fn of(values: impl IntoIterator<Item = (Option<u64>, f64)>) -> Repetitions {
        let (rounds, values): (Vec<Option<u64>>, Vec<f64>) = values.into_iter().unzip();
        Repetitions {
            values,
            rounds: rounds
                .into_iter()
                .collect::<Option<_>>()
                .unwrap_or_default(),
        }
    }

    /// Creates repetitions that were not interleaved.
    pub fn alone(values: Vec<f64>) -> Repetitions {
        Repetitions {
            values,
            rounds: Vec::new(),
        }
    }

    fn aligned(&self) -> Aligned<'_> {
        (&self.values, &self.rounds)
    }

    /// Returns the mean, or `None` for no values.
    pub fn mean(&self, resampling: &Resampling) -> Option<Figure> {
        mean_of_means(&[(1.0, &self.values)], resampling)
    }
}

/// Values and their rounds, in the same order.
pub(crate) type Aligned<'a> = (&'a [f64], &'a [u64]);

/// Returns the pairs of two methods, if each repetition has exactly one partner in the same round.
pub(crate) fn pairs_of(first: Aligned, second: Aligned) -> Option<Vec<(f64, f64)>> {
    let by_round = |(values, rounds): Aligned| {
        let rounds = rounds.iter().copied();
        let mut by_round: Vec<(u64, f64)> = rounds.zip(values.iter().copied()).collect();
        by_round.sort_by_key(|(round, _)| *round);
        by_round
    };
    let (first, second) = (by_round(first), by_round(second));
    let is_repeated = |values: &[(u64, f64)]| values.windows(2).any(|pair| pair[0].0 == pair[1].0);
    let rounds_agree = first.len() == second.len()
        && first.iter().zip(&second).all(|(a, b)| a.0 == b.0)
        && !is_repeated(&first);
    let pairs = first.iter().zip(&second).map(|(a, b)| (a.1, b.1));
    (rounds_agree && !first.is_empty()).then(|| pairs.collect())
}

/// Returns the mean of the first minus the mean of the second, in pairs if the rounds allow.
/// Returns `None` if either has no values.
pub fn difference_of_means(
    first: &Repetitions,
    second: &Repetitions,
    resampling: &Resampling,
) -> Option<Difference> {
    weighted_differences(&[(1.0, first.aligned(), second.aligned())], resampling)
}

/// Returns the weighted sum of differences of means, the first minus the second. Each term uses
/// pairs if its rounds allow. The result is paired if all terms are. Returns `None` if there are no
/// terms or a term has no values.
pub(crate) fn weighted_differences(
    terms: &[(f64, Aligned, Aligned)],
    resampling: &Resampling,
) -> Option<Difference> {
    let apart: Vec<Option<Vec<f64>>> = terms
        .iter()
        .map(|(_, first, second)| {
            let pairs = pairs_of(*first, *second)?;
            Some(pairs.into_iter().map(|(a, b)| a - b).collect())
        })
        .collect();
    let counts = terms.iter().zip(&apart).map(|((_, first, second), apart)| {
        let unpaired = first.0.len().min(second.0.len());
        apart.as_ref().map_or(unpaired, Vec::len)
    });
    let repetitions = counts.min().unwrap_or_default();
    let strata =
        terms
            .iter()
            .zip(&apart)
            .flat_map(|((weight, first, second), apart)| match apart {
                Some(apart) => vec![(*weight, apart.as_slice())],
                None => vec![(*weight, first.0), (-weight, second.0)],
            });
    let figure = mean_of_means(&strata.collect::<Vec<_>>(), resampling)?;
    Some(Difference {
        estimate: figure.estimate,
        interval: figure.interval,
        is_paired: apart.iter().all(Option::is_some),
        repetitions,
    })
}

/// Returns Σ weight · mean over independently measured groups, with its BCa interval. Returns
/// `None` if there are no groups or a group is empty.
///
/// Each group is resampled separately. If the distribution of the resamples is nearly normal, the
/// interval is computed from its cumulants instead. With many repetitions this is as accurate as a
/// thousand draws.
pub fn mean_of_means(terms: &[(f64, &[f64])], resampling: &Resampling) -> Option<Figure> {
    let mut estimate = 0.0;
    for (weight, values) in terms {
        estimate += weight * mean(values)?;
    }
    if terms.is_empty() {
        return None;
    }
    let acceleration = acceleration_of_mean(terms.iter().copied());
    if let Some(interval) = expanded(terms, estimate, acceleration, resampling.level) {
        return Some(Figure { estimate, interval });
    }
    let mut random = Random::new(resampling.seed);
    let mut sums = vec![0.0; resampling.draws];
    for (weight, values) in terms {
        let means = bootstrap_means(values, resampling.draws, &mut random);
        for (sum, mean) in sums.iter_mut().zip(means) {
            *sum += weight * mean;
        }
    }
    let interval = bca_interval(&mut sums, estimate, acceleration, resampling.level)?;
    Some(Figure { estimate, interval })
}

/// Minimum number of repetitions in each group for [`expanded`]. The means of fewer take too few
/// values.
const FEWEST_EXPANDED: usize = 30;

/// Maximum skewness, and maximum excess kurtosis, of the resampled sum for [`expanded`]. Greater
/// values would need more terms.
const MOST_EXPANDED: (f64, f64) = (0.25, 0.1);

/// Computes the BCa interval of Σ weight · mean from the cumulants of its resamples, without
/// drawing. Returns `None` if there are too few values or the distribution is too far from normal.
///
/// A resampled mean of n values has the variance m₂/n, the third cumulant m₃/n² and the fourth
/// (m₄ - 3 m₂²)/n³, where m are the central moments of the values. The cumulants of a weighted sum
/// are the sums of these, multiplied by powers of the weight. Quantiles use the expansion of
/// Cornish and Fisher (1938) as given by Hall ("The Bootstrap and Edgeworth Expansion", 1992,
/// section 2.5), at the shifted probabilities of BCa (Efron and Tibshirani, 1993, equation 14.10).
/// The bias correction, which depends on the share of resamples below the estimate, is skewness/6
/// by the first term of Edgeworth's expansion.
fn expanded(
    terms: &[(f64, &[f64])],
    estimate: f64,
    acceleration: f64,
    level: f64,
) -> Option<Interval> {
    let (mut variance, mut third, mut fourth) = (0.0, 0.0, 0.0);
    for (weight, values) in terms {
        if values.len() < FEWEST_EXPANDED {
            return None;
        }
        let (count, centre) = (values.len() as f64, mean(values)?);
        let (mut second_moment, mut third_moment, mut fourth_moment) = (0.0, 0.0, 0.0);
        for value in *values {
            let distance = value - centre;
            let square = distance * distance;
            second_moment += square / count;
            third_moment += square * distance / count;
            fourth_moment += square * square / count;
        }
        variance += weight.powi(2) * second_moment / count;
        third += weight.powi(3) * third_moment / count.powi(2);
        let excess = fourth_moment - 3.0 * second_moment.powi(2);
        fourth += weight.powi(4) * excess / count.powi(3);
    }
    if variance == 0.0 {
        return Some(Interval {
            low: estimate,
            high: estimate,
        });
    }
    let (skewness, excess) = (third / variance.powf(1.5), fourth / variance.powi(2));
    let near_normal = skewness.abs() <= MOST_EXPANDED.0 && excess.abs() <= MOST_EXPANDED.1;
    // The smallest numbers give NaN here, which is not near normal.
    if !near_normal {
        return None;
    }
    let bias = skewness / 6.0;
    let end = |tail: f64| {
        let shifted = bias + normal_quantile(tail);
        let z = bias + shifted / (1.0 - acceleration * shifted);
        let skewed = (z * z - 1.0) * skewness / 6.0;
        let peaked = (z * z * z - 3.0 * z) * excess / 24.0;
        let both = (2.0 * z * z * z - 5.0 * z) * skewness * skewness / 36.0;
        estimate + variance.sqrt() * (z + skewed + peaked - both)
    };
    Some(Interval {
        low: end((1.0 - level) / 2.0),
        high: end(f64::midpoint(1.0, level)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns values with a long tail: powers of evenly spaced numbers.
    fn tailed(count: usize, power: i32) -> Vec<f64> {
        (0..count)
            .map(|step| (step as f64 / count as f64).powi(power))
            .collect()
    }

    fn many() -> Resampling {
        Resampling {
            draws: 200_000,
            ..Resampling::default()
        }
    }

    /// Returns the interval computed by resampling.
    fn drawn(terms: &[(f64, &[f64])]) -> Interval {
        let mut random = Random::new(3);
        let mut sums = vec![0.0; many().draws];
        let mut estimate = 0.0;
        for (weight, values) in terms {
            estimate += weight * mean(values).unwrap();
            let means = bootstrap_means(values, sums.len(), &mut random);
            sums.iter_mut()
                .zip(means)
                .for_each(|(sum, mean)| *sum += weight * mean);
        }
        let acceleration = acceleration_of_mean(terms.iter().copied());
        bca_interval(&mut sums, estimate, acceleration, 0.95).unwrap()
    }

    #[test]
    fn computed_intervals_equal_resampled_ones() {
        let (few, square, fourth) = (tailed(30, 2), tailed(120, 2), tailed(200, 6));
        let cases: [&[(f64, &[f64])]; 4] = [
            &[(1.0, &few)],
            &[(1.0, &square)],
            &[(2.0, &fourth)],
            &[(1.0, &fourth), (-0.5, &square)],
        ];
        for terms in cases {
            let estimate = terms.iter().map(|(w, v)| w * mean(v).unwrap()).sum();
            let acceleration = acceleration_of_mean(terms.iter().copied());
            let computed = expanded(terms, estimate, acceleration, 0.95).unwrap();
            let drawn = drawn(terms);
            // With 200,000 draws, the probability at an end has an error of 0.00035, which is 0.006
            // standard deviations there. The error of the bias moves both ends by 0.003. The
            // tolerance is 0.03 standard deviations.
            let near = 0.015 * drawn.width() / 2.0;
            assert!(
                (computed.low - drawn.low).abs() < near,
                "{computed:?} {drawn:?}"
            );
            assert!(
                (computed.high - drawn.high).abs() < near,
                "{computed:?} {drawn:?}"
            );
            // The interval must differ from that of the normal distribution.
            let lean = (computed.high + computed.low) / 2.0 - estimate;
            assert!(lean.abs() > 1.5 * near, "{lean} {near}");
        }
    }

    #[test]
    fn distributions_far_from_normal_are_resampled() {
        let mut lone = vec![0.0; 150];
        lone[0] = 1.0;
        let of = |values: &[f64]| expanded(&[(1.0, values)], mean(values).unwrap(), 0.0, 0.95);
        assert_eq!(of(&lone), None);
        assert_eq!(of(&tailed(29, 1)), None);
        assert!(of(&tailed(30, 1)).is_some());
        let figure = Repetitions::alone(lone)
            .mean(&Resampling::default())
            .unwrap();
        assert!(figure.interval.low >= 0.0, "{figure:?}");
    }

    #[test]
    fn rounds_are_paired_only_if_each_has_a_partner() {
        let of = |rounds: &[u64], values: &[f64]| {
            Repetitions::of(rounds.iter().map(|r| Some(*r)).zip(values.iter().copied()))
        };
        let first = of(&[2, 1, 3, 4, 5], &[20.0, 10.0, 30.0, 40.0, 50.0]);
        let second = of(&[1, 2, 3, 4, 5], &[9.0, 19.5, 28.5, 39.0, 49.0]);
        let resampling = Resampling::default();
        let difference = difference_of_means(&first, &second, &resampling).unwrap();
        assert!(
            difference.is_paired && difference.is_told_apart(),
            "{difference:?}"
        );
        assert!((difference.estimate - 1.0).abs() < 1e-12);
        for other in [
            of(&[1, 2, 3, 4, 6], &second.values),
            of(&[1, 2, 3, 4, 4], &second.values),
            of(&[1, 2], &second.values),
            Repetitions::alone(second.values.clone()),
            Repetitions::of([(Some(1), 9.0), (None, 19.5), (Some(3), 28.5)]),
        ] {
            let difference = difference_of_means(&first, &other, &resampling).unwrap();
            assert!(
                !difference.is_paired && !difference.is_told_apart(),
                "{other:?}"
            );
        }
        assert_eq!(
            difference_of_means(&first, &Repetitions::default(), &resampling),
            None
        );
        assert_eq!(mean_of_means(&[], &resampling), None);
    }

    #[test]
    fn few_repetitions_distinguish_no_methods() {
        let of = |count: u64, value: f64| {
            Repetitions::of((0..count).map(|round| (Some(round), value + round as f64)))
        };
        let told = |count| {
            let resampling = Resampling::default();
            let difference = difference_of_means(&of(count, 9.0), &of(count, 8.0), &resampling);
            let difference = difference.unwrap();
            assert_eq!(difference.repetitions as u64, count);
            difference.is_told_apart()
        };
        assert_eq!([1, 2, 4, 5].map(told), [false, false, false, true]);
    }

    #[test]
    fn tiny_values_have_an_interval() {
        let values: Vec<f64> = (0..40).map(|at| f64::from(1 + at % 2) * 1e-120).collect();
        let figure = Repetitions::alone(values).mean(&Resampling::default());
        let Interval { low, high } = figure.unwrap().interval;
        assert!(low <= 1.5e-120 && 1.5e-120 <= high, "{low} {high}");
    }

    #[test]
    fn equal_values_have_an_interval_of_zero_width() {
        let resampling = Resampling::default();
        for values in [vec![3.0], vec![2.0; 4], vec![2.0; 200]] {
            let figure = Repetitions::alone(values.clone())
                .mean(&resampling)
                .unwrap();
            assert_eq!((figure.estimate, figure.interval.width()), (values[0], 0.0));
        }
    }
}
