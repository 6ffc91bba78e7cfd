//! Records of what other instruments measured, without the path at hand.
//!
//! A file gives neither the path's capacity nor its own round trip: it has what TCP saw under
//! load. So runs between the same two hosts with nearly equal round trips are one path. Its round
//! trip is the least that any of them saw, and its capacity the most that any of them carried,
//! unless they are given.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use longhaul_units::{BitRate, ByteCount};

use crate::doubt::Doubt;
use crate::record::{PathRecord, RunIdentity, RunRecord};
use crate::sources::{Direction, ExternalRun};

/// What begins the identity of each record that was imported.
pub const MARK: &str = "import-";

/// Round trips that differ by more than this share, and more than hosts' threads take, are of
/// different paths.
const SAME_RTT_SHARE: f64 = 0.1;
const SAME_RTT: Duration = Duration::from_micros(500);

/// The most characters of a file's name in an identity.
const LONGEST_NAME: usize = 100;

/// What is known of the runs beside their files.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The path's round trip.
    pub rtt: Option<Duration>,
    /// What TCP payload can carry.
    pub capacity: Option<BitRate>,
    /// The path's name.
    pub path: Option<String>,
    /// How long a run took whose file does not say.
    pub time: Option<Duration>,
}

/// A run and its file.
#[derive(Clone, Debug)]
pub struct Found {
    /// The file's name.
    pub file: String,
    /// The run.
    pub run: ExternalRun,
}

/// A run that makes no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its file.
    pub file: String,
    /// What is missing.
    pub why: String,
    /// It has no round trip, and the runs between its hosts do not agree on one. The result is
    /// sound, so the others are imported.
    pub is_unpaired: bool,
}

/// The runs of one path, with equal round trips in their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedPath {
    /// The greatest round trip of a run of it.
    pub greatest: Duration,
    /// How many runs.
    pub runs: usize,
}

/// What came of an import.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The records, in the order of their runs, each with its file.
    pub records: Vec<(String, RunRecord)>,
    /// The paths that they are of, by name and round trip.
    pub paths: BTreeMap<(String, Duration), ImportedPath>,
    /// What makes no record.
    pub left: Vec<Left>,
}

/// The hosts of a path, whichever way data flowed; as its file names them, the one that
/// asked for the run first.
type Hosts = [String; 2];

/// The hosts of each run. One that never reached its host does not name it: it is of the
/// only path that others of its own host are of. Where the path's name is given, all are of
/// that.
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

/// A run whose file says a rate alone took the time that is given.
fn timed(mut found: Found, given: &Given) -> Found {
    let run = &mut found.run;
    let rate = run.throughput.bits_per_second();
    if let Some(time) = given.time.filter(|_| run.wall.is_zero() && rate > 0.0) {
        run.wall = time;
        // Beyond any number of bytes it is no rate of a path, as the record's check says.
        run.moved = ByteCount((rate / 8.0 * time.as_secs_f64()).round() as u64);
    }
    found
}

/// The round trips of each pair of hosts, ascending, each the least of its path.
fn round_trips(found: &[Found], hosts: &[Hosts], given: &Given) -> BTreeMap<Hosts, Vec<Duration>> {
    let mut seen: BTreeMap<Hosts, Vec<Duration>> = BTreeMap::new();
    for (Found { run, .. }, hosts) in found.iter().zip(hosts) {
        let own = seen.entry(hosts.clone()).or_default();
        own.extend(given.rtt.or(run.least_rtt).or(run.rtt));
    }
    for rtts in seen.values_mut() {
        rtts.sort_unstable();
        // Each is compared with the least of its path, not with the one before it.
        rtts.dedup_by(|next, least| is_same(*least, *next));
    }
    seen
}

fn is_same(least: Duration, other: Duration) -> bool {
    other.saturating_sub(least) <= least.mul_f64(SAME_RTT_SHARE).max(SAME_RTT)
}

/// A run's round trip among those between its hosts; `None` if no run reports it.
fn round_trip(run: &ExternalRun, steps: &[Duration]) -> Option<Duration> {
    match (run.least_rtt.or(run.rtt), steps) {
        (_, [only]) => Some(*only),
        (Some(rtt), steps) => {
            let step = steps.iter().rev().find(|step| **step <= rtt);
            step.or(steps.first()).copied()
        }
        // It is in no figure.
        (None, steps) if !run.error.is_empty() => steps.first().copied(),
        // Its own file does not say, and the others do not agree.
        (None, _) => None,
    }
}

/// A path's name in the direction of a run.
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

/// What a run that failed said, before what else is wrong with it.
fn said(run: &ExternalRun) -> String {
    if run.error.is_empty() {
        String::new()
    } else {
        format!("{} failed: {}; ", run.tool, run.error)
    }
}

fn unpaired(file: String, run: &ExternalRun) -> Left {
    let why = format!(
        "{}it has no round trip, and no other run between its hosts says it: give it with --rtt",
        said(run)
    );
    Left {
        file,
        why,
        is_unpaired: true,
    }
}

/// The doubt about a round trip that TCP saw while the run filled the path. iperf3 takes samples of
/// TCP's smoothed round trip alone, so that its least may include a queue, too.
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
    if run.wall.is_zero() && run.error.is_empty() {
        let text = "it says neither how long it took nor how many bytes it moved: give --time";
        return Err(text.to_owned());
    }
    let name = name_of(&hosts, &run, given);
    let own = given.capacity.or_else(|| capacities.get(&name).copied());
    let own = own.filter(|capacity| capacity.bits_per_second() > 0.0);
    // A path that carried nothing, as every run of it failed: the others say what is possible.
    let most = || {
        capacities
            .values()
            .copied()
            .fold(BitRate::default(), greater)
    };
    let capacity = own.unwrap_or_else(most);
    if capacity.bits_per_second() <= 0.0 {
        return Err(format!(
            "{said}nothing says what the path can carry, which a record needs: give it with \
             --capacity"
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
    // What a record cannot hold is told here, where its file is known.
    match record.to_line() {
        Ok(_) => Ok(record),
        Err(error) => Err(error.to_string()),
    }
}

/// The identities of an import's records.
#[derive(Default)]
struct Ids {
    /// By what the instruments call their runs, with the file.
    told: HashMap<String, String>,
    /// How many of a file's runs have none.
    of_file: HashMap<String, u64>,
    taken: HashSet<String>,
}

impl Ids {
    /// The instrument's own name of a run, else the file's with a number.
    fn of(&mut self, file: &str, run: &ExternalRun) -> Result<String, String> {
        if !run.id.is_empty() {
            let id = format!("{MARK}{}-{}", run.tool, run.id);
            if let Some(before) = self.told.insert(id.clone(), file.to_owned()) {
                return Err(format!("{before} has the same run: give each once"));
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
            // Another file may be called so.
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
