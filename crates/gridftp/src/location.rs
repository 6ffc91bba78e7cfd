//! URLs of files at FTP and GridFTP servers.

use std::fmt;

/// Protocol of the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `ftp://`: TCP, with TLS if the server offers it.
    Ftp,
    /// `gsiftp://`: GridFTP over TCP.
    Gsiftp,
    /// `sshftp://`: GridFTP over SSH.
    Sshftp,
}

impl Scheme {
    /// Returns the scheme in front of `://`.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Ftp => "ftp",
            Scheme::Gsiftp => "gsiftp",
            Scheme::Sshftp => "sshftp",
        }
    }

    /// Returns the port if the URL contains none. `None` leaves the choice to ssh.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Scheme::Ftp => Some(21),
            Scheme::Gsiftp => Some(2811),
            Scheme::Sshftp => None,
        }
    }
}

/// A path at a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Location {
    /// Protocol of the control connection.
    pub scheme: Scheme,
    /// Name of the user. `None` means an anonymous login, or the user that ssh chooses.
    pub user: Option<String>,
    /// Password of the user.
    pub password: Option<String>,
    /// Name or address of the host, without brackets. It does not begin with a hyphen.
    pub host: String,
    /// Port of the server. `None` means the default of the scheme.
    pub port: Option<u16>,
    /// Path at the server: absolute, or relative to the directory after the login. It contains
    /// no line break and no zero byte, and is not empty.
    pub path: Vec<u8>,
}

impl fmt::Debug for Location {
    /// Writes the URL without the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        write!(formatter, "{}://{}", self.scheme.name(), self.host)?;
        write!(formatter, ":{:?}{path:?}", self.port)
    }
}

/// Reasons to reject a URL. The messages do not contain the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The URL has none of the three schemes.
    #[error("the URL must begin with ftp://, gsiftp:// or sshftp://")]
    Scheme,
    /// The host is missing, or contains characters that no host has.
    #[error("the URL has no valid host: write SCHEME://[USER@]HOST[:PORT]/PATH")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// The URL has no path.
    #[error("the URL has no path: write SCHEME://[USER@]HOST[:PORT]/PATH")]
    Path,
    /// A percent sign is not followed by two hexadecimal digits.
    #[error(
        "a percent sign in the URL must be followed by two hexadecimal digits (%25 for itself)"
    )]
    Percent,
    /// The user, password or path contains a line break or a zero byte.
    #[error("FTP cannot express a line break or a zero byte in a name")]
    LineBreak,
    /// The user or the password is not UTF-8.
    #[error("the user and the password must be UTF-8")]
    Encoding,
}

/// Returns the scheme of a URL and the rest after `://`.
fn split_scheme(text: &[u8]) -> Option<(Scheme, &[u8])> {
    [Scheme::Ftp, Scheme::Gsiftp, Scheme::Sshftp]
        .into_iter()
        .find_map(|scheme| {
            let rest = text.strip_prefix(scheme.name().as_bytes())?;
            Some((scheme, rest.strip_prefix(b"://")?))
        })
}

impl Location {
    /// True if the text has a scheme of this crate.
    pub fn is_location(text: &[u8]) -> bool {
        split_scheme(text).is_some()
    }

    /// Parses `SCHEME://[USER[:PASSWORD]@]HOST[:PORT]/PATH`. The path is absolute; `/~/PATH` is
    /// relative to the directory after the login. User, password and path may contain bytes as
    /// `%XX`.
    ///
    /// # Errors
    ///
    /// [`LocationError`].
    pub fn parse(text: &[u8]) -> Result<Location, LocationError> {
        let (scheme, rest) = split_scheme(text).ok_or(LocationError::Scheme)?;
        let slash = rest.iter().position(|byte| *byte == b'/');
        let slash = slash.ok_or(LocationError::Path)?;
        let (authority, path) = rest.split_at(slash);
        let (user, host) = match authority.iter().rposition(|byte| *byte == b'@') {
            Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
            None => (None, authority),
        };
        let (user, password) = user.map_or(Ok((None, None)), login)?;
        let (host, port) = host_and_port(host)?;
        Ok(Location {
            scheme,
            user,
            password,
            host,
            port,
            path: path_of(&decoded(path)?)?,
        })
    }
}

/// Splits `USER[:PASSWORD]`.
fn login(text: &[u8]) -> Result<(Option<String>, Option<String>), LocationError> {
    let (user, password) = match text.iter().position(|byte| *byte == b':') {
        Some(colon) => (&text[..colon], Some(&text[colon + 1..])),
        None => (text, None),
    };
    let text_of = |bytes: &[u8]| {
        let bytes = without_line_breaks(decoded(bytes)?)?;
        String::from_utf8(bytes).map_err(|_| LocationError::Encoding)
    };
    let user = text_of(user)?;
    if user.is_empty() || user.starts_with('-') {
        return Err(LocationError::Host);
    }
    Ok((Some(user), password.map(text_of).transpose()?))
}

/// Splits `HOST[:PORT]`, where an IPv6 address has brackets.
fn host_and_port(text: &[u8]) -> Result<(String, Option<u16>), LocationError> {
    let text = std::str::from_utf8(text).map_err(|_| LocationError::Host)?;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(LocationError::Host)?;
            let is_address = host.parse::<std::net::Ipv6Addr>().is_ok();
            if !is_address || !(after.is_empty() || after.starts_with(':')) {
                return Err(LocationError::Host);
            }
            (host, after.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || host.starts_with('-') || !host.chars().all(allowed) {
        return Err(LocationError::Host);
    }
    let port = port.map(port_number).transpose()?;
    Ok((host.to_owned(), port))
}

/// Parses a port.
fn port_number(text: &str) -> Result<u16, LocationError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok();
    number
        .filter(|number| digits && *number != 0)
        .ok_or(LocationError::Port)
}

/// Returns the path as the server takes it.
fn path_of(path: &[u8]) -> Result<Vec<u8>, LocationError> {
    let path = without_line_breaks(path.to_vec())?;
    Ok(match path.strip_prefix(b"/~") {
        Some(b"" | b"/") => b".".to_vec(),
        Some(rest) if rest.starts_with(b"/") => {
            let start = rest.iter().position(|byte| *byte != b'/');
            start.map_or_else(|| b".".to_vec(), |start| relative(&rest[start..]))
        }
        _ => path,
    })
}

/// Returns a relative path that a server cannot take for an option.
fn relative(path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"-") {
        [b"./", path].concat()
    } else {
        path.to_vec()
    }
}

fn without_line_breaks(bytes: Vec<u8>) -> Result<Vec<u8>, LocationError> {
    let forbidden = bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if forbidden {
        Err(LocationError::LineBreak)
    } else {
        Ok(bytes)
    }
}

/// Replaces `%XX` by the byte.
fn decoded(text: &[u8]) -> Result<Vec<u8>, LocationError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = after
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok());
        let digits = digits.filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.ok_or(LocationError::Percent)?);
        rest = &after[2..];
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(text.as_bytes())
    }

    #[test]
    fn urls_are_parsed() {
        let found = parse("gsiftp://u%40v:p%3aw@host:2811/a%20b/").unwrap();
        assert_eq!(found.scheme, Scheme::Gsiftp);
        assert_eq!(found.user.as_deref(), Some("u@v"));
        assert_eq!(found.password.as_deref(), Some("p:w"));
        assert_eq!((found.host.as_str(), found.port), ("host", Some(2811)));
        assert_eq!(found.path, b"/a b/");
        assert!(!format!("{found:?}").contains("p:w"));
        let found = parse("ftp://[::1]:21/").unwrap();
        assert_eq!((found.host.as_str(), found.port), ("::1", Some(21)));
        for (url, path) in [
            ("ftp://h/x", "/x"),
            ("ftp://h//x", "//x"),
            ("ftp://h/~/x", "x"),
            ("ftp://h/~//x/", "x/"),
            ("ftp://h/~/-x", "./-x"),
            ("ftp://h/~", "."),
            ("ftp://h/~u/x", "/~u/x"),
        ] {
            assert_eq!(parse(url).unwrap().path, path.as_bytes(), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused() {
        for (url, error) in [
            ("http://h/x", LocationError::Scheme),
            ("ftp:/h/x", LocationError::Scheme),
            ("ftp://h", LocationError::Path),
            ("ftp:///x", LocationError::Host),
            ("ftp://-oProxyCommand=x/y", LocationError::Host),
            ("sshftp://-l@h/x", LocationError::Host),
            ("ftp://@h/x", LocationError::Host),
            ("ftp://h h/x", LocationError::Host),
            ("ftp://[::1/x", LocationError::Host),
            ("ftp://[h]/x", LocationError::Host),
            ("ftp://h:0/x", LocationError::Port),
            ("ftp://h:/x", LocationError::Port),
            ("ftp://h:+1/x", LocationError::Port),
            ("ftp://h:99999/x", LocationError::Port),
            ("ftp://h/%0d%0aDELE%20x", LocationError::LineBreak),
            ("ftp://u%0a@h/x", LocationError::LineBreak),
            ("ftp://h/%2", LocationError::Percent),
            ("ftp://h/%+1", LocationError::Percent),
            ("ftp://u%ff@h/x", LocationError::Encoding),
        ] {
            assert_eq!(parse(url).err(), Some(error), "{url}");
        }
    }
}
