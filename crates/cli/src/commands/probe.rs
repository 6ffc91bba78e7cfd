//! `longhaul probe`: what a path to a daemon can do, and what would help.
//!
//! - [`session`]: one session that moves zeros into nothing

pub mod session;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_engine::net::identity::Fingerprint;
use longhaul_engine::probe::this_host;
use longhaul_instrument::probe::known::{KnownPath, of_sweep};
use longhaul_instrument::probe::records::Records;
use longhaul_instrument::probe::result::{Clock, PathResult, Probe, Way};
use longhaul_instrument::probe::trial::Trial;
use longhaul_instrument::probe::{json, text};
use longhaul_measure::samples::MOST_SAMPLES;
use longhaul_measure::sources::{ExternalRun, SourceError, read_iperf3, read_pscheduler};

use super::connection::Daemon;
use crate::arguments::{DataSecurity, DirectionArgument, ProbeArguments};
use crate::endpoint::{Endpoint, Remote};
use crate::messages::{Exit, Stop, clear_line, finish, progress_line, say, write_output};
use session::{Ask, Direction, Session};

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
    if arguments.connection.nice {
        let text = "--nice: a probe fills the path to see what it carries, which cannot yield to \
                    others: leave it out, or give a short --time";
        return Err(Stop::new(Exit::Usage, text));
    }
    let external = external(arguments)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut probe = Probe {
        endpoint: None,
        software: String::new(),
        protection: "",
        number: started.map_or(0, |since| since.as_secs()),
        started: longhaul_engine::clock::now(),
        paths: Vec::new(),
        external,
        host: this_host::describe(),
        known: None,
    };
    let remote = arguments.endpoint.as_deref().map(remote).transpose()?;
    probe.known = known(arguments, remote.as_ref())?;
    // Before anything is measured that could not be kept.
    let records = arguments.records.as_deref();
    let records = records.map(|path| Records::open(path, &mut say));
    let records = records.transpose()?;
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
        records.append(&probe, &mut say)?;
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

/// What is known of the path without measuring it, by the options.
fn known(arguments: &ProbeArguments, remote: Option<&Remote>) -> Result<Option<KnownPath>, Stop> {
    match (&arguments.sweep, arguments.capacity, remote) {
        (Some(file), _, Some(remote)) => {
            let written = arguments.endpoint.as_deref().unwrap_or_default();
            of_sweep(file, &written.to_string_lossy(), remote).map(Some)
        }
        (_, Some(capacity), _) => Ok(Some(KnownPath {
            swept: None,
            capacity,
        })),
        _ => Ok(None),
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
    type Read = fn(BufReader<File>) -> Result<Vec<ExternalRun>, SourceError>;
    let iperf3 = arguments
        .iperf3
        .iter()
        .map(|path| (path, read_iperf3 as Read));
    let others = arguments.pscheduler.iter();
    let others = others.map(|path| (path, read_pscheduler as Read));
    let mut external = Vec::new();
    for (path, read) in iperf3.chain(others) {
        let stop = |error: &dyn std::fmt::Display| {
            Stop::new(Exit::Local, format!("{}: {error}", path.display()))
        };
        let file = File::open(path).map_err(|error| stop(&error))?;
        for run in read(BufReader::new(file)).map_err(|error| stop(&error))? {
            let run = run.done().map_err(|error| stop(&error))?;
            external.push((path.display().to_string(), run));
        }
    }
    Ok(external)
}

struct Prober<'a> {
    arguments: &'a ProbeArguments,
    interrupted: &'a AtomicBool,
}

impl Prober<'_> {
    fn all_paths(&self, remote: &Remote, probe: &mut Probe) -> Result<(), Stop> {
        let daemon = Daemon::new(remote, &self.arguments.connection.settings())?;
        // Who it is is asked once; then each address must show the same key.
        let first = daemon.first_stream()?.handle;
        let (key, answered) = (first.peer_fingerprint(), first.peer_address());
        drop(first);
        let locals: Vec<Option<IpAddr>> = match daemon.local_addresses() {
            [] => vec![None],
            named => named.iter().copied().map(Some).collect(),
        };
        for address in daemon.addresses()? {
            for &local in &locals {
                if local.is_some_and(|ip| ip.is_ipv4() != address.is_ipv4()) {
                    continue;
                }
                let mut path = self.path(&daemon, key, (address, local), probe)?;
                // What a copy takes is the address that answers first.
                let is_usual = answered.is_none_or(|usual| usual.ip() == address.ip());
                path.is_usual = is_usual && !probe.paths.iter().any(|other| other.is_usual);
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
            host: None,
            is_usual: false,
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
        let warm_up = Ask {
            wants_host: true,
            ..self.ask(Direction::To, 1, time)
        };
        let warm_up = warm_up.run(daemon)?;
        let least = path.least().as_secs_f64();
        path.clock = warm_up.clock_lead.map(|lead| Clock::of(lead, least));
        path.host = warm_up.host;
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
                let kept: usize = way.trials.iter().map(|trial| trial.samples.len()).sum();
                way.trials.push(Trial {
                    samples: match self.arguments.records {
                        // All of a way's, of which each has a file, as many as one file.
                        Some(_) => seen.stream_samples(MOST_SAMPLES.saturating_sub(kept)),
                        None => Vec::new(),
                    },
                    ..trial
                });
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
            wants_host: false,
            interrupted: self.interrupted,
        }
    }

    fn progress(&self, text: &str) {
        if io::stderr().is_terminal() {
            progress_line(text);
        }
    }
}
