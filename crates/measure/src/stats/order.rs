//! Computes the exact bootstrap interval of a median, without drawing resamples.
//!
//! The distribution of a resample's median has a closed form (Efron, "Bootstrap methods: another
//! look at the jackknife", 1979, section 3; Maritz and Jarrett, "A note on estimating the variance
//! of the sample median", 1978). A resample draws n of n ascending values with replacement. The
//! k-th smallest drawn value is among the first j values exactly if at least k draws are. The
//! number of such draws is binomial with the probability j/n. So the interval has no random error,
//! and for a hundred thousand repetitions it costs little more than sorting.
//!
//! For few repetitions the interval is their whole range. For example, each extreme of five values
//! is the median of a resample with a probability of 0.058.

use super::Interval;

/// Smaller probabilities are ignored. They do not affect a comparison with the tail of a confidence
/// level.
const NEGLIGIBLE: f64 = 1e-18;

/// Returns the interval between the quantiles at (1 ∓ level)/2 of the medians of all resamples of
/// `ascending`. A quantile is the smallest median such that at least this share of the medians is
/// not greater. Returns `None` for no values.
pub fn median_interval(ascending: &[f64], level: f64) -> Option<Interval> {
    let (least, greatest) = (*ascending.first()?, *ascending.last()?);
    if least == greatest {
        return Some(Interval {
            low: least,
            high: greatest,
        });
    }
    let medians = DrawnMedians::of(ascending);
    Some(Interval {
        low: medians.quantile((1.0 - level) / 2.0),
        high: medians.quantile(f64::midpoint(1.0, level)),
    })
}

/// The distribution of the median of a resample.
struct DrawnMedians<'a> {
    ascending: &'a [f64],
    /// m: the lower of the two middle values is the m-th smallest. For an odd number of values, it
    /// is the median.
    middle: usize,
    /// ln C(n, m).
    ln_choices: f64,
}

impl<'a> DrawnMedians<'a> {
    fn of(ascending: &'a [f64]) -> DrawnMedians<'a> {
        let middle = ascending.len().div_ceil(2);
        DrawnMedians {
            ascending,
            middle,
            ln_choices: ln_choose(ascending.len(), middle),
        }
    }

    /// Returns the smallest median such that at least this share of the medians is not greater.
    fn quantile(&self, share: f64) -> f64 {
        let (mut below, mut up_to) = (f64::NEG_INFINITY, self.greatest());
        // Bisects until the two bounds are adjacent floats, so the result is exactly the median.
        loop {
            let between = if below.is_finite() {
                f64::midpoint(below, up_to)
            } else {
                self.ascending[0]
            };
            if below.is_finite() && (between <= below || between >= up_to) {
                return up_to;
            }
            if self.share_up_to(between) < share {
                below = between;
            } else if below.is_finite() {
                up_to = between;
            } else {
                return between;
            }
        }
    }

    fn greatest(&self) -> f64 {
        self.ascending.last().copied().unwrap_or_default()
    }

    /// Returns the share of resamples whose median is at most `value`.
    fn share_up_to(&self, value: f64) -> f64 {
        let count = self.ascending.len();
        let ranks = self.ascending.partition_point(|v| *v <= value);
        let lower = at_least(count, self.middle, ranks as f64 / count as f64);
        if count % 2 == 1 {
            return lower;
        }
        // Subtract the resamples whose lower middle value is small enough but whose upper middle
        // value is too great. Their lower middle value has rank i and their upper one is beyond
        // rank j: m values are drawn from the first i, including i, and the others from beyond j.
        // As i decreases, j increases and the probability falls fast, because the two values are
        // adjacent in nearly all resamples.
        let (mut beyond, mut upper) = (0.0, ranks);
        for rank in (1..=ranks).rev() {
            let own = self.ascending[rank - 1];
            while upper < count && f64::midpoint(own, self.ascending[upper]) <= value {
                upper += 1;
            }
            let within = self.split_at(rank, upper);
            if within < NEGLIGIBLE {
                break;
            }
            beyond += within - self.split_at(rank - 1, upper);
        }
        lower - beyond
    }

    /// Returns the probability that m values are drawn from the first `rank` and all others from
    /// beyond `upper`.
    fn split_at(&self, rank: usize, upper: usize) -> f64 {
        let count = self.ascending.len() as f64;
        let (first, last) = (rank as f64 / count, 1.0 - upper as f64 / count);
        (self.ln_choices + self.middle as f64 * (first * last).ln()).exp()
    }
}

/// Returns the probability of at least `least` successes in `count` independent trials.
fn at_least(count: usize, least: usize, probability: f64) -> f64 {
    if least == 0 || probability >= 1.0 {
        return 1.0;
    }
    if probability <= 0.0 {
        return 0.0;
    }
    let odds = probability / (1.0 - probability);
    let exactly = |successes: usize| {
        let (hits, misses) = (successes as f64, (count - successes) as f64);
        (ln_choose(count, successes) + hits * probability.ln() + misses * (-probability).ln_1p())
            .exp()
    };
    // Sums the tail away from the middle, so that the terms decrease.
    if least as f64 > count as f64 * probability {
        let mut term = exactly(least);
        let mut sum = term;
        for successes in least..count {
            term *= (count - successes) as f64 / (successes + 1) as f64 * odds;
            sum += term;
            if term < sum * f64::EPSILON {
                break;
            }
        }
        return sum.min(1.0);
    }
    let mut term = exactly(least - 1);
    let mut sum = term;
    for successes in (1..least).rev() {
        term *= successes as f64 / (count - successes + 1) as f64 / odds;
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    (1.0 - sum).max(0.0)
}

/// Returns ln of the binomial coefficient.
fn ln_choose(count: usize, chosen: usize) -> f64 {
    ln_factorial(count) - ln_factorial(chosen) - ln_factorial(count - chosen)
}

/// Returns ln n!. Uses the product for n < 32, else Stirling's series (Abramowitz and Stegun, 1964,
/// equation 6.1.41 for Γ(n + 1)). For n ≥ 32 its first omitted term is below 1e-15.
fn ln_factorial(n: usize) -> f64 {
    if n < 32 {
        return (2..=n).map(|factor| factor as f64).product::<f64>().ln();
    }
    let x = n as f64;
    let series = (1.0 / 12.0
        - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / 1680.0 / (x * x)) / (x * x)) / (x * x))
        / x;
    (x + 0.5) * x.ln() - x + std::f64::consts::TAU.ln() / 2.0 + series
}

#[cfg(test)]
mod tests {
    use super::super::{median, sorted};
    use super::*;

    /// Returns the medians of all n^n resamples in ascending order.
    fn enumerated(values: &[f64]) -> Vec<f64> {
        let count = values.len();
        let all = count.pow(count as u32);
        let medians = (0..all).map(|mut number| {
            let drawn: Vec<f64> = (0..count)
                .map(|_| {
                    let value = values[number % count];
                    number /= count;
                    value
                })
                .collect();
            median(&drawn).unwrap()
        });
        sorted(&medians.collect::<Vec<f64>>())
    }

    #[test]
    fn the_interval_equals_that_of_all_resamples() {
        let samples: [&[f64]; 8] = [
            &[3.25],
            &[1.0, 2.0],
            &[0.912, 0.874, 0.655],
            &[4.0, 1.0, 2.0, 8.0],
            &[0.0, 0.0, 0.0, 7.0],
            &[0.912, 0.874, 0.903, 0.655, 0.921],
            &[5.0, 5.0, 1.0, 2.0, 9.0, 4.5],
            &[12.0, 0.0, 3.0, 3.0, 700.0, 41.0, 2.0],
        ];
        for values in samples {
            let medians = enumerated(values);
            for level in [0.5, 0.8, 0.9, 0.95, 0.99] {
                let found = median_interval(&sorted(values), level).unwrap();
                // Returns the smallest median such that this share of the medians is not greater.
                let place = |share: f64| {
                    let wanted = (share * medians.len() as f64).ceil() as usize;
                    medians[wanted.max(1) - 1]
                };
                let (low, high) = (place((1.0 - level) / 2.0), place(f64::midpoint(1.0, level)));
                assert_eq!((found.low, found.high), (low, high), "{values:?} {level}");
            }
        }
        assert_eq!(median_interval(&[], 0.95), None);
    }

    #[test]
    fn binomial_tails_equal_known_values() {
        // Computed by hand: the probability of 3 or more of 5 at 1/5 is (10·16 + 5·4 + 1)/3125.
        assert!((at_least(5, 3, 0.2) - 181.0 / 3125.0).abs() < 1e-15);
        assert!((at_least(5, 3, 0.8) - (1.0 - 181.0 / 3125.0)).abs() < 1e-15);
        assert_eq!(
            (
                at_least(9, 0, 0.3),
                at_least(9, 4, 0.0),
                at_least(9, 4, 1.0)
            ),
            (1.0, 0.0, 1.0)
        );
        // For many trials, the probability at the middle is a half plus half of the middle term.
        let half = ln_choose(10_000, 5_000) - 10_000.0 * 2_f64.ln();
        let expected = 0.5 + half.exp() / 2.0;
        assert!((at_least(10_000, 5_000, 0.5) - expected).abs() < 1e-11);
        // The digits of 40! are 815915283247897734345611269596115894272000000000.
        assert!((ln_factorial(40) - 8.159_152_832_478_977e47_f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn for_many_values_it_is_the_distribution_free_interval() {
        // The values are 1 to n. As in the sign test, the ends are the k-th smallest and the k-th
        // greatest with k about n/2 - 1.96 √n/2.
        for count in [1_000, 1_001, 40_000] {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let found = median_interval(&values, 0.95).unwrap();
            let half = 1.96 * f64::from(count).sqrt() / 2.0;
            let centre = f64::from(count + 1) / 2.0;
            assert!((found.low - (centre - half)).abs() <= 1.0, "{found:?}");
            assert!((found.high - (centre + half)).abs() <= 1.0, "{found:?}");
        }
    }
}
