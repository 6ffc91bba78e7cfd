//! TLS 1.3 over TCP, or over a local socket that another process forwards to TCP.
//!
//! rustls performs the handshake and derives the keys. This module encrypts and decrypts the data
//! records with aws-lc's ciphers, directly from and into the caller's memory. A receive fills one
//! large buffer. A send encrypts into one large buffer that goes to the kernel in one call.
//!
//! - `session`: the connection's state during its handshake
//! - `handshake`: from a connected socket to its keys, within a deadline
//! - `records`: data, alerts and key updates as records
//! - `halves`: the reader and the writer
//!
//! The reading half sends required answers (alerts) without waiting, and only if no other thread is
//! sending. Two hosts whose socket buffers are full can therefore not wait for each other's
//! readers. The writer answers key updates before its next data (RFC 8446, section 4.6.3).

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

/// Name of the protocol in the handshake (ALPN). A connection for another protocol is rejected with
/// a reason.
const PROTOCOL_NAME: &[u8] = b"longhaul/1";

/// Options of both ends of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Maximum duration of the handshake, and so of an unauthenticated connection.
    /// [`TlsClient::connect`] uses its own timeout instead.
    pub handshake_timeout: Duration,
    /// Maximum buffer size of each half, in bytes, rounded up to two records of 16 KiB. A half
    /// allocates it only when that much data is available at once.
    pub buffer_bytes: usize,
}

impl Default for TlsOptions {
    /// Ten seconds are twenty round trips around the world. Buffers of 128 KiB to 1 MiB performed
    /// equally within the noise of a shared machine, and 64 KiB was slower on one core. A small
    /// buffer suits hundreds of streams.
    fn default() -> Self {
        TlsOptions {
            handshake_timeout: Duration::from_secs(10),
            buffer_bytes: 256 << 10,
        }
    }
}

/// Role of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The other end connected to this one.
    Client,
    /// This end connected to the other one.
    Server,
}

impl End {
    /// Returns possible causes if the other end was too slow.
    fn if_slow(self) -> &'static str {
        match self {
            End::Client => "it is not a longhaul client, or the network loses large packets (MTU)",
            End::Server => {
                "check that a longhaul daemon listens there and that the network is not losing \
                 large packets (MTU)"
            }
        }
    }

    /// Returns possible causes if the other end closed the connection.
    fn if_closed(self) -> &'static str {
        match self {
            End::Client => "its command was interrupted, or it is a port scan or a health check",
            End::Server => {
                "its log says why; it may have too many connections, or be no longhaul daemon"
            }
        }
    }

    /// Returns possible causes if the other end did not send TLS.
    fn if_not_tls(self) -> &'static str {
        match self {
            End::Client => {
                "it is not a longhaul client, or something on the way changes the stream"
            }
            End::Server => "check the port, and that nothing between changes the stream",
        }
    }

    /// Returns the place of the reason if the other end refused.
    fn if_refused(self) -> &'static str {
        match self {
            End::Client => "the output of its command says why",
            End::Server => "its log says why",
        }
    }
}

/// Reasons why an encrypted stream could not be established.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The connection could not be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server is not trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The handshake exceeded its time limit.
    #[error("{peer} did not finish the TLS handshake within {} s: {}", super::tcp::tenths(*timeout), end.if_slow())]
    Deadline {
        /// The other end.
        peer: HostPort,
        /// Role of the other end.
        end: End,
        /// Time limit of the handshake.
        timeout: Duration,
    },
    /// The other end closed the connection.
    #[error("{peer} closed the connection during the TLS handshake: {}", end.if_closed())]
    Closed {
        /// The other end.
        peer: HostPort,
        /// Role of the other end.
        end: End,
    },
    /// The received data is not TLS.
    #[error("{peer} does not speak TLS: {}", end.if_not_tls())]
    NotTls {
        /// The other end.
        peer: HostPort,
        /// Role of the other end.
        end: End,
    },
    /// The other end offers only older TLS versions.
    #[error("{peer} does not offer TLS 1.3: use a longhaul daemon or client on both ends")]
    Version {
        /// The other end.
        peer: HostPort,
    },
    /// The other end uses TLS for another protocol.
    #[error("{peer} speaks TLS but not longhaul (ALPN longhaul/1): check the port")]
    Protocol {
        /// The other end.
        peer: HostPort,
    },
    /// The other end rejected the handshake with an alert.
    #[error("{peer} refused the TLS handshake: {reason}: {}", end.if_refused())]
    Refused {
        /// The other end.
        peer: HostPort,
        /// Role of the other end.
        end: End,
        /// Description of the alert.
        reason: String,
    },
    /// The handshake's messages are larger than permitted.
    #[error(
        "{peer} sent a TLS handshake larger than {limit} bytes: give it a shorter certificate chain"
    )]
    TooLarge {
        /// The other end.
        peer: HostPort,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The host's name is not valid as a server's name.
    #[error("\"{0}\" is no host name: write a DNS name or an address")]
    Name(String),
    /// This end's certificate cannot be used, or the system has no random numbers.
    #[error("TLS cannot be set up: {}: check the certificate and key", explained(.0))]
    Setup(rustls::Error),
    /// Any other violation of the protocol.
    #[error(
        "the TLS handshake with {peer} failed: {}: try again; if it stays, report it",
        explained(cause)
    )]
    Other {
        /// The other end.
        peer: HostPort,
        /// Error of rustls.
        cause: rustls::Error,
    },
    /// The socket failed.
    #[error("the connection to {peer} failed during the TLS handshake: {cause}: try again")]
    Io {
        /// The other end.
        peer: HostPort,
        /// Error of the socket.
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

/// Establishes TLS streams over accepted connections.
#[derive(Clone, Debug)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    validity: Validity,
    options: TlsOptions,
}

impl TlsServer {
    /// Creates a server with an identity. It requests a certificate from clients, but does not
    /// require one.
    ///
    /// # Errors
    ///
    /// [`TlsError::Setup`]: the identity cannot be used.
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
        // Sessions are not resumed: each stream authenticates both ends again.
        config.send_tls13_tickets = 0;
        // Required by the record layer of this module.
        config.enable_secret_extraction = true;
        Ok(TlsServer {
            config: Arc::new(config),
            fingerprint: identity.fingerprint(),
            validity: identity.validity(),
            options,
        })
    }

    /// Returns the fingerprint of the server's key, for clients to pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the validity period of the server's certificate.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Performs the handshake with an admitted client. Blocks for at most the handshake's time
    /// limit.
    ///
    /// # Errors
    ///
    /// [`TlsError`]; the connection is then closed.
    pub fn accept(&self, socket: TcpStream) -> Result<Stream, TlsError> {
        self.accept_within(socket, self.options.handshake_timeout)
    }

    /// Accepts as [`TlsServer::accept`] does, within `left` if that is shorter than the limit.
    ///
    /// # Errors
    ///
    /// The errors of [`TlsServer::accept`].
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

/// Returns the peer's address of an accepted connection, for messages.
fn peer_of(socket: &TcpStream) -> HostPort {
    socket
        .peer_addr()
        .map_or_else(|_| HostPort::new("peer", 0), HostPort::from)
}

/// Establishes TLS streams to servers.
#[derive(Clone, Debug)]
pub struct TlsClient {
    trust: ServerTrust,
    identity: Option<Identity>,
    options: TlsOptions,
    provider: Arc<CryptoProvider>,
}

impl TlsClient {
    /// Creates a client with its rule of trust, and the identity that it presents, if any.
    pub fn new(trust: ServerTrust, identity: Option<Identity>, options: TlsOptions) -> TlsClient {
        TlsClient {
            trust,
            identity,
            options,
            provider: provider(),
        }
    }

    /// Returns the same client that accepts only this key. The further streams of a session use it,
    /// as they must reach the same server as the first.
    pub fn pinned(&self, server: Fingerprint) -> TlsClient {
        TlsClient {
            trust: ServerTrust::SameServer(server),
            ..self.clone()
        }
    }

    /// Connects and performs the handshake, within `timeout` in total. If the server is unknown and
    /// a user can be asked, the connection is closed during the question. The second attempt
    /// accepts only the key that the user accepted.
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

    /// Connects as [`TlsClient::connect`] does. `connected` gets the connection before any data is
    /// sent on it.
    ///
    /// # Errors
    ///
    /// The errors of [`TlsClient::connect`].
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

    /// Performs the handshake as client over an existing connection. Blocks for at most the
    /// handshake's time limit. Asks no user.
    ///
    /// # Errors
    ///
    /// [`TlsError`]; the connection is then closed.
    pub fn handshake(&self, socket: TcpStream, host: &HostPort) -> Result<Stream, TlsError> {
        let timeout = self.options.handshake_timeout;
        let deadline = Instant::now() + timeout;
        self.handshake_until(Socket::Tcp(socket), host, deadline, timeout)
    }

    /// Performs the handshake over a local socket that another process forwards to a server, within
    /// a timeout. That process cannot read the data.
    ///
    /// # Errors
    ///
    /// The errors of [`TlsClient::handshake`].
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

    /// Performs the handshake. `timeout` is the total time until the deadline, for messages.
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
        // Required by the record layer of this module.
        config.enable_secret_extraction = true;
        Ok(Arc::new(config))
    }
}

/// Returns the server's name. The zone of an address (`fe80::1%eth0`) is removed.
fn server_name(host: &HostPort) -> Result<ServerName<'static>, TlsError> {
    let bare = host.host().split('%').next().unwrap_or_default();
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::Name(host.host().to_owned()))
}
