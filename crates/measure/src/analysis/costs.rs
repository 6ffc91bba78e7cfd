//! What stands beside throughput: processor time, segments sent again, how busy layers were.

use std::collections::BTreeMap;
use std::time::Duration;

use super::MethodProfile;
use crate::record::Ended;
use crate::runs::{LayerUses, Run};
use crate::stats::{
    Difference, Figure, Repetitions, Resampling, difference_of_means, mean_of_means,
};

/// One quantity of each run, by round-trip time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// What was measured, of runs that tell it.
    pub repetitions: BTreeMap<Duration, Repetitions>,
    /// Its mean.
    pub means: BTreeMap<Duration, Figure>,
    /// The mean of these, each round-trip time counting as much; none of none.
    pub over_all: Option<Figure>,
}

impl Measured {
    /// Of runs that are in a profile.
    pub(super) fn of(
        own: &[&Run],
        resampling: &Resampling,
        value: impl Fn(&Run) -> Option<f64>,
    ) -> Measured {
        let mut by_rtt: BTreeMap<Duration, Vec<(Option<u64>, f64)>> = BTreeMap::new();
        for run in own
            .iter()
            .filter(|run| run.ended == Ended::Done && !run.again)
        {
            if let Some(value) = value(run) {
                by_rtt.entry(run.rtt).or_default().push((run.round, value));
            }
        }
        let repetitions: BTreeMap<Duration, Repetitions> = by_rtt
            .into_iter()
            .map(|(rtt, values)| (rtt, Repetitions::of(values)))
            .collect();
        let means = repetitions.iter();
        let means = means.filter_map(|(rtt, values)| Some((*rtt, values.mean(resampling)?)));
        let means: BTreeMap<Duration, Figure> = means.collect();
        let weight = 1.0 / repetitions.len().max(1) as f64;
        let terms = repetitions
            .values()
            .map(|own| (weight, own.values.as_slice()));
        Measured {
            over_all: match means.len() {
                // Of one it is that one.
                1 => means.values().next().copied(),
                _ => mean_of_means(&terms.collect::<Vec<_>>(), resampling),
            },
            means,
            repetitions,
        }
    }

    /// The first less the second, wherever both were measured; by pairs where runs were
    /// interleaved.
    fn less(&self, other: &Measured, resampling: &Resampling) -> Vec<(Duration, Difference)> {
        let common = self.repetitions.iter().filter_map(|(rtt, own)| {
            let other = other.repetitions.get(rtt)?;
            Some((*rtt, difference_of_means(own, other, resampling)?))
        });
        common.collect()
    }
}

/// How busy a layer was, 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerFigures {
    /// Its name.
    pub layer: String,
    /// The mean over all runs.
    pub busy: Figure,
    /// The mean by round-trip time.
    pub by_rtt: BTreeMap<Duration, Figure>,
}

impl LayerFigures {
    /// `None` of no run.
    pub(super) fn of(layer: &str, uses: &LayerUses, resampling: &Resampling) -> Option<Self> {
        let runs: usize = uses.values().map(Vec::len).sum();
        // Round-trip times were chosen, runs at each of them were not: resamples keep how many
        // there are at each.
        let terms = uses
            .values()
            .map(|values| (values.len() as f64 / runs as f64, values.as_slice()));
        let by_rtt = uses
            .iter()
            .filter_map(|(rtt, values)| Some((*rtt, mean_of_means(&[(1.0, values)], resampling)?)));
        Some(LayerFigures {
            layer: layer.to_owned(),
            busy: mean_of_means(&terms.collect::<Vec<_>>(), resampling)?,
            by_rtt: by_rtt.collect(),
        })
    }
}

/// How what two methods cost differs, the first less the second, at each round-trip time
/// where it was seen of both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostDifferences {
    /// CPU seconds of both ends for each 10^9 bytes.
    pub cpu_seconds_per_gigabyte: Vec<(Duration, Difference)>,
    /// Segments sent again in a run.
    pub retransmitted_segments: Vec<(Duration, Difference)>,
}

impl CostDifferences {
    pub(super) fn of(
        first: &MethodProfile,
        second: &MethodProfile,
        resampling: &Resampling,
    ) -> CostDifferences {
        let less = |of: fn(&MethodProfile) -> &Measured| of(first).less(of(second), resampling);
        CostDifferences {
            cpu_seconds_per_gigabyte: less(|method| &method.cpu_seconds_per_gigabyte),
            retransmitted_segments: less(|method| &method.retransmitted_segments),
        }
    }
}
