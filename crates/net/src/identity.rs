//! Identity of a host: a key, its certificate, and the key's fingerprint.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use longhaul_system::named_files::kept_to_read;
use longhaul_system::refusals::or_without;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error};

use super::tls_errors::explained;
use super::validity::{NotValid, Validity};

/// The SHA-256 of a certificate's SubjectPublicKeyInfo in DER format. It depends on the key alone,
/// so a renewed certificate of the same key keeps its fingerprint.
///
/// Its text form is `sha256:` and 43 characters of Base64 without padding. The same hash comes from
/// `openssl x509 -pubkey -noout -in cert.pem | openssl pkey -pubin -outform DER | openssl dgst
/// -sha256 -binary | base64`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

const PREFIX: &str = "sha256:";

impl Fingerprint {
    /// Returns the fingerprint of a certificate's key.
    ///
    /// # Errors
    ///
    /// The bytes are not an X.509 certificate of version 3.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Fingerprint, Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        let hash = digest::digest(&digest::SHA256, &key);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.as_ref());
        Ok(Fingerprint(bytes))
    }

    /// Returns the fingerprint of the first certificate in a PEM file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has no such certificate.
    pub fn of_pem_file(file: &Path) -> Result<Fingerprint, IdentityError> {
        let chain = read_certificates(file)?;
        let first = chain.first().ok_or(Error::NoCertificatesPresented);
        first
            .and_then(Fingerprint::of_certificate)
            .map_err(|cause| IdentityError::Unusable {
                path: file.into(),
                cause,
            })
    }

    /// Creates a fingerprint from its hash.
    pub fn of_digest(digest: [u8; 32]) -> Fingerprint {
        Fingerprint(digest)
    }

    /// Returns the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The relevant parts of a certificate: its key and its dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAndDates {
    /// Fingerprint of the key.
    pub fingerprint: Fingerprint,
    /// Validity period.
    pub validity: Validity,
}

impl KeyAndDates {
    /// Reads key and dates from a certificate.
    ///
    /// # Errors
    ///
    /// The bytes are not an X.509 certificate of version 3.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<KeyAndDates, Error> {
        let fingerprint = Fingerprint::of_certificate(certificate)?;
        let validity = Validity::of(certificate).ok_or(CertificateError::BadEncoding)?;
        Ok(KeyAndDates {
            fingerprint,
            validity,
        })
    }
}

/// Error for text that is not a fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no fingerprint: it is written `sha256:` and 43 characters, as `longhaul serve` \
     prints it when it starts"
)]
pub struct ParseFingerprintError(String);

impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let decode = || {
            let bytes = STANDARD_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
            bytes.try_into().ok().map(Fingerprint)
        };
        decode().ok_or_else(|| ParseFingerprintError(text.chars().take(80).collect()))
    }
}

/// A private key with its certificate chain, ready for use in a handshake.
#[derive(Clone)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    certificate: KeyAndDates,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint())
    }
}

/// Reasons why an identity is not available.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read, created or renamed.
    #[error("{path}: {cause}: check that the directory exists and belongs to this user")]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// A file does not contain the wanted PEM block.
    #[error("{path} holds no {wanted} in PEM ({cause}): give a file that has one")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Kind of the wanted block.
        wanted: &'static str,
        /// Cause of the failure.
        cause: String,
    },
    /// Other users may read the private key.
    #[error(
        "{path} is a private key that others may read (mode {mode:o}): run `chmod 600 {path}`, or \
         make a new key if somebody did"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Key and certificate do not match, or are of an unsupported kind.
    #[error(
        "{path}: the certificate or key cannot be used: {}: give a matching pair (ECDSA \
         P-256 or P-384, Ed25519, or RSA)",
        explained(cause)
    )]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// Error of rustls.
        cause: Error,
    },
    /// The certificate is expired or not yet valid.
    #[error("the certificate {path} {dates}: renew it, or correct the clock")]
    NotValid {
        /// The certificate's file.
        path: PathBuf,
        /// The date that is not met.
        dates: NotValid,
    },
    /// The random generator or the encoder failed.
    #[error("a key could not be made: {0}: give a certificate and key instead")]
    Generate(String),
}

/// Name of the file of a generated identity. It holds key and certificate together, so that a crash
/// cannot leave one without the other.
const GENERATED_FILE: &str = "identity.pem";

impl Identity {
    /// Reads a certificate chain and its key.
    ///
    /// # Errors
    ///
    /// A file cannot be read or is not PEM, other users may read the key, key and certificate do
    /// not match, or the certificate is expired or not yet valid.
    pub fn from_pem_files(certificates: &Path, key: &Path) -> Result<Identity, IdentityError> {
        let identity = Identity::from_pem_files_of_any_date(certificates, key)?;
        let checked = identity.validity().check_now();
        checked.map_err(|dates| IdentityError::NotValid {
            path: certificates.into(),
            dates,
        })?;
        Ok(identity)
    }

    /// Reads them as [`Identity::from_pem_files`] does, and accepts an expired certificate, or one
    /// that is not yet valid. Peers reject such a certificate.
    ///
    /// # Errors
    ///
    /// The errors of [`Identity::from_pem_files`], except for the dates.
    pub fn from_pem_files_of_any_date(
        certificates: &Path,
        key: &Path,
    ) -> Result<Identity, IdentityError> {
        refuse_exposed(key)?;
        let chain = read_certificates(certificates)?;
        let pem_error = |cause: rustls::pki_types::pem::Error| IdentityError::Pem {
            path: key.into(),
            wanted: "private key",
            cause: cause.to_string(),
        };
        let key = PrivateKeyDer::from_pem_file(key).map_err(pem_error)?;
        Identity::build(chain, key).map_err(|cause| IdentityError::Unusable {
            path: certificates.into(),
            cause,
        })
    }

    /// Reads the identity in `directory`. On first use, creates a self-signed one there, with the
    /// directory if it is missing. Two processes that do so at the same time get the same identity.
    ///
    /// # Errors
    ///
    /// The errors of [`Identity::from_pem_files`], and failures to write the file.
    pub fn in_directory(directory: &Path) -> Result<Identity, IdentityError> {
        let path = directory.join(GENERATED_FILE);
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let pem = generate_pem()?;
                keep(directory, &path, &pem).map_err(|cause| IdentityError::File {
                    path: path.clone(),
                    cause,
                })?;
            }
            _ => {}
        }
        kept_to_read(&path).map_err(|cause| IdentityError::File {
            path: path.clone(),
            cause,
        })?;
        Identity::from_pem_files(&path, &path)
    }

    /// Creates a self-signed identity that is not stored.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Generate`]: the identity cannot be created.
    pub fn ephemeral() -> Result<Identity, IdentityError> {
        let (certificate, key) = generate()?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|cause| IdentityError::Generate(cause.into()))?;
        Identity::build(vec![certificate.der().clone()], key)
            .map_err(|cause| IdentityError::Generate(cause.to_string()))
    }

    fn build(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Identity, Error> {
        let first = chain.first().ok_or(Error::NoCertificatesPresented)?;
        let identity = Identity {
            certificate: KeyAndDates::of_certificate(first)?,
            key: Arc::new(key),
            chain,
        };
        identity.certified_key()?;
        Ok(identity)
    }

    /// Returns the key's fingerprint, by which other hosts know this host.
    pub fn fingerprint(&self) -> Fingerprint {
        self.certificate.fingerprint
    }

    /// Returns the validity period of the certificate.
    pub fn validity(&self) -> Validity {
        self.certificate.validity
    }

    /// Returns the identity in rustls's form. Fails if key and certificate do not match.
    pub(super) fn certified_key(&self) -> Result<rustls::sign::CertifiedKey, Error> {
        rustls::sign::CertifiedKey::from_der(
            self.chain.clone(),
            self.key.clone_key(),
            &super::provider::provider(),
        )
    }
}

/// Reads all certificates of a PEM file, at least one.
pub(super) fn read_certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let pem_error = |cause: String| IdentityError::Pem {
        path: path.into(),
        wanted: "certificate",
        cause,
    };
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|cause| pem_error(cause.to_string()))?;
    if chain.is_empty() {
        return Err(pem_error("nothing found".into()));
    }
    Ok(chain)
}

fn refuse_exposed(path: &Path) -> Result<(), IdentityError> {
    let status = fs::metadata(path).map_err(|cause| IdentityError::File {
        path: path.into(),
        cause,
    })?;
    let mode = status.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(IdentityError::Exposed {
            path: path.into(),
            mode,
        });
    }
    Ok(())
}

/// Generates a key and certificate with ECDSA P-256, the signature that every TLS 1.3 peer must
/// support (RFC 8446, section 9.1).
fn generate() -> Result<(rcgen::Certificate, rcgen::KeyPair), IdentityError> {
    let error = |cause: rcgen::Error| IdentityError::Generate(cause.to_string());
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(error)?;
    // The name is only informative: peers check the key.
    let mut parameters =
        rcgen::CertificateParams::new(vec!["longhaul".to_owned()]).map_err(error)?;
    // A host whose clock starts at 1970 can use the certificate too.
    parameters.not_before = rcgen::date_time_ymd(1970, 1, 1);
    parameters
        .distinguished_name
        .push(rcgen::DnType::CommonName, "longhaul");
    let certificate = parameters.self_signed(&key).map_err(error)?;
    Ok((certificate, key))
}

fn generate_pem() -> Result<String, IdentityError> {
    let (certificate, key) = generate()?;
    Ok(key.serialize_pem() + &certificate.pem())
}

/// Returns a name that is unique among all processes and threads.
fn staging_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let counter = COUNTER.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |since| since.as_nanos());
    format!(
        "{GENERATED_FILE}.{}.{counter}.{nanoseconds}",
        std::process::id()
    )
}

/// Writes the complete file durably. If another process has created it in the meantime, keeps that
/// one.
fn keep(directory: &Path, path: &Path, pem: &str) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let staging = directory.join(staging_name());
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&staging)?;
    file.write_all(pem.as_bytes())?;
    file.sync_all()?;
    // Unlike a rename, a hard link never replaces a file.
    let linked = fs::hard_link(&staging, path);
    fs::remove_file(&staging)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    or_without(File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_they_are_written() {
        let fingerprint = Identity::ephemeral().unwrap().fingerprint();
        let text = fingerprint.to_string();
        assert_eq!(text.len(), 7 + 43);
        assert_eq!(text.parse(), Ok(fingerprint));
        for bad in [
            "",
            "sha256:",
            "sha256:AAAA",
            &text[7..],
            &format!("{text}="),
        ] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_generated_identity_stays() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a/b");
        let first = Identity::in_directory(&directory).unwrap();
        let again = Identity::in_directory(&directory).unwrap();
        assert_eq!(first.fingerprint(), again.fingerprint());
        let path = directory.join(GENERATED_FILE);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn the_second_process_uses_the_key_of_the_first() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(GENERATED_FILE);
        keep(home.path(), &path, "first").unwrap();
        keep(home.path(), &path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
    }

    #[test]
    fn an_exposed_key_is_refused_with_its_remedy() {
        let home = tempfile::tempdir().unwrap();
        Identity::in_directory(home.path()).unwrap();
        let path = home.path().join(GENERATED_FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Identity::in_directory(home.path()).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_foreign_key_does_not_fit() {
        let home = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| home.path().join(name));
        Identity::in_directory(&one).unwrap();
        Identity::in_directory(&two).unwrap();
        let error = Identity::from_pem_files(&one.join(GENERATED_FILE), &two.join(GENERATED_FILE))
            .unwrap_err();
        assert!(matches!(error, IdentityError::Unusable { .. }), "{error}");
    }

    #[test]
    fn garbage_is_no_certificate() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x");
        fs::write(&path, "garbage").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = Identity::from_pem_files(&path, &path).unwrap_err();
        assert!(matches!(error, IdentityError::Pem { .. }), "{error}");
    }

    #[test]
    fn a_certificate_that_is_not_valid_now_is_refused_with_its_date() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.pem");
        for (from, until, says) in [
            (2000, 2001, "expired at 2001-01-01T00:00:00Z"),
            (4000, 4001, "is not valid before 4000-01-01T00:00:00Z"),
        ] {
            let key = rcgen::KeyPair::generate().unwrap();
            let mut parameters = rcgen::CertificateParams::new(vec!["x".to_owned()]).unwrap();
            parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
            parameters.not_after = rcgen::date_time_ymd(until, 1, 1);
            let pem = key.serialize_pem() + &parameters.self_signed(&key).unwrap().pem();
            fs::write(&path, pem).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let text = Identity::from_pem_files(&path, &path)
                .unwrap_err()
                .to_string();
            assert!(text.contains(says) && text.contains("renew it"), "{text}");
        }
    }
}
