//! Decides if a client trusts the server that answered.
//!
//! A verifier checks the certificate only. The signature over the handshake proves that the server
//! owns the certificate's key, and rustls always verifies it. A key is written to `known_hosts`
//! only after that proof.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, OtherError};
use rustls::{RootCertStore, SignatureScheme};

use super::identity::{Fingerprint, IdentityError, KeyAndDates, read_certificates};
use super::known_hosts::{self, Knowledge, KnownHostsError, Pins};
use super::tcp::HostPort;
use super::tls_errors::{certificate_fault, explained};
use super::validity::NotValid;

/// Server whose key is not trusted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownServer {
    /// The server.
    pub host: HostPort,
    /// Fingerprint of the key that the server proved to own.
    pub fingerprint: Fingerprint,
}

/// Function that asks the user, and returns true for yes.
pub type Ask = Arc<dyn Fn(&UnknownServer) -> bool + Send + Sync>;

/// Rule by which a client trusts its server.
#[derive(Clone)]
pub enum ServerTrust {
    /// Trusts this key only.
    Fingerprint(Fingerprint),
    /// Trusts the key with which the server opened the session. The certificate's dates were
    /// checked then, so a certificate that expires later does not end the session.
    SameServer(Fingerprint),
    /// Trusts the key that the server had at its first use.
    KnownHosts(KnownHosts),
    /// Trusts a certificate that an authority signed for the server's name.
    CertificateAuthority(CertificateAuthority),
}

/// Keys pinned on first use.
#[derive(Clone)]
pub struct KnownHosts {
    /// The list of known hosts.
    pub file: PathBuf,
    /// If true, an unknown server is added without a question.
    pub accept_new: bool,
    /// Function that asks the user; `None` without a terminal.
    pub ask: Option<Ask>,
}

impl fmt::Debug for ServerTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerTrust::Fingerprint(key) => write!(f, "Fingerprint({key})"),
            ServerTrust::SameServer(key) => write!(f, "SameServer({key})"),
            ServerTrust::KnownHosts(list) => write!(f, "KnownHosts({})", list.file.display()),
            ServerTrust::CertificateAuthority(_) => f.write_str("CertificateAuthority"),
        }
    }
}

/// Trusted root certificates for servers.
#[derive(Clone)]
pub struct CertificateAuthority {
    verifier: Arc<WebPkiServerVerifier>,
}

impl CertificateAuthority {
    /// Reads root certificates in PEM format.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a certificate in it cannot be a root.
    pub fn from_pem_file(path: &Path) -> Result<CertificateAuthority, IdentityError> {
        let unusable = |cause| IdentityError::Unusable {
            path: path.into(),
            cause,
        };
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            roots.add(certificate).map_err(unusable)?;
        }
        let provider = super::provider::provider();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|cause| unusable(rustls::Error::General(cause.to_string())))?;
        Ok(CertificateAuthority { verifier })
    }
}

/// Reasons to reject a server. No data was sent to it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TrustError {
    /// The server has another key than the requested one.
    #[error(
        "{host} has the key {found}, not {expected} as asked for: if the server's key was \
         replaced, give the new fingerprint, else somebody may be between"
    )]
    Mismatch {
        /// The server.
        host: HostPort,
        /// The requested key.
        expected: Fingerprint,
        /// The server's key.
        found: Fingerprint,
    },
    /// The server has another key than last time.
    #[error(
        "the key of {host} has changed: it is {found}, but {file}, line {line} has another: if \
         you know that the server's key was replaced, delete that line and connect again, else \
         somebody may be between"
    )]
    Changed {
        /// The server.
        host: HostPort,
        /// The list of known hosts.
        file: PathBuf,
        /// Line number in the list, from 1.
        line: usize,
        /// The server's key.
        found: Fingerprint,
    },
    /// The server is not in the list of known hosts.
    #[error(
        "{host} is unknown, its key is {found}: compare that with what the server printed when it \
         started, then give `--fingerprint {found}` with every command, or once `--accept-new`, \
         which trusts it unseen and remembers it"
    )]
    Unknown {
        /// The server.
        host: HostPort,
        /// The server's key.
        found: Fingerprint,
    },
    /// The authority does not confirm the server's certificate.
    #[error(
        "the certificate of {host} is not valid for that name under the given authority: {}: \
         renew it, or give `--fingerprint` instead",
        certificate_fault(cause)
    )]
    Authority {
        /// The server.
        host: HostPort,
        /// Fault of the certificate.
        cause: CertificateError,
    },
    /// The server's certificate is expired or not yet valid.
    #[error(
        "the certificate of {host} {dates}: renew it there and send SIGHUP to its daemon, or \
         correct the clock that is wrong"
    )]
    NotValid {
        /// The server.
        host: HostPort,
        /// The date that is not met.
        dates: NotValid,
    },
    /// The server's certificate cannot be parsed.
    #[error("{host} shows a certificate that cannot be read ({cause}): give the server another")]
    Unreadable {
        /// The server.
        host: HostPort,
        /// Cause of the failure.
        cause: String,
    },
    /// The list of known hosts cannot be used.
    #[error(transparent)]
    KnownHosts(#[from] KnownHostsError),
}

impl TrustError {
    /// Returns the `TrustError` inside an error of rustls.
    pub(super) fn within(error: &rustls::Error) -> Option<TrustError> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
                inner.downcast_ref::<TrustError>().cloned()
            }
            _ => None,
        }
    }

    fn into_rustls(self) -> rustls::Error {
        CertificateError::Other(OtherError(Arc::new(self))).into()
    }
}

/// Required credentials of the server of one connection.
#[derive(Debug)]
enum Expectation {
    Exactly(Fingerprint),
    SameAsBefore(Fingerprint),
    Pinned {
        file: PathBuf,
        pins: Pins,
        accept_new: bool,
    },
    Authority(Arc<WebPkiServerVerifier>),
}

/// Verifies the server of one connection.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    host: HostPort,
    expectation: Expectation,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    pub(super) fn new(
        trust: &ServerTrust,
        host: &HostPort,
        provider: &CryptoProvider,
    ) -> Result<ServerVerifier, TrustError> {
        let expectation = match trust {
            ServerTrust::Fingerprint(key) => Expectation::Exactly(*key),
            ServerTrust::SameServer(key) => Expectation::SameAsBefore(*key),
            ServerTrust::KnownHosts(list) => Expectation::Pinned {
                pins: Pins::load(&list.file, host)?,
                file: list.file.clone(),
                accept_new: list.accept_new,
            },
            ServerTrust::CertificateAuthority(authority) => {
                Expectation::Authority(Arc::clone(&authority.verifier))
            }
        };
        Ok(ServerVerifier {
            host: host.clone(),
            expectation,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    fn judge_key(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), TrustError> {
        let host = self.host.clone();
        let shown = match KeyAndDates::of_certificate(certificate) {
            Ok(shown) => shown,
            Err(cause) => {
                let cause = explained(&cause);
                return Err(TrustError::Unreadable { host, cause });
            }
        };
        let found = shown.fingerprint;
        match &self.expectation {
            Expectation::Exactly(expected) | Expectation::SameAsBefore(expected)
                if found != *expected =>
            {
                let expected = *expected;
                return Err(TrustError::Mismatch {
                    host,
                    expected,
                    found,
                });
            }
            Expectation::SameAsBefore(_) => return Ok(()),
            Expectation::Pinned { file, pins, .. } => {
                accept(pins.judge(&found), &host, file, found)?;
            }
            Expectation::Exactly(_) | Expectation::Authority(_) => {}
        }
        let checked = shown.validity.check(now);
        checked.map_err(|dates| TrustError::NotValid {
            host: host.clone(),
            dates,
        })?;
        match &self.expectation {
            Expectation::Pinned {
                pins, accept_new, ..
            } if !accept_new && matches!(pins.judge(&found), Knowledge::Unknown) => {
                Err(TrustError::Unknown { host, found })
            }
            _ => Ok(()),
        }
    }
}

/// Accepts a known or new key. Rejects a key that has changed.
fn accept(
    knowledge: Knowledge,
    host: &HostPort,
    file: &Path,
    found: Fingerprint,
) -> Result<(), TrustError> {
    match knowledge {
        Knowledge::Known | Knowledge::Unknown => Ok(()),
        Knowledge::Changed { line, .. } => Err(TrustError::Changed {
            host: host.clone(),
            file: file.into(),
            line,
            found,
        }),
    }
}

/// Records a key that its server has proved to own. If another process recorded another key first,
/// that one is kept.
pub(super) fn pin(file: &Path, host: &HostPort, found: Fingerprint) -> Result<(), TrustError> {
    accept(known_hosts::record(file, host, &found)?, host, file, found)
}

/// Implements the parts of a verifier that are the same for servers and clients: the proof that the
/// peer owns the key of its certificate.
macro_rules! verifies_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls12_signature(
                message,
                certificate,
                signature,
                &self.algorithms,
            )
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(
                message,
                certificate,
                signature,
                &self.algorithms,
            )
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.judge_key(end_entity, now)
            .map_err(TrustError::into_rustls)?;
        let Expectation::Authority(authority) = &self.expectation else {
            return Ok(ServerCertVerified::assertion());
        };
        authority
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|error| match error {
                rustls::Error::InvalidCertificate(cause) => {
                    let host = self.host.clone();
                    TrustError::Authority { host, cause }.into_rustls()
                }
                other => other,
            })
    }

    verifies_signatures!();
}

/// Accepts any client's certificate, or a client without one. The handshake proves that the client
/// owns the key; the list of principals maps the key to a principal.
#[derive(Debug)]
pub(super) struct AnyClient {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyClient {
    pub(super) fn new(provider: &CryptoProvider) -> AnyClient {
        AnyClient {
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // The certificate must have a readable key and dates. The dates are checked only when the
        // client makes a request with this key, so that it receives the reason.
        KeyAndDates::of_certificate(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    verifies_signatures!();
}
