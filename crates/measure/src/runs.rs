//! Collects the values that figures need from many records. A run needs 100 to 200 bytes,
//! independent of the size of its record.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

use crate::doubt::Doubt;
use crate::record::{Ended, Fault, Knob, Measures, RunRecord, Seen};
use crate::scope::Scope;

/// Maximum number of layers of one configuration. longhaul has eight.
const MOST_LAYERS: usize = 64;

/// The properties that distinguish runs, except their round-trip time. Each configuration has one
/// profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Kind of throughput that was measured.
    pub measures: Measures,
    /// Name of the program that moved the data.
    pub method: String,
    /// Settings by name.
    pub knobs: BTreeMap<String, Knob>,
    /// Capacity of the path.
    pub capacity: BitRate,
    /// Share of packets that the path loses at random, 0 to 1. `traits` also contains it.
    pub loss: f64,
    /// Other properties by name: loss, congestion control, security, endpoint, dataset. Empty
    /// values are omitted.
    pub traits: BTreeMap<&'static str, String>,
}

impl Configuration {
    fn of(record: &RunRecord) -> Configuration {
        let mut traits = BTreeMap::new();
        let mut note = |name, value: String| {
            if !value.is_empty() {
                traits.insert(name, value);
            }
        };
        let path = &record.path;
        note("version", record.method.version.clone());
        note("endpoint", record.method.endpoint.clone());
        note("security", record.method.security.clone());
        note("congestion", path.congestion_control.clone());
        note("dataset", record.dataset.name.clone());
        note("path", path.name.clone());
        if path.loss > 0.0 {
            note("loss", format!("{:e}", path.loss));
        }
        if let Some(queue) = path.queue {
            note("queue", queue.to_string());
        }
        Configuration {
            measures: record.measures,
            method: record.method.name.clone(),
            knobs: record.knobs.clone(),
            capacity: path.capacity,
            loss: path.loss,
            traits,
        }
    }

    /// Returns a text that differs if two configurations differ.
    fn key(&self) -> String {
        self.key_of(|_| true)
    }

    /// Returns the same key for configurations that differ only in the loss of their path.
    pub(crate) fn key_without_loss(&self) -> String {
        self.key_of(|name| name != "loss")
    }

    fn key_of(&self, is_told: fn(&str) -> bool) -> String {
        let mut key = format!(
            "{:?}\n{}\n{}",
            self.measures,
            self.method,
            self.capacity.bits_per_second()
        );
        // Writing to a String cannot fail.
        for (name, value) in self.traits.iter().filter(|(name, _)| is_told(name)) {
            let _ = write!(key, "\n{name}={value:?}");
        }
        for (name, value) in &self.knobs {
            let _ = write!(key, "\n{name:?}:{value:?}");
        }
        key
    }

    /// Returns the value of a knob or a trait.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let knob = self.knobs.get(name).map(Knob::to_string);
        knob.or_else(|| self.traits.get(name).cloned())
    }

    /// Returns the names of all knobs and traits.
    fn names(&self) -> BTreeSet<&str> {
        let knobs = self.knobs.keys().map(String::as_str);
        knobs.chain(self.traits.keys().copied()).collect()
    }

    /// Returns the congestion control of the streams: the one set as a knob, else the one recorded
    /// for the path. Returns `None` for a copy by longhaul without this knob, because longhaul then
    /// chooses automatically.
    pub(crate) fn governor(&self) -> Option<String> {
        let chooses = self.measures == Measures::Transfer && self.method == "longhaul";
        let set = self.knobs.get("congestion").map(Knob::to_string);
        set.or_else(|| self.traits.get("congestion").filter(|_| !chooses).cloned())
    }

    /// Returns the value of a knob that is a count.
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.knobs.get(name) {
            Some(Knob::Count(count)) => Some(*count),
            _ => None,
        }
    }
}

/// The values of one run that figures need.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Index in [`Runs::configurations`].
    pub configuration: usize,
    /// Round-trip time of the path.
    pub rtt: Duration,
    /// Goodput of the run.
    pub goodput: BitRate,
    /// Number of the round in which the run was interleaved. It is unique across files and sweeps,
    /// because rounds of different files or sweeps were not interleaved with each other.
    pub round: Option<u64>,
    /// Status of the run. Figures include only completed runs.
    pub ended: Ended,
    /// Number of retransmitted segments, if it was recorded.
    pub retransmitted_segments: Option<u64>,
    /// CPU seconds of both ends per 10^9 bytes, if they were recorded.
    pub cpu_seconds_per_gigabyte: Option<f64>,
    /// True if the run repeats a configuration to select the fastest of the sweep. Profiles exclude
    /// it.
    pub again: bool,
    /// Number of the file that contains the record.
    pub file: usize,
    /// Name of the file of samples, relative to the directory of the record's file.
    pub sidecar: Option<Box<str>>,
}

/// True if two doubts are of the same kind and differ only in numbers. Two `DifferentReference`
/// doubts must also have the same text before the first digit.
fn is_alike(one: &Doubt, two: &Doubt) -> bool {
    match (one, two) {
        (Doubt::DifferentReference { what: one }, Doubt::DifferentReference { what: two }) => {
            // Compares the texts up to the first digit.
            let what = |text: &str| text.find(|c: char| c.is_ascii_digit());
            let [one, two] = [one, two].map(|text| &text[..what(text).unwrap_or(text.len())]);
            one == two
        }
        _ => std::mem::discriminant(one) == std::mem::discriminant(two),
    }
}

/// A doubt and the number of runs with the same kind of doubt.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedDoubt {
    /// The first doubt of its kind.
    pub doubt: Doubt,
    /// Number of runs.
    pub runs: u64,
}

/// Utilisation of a layer in each run, 0 to 1, by round-trip time.
pub type LayerUses = BTreeMap<Duration, Vec<f64>>;

/// The runs from any number of files.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    configurations: Vec<Configuration>,
    by_key: HashMap<String, usize>,
    runs: Vec<Run>,
    doubts: Vec<Vec<CountedDoubt>>,
    layers: Vec<BTreeMap<String, LayerUses>>,
    seen: Seen,
    rounds: HashMap<(usize, String, u64), u64>,
    /// Size of the data of a configuration's first run at each round-trip time.
    sizes: HashMap<(usize, Duration), ByteCount>,
    warm_ups: u64,
    scope: Scope,
}

impl Runs {
    /// Adds a run, if there is only one file.
    ///
    /// # Errors
    ///
    /// The same as for [`Runs::add_of`].
    pub fn add(&mut self, record: RunRecord) -> Result<(), Fault> {
        self.add_of(0, record)
    }

    /// Adds a run of a file. Each file has its own number, and all runs of a file must be added
    /// before those of the next. A warm-up is only counted.
    ///
    /// # Errors
    ///
    /// If the run was added before (see [`Seen`]), because it would be counted twice.
    pub fn add_of(&mut self, file: usize, record: RunRecord) -> Result<(), Fault> {
        self.seen.add(file, &record)?;
        if record.run.warm_up {
            self.warm_ups += 1;
            return Ok(());
        }
        self.scope.add(&record);
        let configuration = self.intern(Configuration::of(&record));
        let known = &self.layers[configuration];
        let layers = record.layers.iter();
        let new = layers.filter(|layer| !known.contains_key(&layer.layer));
        if known.len() + new.count() > MOST_LAYERS {
            let text = format!("more than {MOST_LAYERS} layers of one configuration");
            return Err(Fault::Malformed(text));
        }
        let cpu_seconds_per_gigabyte = record.cpu_seconds_per_gigabyte();
        let own = record.dataset.size;
        let others = *self
            .sizes
            .entry((configuration, record.path.rtt))
            .or_insert(own);
        let differs = (others != own).then_some(Doubt::DifferentData {
            bytes: own.0,
            others_bytes: others.0,
        });
        let mut doubts: Vec<Doubt> = Vec::new();
        for doubt in record.doubts.into_iter().chain(differs) {
            // Counts each kind of doubt at most once for a run.
            if !doubts.iter().any(|known| is_alike(known, &doubt)) {
                doubts.push(doubt);
            }
        }
        for doubt in doubts {
            self.doubt(configuration, doubt);
        }
        // Uses the same condition as a profile.
        let counts = record.outcome.ended == Ended::Done && !record.run.again;
        for layer in record.layers.into_iter().filter(|_| counts) {
            let uses = self.layers[configuration].entry(layer.layer).or_default();
            let of_rtt = uses.entry(record.path.rtt).or_default();
            of_rtt.push(layer.utilisation);
        }
        let round = record.run.round.map(|round| {
            let next = self.rounds.len() as u64;
            let key = (file, record.run.sweep, round);
            *self.rounds.entry(key).or_insert(next)
        });
        self.runs.push(Run {
            configuration,
            rtt: record.path.rtt,
            goodput: record.outcome.goodput,
            round,
            ended: record.outcome.ended,
            retransmitted_segments: record.outcome.retransmitted_segments,
            cpu_seconds_per_gigabyte,
            again: record.run.again,
            file,
            sidecar: record.samples.map(|sidecar| sidecar.file.into_boxed_str()),
        });
        Ok(())
    }

    fn intern(&mut self, configuration: Configuration) -> usize {
        match self.by_key.entry(configuration.key()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                new.insert(self.configurations.len());
                self.configurations.push(configuration);
                self.doubts.push(Vec::new());
                self.layers.push(BTreeMap::new());
                self.configurations.len() - 1
            }
        }
    }

    fn doubt(&mut self, configuration: usize, doubt: Doubt) {
        let doubts = &mut self.doubts[configuration];
        let known = doubts
            .iter_mut()
            .find(|known| is_alike(&known.doubt, &doubt));
        match known {
            Some(known) => known.runs += 1,
            None => doubts.push(CountedDoubt { doubt, runs: 1 }),
        }
    }

    /// Returns all configurations, in the order of first appearance.
    pub fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// Returns all runs except warm-ups, in the order of addition.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the doubts in the records of a configuration.
    pub fn doubts(&self, configuration: usize) -> &[CountedDoubt] {
        self.doubts.get(configuration).map_or(&[], Vec::as_slice)
    }

    /// Returns the utilisation of each layer in the completed runs of a configuration, by name.
    pub fn layers(&self, configuration: usize) -> impl Iterator<Item = (&str, &LayerUses)> {
        let layers = self.layers.get(configuration).into_iter().flatten();
        layers.map(|(name, uses)| (name.as_str(), uses))
    }

    /// Returns the size of a configuration's data at a round-trip time, if it is known.
    pub(crate) fn size_of_data(&self, configuration: usize, rtt: Duration) -> Option<ByteCount> {
        let known = self.sizes.get(&(configuration, rtt)).copied();
        known.filter(|size| size.0 > 0)
    }

    /// Returns the scope of the runs.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the number of warm-ups.
    pub fn warm_ups(&self) -> u64 {
        self.warm_ups
    }

    /// Returns a short name for each configuration: the method, and the properties that distinguish
    /// it from other configurations of the same method and the same kind of throughput.
    pub fn labels(&self) -> Vec<String> {
        let mut methods: BTreeMap<(Measures, &str), Distinctions> = BTreeMap::new();
        let mut capacities: BTreeMap<Measures, (f64, bool)> = BTreeMap::new();
        for configuration in &self.configurations {
            let Configuration {
                measures, method, ..
            } = configuration;
            let alike = methods.entry((*measures, method)).or_default();
            alike.add(configuration);
            let own = configuration.capacity.bits_per_second();
            let (first, differ) = capacities.entry(*measures).or_insert((own, false));
            *differ |= own != *first;
        }
        let label = |configuration: &Configuration| {
            let mut label = configuration.method.clone();
            let alike = methods.get(&(configuration.measures, configuration.method.as_str()));
            let told = |name: &&str| alike.is_some_and(|alike| alike.differ_in(name));
            for name in configuration.names().into_iter().filter(told) {
                if let Some(value) = configuration.value(name) {
                    let _ = write!(label, " {name}={value}");
                }
            }
            let several = capacities.get(&configuration.measures);
            if several.is_some_and(|(_, differ)| *differ) {
                let _ = write!(label, " {}", configuration.capacity);
            }
            label
        };
        let labels = self.configurations.iter().map(label).collect();
        let labels = told_apart(labels, |place| {
            let capacity = self.configurations[place].capacity;
            format!("({} bit/s)", capacity.bits_per_second())
        });
        told_apart(labels, |place| format!("#{place}"))
    }
}

/// Appends a text to labels that are not unique. Figures identify lines by their labels.
fn told_apart(labels: Vec<String>, more: impl Fn(usize) -> String) -> Vec<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for label in &labels {
        *counts.entry(label.clone()).or_default() += 1;
    }
    let each = labels.into_iter().enumerate();
    each.map(|(place, label)| match counts.get(&label) {
        Some(2..) => format!("{label} {}", more(place)),
        _ => label,
    })
    .collect()
}

/// The properties in which configurations of one method with the same kind of throughput differ.
#[derive(Default)]
struct Distinctions<'a> {
    configurations: usize,
    /// For each knob and trait: the first value, the number of configurations with this knob or
    /// trait, and true if other values differ.
    names: BTreeMap<&'a str, (String, usize, bool)>,
}

impl<'a> Distinctions<'a> {
    fn add(&mut self, configuration: &'a Configuration) {
        self.configurations += 1;
        for name in configuration.names() {
            let Some(value) = configuration.value(name) else {
                continue;
            };
            let known = self.names.entry(name);
            let (first, count, differ) = known.or_insert_with(|| (value.clone(), 0, false));
            *count += 1;
            *differ |= *first != value;
        }
    }

    fn differ_in(&self, name: &str) -> bool {
        let known = self.names.get(name);
        known.is_some_and(|(_, count, differ)| *differ || *count < self.configurations)
    }
}
