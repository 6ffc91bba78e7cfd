//! Streams beside the SSH channel: from here to the far side's addresses, or
//! from there to ours, whichever opens.

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use longhaul_engine::net::Stream;
use longhaul_engine::net::candidates::{Attempt, first_to_answer};
use longhaul_engine::net::tcp::{ConnectError, HostPort, TcpOptions};
use longhaul_engine::net::tls::{TlsClient, TlsError};
use longhaul_engine::session::Transfer;

use super::callbacks::Callbacks;
use super::command::Start;
use super::greeting::Greeting;
use crate::commands::connection::single_path;
use crate::messages::say;

/// How long the first direct stream is looked for, beyond its round trips: an
/// address that is silent holds up the further ssh connections for that long.
const LOOK_FOR: Duration = Duration::from_millis(1500);

/// Round trips that it may take: asking for a call, TCP, TLS, joining, and one
/// packet of these lost.
pub const ROUND_TRIPS: u32 = 8;

/// Where a direct way opens at all, it usually has within this and a few round
/// trips.
pub const USUALLY_OPENS_WITHIN: Duration = Duration::from_millis(250);

/// How much earlier this end tries than it has the other one try: a stream
/// from here is the usual one, and the other's tries are seen by firewalls.
const HEAD_START: Duration = Duration::from_millis(250);

/// After so many failures in a row the way is looked for again.
const FAILURES: u32 = 8;

/// What is said where the far side connects and several paths were asked for.
const INWARD_IS_SINGLE: &str = "--mptcp: the far side connects to this host, which it does with \
    plain TCP: let connections from here to its ports (--ports) through, or leave --mptcp out";

/// What is said where nothing but ssh connects and several paths were asked for.
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

/// Finds the way, and opens streams on it.
pub struct Direct {
    tls: TlsClient,
    tcp: TcpOptions,
    /// Knows where ssh finds the far side; none where its greeting has that.
    start: Option<Start>,
    greeting: Greeting,
    callbacks: Option<Arc<Callbacks>>,
    look_for: Duration,
    way: Mutex<Way>,
    /// Held by who looks for the way.
    looking: Mutex<()>,
    /// Streams in a row that did not open on the way that was found.
    failures: AtomicU32,
    /// Several paths were asked for, and there is only one.
    single: AtomicBool,
}

impl Direct {
    /// `tls` is pinned to the far side's key.
    pub fn new(
        tls: TlsClient,
        tcp: TcpOptions,
        start: Option<Start>,
        greeting: Greeting,
        callbacks: Option<Arc<Callbacks>>,
        rtt: Duration,
    ) -> Direct {
        Direct {
            tls,
            tcp,
            start,
            greeting,
            callbacks,
            look_for: LOOK_FOR + ROUND_TRIPS * rtt,
            way: Mutex::new(Way::Unknown),
            looking: Mutex::default(),
            failures: AtomicU32::new(0),
            single: AtomicBool::new(false),
        }
    }

    /// The way as it is known.
    pub fn way(&self) -> Way {
        self.way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, way: Way) {
        *self.way.lock().unwrap_or_else(PoisonError::into_inner) = way;
    }

    /// Opens a stream. Whoever comes while the way is looked for waits for what
    /// is found.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn open(
        self: &Arc<Direct>,
        transfer: &Weak<Transfer>,
        patience: Duration,
    ) -> Result<Stream, String> {
        let looking = self.looking.lock();
        let looking = looking.unwrap_or_else(PoisonError::into_inner);
        if self.way() == Way::Unknown {
            let (found, stream) = self.find(Some(transfer));
            // A far side that is done answers nobody any more.
            let done = transfer.upgrade().is_none_or(|transfer| transfer.is_done());
            if stream.is_some() || !done {
                // Between two far sides nothing goes through ssh instead. It is
                // said once: no way is looked for again.
                let ssh_alone = matches!(found, Way::Closed(_)) && self.start.is_some();
                if ssh_alone && self.tcp.multipath {
                    say(SSH_IS_SINGLE);
                }
                self.set(found);
            }
            return stream.ok_or_else(|| "no direct stream opens".to_owned());
        }
        drop(looking);
        let opened = match self.way() {
            Way::Outward(address) => self.dial(address, patience),
            Way::Inward => self.call(Some(transfer), patience),
            Way::Unknown | Way::Closed(_) => return Err("no direct stream opens".to_owned()),
        };
        self.note(opened.is_ok());
        opened
    }

    /// A way that was found may close: then another is looked for.
    fn note(&self, opened: bool) {
        if opened {
            self.failures.store(0, Ordering::Relaxed);
        } else if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES {
            self.failures.store(0, Ordering::Relaxed);
            self.set(Way::Unknown);
        }
    }

    fn dial(&self, address: SocketAddr, patience: Duration) -> Result<Stream, String> {
        let multipath = self.tcp.multipath && !self.single.load(Ordering::Relaxed);
        let tcp = TcpOptions {
            multipath,
            ..self.tcp
        };
        let stream = self
            .tls
            .connect(&HostPort::from(address), patience, &tcp)
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
    /// Why no address of the far side answered; those that were silent are not
    /// in it.
    pub fn begin(self: &Arc<Direct>) -> Result<Stream, Vec<(SocketAddr, String)>> {
        let (way, stream) = self.find(None);
        self.set(way.clone());
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
        let (sender, found) = channel();
        let (outward, inward) = (sender.clone(), sender);
        let (this, deadline) = (Arc::clone(self), Instant::now() + self.look_for);
        let out = spawn("outward", move || this.find_outward(deadline, &outward));
        let mut failures = Vec::new();
        if out && let Ok(first) = found.recv_timeout(HEAD_START) {
            match first {
                Ok((way, stream)) => return (way, Some(stream)),
                Err(refused) => failures = refused,
            }
        }
        let (this, transfer) = (Arc::clone(self), transfer.cloned());
        spawn("inward", move || {
            let stream = this.call(transfer.as_ref(), this.look_for);
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

    fn find_outward(self: &Arc<Direct>, deadline: Instant, found: &Sender<Found>) {
        let this = Arc::clone(self);
        let attempt: Attempt<Stream> = Arc::new(move |address, deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            this.dial(address, left)
        });
        let first = first_to_answer(
            &candidates(self.start.as_ref(), &self.greeting),
            deadline,
            &attempt,
        );
        let first = first.map(|(address, stream)| (Way::Outward(address), stream));
        let _ = found.send(first);
    }
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

/// Where ssh finds a host.
pub fn addresses_of(start: &Start, port: u16) -> Vec<SocketAddr> {
    let resolved = host_name(start).map(|host| (host, port).to_socket_addrs());
    resolved.into_iter().flatten().flatten().collect()
}

/// The host as ssh's configuration has it.
fn host_name(start: &Start) -> Option<String> {
    let (program, rest) = start.words.split_first()?;
    let output = Command::new(program)
        .args(rest)
        .args(["-G", "--", &start.destination])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    host_name_in(&String::from_utf8_lossy(&output.stdout)).map(str::to_owned)
}

type Found = Result<(Way, Stream), Vec<(SocketAddr, String)>>;

/// Whether it runs.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(run).is_ok()
}

/// What `ssh -G` says.
fn host_name_in(configuration: &str) -> Option<&str> {
    let mut lines = configuration.lines();
    let name = lines.find_map(|line| line.strip_prefix("hostname "))?;
    Some(name.trim()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_where_ssh_finds_it() {
        let text = "user alice\nhostname dtn7.example.org\nport 22\n";
        assert_eq!(host_name_in(text), Some("dtn7.example.org"));
        assert_eq!(host_name_in("user alice\n"), None);
    }
}
