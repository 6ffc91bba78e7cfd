//! `longhaul probe`: what a path to a daemon can do, and what would help.
//!
//! - [`session`]: one session that moves zeros into nothing
//! - [`trial`]: what its samples say
//! - [`result`]: what all of them say, with advice (`longhaul_model::advice`)
//! - [`text`], [`json`]: how it is printed

mod json;
pub mod result;
pub mod session;
mod text;
pub mod trial;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, IsTerminal, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_engine::net::identity::Fingerprint;
use longhaul_measure::record::{
    DatasetRecord, Ended, HostRecord, Knob, Measures, Method, Outcome, PathRecord, RecordError,
    RunIdentity, RunRecord, SCHEMA,
};
use longhaul_measure::sources::{ExternalRun, SourceError, read_iperf3, read_pscheduler};
use longhaul_units::{BitRate, ByteCount};

use super::connection::Daemon;
use crate::arguments::{DataSecurity, DirectionArgument, ProbeArguments};
use crate::endpoint::{Endpoint, Remote};
use crate::messages::{Exit, Stop, clear_line, finish, progress_line, say, write_output};
use result::{Clock, PathResult, Probe, Way};
use session::{Ask, Direction, Session};
use trial::Trial;

/// The shortest and the longest time of one repetition, if none is said.
const TIMES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));

/// How much longer one may take on busy hosts, until enough of it was seen.
const PATIENCE: Duration = Duration::from_secs(10);

/// Round trips of one repetition: ten doublings of slow start, and as many again.
const ROUND_TRIPS: u32 = 20;

/// Runs it.
pub fn run(arguments: &ProbeArguments) -> Exit {
    finish(probe(arguments))
}

fn probe(arguments: &ProbeArguments) -> Result<Exit, Stop> {
    let external = external(arguments)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut probe = Probe {
        endpoint: None,
        software: String::new(),
        protection: "",
        number: started.map_or(0, |since| since.as_secs()),
        started: crate::sweep::clock::now(),
        paths: Vec::new(),
        external,
    };
    let remote = arguments.endpoint.as_deref().map(remote).transpose()?;
    // Before anything is measured that could not be kept.
    let records = arguments.records.as_deref();
    let records = records.map(Records::open).transpose()?;
    if let Some(remote) = remote {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // Without it a signal ends the process, and the daemon waits a while.
            let _ = signal_hook::flag::register_conditional_shutdown(
                signal,
                130,
                Arc::clone(&interrupted),
            );
            let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
        }
        Prober {
            arguments,
            interrupted: &interrupted,
        }
        .all_paths(&remote, &mut probe)?;
        probe.endpoint = Some(remote.host.to_string());
    }
    clear_line();
    print(arguments, &probe);
    if let Some(records) = records {
        records.append(&probe)?;
    }
    Ok(exit_of(&probe))
}

fn remote(endpoint: &OsStr) -> Result<Remote, Stop> {
    match Endpoint::parse(endpoint).map_err(|e| Stop::because(Exit::Usage, e))? {
        Endpoint::Daemon(remote) => Ok(remote),
        _ => {
            let text = format!(
                "{}: a probe needs a daemon at the other end: write longhaul://HOST[:PORT]",
                endpoint.to_string_lossy()
            );
            Err(Stop::new(Exit::Usage, text))
        }
    }
}

fn exit_of(probe: &Probe) -> Exit {
    let failed = probe.paths.iter().filter(|path| path.failure.is_some());
    match failed.count() {
        0 => Exit::Done,
        count if count == probe.paths.len() => Exit::Connection,
        _ => Exit::Partial,
    }
}

fn print(arguments: &ProbeArguments, probe: &Probe) {
    let text = match arguments.json {
        true => format!("{}\n", json::json(probe)),
        false => text::text(probe),
    };
    write_output(text.as_bytes());
}

fn external(arguments: &ProbeArguments) -> Result<Vec<(String, ExternalRun)>, Stop> {
    type Read = fn(BufReader<File>) -> Result<ExternalRun, SourceError>;
    let iperf3 = arguments
        .iperf3
        .iter()
        .map(|path| (path, read_iperf3 as Read));
    let others = arguments.pscheduler.iter();
    let others = others.map(|path| (path, read_pscheduler as Read));
    let read = |(path, read): (&std::path::PathBuf, Read)| {
        let stop = |error: &dyn std::fmt::Display| {
            Stop::new(Exit::Local, format!("{}: {error}", path.display()))
        };
        let file = File::open(path).map_err(|error| stop(&error))?;
        let run = read(BufReader::new(file)).map_err(|error| stop(&error))?;
        Ok((path.display().to_string(), run))
    };
    iperf3.chain(others).map(read).collect()
}

struct Prober<'a> {
    arguments: &'a ProbeArguments,
    interrupted: &'a AtomicBool,
}

impl Prober<'_> {
    fn all_paths(&self, remote: &Remote, probe: &mut Probe) -> Result<(), Stop> {
        let daemon = Daemon::new(remote, &self.arguments.connection)?;
        // Who it is is asked once; then each address must show the same key.
        let key = daemon.first_stream()?.handle.peer_fingerprint();
        let locals: Vec<Option<IpAddr>> = match daemon.local_addresses() {
            [] => vec![None],
            named => named.iter().copied().map(Some).collect(),
        };
        for address in daemon.addresses()? {
            for &local in &locals {
                if local.is_some_and(|ip| ip.is_ipv4() != address.is_ipv4()) {
                    continue;
                }
                let path = self.path(&daemon, key, (address, local), probe)?;
                probe.paths.push(path);
            }
        }
        if probe.paths.is_empty() {
            let text = "no --bind address is of the same family as the daemon's: name another one";
            return Err(Stop::new(Exit::Usage, text));
        }
        Ok(())
    }

    /// A path that fails is a result; only a signal ends the whole.
    fn path(
        &self,
        daemon: &Daemon,
        key: Option<Fingerprint>,
        (address, local): (SocketAddr, Option<IpAddr>),
        probe: &mut Probe,
    ) -> Result<PathResult, Stop> {
        let mut path = PathResult {
            address,
            local,
            failure: None,
            round_trips: Vec::new(),
            segment: 0,
            path_mtu: 0,
            options: Default::default(),
            clock: None,
            ways: Vec::new(),
        };
        let daemon = daemon.at(key, address, local);
        match self.measure(&daemon, &mut path, probe) {
            Err(stop) if stop.exit == Exit::Interrupted => return Err(stop),
            Err(stop) => path.failure = Some(stop.text),
            Ok(()) => {}
        }
        Ok(path)
    }

    fn measure(
        &self,
        daemon: &Daemon,
        path: &mut PathResult,
        probe: &mut Probe,
    ) -> Result<(), Stop> {
        for number in 1..=self.arguments.pings {
            self.progress(&format!("{}: round trip {number}", path.address));
            let info = daemon.ping()?;
            path.round_trips.push(info.rtt.as_secs_f64());
            path.path_mtu = info.path_mtu.0;
            path.options = info.options;
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Stop::new(Exit::Interrupted, "interrupted"));
            }
        }
        let time = self.arguments.time;
        let time = time.unwrap_or((path.least() * ROUND_TRIPS).clamp(TIMES.0, TIMES.1));
        // What warms memory and caches up is not counted, but tells of clocks.
        let warm_up = self.ask(Direction::To, 1, time).run(daemon)?;
        let least = path.least().as_secs_f64();
        path.clock = warm_up.clock_lead.map(|lead| Clock::of(lead, least));
        probe.software = warm_up.software;
        probe.protection = warm_up.protection;
        let directions = match self.arguments.direction {
            DirectionArgument::To => &[Direction::To][..],
            DirectionArgument::From => &[Direction::From],
            DirectionArgument::Both => &[Direction::To, Direction::From],
        };
        for &direction in directions {
            let way = self.way(daemon, direction, time, &path.address)?;
            let segment = way
                .trials
                .iter()
                .map(|trial| u64::from(trial.segment))
                .max();
            path.segment = path.segment.max(segment.unwrap_or(0));
            path.ways.push(way);
        }
        Ok(())
    }

    fn way(
        &self,
        daemon: &Daemon,
        direction: Direction,
        time: Duration,
        address: &SocketAddr,
    ) -> Result<Way, Stop> {
        let mut way = Way {
            direction,
            trials: Vec::new(),
            sender: Default::default(),
            receiver: Default::default(),
        };
        let counts = &self.arguments.streams;
        for round in 0..self.arguments.rounds {
            for turn in 0..counts.len() {
                // Each round begins with another one: a slow minute touches all.
                let streams = counts[(turn + round as usize) % counts.len()];
                self.progress(&format!(
                    "{address}: {} the daemon, round {} of {}, {streams} streams",
                    direction.name(),
                    round + 1,
                    self.arguments.rounds
                ));
                let Session { seen, .. } = self.ask(direction, streams, time).run(daemon)?;
                let trial: Trial = seen.trial(streams).ok_or_else(|| {
                    let text = match seen.saw_data() {
                        true => "too little was seen while it was measured",
                        false => "nothing arrived while it was measured",
                    };
                    let text = format!("{text}: give it more --time");
                    Stop::new(Exit::Connection, text)
                })?;
                way.trials.push(trial);
                way.sender = seen.sender.unwrap_or(way.sender);
                way.receiver = seen.receiver.unwrap_or(way.receiver);
            }
        }
        Ok(way)
    }

    fn ask(&self, direction: Direction, streams: u32, time: Duration) -> Ask<'_> {
        let connection = &self.arguments.connection;
        Ask {
            direction,
            streams,
            time,
            patience: PATIENCE,
            congestion: connection.congestion.clone(),
            clear: connection.data_security == DataSecurity::Clear,
            silence: connection.timeout,
            interrupted: self.interrupted,
        }
    }

    fn progress(&self, text: &str) {
        if io::stderr().is_terminal() {
            progress_line(text);
        }
    }
}

/// A file that records are appended to.
struct Records<'a> {
    path: &'a Path,
    file: File,
    /// Not where all may write and only some may read.
    is_readable: bool,
}

impl Records<'_> {
    fn open(path: &Path) -> Result<Records<'_>, Stop> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        let (file, is_readable) = match options.clone().read(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (options.open(path), false)
            }
            opened => (opened, true),
        };
        let file = file.map_err(|error| local(path, &error))?;
        Ok(Records {
            path,
            file,
            is_readable,
        })
    }

    fn append(mut self, probe: &Probe) -> Result<(), Stop> {
        let lines = lines(probe).map_err(|error| local(self.path, &error))?;
        self.write(&lines).map_err(|error| local(self.path, &error))
    }

    fn write(&mut self, lines: &[String]) -> io::Result<()> {
        // A line that somebody was stopped in takes none of ours along.
        if self.is_readable && !ends_with_a_line(&mut self.file)? {
            writeln!(self.file)?;
        }
        for line in lines {
            writeln!(self.file, "{line}")?;
        }
        Ok(())
    }
}

fn local(path: &Path, error: &dyn std::fmt::Display) -> Stop {
    Stop::new(Exit::Local, format!("{}: {error}", path.display()))
}

/// Each repetition as a record, and what other instruments measured, for the path
/// that was probed first.
fn lines(probe: &Probe) -> Result<Vec<String>, RecordError> {
    let mut records = Vec::new();
    for found in &probe.paths {
        for way in &found.ways {
            records.extend(records_of(probe, found, way, records.len()));
        }
    }
    let known = records.first().map(|record| record.path.clone());
    match known {
        Some(known) => records.extend(probe.external.iter().enumerate().map(|(number, run)| {
            let id = format!("external-{}-{number}", probe.number);
            let identity = identity(probe, id);
            run.1.clone().into_record(identity, known.clone())
        })),
        None => say("nothing is recorded: results of other instruments need a probe of their path"),
    }
    records.iter().map(RunRecord::to_line).collect()
}

/// Also where it is empty.
fn ends_with_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok(last == [b'\n'])
}

fn identity(probe: &Probe, id: String) -> RunIdentity {
    RunIdentity {
        id,
        started: probe.started.clone(),
        ..RunIdentity::default()
    }
}

fn records_of(probe: &Probe, found: &PathResult, way: &Way, first: usize) -> Vec<RunRecord> {
    let capacity = way.best().and_then(|best| BitRate::new(best.1 * 8.0));
    let Some(capacity) = capacity.filter(|_| !found.least().is_zero()) else {
        return Vec::new();
    };
    let doubts = way.doubts(found);
    let counts = way.counts().len().max(1);
    let records = way
        .trials
        .iter()
        .enumerate()
        .map(|(number, trial)| RunRecord {
            schema: SCHEMA,
            run: RunIdentity {
                round: Some((number / counts) as u64),
                ..identity(probe, format!("probe-{}-{}", probe.number, first + number))
            },
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
            path: PathRecord {
                name: format!("{}", found.address),
                rtt: found.least(),
                capacity,
                congestion_control: way.sender.congestion.clone(),
                ..PathRecord::default()
            },
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
                said: Default::default(),
            },
            cpu: Vec::new(),
            layers: Vec::new(),
            tcp: None,
            beside: Vec::new(),
            samples: None,
            doubts: doubts.clone(),
        });
    records.collect()
}
