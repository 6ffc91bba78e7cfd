//! Direct streams beside the SSH channel. Either end may open them: this end connects to the remote
//! end's addresses, or the remote end connects to this end's.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use longhaul_engine::session::Transfer;
use longhaul_net::Stream;
use longhaul_net::candidates::{Attempt, first_to_answer};
use longhaul_net::tcp::{ConnectError, HostPort, TcpOptions};
use longhaul_net::tls::{TlsClient, TlsError};

use super::callbacks::Callbacks;
use super::command::Start;
use super::greeting::Greeting;
use crate::client::connection::{SmallSegments, single_path};
use crate::console::say;

/// Time to search for the first direct stream, in addition to [`ROUND_TRIPS`]. Meanwhile threads
/// that need a stream wait, unless another kind of stream is available.
const LOOK_FOR: Duration = Duration::from_millis(1500);

/// Minimum time left for a second attempt at the addresses. The first attempt ran before the round
/// trip was measured, with a deadline for short paths.
const WORTH_ANOTHER_TRY: Duration = Duration::from_secs(1);

/// Round trips that the search may take: the request for a call, TCP, TLS, joining, and one lost
/// packet.
pub const ROUND_TRIPS: u32 = 8;

/// If a direct route opens at all, it usually does so within this time plus a few round trips.
pub const USUALLY_OPENS_WITHIN: Duration = Duration::from_millis(250);

/// If an address answers at all, it usually does so within this time plus one round trip.
pub const USUALLY_ANSWERS_WITHIN: Duration = Duration::from_millis(100);

/// Time for which only this end tries to connect, before it asks the remote end to try too.
/// Connections from this end are the usual case, and firewalls notice attempts from the other end.
const HEAD_START: Duration = Duration::from_millis(250);

/// Number of consecutive failures after which the search for a route starts again.
const FAILURES: u32 = 8;

const NO_STREAM: &str = "no direct stream opens";

/// Message if only the remote end can connect and multipath TCP was requested.
const INWARD_IS_SINGLE: &str = "--mptcp: the remote host connects to this host, which it does with \
    plain TCP: let connections from here to its ports (--ports) through, or leave --mptcp out";

/// Message if only ssh can connect and multipath TCP was requested.
const SSH_IS_SINGLE: &str = "--mptcp: no stream opens beside ssh, so that everything goes through \
    ssh's own connections, which are plain TCP: let connections from here to the remote host's ports \
    (--ports) through, or leave --mptcp out";

/// Direction in which direct streams open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Not yet known.
    Unknown,
    /// This end connects to this address of the remote end.
    Outward(SocketAddr),
    /// The remote end connects to this end.
    Inward,
    /// Neither end can connect; holds the error for each address.
    Closed(Vec<(SocketAddr, String)>),
}

/// State of the search for a direct route.
struct State {
    way: Way,
    look_for: Duration,
    /// True while a thread is searching.
    looking: bool,
    /// Deadline of the current or last search.
    until: Option<Instant>,
    /// Connections that were started before the search, as a channel for their results.
    ahead: Option<(Sender<Found>, Receiver<Found>)>,
    /// First address to which TCP has connected. It is probably the route.
    answered: Option<SocketAddr>,
}

/// Reasons why a direct stream did not open.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// The search still runs, and another kind of stream is available.
    #[error("another stream is there")]
    Another,
    /// The route is closed or the connection failed; holds the reason.
    #[error("{0}")]
    Failed(String),
}

/// Next step of a thread that needs a stream.
enum Turn {
    /// Take another kind of stream.
    Another,
    /// Start a search, because no thread is searching.
    Look,
    /// Try this address, which has answered another thread's search.
    Guess(SocketAddr),
    /// Open a stream on the known route.
    Open(Way),
}

/// Guard of a running search. Its drop ends the search and wakes the threads that wait for it.
struct Looking<'a>(&'a Direct);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.looking = false;
        state.answered = None;
        drop(state);
        self.0.changed.notify_all();
    }
}

/// Finds a direct route and opens streams on it.
pub struct Direct {
    tls: TlsClient,
    tcp: TcpOptions,
    /// Local addresses, used in rotation, and the index of the next one.
    bind: Vec<IpAddr>,
    turn: AtomicU32,
    /// Resolves the address that ssh uses; `None` if the greeting alone lists the addresses.
    start: Option<Start>,
    greeting: Greeting,
    callbacks: Option<Arc<Callbacks>>,
    state: Mutex<State>,
    /// Signals that an address has answered, that the route changed, or that a search ended.
    changed: Condvar,
    /// Number of consecutive streams that failed to open on the known route.
    failures: AtomicU32,
    /// True if multipath TCP was requested and the path turned out to be single.
    single: AtomicBool,
    /// The largest segment of new connections in bytes; 0 leaves it to the kernel.
    segment: AtomicU32,
    small: SmallSegments,
}

impl Direct {
    /// Creates the state of a session without a known route. `tls` must accept only the remote
    /// end's key.
    pub fn new(
        tls: TlsClient,
        (tcp, bind): (TcpOptions, &[IpAddr]),
        start: Option<Start>,
        greeting: Greeting,
        callbacks: Option<Arc<Callbacks>>,
        rtt: Duration,
    ) -> Direct {
        Direct {
            tls,
            tcp,
            bind: bind.to_vec(),
            turn: AtomicU32::new(0),
            start,
            greeting,
            callbacks,
            state: Mutex::new(State {
                way: Way::Unknown,
                look_for: look_for(rtt),
                looking: false,
                until: None,
                ahead: None,
                answered: None,
            }),
            changed: Condvar::new(),
            failures: AtomicU32::new(0),
            single: AtomicBool::new(false),
            segment: AtomicU32::new(0),
            small: SmallSegments::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current route.
    pub fn way(&self) -> Way {
        self.lock().way.clone()
    }

    /// True if the route is known or one of the addresses has answered.
    pub fn is_promising(&self) -> bool {
        let state = self.lock();
        state.way != Way::Unknown || state.answered.is_some()
    }

    /// Sets the measured round trip, from which the search time is computed.
    pub fn set_rtt(&self, rtt: Duration) {
        self.lock().look_for = look_for(rtt);
    }

    /// Starts connecting to the remote end's addresses before the first search. The connections
    /// overlap with the round trip that opens the session.
    pub fn dial_ahead(self: &Arc<Direct>) {
        let mut state = self.lock();
        if state.ahead.is_none() {
            let (sender, found) = channel();
            let outward = sender.clone();
            let (this, deadline) = (Arc::clone(self), Instant::now() + state.look_for);
            if spawn("outward", move || this.find_outward(deadline, &outward)) {
                state.ahead = Some((sender, found));
            }
        }
    }

    /// Wakes the threads in [`Direct::open`] because another kind of stream may be available.
    pub fn wake(&self) {
        // Taking the lock once ensures that a thread about to wait sees the change first.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Opens a stream. During a search for a way, other threads wait for its result, try an
    /// address that has answered, or take another stream once there is one.
    ///
    /// # Errors
    ///
    /// [`NotOpened`].
    pub fn open(
        self: &Arc<Direct>,
        transfer: &Weak<Transfer>,
        patience: Duration,
        is_another_there: &dyn Fn() -> bool,
    ) -> Result<Stream, NotOpened> {
        let mut has_guessed = false;
        self.limit_segments(transfer);
        loop {
            let opened = match self.turn(has_guessed, is_another_there) {
                Turn::Another => return Err(NotOpened::Another),
                Turn::Look => return self.look(transfer).map_err(NotOpened::Failed),
                // A different host may answer at this address.
                Turn::Guess(address) => {
                    let patience = patience.min(self.lock().look_for);
                    if let Ok(stream) = self.dial(address, patience, &|| ()) {
                        self.settle(Way::Outward(address), true);
                        return Ok(stream);
                    }
                    has_guessed = true;
                    continue;
                }
                Turn::Open(Way::Outward(address)) => self.dial(address, patience, &|| ()),
                Turn::Open(Way::Inward) => self.call(Some(transfer), patience),
                Turn::Open(Way::Unknown | Way::Closed(_)) => {
                    return Err(NotOpened::Failed(NO_STREAM.to_owned()));
                }
            };
            self.note(opened.is_ok());
            return opened.map_err(NotOpened::Failed);
        }
    }

    fn turn(&self, has_guessed: bool, is_another_there: &dyn Fn() -> bool) -> Turn {
        let mut state = self.lock();
        loop {
            match (&state.way, state.answered) {
                (Way::Unknown, _) if !state.looking => {
                    state.looking = true;
                    return Turn::Look;
                }
                (Way::Unknown, Some(address)) if !has_guessed => return Turn::Guess(address),
                (Way::Unknown, _) if is_another_there() => return Turn::Another,
                (Way::Unknown, _) => {}
                (way, _) => return Turn::Open(way.clone()),
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Searches for the route on behalf of all waiting threads.
    fn look(self: &Arc<Direct>, transfer: &Weak<Transfer>) -> Result<Stream, String> {
        let _looking = Looking(self);
        let (found, stream) = self.find(Some(transfer));
        // A remote end that has finished answers no connections.
        let done = transfer
            .upgrade()
            .is_none_or(|transfer| transfer.summary().is_done());
        if stream.is_some() || !done {
            // Without `start`, as between two remote hosts, data does not fall back to ssh. The
            // message appears once, since the search is not repeated.
            let ssh_alone = matches!(found, Way::Closed(_)) && self.start.is_some();
            if ssh_alone && self.way() == Way::Unknown && self.tcp.multipath {
                say(SSH_IS_SINGLE);
            }
            self.settle(found, false);
        }
        stream.ok_or_else(|| NO_STREAM.to_owned())
    }

    /// Records the route unless it is already known. An open stream (`is_open`) also replaces
    /// `Way::Closed`, which is only a failed search.
    fn settle(&self, way: Way, is_open: bool) {
        let mut state = self.lock();
        if state.way == Way::Unknown || is_open && matches!(state.way, Way::Closed(_)) {
            state.way = way;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Counts consecutive failures. After [`FAILURES`] of them the route is forgotten, so that a
    /// new search starts.
    fn note(&self, opened: bool) {
        if opened {
            self.failures.store(0, Ordering::Relaxed);
        } else if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES {
            self.failures.store(0, Ordering::Relaxed);
            let mut state = self.lock();
            (state.way, state.answered) = (Way::Unknown, None);
        }
    }

    /// Reduces the segment size of later connections in both directions if the path loses large
    /// segments.
    fn limit_segments(&self, transfer: &Weak<Transfer>) {
        let Some(segment) = self.small.limit(transfer) else {
            return;
        };
        let before = self.segment.swap(segment, Ordering::Relaxed);
        if let Some(callbacks) = self.callbacks.as_ref().filter(|_| before != segment) {
            callbacks.limit_segments(segment);
        }
    }

    /// Connects to one address. Calls `connected` after TCP connects and before TLS starts.
    fn dial(
        &self,
        address: SocketAddr,
        patience: Duration,
        connected: &dyn Fn(),
    ) -> Result<Stream, String> {
        let multipath = self.tcp.multipath && !self.single.load(Ordering::Relaxed);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let bind = local_for(&self.bind, address, turn);
        if bind.is_none() && !self.bind.is_empty() {
            return Err(format!("{address}: no --bind address is of its family"));
        }
        let tcp = TcpOptions {
            multipath,
            bind,
            segment: Some(self.segment.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0),
            ..self.tcp
        };
        let stream = self
            .tls
            .connect_noting(&HostPort::from(address), patience, &tcp, &|_| connected())
            .map_err(|error| match error {
                TlsError::Connect(ConnectError::Refused { cause, .. }) => {
                    format!("{address}: {cause}")
                }
                other => other.to_string(),
            })?;
        let alone = multipath && !stream.handle.is_multipath();
        if alone && !self.single.swap(true, Ordering::Relaxed) {
            say(&single_path(&address));
        }
        Ok(stream)
    }

    /// Opens the first stream of a session that starts on a direct stream. The remote end has
    /// already been asked to connect to this end.
    ///
    /// # Errors
    ///
    /// The reason for each address of the remote end that did not answer. Silent addresses come
    /// first.
    pub fn begin(self: &Arc<Direct>) -> Result<Stream, Vec<(SocketAddr, String)>> {
        let (way, stream) = self.find(None);
        self.lock().way = way.clone();
        stream.ok_or(match way {
            Way::Closed(reasons) => reasons,
            Way::Unknown | Way::Outward(_) | Way::Inward => Vec::new(),
        })
    }

    /// Asks the remote end to connect to this end, if there is a transfer to ask through, and takes
    /// the stream.
    fn call(
        &self,
        transfer: Option<&Weak<Transfer>>,
        patience: Duration,
    ) -> Result<Stream, String> {
        let callbacks = self.callbacks.as_ref().ok_or("this end does not listen")?;
        if let Some(transfer) = transfer {
            let transfer = transfer.upgrade().ok_or("the session is over")?;
            transfer.streams().want_calls(1);
        }
        let stream = callbacks.take(patience);
        let stream = stream.ok_or_else(|| "the remote host did not connect".to_owned())?;
        if self.tcp.multipath && !self.single.swap(true, Ordering::Relaxed) {
            say(INWARD_IS_SINGLE);
        }
        Ok(stream)
    }

    /// Tries both directions, the inward one slightly later. Returns the first stream that opens.
    fn find(self: &Arc<Direct>, transfer: Option<&Weak<Transfer>>) -> (Way, Option<Stream>) {
        let (ahead, patience) = {
            let mut state = self.lock();
            state.until = Some(Instant::now() + state.look_for);
            (state.ahead.take(), state.look_for)
        };
        // Connections that were started earlier have already had a round trip.
        let head_start = match ahead {
            Some(_) => USUALLY_ANSWERS_WITHIN,
            None => HEAD_START,
        };
        let (inward, found) = ahead.unwrap_or_else(|| {
            let (sender, found) = channel();
            let (this, outward) = (Arc::clone(self), sender.clone());
            let deadline = Instant::now() + patience;
            // If the thread does not start, the inward direction remains.
            spawn("outward", move || this.find_outward(deadline, &outward));
            (sender, found)
        });
        let mut failures = Vec::new();
        if let Ok(first) = found.recv_timeout(head_start) {
            match first {
                Ok((way, stream)) => return (way, Some(stream)),
                Err(refused) => failures = refused,
            }
        }
        let (this, transfer) = (Arc::clone(self), transfer.cloned());
        spawn("inward", move || {
            let stream = this.call(transfer.as_ref(), patience);
            let found = stream.map(|stream| (Way::Inward, stream));
            let _ = inward.send(found.map_err(|_| Vec::new()));
        });
        // Both threads end by their deadlines and drop their senders.
        while let Ok(next) = found.recv() {
            match next {
                Ok((way, stream)) => return (way, Some(stream)),
                Err(refused) => failures.extend(refused),
            }
        }
        (Way::Closed(failures), None)
    }

    /// Records an address that has answered, so that waiting threads may try it.
    fn note_answer(&self, address: SocketAddr) {
        let mut state = self.lock();
        if state.way == Way::Unknown {
            state.answered.get_or_insert(address);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn find_outward(self: &Arc<Direct>, deadline: Instant, found: &Sender<Found>) {
        let mut first = self.try_outward(deadline);
        let until = self.lock().until.unwrap_or(deadline);
        if first.is_err() && until > deadline + WORTH_ANOTHER_TRY {
            first = self.try_outward(until);
        }
        let _ = found.send(first);
    }

    fn try_outward(self: &Arc<Direct>, deadline: Instant) -> Found {
        let this = Arc::clone(self);
        let attempt: Attempt<Stream> = Arc::new(move |address, deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            this.dial(address, left, &|| this.note_answer(address))
        });
        let candidates = candidates(self.start.as_ref(), &self.greeting);
        first_to_answer(&candidates, deadline, &attempt)
            .map(|(address, stream)| (Way::Outward(address), stream))
    }
}

/// Returns the time to search for the first direct stream.
fn look_for(rtt: Duration) -> Duration {
    LOOK_FOR + ROUND_TRIPS * rtt
}

/// Returns the addresses where the remote end may be reached: first those that ssh uses, then those
/// in its greeting.
pub fn candidates(start: Option<&Start>, greeting: &Greeting) -> Vec<SocketAddr> {
    let Some(port) = greeting.port else {
        return Vec::new();
    };
    let mut candidates = Vec::new();
    let own = greeting.addresses.iter();
    let own = own.map(|address| SocketAddr::new(*address, port));
    let resolved = start.map(|start| addresses_of(start, port));
    for address in resolved.into_iter().flatten().chain(own) {
        if !candidates.contains(&address) {
            candidates.push(address);
        }
    }
    candidates
}

/// Returns the `turn`-th of the local addresses of the same family as `address`, or `None` if there
/// is no such address.
fn local_for(bind: &[IpAddr], address: SocketAddr, turn: u32) -> Option<IpAddr> {
    let fits = |local: &&IpAddr| local.is_ipv4() == address.is_ipv4();
    let fit: Vec<&IpAddr> = bind.iter().filter(fits).collect();
    let turn = turn as usize % fit.len().max(1);
    fit.get(turn).map(|local| **local)
}

/// Returns the addresses to which ssh's host name resolves.
pub fn addresses_of(start: &Start, port: u16) -> Vec<SocketAddr> {
    let host = start.host_name();
    let resolved = host.map(|host| (host.as_str(), port).to_socket_addrs());
    resolved.into_iter().flatten().flatten().collect()
}

type Found = Result<(Way, Stream), Vec<(SocketAddr, String)>>;

/// Starts a thread; false if it cannot be started.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(run).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_of_the_other_ends_family_take_turns() {
        let bind = ["10.0.0.1", "fd00::1", "10.0.1.1"].map(|text| text.parse().unwrap());
        let to = |target: &str, turn| {
            let target = SocketAddr::new(target.parse().unwrap(), 1);
            local_for(&bind, target, turn).map(|local| local.to_string())
        };
        let turns = [0, 1, 2].map(|turn| to("192.0.2.7", turn).unwrap());
        assert_eq!(turns, ["10.0.0.1", "10.0.1.1", "10.0.0.1"]);
        assert_eq!(to("2001:db8::7", 1).as_deref(), Some("fd00::1"));
        let target = SocketAddr::from(([192, 0, 2, 7], 1));
        assert_eq!(local_for(&bind[1..2], target, 0), None);
        assert_eq!(local_for(&[], target, 5), None);
    }
}
