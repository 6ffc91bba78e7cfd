//! Starts a copy between two remote hosts: logs in to both, introduces them to each other, and then
//! only watches.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_engine::session::opening::OpenError;
use longhaul_net::clear;
use longhaul_proto::handshake::{Operation, PROTOCOL_VERSION};
use minicbor::bytes::ByteVec;

use super::daemons::GREETS_WITHIN;
use super::job::seconds_now;
use super::job_protocol::{self, Begin, JobEvent, Listed, Order, Reach, State};
use super::own_job::job_of;
use super::relay_channels::{Beyond, RelayChannels, Runs};
use super::sides::{JobRequest, named};
use super::started;
use super::viewer::Canceller;
use super::vouch::vouch;
use super::watch::{Fetched, Left, Watched, same_options};
use crate::client::connection::Daemon;
use crate::console::say;
use crate::endpoint::{Endpoint, HostAccess, Remote, SshRemote, names_daemon};
use crate::settings::DataSecurity;
use crate::spec::{TransferSpec, ValidSpec};
use crate::ssh::PROTECTION;
use crate::ssh::command::{FarSide, RELEASE, Role, Start};
use crate::ssh::direct::addresses_of;
use crate::ssh::greeting::{CLIENT, Greeting, MAXIMUM_ADDRESSES};
use crate::ssh::process::SshProcess;
use crate::ssh::remote_end::RemoteEnd;
use crate::stop::{Exit, Stop};

/// The host that runs the job, and the other host.
struct Plan<'a> {
    runs: &'a SshRemote,
    at_source: bool,
    other: Other<'a>,
}

enum Other<'a> {
    Ssh(&'a SshRemote),
    Daemon(&'a Remote),
}

impl<'a> Plan<'a> {
    /// Chooses the host that runs the job. The source's host is preferred if SSH reaches it,
    /// because it lists its files without a round trip. `None` if SSH reaches neither host.
    fn of(sides: &'a ValidSpec) -> Option<Plan<'a>> {
        let source = sides.sources.first()?.access()?;
        let (runs, at_source, other) = match (source, sides.destination.access()?) {
            (HostAccess::Login(source), HostAccess::Login(other)) => {
                (source, true, Other::Ssh(other))
            }
            (HostAccess::Login(source), HostAccess::Daemon(other)) => {
                (source, true, Other::Daemon(other))
            }
            (HostAccess::Daemon(other), HostAccess::Login(runs)) => {
                (runs, false, Other::Daemon(other))
            }
            (HostAccess::Daemon(_), HostAccess::Daemon(_)) => return None,
        };
        Some(Plan {
            runs,
            at_source,
            other,
        })
    }
}

/// A host on which ssh has started longhaul.
struct Arrived {
    far: Arc<RemoteEnd>,
    process: SshProcess,
    channel: UnixStream,
    greeting: Greeting,
}

/// Prepares the login to a host.
fn far_in_role(
    destination: &str,
    asked: &JobRequest<'_>,
    role: Role,
) -> Result<Arc<RemoteEnd>, Stop> {
    let ssh = &asked.connection().ssh;
    let side = FarSide {
        role,
        program: ssh.remote_longhaul.clone(),
        memory: asked.spec.limits.memory,
        linger: asked.connection().timeout,
        expiry: asked.expiry(),
        ports: ssh.ports.unwrap_or_default(),
        replaces: ssh.install_remote,
    };
    let timeout = asked.connection().timeout;
    RemoteEnd::in_role(destination, (ssh, timeout), side).map(Arc::new)
}

impl Arrived {
    fn at(far: Arc<RemoteEnd>) -> Result<Arrived, Stop> {
        let arrived = far.arrive()?;
        Ok(Arrived::with(far, arrived))
    }

    fn with(far: Arc<RemoteEnd>, arrived: (SshProcess, UnixStream, Greeting)) -> Arrived {
        let (process, channel, greeting) = arrived;
        Arrived {
            far,
            process,
            channel,
            greeting,
        }
    }

    /// Logs in to both hosts at the same time if the second login needs no input from the user,
    /// because prompts of two logins could not be distinguished. Otherwise logs in to one after the
    /// other.
    fn at_both(first: Arc<RemoteEnd>, second: Arc<RemoteEnd>) -> Result<[Arrived; 2], Stop> {
        let (sender, arrived) = sync_channel(1);
        let silent = Arc::clone(&second);
        let thread = std::thread::Builder::new().name("login".into());
        let started = thread.spawn(move || {
            // If the first login has failed, the result has no receiver.
            let _ = sender.send(silent.arrive_silently());
        });
        let first = Arrived::at(first)?;
        // Without a thread there is no result, like after a login that needs input.
        let silently = started.ok().and_then(|_| arrived.recv().ok().flatten());
        let second = match silently {
            Some(arrived) => Arrived::with(second, arrived),
            None => Arrived::at(second)?,
        };
        Ok([first, second])
    }

    /// Returns the introduction of this host for another host: its key and its addresses.
    fn introduced(&self) -> Greeting {
        let port = self.greeting.port;
        let found = port.map_or_else(Vec::new, |port| addresses_of(self.far.start(), port));
        let mut addresses = Vec::new();
        let found = found.into_iter().map(|address| address.ip());
        for address in found.chain(self.greeting.addresses.iter().copied()) {
            if !addresses.contains(&address) && addresses.len() < MAXIMUM_ADDRESSES {
                addresses.push(address);
            }
        }
        Greeting {
            software: RELEASE.to_owned(),
            protocol: PROTOCOL_VERSION,
            key: self.greeting.key.clone(),
            port,
            addresses,
            channel: None,
            mortal: self.greeting.mortal,
            bound: false,
        }
    }

    /// Introduces the other host to this one.
    fn hear_of(&self, other: &Greeting) -> Result<(), Stop> {
        let line = other.line(CLIENT);
        let told = (&self.channel).write_all(line.as_bytes());
        told.map_err(|_| self.why_closed())
    }

    fn why_closed(&self) -> Stop {
        why_closed(&self.channel, &self.far.start().destination)
    }

    fn begin_job(&self, asked: &JobRequest<'_>, begin: &Begin) -> Result<Left, Stop> {
        begin_job(&self.channel, &self.far.start().destination, asked, begin)
    }

    /// Returns the way of ssh to this host, and the name under which it accepts further channels.
    fn door(&self) -> Result<(Start, String), Stop> {
        let start = self.far.start();
        let channel = self.greeting.channel.clone();
        let door = channel.map(|channel| (start.clone(), channel));
        door.ok_or_else(|| {
            let text = format!("{} takes no further channels", start.destination);
            Stop::new(Exit::Connection, text)
        })
    }
}

/// Starts the job on one of the two hosts, and follows it.
///
/// # Errors
///
/// Fails if the job cannot be started or the connection to it is lost.
pub fn run<'a>(asked: &JobRequest<'a>) -> Result<Exit, Stop> {
    let sides = asked.spec;
    let daemon = |end: &'a Endpoint| end.access().and_then(HostAccess::daemon);
    let from = sides.sources.first().and_then(daemon);
    if let (Some(from), Some(to)) = (from, daemon(&sides.destination)) {
        return super::daemons::run(asked, [from, to]);
    }
    let plan = Plan::of(sides).ok_or_else(|| {
        Stop::new(
            Exit::Usage,
            "both sides are named as [USER@]HOST:PATH or longhaul://HOST/PATH",
        )
    })?;
    let spec = asked.of_job(plan.at_source)?;
    let reach = reach_of(asked, &plan.other)?;
    let begin = begin_of(asked, &spec, reach, &plan.runs.destination)?;
    let runs = far_in_role(&plan.runs.destination, asked, Role::Drive)?;
    match plan.other {
        Other::Ssh(other) => {
            let role = match reach {
                Reach::Through => Role::Session,
                _ => Role::Meet,
            };
            let (own, other_host) = (&plan.runs.destination, &other.destination);
            asked
                .viewer
                .notice(&format!("logging in to {own} and {other_host}"));
            let other = far_in_role(&other.destination, asked, role)?;
            let [runs, other] = Arrived::at_both(runs, other)?;
            runs.hear_of(&other.introduced())?;
            other.hear_of(&Greeting {
                bound: true,
                ..runs.introduced()
            })?;
            let allowed = asked.allowed(plan.at_source);
            if !allowed.is_valid() {
                return Err(too_many_names());
            }
            let order =
                job_protocol::frame_of(&Order::Allow(allowed)).map_err(|_| too_many_names())?;
            let told = (&other.channel).write_all(&order);
            told.map_err(|_| other.why_closed())?;
            match reach {
                Reach::Through => {
                    let (start, name) = other.door()?;
                    let beyond = (Beyond::Ssh(start, name), Some(other.channel));
                    let left = through(&runs, beyond, asked, &begin);
                    drop(other.process);
                    left
                }
                _ => direct(&runs, other, asked, &begin),
            }
        }
        Other::Daemon(daemon) => {
            let own = &plan.runs.destination;
            asked.viewer.notice(&format!("logging in to {own}"));
            let runs = Arrived::at(runs)?;
            let host = &daemon.host;
            asked.viewer.notice(&format!("asking the daemon at {host}"));
            let allowed = asked.allowed(plan.at_source);
            let introduced = vouch(daemon, (&runs.greeting, allowed), asked.connection())?;
            runs.hear_of(&introduced)?;
            match reach {
                Reach::Sealed => {
                    let daemon = Box::new(Daemon::new(daemon, asked.connection())?);
                    through(&runs, (Beyond::Daemon(daemon), None), asked, &begin)
                }
                _ => runs.begin_job(asked, &begin).map(Left::exit),
            }
        }
    }
}

/// Returns the way between the two hosts.
///
/// # Errors
///
/// Fails if clear data are requested on a way that is always encrypted.
fn reach_of(asked: &JobRequest<'_>, other: &Other) -> Result<Reach, Stop> {
    let tls = asked.connection().data_security == DataSecurity::Tls;
    Ok(match (other, asked.through_local) {
        (_, true) if !tls => {
            let text = "through this host data are encrypted: leave --data-security clear out";
            return Err(Stop::new(Exit::Usage, text));
        }
        (Other::Ssh(_), false) if !tls => {
            let text = "over SSH data are always encrypted: leave --data-security clear out";
            return Err(Stop::new(Exit::Usage, text));
        }
        (Other::Ssh(_), true) => Reach::Through,
        (Other::Daemon(_), true) => Reach::Sealed,
        (Other::Ssh(_), false) => Reach::Direct,
        (Other::Daemon(_), false) => Reach::Daemon,
    })
}

/// Builds the message that begins a job.
///
/// # Errors
///
/// Fails if the path of a report file on this host cannot be sent.
pub fn begin_of(
    asked: &JobRequest<'_>,
    spec: &TransferSpec,
    reach: Reach,
    host: &str,
) -> Result<Begin, Stop> {
    let [from, to] = asked.named.clone();
    let manifest = asked.manifest.map(|file| named(file.as_os_str()));
    let text = serde_json::to_string(spec);
    Ok(Begin {
        spec: text.map_err(|error| Stop::because(Exit::Usage, error))?,
        from,
        to,
        reach,
        host: host.to_owned(),
        manifest,
        shown: asked.shown,
        compares: spec.options.operation == Operation::Verify,
        report: asked.accounts[0].map(bytes_of),
        log: asked.accounts[1].map(bytes_of),
    })
}

fn bytes_of(path: &Path) -> ByteVec {
    path.as_os_str().as_bytes().to_vec().into()
}

/// Reports that the process on the host that was to run a job has ended.
pub fn ended(host: &str) -> Stop {
    let text = if names_daemon(host) {
        format!("{host}: the job's process ended; the daemon's log says why")
    } else {
        format!("longhaul on {host} ended; what it said is above")
    };
    Stop::new(Exit::Connection, text)
}

/// Explains why a host that was to run a job, or to meet the one that does, closed the channel: by
/// the failure that it reported before, if any.
pub(super) fn why_closed(channel: &UnixStream, host: &str) -> Stop {
    // Without a limit, the read ends when the channel's process does.
    let _ = channel.set_read_timeout(Some(GREETS_WITHIN));
    match job_protocol::receive(channel) {
        Ok(Some(JobEvent::Failed(text, code))) => {
            Stop::new(Exit::of_failure(code), format!("{host}: {text}"))
        }
        _ => ended(host),
    }
}

/// Runs the job over a direct connection between the two hosts.
fn direct(
    runs: &Arrived,
    other: Arrived,
    asked: &JobRequest<'_>,
    begin: &Begin,
) -> Result<Exit, Stop> {
    let why: Arc<Mutex<Option<String>>> = Arc::default();
    let kept = Arc::clone(&why);
    let Arrived {
        far,
        process,
        channel,
        ..
    } = other;
    let heard = channel.try_clone();
    let heard = heard.map_err(|error| Stop::because(Exit::Local, error))?;
    let thread = std::thread::Builder::new().name("other".into());
    let listen = move || {
        while let Ok(Some(told)) = job_protocol::receive(&heard) {
            if let JobEvent::Failed(reason, _) = told {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            }
        }
    };
    let listening = thread.spawn(listen);
    listening.map_err(|error| Stop::because(Exit::Local, error))?;
    let left = runs.begin_job(asked, begin);
    let why = why.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Ok(Left::Ended(code)), Some(why)) = (&left, why)
        && *code == Exit::Connection.code()
    {
        let (from, to) = (&far.start().destination, &runs.far.start().destination);
        say(&format!("from {from} to {to} no connection opened: {why}"));
    }
    let _ = channel.shutdown(std::net::Shutdown::Both);
    drop(process);
    left.map(Left::exit)
}

/// Runs the job over channels through this host. `first` is the first channel to the other host, if
/// it is already open.
fn through(
    runs: &Arrived,
    (beyond, first): (Beyond, Option<UnixStream>),
    asked: &JobRequest<'_>,
    begin: &Begin,
) -> Result<Exit, Stop> {
    let (start, name) = runs.door()?;
    let joined = far_in_role(&start.destination, asked, Role::Join(name.clone()))?;
    let joined = Arrived::at(joined)?;
    let channel = clear::over_local(joined.channel, PROTECTION);
    let channels_through = RelayChannels::begin(Runs::Ssh(start, name), beyond, (channel, first))?;
    let left = runs.begin_job(asked, begin);
    drop((channels_through, joined.process));
    left.map(Left::exit)
}

/// Reports that the names are too long for one message.
fn too_many_names() -> Stop {
    Stop::because(Exit::Usage, OpenError::TooManyNames)
}

/// Begins the job and shows it.
///
/// # Errors
///
/// Fails if the job cannot be started or the connection to it is lost.
pub fn begin_job(
    channel: &UnixStream,
    host: &str,
    asked: &JobRequest<'_>,
    begin: &Begin,
) -> Result<Left, Stop> {
    let order =
        job_protocol::frame_of(&Order::Begin(begin.clone())).map_err(|_| too_many_names())?;
    // With `detach`, the manifest is fetched later, by `attach`.
    let wanted = asked.manifest;
    let manifest = Fetched::into(wanted.filter(|_| !asked.detach))?;
    let mut to = channel;
    to.write_all(&order)
        .map_err(|_| why_closed(channel, host))?;
    // From now on the job continues without this end.
    let local = |error: std::io::Error| Stop::because(Exit::Local, error);
    asked
        .viewer
        .begun(Canceller::new(channel.try_clone().map_err(local)?));
    let timeout = asked.connection().timeout;
    channel.set_read_timeout(Some(timeout)).map_err(local)?;
    let named = job_protocol::receive(channel);
    channel.set_read_timeout(None).map_err(local)?;
    let name = match named {
        Ok(Some(JobEvent::Named(name))) => name,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            let text = format!(
                "{host}: longhaul is there, and did not begin the job within {} s (--timeout)",
                timeout.as_secs_f64().ceil()
            );
            return Err(Stop::new(Exit::Connection, text));
        }
        Ok(Some(JobEvent::Failed(text, code))) => {
            return Err(Stop::new(Exit::of_failure(code), format!("{host}: {text}")));
        }
        _ => return Err(ended(host)),
    };
    remember(&name, host, begin);
    asked.viewer.notice(&format!(
        "job {name} at {host} looks for a way to the other host"
    ));
    let channel = channel.try_clone();
    let watched = Watched {
        channel: channel.map_err(|error| Stop::because(Exit::Local, error))?,
        name,
        host: host.to_owned(),
        manifest,
    };
    let left = watched.follow(asked.viewer, asked.detach)?;
    if left == Left::Running {
        asked.viewer.left(&watched.name);
    }
    let _ = watched.channel.shutdown(std::net::Shutdown::Both);
    Ok(left)
}

/// Records the job's host, so that its name is enough to find it again.
fn remember(name: &str, host: &str, begin: &Begin) {
    let kept = started::add(Listed {
        name: name.to_owned(),
        host: host.to_owned(),
        from: begin.from.clone(),
        to: begin.to.clone(),
        began: seconds_now(),
        state: State::Running,
        compares: begin.compares,
        done_bytes: None,
        bwlimit_bytes_per_second: None,
    });
    if let Err(error) = kept {
        say(&format!(
            "where this job runs cannot be kept here: {error}; `longhaul attach {}` \
             finds it{}",
            job_of(host, name),
            same_options(host)
        ));
    }
}
