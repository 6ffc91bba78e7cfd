//! The daemon: accepts streams, lets principals in, runs their sessions.
//!
//! - `setup`: the daemon's key, principals and token
//! - `admission`: what a stream's first frame asks for, and whether it may
//! - `asker`: which client asks for what, for the log
//! - `backups`: where what is replaced is kept
//! - `calls`: what a far side of SSH does beside its channel
//! - `control_requests`: copies with another daemon on behalf of a principal
//! - `listing`: what lies at a path, without a session
//! - `quotas`: what may run at the same time, and each principal's share
//! - `secrets`: what no root may hold
//! - `sessions`: the sessions that run; `session_log`: the log's line of each
//! - `signals`: what the daemon does at a signal
//! - `sources`: the sources that a principal asks for
//! - `unauthenticated`: what the log has of connections that failed
//! - `turns`: the order in which requests take over a transfer
//! - `vouched`: hosts that a principal has let in

mod admission;
mod asker;
mod backups;
mod calls;
mod control_requests;
mod listing;
mod quotas;
mod secrets;
mod session_log;
mod sessions;
mod setup;
mod signals;
mod sources;
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
use longhaul_net::gate::{Gate, GateLimits, Ticket};
use longhaul_net::principals::Principals;
use longhaul_net::tcp::{self, HostPort, TcpOptions};
use longhaul_net::tls::TlsServer;
use longhaul_storage::failure::failure_of;
use longhaul_units::ByteCount;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::iterator::Signals;

use crate::ports::Ports;
use crate::stop::{Exit, Stop};
use crate::third_party::dialing::Dialing;
use admission::Visitor;
pub use admission::{may_not_measure, open_destination};
pub use backups::keeping_anywhere;
pub use calls::{Client, TOLD_WITHIN};
use control_requests::Jobs;
use quotas::Quotas;
use secrets::Secrets;
use session_log::SessionLog;
use sessions::Sessions;
pub use setup::Announcement;
use setup::Setup;
use signals::Files;
pub use sources::{Access, Roots, expand_of, open_source_of, source_filter_of};
use turns::Rank;
use unauthenticated::Unauthenticated;
use vouched::Vouched;

/// How long a client may take for its first frame before it has authenticated.
const FIRST_FRAME: Duration = Duration::from_secs(10);

/// How long a peer that was refused, or told all, may take to hear it.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long to wait where the system cannot accept a connection: without, the
/// next try would fail at once, and the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long sessions that have ended may take to log that.
const LAST_LINES: Duration = Duration::from_secs(1);

/// On what terms sessions are had.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Clients may ask for file data in clear.
    pub allow_clear: bool,
    /// Memory for blocks in each session.
    pub memory: ByteCount,
    /// How long a session outlives its last connection.
    pub linger: Duration,
    /// When leftovers expire.
    pub expiry: Option<Duration>,
    /// Jobs log as JSON, as the daemon itself does.
    pub logs_json: bool,
}

/// Set to 1 in a job's environment where its log is JSON.
pub const JSON_LOG: &str = "LONGHAUL_JSON_LOG";

/// A daemon.
pub struct Daemon {
    terms: Terms,
    /// The files that are read again at SIGHUP.
    files: Files,
    /// What none of the roots may hold.
    secrets: Secrets,
    /// Replaced as a whole at SIGHUP.
    tls: RwLock<TlsServer>,
    /// Replaced as a whole at SIGHUP.
    principals: RwLock<Arc<Principals>>,
    sessions: Sessions,
    session_log: SessionLog,
    gate: Gate,
    /// Connections that were let in so far.
    arrivals: AtomicU64,
    unauthenticated: Unauthenticated,
    /// Listings that are being told.
    listings: Arc<Quotas>,
    vouched: Vouched,
    /// Processes that run for principals.
    control_requests: Arc<Quotas>,
    /// Channels to their jobs.
    channels: Arc<Quotas>,
    /// What these need; none at the far side of SSH.
    jobs: Option<Jobs>,
    stopping: AtomicBool,
    /// The only client that may come, if a single session is run for it.
    client: Option<Client>,
}

/// What a daemon is started with.
#[derive(Clone, Debug)]
pub struct DaemonSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Listen on the first free port of these instead, on all addresses.
    pub ports: Option<Ports>,
    /// The file of principals.
    pub principals: Option<PathBuf>,
    /// The directory that is served to one principal, instead.
    pub root: Option<PathBuf>,
    /// That principal may also write.
    pub write: bool,
    /// Files that it writes keep their set-user-ID and set-group-ID bits.
    pub keep_set_ids: bool,
    /// They may belong to others.
    pub keep_owners: bool,
    /// It may make devices.
    pub make_devices: bool,
    /// That principal may delete.
    pub delete: bool,
    /// What it may have run for files that it puts, once they are committed: names, and what a
    /// shell runs.
    pub on_commit: Vec<(String, String)>,
    /// The same of what they go through.
    pub filters: Vec<(String, String)>,
    /// Where the daemon keeps its key, token and jobs; none: the configuration directory.
    pub state: Option<PathBuf>,
    /// The daemon's certificate (PEM), instead of a self-signed one.
    pub certificate: Option<PathBuf>,
    /// The certificate's key (PEM).
    pub key: Option<PathBuf>,
    /// Hosts that it connects to for principals; none: no host; empty: any.
    pub allow_dial: Option<Vec<String>>,
    /// On what terms sessions are had.
    pub terms: Terms,
    /// Most sessions at the same time.
    pub sessions: usize,
    /// Serve directories that hold the daemon's own secrets too.
    pub unguarded: bool,
}

/// A daemon that listens, and accepts nobody yet.
pub struct Listening {
    listener: TcpListener,
    options: TcpOptions,
    address: SocketAddr,
    setup: Setup,
    settings: DaemonSettings,
    files: Files,
    signals: Signals,
}

impl Listening {
    /// Reads, or makes, what a daemon needs, and listens.
    ///
    /// # Errors
    ///
    /// What cannot be used, or where nobody can listen.
    pub fn new(settings: DaemonSettings) -> Result<Listening, Stop> {
        let setup = setup::prepare(&settings)?;
        let options = TcpOptions::default();
        let listener = match settings.ports {
            Some(ports) => ports.listen(),
            None => tcp::listen(settings.listen, &options),
        };
        let listener = listener.map_err(|error| Stop::because(Exit::Local, error))?;
        let address = listener.local_addr();
        let files = Files {
            principals: settings.principals.clone(),
            identity: settings.certificate.clone().zip(settings.key.clone()),
        };
        // Whoever sees the announcement may end the daemon in order.
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
        })
    }

    /// Where it is and how it is known.
    ///
    /// # Errors
    ///
    /// Where its token cannot be put where a client on this host finds it.
    pub fn announcement(&self) -> Result<Announcement, Stop> {
        self.setup.announcement(self.address)
    }

    /// Serves until SIGINT or SIGTERM; how many sessions were ended then.
    ///
    /// # Errors
    ///
    /// Where signals cannot be waited for.
    pub fn serve(self) -> Result<usize, Stop> {
        let Listening {
            listener,
            options,
            setup,
            settings,
            files,
            signals,
            ..
        } = self;
        let jobs = setup.state.join("jobs");
        let daemon = Arc::new(Daemon {
            files,
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
        daemon.accept_until(&listener, &options, &stop)?;
        let ended = daemon.sessions.end_all();
        daemon.session_log.finish(LAST_LINES);
        Ok(ended)
    }
}

impl Daemon {
    /// Takes connections as long as the process runs.
    pub fn accept(self: &Arc<Daemon>, listener: &TcpListener, options: &TcpOptions) {
        let mut told = false;
        for accepted in listener.incoming() {
            self.take(accepted, options, &mut told);
        }
    }

    /// Takes connections until the daemon is stopped, which `stop` makes it notice.
    fn accept_until(
        self: &Arc<Daemon>,
        listener: &TcpListener,
        options: &TcpOptions,
        stop: &OwnedFd,
    ) -> Result<(), Stop> {
        // A connection may be gone when it is accepted, and the next may never come.
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

    /// Admits a connection that was accepted. `told` is whether the last one failed.
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
            // One connection's fault (or too many open files) is not the
            // daemon's end; the kernel makes no noise either.
            Err(error) => {
                if !std::mem::replace(told, true) {
                    let text = failure_of("accept a connection", "the daemon", &error).text;
                    tracing::error!("{text}; it tries again");
                }
                // tidy: reason: the kernel tells nobody when a descriptor is
                // free again, and who waits in the queue stays there.
                std::thread::sleep(ACCEPT_PAUSE);
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
            gate: Gate::new(GateLimits::default()),
            arrivals: AtomicU64::new(0),
            unauthenticated: Unauthenticated::default(),
            listings: Arc::default(),
            vouched: Vouched::default(),
            control_requests: Arc::default(),
            channels: Arc::default(),
            jobs: None,
            stopping: AtomicBool::new(false),
            client: None,
        }
    }

    /// One for a single session of the process's client.
    pub fn for_owner(terms: Terms, tls: TlsServer, client: Client) -> Arc<Daemon> {
        let owner = Principals::owner("ssh", client.key);
        Arc::new(Daemon {
            client: Some(client),
            ..Daemon::new(terms, tls, (owner, 1))
        })
    }

    /// Runs the session that its owner opens over the channel, to its end.
    pub fn serve_channel(self: &Arc<Daemon>, channel: Stream) {
        self.receive_hello(
            channel,
            Visitor {
                owner: true,
                ..Visitor::of_channel("the channel")
            },
        );
    }

    /// Who may do what now.
    fn principals(&self) -> Arc<Principals> {
        let principals = self.principals.read();
        Arc::clone(&principals.unwrap_or_else(PoisonError::into_inner))
    }

    /// The daemon's key and certificate.
    fn tls(&self) -> TlsServer {
        let tls = self.tls.read();
        tls.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection came: what becomes of it is decided on a thread of its own.
    fn admit(self: &Arc<Daemon>, socket: TcpStream, options: &TcpOptions) {
        let Ok(peer) = socket.peer_addr() else {
            return;
        };
        // Unauthenticated get no information, not even this.
        let Ok(ticket) = self.gate.admit(peer.ip(), &socket) else {
            return;
        };
        // Counted here: their threads may come to their requests in another order.
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
        // Whoever only looks whether somebody listens, or how far away, has
        // nothing to say.
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

/// What went wrong, and with which client; many errors name the client already.
fn naming(peer: &HostPort, error: &str) -> String {
    if error.contains(&peer.to_string()) {
        error.to_owned()
    } else {
        format!("{peer}: {error}")
    }
}

/// Whether nothing came before a connection was closed, or for long.
fn is_silent(socket: &TcpStream) -> bool {
    let waited = socket.set_read_timeout(Some(FIRST_FRAME)).is_ok();
    let peeked = socket.peek(&mut [0]);
    let _ = socket.set_read_timeout(None);
    waited && !matches!(peeked, Ok(1..))
}

/// Whether a connection begins with a longhaul frame instead of TLS.
fn is_clear(socket: &TcpStream) -> bool {
    let mut first = [0; 2];
    let waited = socket.set_read_timeout(Some(FIRST_FRAME)).is_ok();
    let peeked = socket.peek(&mut first);
    let _ = socket.set_read_timeout(None);
    waited && matches!(peeked, Ok(2)) && first == [1, b'L']
}
