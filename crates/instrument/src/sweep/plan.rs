//! Plans the runs of a sweep and their order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_lab::scenario::{Scenario, ScenarioError};
use longhaul_lab::settings::LabSettings;
use longhaul_measure::random::Random;
use longhaul_measure::record::Knob;
use longhaul_units::{BitRate, ByteCount, parse_span};

use super::dataset::Shape;
use super::file::{Cross, Data, Method, Storage, SweepFile, SysctlSet};

/// Returns the fraction of the line rate that is TCP payload: 1448 of 1538 bytes on the
/// wire at an MTU of 1500, with timestamps.
fn payload_share(mtu: u16) -> f64 {
    (f64::from(mtu) - 52.0) / (f64::from(mtu) + 38.0)
}

/// Maximum number of configurations and of runs.
const MOST_RUNS: usize = 1_000_000;

/// A path of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Settings as written in the sweep file.
    pub settings: BTreeMap<String, String>,
    /// The lab and its settings; `None` for a real path or this host.
    pub lab: Option<(Scenario, Vec<(String, String)>)>,
    /// The other end of a real path. If `lab` is also `None`, both ends are on this host.
    pub endpoint: Option<String>,
    /// Round-trip time.
    pub rtt: Duration,
    /// Maximum rate of TCP payload.
    pub capacity: BitRate,
    /// Seed of the lab's random events in every round. `None` means a different seed in
    /// each round.
    seed: Option<u64>,
    /// Amount of data as time of the link.
    pub link_time: Option<Duration>,
    /// Start and duration of a cut.
    pub cut: Option<(Duration, Duration)>,
    /// Time of a change, and the new settings in the form of `lab set`.
    pub change: Option<(Duration, String)>,
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Path of the run.
    pub path: Path,
    /// Kernel parameters of the hosts.
    pub sysctls: Option<SysctlSet>,
    /// Location of the data.
    pub storage: Option<Storage>,
    /// Background traffic.
    pub cross: Option<Cross>,
    /// Dataset.
    pub data: Data,
    /// Number and sizes of the files that are moved.
    pub shape: Shape,
    /// Total size of the files in bytes.
    pub bytes: u64,
    /// Method that transfers the files.
    pub method: Method,
    /// Parameters of the method.
    pub knobs: BTreeMap<String, Knob>,
}

/// A planned run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Index of the configuration.
    pub cell: usize,
    /// Round, from 1; 0 is a warm-up.
    pub round: u64,
    /// Number of the run within its configuration and round.
    pub number: u64,
    /// True for a repetition of the fastest configurations.
    pub again: bool,
}

/// Plan of a sweep.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All configurations.
    pub cells: Vec<Cell>,
    /// Runs in order.
    pub runs: Vec<Planned>,
}

impl Plan {
    /// Plans a sweep file.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the problem.
    pub fn of(file: &SweepFile) -> Result<Plan, String> {
        let mut cells = Vec::new();
        for settings in file.points() {
            let path = Path::of(settings)?;
            for method in file.methods.iter().filter(|m| path.is_for(m)) {
                cells.extend(cells_of(file, &path, method)?);
                if cells.len() > MOST_RUNS {
                    return Err(format!("more than {MOST_RUNS} configurations"));
                }
            }
        }
        if cells.is_empty() {
            return Err("there is nothing to run: no method has a selected path".to_owned());
        }
        let runs = order(file, &cells)?;
        Ok(Plan { cells, runs })
    }
}

/// Returns the values as options, or a single `None` for an empty list.
fn optional<T: Clone>(list: &[T]) -> Vec<Option<T>> {
    match list {
        [] => vec![None],
        list => list.iter().cloned().map(Some).collect(),
    }
}

fn cells_of(file: &SweepFile, path: &Path, method: &Method) -> Result<Vec<Cell>, String> {
    let mut cells = Vec::new();
    for sysctls in optional(&file.sysctls) {
        for storage in optional(&file.storage) {
            for cross in optional(&file.cross) {
                for data in &file.data {
                    let shape = shape_of(path, data, method.share);
                    let bytes = shape.bytes();
                    for knobs in method.knob_sets() {
                        let mut cell = Cell {
                            path: path.clone(),
                            sysctls: sysctls.clone(),
                            storage: storage.clone(),
                            cross: cross.clone(),
                            data: data.clone(),
                            shape,
                            bytes,
                            method: method.clone(),
                            knobs,
                        };
                        cell.apply()?;
                        cells.push(cell);
                    }
                }
            }
        }
    }
    Ok(cells)
}

/// Returns the files that a method moves over a path.
fn shape_of(path: &Path, data: &Data, share: f64) -> Shape {
    let whole = match (path.link_time, data.link_time) {
        (Some(time), Some(_)) | (None, Some(time)) => {
            path.capacity.bits_per_second() / 8.0 * time.as_secs_f64()
        }
        _ => Shape::of(data, 0).bytes() as f64,
    };
    Shape::of(data, (whole * share).round().max(1.0) as u64)
}

impl Path {
    fn of(mut settings: BTreeMap<String, String>) -> Result<Path, String> {
        let written = settings.clone();
        let mut take = |key: &str| settings.remove(key);
        let span = |text: String| parse_span(&text).map_err(|error| error.to_string());
        let link_time = take("link-time").map(span).transpose()?;
        let cut = take("cut").map(|text| read_cut(&text)).transpose()?;
        let change = take("change").map(|text| read_change(&text)).transpose()?;
        let seed = take("seed").map(|text| text.parse::<u64>());
        let seed = seed.transpose().map_err(|error| format!("seed: {error}"))?;
        let endpoint = take("endpoint");
        let is_here = match take("here").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(format!("here = {other}: write true")),
        };
        let capacity = take("capacity");
        let capacity = capacity.map(|text| text.parse::<BitRate>());
        let capacity = capacity.transpose().map_err(|error| error.to_string())?;
        let settings: Vec<(String, String)> = settings.into_iter().collect();
        let scenario = scenario_of(&settings).map_err(|error| error.to_string())?;
        if let Some((_, settings)) = &change {
            let mut changed = scenario.clone();
            let done = changed.change(settings);
            done.map_err(|error| format!("change: {error}"))?;
            if changed.path.rate != scenario.path.rate && capacity.is_none() {
                let text = "a change of rate needs capacity = \"1gbit\": the reference for the \
                            throughput";
                return Err(text.to_owned());
            }
        }
        let capacity = match (capacity, scenario.path.rate) {
            (Some(capacity), _) => capacity,
            (None, Some(rate)) => {
                let bits = rate.bits_per_second() * payload_share(scenario.mtu);
                BitRate::new(bits).unwrap_or_default()
            }
            (None, None) => {
                return Err(
                    "a path without a rate needs capacity = \"10gbit\": the reference for its \
                     throughput"
                        .to_owned(),
                );
            }
        };
        Ok(Path {
            settings: written,
            rtt: scenario.path.rtt,
            lab: (endpoint.is_none() && !is_here).then_some((scenario, settings)),
            endpoint,
            capacity,
            seed,
            link_time,
            cut,
            change,
        })
    }

    /// Returns the seed of the lab's loss, jitter and damage in a round of a sweep with
    /// seed `sweep`. Repetitions differ, and all methods of a round get the same seed.
    /// `None` without a lab. The seed is below 2^53, so that a program that reads numbers
    /// as doubles keeps it exact.
    pub fn seed_in(&self, sweep: u64, round: u64) -> Option<u64> {
        let drawn = || Random::new(!order_seed(sweep, round)).bits() >> 11;
        self.lab.as_ref().map(|_| self.seed.unwrap_or_else(drawn))
    }

    fn is_for(&self, method: &Method) -> bool {
        let has = |(key, value)| self.settings.get(key) == Some(value);
        // On a real path, the server of the other end cannot be started.
        let fits = self.is_local() || !method.pulls;
        !method.only_beside && fits && method.only.iter().all(has)
    }

    /// True if both ends are on this machine, so that the destination can be examined.
    pub fn is_local(&self) -> bool {
        self.endpoint.is_none()
    }

    /// Returns the path in the form that `--lab` parses.
    pub fn text(&self) -> String {
        match (&self.lab, &self.endpoint) {
            (Some((lab, _)), _) => lab.shown_path(),
            (None, endpoint) => endpoint.clone().unwrap_or_else(|| "loopback".to_owned()),
        }
    }
}

/// Parses `WHEN+HOW_LONG`.
fn read_cut(text: &str) -> Result<(Duration, Duration), String> {
    let (when, length) = text
        .split_once('+')
        .ok_or_else(|| format!("cut = \"{text}\": write WHEN+HOW_LONG, for example 5s+60s"))?;
    let span = |text| parse_span(text).map_err(|error| format!("cut: {error}"));
    Ok((span(when)?, span(length)?))
}

/// Parses `WHEN:KEY=VALUE,…`.
fn read_change(text: &str) -> Result<(Duration, String), String> {
    let (when, settings) = text.split_once(':').ok_or_else(|| {
        format!("change = \"{text}\": write WHEN:KEY=VALUE,…, e.g. 15s:rtt=120ms")
    })?;
    let when = parse_span(when).map_err(|error| format!("change: {error}"))?;
    Ok((when, settings.to_owned()))
}

/// Returns the scenario of a lab's settings.
fn scenario_of(settings: &[(String, String)]) -> Result<Scenario, ScenarioError> {
    let settings = settings.iter().map(|(key, value)| (&**key, &**value));
    Ok(LabSettings::read(settings)?.scenario)
}

impl Cell {
    /// Adds kernel parameters, background traffic and storage to the lab.
    fn apply(&mut self) -> Result<(), String> {
        let foreign = self.sysctls.is_some()
            || self.cross.is_some()
            || self.path.cut.is_some()
            || self.path.change.is_some()
            || self.storage.as_ref().is_some_and(|s| s.lab.is_some());
        let Some((scenario, settings)) = &mut self.path.lab else {
            return if foreign {
                Err(
                    "a real path has no sysctls, cross traffic, cuts, changes or lab storage"
                        .to_owned(),
                )
            } else {
                Ok(())
            };
        };
        let mut add = |key: &str, value: &str| settings.push((key.to_owned(), value.to_owned()));
        if let Some(set) = &self.sysctls {
            set.hosts.iter().for_each(|text| add("sysctl", text));
            set.machine.iter().for_each(|text| add("host-sysctl", text));
        }
        if let Some(cross) = self.cross.as_ref().filter(|cross| cross.streams > 0) {
            add("background", &cross.streams.to_string());
            let on_off = cross.on_off.iter();
            on_off.for_each(|text| add("background-on-off", text));
        }
        if let Some(text) = self.storage.as_ref().and_then(|s| s.lab.as_deref()) {
            add("storage", text);
        }
        *scenario = scenario_of(settings).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Returns a line that identifies the configuration.
    pub fn key(&self) -> String {
        let name = |name: Option<&String>| name.cloned().unwrap_or_default();
        format!(
            "{} {:?} path {:?} sysctls {:?} storage {} cross {} data {} {}",
            self.method.name,
            self.knobs,
            self.path.settings,
            self.sysctls,
            name(self.storage.as_ref().map(|s| &s.name)),
            name(self.cross.as_ref().map(|c| &c.name)),
            self.data.name,
            self.bytes,
        )
    }

    /// Returns a short description for users.
    pub fn title(&self) -> String {
        let mut text = self.method.name.clone();
        for (name, knob) in &self.knobs {
            text += &format!(" {name}={knob}");
        }
        let shown = [
            "rtt",
            "rate",
            "loss",
            "congestion",
            "window",
            "cut",
            "change",
            "corrupt-unseen",
            "nat",
        ];
        for name in shown {
            if let Some(value) = self.path.settings.get(name) {
                text += &format!(" {value}");
            }
        }
        let named = [
            self.sysctls.as_ref().map(|s| &s.name),
            self.storage.as_ref().map(|s| &s.name),
            self.cross.as_ref().map(|c| &c.name),
        ];
        for name in named.into_iter().flatten() {
            text += &format!(" {name}");
        }
        format!("{text} {} ({})", self.data.name, ByteCount(self.bytes))
    }

    /// Returns the time that the link needs for the data.
    pub fn link_time(&self) -> Duration {
        let seconds = self.bytes as f64 * 8.0 / self.path.capacity.bits_per_second();
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

/// Returns the runs in order: warm-ups of each method on its first path and of each
/// dataset, then rounds with every configuration once, in random order. The first copy of
/// a dataset creates entries that the destination's file system never had, and took up to
/// three times as long as later ones.
fn order(file: &SweepFile, cells: &[Cell]) -> Result<Vec<Planned>, String> {
    let mut runs = Vec::new();
    let mut methods = BTreeSet::new();
    let mut datasets = BTreeSet::new();
    for (index, cell) in cells.iter().enumerate() {
        let is_new_method = methods.insert(&cell.method.name);
        let is_new_dataset = datasets.insert(&cell.data.name);
        if is_new_method || is_new_dataset {
            runs.extend((0..file.warm_up).map(|number| Planned {
                cell: index,
                round: 0,
                number,
                again: false,
            }));
        }
    }
    let repetitions = |cell: &Cell| cell.method.repetitions.unwrap_or(file.repetitions);
    let rounds = cells.iter().map(repetitions).max().unwrap_or_default();
    for round in 1..=rounds {
        let wanted = |(_, cell): &(usize, &Cell)| round <= repetitions(cell);
        let mut chosen: Vec<usize> = cells
            .iter()
            .enumerate()
            .filter(wanted)
            .map(|c| c.0)
            .collect();
        shuffle(&mut chosen, Random::new(order_seed(file.seed, round)));
        runs.extend(chosen.into_iter().map(|cell| Planned {
            cell,
            round,
            number: 0,
            again: false,
        }));
        if runs.len() > MOST_RUNS {
            return Err(format!("more than {MOST_RUNS} runs"));
        }
    }
    Ok(runs)
}

/// Returns the seed of a round's order.
pub(super) fn order_seed(seed: u64, round: u64) -> u64 {
    seed.wrapping_mul(0x1_0000).wrapping_add(round)
}

/// Shuffles a list by the algorithm of Fisher and Yates: all orders are equally likely.
pub(super) fn shuffle(list: &mut [usize], mut random: Random) {
    for end in (1..list.len()).rev() {
        list.swap(end, random.below(end + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::file::parse;

    const FILE: &str = r#"
        name = "trial"
        repetitions = 3
        [[paths]]
        rtt = ["10ms", "20ms"]
        rate = "1gbit"
        [[paths]]
        rtt = "100ms"
        rate = "1gbit"
        link-time = "60s"
        [[data]]
        name = "large"
        link-time = "30s"
        [[methods]]
        name = "longhaul"
        longhaul = true
        [[methods]]
        name = "slow"
        command = "slow"
        share = 0.1
        repetitions = 1
        only = { rtt = "10ms" }
    "#;

    #[test]
    fn rounds_are_interleaved_and_determined_by_the_seed() {
        let plan = Plan::of(&parse(FILE).unwrap()).unwrap();
        assert_eq!(plan.cells.len(), 4);
        // Two warm-ups, then 4 + 3 + 3 runs.
        assert_eq!(plan.runs.len(), 12);
        assert!(plan.runs[..2].iter().all(|run| run.round == 0));
        let of_round = |round| {
            let runs = plan.runs.iter().filter(move |run| run.round == round);
            let mut cells: Vec<usize> = runs.map(|run| run.cell).collect();
            cells.sort_unstable();
            cells
        };
        assert_eq!(of_round(1), [0, 1, 2, 3]);
        assert_eq!(of_round(3).len(), 3);
        assert_eq!(Plan::of(&parse(FILE).unwrap()).unwrap().runs, plan.runs);
        let other = FILE.replacen("repetitions = 3", "repetitions = 3\nseed = 9", 1);
        let mut rounds = (1..20).map(|seed| {
            let text = other.replacen("seed = 9", &format!("seed = {seed}"), 1);
            Plan::of(&parse(&text).unwrap()).unwrap().runs
        });
        assert!(rounds.any(|runs| runs != plan.runs));
    }

    #[test]
    fn each_dataset_is_warmed_up_too() {
        let more = "[[data]]\nname = \"small\"\nlink-time = \"1s\"\n[[methods]]";
        let plan = Plan::of(&parse(&FILE.replacen("[[methods]]", more, 1)).unwrap()).unwrap();
        let warm_ups = plan.runs.iter().filter(|run| run.round == 0);
        let names = warm_ups.map(|run| {
            let cell = &plan.cells[run.cell];
            (cell.method.name.as_str(), cell.data.name.as_str())
        });
        let names: Vec<_> = names.collect();
        assert_eq!(
            names,
            [
                ("longhaul", "large"),
                ("longhaul", "small"),
                ("slow", "large")
            ]
        );
    }

    #[test]
    fn every_round_has_a_reproducible_seed() {
        let path = |text: &str| {
            Plan::of(&parse(text).unwrap()).unwrap().cells[0]
                .path
                .clone()
        };
        let anew = path(FILE);
        let seeds = |seed| -> std::collections::BTreeSet<u64> {
            let rounds = 0..100;
            rounds
                .map(|round| anew.seed_in(seed, round).unwrap())
                .collect()
        };
        assert_eq!(seeds(1).len(), 100);
        assert_eq!(seeds(1), seeds(1));
        assert!(seeds(1).iter().all(|seed| *seed < 1 << 53));
        assert!(seeds(1).is_disjoint(&seeds(2)));
        let same = path(&FILE.replacen("rate =", "seed = 5\n        rate =", 1));
        assert_eq!([1, 2].map(|round| same.seed_in(1, round)), [Some(5); 2]);
    }

    #[test]
    fn data_are_scaled_by_path_and_method() {
        let plan = Plan::of(&parse(FILE).unwrap()).unwrap();
        // 1448 of 1538 bytes are payload.
        let second = 1e9 * 1448.0 / 1538.0 / 8.0;
        let bytes: Vec<f64> = plan.cells.iter().map(|cell| cell.bytes as f64).collect();
        for (bytes, seconds) in bytes.iter().zip([30.0, 3.0, 30.0, 60.0]) {
            assert!((bytes - seconds * second).abs() < 1.0, "{bytes}");
        }
        let keys: std::collections::HashSet<String> = plan.cells.iter().map(Cell::key).collect();
        assert_eq!(keys.len(), 4);
    }

    #[test]
    fn the_title_shows_the_bytes_that_are_moved() {
        for (files, title) in [(1, "large (1.07 GB)"), (10, "large (2.15 GB)")] {
            let sized = format!("files = {files}\nsmallest = \"1GiB\"\nlargest = \"1GiB\"");
            let text = FILE.replacen("link-time = \"30s\"", &sized, 1);
            let text = text.replacen("share = 0.1", "share = 0.2", 1);
            let plan = Plan::of(&parse(&text).unwrap()).unwrap();
            let slow = plan.cells.iter().find(|cell| cell.method.name == "slow");
            let slow = slow.unwrap();
            assert!(slow.title().ends_with(title), "{}", slow.title());
            assert_eq!(slow.bytes, slow.shape.bytes());
            assert_eq!(slow.bytes, slow.shape.files() << 30);
            let seconds = slow.bytes as f64 * 8.0 / slow.path.capacity.bits_per_second();
            assert_eq!(slow.link_time(), Duration::from_secs_f64(seconds));
        }
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for (from, to, part) in [
            ("rate = \"1gbit\"", "speed = 1", "speed"),
            ("rate = \"1gbit\"", "loss = 0.1", "capacity"),
            ("rate = \"1gbit\"", "rate = \"1gbit\"\ncut = \"5s\"", "cut"),
            (
                "rate = \"1gbit\"",
                "rate = \"1gbit\"\nchange = \"5s\"",
                "WHEN:KEY=VALUE",
            ),
            (
                "rate = \"1gbit\"",
                "rate = \"1gbit\"\nchange = \"5s:speed=1\"",
                "change: ",
            ),
            (
                "rate = \"1gbit\"",
                "rate = \"1gbit\"\nchange = \"5s:rate=2gbit\"",
                "capacity",
            ),
        ] {
            let file = parse(&FILE.replacen(from, to, 1)).unwrap();
            let error = Plan::of(&file).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
