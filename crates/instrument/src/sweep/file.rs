//! The sweep file: TOML, described in `docs/sweep.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_measure::record::{Knob, Measures};
use longhaul_system::toml_errors;
use longhaul_units::{ByteCount, parse_share, parse_span};
use serde::{Deserialize, Deserializer};

use super::content::Content;

/// Maximum size of a file in bytes. Sweep files have a few kilobytes.
const MOST_BYTES: u64 = 1 << 20;

/// Maximum number of values per key.
const MOST_VALUES: usize = 256;

/// A sweep file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SweepFile {
    /// Name of the sweep and of its records.
    pub name: String,
    /// Purpose of the sweep.
    #[serde(default)]
    pub about: String,
    /// Number of repetitions of each configuration, 1 to 10,000.
    #[serde(default = "five")]
    pub repetitions: u64,
    /// Number of additional repetitions of the three fastest configurations of each path,
    /// 0 to 10,000.
    #[serde(default)]
    pub again: u64,
    /// Number of warm-up runs of each method and of each dataset. They are recorded but
    /// not counted.
    #[serde(default = "one")]
    pub warm_up: u64,
    /// Seed of the order of runs and of the lab's random events.
    #[serde(default = "one")]
    pub seed: u64,
    /// Maximum duration of a run.
    #[serde(default = "two_minutes", deserialize_with = "span")]
    pub cap: Duration,
    /// Interval of samples of the streams. Zero means no samples.
    #[serde(default = "quarter_second", deserialize_with = "span")]
    pub samples: Duration,
    /// Paths of the runs.
    pub paths: Vec<Axes>,
    /// Kernel parameters of the hosts.
    #[serde(default)]
    pub sysctls: Vec<SysctlSet>,
    /// Locations of the data.
    #[serde(default)]
    pub storage: Vec<Storage>,
    /// Background traffic.
    #[serde(default)]
    pub cross: Vec<Cross>,
    /// Datasets.
    pub data: Vec<Data>,
    /// Methods that transfer the data.
    #[serde(default)]
    pub methods: Vec<Method>,
    /// Name of another file with methods, in the same directory.
    include: Option<PathBuf>,
    /// Names of the methods that are used from the included file.
    #[serde(default, rename = "use")]
    used: Vec<String>,
    /// Settings that select paths.
    #[serde(skip)]
    chosen: Vec<(String, String)>,
}

/// An included file, which contains methods only.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Included {
    methods: Vec<Method>,
}

/// Settings of paths. All combinations of the values are used.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Axes(BTreeMap<String, OneOrMany>);

/// One value or a list of values.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Scalar),
    Many(Vec<Scalar>),
}

/// A TOML value.
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

/// Returns all combinations of the values of the names.
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
    /// Returns all paths as settings by name.
    pub fn points(&self) -> Vec<BTreeMap<String, String>> {
        multiply(&self.0, Scalar::text)
    }
}

/// A named set of kernel parameters of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SysctlSet {
    /// Name of the set, the knob `sysctls` of a record.
    pub name: String,
    /// Parameters of the lab's hosts in the form of `--sysctl`.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Parameters of the whole machine in the form of `--host-sysctl`.
    #[serde(default)]
    pub machine: Vec<String>,
}

/// A named location of data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Storage {
    /// Name of the location, the knob `storage` of a record.
    pub name: String,
    /// Directory for sources [the sweep's own].
    pub source: Option<PathBuf>,
    /// Directory for destinations [the sweep's own].
    pub destination: Option<PathBuf>,
    /// Storage of the lab in the form of `--storage`.
    pub lab: Option<String>,
}

/// Named background traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cross {
    /// Name of the traffic, the knob `cross` of a record.
    pub name: String,
    /// Number of background TCP streams, 0 to 256.
    #[serde(default)]
    pub streams: u16,
    /// Sending time and pause of the streams, for example `2s/1s`.
    pub on_off: Option<String>,
    /// Methods that run at the same time, each with its own destination.
    #[serde(default)]
    pub beside: Vec<String>,
}

/// A named dataset.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Data {
    /// Name of the dataset.
    pub name: String,
    /// Number of files, 1 to 10,000,000. Sizes are distributed evenly from `smallest` to
    /// `largest`.
    #[serde(default = "one")]
    pub files: u64,
    /// Size of the smallest file in bytes.
    pub smallest: Option<Size>,
    /// Size of the largest file in bytes.
    pub largest: Option<Size>,
    /// Alternative to sizes: the total size is the data that the path carries in this
    /// time. The path's own `link-time` takes precedence.
    #[serde(default, deserialize_with = "span_if_any")]
    pub link_time: Option<Duration>,
    /// Content of the files.
    #[serde(default)]
    pub content: Content,
}

/// A size in bytes, written as `4GiB`.
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

/// A method that transfers data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Method {
    /// Name of the method.
    pub name: String,
    /// If true, the method is this longhaul and has no `command`.
    #[serde(default)]
    pub longhaul: bool,
    /// Additional options of `longhaul cp`, or the value of `$SWEEP_OPTIONS` for a
    /// command.
    #[serde(default)]
    pub options: Vec<String>,
    /// Additional options of `longhaul serve`.
    #[serde(default)]
    pub serve_options: Vec<String>,
    /// Parameters, of which all combinations of values are used: `--NAME VALUE` for
    /// longhaul, `$KNOB_NAME` for a command.
    #[serde(default)]
    knobs: BTreeMap<String, OneOrMany>,
    /// Shell command on the sending host, or on the receiving host if `pulls` is true.
    pub command: Option<String>,
    /// Shell command on the other host that runs at the same time.
    pub server: Option<String>,
    /// Shell command that runs once before the first run.
    pub setup: Option<String>,
    /// Programs that must be installed; otherwise the method is skipped.
    #[serde(default)]
    pub needs: Vec<String>,
    /// If true, the command runs on the receiving host and the server on the sending
    /// host. Data still move from A to B.
    #[serde(default)]
    pub pulls: bool,
    /// Command whose first line of output is the version.
    pub version: Option<String>,
    /// Quantity that the throughput measures.
    #[serde(default = "transfer")]
    pub measures: Measures,
    /// Format of the method's own result on standard output, if that counts.
    pub reads: Option<Reads>,
    /// Connection to the other end: daemon or ssh.
    #[serde(default)]
    pub endpoint: String,
    /// Protection of the data: tls, ssh or clear.
    #[serde(default)]
    pub security: String,
    /// Fraction of the data that the method moves, more than 0 and at most 1, written as
    /// `50%` or `0.5`. Slow methods can move less.
    #[serde(default = "whole", deserialize_with = "share")]
    pub share: f64,
    /// Number of repetitions, if it differs from that of the sweep.
    pub repetitions: Option<u64>,
    /// Settings of the paths that the method uses; empty means all paths.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    /// If true, the method makes data durable before it ends. For other methods, the time
    /// to do so is added.
    #[serde(default)]
    pub durable: bool,
    /// If true, the method is not measured and runs only in the background of others.
    #[serde(default)]
    pub only_beside: bool,
}

impl Method {
    /// Returns all combinations of parameters.
    pub fn knob_sets(&self) -> Vec<BTreeMap<String, Knob>> {
        multiply(&self.knobs, Scalar::knob)
    }
}

/// Format of a method's own result.
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

/// Reasons why a sweep file cannot be used.
#[derive(Debug)]
pub enum Unread {
    /// The file cannot be opened or read.
    Closed(String),
    /// The content of the file is invalid.
    Wrong(String),
}

/// Reads and checks a sweep file.
///
/// # Errors
///
/// Returns a sentence with the file's name and the problem.
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
            "{}: a sweep file has at most {MOST_BYTES} bytes",
            path.display()
        );
        return Err(Unread::Wrong(text));
    }
    std::fs::read_to_string(path).map_err(closed)
}

fn decode(text: &str) -> Result<SweepFile, String> {
    toml::from_str(text).map_err(|error| toml_errors::in_one_line(text, &error))
}

/// Parses a sweep without included files.
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
                    "the name \"{name}\" of {what} is invalid: use 1 to 64 letters, digits, - _ ."
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
                    "there are {count} {what}: write 1 to {MOST_VALUES}"
                ));
            }
        }
        if !(1..=10_000).contains(&self.repetitions) {
            return Err("repetitions must be from 1 to 10000".to_owned());
        }
        if self.again > 10_000 {
            return Err("again must be from 0 to 10000".to_owned());
        }
        self.check_lists()?;
        self.data.iter().try_for_each(Data::check)?;
        self.methods.iter().try_for_each(Method::check)
    }

    /// Selects methods by name (empty means all) and limits the number of repetitions.
    ///
    /// # Errors
    ///
    /// Returns an error if a method does not exist.
    pub fn choose(&mut self, methods: &[String], most: Option<u64>) -> Result<(), String> {
        let known = |name: &&String| !self.methods.iter().any(|m| &m.name == *name);
        if let Some(name) = methods.iter().find(known) {
            return Err(format!("there is no method \"{name}\""));
        }
        for method in &mut self.methods {
            // An unselected method may still run in the background of others.
            method.only_beside |= !methods.is_empty() && !methods.contains(&method.name);
            if let (Some(most), Some(own)) = (most, &mut method.repetitions) {
                *own = most.min(*own);
            }
        }
        self.repetitions = most.unwrap_or(u64::MAX).min(self.repetitions);
        self.again = most.unwrap_or(u64::MAX).min(self.again);
        Ok(())
    }

    /// Selects datasets by name (empty means all).
    ///
    /// # Errors
    ///
    /// Returns an error if a dataset does not exist.
    pub fn choose_data(&mut self, names: &[String]) -> Result<(), String> {
        let known = |name: &&String| !self.data.iter().any(|data| &data.name == *name);
        if let Some(name) = names.iter().find(known) {
            return Err(format!("there is no dataset \"{name}\""));
        }
        if !names.is_empty() {
            self.data.retain(|data| names.contains(&data.name));
        }
        Ok(())
    }

    /// Selects paths by settings. Of several values of one key, any may match.
    ///
    /// # Errors
    ///
    /// Returns an error if a text has no `=`.
    pub fn choose_paths(&mut self, settings: &[String]) -> Result<(), String> {
        for text in settings {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| format!("\"{text}\" is not a setting: write KEY=VALUE"))?;
            self.chosen.push((key.to_owned(), value.to_owned()));
        }
        Ok(())
    }

    /// Returns the selected paths as settings by name.
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
                return Err(format!("\"{name}\" must have 1 to {MOST_VALUES} values"));
            }
        }
        let known = |name: &String| self.methods.iter().any(|method| &method.name == name);
        if let Some(name) = self.used.iter().find(|name| !known(name)) {
            return Err(format!("the included file has no method \"{name}\""));
        }
        for beside in self.cross.iter().flat_map(|cross| &cross.beside) {
            if !known(beside) {
                return Err(format!(
                    "there is no method \"{beside}\" to run in the background"
                ));
            }
        }
        for (place, method) in self.methods.iter().enumerate() {
            if self.methods[..place].iter().any(|m| m.name == method.name) {
                return Err(format!("two methods have the name \"{}\"", method.name));
            }
        }
        Ok(())
    }
}

impl Data {
    fn check(&self) -> Result<(), String> {
        let wrong = |text: &str| Err(format!("data \"{}\": {text}", self.name));
        if !(1..=10_000_000).contains(&self.files) {
            return wrong("files must be from 1 to 10000000");
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
            return wrong("pulls needs a command: longhaul = true always sends");
        }
        if !(self.share > 0.0 && self.share <= 1.0) {
            return wrong("share must be more than 0 and at most 100%");
        }
        if self.reads.is_some() && self.measures != Measures::Memory {
            return wrong("reads needs measures = \"memory\"");
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
    fn errors_name_the_invalid_setting() {
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
