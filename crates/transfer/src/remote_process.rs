//! Remote end of a copy over SSH. It sends its greeting, receives that of its client, runs one
//! session and exits. Its standard input and output are the channel.

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
use longhaul_system::limits;
use longhaul_units::ByteCount;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::between_hosts::drive;
use crate::between_hosts::job_protocol::{self, JobEvent, Order};
use crate::daemon::{Client, Daemon, Terms};
use crate::hangup::end_commands_at;
use crate::ports::Ports;
use crate::ssh::PROTECTION;
use crate::ssh::command::RELEASE;
use crate::ssh::further::ENDED;
use crate::ssh::greeting::{CLIENT, Greeting, Line, MAXIMUM_ADDRESSES, REMOTE};
use crate::ssh::process::await_greeting;
use crate::stop::{Exit, Stop};

/// Maximum time to deliver the remaining output.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Settings with which the remote end is started.
#[derive(Clone, Debug)]
pub struct RemoteProcessSettings {
    /// Ports to listen on.
    pub ports: Ports,
    /// Memory for blocks, in bytes.
    pub memory: u64,
    /// Time for which the session outlives its last connection.
    pub linger: Duration,
    /// Age at which leftovers of killed copies expire; `None` means never.
    pub expiry: Option<Duration>,
    /// File in which a daemon described its principal, to whom the job belongs. The file is removed
    /// after reading.
    pub confined: Option<PathBuf>,
    /// Hosts to which the daemon connects.
    pub dial: Option<String>,
    /// Socket for channels to a job, if the daemon connects to no host for it.
    pub channels: Option<PathBuf>,
}

fn local(error: impl std::fmt::Display) -> Stop {
    Stop::because(Exit::Local, error)
}

/// Runs one session with the host that started this process, or, if `introduced` is true, with the
/// host that it introduces.
///
/// # Errors
///
/// The session could not start.
pub fn session(arguments: &RemoteProcessSettings, introduced: bool) -> Result<Exit, Stop> {
    let identity = Identity::ephemeral().map_err(local)?;
    let tls = TlsServer::new(&identity, TlsOptions::default()).map_err(local)?;
    // Without a port, this end connects to the client, or all data uses channels.
    let listener = arguments.ports.listen_if_free().map_err(local)?;
    let channels = listen_for_channels();
    let other = introduce(
        &identity,
        listener.as_ref(),
        channels.as_ref().map(|channels| channels.0.clone()),
    )?;
    // The introduced host is not the one that the login came from.
    let first = ssh_connection().filter(|_| !introduced);
    let allowed = if other.bound { Some(allowed()?) } else { None };
    let client = client_of(other, first.map(|(client, _)| client))?.allowed(allowed);
    let (input, output) = detach().map_err(local)?;
    let (channel, outward) = relay::join(input, output).map_err(local)?;
    end_commands_at(&[SIGHUP, SIGINT, SIGTERM]);
    let terms = Terms {
        allow_clear: false,
        memory: limits::for_blocks(ByteCount(arguments.memory)),
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

/// Reads the permitted requests of the introduced host.
fn allowed() -> Result<Allowed, Stop> {
    let heard = unbuffered_input()
        .and_then(job_protocol::receive)
        .map_err(local)?;
    match heard {
        Some(Order::Allow(allowed)) => Ok(allowed),
        _ => Err(local(
            "the operations that the other host may request are missing",
        )),
    }
}

/// Meets the introduced host: accepts its connection and also connects to it. The session does not
/// use the channel, which may end once the session has started.
fn meet(daemon: &Arc<Daemon>, channel: UnixStream) -> Result<(), Stop> {
    let calling = Arc::clone(daemon);
    let words = channel.try_clone().map_err(local)?;
    let thread = std::thread::Builder::new().name("call".into());
    let call = move || {
        if let Err(reason) = calling.call_first() {
            // The receiver may have left.
            let _ = job_protocol::send(&words, &JobEvent::failed(&reason, None));
        }
    };
    thread.spawn(call).map_err(local)?;
    let (waiting, own) = (Arc::clone(daemon), channel.try_clone().map_err(local)?);
    let thread = std::thread::Builder::new().name("channel".into());
    let wait = move || {
        drive::wait_for_end(&channel);
        // Also closes it for the calling thread.
        let _ = channel.shutdown(std::net::Shutdown::Both);
        waiting.give_up();
    };
    thread.spawn(wait).map_err(local)?;
    daemon.wait_for_session();
    let _ = own.shutdown(std::net::Shutdown::Both);
    Ok(())
}

/// Forwards a further channel to the session that listens under a name.
///
/// # Errors
///
/// No session listens under that name.
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

/// Sends a greeting that contains only the release and the protocol.
pub fn greet_plainly() -> Result<(), Stop> {
    say_greeting(&Greeting {
        key: "none".to_owned(),
        ..own_greeting()
    })
}

/// Listens on an abstract socket for other processes of this user. The name reveals no secret and
/// grants no access.
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

/// Sends this end's greeting and reads the other end's.
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

/// Does the same for an end that accepts no connections. Its greeting contains its key and the name
/// of its socket for channels.
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

/// Reads the greeting of the other end.
fn await_introduction(input: impl Read) -> Result<Greeting, Stop> {
    let heard = await_greeting(input, CLIENT);
    match heard {
        Ok(Line::Greeting(other)) => Ok(other),
        _ => Err(local(
            "no greeting arrived: `longhaul cp` starts this command over ssh; it is not for direct use",
        )),
    }
}

/// Returns the other end of the session. `first` is its most likely address.
fn client_of(other: Greeting, first: Option<IpAddr>) -> Result<Client, Stop> {
    let addresses = with_first(first, other.addresses).into_iter();
    let addresses = other.port.map_or_else(Vec::new, |port| {
        addresses
            .map(|address| std::net::SocketAddr::new(address, port))
            .collect()
    });
    Ok(Client::new(other.key.parse().map_err(local)?, addresses))
}

/// Puts the most likely address first and limits the number of addresses.
fn with_first(first: Option<IpAddr>, others: Vec<IpAddr>) -> Vec<IpAddr> {
    let others = others.into_iter().filter(|address| Some(*address) != first);
    first
        .into_iter()
        .chain(others)
        .take(MAXIMUM_ADDRESSES)
        .collect()
}

fn say_greeting(greeting: &Greeting) -> Result<(), Stop> {
    // The shell's profile may have printed an incomplete line.
    let line = format!("\n{}", greeting.line(REMOTE));
    let mut output = io::stdout().lock();
    let said = output
        .write_all(line.as_bytes())
        .and_then(|()| output.flush());
    said.map_err(|error| local(format!("cannot greet: {error}")))
}

/// Returns standard input without the standard library's buffer, which would consume data of the
/// session.
pub fn unbuffered_input() -> io::Result<File> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(File::from(input))
}

/// Takes over the standard streams and replaces them by `/dev/null`. A session with other streams
/// then survives the end of the login.
pub fn detach() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    // It fails harmlessly if the process already leads a session.
    let _ = rustix::process::setsid();
    Ok((input, output))
}
