//! Observes streams and processes during a run.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longhaul_measure::record::{Beside, TcpSummary};
use longhaul_measure::samples::{MOST_SAMPLES, Sample};
use longhaul_measure::streams::{bytes_by, growth, last_growth};
use longhaul_net::sockets::SocketTable;
use longhaul_net::sockets::answers::Socket;
use longhaul_system::named_files::{Older, to_write};
use longhaul_units::ByteCount;

use super::accounts::{self, Account, Sides};
use super::step::Step;

/// Interval of observations of processes if streams are not sampled.
const LOOK_AT_PROCESSES: Duration = Duration::from_millis(250);

/// Time in seconds after which two transfers are assumed to have settled at their shares.
const SETTLED_SECONDS: f64 = 15.0;

/// Handle of the observing thread.
pub struct Watcher {
    stop: Sender<()>,
    thread: JoinHandle<Watched>,
}

/// Observations of a run.
#[derive(Debug, Default)]
pub struct Watched {
    samples: Vec<Sample>,
    /// Congestion control by stream.
    congestion: BTreeMap<u32, String>,
    /// Number of samples written to the sidecar.
    pub written: u64,
    /// Latest accounts of all processes that were seen.
    pub accounts: BTreeMap<i32, Account>,
}

/// State of the observing thread.
struct Looker {
    table: SocketTable,
    sides: Sides,
    sidecar: Option<BufWriter<File>>,
    /// Addresses of the other end on a real path. Only streams to them count.
    peers: Option<Vec<IpAddr>>,
    with_ports: bool,
    /// True if both ends are on this host. Only streams to or from `ports` count.
    is_here: bool,
    /// Ports of the servers, each with true if the server sends.
    ports: Vec<(u16, bool)>,
    streams: HashMap<u64, u32>,
    watched: Watched,
    began: Instant,
}

impl Watcher {
    /// Starts the thread; `table` is the socket table of the sending host.
    ///
    /// # Errors
    ///
    /// Returns an error if the sidecar or the thread cannot be created.
    pub fn start(step: &Step, table: SocketTable, sides: Sides) -> io::Result<Watcher> {
        let (sidecar, every) = match &step.samples {
            Some((path, every)) => (Some(BufWriter::new(to_write(path, Older::Goes)?)), *every),
            None => (None, LOOK_AT_PROCESSES),
        };
        let peers = step.peer.as_deref().map(resolve).transpose()?;
        let mut looker = Looker {
            table,
            sides,
            sidecar,
            peers,
            with_ports: step.clients.len() > 1,
            is_here: step.lab.is_none(),
            ports: step.clients.iter().map(|c| (c.port, c.pulls)).collect(),
            streams: HashMap::new(),
            watched: Watched::default(),
            began: Instant::now(),
        };
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("watcher".to_owned());
        let thread = thread.spawn(move || {
            let mut next = every;
            loop {
                let left = next.saturating_sub(looker.began.elapsed());
                let ended = stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout);
                looker.look();
                if ended {
                    return looker.finish();
                }
                next += every;
            }
        })?;
        Ok(Watcher { stop, thread })
    }

    /// Stops the thread and returns its observations.
    pub fn stop(self) -> Watched {
        // An error means that the thread has ended.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// Resolves a host to addresses in the form that sockets report.
fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    let named = |error| io::Error::other(format!("{host}: {error}"));
    let found = (host, 0).to_socket_addrs().map_err(named)?;
    Ok(found.map(|found| found.ip().to_canonical()).collect())
}

impl Looker {
    fn look(&mut self) {
        accounts::remember(&mut self.watched.accounts, accounts::look(&self.sides));
        if self.sidecar.is_none() {
            return;
        }
        let seconds = self.began.elapsed().as_secs_f64();
        // A failed observation leaves a gap in the samples.
        let mut sockets = self.table.list().unwrap_or_default();
        sockets.retain(|socket| self.counts(socket));
        for socket in sockets {
            let next = self.streams.len() as u32 + 1;
            let stream = *self.streams.entry(socket.cookie).or_insert(next);
            self.note(seconds, stream, &socket);
        }
    }

    fn counts(&self, socket: &Socket) -> bool {
        let address = socket.peer.0;
        match &self.peers {
            Some(peers) => peers.contains(&address),
            None if self.is_here => self.port(socket).is_some(),
            None => !address.is_loopback(),
        }
    }

    /// Returns the port of the server to which a sender's socket belongs, at either end.
    fn port(&self, socket: &Socket) -> Option<u16> {
        let is_own = |(port, pulled): &&(u16, bool)| {
            let server = if *pulled {
                socket.local_port
            } else {
                socket.peer.1
            };
            server == *port
        };
        self.ports.iter().find(is_own).map(|(port, _)| *port)
    }

    fn note(&mut self, seconds: f64, stream: u32, socket: &Socket) {
        if self.watched.samples.len() >= MOST_SAMPLES {
            return;
        }
        let sample = Sample {
            // Rounded to microseconds, which are finer than the interval of samples.
            seconds: (seconds * 1e6).round() / 1e6,
            stream,
            acknowledged_bytes: socket.acknowledged,
            queued_bytes: Some(socket.queued),
            unsent_bytes: socket.unsent,
            retransmitted_segments: socket.retransmitted,
            window_bytes: Some(socket.window),
            rtt_seconds: Some(f64::from(socket.rtt_microseconds) / 1e6),
            pace_bytes_per_second: socket.pace,
            port: self
                .with_ports
                .then(|| self.port(socket).unwrap_or(socket.peer.1)),
        };
        if let (Some(file), Ok(line)) = (&mut self.sidecar, serde_json::to_string(&sample))
            && writeln!(file, "{line}").is_ok()
        {
            self.watched.written += 1;
        }
        self.watched
            .congestion
            .insert(stream, socket.congestion.clone());
        self.watched.samples.push(sample);
    }

    fn finish(mut self) -> Watched {
        if let Some(file) = &mut self.sidecar
            && file.flush().is_err()
        {
            self.watched.written = 0;
        }
        self.watched
    }
}

impl Watched {
    /// Returns the samples of the run's own streams, without those of background clients.
    fn own<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = &'a Sample> {
        let others = || step.clients.iter().skip(1).map(|client| client.port);
        let is_own = move |s: &&Sample| {
            s.port
                .is_none_or(|port| others().all(|other| other != port))
        };
        self.samples.iter().filter(is_own)
    }

    /// Returns the summary of the run's own streams.
    pub fn summary(&self, step: &Step) -> Option<TcpSummary> {
        let own: Vec<Sample> = self.own(step).copied().collect();
        let cut_ended = step.cut.map(|(at, length)| (at + length).as_secs_f64());
        let mut summary = TcpSummary::of(&own, cut_ended)?;
        let largest = own.iter().max_by_key(|sample| sample.acknowledged_bytes)?;
        summary.congestion = self.congestion.get(&largest.stream)?.clone();
        Some(summary)
    }

    /// Returns the number of segments that the run's own streams retransmitted; `None`
    /// without samples.
    pub fn retransmitted(&self, step: &Step) -> Option<u64> {
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        for sample in self.own(step) {
            last.insert(sample.stream, sample.retransmitted_segments);
        }
        (!last.is_empty()).then(|| last.values().sum())
    }

    /// Returns the result of a background client, identified by its port.
    pub fn beside(&self, step: &Step, method: &str, port: u16, wall: Duration) -> Beside {
        let is_theirs = |sample: &&Sample| sample.port == Some(port);
        let theirs: Vec<Sample> = self.samples.iter().filter(is_theirs).copied().collect();
        let own: Vec<Sample> = self.own(step).copied().collect();
        let (theirs, own) = (growth(&theirs), growth(&own));
        // The share counts only while both transfers are active.
        let both_until = last_growth(&theirs).min(last_growth(&own));
        let since = |looks: &[(f64, u64)]| {
            (bytes_by(looks, both_until) - bytes_by(looks, SETTLED_SECONDS)).max(0.0)
        };
        let both = since(&theirs) + since(&own);
        Beside {
            method: method.to_owned(),
            port,
            moved: ByteCount(bytes_by(&theirs, wall.as_secs_f64()) as u64),
            share_after_15_seconds: (both > 0.0).then(|| since(&own) / both),
        }
    }
}
