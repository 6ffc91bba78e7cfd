//! Repeats the fastest configurations of a sweep after all others, because the fastest of
//! many are partly the luckiest (`longhaul_measure::best`).

use std::collections::{BTreeMap, HashMap};

use longhaul_measure::best::{Candidate, FEWEST_COMPARED, Given, MEASURED_AGAIN, to_measure_again};
use longhaul_measure::random::Random;
use longhaul_measure::record::Measures;
use longhaul_measure::stats::Repetitions;

use super::file::SweepFile;
use super::outcome::{knobs, path_name};
use super::plan::{Cell, Plan, Planned, order_seed, shuffle};

/// Returns the repetitions of the fastest configurations of each path, in additional
/// rounds after all others. Each round has every chosen configuration once, in random
/// order. `rates` are the measured goodputs by configuration.
pub fn best_again(file: &SweepFile, plan: &Plan, rates: &HashMap<usize, Vec<f64>>) -> Vec<Planned> {
    let mut chosen: Vec<usize> = Vec::new();
    for places in groups(plan, |place| rates.contains_key(&place)) {
        let candidates = places.iter().map(|place| Candidate {
            swept: Repetitions::alone(rates.get(place).cloned().unwrap_or_default()),
            ..Candidate::default()
        });
        let fastest = to_measure_again(&candidates.collect::<Vec<_>>(), MEASURED_AGAIN);
        chosen.extend(fastest.into_iter().map(|at| places[at]));
    }
    let rounds = plan.runs.iter().map(|run| run.round);
    let before = rounds.max().unwrap_or_default();
    let mut runs = Vec::new();
    for round in before + 1..=before + file.again {
        shuffle(&mut chosen, Random::new(order_seed(file.seed, round)));
        runs.extend(chosen.iter().map(|cell| Planned {
            cell: *cell,
            round,
            number: 0,
            again: true,
        }));
    }
    runs
}

/// Returns groups of transfers that are compared with each other, of the configurations
/// for which `counts` is true.
pub fn groups(plan: &Plan, counts: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<Given, Vec<usize>> = BTreeMap::new();
    for (place, cell) in plan.cells.iter().enumerate() {
        if cell.method.measures == Measures::Transfer && counts(place) {
            groups.entry(given(cell)).or_default().push(place);
        }
    }
    groups.retain(|_, group| group.len() >= FEWEST_COMPARED);
    groups.into_values().collect()
}

/// Returns the given conditions of a configuration.
fn given(cell: &Cell) -> Given {
    let lab = cell.path.lab.as_ref();
    let loss = lab.map_or(0.0, |(lab, _)| lab.path.loss.mean());
    let knobs = knobs(cell);
    // Names and values are the same as in records.
    Given::new(cell.path.rtt, cell.path.capacity, loss, |name| match name {
        "dataset" => Some(cell.data.name.clone()),
        "path" => Some(path_name(&cell.path)),
        _ => knobs.get(name).map(ToString::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::file::parse;

    #[test]
    fn paths_with_different_cuts_are_not_compared() {
        let text = "name = \"x\"\nagain = 3\n[[paths]]\nrtt = \"1ms\"\nrate = \"1gbit\"\n\
                    cut = [\"1s+1s\", \"1s+9s\"]\n[[paths]]\nrtt = \"1ms\"\nrate = \"1gbit\"\n\
                    loss = [\"1e-3\", \"1e-3/8\"]\n[[data]]\nname = \"d\"\nlink-time = \"1s\"\n\
                    [[methods]]\nname = \"m\"\ncommand = \"c\"\nknobs = { how = [1, 2, 3, 4] }";
        let plan = Plan::of(&parse(text).unwrap()).unwrap();
        let sizes: Vec<usize> = groups(&plan, |_| true).iter().map(Vec::len).collect();
        assert_eq!(sizes, [4; 4]);
    }

    #[test]
    fn the_three_fastest_of_each_path_are_measured_again() {
        let text = "name = \"x\"\nrepetitions = 2\nagain = 3\n[[paths]]\nrtt = \"1ms\"\n\
                    rate = \"1gbit\"\nloss = [\"0\", \"1e-4\"]\n[[data]]\nname = \"d\"\n\
                    link-time = \"1s\"\n[[methods]]\nname = \"m\"\ncommand = \"c\"\n\
                    knobs = { how = [1, 2, 3, 4, 5] }";
        let file = parse(text).unwrap();
        let plan = Plan::of(&file).unwrap();
        assert_eq!(plan.cells.len(), 10);
        // Only three configurations of the second path were measured.
        let rates: HashMap<usize, Vec<f64>> = [3.0, 5.0, 1.0, 4.0, 2.0, 9.0, 9.0, 9.0]
            .into_iter()
            .map(|rate| vec![rate, rate + 0.5])
            .enumerate()
            .collect();
        let runs = best_again(&file, &plan, &rates);
        let rounds: Vec<u64> = runs.iter().map(|run| run.round).collect();
        assert_eq!(rounds, [3, 3, 3, 4, 4, 4, 5, 5, 5]);
        for round in runs.chunks(3) {
            let mut cells: Vec<usize> = round.iter().map(|run| run.cell).collect();
            cells.sort_unstable();
            assert_eq!(cells, [0, 1, 3]);
        }
        assert!(runs.iter().all(|run| run.again));
        assert_eq!(best_again(&file, &plan, &HashMap::new()), []);
    }
}
