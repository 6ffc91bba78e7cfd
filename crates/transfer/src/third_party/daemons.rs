//! A copy between two daemons. The one that may and can connects to the other and runs the copy as
//! a job: the source's is asked first, then the destination's. Each needs a principal with rights
//! there, and tokens go to their own daemon only. With `--through-local` the source's daemon runs
//! the job, or the destination's if that is busy, and neither connects to the other.

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
use crate::endpoint::{Endpoint, Remote};
use crate::settings::{ConnectionSettings, DataSecurity};
use crate::ssh::command::RELEASE;
use crate::ssh::greeting::{CLIENT, Greeting, Line, REMOTE};
use crate::ssh::process::{Silence, await_greeting};
use crate::stop::{Exit, Stop};

/// How long a job's process may take to say who it is, and one that lists jobs
/// to say the next.
pub const GREETS_WITHIN: Duration = Duration::from_secs(30);

/// One of the two.
struct Side<'a> {
    remote: &'a Remote,
    daemon: Daemon,
    key: Fingerprint,
    /// As it is named in a URL.
    name: String,
}

impl<'a> Side<'a> {
    fn new(remote: &'a Remote, connection: &ConnectionSettings) -> Result<Side<'a>, Stop> {
        let daemon = Daemon::new(remote, connection)?;
        Ok(Side {
            key: daemon.key(unbelieved)?,
            name: place_of(remote),
            remote,
            daemon,
        })
    }

    /// Whether it may and can connect to the other one; if not, why.
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
            // What it cannot say now the other one may.
            Err(OpenError::Refused(refused)) if refused.refusal == Refusal::Busy => {
                Ok(Err(Refused::Apart(refused.text)))
            }
            Err(OpenError::Io(error)) => Ok(Err(Refused::Apart(silence(&error)))),
            Err(error) => Err(open_stop(&self.name, &error)),
        }
    }
}

/// Why one of two daemons is not believed: a key on the command line would be the
/// other one's as well.
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

/// The file of keys that the user trusts, as the user names it.
fn known_hosts() -> String {
    match config_directory() {
        Ok(directory) => directory.join("known_hosts").display().to_string(),
        Err(_) => "known_hosts in the configuration directory".to_owned(),
    }
}

/// Why nothing was heard.
pub fn silence(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer came in time".to_owned(),
        _ => format!("no answer came: {error}"),
    }
}

/// Why one does not connect to the other.
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

/// A daemon as endpoints name it.
fn place_of(remote: &Remote) -> String {
    let endpoint = Endpoint::Daemon(remote.clone());
    endpoint.place().unwrap_or_default()
}

/// Does it.
///
/// # Errors
///
/// Where it could not be begun, or was lost sight of.
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
    let (from, to) = (place_of(ends[0]), place_of(ends[1]));
    asked.viewer.notice(&format!("asking {from} and {to}"));
    let source = Side::new(ends[0], asked.connection())?;
    let destination = Side::new(ends[1], asked.connection())?;
    if asked.through_local {
        return through(asked, source, destination);
    }
    // The source's runs it where it can: it knows its files without a round trip.
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

/// The same with channels that go through this host. The source's runs it, which
/// knows its files without a round trip, unless it has enough to do.
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
    // Channels come to the host that the job is at, whatever else has its name.
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

/// Neither connects to the other.
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

/// What two say, who may say the same.
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
    /// What it says of itself.
    greeting: Greeting,
    /// Where the daemon is.
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

    /// Has the other daemon let it in, and tells it of that one.
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

/// What comes first on a channel of a daemon: it is of the same release.
///
/// # Errors
///
/// Where nothing comes in time, or it is of another one.
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

/// The channel of a control request at a daemon.
///
/// # Errors
///
/// Where the daemon cannot be reached, or refuses.
pub fn channel(daemon: &Daemon, host: &str, what: Task) -> Result<UnixStream, Stop> {
    let stream = daemon.control_request(what)?;
    carried(stream.map_err(|error| open_stop(&host, &error))?)
}

/// A local socket whose bytes a stream carries.
fn carried(stream: Stream) -> Result<UnixStream, Stop> {
    let local = |error: io::Error| Stop::because(Exit::Local, error);
    let (near, far) = UnixStream::pair().map_err(local)?;
    relay::carry_stream(stream, far, ()).map_err(local)?;
    Ok(near)
}
