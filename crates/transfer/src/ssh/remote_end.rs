//! Remote end of a session, started over SSH.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use longhaul_engine::session::opening::{self, OpenError};
use longhaul_engine::session::{DialError, Dialer, Ending, Joined, Transfer, TransferSettings};
use longhaul_model::control::start::BlockSize;
use longhaul_net::Stream;
use longhaul_net::candidates::interface_addresses;
use longhaul_net::clear;
use longhaul_net::identity::{Fingerprint, Identity};
use longhaul_net::sockets::round_trip_of;
use longhaul_net::tcp::{HostPort, TcpOptions};
use longhaul_net::tls::{TlsClient, TlsError, TlsOptions};
use longhaul_net::trust::ServerTrust;
use longhaul_proto::calls::Call;
use longhaul_proto::handshake::{Join, PROTOCOL_VERSION, Request};
use longhaul_proto::listing::{ListRequest, Listed};
use longhaul_proto::message::{Farewell, Flows};
use longhaul_proto::session::StreamId;
use longhaul_units::ByteCount;

use super::PROTECTION;
use super::callbacks::Callbacks;
use super::command::{FarSide, RELEASE, Start, start_of};
use super::direct::{self, Direct, NotOpened, Way, candidates};
use super::further::Further;
use super::greeting::{CLIENT, Greeting, Line, MAXIMUM_ADDRESSES, REMOTE};
use super::install;
use super::master::Sharing;
use super::process::{Login, Silence, SshProcess, await_greeting};
use super::route::Route;
use crate::client::ahead::Ahead;
use crate::client::connection::{
    ASSUMED_RTT, Connected, Opened, buffer_by_hand, check_bind, list_over, open_over,
};
use crate::client::retry::Attempts;
use crate::console::{MAXIMUM_LOGGED_BYTES, one_line};
use crate::endpoint::SshRemote;
use crate::settings::{ConnectionSettings, SshSettings};
use crate::stop::{Exit, Stop};

// tidy: long file because it is the life of one remote end.

/// Exit code of ssh if ssh itself failed.
pub(super) const SSH_FAILED: i32 = 255;

/// Messages of ssh that mean that one end rejects the other.
const NOT_ACCEPTED: [&str; 4] = [
    "Permission denied",
    "Host key verification failed",
    "HOST IDENTIFICATION HAS CHANGED",
    "Too many authentication failures",
];

/// Round trip assumed before the first measurement. It is short, because a longer estimate would
/// only add waiting time.
const LEAST_RTT: Duration = Duration::from_millis(20);

/// Round trip above which the window of one SSH connection (about 2 MiB) limits it at 1 Gbit/s.
/// Below it the cipher is the limit.
const LONG_PATH: Duration = Duration::from_millis(15);

/// Maximum time of a login without questions. After this time the login is repeated with questions
/// allowed.
const SILENT_LOGIN: Duration = Duration::from_secs(30);

/// Round trips within which a direct stream opens: TCP, TLS, and an allowance for processing at the
/// remote host.
const USUAL_ROUND_TRIPS: u32 = 4;

/// Processing time of a login without questions on both hosts, beyond its round trips (about 14).
/// Typing a password takes longer.
const USUAL_LOGIN: Duration = Duration::from_secs(2);

/// Round trips of a login, with an allowance for lost packets.
const LOGIN_ROUND_TRIPS: u32 = 20;

/// Time after opening during which the session certainly exists. Streams join it without waiting
/// for the answer.
const JUST_OPENED: Duration = Duration::from_secs(5);

/// Number of SSH connections on a long path. With 2 MiB each, they fill 1 Gbit/s at round trips up
/// to 130 ms.
const MANY_CONNECTIONS: u32 = 8;

/// Number of SSH connections on a short path. Each costs encryption in two processes.
const FEW_CONNECTIONS: u32 = 3;

/// True if the output of ssh says that the login was refused.
pub fn was_refused(said: &str) -> bool {
    NOT_ACCEPTED.iter().any(|text| said.contains(text))
}

/// True if longhaul itself reported why it ended.
fn has_spoken(said: &str) -> bool {
    said.lines().any(|line| line.starts_with("longhaul: "))
}

/// The message if ssh ended, by itself or with the shell there, before longhaul had started.
/// `said` is its standard error, which the user has seen; `heard` is its standard output, which
/// the user has not.
fn unstarted((said, heard): (&str, &str), code: Option<i32>, ssh: &str) -> String {
    let exit = code.map_or("killed".to_owned(), |code| format!("exit {code}"));
    let above = if said.trim().is_empty() {
        "it said nothing"
    } else {
        "what it said is above"
    };
    let last = heard.lines().rfind(|line| !line.trim().is_empty());
    let told = match last.map(|line| one_line(line.trim(), MAXIMUM_LOGGED_BYTES)) {
        Some(line) => format!("the remote host said \"{line}\""),
        None => above.to_owned(),
    };
    match code {
        Some(SSH_FAILED) if last.is_none() && !said.trim().is_empty() => {
            "ssh did not connect; its message is above".to_owned()
        }
        Some(SSH_FAILED) => {
            format!(
                "ssh did not connect, or longhaul crashed on the remote host ({exit}), and {told}: try \
                 `{ssh} -v true`, or replace the binary there with --install-remote"
            )
        }
        _ if said.trim().is_empty() => format!(
            "longhaul did not start on the remote host ({exit}), and {told}: a login shell such as \
             nologin, a start-up file of the shell that ends it, or a forced command (command= in \
             authorized_keys) keeps commands from being run there; try `{ssh} longhaul --version`"
        ),
        _ => format!(
            "longhaul did not start on the remote host ({exit}): {told}; try `{ssh} longhaul \
             --version`, or name the binary there with --remote-longhaul"
        ),
    }
}

/// A remote host that is reached over SSH.
pub struct RemoteEnd {
    start: Start,
    identity: Identity,
    timeout: Duration,
    tcp: TcpOptions,
    /// Local addresses to connect from.
    bind: Vec<IpAddr>,
    /// Number of streams if the user set it.
    streams: Option<u32>,
    /// If true, this release is installed there if it is missing.
    install: bool,
    /// `None` if this end could not listen. A copy works without it, so the reason is not reported.
    callbacks: Option<Arc<Callbacks>>,
    process: Mutex<Option<SshProcess>>,
    greeting: OnceLock<Greeting>,
    login_took: OnceLock<Duration>,
    beside: OnceLock<Beside>,
}

/// Result of starting the remote process.
enum Met {
    /// The remote process is the same release.
    Same(SshProcess, UnixStream, Greeting),
    /// The remote host has a different release or no longhaul at all.
    None {
        /// Error to report.
        stop: Stop,
        /// System and machine type, if reported.
        system: Option<String>,
        /// Shell that waits for an installation. The channel must drop first: closing it ends the
        /// process, which the drop of the process waits for.
        waits: Option<(UnixStream, SshProcess)>,
    },
}

/// A running ssh, its channel and the first line it received.
type Greeted = (SshProcess, UnixStream, Result<Line, Silence>);

/// Returns the reason why a master did not serve, or `None` if the failure is not the master's.
fn unserved(silence: &Silence, process: &mut SshProcess) -> Option<&'static str> {
    match silence {
        Silence::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            Some("nothing comes through it")
        }
        Silence::Ended(_) => {
            let code = process.end().and_then(|status| status.code());
            let is_lost = code == Some(SSH_FAILED) && !was_refused(&process.said());
            is_lost.then_some("its connection was lost")
        }
        Silence::Io(_) | Silence::Noise => None,
    }
}

/// Streams that may carry a session in addition to its first channel.
struct Beside {
    direct: Arc<Direct>,
    further: Arc<Further>,
}

impl RemoteEnd {
    /// Prepares to reach the host. Opens a listener but no connection.
    pub fn new(
        remote: &SshRemote,
        arguments: &ConnectionSettings,
        settings: &TransferSettings,
        streams: Option<u32>,
    ) -> Result<RemoteEnd, Stop> {
        check_bind(arguments)?;
        let identity = Identity::ephemeral().map_err(|error| Stop::because(Exit::Local, error))?;
        let buffer = buffer_by_hand(arguments.buffer.map(ByteCount));
        let ports = arguments.ssh.ports.unwrap_or_default();
        let listener = ports.listen_if_free();
        let listener = listener.map_err(|error| Stop::because(Exit::Local, error))?;
        Ok(RemoteEnd {
            start: start_of(remote, arguments, settings)?,
            identity,
            streams,
            install: arguments.ssh.install_remote,
            timeout: arguments.timeout,
            tcp: TcpOptions {
                user_timeout: arguments.timeout,
                send_buffer: buffer,
                receive_buffer: buffer,
                multipath: arguments.mptcp,
                ..TcpOptions::default()
            },
            bind: arguments.bind.clone(),
            callbacks: listener.and_then(|listener| Callbacks::new(listener).ok()),
            process: Mutex::default(),
            greeting: OnceLock::new(),
            login_took: OnceLock::new(),
            beside: OnceLock::new(),
        })
    }

    /// Starts the remote process.
    pub fn connect(&self, blocks: BlockSize) -> Result<Connected, Stop> {
        let begun = Instant::now();
        let channel = self.log_in()?;
        // A session logs in once, so the value cannot be set already.
        let _ = self.login_took.set(begun.elapsed());
        if let Some(beside) = self.begin_beside() {
            beside.direct.dial_ahead();
        }
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let path = process.as_ref().and_then(SshProcess::round_trip);
        let path = path.or_else(|| round_trip_of(self.start.sharing.process()?));
        Ok(Connected {
            stream: clear::over_local(channel, PROTECTION),
            rtt: LEAST_RTT,
            block_bytes: blocks.on(path.unwrap_or(ASSUMED_RTT)),
            ahead: Ahead::default(),
            attempts: Attempts::begin(),
        })
    }

    /// Opens a session. `first_words` holds the first messages, already encoded.
    pub fn open(
        &self,
        connected: Connected,
        request: Request,
        first_words: &[u8],
    ) -> Result<Opened, Stop> {
        let host: &dyn std::fmt::Display = &self.start.destination;
        open_over(connected, request, first_words, (host, self.timeout), true)
    }

    /// Calls `tell` for each entry at a remote path as it arrives.
    pub fn list(
        &self,
        request: ListRequest,
        tell: &mut dyn FnMut(Listed) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut stream = clear::over_local(self.log_in()?, PROTECTION);
        let host: &dyn std::fmt::Display = &self.start.destination;
        list_over(&mut stream, request, (host, self.timeout), tell)
    }

    /// Prepares a host whose remote process has another task than a session with this end. `ssh`
    /// and `timeout` are the settings of that task.
    pub fn in_role(
        destination: &str,
        (ssh, timeout): (&SshSettings, Duration),
        side: FarSide,
    ) -> Result<RemoteEnd, Stop> {
        let identity = Identity::ephemeral().map_err(|error| Stop::because(Exit::Local, error))?;
        Ok(RemoteEnd {
            start: Start {
                words: ssh.words()?,
                destination: destination.to_owned(),
                side,
                sharing: Arc::new(Sharing::new(ssh)),
            },
            identity,
            streams: None,
            install: ssh.install_remote,
            timeout,
            tcp: TcpOptions::default(),
            bind: Vec::new(),
            callbacks: None,
            process: Mutex::default(),
            greeting: OnceLock::new(),
            login_took: OnceLock::new(),
            beside: OnceLock::new(),
        })
    }

    /// Returns the settings that start the remote process.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Opens a channel to a remote process of the same release and exchanges greetings.
    fn log_in(&self) -> Result<UnixStream, Stop> {
        let (process, channel, greeting) = self.arrive()?;
        self.introduce(&channel)?;
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        // A session logs in once, so the value cannot be set already.
        let _ = self.greeting.set(greeting);
        Ok(channel)
    }

    /// Opens a channel to a remote process of the same release, and installs that release if
    /// wanted. The remote process has not yet received this end's greeting.
    pub fn arrive(&self) -> Result<(SshProcess, UnixStream, Greeting), Stop> {
        let (stop, system, waits) = match self.meet()? {
            Met::Same(process, channel, greeting) => return Ok((process, channel, greeting)),
            Met::None {
                stop,
                system,
                waits,
            } => (stop, system, waits),
        };
        let installed = self.start.side.program.is_none()
            && install::is_wanted(self.install, &self.start.destination);
        if !installed {
            return Err(stop);
        }
        let (start, system) = (&self.start, system.as_deref());
        let met = match waits {
            Some((channel, mut process)) => {
                let through = (&mut process, channel);
                let channel = install::install_through(start, through, system, self.timeout)?;
                let heard = await_greeting(process.hear(&channel, self.timeout), REMOTE);
                self.met((process, channel, heard))?
            }
            None => {
                install::install(start, system, self.timeout)?;
                self.meet()?
            }
        };
        match met {
            Met::Same(process, channel, greeting) => Ok((process, channel, greeting)),
            Met::None { stop, .. } => Err(stop),
        }
    }

    /// Opens the same channel without questions. Returns `None` if the login would need a question
    /// or the same release is not installed.
    pub fn arrive_silently(&self) -> Option<(SshProcess, UnixStream, Greeting)> {
        let line = self.start.first_by(Login::Silent);
        let (process, channel) = SshProcess::start(&line, Login::Silent).ok()?;
        let heard = await_greeting(process.hear(&channel, SILENT_LOGIN), REMOTE);
        let Ok(Line::Greeting(greeting)) = heard else {
            return None;
        };
        self.check(&greeting).ok()?;
        self.start.note_login(&process);
        Some((process, channel, greeting))
    }

    /// Starts the remote process and reads its greeting.
    fn meet(&self) -> Result<Met, Stop> {
        self.met(self.greeted()?)
    }

    /// Classifies the first line of the remote process.
    fn met(&self, (mut process, channel, heard): Greeted) -> Result<Met, Stop> {
        let stop = match heard {
            Ok(Line::Greeting(greeting)) => match self.check(&greeting) {
                Ok(()) => return Ok(Met::Same(process, channel, greeting)),
                Err(stop) => stop,
            },
            Ok(Line::Absent(system)) => {
                return Ok(Met::None {
                    stop: self.absent(&system),
                    system: Some(system),
                    waits: Some((channel, process)),
                });
            }
            Err(silence) => {
                drop(channel);
                let status = process.end();
                let stop = self.silent(&silence, status, &process.said());
                if has_spoken(&process.said()) {
                    return Err(stop);
                }
                // The release lacks this command, or the binary does not run.
                let code = status.and_then(|status| status.code());
                if matches!(silence, Silence::Noise | Silence::Io(_)) || code == Some(SSH_FAILED) {
                    return Err(stop);
                }
                stop
            }
        };
        Ok(Met::None {
            stop,
            system: None,
            waits: None,
        })
    }

    /// Starts the remote process and reads its first line. If the existing master does not serve,
    /// ssh logs in again without it.
    fn greeted(&self) -> Result<Greeted, Stop> {
        let (mut process, channel) = self.run()?;
        let is_joined = self.start.is_joined();
        let heard = await_greeting(process.hear(&channel, self.timeout), REMOTE);
        let failed = heard.as_ref().err().filter(|_| is_joined);
        let Some(why) = failed.and_then(|silence| unserved(silence, &mut process)) else {
            self.start.note_login(&process);
            return Ok((process, channel, heard));
        };
        drop((channel, process));
        self.start.shun_master(why);
        let (process, channel) = self.run()?;
        let heard = await_greeting(process.hear(&channel, self.timeout), REMOTE);
        Ok((process, channel, heard))
    }

    fn run(&self) -> Result<(SshProcess, UnixStream), Stop> {
        let line = self.start.first();
        SshProcess::start(&line, Login::Asking).map_err(|error| {
            let text = format!(
                "cannot start {}: {error}: install OpenSSH's client, or name another command with \
                 --ssh",
                self.start.program()
            );
            Stop::new(Exit::Local, text)
        })
    }

    /// Returns an error unless the remote end has the same release and protocol.
    fn check(&self, greeting: &Greeting) -> Result<(), Stop> {
        if greeting.software == RELEASE && greeting.protocol == PROTOCOL_VERSION {
            return Ok(());
        }
        let text = format!(
            "{}: longhaul {} is there, and this is {RELEASE}: install it with --install-remote, or \
             use the same release on both ends",
            self.start.destination, greeting.software
        );
        Err(Stop::new(Exit::Connection, text).that_stays())
    }

    /// Sends this end's greeting: its release, key, port and addresses.
    fn introduce(&self, mut channel: &UnixStream) -> Result<(), Stop> {
        let mut addresses = interface_addresses().unwrap_or_default();
        addresses.truncate(MAXIMUM_ADDRESSES);
        let greeting = Greeting {
            software: RELEASE.to_owned(),
            protocol: PROTOCOL_VERSION,
            key: self.identity.fingerprint().to_string(),
            port: self.callbacks.as_ref().map(|callbacks| callbacks.port()),
            addresses,
            ..Greeting::default()
        };
        channel
            .write_all(greeting.line(CLIENT).as_bytes())
            .map_err(|error| {
                let destination = &self.start.destination;
                let text = format!("{destination}: the connection was lost: {error}");
                Stop::new(Exit::Connection, text)
            })
    }

    fn absent(&self, system: &str) -> Stop {
        let text = format!(
            "{}: there is no longhaul on the remote host ({system}): install it with --install-remote, put \
             the same release into its PATH, or name the file with --remote-longhaul",
            self.start.destination
        );
        Stop::new(Exit::Connection, text)
    }

    /// Returns the error for a missing greeting.
    fn silent(&self, silence: &Silence, status: Option<ExitStatus>, said: &str) -> Stop {
        let host = &self.start.destination;
        let code = status.and_then(|status| status.code());
        let connection = |text: String| Stop::new(Exit::Connection, format!("{host}: {text}"));
        match (silence, code) {
            (Silence::Noise, _) => connection(
                "much came from the remote host and no greeting of longhaul's: have its shell's \
                 profile print nothing where there is no terminal"
                    .to_owned(),
            ),
            (Silence::Io(error), _) if error.kind() == std::io::ErrorKind::TimedOut => {
                connection(format!(
                    "longhaul did not start there within {} s (--timeout), and ssh asks nothing: \
                     a start-up file of the shell there may wait for input, or the host or one of \
                     its file systems stands still; try `{} {host} true`",
                    self.timeout.as_secs_f64().ceil(),
                    self.start.program(),
                ))
            }
            (Silence::Io(error), _) => connection(format!("ssh was lost: {error}")),
            (Silence::Ended(_), Some(SSH_FAILED)) if was_refused(said) => Stop::new(
                Exit::Authentication,
                format!("{host}: ssh could not log in; its message is above"),
            ),
            (Silence::Ended(_), _) if has_spoken(said) => {
                connection("longhaul ended there; what it said is above".to_owned())
            }
            (Silence::Ended(heard), code) => {
                let ssh = self.start.program();
                connection(unstarted((said, heard), code, &format!("{ssh} {host}")))
            }
        }
    }

    /// Returns a function that opens further streams: direct ones if any route opens, or else over
    /// additional ssh processes.
    pub fn dialer(self: &Arc<RemoteEnd>, opened: &Opened, transfer: &Arc<Transfer>) -> Dialer {
        let Some(beside) = self.beside.get() else {
            return Arc::new(|_, _, _| {
                let text = "the remote host's key cannot be read: both ends need the same release";
                Err(DialError::Refused(text.to_owned()))
            });
        };
        let (direct, further) = (Arc::clone(&beside.direct), Arc::clone(&beside.further));
        direct.set_rtt(opened.rtt);
        let usual = if opened.rtt >= LONG_PATH {
            MANY_CONNECTIONS
        } else {
            FEW_CONNECTIONS
        };
        let most = self.streams.unwrap_or(usual);
        let most = most.min(opened.welcome.maximum_streams.max(1));
        let welcome = opened.welcome.clone();
        let transfer = Arc::downgrade(transfer);
        if self.was_perhaps_asked(opened.rtt) || self.start.sharing.has_master() {
            further.be_careful();
        }
        prepare_further(beside, &transfer, opened.rtt, most as usize);
        let begun = Instant::now();
        Arc::new(move |id: StreamId, received, patience| {
            let (stream, is_direct) = open_beside(&direct, &further, &transfer, most, patience)?;
            let join = Join {
                session: welcome.session,
                secret: welcome.secret,
                stream: id.0,
                received,
            };
            // Later joins wait for the answer, because the session may have ended.
            let joined = if begun.elapsed() < JUST_OPENED {
                opening::join_at_once(stream, join)
                    .map_err(|error| DialError::Network(error.to_string()))
            } else {
                join_with(stream, join, patience)
            }?;
            if is_direct {
                further.abandon();
            }
            Ok(joined)
        })
    }

    /// True if the login took so long that the user may have typed a password. Further logins
    /// cannot ask for one.
    fn was_perhaps_asked(&self, rtt: Duration) -> bool {
        let took = self.login_took.get().copied().unwrap_or_default();
        took > USUAL_LOGIN + LOGIN_ROUND_TRIPS * rtt
    }

    /// Prepares direct and further streams. Returns `None` if the greeting or the remote end's key
    /// is missing or invalid.
    fn begin_beside(&self) -> Option<&Beside> {
        let greeting = self.greeting.get()?.clone();
        let key: Fingerprint = greeting.key.parse().ok()?;
        let identity = Some(self.identity.clone());
        let trust = ServerTrust::Fingerprint(key);
        let tls = TlsClient::new(trust, identity, TlsOptions::default());
        let callbacks = self.callbacks.clone();
        let callbacks =
            callbacks.filter(|callbacks| callbacks.accept(tls.clone(), self.tcp).is_ok());
        let channel = greeting.channel.clone();
        let direct = Direct::new(
            tls,
            (self.tcp, &self.bind),
            Some(self.start.clone()),
            greeting,
            callbacks,
            ASSUMED_RTT,
        );
        let beside = Beside {
            direct: Arc::new(direct),
            further: Arc::new(Further::new(self.start.clone(), channel)),
        };
        Some(self.beside.get_or_init(|| beside))
    }

    /// Returns the addresses where the remote end may be reached, or an empty list before its
    /// greeting.
    pub fn candidates(&self) -> Vec<SocketAddr> {
        let greeting = self.greeting.get();
        greeting.map_or_else(Vec::new, |greeting| candidates(Some(&self.start), greeting))
    }

    /// Tests whether a TLS stream to the remote end opens at this address within `patience`.
    pub fn try_address(&self, address: SocketAddr, patience: Duration) -> Result<(), TlsError> {
        let key = self
            .greeting
            .get()
            .and_then(|greeting| greeting.key.parse().ok());
        let trust = ServerTrust::Fingerprint(key.unwrap_or_else(|| self.identity.fingerprint()));
        let identity = Some(self.identity.clone());
        let tls = TlsClient::new(trust, identity, TlsOptions::default());
        let target = HostPort::from(address);
        tls.connect(&target, patience, &self.tcp).map(drop)
    }

    /// Asks the remote end to connect to each address of this end and returns its results, or
    /// `None` without an answer within `patience`.
    pub fn try_inward(&self, transfer: &Arc<Transfer>, patience: Duration) -> Option<Vec<Call>> {
        // Streams that open are kept for use by the session.
        transfer.streams().ask_calls(patience)
    }

    /// Returns the port on which this end listens.
    pub fn own_port(&self) -> Option<u16> {
        self.callbacks.as_ref().map(|callbacks| callbacks.port())
    }

    /// True if the remote system kills the processes of a login when the login ends.
    pub fn is_mortal(&self) -> bool {
        self.greeting.get().is_some_and(|greeting| greeting.mortal)
    }

    /// Waits until the transfer ends, in a process that exits afterwards. If direct streams
    /// completed the transfer, it does not wait for ssh to end.
    pub fn wait(&self, transfer: &Transfer) -> Ending {
        let ending = transfer.wait_to_exit();
        let way = self.beside.get().map(|beside| beside.direct.way());
        let is_direct = matches!(way, Some(Way::Outward(_) | Way::Inward));
        if is_direct && ending.farewell == Farewell::Complete {
            let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(process) = process.take() {
                process.leave();
            }
        }
        ending
    }

    /// Returns the route of the data, or `None` before the first streams.
    pub fn route(&self) -> Option<Route> {
        let beside = self.beside.get()?;
        let (further, refused) = beside.further.count();
        Some(Route {
            way: beside.direct.way(),
            between: None,
            further,
            refused,
            mortal: self.greeting.get()?.mortal,
        })
    }
}

/// Opens a direct stream, or one over a further ssh process if the direct route is closed or if
/// such a process logged in first. Opens at most `most` further processes. The flag is true if the
/// stream is direct.
fn open_beside(
    direct: &Arc<Direct>,
    further: &Arc<Further>,
    transfer: &Weak<Transfer>,
    most: u32,
    patience: Duration,
) -> Result<(Stream, bool), DialError> {
    loop {
        let error = match direct.open(transfer, patience, &|| further.is_ready()) {
            Ok(stream) => return Ok((stream, true)),
            Err(error) => error,
        };
        let Some(transfer) = transfer.upgrade() else {
            return Err(DialError::Network(error.to_string()));
        };
        let stream = match (direct.way(), error) {
            (Way::Closed(_), _) => {
                transfer.regulator().set_flows(Flows {
                    streams: Some(most),
                    ..Flows::default()
                });
                transfer.streams().promote_bootstrap();
                further.open(most as usize)?
            }
            (Way::Unknown, NotOpened::Another) => match further.take_ready() {
                Some(stream) => stream,
                // Another thread took the stream.
                None => continue,
            },
            (_, NotOpened::Another) => continue,
            // No stream is left. An ssh login determines whether the remote end is still running.
            _ if !transfer.streams().has_message_stream() => further.reach()?,
            (_, error) => return Err(DialError::Network(error.to_string())),
        };
        return Ok((stream, false));
    }
}

/// Starts logging in further ssh processes if no address answers at once or no direct stream opens
/// soon. The search for a direct route continues meanwhile.
fn prepare_further(beside: &Beside, transfer: &Weak<Transfer>, rtt: Duration, most: usize) {
    let (direct, further) = (Arc::clone(&beside.direct), Arc::clone(&beside.further));
    let transfer = Weak::clone(transfer);
    // If no thread starts, the logins happen on demand.
    let _ = std::thread::Builder::new()
        .name("prepare".to_owned())
        .spawn(move || {
            let is_over = |span| {
                let transfer = transfer.upgrade();
                transfer.is_none_or(|transfer| transfer.wait_for(span))
            };
            let (answer, soon) = (direct::USUALLY_ANSWERS_WITHIN, direct::USUALLY_OPENS_WITHIN);
            // The addresses have been tried since the greeting, one round trip ago.
            if is_over(answer + rtt) {
                return;
            }
            let answered = direct.is_promising();
            if answered && is_over(soon - answer + (USUAL_ROUND_TRIPS - 1) * rtt) {
                return;
            }
            if direct.way() == Way::Unknown {
                let is_ready: Arc<dyn Fn() + Send + Sync> = Arc::new(move || direct.wake());
                further.prepare(most, &is_ready);
            }
        });
}

/// Joins a session with a stream and waits for the answer.
pub fn join_with(mut stream: Stream, join: Join, patience: Duration) -> Result<Joined, DialError> {
    match opening::join(&mut stream, join, patience) {
        Ok(joined) => Ok(Joined {
            stream,
            clear: false,
            received: joined.received,
        }),
        Err(OpenError::Refused(refused)) => Err(DialError::Refused(refused.text)),
        Err(error) => Err(DialError::Network(error.to_string())),
    }
}

impl Drop for RemoteEnd {
    fn drop(&mut self) {
        if let Some(callbacks) = &self.callbacks {
            callbacks.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_output_do_not_refer_to_it() {
        let nologin = "Welcome\nThis account is currently not available.\n";
        for (said, heard, code, parts) in [
            (
                "",
                "",
                Some(3),
                &["exit 3", "it said nothing", "start-up file"][..],
            ),
            (
                "",
                nologin,
                Some(1),
                &["exit 1", "said \"This account", "nologin"],
            ),
            ("", "", Some(SSH_FAILED), &["it said nothing", "-v"]),
            ("", "", None, &["killed", "it said nothing"]),
            (
                "sh: no\n",
                "",
                Some(127),
                &["exit 127", "is above", "--remote-longhaul"],
            ),
            (
                "timed out\n",
                "",
                Some(SSH_FAILED),
                &["did not connect", "is above"],
            ),
            (
                "motd\n",
                "x\x1b[2J\n",
                Some(1),
                &["the remote host said \"x\u{fffd}[2J\""],
            ),
        ] {
            let text = unstarted((said, heard), code, "ssh host");
            for part in parts {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert_eq!(
                text.contains("above"),
                parts.contains(&"is above"),
                "{text}"
            );
        }
        let failed = install_failure("");
        assert!(!failed.contains("above"), "{failed}");
        assert!(install_failure("no space\n").contains("is above"));
    }

    fn install_failure(said: &str) -> String {
        install::failed("host", None, None, (said, &[][..])).text
    }
}
