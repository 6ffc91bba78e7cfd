//! From a daemon's URL to an authenticated stream, and the dialer of further
//! ones.

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
use crate::console::say;
use crate::endpoint::{Endpoint, Remote};
use crate::settings::ConnectionSettings;
use crate::ssh::direct::Way;
use crate::ssh::route::{Between, Route};
use crate::stop::{Exit, Stop};
use crate::third_party::introduced_peer::Introduction;

// tidy: long file because it is the way from a URL to one authenticated stream.

/// How long a daemon may take to find out whether it reaches another one: to
/// look for its address, to connect and to begin TLS, 10 seconds each.
const REACHES_WITHIN: Duration = Duration::from_secs(30);

/// A daemon and how it is reached.
pub struct Daemon {
    host: HostPort,
    /// The one of its addresses that is used; none for whichever answers first.
    address: Option<SocketAddr>,
    tls: TlsClient,
    credential: Option<Credential>,
    timeout: Duration,
    tcp: TcpOptions,
    bind: Vec<IpAddr>,
    /// The segments of connections, where the path loses large packets.
    small: Arc<SmallSegments>,
    /// This end is remote as well.
    between: Option<Between>,
}

/// Round trip that is assumed until one was measured: blocks are then right
/// for a long path, and little worse for a short one.
pub const ASSUMED_RTT: Duration = Duration::from_millis(100);

/// How large blocks are where nobody says, nor how much memory is for them.
pub fn usual_blocks() -> BlockSize {
    BlockSize::Free {
        memory: ByteCount(128 << 20),
        most: LARGEST_BLOCK_BYTES,
    }
}

/// A stream to a daemon that was asked for nothing yet.
pub struct Connected {
    /// The stream.
    pub stream: Stream,
    /// Round trip of the handshake.
    pub rtt: Duration,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// What was begun for further streams.
    pub ahead: Ahead,
    /// When this end connected to ask.
    pub attempts: Attempts,
}

/// A stream that opened a session.
pub struct Opened {
    /// The stream.
    pub stream: Stream,
    /// What the daemon answered.
    pub welcome: Welcome,
    /// Round trip of the handshake.
    pub rtt: Duration,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// The stream is to be left for better ones.
    pub bootstrap: bool,
    /// What was begun for further streams.
    pub ahead: Ahead,
}

impl Daemon {
    /// Reads what is needed to reach a daemon, and does not reach it yet.
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

    /// One that was told this end's key, and whose own is known.
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
        let place = Endpoint::Daemon(remote.clone()).place();
        Ok(Daemon {
            address: introduction.address,
            between: Some(Between {
                own: introduction.name,
                other: place.unwrap_or_default(),
                sends: false,
                sealed: false,
            }),
            ..Daemon::of(remote, arguments, tls, Some(credential))
        })
    }

    /// Connects: who the daemon is, and how far away, is known before anything
    /// is asked for. Where the bytes of a block are not fixed, the path's round
    /// trip decides. Further streams, as many as `streams` says, are begun with
    /// it; with none they wait until they are dialed.
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

    /// Where the first stream has one path, further ones do not ask for several.
    fn tcp_as(&self, multipath: bool) -> TcpOptions {
        TcpOptions {
            multipath: self.tcp.multipath && multipath,
            ..self.tcp
        }
    }

    /// What is connected to: the host, or one of its addresses.
    fn target(&self) -> HostPort {
        self.address
            .map_or_else(|| self.host.clone(), HostPort::from)
    }

    /// As whom this end comes; empty where its certificate says it.
    pub fn principal(&self) -> &str {
        let credential = self.credential.as_ref();
        credential.map_or("", |credential| credential.principal.as_str())
    }

    /// Opens a session; `first_words` are the first messages, which go with the
    /// request. Where the daemon is busy, that is tried again until the timeout: such a
    /// request keeps its place in the order of the runs of its transfer.
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
            connected = Connected {
                stream: self.first_stream_as(&tls, &|_| attempts.set(attempts.get().again()))?,
                rtt,
                block_bytes,
                ahead: Ahead::default(),
                attempts: attempts.get(),
            };
        }
    }

    /// The same; or why the daemon opens none.
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
        let asked_clear = request.clear;
        let needed = request.needed();
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

    /// Tells what lies at a path there, as it comes.
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

    /// Has the daemon let in another host by its key, for one session; gives the daemon's own.
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

    /// The daemon's own key, as it shows it; `untrusted` says why it is not trusted.
    pub fn key(&self, untrusted: impl Fn(&TlsError) -> String) -> Result<Fingerprint, Stop> {
        let stream = self.connected(&self.tls, &|_| {});
        let stream = stream.map_err(|error| Stop::new(exit_of(&error), untrusted(&error)))?;
        let key = stream.handle.peer_fingerprint();
        key.ok_or_else(|| {
            let text = format!("{}: the daemon has shown no key", self.host);
            Stop::new(Exit::Authentication, text)
        })
    }

    /// Has the daemon do something beside any session; gives the stream of it, or
    /// why the daemon does not.
    pub fn control_request(&self, what: Task) -> Result<Result<Stream, OpenError>, Stop> {
        let mut stream = self.first_stream()?;
        let control_request = ControlRequest {
            credential: self.credential.clone(),
            what,
        };
        // It may try to connect somewhere before it answers.
        let patience = match control_request.what {
            Task::Reach(_) => self.timeout.max(REACHES_WITHIN),
            Task::Drive | Task::DriveThrough | Task::Attach(_) | Task::Channel(_) | Task::Jobs => {
                self.timeout
            }
        };
        let asked = opening::control_request(&mut stream, control_request, patience);
        Ok(asked.map(|()| stream))
    }

    /// How the data of a session went, where this end is remote as well.
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

    /// A first stream: who the daemon is may be asked of the user.
    pub fn first_stream(&self) -> Result<Stream, Stop> {
        self.first_stream_noting(&|_| {})
    }

    /// The same; `connected` sees the connection before anything is said on it.
    fn first_stream_noting(&self, connected: &dyn Fn(&TcpStream)) -> Result<Stream, Stop> {
        self.first_stream_as(&self.tls, connected)
    }

    /// The same by another trust than this one's.
    fn first_stream_as(
        &self,
        tls: &TlsClient,
        connected: &dyn Fn(&TcpStream),
    ) -> Result<Stream, Stop> {
        let stream = self.connected(tls, connected);
        stream.map_err(|error| Stop::new(exit_of(&error), error.to_string()))
    }

    /// A daemon that has no place for one more stranger closes a connection without a word.
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

    /// Whether a stream opens within a time.
    pub fn try_stream(&self, patience: Duration) -> Result<(), TlsError> {
        let target = self
            .address
            .map_or_else(|| self.host.clone(), HostPort::from);
        let socket = tcp::connect(&target, patience, &self.tcp_of(0)).map_err(TlsError::from)?;
        self.tls.handshake(socket, &self.host).map(drop)
    }

    /// The same daemon, known by the key that it has shown, at one of its
    /// addresses alone and from one of this host's.
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

    /// What the daemon's name leads to.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, Stop> {
        tcp::addresses_of(&self.host).map_err(|error| Stop::because(Exit::Connection, error))
    }

    /// Local addresses that were named, to connect from.
    pub fn local_addresses(&self) -> &[IpAddr] {
        &self.bind
    }

    /// Connects and says nothing: what the kernel knows of the path after the
    /// first round trip.
    pub fn ping(&self) -> Result<TcpInfo, Stop> {
        TcpInfo::of(&self.dial()?).map_err(|error| Stop::because(Exit::Local, error))
    }

    /// Connects and sends nothing.
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

    /// Dials further streams of a session, to the same key as the first.
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
            // With blocks in clear a stream for messages must still be there.
            let messages = transfer
                .upgrade()
                .is_some_and(|transfer| transfer.has_message_stream());
            if further.clear && messages {
                further.dial_clear(id, received, patience, &transfer)
            } else {
                further.dial(id, received, patience, &transfer)
            }
        })
    }
}

impl Opened {
    /// The stream carries `transfer` from now on, and `dialer` opens the others.
    pub fn begin(self, transfer: &Arc<Transfer>, dialer: Dialer) -> Result<(), Stop> {
        let attached = if self.bootstrap {
            transfer.attach_bootstrap(self.stream)
        } else {
            transfer.attach(self.stream, StreamId(0), false, 0)
        };
        if !attached {
            return Err(Stop::new(Exit::Local, "the session did not begin"));
        }
        let dialing = transfer.keep_dialing(dialer, 1);
        dialing.map_err(|error| Stop::because(Exit::Local, error))
    }
}

/// Opens a session with `host` over a stream whose path nobody has measured yet:
/// the answer's round trip is what is known of it. `first_words` are the first
/// messages, which go with the request; `bootstrap` says that the stream is to be
/// left for better ones.
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
    let asked_clear = request.clear;
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

/// Blocks go in clear where both ends want it, and nowhere else.
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

/// What a session that did not open means for the user.
pub fn open_stop(host: &dyn std::fmt::Display, error: &OpenError) -> Stop {
    let exit = match error {
        // It concerns no host: the words are the same on every way.
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

/// What further streams need.
struct Further {
    host: HostPort,
    /// What is connected to: the host, or one of its addresses.
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
        // What was begun ahead has segments of the usual size.
        let ahead = match tcp.segment {
            Some(_) => None,
            None => self.ahead.take(timeout / 2),
        };
        if let Some(stream) = ahead {
            // One that waited too long has been closed: another is dialed.
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

    /// A stream in clear joins with a ticket that was given within TLS.
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
        // A session has so many tickets: none is taken for what does not open.
        let ticket = transfer
            .upgrade()
            .and_then(|transfer| transfer.take_ticket(timeout));
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

/// What blocks' headers are proved with, where streams in clear are asked for.
///
/// # Errors
///
/// Where the system has no random numbers.
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
