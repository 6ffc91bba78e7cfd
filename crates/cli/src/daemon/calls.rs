//! What a far side does beside the channel that started it: it connects to its
//! client where that cannot connect to it, and takes further channels.

use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_engine::net::Stream;
use longhaul_engine::net::candidates::{Attempt, first_to_answer};
use longhaul_engine::net::clear;
use longhaul_engine::net::identity::Fingerprint;
use longhaul_engine::net::tcp::{self, ConnectError, HostPort, TcpOptions};
use longhaul_engine::session::Transfer;

use super::Daemon;
use super::admission::Visitor;
use crate::ssh::PROTECTION;

/// How long one call may take: the client waits no longer.
const CALL_WITHIN: Duration = Duration::from_secs(8);

/// How long the first stream of a session between two far sides may take.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// Reasons that are told; the others are like them.
const SHOWN_REASONS: usize = 4;

/// Calls under way at most; the client opens no more streams at once.
const MAXIMUM_CALLS: usize = 64;

/// Whoever started this process, and where he can be reached.
pub struct Client {
    /// The key of his other end: no other may join.
    pub key: Fingerprint,
    /// Where he listens, the likeliest first.
    pub addresses: Vec<SocketAddr>,
    /// Where he answered.
    answered: Mutex<Option<SocketAddr>>,
    calls: AtomicUsize,
}

impl Client {
    /// One who has not been called.
    pub fn new(key: Fingerprint, addresses: Vec<SocketAddr>) -> Client {
        Client {
            key,
            addresses,
            answered: Mutex::default(),
            calls: AtomicUsize::new(0),
        }
    }

    /// Where to call him now.
    fn to_try(&self) -> Vec<SocketAddr> {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.map_or_else(|| self.addresses.clone(), |address| vec![address])
    }

    fn note(&self, answered: Option<SocketAddr>) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = answered;
    }
}

impl Daemon {
    /// Whether whoever shook hands may say more: at a far side only its client.
    pub(super) fn may_come(&self, stream: &Stream) -> bool {
        let client = self.client.as_ref();
        client.is_none_or(|client| stream.handle.peer_fingerprint() == Some(client.key))
    }

    /// From now on this session's client is called when he asks for it.
    pub(super) fn answer_calls(self: &Arc<Daemon>, transfer: &Transfer) {
        if self.client.is_none() {
            return;
        }
        let daemon = Arc::downgrade(self);
        transfer.call_by(Arc::new(move |count| {
            if let Some(daemon) = daemon.upgrade() {
                daemon.call(count);
            }
        }));
    }

    /// Connects to the client before he has asked for it, and has him open a
    /// session.
    ///
    /// # Errors
    ///
    /// Why none of his addresses answered.
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
            match reasons.is_empty() {
                true => "no answer from any of its addresses".to_owned(),
                false => reasons.join("; "),
            }
        })?;
        client.note(Some(address));
        self.receive_hello(stream, Visitor::stranger(address.to_string()));
        Ok(())
    }

    /// Waits until the session of a far side has ended.
    pub fn wait_for_session(&self) {
        self.sessions.wait_for_end(BEGINS_WITHIN);
    }

    /// Whoever would have the session begin has gone.
    pub fn give_up(&self) {
        self.sessions.give_up();
    }

    fn find(
        self: &Arc<Daemon>,
        client: &Client,
    ) -> Result<(SocketAddr, Stream), Vec<(SocketAddr, String)>> {
        let (daemon, key) = (Arc::clone(self), client.key);
        let attempt: Attempt<Stream> =
            Arc::new(move |address, deadline| daemon.reach(address, deadline, key));
        first_to_answer(&client.to_try(), Instant::now() + CALL_WITHIN, &attempt)
    }

    fn call(self: &Arc<Daemon>, count: u32) {
        for _ in 0..(count as usize).min(MAXIMUM_CALLS) {
            let daemon = Arc::clone(self);
            // Without a thread the client asks again.
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
                    self.receive_hello(stream, Visitor::stranger(address.to_string()));
                }
                Err(_) => client.note(None),
            }
        }
        client.calls.fetch_sub(1, Ordering::Relaxed);
    }

    /// Connects, and has whoever is there prove that he is the client.
    fn reach(
        &self,
        address: SocketAddr,
        deadline: Instant,
        key: Fingerprint,
    ) -> Result<Stream, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let socket = tcp::connect(&HostPort::from(address), left, &TcpOptions::default());
        let socket = socket.map_err(|error| match error {
            ConnectError::Refused { cause, .. } => cause.to_string(),
            other => other.to_string(),
        })?;
        let stream = self.tls.accept(socket).map_err(|error| error.to_string())?;
        match stream.handle.peer_fingerprint() == Some(key) {
            true => Ok(stream),
            false => Err("somebody else answered".to_owned()),
        }
    }

    /// Takes further channels: processes of the same user that carry one each.
    pub fn accept_channels(self: &Arc<Daemon>, listener: UnixListener) -> std::io::Result<()> {
        let daemon = Arc::clone(self);
        let thread = std::thread::Builder::new().name("channels".into());
        let accept = move || {
            for channel in listener.incoming().flatten() {
                let daemon = Arc::clone(&daemon);
                // Without a thread the channel closes, and the client hears it.
                let _ = std::thread::Builder::new()
                    .name("channel".into())
                    .spawn(move || daemon.serve_further_channel(channel));
            }
        };
        thread.spawn(accept).map(drop)
    }

    /// Others on this host may see the listener: they are not let in, and had
    /// no session's secret.
    fn serve_further_channel(self: &Arc<Daemon>, channel: UnixStream) {
        let own = rustix::process::geteuid();
        let peer = rustix::net::sockopt::socket_peercred(&channel);
        if peer.is_ok_and(|peer| peer.uid == own) {
            let stream = clear::over_local(channel, PROTECTION);
            self.receive_hello(stream, Visitor::stranger("a further channel".to_owned()));
        }
    }
}
