//! Endpoints: the sources and destinations of data, in the notation of users.
//!
//! Each kind of endpoint is one module: its notation, its properties, and how this process opens
//! it as a source or a destination, lists it, or reaches the host that does. Other modules ask an
//! [`Endpoint`] for what they need and never for its kind. A new kind is a module and a line in
//! `registry`.
//!
//! - `kind`: the traits [`Source`], [`Sink`] and [`Host`], which the kinds implement
//! - `promises`: the properties of the kinds
//! - `resolve`: the source, the destination and the link between them
//! - `registry`: the list of the kinds
//! - `local`, `ssh`, `daemon`: a path here, at a host that SSH reaches, or at a daemon
//! - `ftp`: a path at an FTP or GridFTP server
//! - `http`: a path at an archive over HTTP; `s3`: a path in a bucket
//! - `null`, `zero`, `standard`: no files
//! - `remote_path`: the part that another host opens
//! - `error`: errors in the text

pub mod daemon;
mod error;
mod ftp;
mod http;
mod kind;
pub mod local;
mod null;
mod promises;
mod registry;
mod remote_path;
mod resolve;
mod s3;
mod ssh;
pub mod standard;
mod zero;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use longhaul_engine::listing::Depth;
use longhaul_proto::byte_string::ByteString;
use longhaul_units::ByteCount;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::daemon::{DEFAULT_PORT, Remote, names_daemon};
pub use self::error::EndpointError;
use self::kind::Kind;
pub use self::kind::{
    Host, HostAccess, ListsHosts, NoSource, Sink, SinkOpening, Source, SourceOpening, Tell,
};
pub use self::promises::Promises;
pub use self::remote_path::RemotePath;
pub use self::resolve::{Ends, Link, Unresolved};
pub use self::ssh::SshRemote;
pub use self::zero::zero_of;
use crate::stop::Stop;

/// Source or destination of data. Two endpoints of one kind are equal if they have the same text.
#[derive(Clone)]
pub struct Endpoint(Arc<dyn Kind>);

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Endpoint) -> bool {
        let same_kind = self.0.definition().name == other.0.definition().name;
        same_kind && self.text() == other.text()
    }
}

impl Eq for Endpoint {}

impl Endpoint {
    fn new(kind: impl Kind + 'static) -> Endpoint {
        Endpoint(Arc::new(kind))
    }

    /// Returns the endpoint of a path on this host.
    pub fn local(path: Vec<u8>) -> Endpoint {
        Endpoint::new(local::LocalPath(path))
    }

    /// Parses an endpoint.
    ///
    /// # Errors
    ///
    /// [`EndpointError`].
    pub fn parse(text: &OsStr) -> Result<Endpoint, EndpointError> {
        let text = text.as_bytes();
        if text.is_empty() {
            return Err(EndpointError::Empty);
        }
        registry::parse(text)
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

    /// Returns the text that [`Endpoint::parse`] reads back as the same endpoint on the same host.
    pub fn text(&self) -> Vec<u8> {
        self.0.text()
    }

    /// Returns the properties that callers may rely on.
    pub fn promises(&self) -> &'static Promises {
        &self.0.definition().promises
    }

    /// Returns the source if this process opens it.
    pub fn source(&self) -> Option<&dyn Source> {
        self.0.source()
    }

    /// Returns the destination if this process opens it.
    pub fn sink(&self) -> Option<&dyn Sink> {
        self.0.sink()
    }

    /// Returns the host whose longhaul process opens the endpoint, or `None` if this process does.
    pub fn host(&self) -> Option<&dyn Host> {
        self.0.host()
    }

    /// Returns the way to the longhaul process that opens the endpoint, or `None` if this process
    /// does.
    pub fn access(&self) -> Option<HostAccess<'_>> {
        self.host().map(Host::access)
    }

    /// Returns the other host with the user's name there, or `None` for this host. Endpoints with
    /// the same result share one session.
    pub fn place(&self) -> Option<String> {
        self.host().map(Host::place)
    }

    /// Returns the name of the other host without a user name, or `None` for this host.
    pub fn host_name(&self) -> Option<&str> {
        self.0.host_name()
    }

    /// Returns the path at the other host, or `None` for this host.
    pub fn remote_path(&self) -> Option<&RemotePath> {
        self.host().map(Host::path)
    }

    /// Returns the path on this host, or `None` if the endpoint has none.
    pub fn local_path(&self) -> Option<&[u8]> {
        self.0.local_path()
    }

    /// Returns the path here or at the other host, or `None` if the endpoint has none.
    pub fn path(&self) -> Option<&[u8]> {
        self.0.path()
    }

    /// Replaces the path. An endpoint without a path stays as it is.
    pub fn set_path(&mut self, path: Vec<u8>) {
        if let Some(changed) = self.0.with_path(path) {
            *self = changed;
        }
    }

    /// Returns the number of bytes if this process generates the data.
    pub fn generated(&self) -> Option<ByteCount> {
        self.0.generated()
    }

    /// True if the data are generated, here or at the other host.
    pub fn is_generated(&self) -> bool {
        self.generated().is_some() || self.remote_path().is_some_and(RemotePath::is_generated)
    }

    /// True if the other host discards the data.
    pub fn is_discarded_remotely(&self) -> bool {
        self.remote_path().is_some_and(RemotePath::discards)
    }

    /// Returns the byte strings that identify the endpoint as a source (FORMAT.md, "Source keys").
    /// `run` identifies this run of the program.
    ///
    /// # Errors
    ///
    /// A relative path cannot be made absolute.
    pub fn identity(&self, run: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.0.identity(run)
    }

    /// Calls `tell` for each entry at the endpoint. `hosts` lists paths at other hosts.
    ///
    /// # Errors
    ///
    /// The endpoint cannot be listed, or `tell` fails.
    pub fn list(
        &self,
        depth: Depth,
        hosts: &dyn ListsHosts,
        tell: &mut Tell<'_>,
    ) -> Result<(), Stop> {
        self.0.list(depth, hosts, tell)
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ByteString::from(self.text()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Endpoint, D::Error> {
        let bytes = ByteString::deserialize(deserializer)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    use longhaul_net::tcp::HostPort;

    fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(OsStr::new(text))
    }

    fn remote(text: &str) -> Remote {
        let endpoint = parse(text).unwrap();
        endpoint.access().unwrap().daemon().unwrap().clone()
    }

    #[test]
    fn urls_are_parsed() {
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
    fn written_endpoints_are_parsed_again() {
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
            let local = Endpoint::local(path.into());
            assert_eq!(local.text(), text.as_bytes());
        }
        for (path, text) in [("~x", "host:./~x"), ("22:x", "host:./22:x")] {
            let odd = parse(&format!("host:~/{path}")).unwrap();
            assert_eq!(odd.text(), text.as_bytes());
            assert!(parse(text).is_ok());
        }
        let bytes = Endpoint::local(b"\xff".to_vec());
        let json = serde_json::to_string(&bytes).unwrap();
        assert_eq!(json, r#"{"bytes":[255]}"#);
        assert_eq!(serde_json::from_str::<Endpoint>(&json).unwrap(), bytes);
        assert!(serde_json::from_str::<Endpoint>(r#""-oProxyCommand=x:y""#).is_err());
    }

    #[test]
    fn other_texts_are_local_paths_or_refused() {
        assert_eq!(parse("a/b:c").unwrap(), Endpoint::local(b"a/b:c".to_vec()));
        assert_eq!(parse("null:").unwrap(), Endpoint::new(null::Null));
        assert_eq!(parse("-").unwrap(), Endpoint::new(standard::Standard));
        assert_eq!(parse("./-").unwrap(), Endpoint::local(b"./-".to_vec()));
        assert_eq!(
            parse("zero:1MiB").unwrap(),
            Endpoint::new(zero::Zero(ByteCount(1 << 20)))
        );
        assert!(matches!(parse(":x"), Err(EndpointError::Ssh(_))));
        for url in ["webdav://x/y", "ssh://u@h/x", "gs://b"] {
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
            Endpoint::local(b"a/b://c".to_vec())
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
                Endpoint::new(expected),
                "{written}"
            );
        }
        let measured = |path| {
            Endpoint::new(SshRemote {
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
            let parsed = parse(name).unwrap();
            assert!(
                matches!(parsed.access(), Some(HostAccess::Login(_))),
                "{name}"
            );
        }
    }
}
