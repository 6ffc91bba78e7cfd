//! The far side of a copy over SSH. It says who it is, hears who started it, runs one
//! session and ends. Its standard input and output are the channel.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_net::candidates::{interface_addresses, login_ends_processes, ssh_connection};
use longhaul_net::clear;
use longhaul_net::identity::Identity;
use longhaul_net::relay;
use longhaul_net::tcp::TcpOptions;
use longhaul_net::tls::{TlsOptions, TlsServer};
use longhaul_net::token::fill_random;
use longhaul_proto::allowed::Allowed;
use longhaul_proto::handshake::PROTOCOL_VERSION;
use longhaul_system::allowance;
use longhaul_units::ByteCount;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::daemon::{Client, Daemon, Terms};
use crate::hangup::end_commands_at;
use crate::ports::Ports;
use crate::ssh::PROTECTION;
use crate::ssh::command::RELEASE;
use crate::ssh::further::ENDED;
use crate::ssh::greeting::{CLIENT, Greeting, Line, MAXIMUM_ADDRESSES, REMOTE};
use crate::ssh::process::await_greeting;
use crate::stop::{Exit, Stop};
use crate::third_party::drive;
use crate::third_party::job_protocol::{self, JobEvent, Order};

/// How long what was said last may take to leave.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// What the far side is started with.
#[derive(Clone, Debug)]
pub struct FarSideSettings {
    /// Ports to listen on.
    pub ports: Ports,
    /// Memory for blocks, in bytes.
    pub memory: u64,
    /// How long the session outlives its last connection.
    pub linger: Duration,
    /// When leftovers of killed copies expire; none: never.
    pub expiry: Option<Duration>,
    /// A daemon's principal, as the daemon wrote it down: the job is its. The file is
    /// removed.
    pub confined: Option<PathBuf>,
    /// Hosts that the daemon connects to.
    pub dial: Option<String>,
    /// Where channels come to the job of a daemon that connects to nobody for it.
    pub channels: Option<PathBuf>,
}

fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Runs one session with the host that started this; where `introduced` says so, with the host
/// that it introduces.
///
/// # Errors
///
/// Where the session could not begin.
pub fn session(arguments: &FarSideSettings, introduced: bool) -> Result<Exit, Stop> {
    let identity = Identity::ephemeral().map_err(local)?;
    let tls = TlsServer::new(&identity, TlsOptions::default()).map_err(local)?;
    // Without a port the client is called, or all goes through channels.
    let listener = arguments.ports.listen_if_free().map_err(local)?;
    let channels = listen_for_channels();
    let other = introduce(
        &identity,
        listener.as_ref(),
        channels.as_ref().map(|channels| channels.0.clone()),
    )?;
    // Who was introduced is not where the login came from.
    let first = ssh_connection().filter(|_| !introduced);
    let allowed = if other.bound { Some(allowed()?) } else { None };
    let client = client_of(other, first.map(|(client, _)| client))?.allowed(allowed);
    let (input, output) = detach().map_err(local)?;
    let (channel, outward) = relay::join(input, output).map_err(local)?;
    end_commands_at(&[SIGHUP, SIGINT, SIGTERM]);
    let terms = Terms {
        allow_clear: false,
        memory: allowance::for_blocks(ByteCount(arguments.memory)),
        linger: arguments.linger,
        expiry: arguments.expiry,
        logs_json: false,
    };
    let daemon = Daemon::for_owner(terms, tls, client);
    if let Some((_, channels)) = channels {
        daemon.accept_channels(channels).map_err(local)?;
    }
    if let Some(listener) = listener {
        let daemon = Arc::clone(&daemon);
        let accept = move || daemon.accept(&listener, &TcpOptions::default());
        let thread = std::thread::Builder::new().name("accept".into());
        thread.spawn(accept).map_err(local)?;
    }
    if introduced {
        meet(&daemon, channel)?;
    } else {
        daemon.serve_channel(clear::over_local(channel, PROTECTION));
    }
    outward.drain(LAST_WORDS);
    Ok(Exit::Done)
}

/// Hears what the host that was introduced may ask for.
fn allowed() -> Result<Allowed, Stop> {
    let heard = unbuffered_input()
        .and_then(job_protocol::receive)
        .map_err(local)?;
    match heard {
        Some(Order::Allow(allowed)) => Ok(allowed),
        _ => Err(local("nobody said what the other host may ask for")),
    }
}

/// Meets the host that was introduced: lets it connect, and connects to it. The
/// channel is of no use to the session, and may end once that has begun.
fn meet(daemon: &Arc<Daemon>, channel: UnixStream) -> Result<(), Stop> {
    let calling = Arc::clone(daemon);
    let words = channel.try_clone().map_err(local)?;
    let thread = std::thread::Builder::new().name("call".into());
    let call = move || {
        if let Err(reason) = calling.call_first() {
            // Whoever asked may have gone.
            let _ = job_protocol::send(&words, &JobEvent::failed(&reason, None));
        }
    };
    thread.spawn(call).map_err(local)?;
    let (waiting, own) = (Arc::clone(daemon), channel.try_clone().map_err(local)?);
    let thread = std::thread::Builder::new().name("channel".into());
    let wait = move || {
        drive::wait_for_end(&channel);
        // Closes it for the one who calls as well.
        let _ = channel.shutdown(std::net::Shutdown::Both);
        waiting.give_up();
    };
    thread.spawn(wait).map_err(local)?;
    daemon.wait_for_session();
    let _ = own.shutdown(std::net::Shutdown::Both);
    Ok(())
}

/// Carries one more channel to the session that listens under a name.
///
/// # Errors
///
/// Where no session listens there any more.
pub fn carry(name: &str) -> Result<Exit, Stop> {
    let address = SocketAddr::from_abstract_name(name).map_err(local)?;
    let socket = UnixStream::connect_addr(&address).map_err(|error| {
        local(format!(
            "{ENDED}: {error}: the longhaul of this copy has ended here"
        ))
    })?;
    greet_plainly()?;
    let (input, output) = detach().map_err(local)?;
    relay::carry_between(input, output, socket).map_err(local)?;
    Ok(Exit::Done)
}

/// Says that this release is here, and no more.
pub fn greet_plainly() -> Result<(), Stop> {
    say_greeting(&Greeting {
        key: "none".to_owned(),
        ..own_greeting()
    })
}

/// Listens where other processes of this user find it; the name says nothing
/// to others, and lets nobody in.
pub fn listen_for_channels() -> Option<(String, UnixListener)> {
    let mut random = [0; 12];
    fill_random(&mut random).ok()?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("longhaul-{digits}");
    let address = SocketAddr::from_abstract_name(&name).ok()?;
    Some((name, UnixListener::bind_addr(&address).ok()?))
}

fn own_greeting() -> Greeting {
    Greeting {
        software: RELEASE.to_owned(),
        protocol: PROTOCOL_VERSION,
        ..Greeting::default()
    }
}

/// Says who this is, and hears who the other end is.
pub fn introduce(
    identity: &Identity,
    listener: Option<&TcpListener>,
    channel: Option<String>,
) -> Result<Greeting, Stop> {
    let first = ssh_connection().map(|(_, server)| server);
    say_greeting(&Greeting {
        key: identity.fingerprint().to_string(),
        port: listener
            .and_then(|listener| listener.local_addr().ok())
            .map(|address| address.port()),
        addresses: with_first(first, interface_addresses().unwrap_or_default()),
        channel,
        mortal: login_ends_processes(),
        ..own_greeting()
    })?;
    await_introduction(unbuffered_input().map_err(local)?)
}

/// The same where nobody connects to this end: its key says it all, and where
/// channels come to it.
pub fn introduce_by_key(
    identity: &Identity,
    channel: Option<String>,
    input: impl Read,
) -> Result<Greeting, Stop> {
    say_greeting(&Greeting {
        key: identity.fingerprint().to_string(),
        channel,
        ..own_greeting()
    })?;
    await_introduction(input)
}

/// Hears who the other end is.
fn await_introduction(input: impl Read) -> Result<Greeting, Stop> {
    let heard = await_greeting(input, CLIENT);
    match heard {
        Ok(Line::Greeting(other)) => Ok(other),
        _ => Err(local(
            "nobody greeted: this command is started by `longhaul cp` over ssh, not by people",
        )),
    }
}

/// The other end of the session. `first` is where it is most likely to be.
fn client_of(other: Greeting, first: Option<IpAddr>) -> Result<Client, Stop> {
    let addresses = with_first(first, other.addresses).into_iter();
    let addresses = other.port.map_or_else(Vec::new, |port| {
        addresses
            .map(|address| std::net::SocketAddr::new(address, port))
            .collect()
    });
    Ok(Client::new(other.key.parse().map_err(local)?, addresses))
}

/// The likeliest address before the others.
fn with_first(first: Option<IpAddr>, others: Vec<IpAddr>) -> Vec<IpAddr> {
    let others = others.into_iter().filter(|address| Some(*address) != first);
    first
        .into_iter()
        .chain(others)
        .take(MAXIMUM_ADDRESSES)
        .collect()
}

fn say_greeting(greeting: &Greeting) -> Result<(), Stop> {
    // A profile may have printed half a line.
    let line = format!("\n{}", greeting.line(REMOTE));
    let mut output = io::stdout().lock();
    let said = output
        .write_all(line.as_bytes())
        .and_then(|()| output.flush());
    said.map_err(|error| local(format!("cannot greet: {error}")))
}

/// Standard input without the standard library's buffer, which would take what
/// is meant for the session.
pub fn unbuffered_input() -> io::Result<File> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(File::from(input))
}

/// Takes the standard streams for the session and leaves nothing in their
/// place: a session that has other streams lives on when the login ends.
pub fn detach() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    // Whoever leads a session already need not begin one.
    let _ = rustix::process::setsid();
    Ok((input, output))
}
