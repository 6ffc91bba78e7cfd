//! URLs of `http` and `https`.

use std::fmt;
use std::net::Ipv6Addr;

/// Maximum length of a URL in bytes.
const MAXIMUM_BYTES: usize = 16 << 10;

/// Protocol of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// TCP without encryption.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// Returns the scheme in front of `://`.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// A URL.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// Protocol of the connection.
    pub scheme: Scheme,
    /// Name or address of the host, without brackets.
    pub host: String,
    /// Port, if it is not the default.
    pub port: Option<u16>,
    /// Path with encoded characters. It begins with a slash.
    pub path: String,
    /// Query without its question mark. It may contain a secret.
    pub query: Option<String>,
}

impl fmt::Debug for Url {
    /// Writes the URL without its query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

/// Reasons to reject a URL. The messages do not contain the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The scheme is a different one.
    #[error("the URL must begin with http:// or https://")]
    Scheme,
    /// The URL contains a user.
    #[error("a URL with a user or a password is not accepted, because other users can see it")]
    User,
    /// The host is missing, or contains characters that no host has.
    #[error("the URL has no valid host")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// The path contains control characters, spaces or other characters that must be encoded, or
    /// a percent sign without two hexadecimal digits.
    #[error("special characters of the URL must be written as %XX")]
    Character,
    /// A name of the path is `..` or `.`, or contains a slash or a zero byte.
    #[error("the path of the URL has a name that no file can have")]
    Name,
    /// The URL is too long.
    #[error("the URL is too long")]
    Long,
}

impl Url {
    /// True if the text has one of the two schemes.
    pub fn is_url(text: &[u8]) -> bool {
        let prefix = |scheme: &[u8]| {
            text.get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        prefix(b"http://") || prefix(b"https://")
    }

    /// Parses an absolute URL. A fragment is dropped.
    ///
    /// # Errors
    ///
    /// [`UrlError`].
    pub fn parse(text: &str) -> Result<Url, UrlError> {
        if text.len() > MAXIMUM_BYTES {
            return Err(UrlError::Long);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let scheme = [Scheme::Http, Scheme::Https]
            .into_iter()
            .find(|known| known.name().eq_ignore_ascii_case(scheme))
            .ok_or(UrlError::Scheme)?;
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::User);
        }
        let (host, port) = host_and_port(authority)?;
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (path, None),
        };
        let is_valid = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_valid(path) || !query.as_deref().is_none_or(is_valid) {
            return Err(UrlError::Character);
        }
        Ok(Url {
            scheme,
            host,
            port: port.filter(|port| *port != scheme.default_port()),
            path: if path.is_empty() { "/" } else { path }.to_owned(),
            query,
        })
    }

    /// Returns the scheme, host and port.
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme.name(), self.authority())
    }

    /// Returns the host and the port as the header `Host` has them.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match self.port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// Returns the whole URL. It must not be shown, because the query may contain a secret.
    pub fn text(&self) -> String {
        let query = self.query.as_ref();
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{}{query}", self.origin(), self.path)
    }

    /// Returns the decoded path.
    ///
    /// # Errors
    ///
    /// [`UrlError::Character`] or [`UrlError::Name`].
    pub fn decoded_path(&self) -> Result<Vec<u8>, UrlError> {
        let mut whole = Vec::new();
        for (number, name) in self.path.split('/').enumerate() {
            let name = decode(name)?;
            if matches!(&name[..], b"." | b"..") || name.iter().any(|byte| b"/\0".contains(byte)) {
                return Err(UrlError::Name);
            }
            if number > 0 {
                whole.push(b'/');
            }
            whole.extend(name);
        }
        Ok(whole)
    }

    /// Returns the URL with another path, which is not encoded, and without a query.
    pub fn with_path(&self, path: &[u8]) -> Url {
        Url {
            path: encode_path(path),
            query: None,
            ..self.clone()
        }
    }

    /// Resolves a reference, as a redirect or a link of a page has it (RFC 3986, section 5).
    ///
    /// # Errors
    ///
    /// [`UrlError`].
    pub fn join(&self, reference: &str) -> Result<Url, UrlError> {
        if reference.len() > MAXIMUM_BYTES {
            return Err(UrlError::Long);
        }
        let reference = reference.split('#').next().unwrap_or_default();
        let scheme = reference.find(':').map(|end| &reference[..end]);
        let is_scheme = |text: &&str| {
            text.starts_with(|first: char| first.is_ascii_alphabetic())
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        };
        let absolute = if scheme.filter(is_scheme).is_some() {
            reference.to_owned()
        } else if reference.starts_with("//") {
            format!("{}:{reference}", self.scheme.name())
        } else {
            let (path, query) = match reference.split_once('?') {
                Some((path, query)) => (path, format!("?{query}")),
                None => (reference, String::new()),
            };
            let directory = self.path.rfind('/').map_or("/", |end| &self.path[..=end]);
            let path = match path {
                "" => self.path.clone(),
                _ if path.starts_with('/') => path.to_owned(),
                _ => format!("{directory}{path}"),
            };
            format!("{}{path}{query}", self.origin())
        };
        let mut url = Url::parse(&absolute)?;
        url.path = without_dots(&url.path);
        Ok(url)
    }
}

/// Splits `HOST[:PORT]`, where an IPv6 address has brackets.
fn host_and_port(text: &str) -> Result<(String, Option<u16>), UrlError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(UrlError::Host)?;
            if host.parse::<Ipv6Addr>().is_err() || !(after.is_empty() || after.starts_with(':')) {
                return Err(UrlError::Host);
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
        return Err(UrlError::Host);
    }
    let port = match port {
        None | Some("") => None,
        Some(port) => {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|number| digits && *number != 0);
            Some(number.ok_or(UrlError::Port)?)
        }
    };
    Ok((host.to_ascii_lowercase(), port))
}

/// Removes the names `.` and `..`.
fn without_dots(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut ends_with_slash = false;
    for name in path.split('/').skip(1) {
        ends_with_slash = matches!(name, "." | "..");
        match name {
            "." => {}
            ".." => {
                names.pop();
            }
            _ => names.push(name),
        }
    }
    let mut whole: String = names.iter().flat_map(|name| ["/", name]).collect();
    if ends_with_slash || whole.is_empty() {
        whole.push('/');
    }
    whole
}

/// Replaces `%XX` by the byte.
///
/// # Errors
///
/// [`UrlError::Character`].
pub fn decode(text: &str) -> Result<Vec<u8>, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
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
        bytes.push(byte.ok_or(UrlError::Character)?);
        rest = &after[2..];
    }
    Ok(bytes)
}

/// Encodes all bytes except the unreserved ones and slashes.
pub fn encode_path(path: &[u8]) -> String {
    encode(path, b"-._~/")
}

/// Encodes all bytes except letters, digits and some others.
pub fn encode(bytes: &[u8], kept: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || kept.contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn urls_are_parsed_and_written() {
        for (text, written) in [
            ("https://Host/a%20b", "https://host/a%20b"),
            ("HTTP://h:80", "http://h/"),
            ("https://h:8443/x?y=z#f", "https://h:8443/x?y=z"),
            ("http://[::1]:8080/", "http://[::1]:8080/"),
        ] {
            assert_eq!(parse(text).text(), written, "{text}");
        }
        assert_eq!(
            parse("http://h/a%20b/%C3%A4").decoded_path().unwrap(),
            "/a b/ä".as_bytes()
        );
        assert!(!format!("{:?}", parse("https://h/x?token=secret")).contains("secret"));
        let path = b"/a b/%\xff+".as_slice();
        assert_eq!(
            parse("http://h/").with_path(path).decoded_path().unwrap(),
            path
        );
    }

    #[test]
    fn other_urls_are_refused() {
        for (url, error) in [
            ("ftp://h/x", UrlError::Scheme),
            ("http://u:p@h/x", UrlError::User),
            ("http:///x", UrlError::Host),
            ("http://-h/x", UrlError::Host),
            ("http://[h]/x", UrlError::Host),
            ("http://h:0/x", UrlError::Port),
            ("http://h:99999/x", UrlError::Port),
            ("http://h/a b", UrlError::Character),
            ("http://h/\r\nX: y", UrlError::Character),
        ] {
            assert_eq!(Url::parse(url), Err(error), "{url}");
        }
        for (path, error) in [
            ("/a/../b", UrlError::Name),
            ("/%2e%2E/b", UrlError::Name),
            ("/a%2Fb", UrlError::Name),
            ("/a%00b", UrlError::Name),
            ("/a%0", UrlError::Character),
            ("/a%+1", UrlError::Character),
        ] {
            assert_eq!(
                parse(&format!("http://h{path}")).decoded_path(),
                Err(error),
                "{path}"
            );
        }
    }

    #[test]
    fn references_are_resolved() {
        let base = parse("https://h/a/b/c?q");
        for (reference, expected) in [
            ("d", "https://h/a/b/d"),
            ("d/", "https://h/a/b/d/"),
            ("./d", "https://h/a/b/d"),
            ("../d", "https://h/a/d"),
            ("../../../..", "https://h/"),
            ("/x/./y/..", "https://h/x/"),
            ("//o/x", "https://o/x"),
            ("http://o/x", "http://o/x"),
            ("?C=N;O=D", "https://h/a/b/c?C=N;O=D"),
            ("#top", "https://h/a/b/c"),
            ("a:b", "refused"),
            ("mailto:x@y", "refused"),
            ("a/b:c", "https://h/a/b/a/b:c"),
        ] {
            let url = base.join(reference);
            let text = url.map_or("refused".to_owned(), |url| url.text());
            assert_eq!(text, expected, "{reference}");
        }
    }
}
