//! `longhaul://HOST[:PORT]/PATH`: a path at a daemon.

use std::io;

use longhaul_net::tcp::HostPort;

use super::Endpoint;
use super::error::EndpointError;
use super::kind::{Definition, Host, HostAccess, Kind};
use super::promises::Promises;
use super::remote_path::RemotePath;

/// Port of the daemon if the URL contains none.
pub const DEFAULT_PORT: u16 = 4960;

/// Begin of the URL.
const PREFIX: &str = "longhaul://";

pub(super) const KIND: Definition = Definition {
    name: "`longhaul://HOST/PATH`",
    notation: Some("longhaul://HOST[:PORT]/PATH (a daemon)"),
    promises: Promises {
        foreign: true,
        ..Promises::FILE_SYSTEM
    },
    parse,
};

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

impl Kind for Remote {
    fn definition(&self) -> &'static Definition {
        &KIND
    }

    fn text(&self) -> Vec<u8> {
        let path = self.path.text();
        let path = path.strip_prefix(b"/").unwrap_or(&path);
        [self.place().as_bytes(), b"/", path].concat()
    }

    fn identity(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let principal = self.principal.as_deref().unwrap_or_default();
        let mut fields = vec![
            b"daemon".to_vec(),
            principal.as_bytes().to_vec(),
            self.host.to_string().into_bytes(),
        ];
        fields.extend(self.path.identity());
        Ok(fields)
    }

    fn host(&self) -> Option<&dyn Host> {
        Some(self)
    }

    fn with_path(&self, path: Vec<u8>) -> Option<Endpoint> {
        self.path.as_path()?;
        Some(Endpoint::new(Remote {
            path: RemotePath::Path(path),
            ..self.clone()
        }))
    }
}

impl Host for Remote {
    fn place(&self) -> String {
        let principal = self.principal.as_ref();
        let principal = principal.map_or(String::new(), |name| format!("{name}@"));
        format!("{PREFIX}{principal}{}", self.host)
    }

    fn name(&self) -> &str {
        self.host.host()
    }

    fn path(&self) -> &RemotePath {
        &self.path
    }

    fn access(&self) -> HostAccess<'_> {
        HostAccess::Daemon(self)
    }
}

/// True if the name of a host, as a message or a job shows it, is that of a daemon.
pub fn names_daemon(host: &str) -> bool {
    host.starts_with(PREFIX)
}

fn parse(text: &[u8]) -> Option<Result<Endpoint, EndpointError>> {
    if let Some(rest) = text.strip_prefix(PREFIX.as_bytes()) {
        return Some(parse_rest(rest, text).map(Endpoint::new));
    }
    text.starts_with(b"longhaul:").then(|| {
        let shown = String::from_utf8_lossy(text).into_owned();
        Err(EndpointError::Url(shown))
    })
}

fn parse_rest(rest: &[u8], text: &[u8]) -> Result<Remote, EndpointError> {
    let shown = String::from_utf8_lossy(text).into_owned();
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
    let inner = path.strip_prefix(b"/").unwrap_or_default();
    let path = match RemotePath::parse_measured(inner, text)? {
        Some(measured) => measured,
        None => RemotePath::Path(without_dots(path)),
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
