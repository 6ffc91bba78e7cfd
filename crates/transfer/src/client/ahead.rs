//! Connections that are started before their session exists.
//!
//! Each stream after the first needs three round trips once the session is known: TCP, TLS and
//! joining. TCP and TLS do not depend on the session, so they overlap with its opening on the first
//! stream. On a long path all streams then join two round trips earlier. They start when the first
//! stream has connected and measured the round trip, if the path is long enough. They send no TLS
//! data before the daemon has presented its key to the first stream.

use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_model::response::Congestion;
use longhaul_net::Stream;
use longhaul_net::congestion;
use longhaul_net::tcp::{self, HostPort, TcpOptions};
use longhaul_net::tcp_info::TcpInfo;
use longhaul_net::tls::TlsClient;

/// Minimum round trip for an early start. On shorter paths the gain is negligible.
const WORTH_IT: Duration = Duration::from_millis(10);

/// Settings for the connections.
pub struct Plan {
    /// Host name of the daemon, as in its certificate.
    pub host: HostPort,
    /// Connection target.
    pub target: HostPort,
    /// Maximum time for each connection.
    pub timeout: Duration,
    /// Socket options for each stream number.
    pub tcp: Box<dyn Fn(u32) -> TcpOptions + Send + Sync>,
    /// Number of streams.
    pub streams: StreamsFor,
}

/// Returns the initial number of streams, including the first, for a round trip and the congestion
/// control of this end.
pub type StreamsFor = Box<dyn Fn(Duration, Option<Congestion>) -> u32 + Send + Sync>;

/// Connections that were started early.
#[derive(Clone, Default)]
pub struct Ahead {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// TLS client with the daemon's key; `None` until the daemon has presented it.
    tls: Option<TlsClient>,
    /// True if no more connections are wanted.
    closed: bool,
    under_way: usize,
    ready: Vec<Stream>,
}

impl Ahead {
    /// Starts connecting if the path of the first connection is long enough. Does not block.
    /// Failures are ignored, since the streams are then dialed later. `first` must be unused so
    /// far.
    pub fn begin(&self, first: &TcpStream, plan: Plan) {
        let rtt = TcpInfo::of(first).map_or(Duration::ZERO, |info| info.rtt);
        if rtt < WORTH_IT {
            return;
        }
        let name = congestion::by_distance(first, Some(rtt)).map(str::to_owned);
        let name = name.or_else(|| congestion::of(first).ok());
        let congestion = name.map(|name| Congestion::of_name(&name));
        let streams = (plan.streams)(rtt, congestion);
        let plan = Arc::new(plan);
        for number in 1..streams {
            let (plan, ahead) = (Arc::clone(&plan), self.clone());
            self.start(move || {
                let tcp = (plan.tcp)(number);
                if let Ok(socket) = tcp::connect(&plan.target, plan.timeout, &tcp) {
                    ahead.shake_hands(socket, &plan);
                }
            });
        }
    }

    /// Sets the TLS client that knows the daemon's key, so that handshakes may start.
    pub fn trust(&self, tls: TlsClient) {
        self.lock().tls = Some(tls);
        self.shared.changed.notify_all();
    }

    /// Closes all waiting connections and accepts no more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.ready.clear();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Returns a connection that is ready within `patience`, if there is one.
    pub fn take(&self, patience: Duration) -> Option<Stream> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if let Some(stream) = state.ready.pop() {
                return Some(stream);
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.under_way == 0 || state.closed || left.is_zero() {
                return None;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `what` on a new thread and counts it while it runs.
    fn start(&self, what: impl FnOnce() + Send + 'static) {
        self.lock().under_way += 1;
        let ahead = self.clone();
        let run = move || {
            what();
            ahead.end_one();
        };
        let thread = std::thread::Builder::new().name("ahead".into());
        if thread.spawn(run).is_err() {
            self.end_one();
        }
    }

    fn end_one(&self) {
        self.lock().under_way -= 1;
        self.shared.changed.notify_all();
    }

    /// Waits for the daemon's key and then makes the TLS handshake.
    fn shake_hands(&self, socket: TcpStream, plan: &Plan) {
        let mut state = self.lock();
        let tls = loop {
            if state.closed {
                return;
            }
            if let Some(tls) = &state.tls {
                break tls.clone();
            }
            let waited = self.shared.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        let Ok(stream) = tls.handshake(socket, &plan.host) else {
            return;
        };
        let mut state = self.lock();
        if !state.closed {
            state.ready.push(stream);
        }
    }
}
