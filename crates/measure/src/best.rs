//! Finds the best configurations of a sweep, as papers 000 and 003 do: the fastest after the top
//! few were measured again, those that are equally good, and the cheapest of these.
//!
//! The fastest of many configurations is partly the luckiest: with more configurations, its
//! measured rate overestimates its true rate by more. So the top few are measured again, and only
//! the new measurements decide.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_units::BitRate;

use crate::stats::{Difference, Figure, Repetitions, Resampling, difference_of_means, mean};

/// Default number of configurations that are measured again.
pub const MEASURED_AGAIN: usize = 3;

/// Minimum number of configurations for a search. With fewer, all would be measured again.
pub const FEWEST_COMPARED: usize = MEASURED_AGAIN + 1;

/// Properties of the path that a sweep records as knobs (docs/sweep.md). A user cannot choose them
/// to make a transfer faster.
pub const PATH_KNOBS: [&str; 15] = [
    "cross",
    "loss-model",
    "delay-back",
    "rate-back",
    "loss-back",
    "queue",
    "jitter",
    "reorder",
    "duplicate",
    "corrupt",
    "corrupt-unseen",
    "mtu",
    "cut",
    "change",
    "nat",
];

/// Conditions that are given to a configuration. Only configurations with the same conditions are
/// compared. A sweep uses this to select configurations to measure again, and the analysis to find
/// the best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Given {
    rtt: Duration,
    // Rates and losses are not negative, so their bits have the same order as their values.
    capacity: u64,
    loss: u64,
    /// Names of the data and the path, and the values of [`PATH_KNOBS`] that are set.
    named: BTreeMap<&'static str, String>,
}

impl Given {
    /// Creates the conditions from a path's round-trip time, capacity and random loss (0 to 1).
    /// `named` returns the values of `dataset`, `path` and each of [`PATH_KNOBS`].
    pub fn new(
        rtt: Duration,
        capacity: BitRate,
        loss: f64,
        named: impl Fn(&str) -> Option<String>,
    ) -> Given {
        let names = ["dataset", "path"].into_iter().chain(PATH_KNOBS);
        Given {
            rtt,
            capacity: capacity.bits_per_second().to_bits(),
            // Adding 0.0 turns a negative zero into a positive zero.
            loss: (loss + 0.0).to_bits(),
            named: names
                .filter_map(|name| Some((name, named(name)?)))
                .collect(),
        }
    }

    /// Returns the round-trip time.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Returns the other conditions except the capacity, by name. Omits those that are not set.
    pub fn others(&self) -> Vec<(&'static str, String)> {
        let loss = match f64::from_bits(self.loss) {
            0.0 => None,
            loss => Some(("loss", format!("{loss:e}"))),
        };
        let named = self
            .named
            .iter()
            .map(|(name, value)| (*name, value.clone()));
        named.chain(loss).collect()
    }
}

/// A configuration of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Throughputs measured in the sweep, in any unit.
    pub swept: Repetitions,
    /// Throughputs of the repeated measurements.
    pub again: Repetitions,
    /// True if a repeated measurement failed.
    pub failed_again: bool,
    /// Cost in any unit: streams, CPU seconds per 10^9 bytes, storage nodes.
    pub cost: f64,
}

impl Candidate {
    /// True if every repeated measurement failed. The candidate is then excluded.
    fn is_out(&self) -> bool {
        self.failed_again && self.again.values.is_empty()
    }

    /// Returns the throughputs to compare: those measured again if there are any, else those of the
    /// sweep.
    fn deciding(&self) -> &Repetitions {
        if self.again.values.is_empty() {
            &self.swept
        } else {
            &self.again
        }
    }
}

/// Returns the indices of the `count` candidates with the highest means in the sweep, fastest
/// first.
pub fn to_measure_again(candidates: &[Candidate], count: usize) -> Vec<usize> {
    let mut ranked: Vec<(usize, f64)> = candidates
        .iter()
        .enumerate()
        .filter_map(|(place, candidate)| Some((place, mean(&candidate.swept.values)?)))
        .collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked
        .into_iter()
        .take(count)
        .map(|(place, _)| place)
        .collect()
}

/// The result of a search for the best. Places are indices of the candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The candidate with the highest mean among those measured again.
    pub fastest: usize,
    /// The candidates that are as good as the fastest, which comes first. A candidate is as good if
    /// the interval of the fastest's lead reaches zero or below. With too few repetitions to
    /// distinguish them, a candidate is also as good unless each run of the fastest is faster than
    /// each of its runs.
    pub as_good: Vec<usize>,
    /// The cheapest of `as_good`. Of equal costs, the faster one.
    pub cheapest: usize,
    /// Mean of the repeated measurements of the fastest.
    pub rate: Figure,
    /// Mean of the fastest in the sweep minus its mean when measured again: the overestimate of the
    /// sweep.
    pub luck: Difference,
    /// Lead of the fastest over each other candidate, by place.
    pub ahead: Vec<(usize, Difference)>,
}

/// Finds the best of the candidates of a sweep.
///
/// A candidate that was not measured again is compared by its results in the sweep. It can be as
/// good as the fastest, but not the fastest.
///
/// # Errors
///
/// The places among the fastest `count` of the sweep that must be measured again first.
pub fn best(
    candidates: &[Candidate],
    count: usize,
    resampling: &Resampling,
) -> Result<Best, Vec<usize>> {
    let finalists = to_measure_again(candidates, count);
    let finalists: Vec<usize> = finalists
        .into_iter()
        .filter(|place| !candidates[*place].is_out())
        .collect();
    let unmeasured = finalists
        .iter()
        .filter(|place| candidates[**place].again.values.is_empty());
    let unmeasured: Vec<usize> = unmeasured.copied().collect();
    let (false, Some(&first)) = (!unmeasured.is_empty(), finalists.first()) else {
        return Err(unmeasured);
    };
    let rate = |place: usize| mean(&candidates[place].again.values).unwrap_or(0.0);
    let fastest = finalists.iter().copied().fold(first, |best, place| {
        if rate(place) > rate(best) {
            place
        } else {
            best
        }
    });
    let others = (0..candidates.len()).filter(|place| *place != fastest);
    let ahead: Vec<(usize, Difference)> = others
        .filter_map(|place| Some((place, ahead_of(candidates, fastest, place, resampling)?)))
        .collect();
    let is_slower = |place: usize, ahead: &Difference| {
        let (own, others) = (&candidates[fastest].again, candidates[place].deciding());
        ahead.interval.low > 0.0
            && (ahead.is_told_apart() || is_separate(&own.values, &others.values))
    };
    let alike = ahead
        .iter()
        .filter(|(place, ahead)| !is_slower(*place, ahead) && !candidates[*place].is_out());
    let as_good: Vec<usize> = std::iter::once(fastest)
        .chain(alike.map(|(place, _)| *place))
        .collect();
    // Keeps the first of equal costs. The fastest comes first.
    let cheapest = as_good.iter().copied().fold(fastest, |cheapest, place| {
        if candidates[place].cost < candidates[cheapest].cost {
            place
        } else {
            cheapest
        }
    });
    let Candidate { swept, again, .. } = &candidates[fastest];
    let figures = again
        .mean(resampling)
        .zip(difference_of_means(swept, again, resampling));
    // The fastest was measured both in the sweep and again, so both means exist.
    let (rate, luck) = figures.ok_or_else(Vec::new)?;
    Ok(Best {
        fastest,
        as_good,
        cheapest,
        rate,
        luck,
        ahead,
    })
}

/// Returns the lead of the fastest over another candidate. Interleaved runs are compared in pairs.
fn ahead_of(
    candidates: &[Candidate],
    fastest: usize,
    other: usize,
    resampling: &Resampling,
) -> Option<Difference> {
    let theirs = candidates[other].deciding();
    difference_of_means(&candidates[fastest].again, theirs, resampling)
}

/// True if each value of the first list is greater than each value of the second, and the
/// probability of this by chance is at most 1 in 20. If all n + m values have one distribution, all
/// orders are equally likely. In one of (n + m over n) orders, the first n are all greater. With
/// few repetitions this test is stronger than an interval, which has almost no width for two or
/// three values.
fn is_separate(first: &[f64], second: &[f64]) -> bool {
    let least = first.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = second.iter().copied().fold(0.0, f64::max);
    let orders = (1..=first.len()).fold(1.0, |product, chosen| {
        product * (second.len() + chosen) as f64 / chosen as f64
    });
    least > greatest && orders >= 20.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(swept: &[f64], again: &[f64], cost: f64) -> Candidate {
        Candidate {
            swept: Repetitions::alone(swept.to_vec()),
            again: Repetitions::alone(again.to_vec()),
            failed_again: false,
            cost,
        }
    }

    /// Returns a sweep in which the luckiest candidate is slower when measured again, and a cheap
    /// one is as good as the fastest.
    fn sweep() -> Vec<Candidate> {
        vec![
            candidate(&[500.0, 510.0, 505.0], &[], 1.0),
            candidate(
                &[990.0, 930.0, 960.0],
                &[900.0, 905.0, 910.0, 903.0, 904.0],
                32.0,
            ),
            candidate(
                &[940.0, 945.0, 935.0],
                &[940.0, 938.0, 944.0, 941.0, 940.75],
                16.0,
            ),
            candidate(
                &[938.0, 936.0, 941.0],
                &[939.0, 942.0, 940.0, 937.0, 940.0],
                8.0,
            ),
            candidate(&[937.0, 700.0, 937.0], &[], 4.0),
        ]
    }

    /// A candidate that was not measured again can have been faster in the sweep than the fastest
    /// when measured again. It is as good, and the cheapest.
    #[test]
    fn the_fastest_has_no_lead_over_one_that_was_faster_in_the_sweep() {
        let again = [850.0, 851.0, 849.0];
        let mut candidates: Vec<Candidate> = [900.0, 899.0, 898.0]
            .iter()
            .map(|swept| candidate(&[*swept, swept + 1.0, swept - 1.0], &again, 8.0))
            .collect();
        candidates.push(candidate(&[895.0, 896.0, 894.0], &[], 1.0));
        let best = best(&candidates, MEASURED_AGAIN, &Resampling::default()).unwrap();
        assert!(best.as_good.contains(&3), "{best:?}");
        assert_eq!(best.cheapest, 3);
    }

    #[test]
    fn repeated_measurements_decide() {
        let best = best(&sweep(), MEASURED_AGAIN, &Resampling::default()).unwrap();
        assert_eq!(best.fastest, 2);
        assert_eq!(best.as_good, [2, 3]);
        assert_eq!(best.cheapest, 3);
        assert!(best.luck.estimate.abs() < 1.0);
        let crate::stats::Interval { low, high } = best.rate.interval;
        assert!((938.0..940.75).contains(&low) && (940.75..=944.0).contains(&high));
        // The runs are not interleaved. The candidate that was not measured again is compared by
        // the sweep.
        let places: Vec<usize> = best.ahead.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [0, 1, 3, 4]);
        assert!(best.ahead.iter().all(|(_, ahead)| !ahead.is_paired));
    }

    #[test]
    fn the_fastest_few_must_be_measured_again() {
        let mut candidates = sweep();
        candidates[1].again = Repetitions::default();
        candidates[3].again = Repetitions::default();
        let missing = best(&candidates, MEASURED_AGAIN, &Resampling::default());
        assert_eq!(missing, Err(vec![1, 3]));
        // A candidate that failed again is excluded, and the others decide.
        candidates[1].failed_again = true;
        let missing = best(&candidates, MEASURED_AGAIN, &Resampling::default());
        assert_eq!(missing, Err(vec![3]));
        candidates[3].failed_again = true;
        let found = best(&candidates, MEASURED_AGAIN, &Resampling::default()).unwrap();
        assert_eq!(found.fastest, 2);
        assert!(!found.as_good.contains(&1) && !found.as_good.contains(&3));
        assert_eq!(best(&[], 3, &Resampling::default()), Err(vec![]));
    }

    #[test]
    fn effects_of_a_round_on_both_candidates_cancel_out() {
        // Rounds differ by far more than the candidates, whose difference is 2 in each round.
        let rounds = [900.0, 700.0, 940.0, 820.0, 860.0];
        let again =
            |less: f64| Repetitions::of((7..).map(Some).zip(rounds.iter().map(|rate| rate - less)));
        let mut candidates = sweep();
        for (place, less) in [(1, 0.0), (2, 2.0), (3, 1.0)] {
            candidates[place].again = again(less);
        }
        let found = best(&candidates, MEASURED_AGAIN, &Resampling::default()).unwrap();
        assert_eq!((found.fastest, found.as_good.as_slice()), (1, &[1, 4][..]));
        let of = |place| found.ahead.iter().find(|(own, _)| *own == place).unwrap().1;
        assert!(
            of(2).is_paired && (of(2).estimate - 2.0).abs() < 1e-9,
            "{found:?}"
        );
        assert!(of(2).interval.width() < 1e-9);
        assert!(!of(4).is_paired);
        // Without common rounds the candidates cannot be distinguished.
        for place in [2, 3] {
            let values = candidates[place].again.values.clone();
            candidates[place].again = Repetitions::alone(values);
        }
        let found = best(&candidates, MEASURED_AGAIN, &Resampling::default()).unwrap();
        assert_eq!(found.as_good, [1, 2, 3, 4]);
    }

    #[test]
    fn three_values_above_three_others_are_separate() {
        assert!(is_separate(&[7.0, 8.0, 9.0], &[4.0, 5.0, 6.0]));
        assert!(!is_separate(&[7.0, 8.0, 9.0], &[4.0, 5.0, 7.0]));
        // With two and three values, the probability of this order is 1 in 10.
        assert!(!is_separate(&[7.0, 8.0], &[4.0, 5.0, 6.0]));
        assert!(!is_separate(&[], &[4.0]) && !is_separate(&[4.0], &[]));
    }

    #[test]
    fn few_repetitions_distinguish_no_candidates() {
        let rounds = [900.0, 700.0, 940.0, 820.0];
        let candidates: Vec<Candidate> = (0..3)
            .map(|place| {
                let rates = rounds.map(|rate| rate - f64::from(place) * 100.0);
                let rounds = || Repetitions::of((7..).map(Some).zip(rates));
                Candidate {
                    again: rounds(),
                    ..candidate(&rates, &[], f64::from(3 - place))
                }
            })
            .collect();
        let found = best(&candidates, MEASURED_AGAIN, &Resampling::default()).unwrap();
        assert_eq!((found.fastest, found.cheapest), (0, 2));
        assert_eq!(found.as_good, [0, 1, 2]);
    }

    #[test]
    fn path_knobs_are_given_conditions_and_streams_are_not() {
        let given = |loss, set: &[(&str, &str)]| {
            let capacity = BitRate::new(1e9).unwrap_or_default();
            let named = |name: &str| {
                let known = set.iter().find(|(known, _)| *known == name);
                known.map(|(_, value)| (*value).to_owned())
            };
            Given::new(Duration::from_millis(5), capacity, loss, named)
        };
        let large = [("dataset", "large")];
        assert_eq!(given(0.0, &large), given(-0.0, &large));
        let others = given(0.0, &large).others();
        assert_eq!(others, [("dataset", "large".to_owned())]);
        assert!(given(1e-4, &[]) > given(1e-5, &[]));
        // A path with a cut is a different condition. The number of streams is not a condition.
        let cut = [("cut", "10s+5s")];
        assert_ne!(given(0.0, &cut), given(0.0, &[]));
        assert_eq!(given(0.0, &[("streams", "8")]), given(0.0, &[]));
        let others = given(1e-4, &cut).others();
        assert_eq!(
            others,
            [("cut", "10s+5s".to_owned()), ("loss", "1e-4".to_owned())]
        );
    }
}
