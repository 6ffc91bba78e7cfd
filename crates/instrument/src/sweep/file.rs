//! A sweep as one writes it: TOML, described in `docs/sweep.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_measure::record::{Knob, Measures};
use longhaul_system::toml_errors;
use longhaul_units::{ByteCount, parse_share, parse_span};
use serde::{Deserialize, Deserializer};

use super::content::Content;

/// The largest file that is read: a sweep that one can oversee is a few kilobytes.
const MOST_BYTES: u64 = 1 << 20;

/// Most values that one key multiplies by.
const MOST_VALUES: usize = 256;

/// A sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SweepFile {
    /// Its name: that of its records.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub about: String,
    /// How often each configuration is measured, 1 to 10,000.
    #[serde(default = "five")]
    pub repetitions: u64,
    /// How often the three fastest over each path are measured again at the end, 0 to
    /// 10,000.
    #[serde(default)]
    pub again: u64,
    /// Runs of each method and of each dataset that are thrown away first.
    #[serde(default = "one")]
    pub warm_up: u64,
    /// Of the order, and of what the lab loses.
    #[serde(default = "one")]
    pub seed: u64,
    /// A run is ended after so long.
    #[serde(default = "two_minutes", deserialize_with = "span")]
    pub cap: Duration,
    /// Between two looks at the streams; zero: none.
    #[serde(default = "quarter_second", deserialize_with = "span")]
    pub samples: Duration,
    /// What a run goes over.
    pub paths: Vec<Axes>,
    /// Parameters of the hosts.
    #[serde(default)]
    pub sysctls: Vec<SysctlSet>,
    /// Where data lie.
    #[serde(default)]
    pub storage: Vec<Storage>,
    /// What else uses the path.
    #[serde(default)]
    pub cross: Vec<Cross>,
    /// What is moved.
    pub data: Vec<Data>,
    /// What moves it.
    #[serde(default)]
    pub methods: Vec<Method>,
    /// Another file with methods, beside this one.
    include: Option<PathBuf>,
    /// Of its methods, those to be used, by name.
    #[serde(default, rename = "use")]
    used: Vec<String>,
    /// Settings that paths must have.
    #[serde(skip)]
    chosen: Vec<(String, String)>,
}

/// What is included: methods alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Included {
    methods: Vec<Method>,
}

/// Settings of paths: every value of a key with every value of the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Axes(BTreeMap<String, OneOrMany>);

/// A value, or several to be multiplied.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Scalar),
    Many(Vec<Scalar>),
}

/// What TOML has for values.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl Scalar {
    fn text(&self) -> String {
        match self {
            Scalar::Flag(flag) => flag.to_string(),
            Scalar::Whole(number) => number.to_string(),
            Scalar::Number(number) => number.to_string(),
            Scalar::Text(text) => text.clone(),
        }
    }

    fn knob(&self) -> Knob {
        match self {
            Scalar::Flag(flag) => Knob::Flag(*flag),
            Scalar::Whole(number) => match u64::try_from(*number) {
                Ok(count) => Knob::Count(count),
                Err(_) => Knob::Number(*number as f64),
            },
            Scalar::Number(number) => Knob::Number(*number),
            Scalar::Text(text) => Knob::Word(text.clone()),
        }
    }
}

impl OneOrMany {
    fn values(&self) -> &[Scalar] {
        match self {
            OneOrMany::One(value) => std::slice::from_ref(value),
            OneOrMany::Many(values) => values,
        }
    }
}

/// Every value of each name with every value of the others.
fn multiply<T: Clone>(
    axes: &BTreeMap<String, OneOrMany>,
    read: fn(&Scalar) -> T,
) -> Vec<BTreeMap<String, T>> {
    let mut all = vec![BTreeMap::new()];
    for (name, values) in axes {
        let with = |point: &BTreeMap<String, T>| {
            let mut points = Vec::new();
            for value in values.values() {
                let mut point = point.clone();
                point.insert(name.clone(), read(value));
                points.push(point);
            }
            points
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

impl Axes {
    /// Every path, as settings by name.
    pub fn points(&self) -> Vec<BTreeMap<String, String>> {
        multiply(&self.0, Scalar::text)
    }
}

/// Parameters of hosts under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SysctlSet {
    /// Its name, the knob `sysctls` of a record.
    pub name: String,
    /// Of the lab's hosts, as `--sysctl` takes them.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Of the whole machine, as `--host-sysctl` takes them.
    #[serde(default)]
    pub machine: Vec<String>,
}

/// Where data lie, under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Storage {
    /// Its name, the knob `storage` of a record.
    pub name: String,
    /// A directory for sources [the sweep's own].
    pub source: Option<PathBuf>,
    /// A directory for destinations [the sweep's own].
    pub destination: Option<PathBuf>,
    /// Storage of the lab, as `--storage` takes it.
    pub lab: Option<String>,
}

/// What else uses the path, under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cross {
    /// Its name, the knob `cross` of a record.
    pub name: String,
    /// TCP streams of other hosts, 0 to 256.
    #[serde(default)]
    pub streams: u16,
    /// They send for the first and rest for the second, as 2s/1s.
    pub on_off: Option<String>,
    /// Methods that run meanwhile, each with a destination of its own.
    #[serde(default)]
    pub beside: Vec<String>,
}

/// What is moved, under a name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Data {
    /// Its name.
    pub name: String,
    /// Files; their sizes are spread evenly from `smallest` to `largest`.
    #[serde(default = "one")]
    pub files: u64,
    /// Bytes of the smallest file.
    pub smallest: Option<Size>,
    /// Bytes of the largest file.
    pub largest: Option<Size>,
    /// Instead: as much in all as the path carries in this time. A path's own
    /// `link-time` goes before.
    #[serde(default, deserialize_with = "span_if_any")]
    pub link_time: Option<Duration>,
    /// What the files hold.
    #[serde(default)]
    pub content: Content,
}

/// Bytes, as `4GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        let text = Scalar::deserialize(from)?.text();
        let bytes = text.parse::<ByteCount>();
        bytes
            .map(|bytes| Size(bytes.0))
            .map_err(serde::de::Error::custom)
    }
}

/// What moves it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Method {
    /// Its name.
    pub name: String,
    /// This longhaul itself; then there is no `command`.
    #[serde(default)]
    pub longhaul: bool,
    /// Further options of `longhaul cp`, or what `command` finds in `$SWEEP_OPTIONS`.
    #[serde(default)]
    pub options: Vec<String>,
    /// Further options of `longhaul serve`.
    #[serde(default)]
    pub serve_options: Vec<String>,
    /// What is set, every value with every other: `--NAME VALUE` for longhaul,
    /// `$KNOB_NAME` for a command.
    #[serde(default)]
    knobs: BTreeMap<String, OneOrMany>,
    /// A shell command that runs on the sending host, unless it pulls.
    pub command: Option<String>,
    /// A shell command that runs on the other host meanwhile.
    pub server: Option<String>,
    /// A shell command that runs once, before the first run.
    pub setup: Option<String>,
    /// Programs without which it is skipped.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Its command runs on the receiving host and its server on the sending one: data
    /// are fetched, and still go from A to B.
    #[serde(default)]
    pub pulls: bool,
    /// Prints its version in its first line.
    pub version: Option<String>,
    /// What its throughput is a measure of.
    #[serde(default = "transfer")]
    pub measures: Measures,
    /// Its own result on standard output, where that counts: `iperf3`.
    pub reads: Option<Reads>,
    /// How its other end is reached: daemon, ssh.
    #[serde(default)]
    pub endpoint: String,
    /// How data are secured: tls, ssh, clear.
    #[serde(default)]
    pub security: String,
    /// The share of the data that it moves, above 0 and at most all, as `50%` or `0.5`: slow
    /// methods take as long with less.
    #[serde(default = "whole", deserialize_with = "share")]
    pub share: f64,
    /// How often it is measured, where not as often as others.
    pub repetitions: Option<u64>,
    /// Paths that it is measured over, by settings they must have; all where none are named.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    /// It makes data durable before it ends; of others the time to do so is added.
    #[serde(default)]
    pub durable: bool,
    /// Not measured by itself: it only runs beside others.
    #[serde(default)]
    pub only_beside: bool,
}

impl Method {
    /// Every set of knobs.
    pub fn knob_sets(&self) -> Vec<BTreeMap<String, Knob>> {
        multiply(&self.knobs, Scalar::knob)
    }
}

/// Whose result is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reads {
    /// `iperf3 --json`.
    Iperf3,
}

fn one() -> u64 {
    1
}

fn five() -> u64 {
    5
}

fn whole() -> f64 {
    1.0
}

fn transfer() -> Measures {
    Measures::Transfer
}

fn two_minutes() -> Duration {
    Duration::from_secs(120)
}

fn quarter_second() -> Duration {
    Duration::from_millis(250)
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let text = Scalar::deserialize(from)?.text();
    parse_share(&text).map_err(serde::de::Error::custom)
}

fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = Scalar::deserialize(from)?.text();
    parse_span(&text).map_err(serde::de::Error::custom)
}

fn span_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    span(from).map(Some)
}

/// Why a sweep's file is of no use.
#[derive(Debug)]
pub enum Unread {
    /// It cannot be opened or read.
    Closed(String),
    /// What is in it makes no sense.
    Wrong(String),
}

/// Reads a sweep.
///
/// # Errors
///
/// A sentence with the file's name: what is wrong with it.
pub fn read(path: &Path) -> Result<SweepFile, Unread> {
    let wrong = |error: String| Unread::Wrong(format!("{}: {error}", path.display()));
    let mut file = decode(&read_bounded(path)?).map_err(wrong)?;
    if let Some(include) = &file.include {
        let include = path.with_file_name(include);
        let text = read_bounded(&include)?;
        let included: Included = toml::from_str(&text).map_err(|error| {
            Unread::Wrong(format!(
                "{}: {}",
                include.display(),
                toml_errors::in_one_line(&text, &error)
            ))
        })?;
        let used = |method: &Method| file.used.contains(&method.name);
        file.methods
            .extend(included.methods.into_iter().filter(used));
    }
    file.check().map_err(wrong)?;
    Ok(file)
}

fn read_bounded(path: &Path) -> Result<String, Unread> {
    let closed = |error: std::io::Error| Unread::Closed(format!("{}: {error}", path.display()));
    let found = std::fs::metadata(path).map_err(closed)?;
    if found.len() > MOST_BYTES {
        let text = format!(
            "{}: more than {MOST_BYTES} bytes are no sweep",
            path.display()
        );
        return Err(Unread::Wrong(text));
    }
    std::fs::read_to_string(path).map_err(closed)
}

fn decode(text: &str) -> Result<SweepFile, String> {
    toml::from_str(text).map_err(|error| toml_errors::in_one_line(text, &error))
}

/// The same from text, which includes nothing.
#[cfg(test)]
pub fn parse(text: &str) -> Result<SweepFile, String> {
    let file = decode(text)?;
    file.check()?;
    Ok(file)
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(fits) && !text.starts_with('.')
}

impl SweepFile {
    fn check(&self) -> Result<(), String> {
        let named = [("the sweep", &self.name)];
        let methods = self.methods.iter().map(|m| ("a method", &m.name));
        let data = self.data.iter().map(|d| ("data", &d.name));
        for (what, name) in named.into_iter().chain(methods).chain(data) {
            if !is_name(name) {
                return Err(format!(
                    "{what} cannot be called \"{name}\": write 1 to 64 letters, digits, - _ ."
                ));
            }
        }
        for (what, count) in [
            ("paths", self.paths.len()),
            ("data", self.data.len()),
            ("methods", self.methods.len()),
        ] {
            if !(1..=MOST_VALUES).contains(&count) {
                return Err(format!(
                    "there are {count} {what}: 1 to {MOST_VALUES} make sense"
                ));
            }
        }
        if !(1..=10_000).contains(&self.repetitions) {
            return Err("repetitions are 1 to 10000".to_owned());
        }
        if self.again > 10_000 {
            return Err("again is 0 to 10000".to_owned());
        }
        self.check_lists()?;
        self.data.iter().try_for_each(Data::check)?;
        self.methods.iter().try_for_each(Method::check)
    }

    /// Leaves out what is not asked for.
    ///
    /// # Errors
    ///
    /// Where a method is none.
    pub fn choose(&mut self, methods: &[String], most: Option<u64>) -> Result<(), String> {
        let known = |name: &&String| !self.methods.iter().any(|m| &m.name == *name);
        if let Some(name) = methods.iter().find(known) {
            return Err(format!("there is no method \"{name}\""));
        }
        for method in &mut self.methods {
            // It may still run beside others.
            method.only_beside |= !methods.is_empty() && !methods.contains(&method.name);
            if let (Some(most), Some(own)) = (most, &mut method.repetitions) {
                *own = most.min(*own);
            }
        }
        self.repetitions = most.unwrap_or(u64::MAX).min(self.repetitions);
        self.again = most.unwrap_or(u64::MAX).min(self.again);
        Ok(())
    }

    /// Leaves out data that are not asked for.
    ///
    /// # Errors
    ///
    /// Where a name is of none.
    pub fn choose_data(&mut self, names: &[String]) -> Result<(), String> {
        let known = |name: &&String| !self.data.iter().any(|data| &data.name == *name);
        if let Some(name) = names.iter().find(known) {
            return Err(format!("there are no data \"{name}\""));
        }
        if !names.is_empty() {
            self.data.retain(|data| names.contains(&data.name));
        }
        Ok(())
    }

    /// Leaves out paths without any of these settings.
    ///
    /// # Errors
    ///
    /// Where one is no setting.
    pub fn choose_paths(&mut self, settings: &[String]) -> Result<(), String> {
        for text in settings {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| format!("\"{text}\" is no setting: write KEY=VALUE"))?;
            self.chosen.push((key.to_owned(), value.to_owned()));
        }
        Ok(())
    }

    /// Paths that were not left out, as settings by name.
    pub fn points(&self) -> Vec<BTreeMap<String, String>> {
        let all = self.paths.iter().flat_map(Axes::points);
        let is_chosen = |point: &BTreeMap<String, String>| {
            self.chosen.iter().all(|(key, _)| {
                let mut same = self.chosen.iter().filter(|(other, _)| other == key);
                same.any(|(_, value)| point.get(key) == Some(value))
            })
        };
        all.filter(is_chosen).collect()
    }

    fn check_lists(&self) -> Result<(), String> {
        let paths = self.paths.iter().flat_map(|axes| &axes.0);
        let knobs = self.methods.iter().flat_map(|method| &method.knobs);
        for (name, values) in paths.chain(knobs) {
            if !(1..=MOST_VALUES).contains(&values.values().len()) {
                return Err(format!(
                    "\"{name}\" has no value, or more than {MOST_VALUES}"
                ));
            }
        }
        let known = |name: &String| self.methods.iter().any(|method| &method.name == name);
        if let Some(name) = self.used.iter().find(|name| !known(name)) {
            return Err(format!("what is included has no method \"{name}\""));
        }
        for beside in self.cross.iter().flat_map(|cross| &cross.beside) {
            if !known(beside) {
                return Err(format!(
                    "there is no method \"{beside}\" to run beside others"
                ));
            }
        }
        for (place, method) in self.methods.iter().enumerate() {
            if self.methods[..place].iter().any(|m| m.name == method.name) {
                return Err(format!("two methods are called \"{}\"", method.name));
            }
        }
        Ok(())
    }
}

impl Data {
    fn check(&self) -> Result<(), String> {
        let wrong = |text: &str| Err(format!("data \"{}\": {text}", self.name));
        if !(1..=10_000_000).contains(&self.files) {
            return wrong("files are 1 to 10000000");
        }
        match (self.smallest, self.largest, self.link_time) {
            (Some(smallest), Some(largest), None) if smallest.0 > largest.0 => {
                wrong("the smallest file is larger than the largest")
            }
            (Some(_), Some(_), None) | (None, None, Some(_)) => Ok(()),
            _ => wrong("write smallest and largest, or link-time"),
        }
    }
}

impl Method {
    fn check(&self) -> Result<(), String> {
        let wrong = |text: &str| Err(format!("method \"{}\": {text}", self.name));
        if self.longhaul == self.command.is_some() {
            return wrong("write a command, or longhaul = true");
        }
        if self.longhaul && self.pulls {
            return wrong("longhaul = true sends: pulls is for a command");
        }
        if !(self.share > 0.0 && self.share <= 1.0) {
            return wrong("share is more than 0 and at most 100%");
        }
        if self.reads.is_some() && self.measures != Measures::Memory {
            return wrong("an instrument's own result is of memory: measures = \"memory\"");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        name = "small"
        [[paths]]
        rtt = ["10ms", "20ms"]
        rate = "1gbit"
        [[data]]
        name = "one"
        link-time = "10s"
        [[methods]]
        name = "longhaul"
        longhaul = true
        knobs = { streams = [1, 4], direct = true }
    "#;

    #[test]
    fn lists_multiply() {
        let file = parse(SMALL).unwrap();
        assert_eq!((file.repetitions, file.warm_up), (5, 1));
        let points = file.paths[0].points();
        assert_eq!(points.len(), 2);
        assert_eq!(points[1]["rtt"], "20ms");
        let knobs = file.methods[0].knob_sets();
        assert_eq!(knobs.len(), 2);
        assert_eq!(knobs[1]["streams"], Knob::Count(4));
        assert_eq!(knobs[0]["direct"], Knob::Flag(true));
    }

    #[test]
    fn committed_scenarios_are_sweeps() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/scenarios");
        let mut sweeps = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "toml") {
                let file = read(&path).unwrap();
                let plan = crate::sweep::plan::Plan::of(&file);
                plan.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                assert_eq!(path.file_stem().unwrap().to_str(), Some(file.name.as_str()));
                sweeps += 1;
            }
        }
        assert!(sweeps > 0);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (from, to, part) in [
            ("\"small\"", "\"a/b\"", "a/b"),
            ("link-time = \"10s\"", "files = 3", "link-time"),
            ("longhaul = true", "command = \"x\"\nshare = 2.0", "2%"),
            ("longhaul = true", "longhaul = false", "command"),
            ("longhaul = true", "longhaul = true\npulls = true", "pulls"),
            ("streams = [1, 4]", "streams = []", "streams"),
            (
                "rate =",
                "[[cross]]\nname = \"x\"\nbeside = [\"y\"]\n[[paths]]\nrate =",
                "\"y\"",
            ),
            ("name = \"one\"", "name = \"one\"\nspeed = 1", "speed"),
            (
                "link-time = \"10s\"",
                "smallest = \"5B\"\nlargest = \"4B\"",
                "smallest",
            ),
        ] {
            let error = parse(&SMALL.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
