//! Endpoints in the notation of users: a local path, `[user@]host:path` over SSH,
//! `longhaul://host/path` at a daemon, `null:` and `zero:SIZE`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_net::tcp::HostPort;
use longhaul_units::ByteCount;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Port of the daemon if the URL contains none.
pub const DEFAULT_PORT: u16 = 4960;

/// Hint that says how to set the port of ssh.
const NO_PORT: &str = "a port of ssh is --ssh 'ssh -p PORT', or Port in ~/.ssh/config";

/// Source or destination of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A path on this host.
    Local(Vec<u8>),
    /// A path at a daemon.
    Daemon(Remote),
    /// A path at a host that SSH reaches.
    Ssh(SshRemote),
    /// Discards all data.
    Null,
    /// Provides this many zero bytes without reading a file.
    Zero(ByteCount),
    /// Standard input or standard output.
    Standard,
}

/// A path at a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Name of the user at the daemon. `None` selects the one in the tokens file.
    pub principal: Option<String>,
    /// Host and port of the daemon.
    pub host: HostPort,
    /// Path at the daemon.
    pub path: RemotePath,
}

/// A path at a host that SSH reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshRemote {
    /// `[user@]host` for ssh. It does not start with a hyphen.
    pub destination: String,
    /// Path at that host. Relative paths start at the user's home directory.
    pub path: RemotePath,
}

/// Path at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemotePath {
    /// Path within a daemon's roots or on a host.
    Path(Vec<u8>),
    /// Discards all data at the other end.
    Null,
    /// Provides this many zero bytes at the other end.
    Zero(ByteCount),
}

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
        "{shown}: {scheme}:// is nothing that longhaul knows: write [USER@]HOST:PATH (over SSH), \
         longhaul://HOST[:PORT]/PATH (a daemon) or a local path{}",
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
    /// The text is empty.
    #[error("an empty path names nothing")]
    Empty,
}

impl Endpoint {
    /// Parses an endpoint.
    ///
    /// # Errors
    ///
    /// [`EndpointError`].
    pub fn parse(text: &OsStr) -> Result<Endpoint, EndpointError> {
        let bytes = text.as_bytes();
        let shown = || text.to_string_lossy().into_owned();
        if bytes.is_empty() {
            return Err(EndpointError::Empty);
        }
        if let Some(rest) = bytes.strip_prefix(b"longhaul://") {
            return parse_url(rest, shown()).map(Endpoint::Daemon);
        }
        if bytes == b"-" {
            return Ok(Endpoint::Standard);
        }
        if bytes == b"null:" {
            return Ok(Endpoint::Null);
        }
        if let Some(size) = bytes.strip_prefix(b"zero:") {
            return parse_size(size, &shown()).map(Endpoint::Zero);
        }
        if bytes.starts_with(b"longhaul:") {
            return Err(EndpointError::Url(shown()));
        }
        if let Some(scheme) = scheme_of(bytes) {
            let (shown, scheme) = (shown(), scheme.to_owned());
            return Err(EndpointError::Scheme { shown, scheme });
        }
        // As in scp, a colon before the first slash marks a host.
        let first = bytes.split(|&byte| byte == b'/').next().unwrap_or_default();
        if first.contains(&b':') {
            return parse_ssh(bytes, shown()).map(Endpoint::Ssh);
        }
        Ok(Endpoint::Local(bytes.to_vec()))
    }

    /// Returns the text that [`Endpoint::parse`] reads back as the same endpoint on the same host.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Endpoint::Local(path) => {
                let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
                let is_other = path == b"-" || first.contains(&b':');
                [if is_other { b"./" } else { &b""[..] }, path].concat()
            }
            Endpoint::Daemon(remote) => {
                let principal = remote.principal.as_ref();
                let principal = principal.map_or(String::new(), |name| format!("{name}@"));
                let place = format!("longhaul://{principal}{}/", remote.host);
                let path = remote.path.text();
                let path = path.strip_prefix(b"/").unwrap_or(&path);
                [place.as_bytes(), path].concat()
            }
            Endpoint::Ssh(remote) => {
                let path = remote.path.text();
                // A name that would be parsed as a home, a module or another kind of path gets the
                // prefix `./`.
                let is_other = match &remote.path {
                    RemotePath::Path(path) => {
                        let odd: [&[u8]; 4] = [b"~", b":", b"null:", b"zero:"];
                        begins_with_port(path) || odd.iter().any(|begins| path.starts_with(begins))
                    }
                    RemotePath::Null | RemotePath::Zero(_) => false,
                };
                let name = if is_other { b"./" } else { &b""[..] };
                [remote.bracketed().as_bytes(), b":", name, &path].concat()
            }
            Endpoint::Null => b"null:".to_vec(),
            Endpoint::Zero(size) => format!("zero:{}B", size.0).into_bytes(),
            Endpoint::Standard => b"-".to_vec(),
        }
    }

    /// Parses an endpoint, and rejects text that looks like a host without its colon.
    ///
    /// # Errors
    ///
    /// [`EndpointError`].
    pub fn parse_checked(text: &OsString) -> Result<Endpoint, EndpointError> {
        check_colons([text])?;
        Endpoint::parse(text)
    }

    /// Returns the other host with the user's name there, or `None` for this host. Endpoints with
    /// the same result share one session.
    pub fn place(&self) -> Option<String> {
        match self {
            Endpoint::Daemon(remote) => Some(match &remote.principal {
                Some(principal) => format!("longhaul://{principal}@{}", remote.host),
                None => format!("longhaul://{}", remote.host),
            }),
            Endpoint::Ssh(remote) => Some(remote.destination.clone()),
            Endpoint::Local(_) | Endpoint::Null | Endpoint::Zero(_) | Endpoint::Standard => None,
        }
    }

    /// Returns the name of the other host without a user name, or `None` for this host.
    pub fn host_name(&self) -> Option<&str> {
        match self {
            Endpoint::Daemon(remote) => Some(remote.host.host()),
            Endpoint::Ssh(remote) => {
                let destination = remote.destination.as_str();
                Some(destination.rsplit_once('@').map_or(destination, |it| it.1))
            }
            Endpoint::Local(_) | Endpoint::Null | Endpoint::Zero(_) | Endpoint::Standard => None,
        }
    }

    /// Returns the path at the other host, or `None` for this host.
    pub fn remote_path(&self) -> Option<&RemotePath> {
        match self {
            Endpoint::Daemon(remote) => Some(&remote.path),
            Endpoint::Ssh(remote) => Some(&remote.path),
            Endpoint::Local(_) | Endpoint::Null | Endpoint::Zero(_) | Endpoint::Standard => None,
        }
    }
}

impl RemotePath {
    fn text(&self) -> Vec<u8> {
        match self {
            RemotePath::Path(path) => path.clone(),
            RemotePath::Null => b"null:".to_vec(),
            RemotePath::Zero(size) => format!("zero:{}B", size.0).into_bytes(),
        }
    }
}

impl SshRemote {
    /// Returns `[user@]host` with brackets around an IPv6 address.
    fn bracketed(&self) -> String {
        let (user, host) = match self.destination.rsplit_once('@') {
            Some((user, host)) => (format!("{user}@"), host),
            None => (String::new(), self.destination.as_str()),
        };
        if host.contains(':') {
            format!("{user}[{host}]")
        } else {
            format!("{user}{host}")
        }
    }
}

/// A byte string in JSON: its text, or `{"bytes": [...]}` if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Written {
    /// Valid UTF-8.
    Text(String),
    /// Any other bytes.
    Bytes {
        /// Bytes of the string.
        bytes: Vec<u8>,
    },
}

impl Written {
    /// Returns the bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Written::Text(text) => text.as_bytes(),
            Written::Bytes { bytes } => bytes,
        }
    }
}

impl From<Vec<u8>> for Written {
    fn from(bytes: Vec<u8>) -> Written {
        match String::from_utf8(bytes) {
            Ok(text) => Written::Text(text),
            Err(error) => Written::Bytes {
                bytes: error.into_bytes(),
            },
        }
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written::from(self.text()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Endpoint, D::Error> {
        let bytes = match Written::deserialize(deserializer)? {
            Written::Text(text) => text.into_bytes(),
            Written::Bytes { bytes } => bytes,
        };
        Endpoint::parse(OsStr::from_bytes(&bytes)).map_err(D::Error::custom)
    }
}

/// Rejects text that looks like a host without its colon. It would otherwise be a local path, which
/// a copy would create without notice.
///
/// # Errors
///
/// [`EndpointError::Colon`].
pub fn check_colons<'a>(
    texts: impl IntoIterator<Item = &'a OsString>,
) -> Result<(), EndpointError> {
    for text in texts {
        let bytes = text.as_bytes();
        let is_host = bytes.contains(&b'@') && !bytes.iter().any(|byte| b"/:".contains(byte));
        if is_host && Path::new(text).symlink_metadata().is_err() {
            return Err(EndpointError::Colon(text.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

/// Returns the scheme of a URL, the text before `://`. A host's absolute path has only one slash
/// there.
fn scheme_of(text: &[u8]) -> Option<&str> {
    let end = text.windows(3).position(|three| three == b"://")?;
    let scheme = std::str::from_utf8(&text[..end]).ok()?;
    let rest = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let is_one = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(rest);
    is_one.then_some(scheme)
}

/// Returns a hint about the port for the URL schemes of other login tools, or else an empty text.
fn of_port(scheme: &str) -> String {
    match scheme {
        "ssh" | "scp" | "sftp" => format!("; {NO_PORT}"),
        _ => String::new(),
    }
}

/// True if a path starts with digits and a colon, like a port.
fn begins_with_port(path: &[u8]) -> bool {
    let digits = path.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && path.get(digits) == Some(&b':')
}

/// Parses `[user@]host:path`. An IPv6 address is in brackets. A user name may contain `@`, as in
/// some directory services.
fn parse_ssh(text: &[u8], shown: String) -> Result<SshRemote, EndpointError> {
    let bad = || EndpointError::Ssh(shown.clone());
    let first = |of: &[u8], wanted| of.iter().position(|&byte| byte == wanted);
    let start = first(text, b':').unwrap_or(text.len());
    let start = text[..start].iter().rposition(|&byte| byte == b'@');
    let start = start.map_or(0, |at| at + 1);
    let bracket = text.get(start) == Some(&b'[');
    let from = if bracket {
        first(text, b']').ok_or_else(bad)?
    } else {
        0
    };
    let colon = from + first(text.get(from..).unwrap_or_default(), b':').ok_or_else(bad)?;
    let destination = std::str::from_utf8(&text[..colon]).map_err(|_| bad())?;
    let (user, host) = match destination.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, destination),
    };
    let bare = if bracket {
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
    } else {
        Some(host)
    };
    let bare = bare.ok_or_else(bad)?;
    // A text that starts with a hyphen would be an option of ssh.
    let is_word = |word: &str, never: &str| {
        let odd = |c: char| c.is_whitespace() || c.is_control() || never.contains(c);
        !word.is_empty() && !word.starts_with('-') && !word.contains(odd)
    };
    if !is_word(bare, "/[]@") || user.is_some_and(|user| !is_word(user, "/[]")) {
        return Err(bad());
    }
    let path = &text[colon + 1..];
    if path.starts_with(b":") {
        return Err(EndpointError::Module {
            shown,
            destination: destination.to_owned(),
            path: String::from_utf8_lossy(path).into_owned(),
        });
    }
    if begins_with_port(path) {
        return Err(EndpointError::SshPort {
            shown,
            destination: destination.to_owned(),
            path: String::from_utf8_lossy(path).into_owned(),
        });
    }
    let path = match path {
        b"null:" => RemotePath::Null,
        _ => match path.strip_prefix(b"zero:") {
            Some(size) => RemotePath::Zero(parse_size(size, &shown)?),
            None => RemotePath::Path(from_home(path, &shown)?),
        },
    };
    let user = user.map_or(String::new(), |user| format!("{user}@"));
    Ok(SshRemote {
        destination: format!("{user}{bare}"),
        path,
    })
}

/// Returns the path for the remote process, whose working directory is the home directory.
fn from_home(path: &[u8], shown: &str) -> Result<Vec<u8>, EndpointError> {
    let rest: &[u8] = match path {
        b"" | b"~" => b".",
        b"~/" => b"./",
        _ => match path.strip_prefix(b"~/") {
            Some(rest) => rest,
            None if path.starts_with(b"~") => return Err(EndpointError::Home(shown.to_owned())),
            None => path,
        },
    };
    // `~//x` is also inside the home directory.
    let absolute = path.starts_with(b"~") && rest.starts_with(b"/");
    Ok(if absolute {
        [b".", rest].concat()
    } else {
        rest.to_vec()
    })
}

fn parse_size(size: &[u8], shown: &str) -> Result<ByteCount, EndpointError> {
    let size = String::from_utf8_lossy(size);
    size.parse()
        .map_err(|error| EndpointError::Size(shown.to_owned(), error))
}

fn parse_url(rest: &[u8], shown: String) -> Result<Remote, EndpointError> {
    let slash = rest
        .iter()
        .position(|&byte| byte == b'/')
        .unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let authority =
        std::str::from_utf8(authority).map_err(|_| EndpointError::Url(shown.clone()))?;
    let (principal, host) = match authority.rsplit_once('@') {
        Some((principal, host)) => (Some(principal.to_owned()), host),
        None => (None, authority),
    };
    let (host, port) = split_port(host);
    let port = match port {
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port > 0 => port,
            _ => return Err(EndpointError::Port(shown)),
        },
        None => DEFAULT_PORT,
    };
    if host.is_empty() || principal.as_deref() == Some("") {
        return Err(EndpointError::Url(shown));
    }
    let path = match path {
        b"/null:" => RemotePath::Null,
        path => match path.strip_prefix(b"/zero:") {
            Some(size) => RemotePath::Zero(parse_size(size, &shown)?),
            None => RemotePath::Path(without_dots(path)),
        },
    };
    Ok(Remote {
        principal,
        host: HostPort::new(host, port),
        path,
    })
}

/// Removes `.` names, since a daemon has no working directory. A final `.` becomes a final slash.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let names = path.split(|&byte| byte == b'/');
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut cleaned = Vec::with_capacity(path.len() + 1);
    for name in names.filter(|name| !matches!(*name, b"" | b".")) {
        cleaned.push(b'/');
        cleaned.extend_from_slice(name);
    }
    if cleaned.is_empty() || matches!(last, b"" | b".") {
        cleaned.push(b'/');
    }
    cleaned
}

/// Splits the authority into host and port. Accepts `host`, `host:port`, `[v6]` and `[v6]:port`.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    if let Some(rest) = authority.strip_prefix('[')
        && let Some((host, after)) = rest.split_once(']')
    {
        return (host, after.strip_prefix(':'));
    }
    match authority.rsplit_once(':') {
        // An IPv6 address without brackets cannot have a port.
        Some((host, _)) if host.contains(':') => (authority, None),
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(OsStr::new(text))
    }

    fn remote(text: &str) -> Remote {
        match parse(text) {
            Ok(Endpoint::Daemon(remote)) => remote,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        let full = remote("longhaul://alice@dtn.example.org:7000/data/run 1/");
        assert_eq!(full.principal.as_deref(), Some("alice"));
        assert_eq!(full.host, HostPort::new("dtn.example.org", 7000));
        assert_eq!(full.path, RemotePath::Path(b"/data/run 1/".to_vec()));
        let bare = remote("longhaul://dtn");
        assert_eq!((bare.principal, bare.host.port()), (None, DEFAULT_PORT));
        assert_eq!(
            remote("longhaul://[::1]:8000/x").host,
            HostPort::new("::1", 8000)
        );
        for (written, meant) in [
            ("", "/"),
            ("/.", "/"),
            ("/a/./b", "/a/b"),
            ("/a/.", "/a/"),
            ("//a//", "/a/"),
            ("/a/..", "/a/.."),
            ("/.a.", "/.a."),
        ] {
            let path = remote(&format!("longhaul://h{written}")).path;
            assert_eq!(path, RemotePath::Path(meant.into()), "{written}");
        }
        assert_eq!(remote("longhaul://h/null:").path, RemotePath::Null);
        assert_eq!(
            remote("longhaul://h/zero:1kB").path,
            RemotePath::Zero(ByteCount(1000))
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "a/b:c",
            "./-",
            "-",
            "null:",
            "zero:7B",
            "host:path",
            "host:.",
            "user@host:/abs/./x/",
            "u@[2001:db8::7]:data",
            "host:null:",
            "host:zero:9B",
            "longhaul://alice@dtn:7000/data/run 1/",
            "longhaul://dtn",
            "longhaul://[::1]:8000/null:",
            "longhaul://dtn/zero:8B",
        ] {
            let endpoint = parse(text).unwrap();
            let again = Endpoint::parse(OsStr::from_bytes(&endpoint.text())).unwrap();
            assert_eq!(again, endpoint, "{text}");
            let json = serde_json::to_string(&endpoint).unwrap();
            let read: Endpoint = serde_json::from_str(&json).unwrap();
            assert_eq!(read, endpoint, "{json}");
        }
        // These texts differ from their input but mean the same.
        for (path, text) in [("-", "./-"), ("a:b", "./a:b"), ("null:", "./null:")] {
            let local = Endpoint::Local(path.into());
            assert_eq!(local.text(), text.as_bytes());
        }
        for (path, text) in [("~x", "host:./~x"), ("22:x", "host:./22:x")] {
            let odd = parse(&format!("host:~/{path}")).unwrap();
            assert_eq!(odd.text(), text.as_bytes());
            assert!(parse(text).is_ok());
        }
        let bytes = Endpoint::Local(b"\xff".to_vec());
        let json = serde_json::to_string(&bytes).unwrap();
        assert_eq!(json, r#"{"bytes":[255]}"#);
        assert_eq!(serde_json::from_str::<Endpoint>(&json).unwrap(), bytes);
        assert!(serde_json::from_str::<Endpoint>(r#""-oProxyCommand=x:y""#).is_err());
    }

    #[test]
    fn the_rest_is_local_or_refused() {
        assert_eq!(parse("a/b:c").unwrap(), Endpoint::Local(b"a/b:c".to_vec()));
        assert_eq!(parse("null:").unwrap(), Endpoint::Null);
        assert_eq!(parse("-").unwrap(), Endpoint::Standard);
        assert_eq!(parse("./-").unwrap(), Endpoint::Local(b"./-".to_vec()));
        assert_eq!(
            parse("zero:1MiB").unwrap(),
            Endpoint::Zero(ByteCount(1 << 20))
        );
        assert!(matches!(parse(":x"), Err(EndpointError::Ssh(_))));
        for url in ["http://x/y", "ssh://u@h/x", "s3://b"] {
            let refused = parse(url).unwrap_err().to_string();
            let scheme = url.split_once('/').unwrap().0;
            assert!(
                refused.contains(&format!("{scheme}// is nothing")),
                "{refused}"
            );
            assert_eq!(
                refused.contains("ssh -p PORT"),
                scheme == "ssh:",
                "{refused}"
            );
        }
        assert_eq!(
            parse("a/b://c").unwrap(),
            Endpoint::Local(b"a/b://c".to_vec())
        );
        assert!(matches!(parse("longhaul:///x"), Err(EndpointError::Url(_))));
        assert!(matches!(
            parse("longhaul://h:0/x"),
            Err(EndpointError::Port(_))
        ));
        assert!(matches!(
            parse("longhaul://h:99999/x"),
            Err(EndpointError::Port(_))
        ));
        assert!(matches!(parse("zero:many"), Err(EndpointError::Size(..))));
        assert!(matches!(parse(""), Err(EndpointError::Empty)));
    }

    #[test]
    fn hosts_before_a_colon_are_reached_by_ssh() {
        for (written, destination, path) in [
            ("host:x/y", "host", "x/y"),
            ("user@host:/x:y", "user@host", "/x:y"),
            ("u@[2001:db8::7]:a", "u@2001:db8::7", "a"),
            ("[::1]:", "::1", "."),
            ("u@corp.example@host:x", "u@corp.example@host", "x"),
            ("u@corp@[::1]:x", "u@corp@::1", "x"),
            ("host:a@[b]:c", "host", "a@[b]:c"),
            ("host:~", "host", "."),
            ("host:~/data/", "host", "data/"),
            ("host:~/", "host", "./"),
            ("host:~//x", "host", "./x"),
        ] {
            let expected = SshRemote {
                destination: destination.to_owned(),
                path: RemotePath::Path(path.into()),
            };
            assert_eq!(
                parse(written).unwrap(),
                Endpoint::Ssh(expected),
                "{written}"
            );
        }
        let measured = |path| {
            Endpoint::Ssh(SshRemote {
                destination: "h".into(),
                path,
            })
        };
        assert_eq!(parse("h:null:").unwrap(), measured(RemotePath::Null));
        let zero = RemotePath::Zero(ByteCount(1000));
        assert_eq!(parse("h:zero:1kB").unwrap(), measured(zero));
        for bad in [
            "-oProxyCommand=x:y",
            "a@-b:c",
            "[::1:x",
            "a b:c",
            "@h:x",
            "::1:x",
            "[a]b:c",
        ] {
            let parsed = parse(bad);
            assert!(
                matches!(parsed, Err(EndpointError::Ssh(_))),
                "{bad}: {parsed:?}"
            );
        }
        assert!(matches!(parse("h:~u/x"), Err(EndpointError::Home(_))));
        for port in ["h:22:x", "u@h:22822:/x", "[::1]:22:", "h:22:"] {
            let refused = parse(port).unwrap_err().to_string();
            assert!(
                refused.contains("ssh -p PORT") && refused.contains(":./22"),
                "{refused}"
            );
        }
        for name in ["h:22", "h:22/x", "h:22x:y", "h:./22:x"] {
            assert!(matches!(parse(name), Ok(Endpoint::Ssh(_))), "{name}");
        }
    }
}
