//! Whether the server that answered is the one that was meant.
//!
//! A verifier judges the certificate; that the server really has the
//! certificate's key, its signature over the handshake shows, which is always
//! left to rustls. A key is written to `known_hosts` only after that.

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

/// A server's key that nobody vouched for yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownServer {
    /// Which server.
    pub host: HostPort,
    /// The key that it proved to have.
    pub fingerprint: Fingerprint,
}

/// Asks a person; true is yes.
pub type Ask = Arc<dyn Fn(&UnknownServer) -> bool + Send + Sync>;

/// How a client knows its server.
#[derive(Clone)]
pub enum ServerTrust {
    /// By this key and no other.
    Fingerprint(Fingerprint),
    /// By the key with which it opened the session. The dates of its certificate were checked
    /// then: one that expires meanwhile does not end the session.
    SameServer(Fingerprint),
    /// By the key it had the first time.
    KnownHosts(KnownHosts),
    /// By its name, which an authority signed.
    CertificateAuthority(CertificateAuthority),
}

/// Keys pinned on first use.
#[derive(Clone)]
pub struct KnownHosts {
    /// The list.
    pub file: PathBuf,
    /// Whether a server that is not in the list is added without a question.
    pub accept_new: bool,
    /// Whom to ask; `None` if there is no terminal.
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

/// Roots to which a server's certificate has to lead.
#[derive(Clone)]
pub struct CertificateAuthority {
    verifier: Arc<WebPkiServerVerifier>,
}

impl CertificateAuthority {
    /// Reads roots in PEM.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read or a certificate in it cannot be a root.
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

/// A server was not believed. Nothing was sent to it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TrustError {
    /// It has another key than was asked for.
    #[error(
        "{host} has the key {found}, not {expected} as asked for: if the server's key was \
         replaced, give the new fingerprint, else somebody may be between"
    )]
    Mismatch {
        /// Which server.
        host: HostPort,
        /// What was asked for.
        expected: Fingerprint,
        /// What it has.
        found: Fingerprint,
    },
    /// It has another key than last time.
    #[error(
        "the key of {host} has changed: it is {found}, but {file}, line {line} has another: if \
         you know that the server's key was replaced, delete that line and connect again, else \
         somebody may be between"
    )]
    Changed {
        /// Which server.
        host: HostPort,
        /// The list.
        file: PathBuf,
        /// Where in it, from 1.
        line: usize,
        /// What it has.
        found: Fingerprint,
    },
    /// Nobody knows it.
    #[error(
        "{host} is unknown, its key is {found}: compare that with what the server printed when it \
         started, then give `--fingerprint {found}` with every command, or once `--accept-new`, \
         which trusts it unseen and remembers it"
    )]
    Unknown {
        /// Which server.
        host: HostPort,
        /// What it has.
        found: Fingerprint,
    },
    /// No authority vouches for it.
    #[error(
        "the certificate of {host} is not valid for that name under the given authority: {}: \
         renew it, or give `--fingerprint` instead",
        certificate_fault(cause)
    )]
    Authority {
        /// Which server.
        host: HostPort,
        /// Why.
        cause: CertificateError,
    },
    /// Its certificate is not valid now.
    #[error(
        "the certificate of {host} {dates}: renew it there and send SIGHUP to its daemon, or \
         correct the clock that is wrong"
    )]
    NotValid {
        /// Which server.
        host: HostPort,
        /// Its date.
        dates: NotValid,
    },
    /// What it showed is no certificate.
    #[error("{host} shows a certificate that cannot be read ({cause}): give the server another")]
    Unreadable {
        /// Which server.
        host: HostPort,
        /// Why.
        cause: String,
    },
    /// The list cannot be used.
    #[error(transparent)]
    KnownHosts(#[from] KnownHostsError),
}

impl TrustError {
    /// The refusal inside an error of rustls.
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

/// What one connection's server has to show.
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

/// Judges the server of one connection.
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

/// A key that is new may pass, one that changed never.
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

/// Pins a key that its server has proved to have. If another one was pinned meanwhile, that one
/// stays.
pub(super) fn pin(file: &Path, host: &HostPort, found: Fingerprint) -> Result<(), TrustError> {
    accept(known_hosts::record(file, host, &found)?, host, file, found)
}

/// The part of a verifier that is the same for servers and clients: the proof that the presenter
/// of a certificate has its key.
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

/// Takes any client's certificate, or none. The handshake proves that the
/// client has its key; whose key that is, the principals know.
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
        // It must have a key and dates that can be read. The dates are checked when the client
        // asks for something by its key, so that it learns why it is refused.
        KeyAndDates::of_certificate(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    verifies_signatures!();
}
