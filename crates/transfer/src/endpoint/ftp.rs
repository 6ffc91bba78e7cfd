//! `ftp://`, `gsiftp://` and `sshftp://`: a path at an FTP or GridFTP server.

use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_engine::listing::Depth;
use longhaul_engine::recv::landing::{Arrival, Destination};
use longhaul_engine::send::source::Source as OpenSource;
use longhaul_gridftp::Error;
use longhaul_gridftp::location::{Location, Scheme};
use longhaul_gridftp::netrc;
use longhaul_gridftp::session::{Options, TlsUse};

use super::Endpoint;
use super::error::EndpointError;
use super::kind::{
    Definition, Kind, ListsHosts, NoSource, Sink, SinkOpening, Source, SourceOpening, Tell,
};
use super::local::list_in;
use super::promises::Promises;
use crate::ftp::{Server, Sessions, WritableServer};
use crate::ports::Ports;
use crate::settings::{ConnectionSettings, DataSecurity};
use crate::stop::{Exit, Stop};

/// Variable with the ports of this host for data connections, as the tools of Globus read it.
const GLOBUS_PORTS: &str = "GLOBUS_TCP_PORT_RANGE";

/// Permission bits that would let other users read passwords.
const OTHERS: u32 = 0o077;

pub(super) const KIND: Definition = Definition {
    name: "`ftp://HOST/PATH`",
    notation: Some("ftp://HOST/PATH, gsiftp:// or sshftp:// (an FTP or GridFTP server)"),
    promises: Promises {
        source: true,
        destination: true,
        files: true,
        trees: true,
        atomic_names: true,
        ranges: true,
        resumes: true,
        repeatable: true,
        times: true,
        modes: true,
        digests: true,
        listing: true,
        ordered_listing: true,
        foreign: true,
        ..Promises::NOTHING
    },
    parse,
};

fn parse(text: &[u8]) -> Option<Result<Endpoint, EndpointError>> {
    Location::is_location(text).then(|| match Location::parse(text) {
        // The text of an endpoint is shown, stored and visible to other users.
        Ok(location) if location.password.is_some() => Err(EndpointError::Password),
        Ok(location) => Ok(Endpoint::new(FtpPath {
            text: text.to_vec(),
            location,
        })),
        Err(error) => Err(EndpointError::Ftp(error)),
    })
}

/// A path at an FTP or GridFTP server.
#[derive(Clone, Debug)]
struct FtpPath {
    /// The URL as given.
    text: Vec<u8>,
    location: Location,
}

impl Kind for FtpPath {
    fn definition(&self) -> &'static Definition {
        &KIND
    }

    fn text(&self) -> Vec<u8> {
        self.text.clone()
    }

    fn identity(&self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(vec![b"ftp".to_vec(), self.text.clone()])
    }

    fn source(&self) -> Option<&dyn Source> {
        Some(self)
    }

    fn sink(&self) -> Option<&dyn Sink> {
        Some(self)
    }

    fn host_name(&self) -> Option<&str> {
        Some(&self.location.host)
    }

    fn path(&self) -> Option<&[u8]> {
        Some(&self.location.path)
    }

    fn with_path(&self, path: Vec<u8>) -> Option<Endpoint> {
        let location = Location {
            path,
            ..self.location.clone()
        };
        // The text still identifies the source.
        let text = self.text.clone();
        Some(Endpoint::new(FtpPath { text, location }))
    }

    fn list(&self, depth: Depth, hosts: &dyn ListsHosts, tell: &mut Tell<'_>) -> Result<(), Stop> {
        let server = self.connect(hosts.connection(), None)?;
        list_in(&server, &self.location.path, depth, tell)
    }
}

impl Source for FtpPath {
    fn open(&self, opening: &dyn SourceOpening) -> Result<OpenSource, NoSource> {
        let server = self.connect(opening.connection(), opening.streams())?;
        opening.open_in(Arc::new(server), &self.location.path)
    }
}

impl Sink for FtpPath {
    fn open(&self, opening: &dyn SinkOpening, arrival: Arrival) -> Result<Destination, Stop> {
        let server = self.connect(opening.connection(), opening.streams())?;
        if !opening.changes() {
            return opening.open_in(&server, &self.location.path, arrival);
        }
        let server = WritableServer::new(server, &self.server());
        let server = server.map_err(|error| {
            let text = format!("keep the records of the copy on this host: {error}");
            Stop::new(Exit::Local, text)
        })?;
        opening.open_in(&server, &self.location.path, arrival)
    }
}

impl FtpPath {
    /// Returns the text that identifies the server and its user.
    fn server(&self) -> String {
        let Location {
            scheme, user, host, ..
        } = &self.location;
        let (user, port) = (user.as_deref().unwrap_or_default(), self.location.port);
        let port = port.or(scheme.default_port()).unwrap_or_default();
        format!("{}://{user}@{host}:{port}", scheme.name())
    }

    /// Connects to the server and logs in.
    fn connect(
        &self,
        connection: &ConnectionSettings,
        streams: Option<u32>,
    ) -> Result<Server, Stop> {
        let sessions = Sessions::new(self.with_login()?, options(connection)?);
        let sessions = sessions.with_connections(streams);
        let first = sessions.open_first().map_err(|error| self.stop(&error))?;
        sessions.add(first);
        Ok(Server(Arc::new(sessions)))
    }

    /// Returns the reason why no session could be opened.
    fn stop(&self, error: &Error) -> Stop {
        if matches!(error, Error::ClearText) {
            let text = format!(
                "{}: the server sends the data in clear text, and nothing authenticates them: to \
                 accept this, add --data-security clear",
                self.location.host
            );
            return Stop::new(Exit::Usage, text);
        }
        let exit = match error {
            Error::Refused { .. } | Error::Tls(_) => Exit::Authentication,
            _ => Exit::Connection,
        };
        Stop::new(exit, format!("{}: {error}", self.location.host))
    }

    /// Returns the location with the login of `~/.netrc`. Ssh has logins of its own.
    fn with_login(&self) -> Result<Location, Stop> {
        let mut location = self.location.clone();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let Some(path) = home.filter(|_| location.scheme != Scheme::Sshftp) else {
            return Ok(location);
        };
        let path = path.join(".netrc");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(location),
            Err(error) => {
                let text = format!("read {}: {error}", path.display());
                return Err(Stop::new(Exit::Local, text));
            }
        };
        let found = netrc::find(&text, &location.host, location.user.as_deref());
        let Some(login) = found else {
            return Ok(location);
        };
        let mode = std::fs::metadata(&path).map_or(0, |status| status.permissions().mode());
        if login.password.is_some() && mode & OTHERS != 0 {
            let path = path.display();
            let text = format!("{path} contains passwords that others can read: chmod 600 {path}");
            return Err(Stop::new(Exit::Local, text));
        }
        location.user = Some(login.user);
        location.password = login.password;
        Ok(location)
    }
}

/// Returns the options of all sessions of a copy. Each session requires TLS, unless the user
/// accepts clear text.
fn options(connection: &ConnectionSettings) -> Result<Options, Stop> {
    let buffer = connection.buffer;
    let tls = if connection.data_security == DataSecurity::Clear {
        TlsUse::Offered
    } else {
        TlsUse::Required
    };
    Ok(Options {
        silence: connection.timeout,
        buffer_bytes: buffer.map(|bytes| bytes.try_into().unwrap_or(u32::MAX)),
        tls,
        trusted: connection.authority.clone(),
        ports: ports(connection)?,
        ssh: connection.ssh.words()?,
        ..Options::default()
    })
}

/// Returns the ports of this host for data connections: those of `--ports`, or those of the
/// variable that the tools of Globus read. `None` permits all ports.
fn ports(connection: &ConnectionSettings) -> Result<Option<RangeInclusive<u16>>, Stop> {
    let named = match (connection.ssh.ports, std::env::var(GLOBUS_PORTS)) {
        (Some(named), _) => named,
        (None, Ok(text)) => parse_globus_ports(&text)
            .map_err(|error| Stop::new(Exit::Usage, format!("{GLOBUS_PORTS}={text}: {error}")))?,
        (None, Err(_)) => return Ok(None),
    };
    Ok(named.range())
}

/// Parses `FIRST,LAST` or `FIRST LAST`.
fn parse_globus_ports(text: &str) -> Result<Ports, String> {
    text.trim().replace([',', ' '], "-").parse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftp::test_server::{Answer, TestServer};

    #[test]
    fn a_url_with_a_password_is_refused_without_showing_it() {
        for url in ["ftp://u:secret@h/x", "ftp://u:secret@h:0/x"] {
            let refused = parse(url.as_bytes()).unwrap().unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(parse(b"h:ftp://x").is_none());
        let endpoint = parse(b"gsiftp://h/a%20b/").unwrap().unwrap();
        assert_eq!(endpoint.text(), b"gsiftp://h/a%20b/");
        assert!(endpoint.host().is_none() && endpoint.sink().is_some());
    }

    #[test]
    fn the_ports_of_globus_are_parsed() {
        for text in ["50000,50009", " 50000 50009"] {
            let ports = parse_globus_ports(text).unwrap();
            assert_eq!(ports.range(), Some(50000..=50009));
        }
        for bad in ["", "50009,50000", "1,2,3", "x,y"] {
            assert!(parse_globus_ports(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn without_clear_text_no_session_logs_in_at_a_server_without_tls() {
        let server = TestServer::start("", |_, _| Answer::Usual);
        let path = FtpPath {
            text: Vec::new(),
            location: server.location(),
        };
        let mut connection = ConnectionSettings::default();
        let Err(stop) = path.connect(&connection, None) else {
            panic!("a login in clear text");
        };
        assert_eq!(stop.exit, Exit::Usage);
        assert!(stop.to_string().contains("--data-security clear"), "{stop}");
        let has_user = || server.commands().iter().any(|one| one.starts_with("USER"));
        assert!(!has_user());
        connection.data_security = DataSecurity::Clear;
        assert!(path.connect(&connection, None).is_ok() && has_user());
    }

    #[test]
    fn a_later_session_does_not_log_in_without_tls_either() {
        let server = TestServer::start("", |_, _| Answer::Usual);
        let options = options(&ConnectionSettings::default()).unwrap();
        let sessions = Sessions::new(server.location(), options);
        assert!(sessions.with(|_| Ok(())).is_err());
        assert!(sessions.open_for_file().is_err());
        assert!(!server.commands().iter().any(|one| one.starts_with("USER")));
    }
}
