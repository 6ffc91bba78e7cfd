//! The best of a sweep, at each round-trip time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::best::{Best, Candidate, MEASURED_AGAIN, best};
use crate::record::{Ended, Measures};
use crate::runs::{Configuration, Run, Runs};
use crate::stats::{Resampling, median};

/// With fewer configurations there is nothing to look for: all of them would be
/// measured again.
const FEWEST: usize = MEASURED_AGAIN + 1;

/// What nobody can choose to be faster, beside the round-trip time and the capacity.
const GIVEN: [&str; 3] = ["dataset", "loss", "cross"];

/// What a sweep comes to at one round-trip time, of one dataset, loss and cross
/// traffic. Places are those of [`Runs::configurations`].
#[derive(Clone, Debug, PartialEq)]
pub struct BestAt {
    /// The round-trip time.
    pub rtt: Duration,
    /// What else was given, where runs differ in it: `dataset=…`, `loss=…`, `cross=…`.
    pub given: Vec<String>,
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

/// What is given to a configuration, as [`GIVEN`] names it.
fn given(configuration: &Configuration) -> [String; GIVEN.len()] {
    GIVEN.map(|name| configuration.value(name).unwrap_or_default())
}

/// The best at every round-trip time at which enough configurations were
/// measured, over paths of one capacity, with one dataset, loss and cross traffic.
pub fn best_of_sweep(runs: &Runs, resampling: &Resampling) -> Vec<BestAt> {
    let mut groups: BTreeMap<(Duration, u64, [String; GIVEN.len()]), Group> = BTreeMap::new();
    for run in runs.runs().iter().filter(|run| run.ended == Ended::Done) {
        let configuration = &runs.configurations()[run.configuration];
        if configuration.measures == Measures::Transfer {
            let capacity = configuration.capacity.bits_per_second().to_bits();
            let group = (run.rtt, capacity, given(configuration));
            let group = groups.entry(group).or_default();
            group.entry(run.configuration).or_default().push(run);
        }
    }
    groups.retain(|_, group| group.len() >= FEWEST);
    let all: Vec<&[String; GIVEN.len()]> = groups.keys().map(|(_, _, given)| given).collect();
    let differs = |place: usize| all.windows(2).any(|two| two[0][place] != two[1][place]);
    let told = [differs(0), differs(1), differs(2)];
    groups
        .iter()
        .map(|((rtt, _, given), group)| {
            let named = GIVEN.iter().zip(given).zip(told);
            let named = named.filter(|((_, value), told)| *told && !value.is_empty());
            let named = named.map(|((name, value), _)| format!("{name}={value}"));
            best_at(runs, (*rtt, named.collect()), group, resampling)
        })
        .collect()
}

fn best_at(
    runs: &Runs,
    (rtt, given): (Duration, Vec<String>),
    group: &Group,
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
        given,
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
