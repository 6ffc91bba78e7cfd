//! Figures beside throughput: CPU time, retransmitted segments and utilisation of the layers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::MethodProfile;
use crate::record::Ended;
use crate::runs::{LayerUses, Run};
use crate::stats::{
    Difference, Figure, Repetitions, Resampling, difference_of_means, mean_of_means,
};

/// The values of one quantity in all runs, by round-trip time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Values of the runs whose records have this quantity.
    pub repetitions: BTreeMap<Duration, Repetitions>,
    /// Mean for each round-trip time.
    pub means: BTreeMap<Duration, Figure>,
    /// Mean of `means`, with equal weight for each round-trip time. `None` if there are no values.
    pub over_all: Option<Figure>,
}

impl Measured {
    /// Collects the values of the runs that are part of a profile.
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
                // With one round-trip time, the overall mean is the mean there.
                1 => means.values().next().copied(),
                _ => mean_of_means(&terms.collect::<Vec<_>>(), resampling),
            },
            means,
            repetitions,
        }
    }

    /// Returns the differences of the means, `self` minus `other`, at each round-trip time that
    /// both have. Interleaved runs are compared in pairs.
    fn less(&self, other: &Measured, resampling: &Resampling) -> Vec<(Duration, Difference)> {
        let common = self.repetitions.iter().filter_map(|(rtt, own)| {
            let other = other.repetitions.get(rtt)?;
            Some((*rtt, difference_of_means(own, other, resampling)?))
        });
        common.collect()
    }
}

/// Utilisation of one layer, 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerFigures {
    /// Name of the layer.
    pub layer: String,
    /// Mean over all runs.
    pub busy: Figure,
    /// Mean for each round-trip time.
    pub by_rtt: BTreeMap<Duration, Figure>,
}

impl LayerFigures {
    /// Returns `None` if there are no runs.
    pub(super) fn of(layer: &str, uses: &LayerUses, resampling: &Resampling) -> Option<Self> {
        let runs: usize = uses.values().map(Vec::len).sum();
        // The round-trip times were chosen and the runs at each are random. So resampling keeps the
        // number of runs at each round-trip time.
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

/// Differences of the costs of two methods, the first minus the second, at each round-trip time
/// that both have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostDifferences {
    /// CPU seconds of both ends per 10^9 bytes.
    pub cpu_seconds_per_gigabyte: Vec<(Duration, Difference)>,
    /// Number of retransmitted segments per run.
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
