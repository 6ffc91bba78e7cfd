//! TCP connections that the remote end opens to this end, used if its own ports cannot be reached.
//! This end acts as the TLS client on them and accepts only a peer with the key that was received
//! over the SSH channel. A stranger occupies one thread for the duration of a handshake.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_net::Stream;
use longhaul_net::gate::{self, Gate, GateLimits};
use longhaul_net::tcp::{self, HostPort, TcpOptions};
use longhaul_net::tls::TlsClient;

/// Maximum number of accepted streams that wait to be taken. An honest peer never opens more.
const MAXIMUM_WAITING: usize = 64;

/// Listener for connections from the remote end.
pub struct Callbacks {
    listener: TcpListener,
    port: u16,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    streams: VecDeque<Stream>,
    closed: bool,
}

impl Callbacks {
    /// Creates the queue. Connections are accepted only after [`Callbacks::accept`] is called.
    pub fn new(listener: TcpListener) -> io::Result<Arc<Callbacks>> {
        let port = listener.local_addr()?.port();
        Ok(Arc::new(Callbacks {
            listener,
            port,
            waiting: Mutex::default(),
            arrived: Condvar::new(),
        }))
    }

    /// Returns the TCP port of the listener.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Limits the TCP segments of connections accepted from now on to `bytes` bytes.
    pub fn limit_segments(&self, bytes: u32) {
        tcp::limit_segments(&self.listener, bytes);
    }

    /// Starts a thread that accepts connections from the peer with the expected key.
    pub fn accept(self: &Arc<Callbacks>, tls: TlsClient, tcp: TcpOptions) -> io::Result<()> {
        let callbacks = Arc::clone(self);
        let thread = std::thread::Builder::new().name("callbacks".into());
        thread
            .spawn(move || callbacks.accept_all(&tls, &tcp))
            .map(drop)
    }

    fn accept_all(self: &Arc<Callbacks>, tls: &TlsClient, tcp: &TcpOptions) {
        let gate = Gate::new(GateLimits::default());
        for accepted in self.listener.incoming() {
            if self.lock().closed {
                return;
            }
            let Some(socket) = gate::or_pause(accepted) else {
                continue;
            };
            let Ok(peer) = socket.peer_addr() else {
                continue;
            };
            let Ok(ticket) = gate.admit(peer.ip(), &socket) else {
                continue;
            };
            if tcp::prepare(&socket, tcp).is_err() {
                continue;
            }
            let (callbacks, tls) = (Arc::clone(self), tls.clone());
            // If no thread can be started, the remote end tries again.
            let _ = std::thread::Builder::new()
                .name("callback".into())
                .spawn(move || {
                    let _ticket = ticket;
                    if let Ok(stream) = tls.handshake(socket, &HostPort::from(peer)) {
                        callbacks.add(stream);
                    }
                });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, stream: Stream) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        waiting.streams.push_back(stream);
        // The oldest stream is the most likely to be dead.
        if waiting.streams.len() > MAXIMUM_WAITING {
            waiting.streams.pop_front();
        }
        self.arrived.notify_one();
    }

    /// Returns the next stream that the remote end opened, or `None` after `patience` or after
    /// [`Callbacks::close`].
    pub fn take(&self, patience: Duration) -> Option<Stream> {
        let until = Instant::now() + patience;
        let mut waiting = self.lock();
        loop {
            if let Some(stream) = waiting.streams.pop_front() {
                return Some(stream);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || waiting.closed {
                return None;
            }
            let waited = self.arrived.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Stops accepting and closes all waiting streams.
    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.streams.clear();
        self.arrived.notify_all();
        // Wakes the accepting thread. On systems where shutdown does not wake it, the thread lasts
        // until the process exits.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}
