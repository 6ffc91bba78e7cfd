//! Copies between two daemons. One of them connects to the other and runs the copy as a job. The
//! client tries the source's daemon first, then the destination's. Each daemon needs a principal
//! with rights at it, and each token is sent only to its own daemon. With `--through-local` neither
//! daemon connects to the other: the source's daemon runs the job, or the destination's if the
//! source's is busy.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use longhaul_engine::session::opening::OpenError;
use longhaul_net::Stream;
use longhaul_net::config_directory::config_directory;
use longhaul_net::identity::Fingerprint;
use longhaul_net::relay;
use longhaul_net::tls::TlsError;
use longhaul_net::trust::TrustError;
use longhaul_proto::allowed::Allowed;
use longhaul_proto::handshake::{PROTOCOL_VERSION, Refusal, Target, Task};

use super::job_protocol::Reach;
use super::relay_channels::{Beyond, RelayChannels, Runs};
use super::sides::JobRequest;
use super::starting::{begin_job, begin_of, ended, why_closed};
use super::vouch::vouch;
use super::watch::Left;
use crate::client::connection::{Daemon, open_stop};
use crate::endpoint::{Host, Remote};
use crate::settings::{ConnectionSettings, DataSecurity};
use crate::ssh::command::RELEASE;
use crate::ssh::greeting::{CLIENT, Greeting, Line, REMOTE};
use crate::ssh::process::{Silence, await_greeting};
use crate::stop::{Exit, Stop};

/// Time limit for the greeting of a job's process, and for each message of a process that lists
/// jobs.
pub const GREETS_WITHIN: Duration = Duration::from_secs(30);

/// One of the two daemons.
struct Side<'a> {
    remote: &'a Remote,
    daemon: Daemon,
    key: Fingerprint,
    /// Name of the daemon in a URL.
    name: String,
}

impl<'a> Side<'a> {
    fn new(remote: &'a Remote, connection: &ConnectionSettings) -> Result<Side<'a>, Stop> {
        let daemon = Daemon::new(remote, connection)?;
        Ok(Side {
            key: daemon.key(unbelieved)?,
            name: remote.place(),
            remote,
            daemon,
        })
    }

    /// Asks this daemon to connect to the other one; returns the reason if it cannot.
    fn reaches(&self, other: &Side<'_>) -> Result<Result<(), Refused>, Stop> {
        let target = Target {
            host: other.remote.host.host().to_owned(),
            port: other.remote.host.port(),
            key: *other.key.as_bytes(),
        };
        match self.daemon.control_request(Task::Reach(target))? {
            Ok(_) => Ok(Ok(())),
            Err(OpenError::Refused(refused)) if refused.refusal == Refusal::Forbidden => {
                Ok(Err(Refused::Forbidden(refused.text)))
            }
            Err(OpenError::Refused(refused)) if refused.refusal == Refusal::Unreachable => {
                Ok(Err(Refused::Apart(refused.text)))
            }
            // If this daemon is busy, the other one may still be able to connect.
            Err(OpenError::Refused(refused)) if refused.refusal == Refusal::Busy => {
                Ok(Err(Refused::Apart(refused.text)))
            }
            Err(OpenError::Io(error)) => Ok(Err(Refused::Apart(silence(&error)))),
            Err(error) => Err(open_stop(&self.name, &error)),
        }
    }
}

/// Explains why one of two daemons is not trusted. It does not suggest --fingerprint, which would
/// apply to both daemons.
fn unbelieved(error: &TlsError) -> String {
    let TlsError::Trust(TrustError::Unknown { host, found }) = error else {
        return error.to_string();
    };
    format!(
        "{host} is unknown, its key is {found}: compare that with what the daemon printed when it \
         started, then put the line \"{host} {found}\" into {}, or give --accept-new to trust both \
         daemons unseen",
        known_hosts()
    )
}

/// Returns the path of the file of trusted keys, for messages.
fn known_hosts() -> String {
    match config_directory() {
        Ok(directory) => directory.join("known_hosts").display().to_string(),
        Err(_) => "known_hosts in the configuration directory".to_owned(),
    }
}

/// Describes the error of a read that received no answer.
pub fn silence(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer came in time".to_owned(),
        _ => format!("no answer came: {error}"),
    }
}

/// The reason why one daemon does not connect to the other.
enum Refused {
    Forbidden(String),
    Apart(String),
}

impl Refused {
    fn text(&self) -> &str {
        match self {
            Refused::Forbidden(text) | Refused::Apart(text) => text,
        }
    }
}

/// Starts the job at one of the two daemons, and follows it.
///
/// # Errors
///
/// Fails if the job cannot be started or the connection to it is lost.
pub fn run(asked: &JobRequest<'_>, ends: [&Remote; 2]) -> Result<Exit, Stop> {
    let usage = |text: &str| Err(Stop::new(Exit::Usage, text));
    if asked.connection().data_security != DataSecurity::Tls {
        return usage("between two daemons data are encrypted: leave --data-security clear out");
    }
    if asked.connection().fingerprint.is_some() && ends[0].host != ends[1].host {
        return usage(&format!(
            "--fingerprint names one key, and two daemons have two: put a line \"HOST:PORT KEY\" \
             for each into {}, or give --accept-new or --authority",
            known_hosts()
        ));
    }
    let (from, to) = (ends[0].place(), ends[1].place());
    asked.viewer.notice(&format!("asking {from} and {to}"));
    let source = Side::new(ends[0], asked.connection())?;
    let destination = Side::new(ends[1], asked.connection())?;
    if asked.through_local {
        return through(asked, source, destination);
    }
    // The source's daemon is preferred, because it lists its files without a round trip.
    let (runs, other, at_source) = match source.reaches(&destination)? {
        Ok(()) => (&source, &destination, true),
        Err(forth) => match destination.reaches(&source)? {
            Ok(()) => (&destination, &source, false),
            Err(back) => return Err(apart(&source, &forth, &destination, &back)),
        },
    };
    let begin = begin_of(asked, &asked.of_job(at_source)?, Reach::Daemon, &runs.name)?;
    let started = runs.daemon.control_request(Task::Drive)?;
    let started = started.map_err(|error| open_stop(&runs.name, &error))?;
    let job = Process::new(started, runs)?;
    job.introduce(runs, other.remote, (asked, asked.allowed(at_source)))?;
    begin_job(&job.channel, &runs.name, asked, &begin).map(Left::exit)
}

/// Starts the job with channels through this host. The source's daemon runs it, unless it is busy,
/// because it lists its files without a round trip.
fn through(asked: &JobRequest<'_>, source: Side<'_>, destination: Side<'_>) -> Result<Exit, Stop> {
    let mut at_source = true;
    let (mut runs, mut other) = (source, destination);
    let mut started = runs.daemon.control_request(Task::DriveThrough)?;
    if matches!(&started, Err(OpenError::Refused(refused)) if refused.refusal == Refusal::Busy) {
        at_source = false;
        (runs, other) = (other, runs);
        started = runs.daemon.control_request(Task::DriveThrough)?;
    }
    let started = started.map_err(|error| open_stop(&runs.name, &error))?;
    let job = Process::new(started, &runs)?;
    let begin = begin_of(asked, &asked.of_job(at_source)?, Reach::Sealed, &runs.name)?;
    job.introduce(&runs, other.remote, (asked, asked.allowed(at_source)))?;
    // The channels must go to the same address as the job: other hosts may share its name.
    let (Some(name), Some(address)) = (job.greeting.channel, job.address) else {
        let text = format!("{}: the job there takes no channels", runs.name);
        return Err(Stop::new(Exit::Connection, text));
    };
    let daemon = Box::new(runs.daemon.at(Some(runs.key), address, None));
    let first = daemon.control_request(Task::Channel(name.clone()))?;
    let first = first.map_err(|error| open_stop(&runs.name, &error))?;
    let channels_through = RelayChannels::begin(
        Runs::Daemon(daemon, name),
        Beyond::Daemon(Box::new(other.daemon)),
        (first, None),
    )?;
    let left = begin_job(&job.channel, &runs.name, asked, &begin);
    drop(channels_through);
    left.map(Left::exit)
}

/// Reports that neither daemon connects to the other.
fn apart(source: &Side<'_>, forth: &Refused, destination: &Side<'_>, back: &Refused) -> Stop {
    let exit = match (forth, back) {
        (Refused::Forbidden(_), Refused::Forbidden(_)) => Exit::Authentication,
        _ => Exit::Connection,
    };
    let why = told_of_both(
        (&source.name, forth.text()),
        (&destination.name, back.text()),
    );
    let text = format!(
        "neither daemon connects to the other: {why}; or have the data carried through this host \
         with --through-local"
    );
    Stop::new(exit, text)
}

/// Combines the messages of two daemons, which may be equal.
fn told_of_both(one: (&str, &str), other: (&str, &str)) -> String {
    match (one.0 == other.0, one.1 == other.1) {
        (true, true) => format!("{}: {}", one.0, one.1),
        (false, true) => format!("{} and {} both say: {}", one.0, other.0, one.1),
        (_, false) => format!("{}: {}; {}: {}", one.0, one.1, other.0, other.1),
    }
}

/// A process for a job at a daemon.
struct Process {
    channel: UnixStream,
    /// Greeting of the process.
    greeting: Greeting,
    /// Address of the daemon.
    address: Option<SocketAddr>,
}

impl Process {
    fn new(stream: Stream, side: &Side<'_>) -> Result<Process, Stop> {
        let address = stream.handle.peer_address();
        let channel = carried(stream)?;
        Ok(Process {
            greeting: greeting_of(&channel, &side.name)?,
            channel,
            address,
        })
    }

    /// Has the other daemon accept the job's key, and introduces that daemon to the job.
    fn introduce(
        &self,
        runs: &Side<'_>,
        other: &Remote,
        (asked, allowed): (&JobRequest<'_>, Allowed),
    ) -> Result<(), Stop> {
        let introduced = vouch(other, (&self.greeting, allowed), asked.connection())?;
        let told = (&self.channel).write_all(introduced.line(CLIENT).as_bytes());
        told.map_err(|_| why_closed(&self.channel, &runs.name))
    }
}

/// Reads the greeting at the beginning of a daemon's channel, and checks the release.
///
/// # Errors
///
/// Fails if no greeting arrives in time, or if it is from another release.
pub fn greeting_of(channel: &UnixStream, host: &str) -> Result<Greeting, Stop> {
    let local = |error: io::Error| Stop::because(Exit::Local, error);
    channel
        .set_read_timeout(Some(GREETS_WITHIN))
        .map_err(local)?;
    let greeting = match await_greeting(channel, REMOTE) {
        Ok(Line::Greeting(greeting)) => greeting,
        Err(Silence::Io(error)) => {
            let text = format!("{host}: {}", silence(&error));
            return Err(Stop::new(Exit::Connection, text));
        }
        _ => return Err(ended(host)),
    };
    channel.set_read_timeout(None).map_err(local)?;
    if greeting.software != RELEASE || greeting.protocol != PROTOCOL_VERSION {
        let text = format!(
            "{host}: longhaul {} is there, and this is {RELEASE}: use the same release everywhere",
            greeting.software
        );
        return Err(Stop::new(Exit::Connection, text));
    }
    Ok(greeting)
}

/// Opens a channel for a control request at a daemon.
///
/// # Errors
///
/// Fails if the daemon cannot be reached or refuses the request.
pub fn channel(daemon: &Daemon, host: &str, what: Task) -> Result<UnixStream, Stop> {
    let stream = daemon.control_request(what)?;
    carried(stream.map_err(|error| open_stop(&host, &error))?)
}

/// Returns a local socket whose bytes are carried over a stream.
fn carried(stream: Stream) -> Result<UnixStream, Stop> {
    let local = |error: io::Error| Stop::because(Exit::Local, error);
    let (near, far) = UnixStream::pair().map_err(local)?;
    relay::carry_stream(stream, far, ()).map_err(local)?;
    Ok(near)
}
