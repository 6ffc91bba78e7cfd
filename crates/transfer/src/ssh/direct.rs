//! Streams beside the SSH channel: from here to the far side's addresses, or
//! from there to ours, whichever opens.

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

/// How long the first direct stream is looked for, beyond its round trips: until
/// then those who want one wait, unless there is another stream.
const LOOK_FOR: Duration = Duration::from_millis(1500);

/// With so much time left the addresses are tried once more: before the round trip
/// was measured they were given what short paths need.
const WORTH_ANOTHER_TRY: Duration = Duration::from_secs(1);

/// Round trips that it may take: asking for a call, TCP, TLS, joining, and one
/// packet of these lost.
pub const ROUND_TRIPS: u32 = 8;

/// Where a direct way opens at all, it usually has within this and a few round
/// trips.
pub const USUALLY_OPENS_WITHIN: Duration = Duration::from_millis(250);

/// Where an address answers at all, it usually does within this and a round
/// trip.
pub const USUALLY_ANSWERS_WITHIN: Duration = Duration::from_millis(100);

/// How much earlier this end tries than it has the other one try: a stream
/// from here is the usual one, and the other's tries are seen by firewalls.
const HEAD_START: Duration = Duration::from_millis(250);

/// After this many failures in a row the way is looked for again.
const FAILURES: u32 = 8;

const NO_STREAM: &str = "no direct stream opens";

/// The message if the far side connects and several paths were asked for.
const INWARD_IS_SINGLE: &str = "--mptcp: the far side connects to this host, which it does with \
    plain TCP: let connections from here to its ports (--ports) through, or leave --mptcp out";

/// The message if only ssh connects and several paths were asked for.
const SSH_IS_SINGLE: &str = "--mptcp: no stream opens beside ssh, so that everything goes through \
    ssh's own connections, which are plain TCP: let connections from here to the far side's ports \
    (--ports) through, or leave --mptcp out";

/// Which way streams open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nobody has tried.
    Unknown,
    /// From here to there.
    Outward(SocketAddr),
    /// From there to here.
    Inward,
    /// Not at all; why not, address by address.
    Closed(Vec<(SocketAddr, String)>),
}

/// What is known of the way.
struct State {
    way: Way,
    look_for: Duration,
    /// Somebody looks for it.
    looking: bool,
    /// When the current or last search gives up.
    until: Option<Instant>,
    /// Connections from here that were begun before anybody looked, and what
    /// comes of them.
    ahead: Option<(Sender<Found>, Receiver<Found>)>,
    /// The first address that TCP has connected to: likely the way.
    answered: Option<SocketAddr>,
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// The way is still looked for, and another stream is there.
    #[error("another stream is there")]
    Another,
    /// The way is closed, or did not open; why.
    #[error("{0}")]
    Failed(String),
}

/// What a thread that wants a stream does next.
enum Turn {
    /// Take another stream.
    Another,
    /// Nobody looks for the way.
    Look,
    /// Another thread is searching, and this address has answered.
    Guess(SocketAddr),
    /// The way is known.
    Open(Way),
}

/// The thread that searches for a way; the threads that wait for it are woken when it ends.
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

/// Finds the way, and opens streams on it.
pub struct Direct {
    tls: TlsClient,
    tcp: TcpOptions,
    /// Local addresses, which take turns, and whose turn it is.
    bind: Vec<IpAddr>,
    turn: AtomicU32,
    /// Knows where ssh finds the far side; `None` if its greeting has that.
    start: Option<Start>,
    greeting: Greeting,
    callbacks: Option<Arc<Callbacks>>,
    state: Mutex<State>,
    /// Somebody has answered, or no longer looks.
    changed: Condvar,
    /// Streams in a row that did not open on the way that was found.
    failures: AtomicU32,
    /// Several paths were asked for, and there is only one.
    single: AtomicBool,
    /// The largest segment of new connections in bytes; 0 leaves it to the kernel.
    segment: AtomicU32,
    small: SmallSegments,
}

impl Direct {
    /// `tls` is pinned to the far side's key.
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

    /// The way as it is known.
    pub fn way(&self) -> Way {
        self.lock().way.clone()
    }

    /// Whether the way is known, or somebody has answered at one of the
    /// addresses.
    pub fn is_promising(&self) -> bool {
        let state = self.lock();
        state.way != Way::Unknown || state.answered.is_some()
    }

    /// The round trip was measured.
    pub fn set_rtt(&self, rtt: Duration) {
        self.lock().look_for = look_for(rtt);
    }

    /// Connects to the far side's addresses now, for the next search for a way: the session's
    /// opening needs a round trip meanwhile.
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

    /// Something else may have come for the waiting thread for the way.
    pub fn wake(&self) {
        // Whoever looks at it now has it looked at when he waits.
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
                // Who answers there may be another host.
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

    /// Looks for the way, for all who wait.
    fn look(self: &Arc<Direct>, transfer: &Weak<Transfer>) -> Result<Stream, String> {
        let _looking = Looking(self);
        let (found, stream) = self.find(Some(transfer));
        // A far side that is done answers nobody any more.
        let done = transfer.upgrade().is_none_or(|transfer| transfer.is_done());
        if stream.is_some() || !done {
            // Between two far sides nothing goes through ssh instead. It is
            // said once: no way is looked for again.
            let ssh_alone = matches!(found, Way::Closed(_)) && self.start.is_some();
            if ssh_alone && self.way() == Way::Unknown && self.tcp.multipath {
                say(SSH_IS_SINGLE);
            }
            self.settle(found, false);
        }
        stream.ok_or_else(|| NO_STREAM.to_owned())
    }

    /// The way is known, unless somebody else knew it before; whether a stream is open
    /// on it, which is more than to have found none.
    fn settle(&self, way: Way, is_open: bool) {
        let mut state = self.lock();
        if state.way == Way::Unknown || is_open && matches!(state.way, Way::Closed(_)) {
            state.way = way;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A way that was found may close: then another is looked for.
    fn note(&self, opened: bool) {
        if opened {
            self.failures.store(0, Ordering::Relaxed);
        } else if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES {
            self.failures.store(0, Ordering::Relaxed);
            let mut state = self.lock();
            (state.way, state.answered) = (Way::Unknown, None);
        }
    }

    /// From now on connections have smaller segments if the path loses large ones: those that this
    /// end makes, and those that the far side makes to it.
    fn limit_segments(&self, transfer: &Weak<Transfer>) {
        let Some(segment) = self.small.limit(transfer) else {
            return;
        };
        let before = self.segment.swap(segment, Ordering::Relaxed);
        if let Some(callbacks) = self.callbacks.as_ref().filter(|_| before != segment) {
            callbacks.limit_segments(segment);
        }
    }

    /// `connected` is called before anything is said.
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

    /// Opens the first stream, where the session is to begin on it: the far side
    /// was told to connect to this end.
    ///
    /// # Errors
    ///
    /// Why no address of the far side answered, the silent ones first.
    pub fn begin(self: &Arc<Direct>) -> Result<Stream, Vec<(SocketAddr, String)>> {
        let (way, stream) = self.find(None);
        self.lock().way = way.clone();
        stream.ok_or(match way {
            Way::Closed(reasons) => reasons,
            Way::Unknown | Way::Outward(_) | Way::Inward => Vec::new(),
        })
    }

    /// Has the far side connect to this one, unless it does so by itself.
    fn call(
        &self,
        transfer: Option<&Weak<Transfer>>,
        patience: Duration,
    ) -> Result<Stream, String> {
        let callbacks = self.callbacks.as_ref().ok_or("this end does not listen")?;
        if let Some(transfer) = transfer {
            let transfer = transfer.upgrade().ok_or("the session is over")?;
            transfer.want_calls(1);
        }
        let stream = callbacks.take(patience);
        let stream = stream.ok_or_else(|| "the far side did not connect".to_owned())?;
        if self.tcp.multipath && !self.single.swap(true, Ordering::Relaxed) {
            say(INWARD_IS_SINGLE);
        }
        Ok(stream)
    }

    /// Both ways at once, almost; the first that opens is kept.
    fn find(self: &Arc<Direct>, transfer: Option<&Weak<Transfer>>) -> (Way, Option<Stream>) {
        let (ahead, patience) = {
            let mut state = self.lock();
            state.until = Some(Instant::now() + state.look_for);
            (state.ahead.take(), state.look_for)
        };
        // Those that were begun ahead had a round trip already.
        let head_start = match ahead {
            Some(_) => USUALLY_ANSWERS_WITHIN,
            None => HEAD_START,
        };
        let (inward, found) = ahead.unwrap_or_else(|| {
            let (sender, found) = channel();
            let (this, outward) = (Arc::clone(self), sender.clone());
            let deadline = Instant::now() + patience;
            // Where there is no thread for it, the other way is left.
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
        // Both end by themselves, and their senders with them.
        while let Ok(next) = found.recv() {
            match next {
                Ok((way, stream)) => return (way, Some(stream)),
                Err(refused) => failures.extend(refused),
            }
        }
        (Way::Closed(failures), None)
    }

    /// Those who wait for the way may try this address meanwhile.
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

/// How long the first direct stream is looked for.
fn look_for(rtt: Duration) -> Duration {
    LOOK_FOR + ROUND_TRIPS * rtt
}

/// Where the far side may be: where ssh finds it, then what it says itself.
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

/// Whose turn it is of the local addresses from which another can be reached; `None` if there is
/// none.
fn local_for(bind: &[IpAddr], address: SocketAddr, turn: u32) -> Option<IpAddr> {
    let fits = |local: &&IpAddr| local.is_ipv4() == address.is_ipv4();
    let fit: Vec<&IpAddr> = bind.iter().filter(fits).collect();
    let turn = turn as usize % fit.len().max(1);
    fit.get(turn).map(|local| **local)
}

/// Where ssh finds a host.
pub fn addresses_of(start: &Start, port: u16) -> Vec<SocketAddr> {
    let host = start.host_name();
    let resolved = host.map(|host| (host.as_str(), port).to_socket_addrs());
    resolved.into_iter().flatten().flatten().collect()
}

type Found = Result<(Way, Stream), Vec<(SocketAddr, String)>>;

/// Whether it runs.
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
