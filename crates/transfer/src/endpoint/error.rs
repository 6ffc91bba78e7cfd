//! Errors in the text of an endpoint.

use longhaul_gridftp::location::LocationError;
use longhaul_stores::s3;
use longhaul_stores::url::UrlError;

use super::registry;

/// Hint that says how to set the port of ssh.
const NO_PORT: &str = "a port of ssh is --ssh 'ssh -p PORT', or Port in ~/.ssh/config";

/// Errors in the text of an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The URL has no host.
    #[error("{0}: write longhaul://HOST[:PORT]/PATH")]
    Url(String),
    /// The port is not a number from 1 to 65535.
    #[error("{0}: the port must be a number from 1 to 65535")]
    Port(String),
    /// The size is not a valid number of bytes.
    #[error("{0}: {1}")]
    Size(String, longhaul_units::ParseByteCountError),
    /// The text before the colon is not a valid host.
    #[error(
        "{0}: write [USER@]HOST:PATH, an IPv6 address as [ADDRESS]:PATH (a local file whose name \
         has a colon: ./{0})"
    )]
    Ssh(String),
    /// The text has two colons, as in rsync's notation for a daemon's module.
    #[error(
        "{shown}: longhaul has no modules as rsync's daemon has: write {destination}:PATH (over SSH) \
         or longhaul://{destination}/PATH (a daemon), {destination}:./{path} for a name that begins \
         with a colon"
    )]
    Module {
        /// The text as given.
        shown: String,
        /// Text before the colons.
        destination: String,
        /// Text after the first colon.
        path: String,
    },
    /// The path appears to start with a port, which ssh does not accept there.
    #[error("{shown}: {NO_PORT}; {destination}:./{path} is a name that begins so")]
    SshPort {
        /// The text as given.
        shown: String,
        /// Text before the first colon.
        destination: String,
        /// Text after the first colon.
        path: String,
    },
    /// The text appears to be a host without a colon and path.
    #[error(
        "{0} has no colon: write {0}: for that host (the home there; {0}:PATH for another place), \
         or ./{0} for a file or directory of that name here"
    )]
    Colon(String),
    /// The URL has an unknown scheme.
    #[error(
        "{shown}: {scheme}:// is nothing that longhaul knows: write {} or a local path{}",
        registry::notations(),
        of_port(scheme)
    )]
    Scheme {
        /// The text as given.
        shown: String,
        /// Scheme of the URL.
        scheme: String,
    },
    /// The path starts with `~USER`. Only a shell could resolve that home directory.
    #[error("{0}: ~USER is not looked up: write an absolute path")]
    Home(String),
    /// The URL of an FTP or GridFTP server is invalid. The message does not contain it, because it
    /// may contain a password.
    #[error("URL of an FTP server: {0}")]
    Ftp(LocationError),
    /// The URL contains a password.
    #[error("other users can see a password in a URL: write it into ~/.netrc")]
    Password,
    /// The URL of an archive is invalid. The message does not contain it.
    #[error("URL of an archive: {0}")]
    Http(UrlError),
    /// The URL of a bucket is invalid.
    #[error("URL of a bucket: {0}")]
    S3(s3::location::LocationError),
    /// The URL contains a query.
    #[error(
        "a URL with a query (?) is not accepted: it may contain a secret, and other users can see \
         it"
    )]
    Query,
    /// The text is empty.
    #[error("an empty path names nothing")]
    Empty,
}

/// Returns a hint about the port for the URL schemes of other login tools, or else an empty text.
fn of_port(scheme: &str) -> String {
    match scheme {
        "ssh" | "scp" | "sftp" => format!("; {NO_PORT}"),
        _ => String::new(),
    }
}
