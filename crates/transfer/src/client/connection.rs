//! Opens the authenticated first stream to a daemon's URL, and further streams.

mod listing;
mod sockets;

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use longhaul_engine::session::opening::{self, OpenError};
use longhaul_engine::session::{DialError, Dialer, Joined, Transfer};
use longhaul_model::control::start::{BlockSize, LARGEST_BLOCK_BYTES};
use longhaul_net::Stream;
use longhaul_net::clear;
use longhaul_net::identity::{Fingerprint, Identity, IdentityError};
use longhaul_net::multipath;
use longhaul_net::tcp::{self, HostPort, TcpOptions};
use longhaul_net::tcp_info::TcpInfo;
use longhaul_net::tls::{TlsClient, TlsError, TlsOptions};
use longhaul_net::token::fill_random;
use longhaul_net::trust::ServerTrust;
use longhaul_proto::allowed::Allowed;
use longhaul_proto::coding::Compression;
use longhaul_proto::handshake::{
    ControlRequest, Credential, Join, Refusal, Request, Secret, SessionId, Task, Vouch, Welcome,
};
use longhaul_proto::listing::{ListRequest, Listed};
use longhaul_proto::session::StreamId;
use longhaul_units::ByteCount;

pub use self::listing::list_over;
use self::listing::{ListStop, try_list};
use self::sockets::bound_tcp;
pub use self::sockets::{SmallSegments, buffer_by_hand, check_bind, single_path};
use super::ahead::{Ahead, Plan, StreamsFor};
use super::credentials::{credential, trust};
use super::retry::{Attempts, PLACE_FREE_WITHIN, Tries, is_busy, is_turned_out};
use crate::between_hosts::introduced_peer::Introduction;
use crate::console::say;
use crate::endpoint::{Host, Remote};
use crate::settings::ConnectionSettings;
use crate::ssh::direct::Way;
use crate::ssh::route::{Between, Route};
use crate::stop::{Exit, Stop};

// tidy: long file because it is the way from a URL to one authenticated stream.

/// Maximum time for a daemon to test whether it reaches another one: 10 seconds each for the name
/// lookup, the connection and TLS.
const REACHES_WITHIN: Duration = Duration::from_secs(30);

/// A daemon and the settings to connect to it.
pub struct Daemon {
    host: HostPort,
    /// Address to use. `None` uses the one that answers first.
    address: Option<SocketAddr>,
    tls: TlsClient,
    credential: Option<Credential>,
    timeout: Duration,
    tcp: TcpOptions,
    bind: Vec<IpAddr>,
    /// Segment size limit of connections, set if the path loses large packets.
    small: Arc<SmallSegments>,
    /// Set if this end is also remote.
    between: Option<Between>,
}

/// Round trip assumed before the first measurement. Its block size suits a long path and is only
/// slightly worse for a short one.
pub const ASSUMED_RTT: Duration = Duration::from_millis(100);

/// Returns the block size if neither it nor the memory is set.
pub fn usual_blocks() -> BlockSize {
    BlockSize::Free {
        memory: ByteCount(128 << 20),
        most: LARGEST_BLOCK_BYTES,
    }
}

/// A connected stream before its first request.
pub struct Connected {
    /// The stream.
    pub stream: Stream,
    /// Round trip of the handshake.
    pub rtt: Duration,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Further connections that were started early.
    pub ahead: Ahead,
    /// Times at which this end connected for its request.
    pub attempts: Attempts,
}

/// A stream that opened a session.
pub struct Opened {
    /// The stream.
    pub stream: Stream,
    /// Answer of the daemon.
    pub welcome: Welcome,
    /// Round trip of the handshake.
    pub rtt: Duration,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// True if the stream should be replaced by better ones.
    pub bootstrap: bool,
    /// Further connections that were started early.
    pub ahead: Ahead,
}

impl Daemon {
    /// Reads the credentials and settings for a daemon without connecting.
    pub fn new(remote: &Remote, arguments: &ConnectionSettings) -> Result<Daemon, Stop> {
        let identity = match (&arguments.certificate, &arguments.key) {
            (Some(certificate), Some(key)) => {
                Some(Identity::from_pem_files(certificate, key).map_err(|error| {
                    let exit = match error {
                        IdentityError::NotValid { .. } => Exit::Authentication,
                        _ => Exit::Usage,
                    };
                    Stop::because(exit, error)
                })?)
            }
            _ => None,
        };
        let credential = credential(remote, arguments, identity.is_some())?;
        check_bind(arguments)?;
        let tls = TlsClient::new(trust(arguments)?, identity, TlsOptions::default());
        Ok(Daemon {
            bind: arguments.bind.clone(),
            ..Daemon::of(remote, arguments, tls, credential)
        })
    }

    fn of(
        remote: &Remote,
        arguments: &ConnectionSettings,
        tls: TlsClient,
        credential: Option<Credential>,
    ) -> Daemon {
        let buffer = buffer_by_hand(arguments.buffer.map(ByteCount));
        Daemon {
            host: remote.host.clone(),
            address: None,
            tls,
            credential,
            timeout: arguments.timeout,
            tcp: TcpOptions {
                user_timeout: arguments.timeout,
                send_buffer: buffer,
                receive_buffer: buffer,
                multipath: arguments.mptcp,
                ..TcpOptions::default()
            },
            bind: Vec::new(),
            small: Arc::default(),
            between: None,
        }
    }

    /// Creates a daemon whose key is known and that has received this end's key.
    pub fn introduced(
        remote: &Remote,
        arguments: &ConnectionSettings,
        introduction: Introduction,
    ) -> Result<Daemon, Stop> {
        let key = introduction.other.key.parse();
        let key = key.map_err(|error| Stop::because(Exit::Connection, error))?;
        let trust = ServerTrust::Fingerprint(key);
        let tls = TlsClient::new(trust, Some(introduction.identity), TlsOptions::default());
        let credential = Credential {
            principal: remote.principal.clone().unwrap_or_default(),
            token: None,
        };
        Ok(Daemon {
            address: introduction.address,
            between: Some(Between {
                own: introduction.name,
                other: remote.place(),
                sends: false,
                sealed: false,
            }),
            ..Daemon::of(remote, arguments, tls, Some(credential))
        })
    }

    /// Connects and authenticates the daemon before any request. Also measures the round trip,
    /// which sets the block size unless it is fixed. Starts further connections, as many as
    /// `streams` returns. `None` defers them until they are dialed.
    pub fn connect(
        &self,
        blocks: BlockSize,
        streams: Option<StreamsFor>,
    ) -> Result<Connected, Stop> {
        let ahead = Ahead::default();
        let streams = Cell::new(streams);
        let attempts = Cell::new(None);
        let connected = |socket: &TcpStream| {
            attempts.set(Some(
                attempts.get().map_or_else(Attempts::begin, Attempts::again),
            ));
            if let Some(streams) = streams.take() {
                let tcp = self.tcp_as(multipath::is_multipath(socket));
                ahead.begin(socket, self.plan_ahead(streams, tcp));
            }
        };
        let stream = self.first_stream_noting(&connected);
        let stream = stream.inspect_err(|_| ahead.close())?;
        if self.tcp.multipath && !stream.handle.is_multipath() {
            say(&single_path(&self.host));
        }
        if let Some(key) = stream.handle.peer_fingerprint() {
            ahead.trust(self.tls.pinned(key));
        }
        let info = stream.handle.tcp_info();
        let rtt = info.map_or(ASSUMED_RTT, |info| info.minimum_rtt.unwrap_or(info.rtt));
        let block_bytes = blocks.on(rtt);
        Ok(Connected {
            stream,
            rtt,
            block_bytes,
            ahead,
            attempts: attempts.get().unwrap_or_else(Attempts::begin),
        })
    }

    fn plan_ahead(&self, streams: StreamsFor, tcp: TcpOptions) -> Plan {
        let bind = self.bind.clone();
        Plan {
            host: self.host.clone(),
            target: self.target(),
            timeout: self.timeout,
            tcp: Box::new(move |stream| bound_tcp(&tcp, &bind, stream)),
            streams,
        }
    }

    /// Returns the TCP options for further streams. They request multipath only if the first stream
    /// uses it.
    fn tcp_as(&self, multipath: bool) -> TcpOptions {
        TcpOptions {
            multipath: self.tcp.multipath && multipath,
            ..self.tcp
        }
    }

    /// Returns the connection target: the host or one of its addresses.
    fn target(&self) -> HostPort {
        self.address
            .map_or_else(|| self.host.clone(), HostPort::from)
    }

    /// Returns the principal of this end; empty if its certificate determines it.
    pub fn principal(&self) -> &str {
        let credential = self.credential.as_ref();
        credential.map_or("", |credential| credential.principal.as_str())
    }

    /// Opens a session. `first_words` holds the first messages, sent with the request. Retries
    /// while the daemon is busy, until the timeout. Such a request keeps its place among the runs
    /// of its transfer.
    pub fn open(
        &self,
        mut connected: Connected,
        request: Request,
        first_words: &[u8],
    ) -> Result<Opened, Stop> {
        let mut tries = Tries::within(self.timeout);
        let key = connected.stream.handle.peer_fingerprint();
        let tls = key.map_or_else(|| self.tls.clone(), |key| self.tls.pinned(key));
        loop {
            let (rtt, block_bytes) = (connected.rtt, connected.block_bytes);
            let attempts = Cell::new(connected.attempts);
            let opened = self.try_open(connected, request.clone(), first_words)?;
            let error = match opened {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            let told = format!("{}: {error}", self.host);
            let smaller = matches!(error, OpenError::LargePackets) && self.small.shrink();
            if !smaller && !is_busy(&error) || !tries.go_on(&told) {
                return Err(open_stop(&self.host, &error));
            }
            let again = |_: &TcpStream| attempts.set(attempts.get().again());
            let stream = loop {
                match self.first_stream_as(&tls, &again) {
                    Ok(stream) => break stream,
                    // A busy daemon may be restarting.
                    Err(stop) if stop.may_pass() && tries.go_on(&stop) => {}
                    Err(stop) => return Err(stop),
                }
            };
            connected = Connected {
                stream,
                rtt,
                block_bytes,
                ahead: Ahead::default(),
                attempts: attempts.get(),
            };
        }
    }

    /// Tries once to open a session. The inner error is the daemon's reason to refuse.
    pub fn try_open(
        &self,
        connected: Connected,
        mut request: Request,
        first_words: &[u8],
    ) -> Result<Result<Opened, OpenError>, Stop> {
        let Connected {
            mut stream,
            rtt,
            block_bytes,
            ahead,
            attempts,
        } = connected;
        request.waited_milliseconds = attempts.waited_milliseconds();
        request.credential = self.credential.clone();
        request.block_bytes = block_bytes;
        let asked_clear = request.is_clear();
        let needed = request.options.compression.and_then(Compression::needed);
        let welcome = match opening::open(&mut stream, request, first_words, self.timeout) {
            Ok(welcome) => welcome,
            Err(error) => {
                ahead.close();
                return Ok(Err(error));
            }
        };
        if needed.is_some_and(|needed| !welcome.capabilities.contains(&needed)) {
            let text = format!(
                "{}: the daemon ({}) was built without the codec of --compress: leave the option \
                 out",
                self.host, welcome.software
            );
            return Err(Stop::new(Exit::Connection, text));
        }
        check_clear(asked_clear, welcome.clear)?;
        Ok(Ok(Opened {
            stream,
            welcome,
            rtt,
            block_bytes,
            bootstrap: false,
            ahead,
        }))
    }

    /// Calls `tell` for each entry at a remote path as it arrives.
    pub fn list(
        &self,
        mut request: ListRequest,
        tell: &mut dyn FnMut(Listed) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        request.credential = self.credential.clone();
        let mut tries = Tries::within(self.timeout);
        loop {
            let mut stream = self.first_stream()?;
            let listed = try_list(&mut stream, request.clone(), self.timeout, tell);
            match listed {
                Err(ListStop::Open(error)) if is_busy(&error) => {
                    let told = format!("{}: {error}", self.host);
                    if !tries.go_on(&told) {
                        return Err(open_stop(&self.host, &error));
                    }
                }
                listed => return listed.map_err(|stop| stop.of(&self.host)),
            }
        }
    }

    /// Asks the daemon to accept another host, identified by its key, for one session. Returns the
    /// daemon's key.
    pub fn vouch(&self, key: [u8; 32], allowed: Allowed) -> Result<Fingerprint, Stop> {
        let mut stream = self.first_stream()?;
        let own = stream.handle.peer_fingerprint();
        let own = own.ok_or_else(|| {
            let text = format!("{}: the daemon has shown no key", self.host);
            Stop::new(Exit::Authentication, text)
        })?;
        let vouch = Vouch {
            credential: self.credential.clone(),
            key,
            allowed: Some(allowed),
        };
        opening::vouch(&mut stream, vouch, self.timeout)
            .map_err(|error| open_stop(&self.host, &error))?;
        Ok(own)
    }

    /// Returns the key that the daemon presents. `untrusted` formats the error if it is not
    /// trusted.
    pub fn key(&self, untrusted: impl Fn(&TlsError) -> String) -> Result<Fingerprint, Stop> {
        let stream = self.connected(&self.tls, &|_| {});
        let stream = stream.map_err(|error| Stop::new(exit_of(&error), untrusted(&error)))?;
        let key = stream.handle.peer_fingerprint();
        key.ok_or_else(|| {
            let text = format!("{}: the daemon has shown no key", self.host);
            Stop::new(Exit::Authentication, text)
        })
    }

    /// Sends a request that needs no session. Returns its stream, or the daemon's reason to refuse.
    pub fn control_request(&self, what: Task) -> Result<Result<Stream, OpenError>, Stop> {
        let mut stream = self.first_stream()?;
        let control_request = ControlRequest {
            credential: self.credential.clone(),
            what,
        };
        // The daemon may try to connect to another host before it answers.
        let patience = match control_request.what {
            Task::Reach(_) => self.timeout.max(REACHES_WITHIN),
            Task::Drive | Task::DriveThrough | Task::Attach(_) | Task::Channel(_) | Task::Jobs => {
                self.timeout
            }
        };
        let asked = opening::control_request(&mut stream, control_request, patience);
        Ok(asked.map(|()| stream))
    }

    /// Returns the route of a session's data if this end is also remote.
    pub fn route(&self, dialled: Option<SocketAddr>) -> Option<Route> {
        let between = Some(self.between.clone()?);
        Some(Route {
            way: dialled.map_or(Way::Unknown, Way::Outward),
            between,
            further: 0,
            refused: None,
            mortal: false,
        })
    }

    /// Opens a first stream. May ask the user to confirm the daemon's key.
    pub fn first_stream(&self) -> Result<Stream, Stop> {
        self.first_stream_noting(&|_| {})
    }

    /// Opens a first stream. `connected` receives the socket before any data is sent on it.
    fn first_stream_noting(&self, connected: &dyn Fn(&TcpStream)) -> Result<Stream, Stop> {
        self.first_stream_as(&self.tls, connected)
    }

    /// Opens a first stream with the given TLS client.
    fn first_stream_as(
        &self,
        tls: &TlsClient,
        connected: &dyn Fn(&TcpStream),
    ) -> Result<Stream, Stop> {
        let stream = self.connected(tls, connected);
        stream.map_err(|error| Stop::new(exit_of(&error), error.to_string()))
    }

    /// Connects, and retries if the daemon closes the connection because it has too many
    /// unauthenticated ones.
    fn connected(
        &self,
        tls: &TlsClient,
        connected: &dyn Fn(&TcpStream),
    ) -> Result<Stream, TlsError> {
        let mut tries = Tries::within(self.timeout.min(PLACE_FREE_WITHIN));
        loop {
            match self.connected_once(tls, connected) {
                Err(error) if is_turned_out(&error) && tries.go_on(&error) => {}
                stream => return stream,
            }
        }
    }

    fn connected_once(
        &self,
        tls: &TlsClient,
        connected: &dyn Fn(&TcpStream),
    ) -> Result<Stream, TlsError> {
        let tcp = self.tcp_of(0);
        match self.address {
            None => tls.connect_noting(&self.host, self.timeout, &tcp, connected),
            Some(address) => tcp::connect(&HostPort::from(address), self.timeout, &tcp)
                .inspect(connected)
                .map_err(TlsError::from)
                .and_then(|socket| tls.handshake(socket, &self.host)),
        }
    }

    /// Tests whether a stream opens within `patience`.
    pub fn try_stream(&self, patience: Duration) -> Result<(), TlsError> {
        let target = self
            .address
            .map_or_else(|| self.host.clone(), HostPort::from);
        let socket = tcp::connect(&target, patience, &self.tcp_of(0)).map_err(TlsError::from)?;
        self.tls.handshake(socket, &self.host).map(drop)
    }

    /// Returns the same daemon, identified by its key, limited to one of its addresses and one
    /// local address.
    pub fn at(
        &self,
        key: Option<Fingerprint>,
        address: SocketAddr,
        local: Option<IpAddr>,
    ) -> Daemon {
        Daemon {
            host: self.host.clone(),
            address: Some(address),
            tls: key.map_or_else(|| self.tls.clone(), |key| self.tls.pinned(key)),
            credential: self.credential.clone(),
            timeout: self.timeout,
            tcp: self.tcp,
            bind: local.into_iter().collect(),
            small: Arc::clone(&self.small),
            between: None,
        }
    }

    /// Resolves the daemon's host name.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, Stop> {
        tcp::addresses_of(&self.host).map_err(|error| Stop::because(Exit::Connection, error))
    }

    /// Returns the local addresses that the user set for connections.
    pub fn local_addresses(&self) -> &[IpAddr] {
        &self.bind
    }

    /// Connects without sending data. Returns the kernel's information on the path after the first
    /// round trip.
    pub fn ping(&self) -> Result<TcpInfo, Stop> {
        TcpInfo::of(&self.dial()?).map_err(|error| Stop::because(Exit::Local, error))
    }

    /// Connects without sending data.
    pub fn dial(&self) -> Result<TcpStream, Stop> {
        let socket = tcp::connect(&self.target(), self.timeout, &self.tcp_of(0));
        socket.map_err(|error| Stop::because(Exit::Connection, error))
    }

    fn tcp_of(&self, stream: u32) -> TcpOptions {
        TcpOptions {
            segment: self.small.known(),
            ..bound_tcp(&self.tcp, &self.bind, stream)
        }
    }

    /// Returns a function that opens further streams to the same key as the first one.
    pub fn dialer(&self, opened: &Opened, transfer: &Arc<Transfer>) -> Dialer {
        let tls = match opened.stream.handle.peer_fingerprint() {
            Some(key) => self.tls.pinned(key),
            None => self.tls.clone(),
        };
        let further = Further {
            host: self.host.clone(),
            target: self.target(),
            tls,
            timeout: self.timeout,
            tcp: self.tcp_as(opened.stream.handle.is_multipath()),
            bind: self.bind.clone(),
            session: opened.welcome.session,
            secret: opened.welcome.secret,
            clear: opened.welcome.clear,
            ahead: opened.ahead.clone(),
            small: Arc::clone(&self.small),
        };
        let transfer = Arc::downgrade(transfer);
        Arc::new(move |id, received, patience| {
            // Clear blocks still require a TLS stream for messages.
            let messages = transfer
                .upgrade()
                .is_some_and(|transfer| transfer.streams().has_message_stream());
            if further.clear && messages {
                further.dial_clear(id, received, patience, &transfer)
            } else {
                further.dial(id, received, patience, &transfer)
            }
        })
    }
}

impl Opened {
    /// Starts `transfer` on this stream. `dialer` opens the others.
    pub fn begin(self, transfer: &Arc<Transfer>, dialer: Dialer) -> Result<(), Stop> {
        let attached = if self.bootstrap {
            transfer.streams().attach_bootstrap(self.stream)
        } else {
            transfer
                .streams()
                .attach(self.stream, StreamId(0), false, 0)
        };
        if !attached {
            return Err(Stop::new(Exit::Local, "the session did not begin"));
        }
        let dialing = transfer.streams().keep_dialing(dialer, 1);
        dialing.map_err(|error| Stop::because(Exit::Local, error))
    }
}

/// Opens a session over a stream whose path has not been measured, and takes the round trip of the
/// answer. `first_words` holds the first messages, sent with the request. `bootstrap` is true if
/// the stream should be replaced by better ones.
pub fn open_over(
    connected: Connected,
    mut request: Request,
    first_words: &[u8],
    (host, timeout): (&dyn std::fmt::Display, Duration),
    bootstrap: bool,
) -> Result<Opened, Stop> {
    let Connected {
        mut stream,
        block_bytes,
        ahead,
        ..
    } = connected;
    request.block_bytes = block_bytes;
    let asked_clear = request.is_clear();
    let asked = Instant::now();
    let welcome = opening::open(&mut stream, request, first_words, timeout)
        .map_err(|error| open_stop(host, &error))?;
    check_clear(asked_clear, welcome.clear)?;
    Ok(Opened {
        stream,
        welcome,
        rtt: asked.elapsed(),
        block_bytes,
        bootstrap,
        ahead,
    })
}

/// Returns an error unless both ends agree on whether blocks are sent in clear.
pub fn check_clear(asked: bool, welcomed: bool) -> Result<(), Stop> {
    let text = match (asked, welcomed) {
        (true, false) => {
            "the daemon does not allow blocks in clear: start it with --allow-clear, or leave out \
             --data-security clear"
        }
        (false, true) => {
            "the daemon wants blocks in clear, for which nobody asked: do not trust it"
        }
        _ => return Ok(()),
    };
    Err(Stop::new(Exit::Authentication, text))
}

/// Returns the error for the user if a session did not open.
pub fn open_stop(host: &dyn std::fmt::Display, error: &OpenError) -> Stop {
    let exit = match error {
        // The error does not depend on the host, so its text names no host.
        OpenError::TooManyNames => return Stop::because(Exit::Usage, error),
        OpenError::Refused(refused) => match refused.refusal {
            Refusal::Credential | Refusal::Forbidden | Refusal::Clear => Exit::Authentication,
            Refusal::Malformed => Exit::Usage,
            Refusal::Path => Exit::Local,
            Refusal::Busy if refused.superseded => Exit::Superseded,
            _ => Exit::Connection,
        },
        OpenError::Io(_) | OpenError::Frame(_) | OpenError::LargePackets => Exit::Connection,
    };
    let stop = Stop::new(exit, format!("{host}: {error}"));
    match error {
        OpenError::Refused(refused) if refused.refusal == Refusal::Version => stop.that_stays(),
        _ => stop,
    }
}

/// Settings for further streams.
struct Further {
    host: HostPort,
    /// Connection target: the host or one of its addresses.
    target: HostPort,
    tls: TlsClient,
    timeout: Duration,
    tcp: TcpOptions,
    bind: Vec<IpAddr>,
    session: SessionId,
    secret: Secret,
    clear: bool,
    ahead: Ahead,
    small: Arc<SmallSegments>,
}

impl Drop for Further {
    fn drop(&mut self) {
        self.ahead.close();
    }
}

impl Further {
    fn dial(
        &self,
        id: StreamId,
        received: u64,
        patience: Duration,
        transfer: &Weak<Transfer>,
    ) -> Result<Joined, DialError> {
        let timeout = self.timeout.min(patience);
        let tcp = self.tcp_of(id, transfer);
        // Connections that were started early use the default segment size.
        let ahead = match tcp.segment {
            Some(_) => None,
            None => self.ahead.take(timeout / 2),
        };
        if let Some(stream) = ahead {
            // The daemon closes a connection that waited too long; then a new one is dialed.
            let words = self.words(id, received, self.secret);
            if let Ok(joined) = opening::join_at_once(stream, words) {
                return Ok(joined);
            }
        }
        let network = |error: TlsError| DialError::Network(error.to_string());
        let socket = tcp::connect(&self.target, timeout, &tcp).map_err(TlsError::from);
        let stream = socket
            .and_then(|socket| self.tls.handshake(socket, &self.host))
            .map_err(network)?;
        self.join(stream, id, received, self.secret, (false, timeout))
    }

    /// Opens a clear stream. It joins with a ticket that was received over TLS.
    fn dial_clear(
        &self,
        id: StreamId,
        received: u64,
        patience: Duration,
        transfer: &Weak<Transfer>,
    ) -> Result<Joined, DialError> {
        let timeout = self.timeout.min(patience);
        let tcp = self.tcp_of(id, transfer);
        let socket = tcp::connect(&self.target, timeout, &tcp);
        let socket = socket.map_err(|error| DialError::Network(error.to_string()))?;
        let stream = clear::over_tcp(socket);
        let stream = stream.map_err(|error| DialError::Network(error.to_string()))?;
        // The number of tickets is limited, so one is taken only after the connection opened.
        let ticket = transfer
            .upgrade()
            .and_then(|transfer| transfer.streams().take_ticket(timeout));
        let ticket = ticket.ok_or_else(|| DialError::Network("no ticket came".to_owned()))?;
        self.join(stream, id, received, ticket, (true, timeout))
    }

    fn tcp_of(&self, id: StreamId, transfer: &Weak<Transfer>) -> TcpOptions {
        TcpOptions {
            segment: self.small.limit(transfer),
            ..bound_tcp(&self.tcp, &self.bind, id.0)
        }
    }

    fn words(&self, id: StreamId, received: u64, secret: Secret) -> Join {
        Join {
            session: self.session,
            secret,
            stream: id.0,
            received,
        }
    }

    fn join(
        &self,
        mut stream: Stream,
        id: StreamId,
        received: u64,
        secret: Secret,
        (clear, timeout): (bool, Duration),
    ) -> Result<Joined, DialError> {
        match opening::join(&mut stream, self.words(id, received, secret), timeout) {
            Ok(joined) => Ok(Joined {
                stream,
                clear,
                received: joined.received,
            }),
            Err(OpenError::Refused(refused)) => Err(DialError::Refused(refused.text)),
            Err(error) => Err(DialError::Network(error.to_string())),
        }
    }
}

/// Returns the key that authenticates block headers, if clear streams were requested.
///
/// # Errors
///
/// The system provides no random numbers.
pub fn block_key(clear: bool) -> Result<Option<Secret>, Stop> {
    let mut key = [0; 32];
    if !clear {
        Ok(None)
    } else {
        match fill_random(&mut key) {
            Ok(()) => Ok(Some(Secret(key))),
            Err(error) => Err(Stop::new(Exit::Local, error.to_string())),
        }
    }
}

fn exit_of(error: &TlsError) -> Exit {
    match error {
        TlsError::Trust(_) | TlsError::Refused { .. } => Exit::Authentication,
        _ => Exit::Connection,
    }
}
