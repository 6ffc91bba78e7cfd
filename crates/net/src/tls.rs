//! TLS 1.3 over TCP, or over a local socket that another process carries to TCP.
//!
//! rustls does the handshake and derives keys. The records that carry data are sealed and opened
//! here with aws-lc's ciphers, directly from and into the caller's memory. A receive fills one
//! large buffer. A send encrypts into one large buffer that goes to the kernel in one call.
//!
//! - `session`: the connection's state during its handshake
//! - `handshake`: from a connected socket to its keys, within a deadline
//! - `records`: data, alerts and key updates as records
//! - `halves`: the reader and the writer
//!
//! What the reading half must answer (alerts) is sent without waiting, if
//! nobody else is sending; so two hosts whose socket buffers are full cannot
//! wait for each other's readers. Key updates are answered by the writer before
//! its next data (RFC 8446, section 4.6.3).

mod halves;
mod handshake;
mod records;
mod session;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod throughput;

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::sign::SingleCertAndKey;
use rustls::{CipherSuite, ClientConfig, ServerConfig, SupportedCipherSuite};

use super::identity::{Fingerprint, Identity};
use super::provider::provider;
use super::stream::{Socket, Stream};
use super::tcp::{self, ConnectError, HostPort, TcpOptions};
use super::tls_errors::explained;
use super::trust::{AnyClient, ServerTrust, ServerVerifier, TrustError, UnknownServer, pin};
use super::validity::Validity;

/// The name of the protocol in the handshake (ALPN), so that a connection for another protocol is
/// refused with a reason.
const PROTOCOL_NAME: &[u8] = b"longhaul/1";

/// What both ends of a stream may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// How long the handshake may take; strangers hold a connection no longer.
    /// [`TlsClient::connect`] is bounded by its own timeout instead.
    pub handshake_timeout: Duration,
    /// The most memory of each half, in bytes; rounded up to two records of 16
    /// KiB. A half takes it only when there is as much to move at once.
    pub buffer_bytes: usize,
}

impl Default for TlsOptions {
    /// Ten seconds are twenty round trips around the world. Buffers of 128 KiB
    /// to 1 MiB measured alike within the spread of a shared machine, 64 KiB on
    /// one core worse; hundreds of streams ask for a small one.
    fn default() -> Self {
        TlsOptions {
            handshake_timeout: Duration::from_secs(10),
            buffer_bytes: 256 << 10,
        }
    }
}

/// Which of both ends of a connection the other one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It connected to this one.
    Client,
    /// This one connected to it.
    Server,
}

impl End {
    /// The remedy if the other end was too slow.
    fn if_slow(self) -> &'static str {
        match self {
            End::Client => "it is not a longhaul client, or the network loses large packets (MTU)",
            End::Server => {
                "check that a longhaul daemon listens there and that the network is not losing \
                 large packets (MTU)"
            }
        }
    }

    /// Possible causes if the other end closed the connection.
    fn if_closed(self) -> &'static str {
        match self {
            End::Client => "its command was interrupted, or it is a port scan or a health check",
            End::Server => {
                "its log says why; it may have too many connections, or be no longhaul daemon"
            }
        }
    }

    /// Possible causes if the other end sent something else than TLS.
    fn if_not_tls(self) -> &'static str {
        match self {
            End::Client => {
                "it is not a longhaul client, or something on the way changes the stream"
            }
            End::Server => "check the port, and that nothing between changes the stream",
        }
    }

    /// The place to look if the other end refused.
    fn if_refused(self) -> &'static str {
        match self {
            End::Client => "the output of its command says why",
            End::Server => "its log says why",
        }
    }
}

/// No encrypted stream came about.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No connection either.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server is not the one that was meant.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// It took too long.
    #[error("{peer} did not finish the TLS handshake within {} s: {}", super::tcp::tenths(*timeout), end.if_slow())]
    Deadline {
        /// The other end.
        peer: HostPort,
        /// Which of both it is.
        end: End,
        /// How long was waited.
        timeout: Duration,
    },
    /// The other end hung up.
    #[error("{peer} closed the connection during the TLS handshake: {}", end.if_closed())]
    Closed {
        /// The other end.
        peer: HostPort,
        /// Which of both it is.
        end: End,
    },
    /// What came is not TLS.
    #[error("{peer} does not speak TLS: {}", end.if_not_tls())]
    NotTls {
        /// The other end.
        peer: HostPort,
        /// Which of both it is.
        end: End,
    },
    /// What came is an older TLS.
    #[error("{peer} does not offer TLS 1.3: use a longhaul daemon or client on both ends")]
    Version {
        /// Who.
        peer: HostPort,
    },
    /// What came is TLS for something else.
    #[error("{peer} speaks TLS but not longhaul (ALPN longhaul/1): check the port")]
    Protocol {
        /// Who.
        peer: HostPort,
    },
    /// The other end refused, as its alert says.
    #[error("{peer} refused the TLS handshake: {reason}: {}", end.if_refused())]
    Refused {
        /// The other end.
        peer: HostPort,
        /// Which of both it is.
        end: End,
        /// Its alert, in words.
        reason: String,
    },
    /// The handshake's messages are larger than any real one's.
    #[error(
        "{peer} sent a TLS handshake larger than {limit} bytes: give it a shorter certificate chain"
    )]
    TooLarge {
        /// Who.
        peer: HostPort,
        /// The limit.
        limit: usize,
    },
    /// The host's name can be no server's name.
    #[error("\"{0}\" is no host name: write a DNS name or an address")]
    Name(String),
    /// Our own certificate cannot be used, or the system has no randomness.
    #[error("TLS cannot be set up: {}: check the certificate and key", explained(.0))]
    Setup(rustls::Error),
    /// Any other breach of the protocol.
    #[error(
        "the TLS handshake with {peer} failed: {}: try again; if it stays, report it",
        explained(cause)
    )]
    Other {
        /// Who.
        peer: HostPort,
        /// How.
        cause: rustls::Error,
    },
    /// The socket failed.
    #[error("the connection to {peer} failed during the TLS handshake: {cause}: try again")]
    Io {
        /// Who.
        peer: HostPort,
        /// How.
        cause: io::Error,
    },
}

fn suite_name(suite: Option<SupportedCipherSuite>) -> &'static str {
    match suite.map(|s| s.suite()) {
        Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => "TLS 1.3, AES-128-GCM",
        Some(CipherSuite::TLS13_AES_256_GCM_SHA384) => "TLS 1.3, AES-256-GCM",
        Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => "TLS 1.3, ChaCha20-Poly1305",
        _ => "TLS 1.3",
    }
}

/// Makes streams of accepted connections.
#[derive(Clone, Debug)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    validity: Validity,
    options: TlsOptions,
}

impl TlsServer {
    /// A server with that identity. Clients are asked for a certificate and
    /// need not have one.
    ///
    /// # Errors
    ///
    /// [`TlsError::Setup`].
    pub fn new(identity: &Identity, options: TlsOptions) -> Result<TlsServer, TlsError> {
        TlsServer::with_provider(identity, options, provider())
    }

    fn with_provider(
        identity: &Identity,
        options: TlsOptions,
        provider: Arc<CryptoProvider>,
    ) -> Result<TlsServer, TlsError> {
        let verifier = AnyClient::new(&provider);
        let key = identity.certified_key().map_err(TlsError::Setup)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Setup)?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![PROTOCOL_NAME.into()];
        // Sessions are not resumed: each stream proves both ends anew.
        config.send_tls13_tickets = 0;
        // For our own record layer.
        config.enable_secret_extraction = true;
        Ok(TlsServer {
            config: Arc::new(config),
            fingerprint: identity.fingerprint(),
            validity: identity.validity(),
            options,
        })
    }

    /// The server's own fingerprint, for clients to pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The dates of its certificate.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Answers a client that was let in. Blocks for the handshake's time at
    /// most.
    ///
    /// # Errors
    ///
    /// [`TlsError`]; the connection is then closed.
    pub fn accept(&self, socket: TcpStream) -> Result<Stream, TlsError> {
        self.accept_within(socket, self.options.handshake_timeout)
    }

    /// The same for one who has only so much of that time left.
    ///
    /// # Errors
    ///
    /// As [`TlsServer::accept`].
    pub fn accept_within(&self, socket: TcpStream, left: Duration) -> Result<Stream, TlsError> {
        let connection =
            UnbufferedServerConnection::new(Arc::clone(&self.config)).map_err(TlsError::Setup)?;
        let peer = peer_of(&socket);
        let socket = Socket::Tcp(socket);
        let patience = self.options.handshake_timeout.min(left);
        let done = handshake::run(connection, &socket, Instant::now() + patience)
            .map_err(|failure| failure.explain((peer, End::Client), patience))?;
        Ok(halves::build(done, socket, self.options))
    }
}

/// Who an accepted connection comes from, for messages.
fn peer_of(socket: &TcpStream) -> HostPort {
    socket
        .peer_addr()
        .map_or_else(|_| HostPort::new("peer", 0), HostPort::from)
}

/// Makes streams to servers.
#[derive(Clone, Debug)]
pub struct TlsClient {
    trust: ServerTrust,
    identity: Option<Identity>,
    options: TlsOptions,
    provider: Arc<CryptoProvider>,
}

impl TlsClient {
    /// A client that trusts so and, where it has an identity, shows it.
    pub fn new(trust: ServerTrust, identity: Option<Identity>, options: TlsOptions) -> TlsClient {
        TlsClient {
            trust,
            identity,
            options,
            provider: provider(),
        }
    }

    /// The same client that believes one key only: for the further streams of
    /// a session, which must meet the server of the first.
    pub fn pinned(&self, server: Fingerprint) -> TlsClient {
        TlsClient {
            trust: ServerTrust::SameServer(server),
            ..self.clone()
        }
    }

    /// Connects and shakes hands, in `timeout` altogether. If the server is unknown and there is a
    /// user to ask, no connection is held open meanwhile. The second try accepts only the key that
    /// the user accepted.
    ///
    /// # Errors
    ///
    /// [`TlsError`].
    pub fn connect(
        &self,
        host: &HostPort,
        timeout: Duration,
        tcp: &TcpOptions,
    ) -> Result<Stream, TlsError> {
        self.connect_noting(host, timeout, tcp, &|_| {})
    }

    /// The same; `connected` sees the connection before anything is said on it.
    ///
    /// # Errors
    ///
    /// As [`TlsClient::connect`].
    pub fn connect_noting(
        &self,
        host: &HostPort,
        timeout: Duration,
        tcp: &TcpOptions,
        connected: &dyn Fn(&TcpStream),
    ) -> Result<Stream, TlsError> {
        let first = self.connect_once(host, timeout, tcp, connected);
        let (
            ServerTrust::KnownHosts(list),
            Err(TlsError::Trust(TrustError::Unknown { found, .. })),
        ) = (&self.trust, &first)
        else {
            return first;
        };
        let question = UnknownServer {
            host: host.clone(),
            fingerprint: *found,
        };
        match &list.ask {
            Some(ask) if ask(&question) => {
                let pinned = self.pinned(question.fingerprint);
                let stream = pinned.connect_once(host, timeout, tcp, &|_| {})?;
                pin(&list.file, host, question.fingerprint)?;
                Ok(stream)
            }
            _ => first,
        }
    }

    /// Shakes hands, as client, with the server at the other end of a
    /// connection. Blocks for the handshake's time at most; asks nobody.
    ///
    /// # Errors
    ///
    /// [`TlsError`]; the connection is then closed.
    pub fn handshake(&self, socket: TcpStream, host: &HostPort) -> Result<Stream, TlsError> {
        let timeout = self.options.handshake_timeout;
        let deadline = Instant::now() + timeout;
        self.handshake_until(Socket::Tcp(socket), host, deadline, timeout)
    }

    /// The same over a local socket whose bytes a process carries to a server and
    /// back, within a time: that process sees nothing of what goes over it.
    ///
    /// # Errors
    ///
    /// As [`TlsClient::handshake`].
    pub fn handshake_over(
        &self,
        socket: UnixStream,
        host: &HostPort,
        timeout: Duration,
    ) -> Result<Stream, TlsError> {
        let deadline = Instant::now() + timeout;
        self.handshake_until(Socket::Unix(socket), host, deadline, timeout)
    }

    fn connect_once(
        &self,
        host: &HostPort,
        timeout: Duration,
        tcp: &TcpOptions,
        connected: &dyn Fn(&TcpStream),
    ) -> Result<Stream, TlsError> {
        let deadline = Instant::now() + timeout;
        let socket = tcp::connect(host, timeout, tcp)?;
        connected(&socket);
        self.handshake_until(Socket::Tcp(socket), host, deadline, timeout)
    }

    /// `timeout` is what was waited at the deadline, for the message.
    fn handshake_until(
        &self,
        socket: Socket,
        host: &HostPort,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<Stream, TlsError> {
        let config = self.config(host)?;
        let connection =
            UnbufferedClientConnection::new(config, server_name(host)?).map_err(TlsError::Setup)?;
        let done = handshake::run(connection, &socket, deadline)
            .map_err(|failure| failure.explain((host.clone(), End::Server), timeout))?;
        if let (ServerTrust::KnownHosts(list), Some(found)) = (&self.trust, done.peer) {
            pin(&list.file, host, found.fingerprint)?;
        }
        Ok(halves::build(done, socket, self.options))
    }

    fn config(&self, host: &HostPort) -> Result<Arc<ClientConfig>, TlsError> {
        let verifier = ServerVerifier::new(&self.trust, host, &self.provider)?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Setup)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            Some(identity) => {
                let key = identity.certified_key().map_err(TlsError::Setup)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![PROTOCOL_NAME.into()];
        config.resumption = Resumption::disabled();
        // For our own record layer.
        config.enable_secret_extraction = true;
        Ok(Arc::new(config))
    }
}

/// An address with a zone (`fe80::1%eth0`) is a server's name without it.
fn server_name(host: &HostPort) -> Result<ServerName<'static>, TlsError> {
    let bare = host.host().split('%').next().unwrap_or_default();
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::Name(host.host().to_owned()))
}
