//! Measures every path to a daemon in each direction, with each number of streams.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_measure::samples::MOST_SAMPLES;
use longhaul_measure::sources::Direction;
use longhaul_net::identity::Fingerprint;
use longhaul_transfer::client::connection::Daemon;
use longhaul_transfer::endpoint::Remote;
use longhaul_transfer::settings::{ConnectionSettings, DataSecurity};
use longhaul_transfer::stop::{Exit, Stop};

use super::result::{Clock, PathResult, Probe, Way};
use super::session::{Ask, Session};
use super::trial::Trial;

/// Minimum and maximum duration of one repetition by default.
const TIMES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));

/// Maximum additional time on busy hosts, until there are enough samples.
const PATIENCE: Duration = Duration::from_secs(10);

/// Default duration of a repetition in round trips: ten doublings of slow start, and ten
/// more.
const ROUND_TRIPS: u32 = 20;

/// Settings of a probe.
#[derive(Clone, Debug)]
pub struct ProbeSettings {
    /// Numbers of streams, each measured separately.
    pub streams: Vec<u32>,
    /// Directions, measured one after the other.
    pub directions: Vec<Direction>,
    /// Number of repetitions of each number of streams; they are interleaved.
    pub rounds: u32,
    /// Duration of each repetition. `None` means twenty round trips, at least 2 s and at
    /// most 10 s.
    pub time: Option<Duration>,
    /// Number of connections for measuring the round-trip time.
    pub pings: u32,
    /// If true, samples of streams are kept for records.
    pub keep_samples: bool,
    /// Connection to the daemon and its authentication.
    pub connection: ConnectionSettings,
}

/// The next measurement, displayed as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A round trip, numbered from 1.
    RoundTrip(SocketAddr, u32),
    /// A session with a number of streams.
    Streams {
        /// Address of the daemon.
        address: SocketAddr,
        /// Direction of the data.
        direction: Direction,
        /// Number of the repetition, from 1, and the total.
        round: (u32, u32),
        /// Number of streams.
        streams: u32,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::RoundTrip(address, number) => write!(f, "{address}: round trip {number}"),
            Progress::Streams {
                address,
                direction,
                round: (round, rounds),
                streams,
            } => write!(
                f,
                "{address}: {} the daemon, round {round} of {rounds}, {streams} streams",
                direction.name()
            ),
        }
    }
}

/// Measures all paths to a daemon until `interrupted` is set.
///
/// # Errors
///
/// Returns an error if the settings are invalid, the daemon does not answer, or a signal
/// arrived. The failure of a single path is part of the result.
pub fn measure(
    remote: &Remote,
    settings: &ProbeSettings,
    interrupted: &AtomicBool,
    probe: &mut Probe,
    tell: &mut dyn FnMut(&Progress),
) -> Result<(), Stop> {
    let mut prober = Prober {
        settings,
        interrupted,
        tell,
    };
    prober.all_paths(remote, probe)?;
    probe.endpoint = Some(remote.host.to_string());
    Ok(())
}

struct Prober<'a> {
    settings: &'a ProbeSettings,
    interrupted: &'a AtomicBool,
    tell: &'a mut dyn FnMut(&Progress),
}

impl Prober<'_> {
    fn all_paths(&mut self, remote: &Remote, probe: &mut Probe) -> Result<(), Stop> {
        let daemon = Daemon::new(remote, &self.settings.connection)?;
        // The daemon's key is verified once. All addresses must then present the same
        // key.
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
                // A copy uses the address that answers first.
                let is_usual = answered.is_none_or(|usual| usual.ip() == address.ip());
                path.is_usual = is_usual && !probe.paths.iter().any(|other| other.is_usual);
                probe.paths.push(path);
            }
        }
        if probe.paths.is_empty() {
            let text =
                "no --bind address has the IP version of the daemon's addresses: name another one";
            return Err(Stop::new(Exit::Usage, text));
        }
        Ok(())
    }

    /// Measures a path. A failure becomes part of the result, except an interrupt.
    fn path(
        &mut self,
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
        &mut self,
        daemon: &Daemon,
        path: &mut PathResult,
        probe: &mut Probe,
    ) -> Result<(), Stop> {
        for number in 1..=self.settings.pings {
            (self.tell)(&Progress::RoundTrip(path.address, number));
            let info = daemon.ping()?;
            path.round_trips.push(info.rtt.as_secs_f64());
            path.path_mtu = info.path_mtu.0;
            path.options = info.options;
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Stop::new(Exit::Interrupted, "interrupted"));
            }
        }
        let time = self.settings.time;
        let time = time.unwrap_or((path.least() * ROUND_TRIPS).clamp(TIMES.0, TIMES.1));
        // The warm-up fills caches. It is not counted, but measures the clocks.
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
        for &direction in &self.settings.directions {
            let way = self.way(daemon, direction, time, path.address)?;
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
        &mut self,
        daemon: &Daemon,
        direction: Direction,
        time: Duration,
        address: SocketAddr,
    ) -> Result<Way, Stop> {
        let mut way = Way {
            direction,
            trials: Vec::new(),
            sender: Default::default(),
            receiver: Default::default(),
        };
        let counts = &self.settings.streams;
        for round in 0..self.settings.rounds {
            for turn in 0..counts.len() {
                // Each round begins with another number of streams, so that a slow period
                // affects all of them.
                let streams = counts[(turn + round as usize) % counts.len()];
                (self.tell)(&Progress::Streams {
                    address,
                    direction,
                    round: (round + 1, self.settings.rounds),
                    streams,
                });
                let Session { seen, .. } = self.ask(direction, streams, time).run(daemon)?;
                let trial: Trial = seen.trial(streams).ok_or_else(|| {
                    let text = if seen.saw_data() {
                        "too few samples arrived during the measurement"
                    } else {
                        "no data arrived during the measurement"
                    };
                    let text = format!("{text}: set a longer --time");
                    Stop::new(Exit::Connection, text)
                })?;
                let kept: usize = way.trials.iter().map(|trial| trial.samples.len()).sum();
                way.trials.push(Trial {
                    samples: if self.settings.keep_samples {
                        // Each direction has one file, so the bound of a file holds for
                        // all of its trials.
                        seen.stream_samples(MOST_SAMPLES.saturating_sub(kept))
                    } else {
                        Vec::new()
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
        let connection = &self.settings.connection;
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
}
