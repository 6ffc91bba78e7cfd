//! Connections that the far side makes to this one, because its own ports cannot be reached. A
//! client is shaken hands with as with a server: only who has the key that came over the channel
//! is let in, strangers cost a thread for the handshake's time.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_net::Stream;
use longhaul_net::gate::{Gate, GateLimits};
use longhaul_net::tcp::{self, HostPort, TcpOptions};
use longhaul_net::tls::TlsClient;

/// Streams that may wait to be taken; more than that were never asked for.
const MAXIMUM_WAITING: usize = 64;

/// Listens for the far side.
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
    /// Nobody is let in before [`Callbacks::accept`].
    pub fn new(listener: TcpListener) -> io::Result<Arc<Callbacks>> {
        let port = listener.local_addr()?.port();
        Ok(Arc::new(Callbacks {
            listener,
            port,
            waiting: Mutex::default(),
            arrived: Condvar::new(),
        }))
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connections that are accepted from now on have segments of at most this many bytes.
    pub fn limit_segments(&self, bytes: u32) {
        tcp::limit_segments(&self.listener, bytes);
    }

    /// Lets in who has the key.
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
            let Ok(socket) = accepted else {
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
            // Without a thread the far side tries again.
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
        // The oldest is the likeliest to be dead.
        if waiting.streams.len() > MAXIMUM_WAITING {
            waiting.streams.pop_front();
        }
        self.arrived.notify_one();
    }

    /// The next stream that the far side opened; none in that time.
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

    /// Ends it.
    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.streams.clear();
        self.arrived.notify_all();
        // Wakes whoever accepts; where the system does not, the process's end
        // does.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}
