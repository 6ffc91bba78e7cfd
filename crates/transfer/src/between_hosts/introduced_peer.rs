//! Connects a job to its other end, which the client introduced. The client passed the keys and
//! addresses of both ends over its own channels.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_engine::session::{DialError, Dialer, Transfer};
use longhaul_model::control::start::BlockSize;
use longhaul_net::candidates::login_ends_processes;
use longhaul_net::gate;
use longhaul_net::identity::{Fingerprint, Identity};
use longhaul_net::tcp::{HostPort, TcpOptions};
use longhaul_net::tls::{TlsClient, TlsOptions};
use longhaul_net::trust::ServerTrust;
use longhaul_net::{Stream, clear};
use longhaul_proto::handshake::{Credential, Join, Request};
use longhaul_proto::session::StreamId;

use longhaul_units::ByteCount;

use super::follower::is_own;
use super::job_protocol::Reach;
use crate::client::ahead::Ahead;
use crate::client::connection::{ASSUMED_RTT, Connected, Opened, buffer_by_hand, open_over};
use crate::client::retry::Attempts;
use crate::settings::ConnectionSettings;
use crate::ssh::PROTECTION;
use crate::ssh::callbacks::Callbacks;
use crate::ssh::direct::{Direct, Way};
use crate::ssh::greeting::Greeting;
use crate::ssh::remote_end::join_with;
use crate::ssh::route::{Between, Route};
use crate::stop::{Exit, Stop};

/// Time limit for the first direct stream, in addition to the pauses of [`crate::ssh::direct`]. It
/// is longer than the other end's limit, so that the other end's reasons arrive too.
const LOOK_FOR: Duration = Duration::from_secs(10);

/// Maximum number of channels that wait to be used.
const MAXIMUM_CHANNELS: usize = 16;

/// Maximum number of reasons in an error message.
const SHOWN_REASONS: usize = 4;

/// The identities of the two ends, and the way between them.
pub struct Introduction {
    /// Identity of this end.
    pub identity: Identity,
    /// Name that the user gave to this end.
    pub name: String,
    /// Greeting of the other end, as the client passed it on.
    pub other: Greeting,
    /// Way to the other end.
    pub reach: Reach,
    /// Listener for direct connections from the other end.
    pub listener: Option<TcpListener>,
    /// Listener for channels that are carried through another host.
    pub channels: Option<UnixListener>,
    /// The address of the other end to use; `None`: the first one that answers.
    pub address: Option<SocketAddr>,
}

/// The other end, as the command names it.
pub struct Called {
    /// Name that the user gave to the other end.
    pub name: String,
    /// Principal as which this end authenticates, if it has a name.
    pub principal: Option<String>,
    /// Address of the other end, if it is a daemon.
    pub daemon: Option<HostPort>,
}

/// The other end of a job, over SSH or through another host.
pub struct IntroducedPeer {
    other: Greeting,
    called: Called,
    /// Name that the user gave to this end.
    own: String,
    timeout: Duration,
    way: Ways,
}

/// The ways to open streams.
enum Ways {
    Direct(Arc<Direct>, Option<Arc<Callbacks>>),
    Through(Channels),
}

/// Channels that are carried through another host.
struct Channels {
    carried: Mutex<Receiver<UnixStream>>,
    /// TLS client and daemon, if the channels lead to a daemon. The host that carries them sees
    /// only TLS.
    within: Option<(TlsClient, HostPort)>,
}

impl Channels {
    /// Returns the next channel that was not closed while it waited.
    fn socket(&self, until: Instant) -> Result<UnixStream, DialError> {
        const NONE: &str = "no channel comes through the host that started this";
        let carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Threads may have waited for the lock for part of the time.
            let left = until.saturating_duration_since(Instant::now());
            match carried.recv_timeout(left) {
                Ok(socket) if has_ended(&socket) => {}
                Ok(socket) => return Ok(socket),
                // A lost channel is replaced, but this may take longer than the time limit.
                Err(RecvTimeoutError::Timeout) => return Err(DialError::Network(NONE.to_owned())),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(DialError::Refused(NONE.to_owned()));
                }
            }
        }
    }

    /// Opens a stream over the next channel.
    fn stream(&self, patience: Duration) -> Result<Stream, DialError> {
        let socket = self.socket(Instant::now() + patience)?;
        match &self.within {
            None => Ok(clear::over_local(socket, PROTECTION)),
            Some((tls, daemon)) => tls
                .handshake_over(socket, daemon, patience)
                .map_err(|error| DialError::Network(error.to_string())),
        }
    }
}

/// True if the other end closed the socket.
fn has_ended(socket: &UnixStream) -> bool {
    use rustix::net::{RecvFlags, recv};
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(recv(socket, &mut [0_u8; 1][..], flags), Ok((_, 0)))
}

impl IntroducedPeer {
    /// Prepares the connection to the other end, without opening it.
    ///
    /// # Errors
    ///
    /// Fails if the introduction is invalid or the system cannot start a thread.
    pub fn new(
        introduction: Introduction,
        called: Called,
        arguments: &ConnectionSettings,
    ) -> Result<IntroducedPeer, Stop> {
        let timeout = arguments.timeout;
        let Introduction {
            identity,
            name: own,
            other,
            reach,
            listener,
            channels,
            address: _,
        } = introduction;
        let key: Fingerprint = other
            .key
            .parse()
            .map_err(|error| Stop::because(Exit::Connection, error))?;
        let local = |error: std::io::Error| Stop::because(Exit::Local, error);
        let way = match reach {
            Reach::Through | Reach::Sealed => {
                let carried = channels
                    .ok_or_else(|| Stop::new(Exit::Local, "this host takes no channels"))
                    .and_then(|channels| take_channels(channels).map_err(local))?;
                let within = called.daemon.clone().map(|daemon| {
                    let trust = ServerTrust::Fingerprint(key);
                    let tls = TlsClient::new(trust, Some(identity), TlsOptions::default());
                    (tls, daemon)
                });
                Ways::Through(Channels {
                    carried: Mutex::new(carried),
                    within,
                })
            }
            Reach::Direct | Reach::Daemon => {
                let buffer = buffer_by_hand(arguments.buffer.map(ByteCount));
                let tcp = TcpOptions {
                    user_timeout: timeout,
                    send_buffer: buffer,
                    receive_buffer: buffer,
                    multipath: arguments.mptcp,
                    ..TcpOptions::default()
                };
                let trust = ServerTrust::Fingerprint(key);
                let tls = TlsClient::new(trust, Some(identity), TlsOptions::default());
                let callbacks = listener.and_then(|listener| Callbacks::new(listener).ok());
                let callbacks =
                    callbacks.filter(|callbacks| callbacks.accept(tls.clone(), tcp).is_ok());
                let rtt = LOOK_FOR / crate::ssh::direct::ROUND_TRIPS;
                let direct =
                    Direct::new(tls, (tcp, &[]), None, other.clone(), callbacks.clone(), rtt);
                Ways::Direct(Arc::new(direct), callbacks)
            }
        };
        Ok(IntroducedPeer {
            other,
            called,
            own,
            timeout,
            way,
        })
    }

    /// Opens the first stream, from whichever end can connect.
    ///
    /// # Errors
    ///
    /// Fails if neither end can connect.
    pub fn connect(&self, blocks: BlockSize) -> Result<Connected, Stop> {
        let stream = match &self.way {
            Ways::Direct(direct, _) => direct.begin().map_err(|reasons| self.apart(&reasons))?,
            Ways::Through(channels) => {
                let stream = channels.stream(self.timeout);
                stream.map_err(|error| Stop::because(Exit::Connection, error))?
            }
        };
        let info = stream.handle.tcp_info();
        let rtt = info.map(|info| info.minimum_rtt.unwrap_or(info.rtt));
        Ok(Connected {
            rtt: rtt.unwrap_or_default(),
            block_bytes: blocks.on(rtt.unwrap_or(ASSUMED_RTT)),
            stream,
            ahead: Ahead::default(),
            attempts: Attempts::begin(),
        })
    }

    /// Describes why neither end can connect to the other.
    fn apart(&self, reasons: &[(SocketAddr, String)]) -> Stop {
        let own = &self.own;
        let shown: Vec<&str> = reasons
            .iter()
            .take(SHOWN_REASONS)
            .map(|(_, reason)| reason.as_str())
            .collect();
        let shown = match (self.other.port, shown.as_slice()) {
            (None, _) => "it has no port to connect to".to_owned(),
            (Some(_), []) => "no answer from any of its addresses".to_owned(),
            (Some(_), reasons) => reasons.join("; "),
        };
        let text = format!(
            "no direct connection opens between {own} and {}: from {own} to it: {shown}; nor did \
             it connect to {own}: have one TCP port opened at either of them and name it with \
             --ports, or have the data carried through your own host with --through-local",
            self.called.name
        );
        Stop::new(Exit::Connection, text)
    }

    /// Opens a session; `first_words` are the first messages.
    ///
    /// # Errors
    ///
    /// Fails if the other end refuses the session.
    pub fn open(
        &self,
        connected: Connected,
        mut request: Request,
        first_words: &[u8],
    ) -> Result<Opened, Stop> {
        // The TLS certificate proves the identity; no token is needed.
        request.credential = Some(Credential {
            principal: self.called.principal.clone().unwrap_or_default(),
            token: None,
        });
        let host: &dyn std::fmt::Display = &self.called.name;
        open_over(connected, request, first_words, (host, self.timeout), false)
    }

    /// Returns the function that opens further streams.
    pub fn dialer(self: &Arc<IntroducedPeer>, opened: &Opened, transfer: &Arc<Transfer>) -> Dialer {
        let (welcome, peer) = (opened.welcome.clone(), Arc::clone(self));
        let transfer = Arc::downgrade(transfer);
        Arc::new(move |id: StreamId, received, patience| {
            let stream = match &peer.way {
                Ways::Direct(direct, _) => direct
                    .open(&transfer, patience, &|| false)
                    .map_err(|error| DialError::Network(error.to_string()))?,
                Ways::Through(channels) => channels.stream(patience)?,
            };
            let join = Join {
                session: welcome.session,
                secret: welcome.secret,
                stream: id.0,
                received,
            };
            join_with(stream, join, patience)
        })
    }

    /// Returns the route that the data took.
    pub fn route(&self) -> Route {
        let (way, sealed) = match &self.way {
            Ways::Direct(direct, _) => (direct.way(), false),
            Ways::Through(channels) => (Way::Unknown, channels.within.is_some()),
        };
        Route {
            way,
            between: Some(Between {
                own: self.own.clone(),
                other: self.called.name.clone(),
                sends: false,
                sealed,
            }),
            further: 0,
            refused: None,
            mortal: self.other.mortal || login_ends_processes(),
        }
    }
}

impl Drop for IntroducedPeer {
    fn drop(&mut self) {
        if let Ways::Direct(_, Some(callbacks)) = &self.way {
            callbacks.close();
        }
    }
}

/// Accepts channels from processes of the same user.
fn take_channels(listener: UnixListener) -> std::io::Result<Receiver<UnixStream>> {
    let (sender, channels) = sync_channel(MAXIMUM_CHANNELS);
    let thread = std::thread::Builder::new().name("channels".into());
    thread.spawn(move || {
        for channel in listener.incoming().filter_map(gate::or_pause) {
            // A channel above the limit is dropped, which closes it.
            if is_own(&channel) && sender.try_send(channel).is_err() {
                continue;
            }
        }
    })?;
    Ok(channels)
}
