//! Starts a copy between two remote hosts: logs in to both, tells each who the
//! other is, and then only watches.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_proto::handshake::PROTOCOL_VERSION;

use super::job::seconds_now;
use super::speech::{self, Begin, Listed, Order, Reach, State, Told};
use super::started;
use super::through::{Carried, End};
use super::watch::{Left, Manner, Watched, cancel_at_signal};
use super::words::{Asked, Sides, named};
use crate::endpoint::{Endpoint, Remote, SshRemote};
use crate::messages::{Exit, Stop, say};
use crate::ssh::command::{FarSide, RELEASE, Role};
use crate::ssh::direct::addresses_of;
use crate::ssh::far::Far;
use crate::ssh::greeting::{CLIENT, Greeting, MAXIMUM_ADDRESSES};
use crate::ssh::process::SshProcess;

/// Who runs the job, and with whom.
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
    /// The source's host runs it where SSH reaches that: it knows its files
    /// without a round trip.
    fn of(sides: &'a Sides) -> Result<Plan<'a>, Stop> {
        let source = sides.sources.first();
        let (runs, at_source, other) = match (source, &sides.destination) {
            (Some(Endpoint::Ssh(source)), Endpoint::Ssh(other)) => {
                (source, true, Other::Ssh(other))
            }
            (Some(Endpoint::Ssh(source)), Endpoint::Daemon(other)) => {
                (source, true, Other::Daemon(other))
            }
            (Some(Endpoint::Daemon(other)), Endpoint::Ssh(runs)) => {
                (runs, false, Other::Daemon(other))
            }
            _ => {
                let text = "between two daemons nothing can be copied yet, since neither connects \
                            to the other: reach one of them over SSH, as user@host:path, or copy \
                            to this host first";
                return Err(Stop::new(Exit::Usage, text));
            }
        };
        Ok(Plan {
            runs,
            at_source,
            other,
        })
    }
}

/// A host that ssh led to.
struct Arrived {
    far: Far,
    process: SshProcess,
    channel: UnixStream,
    greeting: Greeting,
}

impl Arrived {
    fn at(destination: &str, asked: &Asked<'_>, role: Role) -> Result<Arrived, Stop> {
        let ssh = &asked.connection.ssh;
        let side = FarSide {
            role,
            program: ssh.remote_longhaul.clone(),
            memory: asked.memory.0,
            linger: asked.connection.timeout,
            expiry: asked.expiry,
            ports: ssh.ports.unwrap_or_default(),
        };
        let far = Far::in_role(destination, ssh, side)?;
        let (process, channel, greeting) = far.arrive()?;
        Ok(Arrived {
            far,
            process,
            channel,
            greeting,
        })
    }

    /// What another host is told of it: its key, and where it may be reached.
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
        }
    }

    /// Tells it who the other one is.
    fn hear_of(&self, other: &Greeting) -> Result<(), Stop> {
        let line = other.line(CLIENT);
        let told = (&self.channel).write_all(line.as_bytes());
        told.map_err(|_| self.ended())
    }

    fn ended(&self) -> Stop {
        let host = &self.far.start().destination;
        let text = format!("longhaul on {host} ended; what it said is above");
        Stop::new(Exit::Connection, text)
    }

    fn end_of(&self) -> Result<End, Stop> {
        let channel = self.greeting.channel.clone();
        let channel = channel.ok_or_else(|| {
            let host = &self.far.start().destination;
            Stop::new(
                Exit::Connection,
                format!("{host} takes no further channels"),
            )
        })?;
        Ok(End {
            start: self.far.start().clone(),
            channel,
        })
    }
}

/// Does it.
///
/// # Errors
///
/// Where it could not be begun, or was lost sight of.
pub fn run(asked: &Asked<'_>, sides: &Sides) -> Result<Exit, Stop> {
    let plan = Plan::of(sides)?;
    let words = (asked.words)(sides.paths(plan.at_source))?;
    let reach = match (&plan.other, asked.between.through_local) {
        (Other::Ssh(_), false) => Reach::Direct,
        (Other::Ssh(_), true) => Reach::Through,
        (Other::Daemon(_), false) => Reach::Daemon,
        (Other::Daemon(_), true) => {
            let text = "--through-local is for two hosts that SSH reaches: leave it out";
            return Err(Stop::new(Exit::Usage, text));
        }
    };
    let begin = Begin {
        words: words.into_iter().map(Into::into).collect(),
        from: shown_sources(asked),
        to: asked.paths.last().map_or(String::new(), |to| named(to)),
        reach,
        host: plan.runs.destination.clone(),
    };
    let runs = Arrived::at(&plan.runs.destination, asked, Role::Drive)?;
    match plan.other {
        Other::Ssh(other) => {
            let role = match reach {
                Reach::Through => Role::Session,
                Reach::Direct | Reach::Daemon => Role::Meet,
            };
            let other = Arrived::at(&other.destination, asked, role)?;
            runs.hear_of(&other.introduced())?;
            other.hear_of(&runs.introduced())?;
            match reach {
                Reach::Through => through(&runs, other, asked, &begin),
                Reach::Direct | Reach::Daemon => direct(&runs, other, asked, &begin),
            }
        }
        Other::Daemon(daemon) => {
            runs.hear_of(&super::vouch::vouch(
                daemon,
                &runs.greeting,
                asked.connection,
            )?)?;
            begin_job(&runs, asked, &begin).map(Left::exit)
        }
    }
}

fn shown_sources(asked: &Asked<'_>) -> String {
    let sources = asked
        .paths
        .split_last()
        .map_or(&[][..], |(_, sources)| sources);
    let first = sources.first().map_or(String::new(), |first| named(first));
    match sources.len() {
        0 | 1 => first,
        count => format!("{first} and {} more", count - 1),
    }
}

/// The two connect to each other.
fn direct(runs: &Arrived, other: Arrived, asked: &Asked<'_>, begin: &Begin) -> Result<Exit, Stop> {
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
        while let Ok(Some(told)) = speech::hear(&heard) {
            if let Told::Failed(reason) = told {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            }
        }
    };
    let listening = thread.spawn(listen);
    listening.map_err(|error| Stop::because(Exit::Local, error))?;
    let left = begin_job(runs, asked, begin);
    let why = why.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Ok(Left::Ended(code)), Some(why)) = (&left, why)
        && *code == Exit::Connection.code()
    {
        let (from, to) = (&far.start().destination, &runs.far.start().destination);
        say(&format!(
            "from {from} to {to} no connection opened: {}",
            speech::shown(&why)
        ));
    }
    let _ = channel.shutdown(std::net::Shutdown::Both);
    drop(process);
    left.map(Left::exit)
}

/// Everything goes through this host.
fn through(runs: &Arrived, other: Arrived, asked: &Asked<'_>, begin: &Begin) -> Result<Exit, Stop> {
    let ends = [runs.end_of()?, other.end_of()?];
    let role = Role::Join(ends[0].channel.clone());
    let joined = Arrived::at(&runs.far.start().destination, asked, role)?;
    let carried = Carried::begin([joined.channel, other.channel], ends);
    let carried = carried.map_err(|error| Stop::because(Exit::Local, error))?;
    let left = begin_job(runs, asked, begin);
    drop((carried, joined.process, other.process));
    left.map(Left::exit)
}

/// Begins the job and shows it.
fn begin_job(runs: &Arrived, asked: &Asked<'_>, begin: &Begin) -> Result<Left, Stop> {
    let order = speech::frame_of(&Order::Begin(begin.clone())).map_err(|_| {
        let text = "the sources' names are longer together than one command may have: copy the \
                    directory they are in, or use several commands";
        Stop::new(Exit::Usage, text)
    })?;
    let told = (&runs.channel).write_all(&order);
    told.map_err(|_| runs.ended())?;
    // From now on it would go on without this end.
    cancel_at_signal(&runs.channel);
    let host = runs.far.start().destination.clone();
    let Ok(Some(Told::Named(name))) = speech::hear(&runs.channel) else {
        return Err(runs.ended());
    };
    remember(&name, &host, begin);
    let channel = runs.channel.try_clone();
    let watched = Watched {
        channel: channel.map_err(|error| Stop::because(Exit::Local, error))?,
        name,
        host,
    };
    let left = watched.follow(Manner {
        json: asked.json,
        quiet: asked.quiet,
        begins: asked.between.detach,
        silent: false,
    })?;
    if left == Left::Running {
        println!("{}", watched.name);
    }
    let _ = watched.channel.shutdown(std::net::Shutdown::Both);
    Ok(left)
}

/// So that its name is enough to find it again.
fn remember(name: &str, host: &str, begin: &Begin) {
    let kept = started::add(Listed {
        name: name.to_owned(),
        host: host.to_owned(),
        from: begin.from.clone(),
        to: begin.to.clone(),
        began: seconds_now(),
        state: State::Running,
    });
    if let Err(error) = kept {
        say(&format!(
            "where this job runs cannot be kept here: {error}; `longhaul attach {host}:{name}` \
             finds it"
        ));
    }
}
