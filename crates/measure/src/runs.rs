//! Many records, reduced to what figures are made of: one to two hundred bytes a
//! run, whatever its record says beside.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

use crate::doubt::Doubt;
use crate::record::{Ended, Fault, Knob, Measures, RunRecord, Seen};
use crate::scope::Scope;

/// The most layers that all runs of a configuration have: longhaul has eight.
const MOST_LAYERS: usize = 64;

/// What distinguishes runs from one another beside their round-trip time: one
/// configuration has one profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// What its throughputs are a measure of.
    pub measures: Measures,
    /// What moved the data.
    pub method: String,
    /// What was set.
    pub knobs: BTreeMap<String, Knob>,
    /// The path's capacity.
    pub capacity: BitRate,
    /// The share of packets that the path loses at random, 0 to 1; also among the traits.
    pub loss: f64,
    /// All other traits by name: loss, congestion control, security, endpoint,
    /// dataset; those that are empty are left out.
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

    /// What two configurations differ in if these differ.
    fn key(&self) -> String {
        self.key_of(|_| true)
    }

    /// The same of what differs in nothing but the path's loss.
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
        // Writing to a string does not fail.
        for (name, value) in self.traits.iter().filter(|(name, _)| is_told(name)) {
            let _ = write!(key, "\n{name}={value:?}");
        }
        for (name, value) in &self.knobs {
            let _ = write!(key, "\n{name:?}:{value:?}");
        }
        key
    }

    /// A knob or trait by name.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let knob = self.knobs.get(name).map(Knob::to_string);
        knob.or_else(|| self.traits.get(name).cloned())
    }

    /// Its knobs and traits.
    fn names(&self) -> BTreeSet<&str> {
        let knobs = self.knobs.keys().map(String::as_str);
        knobs.chain(self.traits.keys().copied()).collect()
    }

    /// What governed the streams' windows: what was set for them, else what is recorded of
    /// their path; not of a copy by longhaul that was not told, as it chooses by itself.
    pub(crate) fn governor(&self) -> Option<String> {
        let chooses = self.measures == Measures::Transfer && self.method == "longhaul";
        let set = self.knobs.get("congestion").map(Knob::to_string);
        set.or_else(|| self.traits.get("congestion").filter(|_| !chooses).cloned())
    }

    /// A knob that counts.
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.knobs.get(name) {
            Some(Knob::Count(count)) => Some(*count),
            _ => None,
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its configuration's place in [`Runs::configurations`].
    pub configuration: usize,
    /// Its path's round-trip time.
    pub rtt: Duration,
    /// Its goodput.
    pub goodput: BitRate,
    /// The round it was interleaved in: another number than any round of another file or
    /// sweep has, as what ran in these was not interleaved with it.
    pub round: Option<u64>,
    /// How it ended; only what is done is in a figure.
    pub ended: Ended,
    /// Segments sent again, where it was seen.
    pub retransmitted_segments: Option<u64>,
    /// CPU seconds of both ends for each 10^9 bytes, where it was seen.
    pub cpu_seconds_per_gigabyte: Option<f64>,
    /// Measured again, to decide among the fastest; in no profile.
    pub again: bool,
    /// The file that has its record, by the number it was added with.
    pub file: usize,
    /// Where its samples lie, from there.
    pub sidecar: Option<Box<str>>,
}

/// Whether two doubts are one, with whatever numbers. References differ each in its way.
fn is_alike(one: &Doubt, two: &Doubt) -> bool {
    match (one, two) {
        (Doubt::DifferentReference { what: one }, Doubt::DifferentReference { what: two }) => {
            // In what, up to how much.
            let what = |text: &str| text.find(|c: char| c.is_ascii_digit());
            let [one, two] = [one, two].map(|text| &text[..what(text).unwrap_or(text.len())]);
            one == two
        }
        _ => std::mem::discriminant(one) == std::mem::discriminant(two),
    }
}

/// A doubt with how many runs have one like it.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedDoubt {
    /// The first of its kind.
    pub doubt: Doubt,
    /// How many runs.
    pub runs: u64,
}

/// How busy a layer was in each run, 0 to 1, by round-trip time.
pub type LayerUses = BTreeMap<Duration, Vec<f64>>;

/// Runs read from any number of files.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    configurations: Vec<Configuration>,
    by_key: HashMap<String, usize>,
    runs: Vec<Run>,
    doubts: Vec<Vec<CountedDoubt>>,
    layers: Vec<BTreeMap<String, LayerUses>>,
    seen: Seen,
    rounds: HashMap<(usize, String, u64), u64>,
    /// How large the data of a configuration's first run at a round-trip time were.
    sizes: HashMap<(usize, Duration), ByteCount>,
    warm_ups: u64,
    scope: Scope,
}

impl Runs {
    /// Adds a run of the only file there is.
    ///
    /// # Errors
    ///
    /// As those of [`Runs::add_of`].
    pub fn add(&mut self, record: RunRecord) -> Result<(), Fault> {
        self.add_of(0, record)
    }

    /// Adds a run of a file; files come one after the other, each with a number of its own. A
    /// warm-up is counted and otherwise left out.
    ///
    /// # Errors
    ///
    /// Where it was added before, as [`Seen`] tells: it would count twice.
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
            // A run counts once, however often it was doubted for one thing.
            if !doubts.iter().any(|known| is_alike(known, &doubt)) {
                doubts.push(doubt);
            }
        }
        for doubt in doubts {
            self.doubt(configuration, doubt);
        }
        // As in a profile.
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

    /// Every configuration, in the order first met.
    pub fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// Every run but warm-ups, in the order read.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// What the runs of a configuration were doubted for.
    pub fn doubts(&self, configuration: usize) -> &[CountedDoubt] {
        self.doubts.get(configuration).map_or(&[], Vec::as_slice)
    }

    /// How busy each layer of a configuration was, by name; of runs that are done.
    pub fn layers(&self, configuration: usize) -> impl Iterator<Item = (&str, &LayerUses)> {
        let layers = self.layers.get(configuration).into_iter().flatten();
        layers.map(|(name, uses)| (name.as_str(), uses))
    }

    /// How large a configuration's data were at a round-trip time, where it is known.
    pub(crate) fn size_of_data(&self, configuration: usize, rtt: Duration) -> Option<ByteCount> {
        let known = self.sizes.get(&(configuration, rtt)).copied();
        known.filter(|size| size.0 > 0)
    }

    /// What the runs are of.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// How many warm-ups there were.
    pub fn warm_ups(&self) -> u64 {
        self.warm_ups
    }

    /// A short name for each configuration: its method, and what distinguishes it
    /// from the others that measure the same.
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

/// Labels of which several are the same get something more: figures know lines by them.
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

/// What configurations of one method that measure the same differ in.
#[derive(Default)]
struct Distinctions<'a> {
    configurations: usize,
    /// Of each knob and trait the first value, the number of runs with it, and whether others
    /// differ.
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
