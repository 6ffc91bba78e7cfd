//! Requests over HTTP/1.1 with connections that stay open.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::http::{self, HeaderMap, Method};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::error::Error;
use crate::url::Url;

/// Files with the certificates that the system trusts: Debian, Red Hat, SUSE.
const SYSTEM_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Maximum number of connections that stay open without a request.
const IDLE_CONNECTIONS: usize = 64;

/// Time after which a connection without a request is not used again. Many servers close it after
/// 5 seconds or more.
const IDLE_TIME: Duration = Duration::from_secs(15);

/// Maximum size of the header of a response in bytes.
const HEADER_BYTES: usize = 64 << 10;

/// Maximum number of bytes of an error's text that are read.
const ERROR_BYTES: u64 = 64 << 10;

/// Maximum length in characters of a reason in a message.
const REASON_CHARACTERS: usize = 200;

/// Longest pause before another attempt.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time limit for a connection, and for silence of the server.
    pub silence: Duration,
    /// File of certificates (PEM) that are trusted. `None`: the file of the system.
    pub trusted: Option<PathBuf>,
    /// Number of attempts at a request.
    pub attempts: u32,
    /// Pause after the first failed attempt. It doubles after each further one.
    pub pause: Duration,
    /// True if the environment names the proxy.
    pub proxies: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            silence: Duration::from_secs(30),
            trusted: None,
            attempts: 6,
            pause: Duration::from_millis(250),
            proxies: true,
        }
    }
}

/// A request.
#[derive(Clone)]
pub struct Request<'a> {
    /// Method, such as `GET`.
    pub method: Method,
    /// The URL.
    pub url: &'a Url,
    /// Headers by name in small letters. They may contain secrets.
    pub headers: Vec<(String, String)>,
    /// The data to send.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Creates a request without headers and data.
    pub fn new(method: Method, url: &'a Url) -> Request<'a> {
        Request {
            method,
            url,
            headers: Vec::new(),
            body: &[],
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Request<'a> {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

/// A response, whose data were not read yet.
pub struct Response {
    /// Status code.
    pub status: u16,
    headers: HeaderMap,
    body: Body,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "response {}", self.status)
    }
}

impl Response {
    /// Returns a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the headers whose names begin with a prefix, with the rest of their names.
    pub fn headers_after<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.headers.iter().filter_map(move |(name, value)| {
            Some((name.as_str().strip_prefix(prefix)?, value.to_str().ok()?))
        })
    }

    /// Returns the header `Content-Length` as a number.
    pub fn length(&self) -> Option<u64> {
        self.header("content-length")?.trim().parse().ok()
    }

    /// Returns the pause that the server requests before another attempt.
    fn requested_pause(&self) -> Option<Duration> {
        let seconds = self.header("retry-after")?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds))
    }

    /// Returns the data as a reader. It ends with an error if they are incomplete.
    pub fn into_reader(self) -> impl Read + Send {
        self.body.into_with_config().limit(u64::MAX).reader()
    }

    /// Reads the data, which may have at most `most` bytes.
    ///
    /// # Errors
    ///
    /// The connection fails, or there are more bytes.
    pub fn read_all(self, most: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let mut reader = self.into_reader().take(most.saturating_add(1));
        let count = reader.read_to_end(&mut bytes).map_err(of_read)?;
        if count as u64 > most {
            let text = format!("a response has more than {most} bytes");
            return Err(Error::Unexpected(text));
        }
        Ok(bytes)
    }

    /// Returns the error that the response describes. `reason` finds it in the data.
    pub fn into_error(self, reason: impl FnOnce(&[u8]) -> Option<String>) -> Error {
        let status = self.status;
        let canonical = http::StatusCode::from_u16(status).ok();
        let canonical = canonical.and_then(|status| status.canonical_reason());
        let text = self.read_all(ERROR_BYTES).unwrap_or_default();
        let found = reason(&text).unwrap_or_else(|| canonical.unwrap_or_default().to_owned());
        let clean = found.chars().filter(|c| !c.is_control());
        Error::Refused {
            status,
            reason: clean.take(REASON_CHARACTERS).collect(),
        }
    }
}

/// Returns the error of a failed read of a response.
pub fn of_read(error: io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(ureq::Error::Timeout(_)) => Error::Silent { seconds: 0 },
        _ if error.kind() == io::ErrorKind::TimedOut => Error::Silent { seconds: 0 },
        _ => Error::Connection(format!("read the response: {error}")),
    }
}

/// Sends requests.
pub struct Client {
    agent: Agent,
    options: Options,
}

impl Client {
    /// Reads the trusted certificates. Connects to no server.
    ///
    /// # Errors
    ///
    /// The certificates cannot be read.
    pub fn new(options: Options) -> Result<Client, Error> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .accept("*/*")
            .accept_encoding("identity")
            .max_response_header_size(HEADER_BYTES)
            .max_idle_connections(IDLE_CONNECTIONS)
            .max_idle_connections_per_host(IDLE_CONNECTIONS)
            .max_idle_age(IDLE_TIME)
            .timeout_connect(Some(options.silence))
            .timeout_resolve(Some(options.silence))
            .timeout_per_read(Some(options.silence))
            .timeout_per_write(Some(options.silence))
            .tls_config(tls(options.trusted.as_deref())?);
        if !options.proxies {
            config = config.proxy(None);
        }
        Ok(Client {
            agent: config.build().new_agent(),
            options,
        })
    }

    /// Sends a request once and returns its response, whatever its status is. A redirect is not
    /// followed.
    ///
    /// # Errors
    ///
    /// No response arrives.
    pub fn send(&self, request: &Request<'_>) -> Result<Response, Error> {
        let mut builder = http::Request::builder()
            .method(request.method.clone())
            .uri(request.url.text());
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let invalid = |_| Error::Unexpected("the request cannot be expressed in HTTP".to_owned());
        let takes_data = matches!(request.method, Method::PUT | Method::POST);
        let sent = if takes_data {
            self.agent.run(builder.body(request.body).map_err(invalid)?)
        } else {
            self.agent.run(builder.body(()).map_err(invalid)?)
        };
        let response = sent.map_err(|error| self.error_of(request.url, error))?;
        let (parts, body) = response.into_parts();
        Ok(Response {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }

    /// Returns an error of the library without the URL, whose query may be secret.
    fn error_of(&self, url: &Url, error: ureq::Error) -> Error {
        let host = &url.host;
        match error {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                Error::Connection(format!("{host} cannot be reached in time"))
            }
            ureq::Error::Timeout(_) => Error::Silent {
                seconds: self.options.silence.as_secs(),
            },
            ureq::Error::HostNotFound => Error::Unexpected(format!("{host}: no such host")),
            ureq::Error::Tls(text) => Error::Tls(text.to_owned()),
            ureq::Error::Rustls(error) => Error::Tls(error.to_string()),
            ureq::Error::Io(error) => match error.get_ref().and_then(|e| e.downcast_ref()) {
                Some(tls @ rustls::Error::InvalidCertificate(_)) => Error::Tls(tls.to_string()),
                _ => Error::Connection(format!("connection to {host}: {error}")),
            },
            ureq::Error::Protocol(error) => Error::Connection(format!("{host}: {error}")),
            ureq::Error::BadUri(_) => Error::Unexpected("the URL is not valid".to_owned()),
            ureq::Error::LargeResponseHeader(..) => {
                let text = format!("the header of a response has more than {HEADER_BYTES} bytes");
                Error::Unexpected(text)
            }
            error => Error::Unexpected(format!("{host}: {error}")),
        }
    }

    /// Returns the time limit for silence in the error of a read.
    pub fn silence_of(&self, error: Error) -> Error {
        match error {
            Error::Silent { .. } => Error::Silent {
                seconds: self.options.silence.as_secs(),
            },
            error => error,
        }
    }

    /// Runs an operation until it succeeds, fails for good, or has failed too often in a row.
    /// The operation returns its error with the response's pause, and true if it advanced.
    ///
    /// # Errors
    ///
    /// The last error.
    pub fn repeat<T>(&self, mut operation: impl FnMut() -> Result<T, Failed>) -> Result<T, Error> {
        let mut failures = 0;
        loop {
            let failed = match operation() {
                Ok(result) => return Ok(result),
                Err(failed) => failed,
            };
            failures = if failed.advanced { 1 } else { failures + 1 };
            let error = self.silence_of(failed.error);
            if !error.may_pass() || failures >= self.options.attempts {
                return Err(error);
            }
            let pause = self
                .options
                .pause
                .saturating_mul(1 << (failures - 1).min(16));
            let pause = failed.pause.map_or(pause, |requested| requested.max(pause));
            // tidy: the server requires a pause before the next attempt.
            std::thread::sleep(pause.min(LONGEST_PAUSE));
        }
    }

    /// Sends a request until a response is no temporary error.
    ///
    /// # Errors
    ///
    /// No response arrives, or all are temporary errors.
    pub fn send_again<'a>(
        &self,
        mut request: impl FnMut() -> Result<Request<'a>, Error>,
        reason: impl Fn(&[u8]) -> Option<String>,
    ) -> Result<Response, Error> {
        self.repeat(|| {
            let response = self.send(&request()?)?;
            if matches!(response.status, 408 | 429 | 500 | 502..=504) {
                return Err(Failed::of_response(response, &reason));
            }
            Ok(response)
        })
    }
}

/// A failed attempt.
#[derive(Debug)]
pub struct Failed {
    /// The error.
    pub error: Error,
    /// Pause that the server requests.
    pub pause: Option<Duration>,
    /// True if the attempt received a part of the data.
    pub advanced: bool,
}

impl Failed {
    /// Describes a response that is an error. `reason` finds its reason in the data.
    pub fn of_response(response: Response, reason: impl Fn(&[u8]) -> Option<String>) -> Failed {
        let pause = response.requested_pause();
        let error = response.into_error(reason);
        Failed {
            pause,
            ..Failed::from(error)
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed {
            error,
            pause: None,
            advanced: false,
        }
    }
}

/// Returns settings of TLS 1.2 and 1.3 with the trusted certificates.
fn tls(trusted: Option<&Path>) -> Result<TlsConfig, Error> {
    let file = match trusted {
        Some(file) => Some(file.to_owned()),
        None => system_file(),
    };
    let mut certificates = Vec::new();
    // Without a file, only servers without TLS can be reached.
    if let Some(file) = file {
        let unreadable = |error| Error::Tls(format!("read {}: {error}", file.display()));
        let read = CertificateDer::pem_file_iter(&file).map_err(unreadable)?;
        for certificate in read {
            let certificate = certificate.map_err(unreadable)?;
            certificates.push(Certificate::from_der(&certificate).to_owned());
        }
    }
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(provider))
        .root_certs(RootCerts::from(certificates))
        .build())
}

fn system_file() -> Option<PathBuf> {
    let mut files = SYSTEM_FILES.iter().map(PathBuf::from);
    files.find(|file| file.exists())
}
