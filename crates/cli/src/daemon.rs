//! `longhaul serve`: accepts streams, lets principals in, runs their sessions.
//!
//! - [`setup`]: the daemon's key, principals and token
//! - [`admission`]: what a stream's first frame asks for, and whether it may
//! - [`asker`]: who asks for what, as the log has it
//! - [`calls`]: what a far side of SSH does beside its channel
//! - [`errands`]: copies with another daemon, that a principal has it run
//! - [`listing`]: what lies at a path, without a session
//! - [`places`]: what may run at the same time, and each principal's share
//! - [`secrets`]: what no root may hold
//! - [`sessions`]: the sessions that run
//! - [`sources`]: the sources that a principal asks for
//! - [`strangers`]: what the log has of connections that came to nothing
//! - [`turns`]: the order in which requests take over a transfer
//! - [`vouched`]: hosts that a principal has let in

mod admission;
mod asker;
mod calls;
mod errands;
mod listing;
mod places;
mod secrets;
mod sessions;
mod setup;
mod sources;
mod strangers;
mod turns;
mod vouched;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use longhaul_engine::allowance;
use longhaul_engine::failure::failure_of;
use longhaul_engine::net::Stream;
use longhaul_engine::net::clear;
use longhaul_engine::net::gate::{Gate, GateLimits, Ticket};
use longhaul_engine::net::principals::Principals;
use longhaul_engine::net::tcp::{self, HostPort, TcpOptions};
use longhaul_engine::net::tls::TlsServer;
use longhaul_units::ByteCount;

use crate::arguments::ServeArguments;
use crate::between::dialing::Dialing;
use crate::messages::{Exit, Stop, finish, say, stamp_lines};
use admission::Visitor;
pub use admission::{may_not_measure, open_destination};
pub use calls::{Client, TOLD_WITHIN};
use errands::Jobs;
use places::Places;
use secrets::Secrets;
use sessions::Sessions;
pub use sources::{Roots, expand_of, open_source_of};
use strangers::Strangers;
use turns::Rank;
use vouched::Vouched;

/// How long a stranger may take for his first frame.
const FIRST_FRAME: Duration = Duration::from_secs(10);

/// How long a peer that was refused, or told all, may take to hear it.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long to wait where the system cannot accept a connection: without, the
/// next try would fail at once, and the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
}

/// A daemon.
pub struct Daemon {
    terms: Terms,
    /// Where the principals are read again.
    principals_file: Option<PathBuf>,
    /// What none of their roots may hold.
    secrets: Secrets,
    tls: TlsServer,
    /// Replaced as a whole at SIGHUP.
    principals: RwLock<Arc<Principals>>,
    sessions: Sessions,
    gate: Gate,
    /// Connections that were let in so far.
    arrivals: AtomicU64,
    strangers: Strangers,
    /// Listings that are being told.
    listings: Arc<Places>,
    vouched: Vouched,
    /// Processes that run for principals.
    errands: Arc<Places>,
    /// Channels to their jobs.
    channels: Arc<Places>,
    /// What these need; none at the far side of SSH.
    jobs: Option<Jobs>,
    stopping: AtomicBool,
    /// The only one who may come, where a single session is run for him.
    client: Option<Client>,
}

/// Runs it.
pub fn run(arguments: ServeArguments) -> Exit {
    finish(serve(arguments))
}

fn serve(arguments: ServeArguments) -> Result<Exit, Stop> {
    let setup = setup::prepare(&arguments)?;
    let options = TcpOptions::default();
    let listener = match arguments.ports {
        Some(ports) => ports.listen(),
        None => tcp::listen(arguments.listen, &options),
    };
    let listener = listener.map_err(|error| Stop::because(Exit::Local, error))?;
    let address = listener
        .local_addr()
        .map_err(|error| Stop::because(Exit::Local, error))?;
    stamp_lines();
    setup.announce(&arguments, address)?;
    let daemon = Arc::new(Daemon {
        tls: setup.tls,
        principals: RwLock::new(Arc::new(setup.principals)),
        sessions: Sessions::new(arguments.sessions as usize),
        gate: Gate::new(GateLimits::default()),
        arrivals: AtomicU64::new(0),
        strangers: Strangers::default(),
        listings: Arc::default(),
        vouched: Vouched::default(),
        errands: Arc::default(),
        channels: Arc::default(),
        jobs: Some(Jobs {
            directory: setup.state.join("jobs"),
            dialing: Dialing::new(arguments.allow_dial.as_deref()),
        }),
        stopping: AtomicBool::new(false),
        terms: Terms {
            allow_clear: arguments.allow_clear,
            memory: allowance::for_blocks(arguments.memory),
            linger: arguments.linger,
            expiry: arguments.expire_leftovers.0,
        },
        principals_file: arguments.principals,
        secrets: setup.secrets,
        client: None,
    });
    daemon.obey_signals(address)?;
    errands::clear(setup.state.join("jobs"));
    daemon.accept(&listener, &options);
    let ended = daemon.sessions.end_all();
    say(&format!(
        "stopped by a signal; sessions that were ended: {ended}"
    ));
    Ok(Exit::Done)
}

impl Daemon {
    /// Takes connections until it is stopped.
    pub fn accept(self: &Arc<Daemon>, listener: &TcpListener, options: &TcpOptions) {
        let mut told = false;
        for accepted in listener.incoming() {
            if self.stopping.load(Ordering::Relaxed) {
                return;
            }
            match accepted {
                Ok(socket) => {
                    told = false;
                    self.admit(socket, options);
                }
                // One connection's fault (or too many open files) is not the
                // daemon's end; the kernel makes no noise either.
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        let text = failure_of("accept a connection", "the daemon", &error).text;
                        say(&format!("{text}; it tries again"));
                    }
                    // tidy: reason: the kernel tells nobody when a descriptor is
                    // free again, and who waits in the queue stays there.
                    std::thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// One for a single session of whoever started the process.
    pub fn for_owner(terms: Terms, tls: TlsServer, client: Client) -> Arc<Daemon> {
        Arc::new(Daemon {
            terms,
            principals_file: None,
            secrets: Secrets::default(),
            tls,
            principals: RwLock::new(Arc::new(Principals::owner("ssh", client.key))),
            sessions: Sessions::new(1),
            gate: Gate::new(GateLimits::default()),
            arrivals: AtomicU64::new(0),
            strangers: Strangers::default(),
            listings: Arc::default(),
            vouched: Vouched::default(),
            errands: Arc::default(),
            channels: Arc::default(),
            jobs: None,
            stopping: AtomicBool::new(false),
            client: Some(client),
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

    /// SIGINT and SIGTERM end the sessions and then the daemon; at SIGHUP a file
    /// of principals is read again. Without one it ends the process, as for any
    /// whose terminal was closed.
    fn obey_signals(self: &Arc<Daemon>, address: SocketAddr) -> Result<(), Stop> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut obeyed = vec![SIGINT, SIGTERM];
        obeyed.extend(self.principals_file.as_ref().map(|_| SIGHUP));
        let signals = signal_hook::iterator::Signals::new(obeyed);
        let mut signals = signals.map_err(|error| Stop::because(Exit::Local, error))?;
        let daemon = Arc::clone(self);
        let reloading = Arc::new(Mutex::new(()));
        let watcher = std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    if signal == SIGHUP {
                        daemon.reload_beside(&reloading);
                        continue;
                    }
                    daemon.stopping.store(true, Ordering::Relaxed);
                    // Wakes the accepting thread.
                    let _ = TcpStream::connect(address);
                    return;
                }
            });
        watcher
            .map(drop)
            .map_err(|error| Stop::because(Exit::Local, error))
    }

    /// Reloads on a thread of its own, one after the other: a root on a file server that does not
    /// answer must not keep the daemon from hearing SIGTERM.
    fn reload_beside(self: &Arc<Daemon>, reloading: &Arc<Mutex<()>>) {
        let (daemon, reloading) = (Arc::clone(self), Arc::clone(reloading));
        let thread = std::thread::Builder::new().name("reload".into());
        let started = thread.spawn(move || {
            let _turn = reloading.lock().unwrap_or_else(PoisonError::into_inner);
            daemon.reload();
        });
        if let Err(error) = started {
            say(&format!(
                "the principals stay as they were: no thread to read them: {error}"
            ));
        }
    }

    /// Reads the principals again; a file with a fault changes nothing.
    fn reload(&self) {
        let Some(file) = &self.principals_file else {
            return;
        };
        let loaded = Principals::load(file).map_err(|error| error.to_string());
        let checked = loaded.and_then(|principals| {
            self.secrets.check(&principals)?;
            Ok(principals)
        });
        match checked {
            Ok(principals) => {
                if principals.is_empty() {
                    say(&format!(
                        "{} names no principal any more: nobody is let in",
                        file.display()
                    ));
                }
                *self
                    .principals
                    .write()
                    .unwrap_or_else(PoisonError::into_inner) = Arc::new(principals);
                say(&format!(
                    "{} was read again; running sessions continue unchanged",
                    file.display()
                ));
            }
            Err(error) => say(&format!("the principals stay as they were: {error}")),
        }
    }

    /// Who may do what now.
    fn principals(&self) -> Arc<Principals> {
        let principals = self.principals.read();
        Arc::clone(&principals.unwrap_or_else(PoisonError::into_inner))
    }

    /// A connection came: what becomes of it is decided on a thread of its own.
    fn admit(self: &Arc<Daemon>, socket: TcpStream, options: &TcpOptions) {
        let Ok(peer) = socket.peer_addr() else {
            return;
        };
        // Strangers get no information, not even this.
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
            say(&format!("{peer}: no thread for the connection: {error}"));
        }
    }

    fn serve_stream(self: &Arc<Daemon>, socket: TcpStream, (ticket, rank): (Ticket, Rank)) {
        let Ok(peer) = socket.peer_addr() else {
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
        let stream = match clear {
            true => clear::over_tcp(socket).map_err(|error| error.to_string()),
            false => {
                let accepted = self.tls.accept_within(socket, left());
                accepted.map_err(|error| error.to_string())
            }
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
            Ok(_) => self.strangers.note(&format!(
                "{peer}: it is not the one who started this process"
            )),
            Err(error) => self.strangers.note(&naming(peer, &error)),
        }
    }
}

/// What went wrong with whom; many errors name him already.
fn naming(peer: SocketAddr, error: &str) -> String {
    let peer = HostPort::from(peer).to_string();
    match error.contains(&peer) {
        true => error.to_owned(),
        false => format!("{peer}: {error}"),
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
