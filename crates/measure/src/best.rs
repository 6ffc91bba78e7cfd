//! The best of a sweep, as papers 000 and 003 look for it: which configuration is
//! fastest once the first few were measured again, which are as good, and the
//! cheapest of these.
//!
//! The fastest of many is partly the luckiest: the more configurations, the more
//! its figure promises too much. So the first few are measured again, and only
//! what was measured then decides.

use crate::random::Random;
use crate::stats::{Interval, Resampling, bootstrap_means, mean, percentile_interval};

/// How many are measured again where nothing else is said.
pub const MEASURED_AGAIN: usize = 3;

/// A configuration of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Throughputs of the sweep, in any unit.
    pub swept: Vec<f64>,
    /// Throughputs that were measured again.
    pub again: Vec<f64>,
    /// What it costs, in any unit that orders them: streams, CPU seconds for each
    /// 10^9 bytes, storage nodes.
    pub cost: f64,
}

/// The places of those to be measured again, the fastest mean first.
pub fn to_measure_again(candidates: &[Candidate], count: usize) -> Vec<usize> {
    let mut ranked: Vec<(usize, f64)> = candidates
        .iter()
        .enumerate()
        .filter_map(|(place, candidate)| Some((place, mean(&candidate.swept)?)))
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
    /// Those that are as good: the interval of their difference from the fastest
    /// holds zero. The fastest is the first of them.
    pub as_good: Vec<usize>,
    /// The cheapest of these; of equal costs the faster.
    pub cheapest: usize,
    /// The mean of the fastest in the sweep less its mean when measured again:
    /// what the sweep promised too much.
    pub luck: f64,
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
    let unmeasured = finalists
        .iter()
        .filter(|place| candidates[**place].again.is_empty());
    let unmeasured: Vec<usize> = unmeasured.copied().collect();
    let (false, Some(&first)) = (!unmeasured.is_empty(), finalists.first()) else {
        return Err(unmeasured);
    };
    let rate = |place: usize| mean(&candidates[place].again).unwrap_or(0.0);
    let fastest = finalists.iter().copied().fold(first, |best, place| {
        if rate(place) > rate(best) {
            place
        } else {
            best
        }
    });
    let mut as_good = vec![fastest];
    for place in 0..candidates.len() {
        let difference = difference(candidates, fastest, place, resampling);
        if place != fastest && difference.is_some_and(|interval| interval.contains(0.0)) {
            as_good.push(place);
        }
    }
    // The first of equals stays: the fastest is the first.
    let cheapest = as_good.iter().copied().fold(fastest, |cheapest, place| {
        if candidates[place].cost < candidates[cheapest].cost {
            place
        } else {
            cheapest
        }
    });
    Ok(Best {
        fastest,
        as_good,
        cheapest,
        luck: mean(&candidates[fastest].swept).unwrap_or(0.0) - rate(fastest),
    })
}

/// The interval of the fastest less another.
fn difference(
    candidates: &[Candidate],
    fastest: usize,
    other: usize,
    resampling: &Resampling,
) -> Option<Interval> {
    let mut random = Random::new(resampling.seed);
    let values = match candidates[other].again.as_slice() {
        [] => &candidates[other].swept,
        again => again,
    };
    let ours = bootstrap_means(&candidates[fastest].again, resampling.draws, &mut random);
    let theirs = bootstrap_means(values, resampling.draws, &mut random);
    let mut apart: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a - b).collect();
    percentile_interval(&mut apart, resampling.level)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(swept: &[f64], again: &[f64], cost: f64) -> Candidate {
        Candidate {
            swept: swept.to_vec(),
            again: again.to_vec(),
            cost,
        }
    }

    /// The lucky one is slower when measured again; a cheap one is as good.
    fn sweep() -> Vec<Candidate> {
        vec![
            candidate(&[500.0, 510.0, 505.0], &[], 1.0),
            candidate(&[990.0, 930.0, 960.0], &[900.0, 905.0, 910.0, 903.0], 32.0),
            candidate(&[940.0, 945.0, 935.0], &[940.0, 938.0, 944.0, 941.0], 16.0),
            candidate(&[938.0, 936.0, 941.0], &[939.0, 942.0, 940.0, 937.0], 8.0),
            candidate(&[939.0, 700.0, 939.0], &[], 4.0),
        ]
    }

    #[test]
    fn what_was_measured_again_decides() {
        let best = best(&sweep(), MEASURED_AGAIN, &Resampling::default()).unwrap();
        assert_eq!(best.fastest, 2);
        assert_eq!(best.as_good, [2, 3]);
        assert_eq!(best.cheapest, 3);
        assert!(best.luck.abs() < 1.0);
    }

    #[test]
    fn the_first_few_have_to_be_measured_again() {
        let mut candidates = sweep();
        candidates[1].again.clear();
        candidates[3].again.clear();
        let missing = best(&candidates, MEASURED_AGAIN, &Resampling::default());
        assert_eq!(missing, Err(vec![1, 3]));
        assert_eq!(best(&[], 3, &Resampling::default()), Err(vec![]));
    }
}
