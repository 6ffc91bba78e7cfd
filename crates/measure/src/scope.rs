//! Summarises a set of runs: start times, hosts, paths and data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_units::{ByteCount, microseconds_of, rfc3339};

use crate::analysis::milliseconds;
use crate::record::{HostRecord, Measures, RunRecord};

/// Maximum number of hosts, of paths and of datasets that are kept.
const MOST_KEPT: usize = 100;

/// Maximum number of hosts, of paths and of datasets that are displayed.
const MOST_SHOWN: usize = 6;

/// Maximum number of round-trip times of a path that are displayed one by one.
const MOST_RTTS: usize = 8;

/// The round-trip times and capacities of one path.
#[derive(Clone, Debug, Default)]
struct PathScope {
    rtts: BTreeSet<Duration>,
    /// Formatted capacities.
    capacities: BTreeSet<String>,
}

/// The ranges of the size and the number of files of one dataset.
#[derive(Clone, Copy, Debug)]
struct DataScope {
    least: ByteCount,
    most: ByteCount,
    fewest: u64,
    most_files: u64,
}

/// The summary of any number of runs, without warm-ups.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Earliest and latest start time, in microseconds since 1970.
    began: Option<(i64, i64)>,
    hosts: BTreeSet<String>,
    paths: BTreeMap<String, PathScope>,
    data: BTreeMap<String, DataScope>,
    is_cut: bool,
}

impl Scope {
    /// Adds a run.
    pub(crate) fn add(&mut self, record: &RunRecord) {
        if let Some(at) = microseconds_of(&record.run.started) {
            let (first, last) = self.began.unwrap_or((at, at));
            self.began = Some((first.min(at), last.max(at)));
        }
        for host in [&record.source, &record.destination] {
            let host = described(host);
            if !host.is_empty() && self.has_room(self.hosts.len(), self.hosts.contains(&host)) {
                self.hosts.insert(host);
            }
        }
        self.add_data(record);
        if record.measures == Measures::Storage {
            return;
        }
        let path = &record.path;
        if self.has_room(self.paths.len(), self.paths.contains_key(&path.name)) {
            let known = self.paths.entry(path.name.clone()).or_default();
            if known.rtts.len() < MOST_KEPT {
                known.rtts.insert(path.rtt);
            }
            if known.capacities.len() < MOST_KEPT {
                known.capacities.insert(path.capacity.to_string());
            }
        }
    }

    fn add_data(&mut self, record: &RunRecord) {
        let dataset = &record.dataset;
        let name = match (record.measures, dataset.name.is_empty()) {
            (Measures::Memory, _) => "memory to memory",
            (_, true) => "unnamed",
            (_, false) => &dataset.name,
        };
        let size = match dataset.size.0 {
            0 => record.outcome.moved,
            _ => dataset.size,
        };
        if size.0 == 0 || !self.has_room(self.data.len(), self.data.contains_key(name)) {
            return;
        }
        let own = DataScope {
            least: size,
            most: size,
            fewest: dataset.files,
            most_files: dataset.files,
        };
        let known = self.data.entry(name.to_owned()).or_insert(own);
        known.least = known.least.min(size);
        known.most = known.most.max(size);
        known.fewest = known.fewest.min(dataset.files);
        known.most_files = known.most_files.max(dataset.files);
    }

    fn has_room(&mut self, kept: usize, is_known: bool) -> bool {
        let has_room = is_known || kept < MOST_KEPT;
        self.is_cut |= !has_room;
        has_room
    }

    /// Returns names and texts of one or more lines. Omits facts that no run has.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let began = self.began.map(|(first, last)| {
            let [first, last] = [first, last].map(minute);
            if first == last {
                format!("{first} UTC")
            } else {
                format!("{first} to {last} UTC")
            }
        });
        let paths = self.paths.iter().map(|(name, path)| path.line(name));
        let data = self.data.iter().map(|(name, data)| data.line(name));
        let facts = [
            ("Runs began", began),
            ("Hosts", self.lines(self.hosts.iter().cloned())),
            ("Paths", self.lines(paths)),
            ("Data of a run", self.lines(data)),
        ];
        let known = facts.into_iter();
        known
            .filter_map(|(name, text)| Some((name, text?)))
            .collect()
    }

    fn lines(&self, all: impl Iterator<Item = String>) -> Option<String> {
        let all: Vec<String> = all.collect();
        let mut lines: Vec<String> = all.iter().take(MOST_SHOWN).cloned().collect();
        match all.len().saturating_sub(MOST_SHOWN) {
            0 => {}
            _ if self.is_cut => lines.push("and more".to_owned()),
            more => lines.push(format!("and {more} more")),
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Describes a host as far as its record allows. May return an empty text.
fn described(host: &HostRecord) -> String {
    let mut parts = Vec::new();
    if !host.kernel.is_empty() {
        parts.push(format!("Linux {}", host.kernel));
    }
    if !host.cpu.is_empty() {
        parts.push(host.cpu.clone());
    }
    if host.cores > 0 {
        parts.push(format!("{} cores", host.cores));
    }
    if host.memory.0 > 0 {
        parts.push(format!("{} of memory", host.memory));
    }
    if !host.storage.is_empty() {
        parts.push(host.storage.clone());
    }
    match (host.name.is_empty(), parts.is_empty()) {
        (true, _) => parts.join(", "),
        (false, true) => host.name.clone(),
        (false, false) => format!("{}: {}", host.name, parts.join(", ")),
    }
}

/// Formats a time to the minute.
fn minute(microseconds: i64) -> String {
    let text = rfc3339(microseconds.div_euclid(1_000_000));
    text.replace('T', " ").chars().take(16).collect()
}

impl PathScope {
    fn line(&self, name: &str) -> String {
        let name = if name.is_empty() { "unnamed" } else { name };
        let rtts: Vec<String> = self.rtts.iter().map(|rtt| milliseconds(*rtt)).collect();
        let rtts = match &rtts[..] {
            [first, .., last] if rtts.len() > MOST_RTTS => {
                format!("{} round trips from {first} to {last}", rtts.len())
            }
            rtts => format!("round trip {}", rtts.join(", ")),
        };
        let capacities: Vec<&str> = self.capacities.iter().map(String::as_str).collect();
        let shown = capacities
            .iter()
            .take(MOST_RTTS)
            .copied()
            .collect::<Vec<_>>();
        format!("{name}: {rtts} ms, capacity {}", shown.join(", "))
    }
}

impl DataScope {
    fn line(&self, name: &str) -> String {
        let size = if self.least == self.most {
            self.least.to_string()
        } else {
            format!("{} to {}", self.least, self.most)
        };
        match (self.fewest, self.most_files) {
            (_, 0) => format!("{name}: {size}"),
            (1, 1) => format!("{name}: {size} in 1 file"),
            (fewest, most) if fewest == most => format!("{name}: {size} in {most} files"),
            (fewest, most) => format!("{name}: {size} in {fewest} to {most} files"),
        }
    }
}
