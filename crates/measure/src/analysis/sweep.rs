//! The best of a sweep, at each round-trip time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::best::{Best, Candidate, MEASURED_AGAIN, best};
use crate::record::{Ended, Measures};
use crate::runs::{Run, Runs};
use crate::stats::{Resampling, median};

/// With fewer configurations there is nothing to look for: all of them would be
/// measured again.
const FEWEST: usize = MEASURED_AGAIN + 1;

/// What a sweep comes to at one round-trip time. Places are those of
/// [`Runs::configurations`].
#[derive(Clone, Debug, PartialEq)]
pub struct BestAt {
    /// The round-trip time.
    pub rtt: Duration,
    /// How many configurations were compared.
    pub compared: usize,
    /// The best, or which have to be measured again before it can be told.
    pub best: Result<Best, Vec<usize>>,
    /// What costs are: CPU seconds of both ends for each 10^9 bytes where every
    /// run tells, else TCP streams.
    pub cost: &'static str,
}

/// Transfers at one round-trip time, by configuration.
type Group<'a> = BTreeMap<usize, Vec<&'a Run>>;

/// The best at every round-trip time at which enough configurations were
/// measured, over paths of one capacity.
pub fn best_of_sweep(runs: &Runs, resampling: &Resampling) -> Vec<BestAt> {
    let mut groups: BTreeMap<(Duration, u64), Group> = BTreeMap::new();
    for run in runs.runs().iter().filter(|run| run.ended == Ended::Done) {
        let configuration = &runs.configurations()[run.configuration];
        if configuration.measures == Measures::Transfer {
            let path = (run.rtt, configuration.capacity.bits_per_second().to_bits());
            let group = groups.entry(path).or_default();
            group.entry(run.configuration).or_default().push(run);
        }
    }
    let wide = groups
        .into_iter()
        .filter(|(_, group)| group.len() >= FEWEST);
    wide.map(|((rtt, _), group)| best_at(runs, rtt, &group, resampling))
        .collect()
}

fn best_at(runs: &Runs, rtt: Duration, group: &Group, resampling: &Resampling) -> BestAt {
    let places: Vec<usize> = group.keys().copied().collect();
    let cpu: Vec<Option<f64>> = group.values().map(|own| cpu_cost(own)).collect();
    let (costs, cost): (Vec<f64>, &'static str) = match cpu.iter().copied().collect() {
        Some(cpu) => (cpu, "CPU s/GB"),
        None => (
            places
                .iter()
                .map(|place| runs.configurations()[*place].count("streams").unwrap_or(1) as f64)
                .collect(),
            "streams",
        ),
    };
    let rates = |own: &[&Run], again: bool| -> Vec<f64> {
        let chosen = own.iter().filter(|run| run.again == again);
        chosen.map(|run| run.goodput.bits_per_second()).collect()
    };
    let candidates: Vec<Candidate> = group
        .values()
        .zip(costs)
        .map(|(own, cost)| Candidate {
            swept: rates(own, false),
            again: rates(own, true),
            cost,
        })
        .collect();
    let named = |places_in_group: Vec<usize>| -> Vec<usize> {
        places_in_group
            .into_iter()
            .map(|place| places[place])
            .collect()
    };
    let found = best(&candidates, MEASURED_AGAIN, resampling);
    BestAt {
        rtt,
        compared: group.len(),
        best: found.map_err(&named).map(|found| Best {
            fastest: places[found.fastest],
            cheapest: places[found.cheapest],
            as_good: named(found.as_good),
            luck: found.luck,
        }),
        cost,
    }
}

fn cpu_cost(own: &[&Run]) -> Option<f64> {
    let costs: Option<Vec<f64>> = own.iter().map(|run| run.cpu_seconds_per_gigabyte).collect();
    median(&costs?)
}
