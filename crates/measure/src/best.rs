//! The best of a sweep, as papers 000 and 003 look for it: which configuration is
//! fastest once the first few were measured again, which are as good, and the
//! cheapest of these.
//!
//! The fastest of many is partly the luckiest: the more configurations, the more
//! its figure promises too much. So the first few are measured again, and only
//! what was measured then decides.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_units::BitRate;

use crate::stats::{Difference, Figure, Repetitions, Resampling, difference_of_means, mean};

/// How many are measured again where nothing else is said.
pub const MEASURED_AGAIN: usize = 3;

/// With fewer configurations there is nothing to look for: all of them would be measured
/// again.
pub const FEWEST_COMPARED: usize = MEASURED_AGAIN + 1;

/// What a sweep records as a knob (docs/sweep.md), and is the path's: nobody can choose it to
/// be faster.
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

/// What is given to a configuration: only those to which the same is given are compared. A sweep
/// chooses by it what it measures again, and the analysis what is the best.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Given {
    rtt: Duration,
    // Rates and losses are not negative, and ordered as their bits are.
    capacity: u64,
    loss: u64,
    /// The data's and the path's names, and of [`PATH_KNOBS`] what there is.
    named: BTreeMap<&'static str, String>,
}

impl Given {
    /// Of a path's round-trip time, capacity and random loss (0 to 1), and what `named` has by
    /// the names `dataset`, `path` and [`PATH_KNOBS`].
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
            // Zero has a sign.
            loss: (loss + 0.0).to_bits(),
            named: names
                .filter_map(|name| Some((name, named(name)?)))
                .collect(),
        }
    }

    /// The round-trip time.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// What else is given, but the capacity, by name: what is none is left out.
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
    /// Throughputs of the sweep, in any unit.
    pub swept: Repetitions,
    /// Throughputs that were measured again.
    pub again: Repetitions,
    /// Whether a run that was to measure it again failed.
    pub failed_again: bool,
    /// What it costs, in any unit that orders them: streams, CPU seconds for each
    /// 10^9 bytes, storage nodes.
    pub cost: f64,
}

impl Candidate {
    /// Whether it failed whenever it was measured again: no candidate any more.
    fn is_out(&self) -> bool {
        self.failed_again && self.again.values.is_empty()
    }

    /// What it is compared by: when measured again, or else in the sweep.
    fn deciding(&self) -> &Repetitions {
        if self.again.values.is_empty() {
            &self.swept
        } else {
            &self.again
        }
    }
}

/// The places of those to be measured again, the fastest mean first.
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

/// What a sweep comes to. Places are those of the candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The fastest mean among those measured again.
    pub fastest: usize,
    /// Those that are as good. Either the interval of the fastest's lead over them reaches zero or
    /// below. Or there are too few repetitions to distinguish them, and not each of the fastest's
    /// runs is faster than each of theirs. The fastest is the first.
    pub as_good: Vec<usize>,
    /// The cheapest of these; of equal costs the faster.
    pub cheapest: usize,
    /// The mean of the fastest when measured again.
    pub rate: Figure,
    /// The mean of the fastest in the sweep less its mean when measured again:
    /// what the sweep promised too much.
    pub luck: Difference,
    /// By how much the fastest is ahead of each other, by place.
    pub ahead: Vec<(usize, Difference)>,
}

/// The best of a sweep.
///
/// A candidate that was not measured again is compared by its sweep, which can
/// only call it as good, never the fastest.
///
/// # Errors
///
/// The places that have to be measured again first, of the fastest `count` of the
/// sweep.
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
    // The first of equals stays: the fastest is the first.
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
    // It was measured in the sweep, and again: both are there.
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

/// The fastest less another, by rounds where both were interleaved in the same.
fn ahead_of(
    candidates: &[Candidate],
    fastest: usize,
    other: usize,
    resampling: &Resampling,
) -> Option<Difference> {
    let theirs = candidates[other].deciding();
    difference_of_means(&candidates[fastest].again, theirs, resampling)
}

/// Whether each of the first is above each of the second, and there are enough that chance would
/// do this in less than one of twenty cases. All orders of n and m equal values are equally
/// likely, and in one of (n + m over n) the first are all above. An interval of few repetitions
/// says less: from two or three values it has almost no width.
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

    /// The lucky one is slower when measured again; a cheap one is as good.
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

    /// What was not measured again may have been faster in the sweep than the fastest when
    /// measured again: it is as good, and the cheapest.
    #[test]
    fn the_fastest_is_not_told_ahead_of_who_was_faster() {
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
    fn what_was_measured_again_decides() {
        let best = best(&sweep(), MEASURED_AGAIN, &Resampling::default()).unwrap();
        assert_eq!(best.fastest, 2);
        assert_eq!(best.as_good, [2, 3]);
        assert_eq!(best.cheapest, 3);
        assert!(best.luck.estimate.abs() < 1.0);
        let crate::stats::Interval { low, high } = best.rate.interval;
        assert!((938.0..940.75).contains(&low) && (940.75..=944.0).contains(&high));
        // Not interleaved; the one that was not measured again stands beside by its sweep.
        let places: Vec<usize> = best.ahead.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [0, 1, 3, 4]);
        assert!(best.ahead.iter().all(|(_, ahead)| !ahead.is_paired));
    }

    #[test]
    fn the_first_few_have_to_be_measured_again() {
        let mut candidates = sweep();
        candidates[1].again = Repetitions::default();
        candidates[3].again = Repetitions::default();
        let missing = best(&candidates, MEASURED_AGAIN, &Resampling::default());
        assert_eq!(missing, Err(vec![1, 3]));
        // Who failed then is out; the others decide.
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
    fn what_a_round_did_to_both_tells_no_two_apart() {
        // Rounds differ by far more than the two, whose difference is 2 in each.
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
        // In rounds of their own they cannot be told apart.
        for place in [2, 3] {
            let values = candidates[place].again.values.clone();
            candidates[place].again = Repetitions::alone(values);
        }
        let found = best(&candidates, MEASURED_AGAIN, &Resampling::default()).unwrap();
        assert_eq!(found.as_good, [1, 2, 3, 4]);
    }

    #[test]
    fn three_that_are_all_above_three_are_above() {
        assert!(is_separate(&[7.0, 8.0, 9.0], &[4.0, 5.0, 6.0]));
        assert!(!is_separate(&[7.0, 8.0, 9.0], &[4.0, 5.0, 7.0]));
        // Of two and three, one order in ten.
        assert!(!is_separate(&[7.0, 8.0], &[4.0, 5.0, 6.0]));
        assert!(!is_separate(&[], &[4.0]) && !is_separate(&[4.0], &[]));
    }

    #[test]
    fn few_repetitions_tell_nobody_apart() {
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
    fn what_is_given_is_the_same_or_is_not() {
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
        // A path that is cut is another one; who has more streams is none.
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
