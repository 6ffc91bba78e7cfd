//! `[USER@]HOST:PATH`: a path at a host that SSH reaches.

use std::io;

use super::Endpoint;
use super::error::EndpointError;
use super::kind::{Definition, Host, HostAccess, Kind};
use super::promises::Promises;
use super::remote_path::RemotePath;

pub(super) const KIND: Definition = Definition {
    name: "`HOST:PATH`",
    notation: Some("[USER@]HOST:PATH (over SSH)"),
    promises: Promises {
        always_encrypted: true,
        ..Promises::FILE_SYSTEM
    },
    parse,
};

/// A path at a host that SSH reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshRemote {
    /// `[user@]host` for ssh. It does not start with a hyphen.
    pub destination: String,
    /// Path at that host. Relative paths start at the user's home directory.
    pub path: RemotePath,
}

impl Kind for SshRemote {
    fn definition(&self) -> &'static Definition {
        &KIND
    }

    fn text(&self) -> Vec<u8> {
        let path = self.path.text();
        // A name that would be parsed as a home, a module or another kind of path gets the prefix
        // `./`.
        let is_other = self.path.as_path().is_some_and(|path| {
            let odd: [&[u8]; 4] = [b"~", b":", b"null:", b"zero:"];
            begins_with_port(path) || odd.iter().any(|begins| path.starts_with(begins))
        });
        let name = if is_other { b"./" } else { &b""[..] };
        [self.bracketed().as_bytes(), b":", name, &path].concat()
    }

    fn identity(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let mut fields = vec![b"ssh".to_vec(), self.destination.clone().into_bytes()];
        fields.extend(self.path.identity());
        Ok(fields)
    }

    fn host(&self) -> Option<&dyn Host> {
        Some(self)
    }

    fn with_path(&self, path: Vec<u8>) -> Option<Endpoint> {
        self.path.as_path()?;
        Some(Endpoint::new(SshRemote {
            path: RemotePath::Path(path),
            destination: self.destination.clone(),
        }))
    }
}

impl Host for SshRemote {
    fn place(&self) -> String {
        self.destination.clone()
    }

    fn name(&self) -> &str {
        let destination = self.destination.as_str();
        destination.rsplit_once('@').map_or(destination, |it| it.1)
    }

    fn path(&self) -> &RemotePath {
        &self.path
    }

    fn access(&self) -> HostAccess<'_> {
        HostAccess::Login(self)
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

/// Parses a text with a colon before the first slash, which marks a host, as in scp.
fn parse(text: &[u8]) -> Option<Result<Endpoint, EndpointError>> {
    if let Some(scheme) = scheme_of(text) {
        let shown = String::from_utf8_lossy(text).into_owned();
        let scheme = scheme.to_owned();
        return Some(Err(EndpointError::Scheme { shown, scheme }));
    }
    let first = text.split(|&byte| byte == b'/').next().unwrap_or_default();
    first
        .contains(&b':')
        .then(|| parse_path(text).map(Endpoint::new))
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

/// True if a path starts with digits and a colon, like a port.
fn begins_with_port(path: &[u8]) -> bool {
    let digits = path.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && path.get(digits) == Some(&b':')
}

/// Parses `[user@]host:path`. An IPv6 address is in brackets. A user name may contain `@`, as in
/// some directory services.
fn parse_path(text: &[u8]) -> Result<SshRemote, EndpointError> {
    let shown = String::from_utf8_lossy(text).into_owned();
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
    let path = match RemotePath::parse_measured(path, text)? {
        Some(measured) => measured,
        None => RemotePath::Path(from_home(path, &shown)?),
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
