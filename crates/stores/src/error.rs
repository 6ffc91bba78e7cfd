//! Errors of requests.

use std::io;

/// Reasons for the failure of a request. The messages contain no query and no credentials.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a status that is an error.
    #[error("the server answered {status}{}", of_reason(reason))]
    Refused {
        /// Status code, from 300 to 599.
        status: u16,
        /// Reason that the server named, without control characters. It may be empty.
        reason: String,
    },
    /// The server could not be reached, or the connection failed.
    #[error("{0}")]
    Connection(String),
    /// The certificate of the server is not trusted, or TLS failed otherwise.
    #[error("TLS: {0}")]
    Tls(String),
    /// The server sent no data for the time that the options allow.
    #[error("the server sent no data for {seconds} seconds")]
    Silent {
        /// Time without data in seconds.
        seconds: u64,
    },
    /// The response is longer or shorter than it says.
    #[error("the server sent {received} of {expected} bytes")]
    Incomplete {
        /// Number of bytes that arrived.
        received: u64,
        /// Expected number of bytes.
        expected: u64,
    },
    /// The object has another version than before.
    #[error("the object changed at the server")]
    Changed,
    /// The server does not send parts of the object.
    #[error("the server does not send parts of the object")]
    NoRanges,
    /// A response has an unexpected form or exceeds a bound.
    #[error("{0}")]
    Unexpected(String),
    /// A redirect leads to a URL that is not followed.
    #[error("the server redirects to {0}")]
    Redirect(&'static str),
    /// No valid credentials are available.
    #[error("credentials: {0}")]
    Credentials(String),
    /// The receiver of the data failed.
    #[error("{0}")]
    Local(#[source] io::Error),
}

fn of_reason(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    }
}

impl Error {
    /// True if the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Refused { status, .. } => matches!(status, 408 | 429 | 500 | 502..=504),
            Error::Connection(_) | Error::Silent { .. } | Error::Incomplete { .. } => true,
            _ => false,
        }
    }

    /// True if the server requires other credentials.
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            Error::Refused {
                status: 401 | 403 | 407,
                ..
            } | Error::Credentials(_)
        )
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Refused {
                status: 404 | 410, ..
            } => io::ErrorKind::NotFound,
            Error::Refused {
                status: 401 | 403, ..
            } => io::ErrorKind::PermissionDenied,
            Error::Silent { .. } => io::ErrorKind::TimedOut,
            Error::Connection(_) | Error::Incomplete { .. } => io::ErrorKind::ConnectionReset,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
