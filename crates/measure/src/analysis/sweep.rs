//! The best configurations of a sweep at each round-trip time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::best::{Best, Candidate, FEWEST_COMPARED, Given, MEASURED_AGAIN, best};
use crate::record::{Ended, Measures};
use crate::runs::{Configuration, Run, Runs};
use crate::stats::{Repetitions, Resampling, median};

/// The result of a sweep for one round-trip time, dataset, path and cross traffic. Places are
/// indices in [`Runs::configurations`].
#[derive(Clone, Debug, PartialEq)]
pub struct BestAt {
    /// Round-trip time of the path.
    pub rtt: Duration,
    /// Other given conditions in which the sweep's runs differ: `dataset=…`, `loss=…`, `cut=…`.
    pub given: Vec<String>,
    /// Number of configurations compared.
    pub compared: usize,
    /// The best configurations, or those that must be measured again first.
    pub best: Result<Best, Vec<usize>>,
    /// Unit of the costs: CPU seconds of both ends per 10^9 bytes if every run has them, else the
    /// number of TCP streams.
    pub cost: &'static str,
}

/// Transfers under the same given conditions, by configuration.
type Group<'a> = BTreeMap<usize, Vec<&'a Run>>;

/// Returns the given conditions of a run.
fn given(run: &Run, configuration: &Configuration) -> Given {
    let (capacity, loss) = (configuration.capacity, configuration.loss);
    Given::new(run.rtt, capacity, loss, |name| configuration.value(name))
}

/// Finds the best configurations for each set of given conditions under which enough configurations
/// were measured.
pub fn best_of_sweep(runs: &Runs, resampling: &Resampling) -> Vec<BestAt> {
    let mut groups: BTreeMap<Given, Group> = BTreeMap::new();
    let failed = runs
        .runs()
        .iter()
        .filter(|run| run.again && run.ended != Ended::Done);
    let failed_again: BTreeSet<(usize, Duration)> =
        failed.map(|run| (run.configuration, run.rtt)).collect();
    for run in runs.runs().iter().filter(|run| run.ended == Ended::Done) {
        let configuration = &runs.configurations()[run.configuration];
        if configuration.measures == Measures::Transfer {
            let group = groups.entry(given(run, configuration)).or_default();
            group.entry(run.configuration).or_default().push(run);
        }
    }
    groups.retain(|_, group| group.len() >= FEWEST_COMPARED);
    let all: Vec<Vec<(&str, String)>> = groups.keys().map(Given::others).collect();
    let is_common = |other: &(&str, String)| all.iter().all(|others| others.contains(other));
    let places = groups.iter().zip(&all);
    places
        .map(|((given, group), others)| {
            let told = others.iter().filter(|other| !is_common(other));
            let told = told.map(|(name, value)| format!("{name}={value}"));
            best_at(
                runs,
                (given.rtt(), told.collect()),
                (group, &failed_again),
                resampling,
            )
        })
        .collect()
}

fn best_at(
    runs: &Runs,
    (rtt, given): (Duration, Vec<String>),
    (group, failed_again): (&Group, &BTreeSet<(usize, Duration)>),
    resampling: &Resampling,
) -> BestAt {
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
    let rates = |own: &[&Run], again: bool| {
        let chosen = own.iter().filter(|run| run.again == again);
        Repetitions::of(chosen.map(|run| (run.round, run.goodput.bits_per_second())))
    };
    let candidates: Vec<Candidate> = group
        .iter()
        .zip(costs)
        .map(|((place, own), cost)| Candidate {
            swept: rates(own, false),
            again: rates(own, true),
            failed_again: failed_again.contains(&(*place, rtt)),
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
        given,
        compared: group.len(),
        best: found.map_err(&named).map(|found| Best {
            fastest: places[found.fastest],
            cheapest: places[found.cheapest],
            as_good: named(found.as_good),
            ahead: found
                .ahead
                .into_iter()
                .map(|(place, ahead)| (places[place], ahead))
                .collect(),
            ..found
        }),
        cost,
    }
}

fn cpu_cost(own: &[&Run]) -> Option<f64> {
    let costs: Option<Vec<f64>> = own.iter().map(|run| run.cpu_seconds_per_gigabyte).collect();
    median(&costs?)
}
