//! Writes each repetition as a record of a memory-to-memory run, with its samples and
//! both hosts in files next to it, as a sweep does.
//!
//! A path of a sweep file has the same name, round-trip time and capacity in these
//! records as in the sweep's own. `profile` therefore uses the probe as the Θ_T of the
//! sweep's transfers. The way back is a separate path, because routes may differ.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use longhaul_measure::doubt::Doubt;
use longhaul_measure::host::HostDescription;
use longhaul_measure::record::{
    DatasetRecord, Ended, HostRecord, Knob, Measures, Method, Outcome, PathRecord, RecordError,
    RunIdentity, RunRecord, SCHEMA, Sidecar, TcpSummary,
};
use longhaul_measure::samples::Sample;
use longhaul_measure::sources::{Direction, ExternalRun};
use longhaul_system::named_files::{Older, to_write};
use longhaul_transfer::stop::{Exit, Stop};
use longhaul_units::{BitRate, ByteCount};

use super::known::SweptPath;
use super::result::{PathResult, Probe, Way};
use super::trial::Trial;
use crate::sidecar::{
    Hosts, HostsFile, ends_with_a_line, is_no_file, open_to_append, refuse_compressed,
    samples_beside,
};

/// Maximum relative and absolute difference between the measured round-trip time and that
/// of the sweep. A larger difference means another path.
const SAME_RTT_SHARE: f64 = 0.1;
const SAME_RTT: Duration = Duration::from_micros(500);

/// Maximum relative difference between the bytes of a probe and of a transfer. Beyond it,
/// the ramp-up has another share of the bytes.
const SAME_BYTES_SHARE: f64 = 0.1;

/// An open file of records.
pub struct Records<'a> {
    path: &'a Path,
    file: File,
    /// False if the permissions of the file allow only writing.
    is_readable: bool,
    /// File of host descriptions; `None` if records are not written to a regular file.
    hosts: Option<HostsFile>,
}

/// Host records of both ends of a direction, the sender first.
type Ends = [HostRecord; 2];

impl Records<'_> {
    /// Opens the file for appending, and the file of host descriptions next to it.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    pub fn open<'a>(path: &'a Path, tell: &mut dyn FnMut(&str)) -> Result<Records<'a>, Stop> {
        refuse_compressed(path).map_err(|text| Stop::new(Exit::Usage, text))?;
        let (file, is_readable) = open_to_append(path).map_err(|error| local(path, &error))?;
        let hosts = HostsFile::open(path).map_err(|text| Stop::new(Exit::Local, text))?;
        let hosts = match hosts {
            Hosts::Kept(hosts) => Some(hosts),
            Hosts::NoFile => None,
            Hosts::LeftOut(why) => {
                tell(&format!("{why}: hosts are not described"));
                None
            }
        };
        Ok(Records {
            path,
            file,
            is_readable,
            hosts,
        })
    }

    /// Appends a record for each repetition, and for each external measurement of the
    /// usual path.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    pub fn append(mut self, probe: &Probe, tell: &mut dyn FnMut(&str)) -> Result<(), Stop> {
        let records = self.records(probe, tell);
        let lines: Result<Vec<String>, RecordError> =
            records.iter().map(RunRecord::to_line).collect();
        let lines = lines.map_err(|error| local(self.path, &error))?;
        self.write(&lines).map_err(|error| local(self.path, &error))
    }

    fn write(&mut self, lines: &[String]) -> io::Result<()> {
        // If another writer was interrupted in a line, a new line begins first.
        if self.is_readable && !ends_with_a_line(&mut self.file) {
            writeln!(self.file)?;
        }
        for line in lines {
            writeln!(self.file, "{line}")?;
        }
        Ok(())
    }

    fn records(&mut self, probe: &Probe, tell: &mut dyn FnMut(&str)) -> Vec<RunRecord> {
        let mut records: Vec<RunRecord> = Vec::new();
        // The records of the usual path, to and from the daemon.
        let mut usual = [None, None];
        for found in &probe.paths {
            let ends = [
                self.end("here", Some(&probe.host), tell),
                self.end("daemon", found.host.as_ref(), tell),
            ];
            for way in &found.ways {
                let first = records.len();
                records.extend(self.records_of(probe, found, way, (first, &ends), tell));
                let own = &mut usual[usize::from(way.direction == Direction::From)];
                if let (Some(record), None) = (records.get(first), &own)
                    && found.is_usual
                {
                    *own = Some(record.path.clone());
                }
            }
        }
        for (number, (_, run)) in probe.external.iter().enumerate() {
            match path_of_external(run, &usual) {
                Some(path) => records.push(external(probe, number, run, path)),
                None => {
                    let text = "results of other instruments are not recorded: they need a probe \
                                of the same path";
                    tell(text);
                    break;
                }
            }
        }
        records
    }

    fn end(
        &mut self,
        name: &str,
        host: Option<&HostDescription>,
        tell: &mut dyn FnMut(&str),
    ) -> HostRecord {
        let Some(host) = host else {
            return HostRecord {
                name: name.to_owned(),
                ..HostRecord::default()
            };
        };
        let hosts = self.hosts.as_mut();
        let digest = hosts.map(|hosts| hosts.add(host)).transpose();
        // A measurement is recorded even without a host description. The other end may
        // send a description of any length.
        let digest = digest.unwrap_or_else(|text| {
            tell(&format!("{text}: {name} is not described"));
            None
        });
        HostRecord {
            description: digest.unwrap_or_default(),
            ..host.record(name)
        }
    }

    fn records_of(
        &self,
        probe: &Probe,
        found: &PathResult,
        way: &Way,
        (first, [here, there]): (usize, &Ends),
        tell: &mut dyn FnMut(&str),
    ) -> Vec<RunRecord> {
        let Some(path) = path_of(probe, found, way) else {
            return Vec::new();
        };
        let ends = match way.direction {
            Direction::To => [here, there],
            Direction::From => [there, here],
        };
        let counts = way.counts().len().max(1);
        let trials = way.trials.iter().enumerate();
        let records = trials.map(|(number, trial)| {
            let mut record = record_of(probe, found, way, trial);
            record.run.id = format!("probe-{}-{}", probe.number, first + number);
            record.run.round = Some((number / counts) as u64);
            record.path = path.clone();
            record.samples = self.keep(&record.run.id, &trial.samples, tell);
            [record.source, record.destination] = ends.map(Clone::clone);
            record
        });
        records.collect()
    }

    /// Writes a run's samples to a file next to the records. If this fails, the run is
    /// recorded without them.
    fn keep(&self, id: &str, samples: &[Sample], tell: &mut dyn FnMut(&str)) -> Option<Sidecar> {
        if samples.is_empty() || is_no_file(self.path) {
            return None;
        }
        let written = samples_beside(self.path, id).and_then(|(path, file)| {
            let write = || -> io::Result<()> {
                let mut file = BufWriter::new(to_write(&path, Older::Goes)?);
                for sample in samples {
                    serde_json::to_writer(&mut file, sample)?;
                    writeln!(file)?;
                }
                file.flush()
            };
            write().map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(file)
        });
        let count = samples.len() as u64;
        match written {
            Ok(file) => Some(Sidecar { file, count }),
            Err(text) => {
                tell(&format!("{text}: samples of {id} are not kept"));
                None
            }
        }
    }
}

fn local(path: &Path, error: &dyn std::fmt::Display) -> Stop {
    Stop::new(Exit::Local, format!("{}: {error}", path.display()))
}

/// Returns the path of an external run: the probed path in its direction, else that of
/// the other direction, whose capacity is the best estimate.
fn path_of_external(run: &ExternalRun, usual: &[Option<PathRecord>; 2]) -> Option<PathRecord> {
    let [to, from] = usual;
    match (run.direction, to, from) {
        (Some(Direction::From), _, Some(from)) => Some(from.clone()),
        (Some(Direction::From), Some(to), None) => Some(PathRecord {
            name: format!("back from {}", to.name),
            ..to.clone()
        }),
        (_, Some(to), _) => Some(to.clone()),
        (_, None, Some(from)) => Some(PathRecord {
            name: from.name.trim_start_matches("back from ").to_owned(),
            ..from.clone()
        }),
        (_, None, None) => None,
    }
}

/// Converts an external run to a record with the start time in its file.
fn external(probe: &Probe, number: usize, run: &ExternalRun, path: PathRecord) -> RunRecord {
    let mut identity = identity(probe);
    identity.id = format!("external-{}-{number}", probe.number);
    if !run.started.is_empty() {
        identity.started = run.started.clone();
    }
    run.clone().into_record(identity, path)
}

fn identity(probe: &Probe) -> RunIdentity {
    RunIdentity {
        started: probe.started.clone(),
        ..RunIdentity::default()
    }
}

/// Returns the path of a direction for records; `None` if it was not measured.
fn path_of(probe: &Probe, found: &PathResult, way: &Way) -> Option<PathRecord> {
    // Facts of a sweep apply to the way there only.
    let swept = swept(probe, found);
    let is_its_own = swept.is_some() && way.direction == Direction::To;
    let known = probe.known.as_ref();
    let known = known.filter(|known| known.swept.is_none() || is_its_own);
    let capacity = known.map(|known| known.capacity);
    let measured = way.best().and_then(|best| BitRate::new(best.1 * 8.0))?;
    let name = match (swept, found.local) {
        (Some(swept), _) => swept.name.clone(),
        (None, Some(local)) => format!("{} from {local}", found.address),
        (None, None) => found.address.to_string(),
    };
    let rtt = swept.map_or_else(|| found.least(), |swept| swept.rtt);
    (!rtt.is_zero()).then(|| PathRecord {
        name: match way.direction {
            Direction::To => name,
            Direction::From => format!("back from {name}"),
        },
        rtt,
        capacity: capacity.unwrap_or(measured),
        congestion_control: way.sender.congestion.clone(),
        ..PathRecord::default()
    })
}

/// Returns the sweep's path if `found` is the address that answers first, which sweeps
/// use.
fn swept<'a>(probe: &'a Probe, found: &PathResult) -> Option<&'a SweptPath> {
    let known = probe.known.as_ref().filter(|_| found.is_usual);
    known.and_then(|known| known.swept.as_ref())
}

/// Converts a repetition to a record without identity and hosts.
fn record_of(probe: &Probe, found: &PathResult, way: &Way, trial: &Trial) -> RunRecord {
    let mut doubts = way.doubts(found);
    doubts.extend(differences(probe, found, way, trial));
    let tcp = TcpSummary::of(&trial.samples, None).map(|summary| TcpSummary {
        congestion: way.sender.congestion.clone(),
        ..summary
    });
    RunRecord {
        schema: SCHEMA,
        run: identity(probe),
        measures: Measures::Memory,
        method: Method {
            name: "longhaul".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            endpoint: "daemon".to_owned(),
            security: if probe.protection == "clear" {
                "clear"
            } else {
                "tls"
            }
            .to_owned(),
            ..Method::default()
        },
        knobs: [
            ("streams".to_owned(), Knob::Count(trial.streams.into())),
            (
                "direction".to_owned(),
                Knob::Word(way.direction.name().to_owned()),
            ),
        ]
        .into(),
        path: PathRecord::default(),
        source: HostRecord::default(),
        destination: HostRecord::default(),
        dataset: DatasetRecord::default(),
        outcome: Outcome {
            ended: Ended::Done,
            moved: ByteCount(trial.bytes),
            wall: trial.wall,
            goodput: BitRate::from_transfer(ByteCount(trial.bytes), trial.wall),
            exit: Some(0),
            error: String::new(),
            retransmitted_segments: Some(trial.retransmitted),
            said: said(found, trial),
        },
        cpu: Vec::new(),
        machine_busy_seconds: None,
        layers: Vec::new(),
        tcp,
        beside: Vec::new(),
        samples: None,
        doubts,
    }
}

/// Returns figures that only a probe has.
fn said(found: &PathResult, trial: &Trial) -> std::collections::BTreeMap<String, f64> {
    let numbers = [
        ("settled_bits_per_second", Some(trial.settled * 8.0)),
        ("rtt_seconds", Some(trial.rtt.as_secs_f64())),
        ("least_rtt_seconds", Some(found.least().as_secs_f64())),
        ("retransmission_rate", Some(trial.retransmission_rate())),
        ("loss_rate", trial.loss_rate()),
        ("sender_busy", trial.processors[0]),
        ("receiver_busy", trial.processors[1]),
    ];
    let known = numbers.into_iter();
    known
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Returns differences between a repetition and the path of the sweep's runs.
fn differences(probe: &Probe, found: &PathResult, way: &Way, trial: &Trial) -> Vec<Doubt> {
    let Some(swept) = swept(probe, found).filter(|_| way.direction == Direction::To) else {
        return Vec::new();
    };
    let mut differences = Vec::new();
    let (own, told) = (found.least(), swept.rtt);
    if own.abs_diff(told) > told.mul_f64(SAME_RTT_SHARE).max(SAME_RTT) {
        differences.push(format!(
            "its minimum round-trip time was {:.2} ms, but {:.2} ms in the sweep's file",
            own.as_secs_f64() * 1e3,
            told.as_secs_f64() * 1e3
        ));
    }
    let is_like =
        |bytes: &u64| trial.bytes.abs_diff(*bytes) as f64 <= SAME_BYTES_SHARE * *bytes as f64;
    if !swept.bytes.is_empty() && !swept.bytes.iter().any(is_like) {
        differences
            .push("the probe moved another number of bytes than the sweep's transfers".to_owned());
    }
    let doubts = differences.into_iter();
    doubts
        .map(|what| Doubt::DifferentReference { what })
        .collect()
}
