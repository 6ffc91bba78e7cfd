//! Work of a remote end beside the channel that started it: connections to a client that cannot
//! connect to it, and further channels.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use longhaul_engine::session::{Calls, Transfer};
use longhaul_net::Stream;
use longhaul_net::candidates::{Attempt, first_to_answer};
use longhaul_net::clear;
use longhaul_net::gate;
use longhaul_net::identity::Fingerprint;
use longhaul_net::tcp::{self, ConnectError, HostPort, TcpOptions};
use longhaul_net::tls::TlsError;
use longhaul_proto::allowed::Allowed;
use longhaul_proto::calls::{Call, CallLook};

use super::Daemon;
use super::admission::Visitor;
use crate::ssh::PROTECTION;

/// Maximum time of one call. The client waits no longer.
const CALL_WITHIN: Duration = Duration::from_secs(8);

/// Maximum time to try the client's addresses if each result is reported. The client waits longer
/// than that.
pub const TOLD_WITHIN: Duration = Duration::from_secs(3);

/// Maximum time until the first stream of a session between two remote ends.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// Maximum number of reasons reported; further ones are similar.
const SHOWN_REASONS: usize = 4;

/// Maximum number of simultaneous calls. The client opens no more streams at once.
const MAXIMUM_CALLS: usize = 64;

/// The client that started this process, with its addresses.
pub struct Client {
    /// Key of its end. A peer with another key may not join.
    pub key: Fingerprint,
    /// Addresses on which it listens, most likely first.
    pub addresses: Vec<SocketAddr>,
    /// Permitted requests if another client introduced it; `None` permits all.
    pub allowed: Option<Allowed>,
    /// Address at which it has answered.
    answered: Mutex<Option<SocketAddr>>,
    calls: AtomicUsize,
    /// True while all its addresses are being tried for a report.
    telling: AtomicBool,
}

/// Reasons why a call to an address failed.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the peer that answered has another key")]
    Stranger,
}

impl CallError {
    /// Returns the classification of the error and its cause.
    fn look(&self) -> (CallLook, String) {
        let connect = match self {
            CallError::Connect(error) | CallError::Tls(TlsError::Connect(error)) => error,
            CallError::Tls(error @ TlsError::Deadline { .. }) => {
                return (CallLook::Stalled, error.to_string());
            }
            CallError::Tls(_) | CallError::Stranger => {
                return (CallLook::WrongHost, self.to_string());
            }
        };
        match connect {
            ConnectError::Timeout { .. } => (CallLook::Silent, String::new()),
            ConnectError::Refused { cause, .. } => {
                let look = match cause.kind() {
                    ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => CallLook::Reset,
                    ErrorKind::TimedOut => CallLook::Silent,
                    _ => CallLook::Unreachable,
                };
                (look, cause.to_string())
            }
            other => (CallLook::Unreachable, other.to_string()),
        }
    }

    /// Returns the reason for the user.
    fn reason(&self) -> String {
        match self {
            CallError::Connect(ConnectError::Refused { cause, .. }) => cause.to_string(),
            other => other.to_string(),
        }
    }
}

/// Progress of a call to one address.
type Step = (SocketAddr, CallLook, String);

impl Client {
    /// Creates a client that has not been called.
    pub fn new(key: Fingerprint, addresses: Vec<SocketAddr>) -> Client {
        Client {
            key,
            addresses,
            allowed: None,
            answered: Mutex::default(),
            calls: AtomicUsize::new(0),
            telling: AtomicBool::new(false),
        }
    }

    /// Sets the permitted requests.
    pub fn allowed(self, allowed: Option<Allowed>) -> Client {
        Client { allowed, ..self }
    }

    /// Returns the addresses to call: the one that has answered, or else all.
    fn to_try(&self) -> Vec<SocketAddr> {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.map_or_else(|| self.addresses.clone(), |address| vec![address])
    }

    fn note(&self, answered: Option<SocketAddr>) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = answered;
    }
}

impl Daemon {
    /// True if the client may continue after the handshake. A remote end accepts only its own
    /// client.
    pub(super) fn may_come(&self, stream: &Stream) -> bool {
        let client = self.client.as_ref();
        client.is_none_or(|client| stream.handle.peer_fingerprint() == Some(client.key))
    }

    /// Starts answering the session's requests for calls.
    pub(super) fn answer_calls(self: &Arc<Daemon>, transfer: &Arc<Transfer>) {
        if self.client.is_none() {
            return;
        }
        let (daemon, session) = (Arc::downgrade(self), Arc::downgrade(transfer));
        transfer.streams().call_by(Arc::new(move |calls: Calls| {
            let Some(daemon) = daemon.upgrade() else {
                return;
            };
            if !calls.told {
                daemon.call(calls.count);
            } else {
                daemon.tell_all(Weak::clone(&session));
            }
        }));
    }

    /// Calls the client at each of its addresses and reports the results.
    fn tell_all(self: &Arc<Daemon>, session: Weak<Transfer>) {
        let daemon = Arc::clone(self);
        // If no thread starts, the client receives no report before its deadline.
        let _ = std::thread::Builder::new()
            .name("tell calls".into())
            .spawn(move || {
                let Some(client) = &daemon.client else {
                    return;
                };
                // A second request during the report gets no second report.
                if client.telling.swap(true, Ordering::Relaxed) {
                    return;
                }
                let calls = daemon.call_each(client, TOLD_WITHIN);
                client.telling.store(false, Ordering::Relaxed);
                if let Some(session) = session.upgrade() {
                    session.streams().tell_calls(calls);
                }
            });
    }

    /// Returns the result of a call to each of the client's addresses, within `patience`.
    fn call_each(self: &Arc<Daemon>, client: &Client, patience: Duration) -> Vec<Call> {
        let deadline = Instant::now() + patience;
        let (steps, taken) = channel();
        for &address in &client.addresses {
            self.call_at(address, client.key, deadline, steps.clone());
        }
        drop(steps);
        looks_of(&client.addresses, &taken, deadline)
    }

    /// Calls one address on a new thread. A connection that opens is used as a stream.
    fn call_at(
        self: &Arc<Daemon>,
        address: SocketAddr,
        key: Fingerprint,
        deadline: Instant,
        steps: Sender<Step>,
    ) {
        let (daemon, failed) = (Arc::clone(self), steps.clone());
        let call = move || {
            let reached = daemon.reach(address, deadline, key, &|| {
                // The receiver may no longer wait.
                let _ = steps.send((address, CallLook::Stalled, "it says nothing".to_owned()));
            });
            let (look, cause) = match &reached {
                Ok(_) => (CallLook::Open, String::new()),
                Err(error) => error.look(),
            };
            let _ = steps.send((address, look, cause));
            drop(steps);
            if let Ok(stream) = reached {
                daemon.receive_hello(
                    stream,
                    Visitor::stranger(HostPort::from(address).to_string()),
                );
            }
        };
        let thread = std::thread::Builder::new().name("call".into());
        if let Err(error) = thread.spawn(call) {
            let _ = failed.send((address, CallLook::Unreachable, error.to_string()));
        }
    }

    /// Connects to the client, unasked, so that it opens a session.
    ///
    /// # Errors
    ///
    /// The reason for each address that did not answer.
    pub fn call_first(self: &Arc<Daemon>) -> Result<(), String> {
        let Some(client) = &self.client else {
            return Ok(());
        };
        if client.addresses.is_empty() {
            return Err("it has no port to connect to".to_owned());
        }
        let (address, stream) = self.find(client).map_err(|reasons| {
            let reasons = reasons.into_iter().take(SHOWN_REASONS);
            let reasons: Vec<String> = reasons
                .map(|(address, reason)| format!("{address}: {reason}"))
                .collect();
            if reasons.is_empty() {
                "no answer from any of its addresses".to_owned()
            } else {
                reasons.join("; ")
            }
        })?;
        client.note(Some(address));
        self.receive_hello(
            stream,
            Visitor::stranger(HostPort::from(address).to_string()),
        );
        Ok(())
    }

    /// Waits until the session of a remote end has ended.
    pub fn wait_for_session(&self) {
        self.sessions.wait_for_end(BEGINS_WITHIN);
    }

    /// Records that the client will start no session.
    pub fn give_up(&self) {
        self.sessions.give_up();
    }

    fn find(
        self: &Arc<Daemon>,
        client: &Client,
    ) -> Result<(SocketAddr, Stream), Vec<(SocketAddr, String)>> {
        let (daemon, key) = (Arc::clone(self), client.key);
        let attempt: Attempt<Stream> = Arc::new(move |address, deadline| {
            let reached = daemon.reach(address, deadline, key, &|| {});
            reached.map_err(|error| error.reason())
        });
        first_to_answer(&client.to_try(), Instant::now() + CALL_WITHIN, &attempt)
    }

    fn call(self: &Arc<Daemon>, count: u32) {
        for _ in 0..(count as usize).min(MAXIMUM_CALLS) {
            let daemon = Arc::clone(self);
            // If no thread starts, the client asks again.
            let _ = std::thread::Builder::new()
                .name("call".into())
                .spawn(move || daemon.call_once());
        }
    }

    fn call_once(self: &Arc<Daemon>) {
        let Some(client) = &self.client else {
            return;
        };
        if client.calls.fetch_add(1, Ordering::Relaxed) < MAXIMUM_CALLS {
            match self.find(client) {
                Ok((address, stream)) => {
                    client.note(Some(address));
                    self.receive_hello(
                        stream,
                        Visitor::stranger(HostPort::from(address).to_string()),
                    );
                }
                Err(_) => client.note(None),
            }
        }
        client.calls.fetch_sub(1, Ordering::Relaxed);
    }

    /// Connects and checks that the peer is the client. Calls `connected` once TCP has connected.
    fn reach(
        &self,
        address: SocketAddr,
        deadline: Instant,
        key: Fingerprint,
        connected: &dyn Fn(),
    ) -> Result<Stream, CallError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let socket = tcp::connect(&HostPort::from(address), left, &TcpOptions::default())?;
        connected();
        let stream = self.tls().accept(socket)?;
        if stream.handle.peer_fingerprint() == Some(key) {
            Ok(stream)
        } else {
            Err(CallError::Stranger)
        }
    }

    /// Accepts further channels from processes of the same user. Each carries one stream.
    pub fn accept_channels(self: &Arc<Daemon>, listener: UnixListener) -> std::io::Result<()> {
        let daemon = Arc::clone(self);
        let thread = std::thread::Builder::new().name("channels".into());
        let accept = move || {
            for channel in listener.incoming().filter_map(gate::or_pause) {
                let daemon = Arc::clone(&daemon);
                // If no thread starts, the channel closes and the client notices.
                let _ = std::thread::Builder::new()
                    .name("channel".into())
                    .spawn(move || daemon.serve_further_channel(channel));
            }
        };
        thread.spawn(accept).map(drop)
    }

    /// Serves a channel of the same user. Other users of this host may reach the listener, but they
    /// are rejected and do not have a session's secret.
    fn serve_further_channel(self: &Arc<Daemon>, channel: UnixStream) {
        let own = rustix::process::geteuid();
        let peer = rustix::net::sockopt::socket_peercred(&channel);
        if peer.is_ok_and(|peer| peer.uid == own) {
            let stream = clear::over_local(channel, PROTECTION);
            self.receive_hello(stream, Visitor::of_channel("a further channel"));
        }
    }
}

/// Returns the last step of each address before the deadline; an address without a step counts as
/// silent.
fn looks_of(addresses: &[SocketAddr], steps: &Receiver<Step>, deadline: Instant) -> Vec<Call> {
    let mut looks: BTreeMap<SocketAddr, (CallLook, String)> = BTreeMap::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // The channel closes once all calls have ended.
        let Ok((address, look, cause)) = steps.recv_timeout(left) else {
            break;
        };
        looks.insert(address, (look, cause));
    }
    let of = |address: &SocketAddr| {
        let silent = (CallLook::Silent, String::new());
        let (look, cause) = looks.remove(address).unwrap_or(silent);
        Call::new(address, look, &cause)
    };
    addresses.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::Terms;
    use longhaul_net::identity::Identity;
    use longhaul_net::tls::{TlsClient, TlsOptions, TlsServer};
    use longhaul_net::trust::ServerTrust;
    use longhaul_units::ByteCount;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").unwrap()
    }

    /// Accepts one connection and passes it to `answer`.
    fn answering(answer: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || answer(listener.accept().unwrap().0));
        address
    }

    /// Makes a TLS handshake as the holder of the key `own`.
    fn client(server: &Identity, own: Identity) -> SocketAddr {
        let trust = ServerTrust::Fingerprint(server.fingerprint());
        let tls = TlsClient::new(trust, Some(own), TlsOptions::default());
        answering(move |socket| {
            let peer = HostPort::from(socket.peer_addr().unwrap());
            // The server closes the connection of a peer with the wrong key.
            let _ = tls.handshake(socket, &peer);
        })
    }

    /// Returns an address whose accept queue is full. The kernel drops new connections, like a
    /// firewall.
    fn silent() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
        let listener = listener();
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let brief = Duration::from_millis(300);
        let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, brief).ok());
        let waiting = waiting.take(16).collect();
        (address, listener, waiting)
    }

    #[test]
    fn each_address_is_reported_with_its_result() {
        let [own, meant, other] = [(); 3].map(|()| Identity::ephemeral().unwrap());
        let (silent, _listener, waiting) = silent();
        assert!(waiting.len() < 16, "its queue has no end");
        let closed = listener().local_addr().unwrap();
        let mute = listener();
        let another = answering(|mut socket| socket.write_all(b"SSH-2.0-x\r\n").unwrap());
        let expected = [
            (client(&own, meant.clone()), CallLook::Open),
            (closed, CallLook::Reset),
            (silent, CallLook::Silent),
            (mute.local_addr().unwrap(), CallLook::Stalled),
            (another, CallLook::WrongHost),
            (client(&own, other), CallLook::WrongHost),
        ];
        let terms = Terms {
            allow_clear: false,
            memory: ByteCount(1 << 20),
            linger: Duration::from_secs(1),
            expiry: None,
            logs_json: false,
        };
        let tls = TlsServer::new(&own, TlsOptions::default()).unwrap();
        let addresses = expected.map(|(address, _)| address).to_vec();
        let owner = Client::new(meant.fingerprint(), addresses);
        let daemon = Daemon::for_owner(terms, tls, owner);
        let told = daemon.call_each(daemon.client.as_ref().unwrap(), TOLD_WITHIN);
        let looks: Vec<(Option<SocketAddr>, CallLook)> = told
            .iter()
            .map(|call| (call.address.parse().ok(), call.look))
            .collect();
        assert_eq!(
            looks,
            expected.map(|(at, look)| (Some(at), look)),
            "{told:?}"
        );
        assert!(told[1].cause.contains("refused"), "{told:?}");
    }

    #[test]
    fn a_late_result_is_replaced_by_the_last_step() {
        let [first, second] = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let (sender, steps) = channel();
        sender
            .send((second, CallLook::Stalled, "x".to_owned()))
            .unwrap();
        let looks = looks_of(&[first, second], &steps, Instant::now());
        assert_eq!(looks[0].look, CallLook::Silent);
        assert_eq!(looks[1], Call::new(&second, CallLook::Stalled, "x"));
    }
}
