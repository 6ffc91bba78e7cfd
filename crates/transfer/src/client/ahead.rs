//! Connections that are begun before there is a session for them to join.
//!
//! The streams beside the first cost three round trips once the session is known: TCP, TLS,
//! joining. The first two need nothing of the session, and continue while the first stream opens
//! it: on a long path all streams join two round trips sooner. They begin when the first is
//! connected and has shown how long the path is, if it is long enough to be worth it. None says
//! anything before the daemon has shown its key to the first stream.

use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_model::response::Congestion;
use longhaul_net::Stream;
use longhaul_net::congestion;
use longhaul_net::tcp::{self, HostPort, TcpOptions};
use longhaul_net::tcp_info::TcpInfo;
use longhaul_net::tls::TlsClient;

/// On shorter paths two round trips are nothing.
const WORTH_IT: Duration = Duration::from_millis(10);

/// How the connections are made.
pub struct Plan {
    /// The daemon, by the name that its certificate may bear.
    pub host: HostPort,
    /// What is connected to.
    pub target: HostPort,
    /// How long each may take to connect.
    pub timeout: Duration,
    /// The socket's options, by the stream's number.
    pub tcp: Box<dyn Fn(u32) -> TcpOptions + Send + Sync>,
    /// How many there should be.
    pub streams: StreamsFor,
}

/// How many streams a path of this round trip begins with, the session's first
/// one included, where this congestion control governs this end.
pub type StreamsFor = Box<dyn Fn(Duration, Option<Congestion>) -> u32 + Send + Sync>;

/// The connections.
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
    /// Knows the daemon's key; none before the daemon has shown it.
    tls: Option<TlsClient>,
    /// No more are wanted.
    closed: bool,
    under_way: usize,
    ready: Vec<Stream>,
}

impl Ahead {
    /// Begins to connect where the first stream's connection, which is not used
    /// yet, says that it is worth it; waits for nothing. What fails is only slower.
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

    /// The daemon has shown its key, and `tls` knows it.
    pub fn trust(&self, tls: TlsClient) {
        self.lock().tls = Some(tls);
        self.shared.changed.notify_all();
    }

    /// No more are wanted; those that are ready are closed.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.ready.clear();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// One that is ready, or gets so in time; `None` if there is none left.
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

    /// Runs `what` on a thread of its own, counted as long as it runs.
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

    /// Once the daemon is known.
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
