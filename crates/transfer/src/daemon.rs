//! The daemon: accepts streams, authenticates principals and runs their sessions.
//!
//! - `setup`: the daemon's key, principals and token
//! - `admission`: checks the request in a stream's first frame
//! - [`audit`]: the record of who read, wrote or deleted which paths
//! - `asker`: describes clients and requests for the log
//! - `backups`: directories for replaced and deleted files
//! - `calls`: connections of a remote SSH end beside its channel
//! - [`config_file`]: options of the daemon from a file
//! - `control_requests`: copies with another daemon on behalf of a principal
//! - `listing`: lists a path without a session
//! - [`metrics`]: metrics for Prometheus over HTTP; `sums`: sums over the sessions
//! - `quotas`: limits on simultaneous work, in total and per principal
//! - `secrets`: paths that no root may contain
//! - `sessions`: the running sessions; `session_log`: the log line of each
//! - `signals`: handling of signals
//! - `sources`: opens the sources that a principal requests
//! - `systemd`: reports the state to the service manager
//! - `unauthenticated`: limits the log lines about failed connections
//! - `turns`: the order in which requests take over a transfer
//! - `vouched`: hosts that a principal has vouched for

mod admission;
mod asker;
pub mod audit;
mod backups;
mod calls;
pub mod config_file;
mod control_requests;
pub mod listen_address;
mod listing;
pub mod metrics;
mod quotas;
mod secrets;
mod session_log;
mod sessions;
mod setup;
mod signals;
mod sources;
mod sums;
mod systemd;
mod turns;
mod unauthenticated;
mod vouched;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use longhaul_net::Stream;
use longhaul_net::clear;
use longhaul_net::gate::{self, Gate, GateLimits, Ticket};
use longhaul_net::principals::Principals;
use longhaul_net::tcp::{self, HostPort, TcpOptions};
use longhaul_net::tls::TlsServer;
use longhaul_storage::failure::failure_of;
use longhaul_units::ByteCount;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::iterator::Signals;

use crate::between_hosts::dialing::Dialing;
use crate::ports::Ports;
use crate::stop::{Exit, Stop};
use admission::Visitor;
pub use admission::{may_not_measure, open_destination};
use audit::{Audit, AuditSettings};
pub use backups::keeping_anywhere;
pub use calls::{Client, TOLD_WITHIN};
use control_requests::Jobs;
use metrics::Facts;
use quotas::Quotas;
use secrets::Secrets;
use session_log::SessionLog;
use sessions::Sessions;
use setup::Setup;
pub use setup::{Announcement, check};
use signals::Files;
pub use sources::{Access, Roots, expand_of, open_source_of, source_filter_of};
use turns::Rank;
use unauthenticated::Unauthenticated;
use vouched::Vouched;

/// Maximum time for a client's first frame before it has authenticated.
const FIRST_FRAME: Duration = Duration::from_secs(10);

/// Maximum time for a peer to read a refusal or a last answer.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Maximum time for ended sessions to write their log lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Settings for sessions.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// If true, clients may request blocks in clear.
    pub allow_clear: bool,
    /// Memory for blocks in each session.
    pub memory: ByteCount,
    /// Time for which a session outlives its last connection.
    pub linger: Duration,
    /// Age at which leftovers expire; `None` means never.
    pub expiry: Option<Duration>,
    /// If true, jobs log in JSON, like the daemon.
    pub logs_json: bool,
}

/// Environment variable of a job. The value 1 selects a log in JSON.
pub const JSON_LOG: &str = "LONGHAUL_JSON_LOG";

/// A daemon.
pub struct Daemon {
    terms: Terms,
    /// Files that SIGHUP reloads.
    files: Files,
    /// Paths that no root may contain.
    secrets: Secrets,
    /// Replaced as a whole on SIGHUP.
    tls: RwLock<TlsServer>,
    /// Replaced as a whole on SIGHUP.
    principals: RwLock<Arc<Principals>>,
    sessions: Sessions,
    session_log: SessionLog,
    /// Record of who read, wrote or deleted which paths.
    audit: Option<Arc<Audit>>,
    gate: Gate,
    /// Number of accepted connections so far.
    arrivals: AtomicU64,
    unauthenticated: Unauthenticated,
    /// Running listings.
    listings: Arc<Quotas>,
    vouched: Vouched,
    /// Running processes for principals.
    control_requests: Arc<Quotas>,
    /// Open channels to their jobs.
    channels: Arc<Quotas>,
    /// Settings for jobs; `None` for the remote end of an SSH session.
    jobs: Option<Jobs>,
    stopping: AtomicBool,
    /// Time for running sessions to end after SIGTERM.
    drain: Duration,
    /// The only permitted client, if the process runs a single session for it.
    client: Option<Client>,
}

/// Settings with which a daemon is started.
#[derive(Clone, Debug)]
pub struct DaemonSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Range of ports to use instead, on all addresses; the first free one is taken.
    pub ports: Option<Ports>,
    /// File of principals.
    pub principals: Option<PathBuf>,
    /// Directory that is served to a single principal, in place of a file of principals.
    pub root: Option<PathBuf>,
    /// If true, the single principal may write.
    pub write: bool,
    /// If true, files that it writes keep their set-user-ID and set-group-ID bits.
    pub keep_set_ids: bool,
    /// If true, files that it writes may belong to other users.
    pub keep_owners: bool,
    /// If true, it may create devices.
    pub make_devices: bool,
    /// If true, it may delete.
    pub delete: bool,
    /// Commands that it may request for committed files: names and shell commands.
    pub on_commit: Vec<(String, String)>,
    /// Commands that it may request as filters: names and shell commands.
    pub filters: Vec<(String, String)>,
    /// State directory for the daemon's key, token and jobs. `None` selects the configuration
    /// directory.
    pub state: Option<PathBuf>,
    /// Certificate of the daemon (PEM), in place of a self-signed one.
    pub certificate: Option<PathBuf>,
    /// Key of the certificate (PEM).
    pub key: Option<PathBuf>,
    /// Hosts that the daemon may connect to for principals. `None` permits no host, an empty list
    /// permits all.
    pub allow_dial: Option<Vec<String>>,
    /// Settings for sessions.
    pub terms: Terms,
    /// Maximum number of simultaneous sessions.
    pub sessions: usize,
    /// Time for running sessions to end after SIGTERM.
    pub drain: Duration,
    /// Loopback address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// Audit log.
    pub audit: Option<AuditSettings>,
    /// If true, roots may contain the daemon's secrets.
    pub unguarded: bool,
}

impl DaemonSettings {
    /// Returns the settings of a daemon that serves one directory to one principal, without the
    /// right to write, on any port of all addresses.
    pub fn of_root(root: PathBuf, state: PathBuf, terms: Terms) -> DaemonSettings {
        DaemonSettings {
            listen: SocketAddr::from(([0; 16], 0)),
            ports: Some(Ports::default()),
            principals: None,
            root: Some(root),
            write: false,
            keep_set_ids: false,
            keep_owners: false,
            make_devices: false,
            delete: false,
            on_commit: Vec::new(),
            filters: Vec::new(),
            state: Some(state),
            certificate: None,
            key: None,
            allow_dial: None,
            terms,
            sessions: 1,
            drain: Duration::ZERO,
            audit: None,
            metrics: None,
            unguarded: false,
        }
    }
}

/// A daemon that listens but does not yet accept connections.
pub struct Listening {
    listener: TcpListener,
    options: TcpOptions,
    address: SocketAddr,
    setup: Setup,
    settings: DaemonSettings,
    files: Files,
    signals: Signals,
    audit: Option<Arc<Audit>>,
    metrics: Option<TcpListener>,
}

impl Listening {
    /// Prepares the files of a daemon and starts listening.
    ///
    /// # Errors
    ///
    /// A file cannot be used, or the address is not available.
    pub fn new(settings: DaemonSettings) -> Result<Listening, Stop> {
        let setup = setup::prepare(&settings)?;
        let options = TcpOptions::default();
        let listener = match settings.ports {
            Some(ports) => ports.listen(),
            None => tcp::listen(settings.listen, &options),
        };
        let listener = listener.map_err(|error| Stop::because(Exit::Local, error))?;
        let address = listener.local_addr();
        let metrics = settings.metrics.map(metrics::listen).transpose()?;
        let audit = settings.audit.clone().map(opened_audit).transpose()?;
        let files = Files {
            principals: settings.principals.clone(),
            identity: settings.certificate.clone().zip(settings.key.clone()),
        };
        // Catch signals before the announcement, so that its reader can stop the daemon cleanly.
        let signals = files.heed_signals();
        let signals = signals.map_err(|error| Stop::because(Exit::Local, error))?;
        Ok(Listening {
            address: address.map_err(|error| Stop::because(Exit::Local, error))?,
            listener,
            options,
            setup,
            settings,
            files,
            signals,
            audit,
            metrics,
        })
    }

    /// Returns the daemon's address, key and principal.
    ///
    /// # Errors
    ///
    /// The token cannot be written to the tokens file.
    pub fn announcement(&self) -> Result<Announcement, Stop> {
        self.setup.announcement(self.address)
    }

    /// Serves until SIGINT or SIGTERM. Returns the number of sessions that were ended then.
    ///
    /// # Errors
    ///
    /// Signals cannot be handled.
    pub fn serve(self) -> Result<usize, Stop> {
        let Listening {
            listener,
            options,
            setup,
            settings,
            files,
            signals,
            audit,
            metrics,
            ..
        } = self;
        let jobs = setup.state.join("jobs");
        let daemon = Arc::new(Daemon {
            files,
            audit,
            drain: settings.drain,
            secrets: setup.secrets,
            jobs: Some(Jobs {
                directory: jobs.clone(),
                dialing: Dialing::new(settings.allow_dial.as_deref()),
            }),
            ..Daemon::new(
                settings.terms,
                setup.tls,
                (setup.principals, settings.sessions),
            )
        });
        let stop = daemon.obey_signals(signals)?;
        control_requests::clear(jobs);
        daemon.warn_of_dates();
        if let Some(metrics) = metrics {
            let observed = Arc::clone(&daemon);
            metrics::serve(metrics, move || facts_of(&observed))?;
        }
        systemd::report("READY=1");
        daemon.accept_until(&listener, &options, &stop)?;
        systemd::report("STOPPING=1");
        let ended = daemon.sessions.end_all();
        daemon.session_log.finish(LAST_LINES);
        Ok(ended)
    }
}

/// Returns the values of the metrics.
fn facts_of(daemon: &Daemon) -> Facts {
    Facts {
        sums: daemon.session_log.sums(),
        sessions_limit: daemon.sessions.most(),
        is_draining: daemon.sessions.is_draining(),
        connections: daemon.arrivals.load(Ordering::Relaxed),
        certificate_end: daemon.tls().validity().not_after,
    }
}

/// Opens the audit log.
fn opened_audit(settings: AuditSettings) -> Result<Arc<Audit>, Stop> {
    let file = settings.file.display().to_string();
    Audit::open(settings).map_err(|error| {
        let text = format!("the audit log {file}: {error}; name another file with --audit");
        Stop::because(Exit::Local, text)
    })
}

impl Daemon {
    /// Accepts connections for the lifetime of the process.
    pub fn accept(self: &Arc<Daemon>, listener: &TcpListener, options: &TcpOptions) {
        let mut told = false;
        for accepted in listener.incoming() {
            self.take(accepted, options, &mut told);
        }
    }

    /// Accepts connections until the daemon is stopped. `stop` becomes readable at that time.
    fn accept_until(
        self: &Arc<Daemon>,
        listener: &TcpListener,
        options: &TcpOptions,
        stop: &OwnedFd,
    ) -> Result<(), Stop> {
        // A connection may be gone before it is accepted, and a blocking accept might then wait
        // forever.
        let set = listener.set_nonblocking(true);
        set.map_err(|error| Stop::because(Exit::Local, error))?;
        let mut told = false;
        while !self.stopping.load(Ordering::Relaxed) {
            let mut ready = [
                PollFd::new(stop, PollFlags::IN),
                PollFd::new(listener, PollFlags::IN),
            ];
            match poll(&mut ready, None) {
                Ok(_) if ready[1].revents().is_empty() => continue,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(Stop::because(Exit::Local, error)),
            }
            match listener.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                accepted => self.take(accepted.map(|(socket, _)| socket), options, &mut told),
            }
        }
        Ok(())
    }

    /// Admits an accepted connection. `told` is true if the previous attempt failed and was
    /// reported.
    fn take(
        self: &Arc<Daemon>,
        accepted: io::Result<TcpStream>,
        options: &TcpOptions,
        told: &mut bool,
    ) {
        match accepted {
            Ok(socket) => {
                *told = false;
                self.admit(socket, options);
            }
            // An error of one connection, or a lack of file descriptors, must not end the daemon.
            Err(error) => {
                if !std::mem::replace(told, true) {
                    let text = failure_of("accept a connection", "the daemon", &error).text;
                    tracing::error!("{text}; it tries again");
                }
                gate::pause();
            }
        }
    }

    fn new(terms: Terms, tls: TlsServer, (principals, sessions): (Principals, usize)) -> Daemon {
        Daemon {
            terms,
            files: Files::default(),
            secrets: Secrets::default(),
            tls: RwLock::new(tls),
            principals: RwLock::new(Arc::new(principals)),
            sessions: Sessions::new(sessions),
            session_log: SessionLog::default(),
            audit: None,
            gate: Gate::new(GateLimits::default()),
            arrivals: AtomicU64::new(0),
            unauthenticated: Unauthenticated::default(),
            listings: Arc::default(),
            vouched: Vouched::default(),
            control_requests: Arc::default(),
            channels: Arc::default(),
            jobs: None,
            stopping: AtomicBool::new(false),
            drain: Duration::ZERO,
            client: None,
        }
    }

    /// Creates a daemon for a single session of the process's client.
    pub fn for_owner(terms: Terms, tls: TlsServer, client: Client) -> Arc<Daemon> {
        let owner = Principals::owner("ssh", client.key);
        Arc::new(Daemon {
            client: Some(client),
            ..Daemon::new(terms, tls, (owner, 1))
        })
    }

    /// Runs the session that its owner opens over the channel, until the session ends.
    pub fn serve_channel(self: &Arc<Daemon>, channel: Stream) {
        self.receive_hello(
            channel,
            Visitor {
                owner: true,
                ..Visitor::of_channel("the channel")
            },
        );
    }

    /// Returns the current principals.
    fn principals(&self) -> Arc<Principals> {
        let principals = self.principals.read();
        Arc::clone(&principals.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the TLS server with the current key and certificate.
    fn tls(&self) -> TlsServer {
        let tls = self.tls.read();
        tls.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Admits a connection and starts a thread that serves it.
    fn admit(self: &Arc<Daemon>, socket: TcpStream, options: &TcpOptions) {
        let Ok(peer) = socket.peer_addr() else {
            return;
        };
        // A rejected client receives no information.
        let Ok(ticket) = self.gate.admit(peer.ip(), &socket) else {
            return;
        };
        // Numbered here, because the threads may reach the requests in a different order.
        let rank = Rank::now(self.arrivals.fetch_add(1, Ordering::Relaxed));
        if tcp::prepare(&socket, options).is_err() {
            return;
        }
        let daemon = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("admission".into())
            .spawn(move || daemon.serve_stream(socket, (ticket, rank)));
        if let Err(error) = started {
            let peer = HostPort::from(peer);
            tracing::error!(%peer, "{peer}: no thread for the connection: {error}");
        }
    }

    fn serve_stream(self: &Arc<Daemon>, socket: TcpStream, (ticket, rank): (Ticket, Rank)) {
        let Ok(peer) = socket.peer_addr().map(HostPort::from) else {
            return;
        };
        let deadline = Instant::now() + FIRST_FRAME;
        let left = || deadline.saturating_duration_since(Instant::now());
        // A client that only tests the port or measures the round trip sends no data.
        if is_silent(&socket) {
            return;
        }
        let clear = self.terms.allow_clear && is_clear(&socket);
        let stream = if clear {
            clear::over_tcp(socket).map_err(|error| error.to_string())
        } else {
            let accepted = self.tls().accept_within(socket, left());
            accepted.map_err(|error| error.to_string())
        };
        match stream {
            Ok(stream) if self.may_come(&stream) => {
                let visitor = Visitor {
                    clear,
                    ticket: Some(ticket),
                    rank,
                    patience: left(),
                    ..Visitor::stranger(peer.to_string())
                };
                self.receive_hello(stream, visitor);
            }
            Ok(_) => self.unauthenticated.note(&format!(
                "{peer}: it is not the one who started this process"
            )),
            Err(error) => self.unauthenticated.note(&naming(&peer, &error)),
        }
    }
}

/// Returns the error with the client's address, unless the error contains it.
fn naming(peer: &HostPort, error: &str) -> String {
    if error.contains(&peer.to_string()) {
        error.to_owned()
    } else {
        format!("{peer}: {error}")
    }
}

/// True if the connection closes or times out without sending data.
fn is_silent(socket: &TcpStream) -> bool {
    let waited = socket.set_read_timeout(Some(FIRST_FRAME)).is_ok();
    let peeked = socket.peek(&mut [0]);
    let _ = socket.set_read_timeout(None);
    waited && !matches!(peeked, Ok(1..))
}

/// True if a connection starts with a longhaul frame instead of TLS.
fn is_clear(socket: &TcpStream) -> bool {
    let mut first = [0; 2];
    let waited = socket.set_read_timeout(Some(FIRST_FRAME)).is_ok();
    let peeked = socket.peek(&mut first);
    let _ = socket.set_read_timeout(None);
    waited && matches!(peeked, Ok(2)) && first == [1, b'L']
}
