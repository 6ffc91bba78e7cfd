//! TLS of control and data connections (RFC 4217). TLS 1.3 only.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::error::Error;

/// A connection in TLS.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Files with the certificates that the system trusts: Debian, Red Hat, SUSE.
const SYSTEM_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Makes connections in TLS to one server. Data connections resume the TLS session of the
/// control connection, which many servers require.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl TlsClient {
    /// Prepares connections to a host. `trusted` is a file of certificates in PEM; the default
    /// is the system's file.
    ///
    /// # Errors
    ///
    /// If no certificate can be read, or if the host is not a valid name.
    pub fn new(host: &str, trusted: Option<&Path>) -> Result<TlsClient, Error> {
        let mut roots = RootCertStore::empty();
        let file = trusted.map_or_else(system_file, |file| Ok(file.to_owned()))?;
        let read = CertificateDer::pem_file_iter(&file);
        let unreadable = |error| Error::Tls(format!("read {}: {error}", file.display()));
        for certificate in read.map_err(unreadable)? {
            // A bundle may contain certificates in old formats. The others remain usable.
            let _ = roots.add(certificate.map_err(unreadable)?);
        }
        if roots.is_empty() {
            let file = file.display();
            return Err(Error::Tls(format!("{file} contains no valid certificate")));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| Error::Tls(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::Tls(format!("{host} is not a valid name of a server")))?;
        Ok(TlsClient {
            config: Arc::new(config),
            server,
        })
    }

    /// Makes the handshake on a connection, whose time limits apply.
    ///
    /// # Errors
    ///
    /// If the handshake fails, for example because the certificate is not trusted.
    pub fn start(&self, stream: TcpStream) -> Result<TlsStream, Error> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.server.clone())
            .map_err(|error| Error::Tls(error.to_string()))?;
        let mut stream = StreamOwned::new(connection, stream);
        while stream.conn.is_handshaking() {
            let done = stream.conn.complete_io(&mut stream.sock);
            done.map_err(|error| Error::Tls(error.to_string()))?;
        }
        Ok(stream)
    }
}

fn system_file() -> Result<PathBuf, Error> {
    let mut files = SYSTEM_FILES.iter().map(PathBuf::from);
    files
        .find(|file| file.exists())
        .ok_or_else(|| Error::Tls("the system has no file of trusted certificates".to_owned()))
}

/// A data connection in stream mode, which may be in TLS.
#[derive(Debug)]
pub enum DataStream {
    /// The bytes of the file.
    Clear(TcpStream),
    /// The bytes of the file in TLS.
    Tls(Box<TlsStream>),
}

impl Read for DataStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            DataStream::Clear(stream) => stream.read(bytes),
            // The end of TCP without the end of TLS is an error there.
            DataStream::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for DataStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            DataStream::Clear(stream) => stream.write(bytes),
            DataStream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            DataStream::Clear(stream) => stream.flush(),
            DataStream::Tls(stream) => stream.flush(),
        }
    }
}

impl DataStream {
    /// Sends the end of the file.
    ///
    /// # Errors
    ///
    /// As `shutdown`.
    pub fn finish(self) -> io::Result<()> {
        match self {
            DataStream::Clear(stream) => stream.shutdown(Shutdown::Write),
            DataStream::Tls(mut stream) => {
                stream.conn.send_close_notify();
                stream.flush()?;
                stream.sock.shutdown(Shutdown::Write)?;
                // The server has sent tickets, which the next connection needs to resume the
                // session. A connection that is closed with unread bytes is also reset, and the
                // server would lose the end of the data.
                while stream.conn.read_tls(&mut stream.sock)? > 0 {
                    let state = stream.conn.process_new_packets();
                    let state = state.map_err(io::Error::other)?;
                    if state.plaintext_bytes_to_read() > 0 {
                        return Err(io::Error::other("the server sent data during an upload"));
                    }
                }
                Ok(())
            }
        }
    }
}
