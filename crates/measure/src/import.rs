//! Makes records of runs that other instruments measured.
//!
//! A file has neither the capacity nor the idle round-trip time of its path, only the round-trip
//! times that TCP saw under load. So runs between the same two hosts with nearly equal round-trip
//! times are assigned to one path. Unless given, the path's round-trip time is the least that any
//! of these runs saw, and its capacity is the highest rate of any of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

use crate::doubt::Doubt;
use crate::record::{PathRecord, RunIdentity, RunRecord};
use crate::sources::{Direction, ExternalRun};

/// Prefix of the identity of each imported record.
pub const MARK: &str = "import-";

/// Round-trip times belong to different paths if they differ by more than this share and by more
/// than `SAME_RTT`, which allows for the scheduling of threads.
const SAME_RTT_SHARE: f64 = 0.1;
const SAME_RTT: Duration = Duration::from_micros(500);

/// Maximum length of a file name in an identity, in characters.
const LONGEST_NAME: usize = 100;

/// Facts about the runs that are given beside their files.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Round-trip time of the path.
    pub rtt: Option<Duration>,
    /// Rate of TCP payload that the path can carry.
    pub capacity: Option<BitRate>,
    /// Name of the path.
    pub path: Option<String>,
    /// Duration of a run whose file has no duration.
    pub time: Option<Duration>,
}

/// A run and the file that it was read from.
#[derive(Clone, Debug)]
pub struct Found {
    /// Name of the file.
    pub file: String,
    /// The parsed run.
    pub run: ExternalRun,
}

/// A run that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Name of the run's file.
    pub file: String,
    /// Reason why the run cannot be imported.
    pub why: String,
    /// True if the run has no round-trip time and the other runs between its hosts have different
    /// ones. The result itself is valid, so the other runs are imported.
    pub is_unpaired: bool,
}

/// The imported runs of one path with the same round-trip time in their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedPath {
    /// Greatest round-trip time that one of the runs saw.
    pub greatest: Duration,
    /// Number of runs.
    pub runs: usize,
}

/// The result of an import.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Records in the order of their runs, each with the name of its file.
    pub records: Vec<(String, RunRecord)>,
    /// Paths of the records, by name and round-trip time.
    pub paths: BTreeMap<(String, Duration), ImportedPath>,
    /// Runs that cannot be imported.
    pub left: Vec<Left>,
}

/// Names of the two hosts of a path, independent of the direction of the data. The host that
/// started the run comes first.
type Hosts = [String; 2];

/// Returns the hosts of each run. A run that did not reach the other host does not name it. If all
/// other runs of its host are between the same two hosts, these are used. If the path's name is
/// given, all runs belong to that path.
fn hosts(found: &[Found], given: &Given) -> Vec<Hosts> {
    let own = |found: &Found| match given.path {
        Some(_) => Hosts::default(),
        None => [found.run.near.name.clone(), found.run.far.name.clone()],
    };
    let all: Vec<Hosts> = found.iter().map(own).collect();
    let whole = all.iter().filter(|[_, far]| !far.is_empty());
    let known: BTreeSet<Hosts> = whole.cloned().collect();
    let completed = |hosts: Hosts| {
        let [near, far] = &hosts;
        let mut others = known
            .iter()
            .filter(|[other, _]| near.is_empty() || other == near);
        match (far.is_empty(), others.next(), others.next()) {
            (true, Some(only), None) => only.clone(),
            _ => hosts,
        }
    };
    all.into_iter().map(completed).collect()
}

/// Makes records of runs.
pub fn import(found: Vec<Found>, given: &Given) -> Imported {
    let found: Vec<Found> = found.into_iter().map(|found| timed(found, given)).collect();
    let hosts = hosts(&found, given);
    let steps = round_trips(&found, &hosts, given);
    let mut capacities: BTreeMap<String, BitRate> = BTreeMap::new();
    for (run, hosts) in found.iter().map(|found| &found.run).zip(&hosts) {
        let carried = BitRate::from_transfer(run.moved, run.wall);
        let most = capacities.entry(name_of(hosts, run, given)).or_default();
        *most = greater(*most, carried);
    }
    let mut imported = Imported::default();
    let mut ids = Ids::default();
    for (Found { file, run }, hosts) in found.into_iter().zip(hosts) {
        let rtt = steps.get(&hosts).and_then(|steps| round_trip(&run, steps));
        let Some(rtt) = rtt else {
            imported.left.push(unpaired(file, &run));
            continue;
        };
        let made = ids
            .of(&file, &run)
            .and_then(|id| record_of(run, id, (hosts, rtt), given, &capacities));
        match made {
            Ok(record) => {
                imported.count(&record);
                imported.records.push((file, record));
            }
            Err(why) => imported.left.push(Left {
                file,
                why,
                is_unpaired: false,
            }),
        }
    }
    imported
}

fn greater(one: BitRate, other: BitRate) -> BitRate {
    if other > one { other } else { one }
}

/// If the file has only a rate, sets the duration to the given time and computes the number of
/// bytes.
fn timed(mut found: Found, given: &Given) -> Found {
    let run = &mut found.run;
    let rate = run.throughput.bits_per_second();
    if let Some(time) = given.time.filter(|_| run.wall.is_zero() && rate > 0.0) {
        run.wall = time;
        // The conversion saturates. The check of the record then rejects the rate.
        run.moved = ByteCount((rate / 8.0 * time.as_secs_f64()).round() as u64);
    }
    found
}

/// Returns the least round-trip time of each path, in ascending order, for each pair of hosts.
fn round_trips(found: &[Found], hosts: &[Hosts], given: &Given) -> BTreeMap<Hosts, Vec<Duration>> {
    let mut seen: BTreeMap<Hosts, Vec<Duration>> = BTreeMap::new();
    for (Found { run, .. }, hosts) in found.iter().zip(hosts) {
        let own = seen.entry(hosts.clone()).or_default();
        own.extend(given.rtt.or(run.least_rtt).or(run.rtt));
    }
    for rtts in seen.values_mut() {
        rtts.sort_unstable();
        // Compares each round-trip time with the least of its path, not with its predecessor.
        rtts.dedup_by(|next, least| is_same(*least, *next));
    }
    seen
}

fn is_same(least: Duration, other: Duration) -> bool {
    other.saturating_sub(least) <= least.mul_f64(SAME_RTT_SHARE).max(SAME_RTT)
}

/// Returns the round-trip time of a run's path. Returns `None` if the run has no round-trip time
/// and several paths are possible.
fn round_trip(run: &ExternalRun, steps: &[Duration]) -> Option<Duration> {
    match (run.least_rtt.or(run.rtt), steps) {
        (_, [only]) => Some(*only),
        (Some(rtt), steps) => {
            let step = steps.iter().rev().find(|step| **step <= rtt);
            step.or(steps.first()).copied()
        }
        // A failed run is not part of any figure.
        (None, steps) if !run.error.is_empty() => steps.first().copied(),
        // The file has no round-trip time, and several are possible.
        (None, _) => None,
    }
}

/// Returns the name of a path in the direction of a run.
fn name_of(hosts: &Hosts, run: &ExternalRun, given: &Given) -> String {
    let is_back = run.direction == Some(Direction::From);
    if let Some(path) = &given.path {
        return if is_back {
            format!("back from {path}")
        } else {
            path.clone()
        };
    }
    let [from, to] = match (hosts, is_back) {
        ([near, far], false) => [near, far],
        ([near, far], true) => [far, near],
    };
    match (from.is_empty(), to.is_empty()) {
        (false, false) => format!("{from} to {to}"),
        (true, true) if is_back => "back".to_owned(),
        (true, true) => String::new(),
        (false, true) => format!("from {from}"),
        (true, false) => format!("to {to}"),
    }
}

/// Returns the error message of a failed run, as a prefix for further errors.
fn said(run: &ExternalRun) -> String {
    if run.error.is_empty() {
        String::new()
    } else {
        format!("{} failed: {}; ", run.tool, run.error)
    }
}

fn unpaired(file: String, run: &ExternalRun) -> Left {
    let why = format!(
        "{}its round-trip time is missing, and other runs between its hosts do not determine it: \
        give it with --rtt",
        said(run)
    );
    Left {
        file,
        why,
        is_unpaired: true,
    }
}

/// Returns a doubt if the round-trip time was measured while the run filled the path. iperf3
/// samples only TCP's smoothed round-trip time, so its minimum may include a queue.
fn doubt_of_round_trip(run: &ExternalRun, rtt: Duration, given: &Given) -> Option<Doubt> {
    let is_idle = run.least_rtt.is_some() && run.tool != "iperf3";
    let is_doubtful = given.rtt.is_none() && run.error.is_empty() && !is_idle;
    is_doubtful.then_some(Doubt::LoadedRoundTrip {
        rtt_seconds: rtt.as_secs_f64(),
    })
}

fn record_of(
    mut run: ExternalRun,
    id: String,
    (hosts, rtt): (Hosts, Duration),
    given: &Given,
    capacities: &BTreeMap<String, BitRate>,
) -> Result<RunRecord, String> {
    let said = said(&run);
    run.doubts.extend(doubt_of_round_trip(&run, rtt, given));
    if run.error.is_empty() {
        let doubt = Doubt::of_quantities(run.moved, run.wall, run.throughput);
        run.doubts.extend(doubt);
    }
    if run.wall.is_zero() && run.error.is_empty() {
        let text = "it has neither a duration nor a number of bytes: give --time";
        return Err(text.to_owned());
    }
    let name = name_of(&hosts, &run, given);
    let own = given.capacity.or_else(|| capacities.get(&name).copied());
    let own = own.filter(|capacity| capacity.bits_per_second() > 0.0);
    // If all runs of a path failed, uses the highest capacity of the other paths.
    let most = || {
        capacities
            .values()
            .copied()
            .fold(BitRate::default(), greater)
    };
    let capacity = own.unwrap_or_else(most);
    if capacity.bits_per_second() <= 0.0 {
        return Err(format!(
            "{said}the capacity of the path is unknown: give it with --capacity"
        ));
    }
    let path = PathRecord {
        name,
        rtt,
        capacity,
        ..PathRecord::default()
    };
    let identity = RunIdentity {
        id,
        started: run.started.clone(),
        ..RunIdentity::default()
    };
    let record = run.into_record(identity, path);
    // Checks the record here, where the name of its file is known.
    match record.to_line() {
        Ok(_) => Ok(record),
        Err(error) => Err(error.to_string()),
    }
}

/// Generates the identities of the records of an import.
#[derive(Default)]
struct Ids {
    /// File of each run, by the identity that the instrument gave the run.
    told: HashMap<String, String>,
    /// Number of runs of each file without such an identity.
    of_file: HashMap<String, u64>,
    taken: HashSet<String>,
}

impl Ids {
    /// Returns an identity made of the instrument's own name of the run, or else of the file's name
    /// and a number.
    fn of(&mut self, file: &str, run: &ExternalRun) -> Result<String, String> {
        if !run.id.is_empty() {
            let id = format!("{MARK}{}-{}", run.tool, run.id);
            if let Some(before) = self.told.insert(id.clone(), file.to_owned()) {
                return Err(format!(
                    "{before} contains the same run: give each run once"
                ));
            }
            return Ok(id);
        }
        let name = Path::new(file).file_name().unwrap_or_default();
        let name: String = name.to_string_lossy().chars().take(LONGEST_NAME).collect();
        let name = name.replace(char::is_control, " ");
        let number = self.of_file.entry(name.clone()).or_default();
        loop {
            *number += 1;
            let id = match *number {
                1 => format!("{MARK}{name}"),
                number => format!("{MARK}{name}-{number}"),
            };
            // Another file can have this name.
            if self.taken.insert(id.clone()) {
                return Ok(id);
            }
        }
    }
}

impl Imported {
    fn count(&mut self, record: &RunRecord) {
        let rtt = record.path.rtt;
        let said = |name| record.outcome.said.get(name);
        let seen = said("least_rtt_seconds").or_else(|| said("rtt_seconds"));
        let seen = seen.and_then(|seconds| Duration::try_from_secs_f64(*seconds).ok());
        let seen = seen.unwrap_or(rtt).max(rtt);
        let key = (record.path.name.clone(), rtt);
        let path = self.paths.entry(key).or_default();
        path.runs += 1;
        path.greatest = path.greatest.max(seen);
    }
}
