//! A session at a server: login, names, listings, checksums and transfers.

mod listing;
mod login;
pub mod names;
mod pipeline;
pub mod retrieve;
pub mod store;

use std::ffi::OsString;
use std::net::{IpAddr, TcpStream};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

pub use listing::Listed;
pub use names::join;

use crate::control::Control;
use crate::data;
use crate::error::Error;
use crate::location::Location;
use crate::protocol::address::{extended_port, passive_port};
use crate::protocol::features::Features;
use crate::tls::{DataStream, TlsClient};
use retrieve::Incoming;
use store::Outgoing;

/// Default of [`Options::silence`]: longer than a server needs to open a file on tape that is
/// already staged, and than the pause of a TCP connection after several losses.
const SILENCE: Duration = Duration::from_secs(120);

/// Default of [`Options::connections`]: the number of parallel connections that the paper of
/// NCSA Genomics finds enough (003, Conclusion 2).
const CONNECTIONS: u8 = 4;

/// Use of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsUse {
    /// TLS if the server of `ftp://` offers it, otherwise clear text.
    #[default]
    Offered,
    /// TLS, or no login. Refuses the other schemes, whose data are never encrypted.
    Required,
}

/// Modes of data connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransferMode {
    /// Extended block mode if the server supports it, otherwise stream mode.
    #[default]
    Automatic,
    /// Stream mode: one connection for each file, to the server. It works behind a firewall.
    Stream,
}

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum time without a byte of the server.
    pub silence: Duration,
    /// Number of data connections of each file in extended block mode, from 1 to 64.
    pub connections: u8,
    /// Ports of this host for data connections of the server. `None` permits all ports.
    pub ports: Option<RangeInclusive<u16>>,
    /// Size of TCP buffers in bytes at both ends. `None` lets the kernels choose.
    pub buffer_bytes: Option<u32>,
    /// Use of TLS.
    pub tls: TlsUse,
    /// File of trusted certificates in PEM. `None` means the system's file.
    pub trusted: Option<PathBuf>,
    /// Mode of data connections.
    pub mode: TransferMode,
    /// Program and first arguments of ssh.
    pub ssh: Vec<OsString>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            silence: SILENCE,
            connections: CONNECTIONS,
            ports: None,
            buffer_bytes: None,
            tls: TlsUse::default(),
            trusted: None,
            mode: TransferMode::default(),
            ssh: vec!["ssh".into()],
        }
    }
}

/// Data connections that the session keeps for the next file.
#[derive(Debug, Default)]
pub(crate) enum Kept {
    /// The server is in stream mode.
    #[default]
    Stream,
    /// The server is in extended block mode, without connections.
    Extended,
    /// Connections from the server.
    Incoming(Incoming),
    /// Connections to the server.
    Outgoing(Outgoing),
}

/// A session at a server.
///
/// After an error for which [`Error::ends_session`] is true, the session must be dropped.
#[derive(Debug)]
pub struct Session {
    pub(crate) control: Control,
    pub(crate) options: Options,
    pub(crate) kept: Kept,
    features: Features,
    /// Address of the server, and of this end as the server sees it.
    server: IpAddr,
    here: IpAddr,
    /// TLS of the data connections.
    tls: Option<TlsClient>,
    /// True if the server rejected `EPSV`.
    without_extended_passive: bool,
}

impl Session {
    /// Connects to the server of a URL and logs in. The path of the URL is not used.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, rejects the login, or requires a login by X.509.
    pub fn open(location: &Location, options: Options) -> Result<Session, Error> {
        login::open(location, options)
    }

    /// Returns the abilities of the server.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// True if the data connections are encrypted. Those of GridFTP are not.
    pub fn encrypts_data(&self) -> bool {
        self.tls.is_some()
    }

    /// True if files travel in extended block mode.
    pub fn is_extended(&self) -> bool {
        self.features.parallel && self.tls.is_none() && self.options.mode == TransferMode::Automatic
    }

    /// Ends the session.
    pub fn close(mut self) {
        // The connection ends in any case.
        let _ = self.control.send("QUIT", None);
    }

    pub(crate) fn server(&self) -> IpAddr {
        self.server
    }

    /// Returns the requested size of TCP buffers of this end.
    pub(crate) fn buffer_bytes(&self) -> Option<usize> {
        self.options.buffer_bytes.map(|bytes| bytes as usize)
    }

    /// Returns the number of data connections of each file in extended block mode.
    pub(crate) fn connections(&self) -> u8 {
        self.options.connections.clamp(1, 64)
    }

    /// Listens for data connections of the server.
    pub(crate) fn listen(&self) -> Result<std::net::TcpListener, Error> {
        data::listen(self.here, self.options.ports.as_ref(), self.buffer_bytes())
    }

    /// Puts the server into stream mode. Closes the kept connections of extended block mode.
    pub(crate) fn use_stream_mode(&mut self) -> Result<(), Error> {
        if !matches!(self.kept, Kept::Stream) {
            self.kept = Kept::Stream;
            self.control.command("MODE", Some(b"S"))?;
        }
        Ok(())
    }

    /// Puts the server into extended block mode.
    pub(crate) fn use_extended_mode(&mut self) -> Result<(), Error> {
        if matches!(self.kept, Kept::Stream) {
            self.control.command("MODE", Some(b"E"))?;
            self.kept = Kept::Extended;
        }
        Ok(())
    }

    /// Asks the server for a port, and returns it.
    pub(crate) fn passive_port(&mut self) -> Result<u16, Error> {
        if !self.without_extended_passive {
            let reply = self.control.ask("EPSV", None)?;
            if reply.is_success() {
                let port = reply.lines.iter().find_map(|line| extended_port(line));
                return port.ok_or_else(|| unexpected_address("EPSV", &reply.text()));
            }
            self.without_extended_passive = true;
        }
        let reply = self.control.command("PASV", None)?;
        let port = reply.lines.iter().find_map(|line| passive_port(line));
        port.ok_or_else(|| unexpected_address("PASV", &reply.text()))
    }

    /// Connects to a port that the server opened.
    pub(crate) fn connect_data(&self, port: u16) -> Result<TcpStream, Error> {
        let silence = self.control.silence();
        data::open(self.server, port, self.buffer_bytes(), silence)
    }

    /// Sends a command that transfers data in stream mode, after an offset if it is not 0, and
    /// opens its connection. The server has announced the transfer then.
    pub(crate) fn start_stream(
        &mut self,
        verb: &str,
        argument: &[u8],
        offset: u64,
    ) -> Result<DataStream, Error> {
        self.use_stream_mode()?;
        let port = self.passive_port()?;
        if offset > 0 {
            let reply = self
                .control
                .ask("REST", Some(offset.to_string().as_bytes()))?;
            if !reply.is_intermediate() {
                return Err(Error::refused("REST", &reply));
            }
        }
        self.control.send(verb, Some(argument))?;
        let connected = self.connect_data(port);
        let reply = self.control.reply()?;
        if !reply.is_preliminary() {
            return Err(Error::refused(verb, &reply));
        }
        let stream = connected?;
        Ok(match &self.tls {
            Some(tls) => DataStream::Tls(Box::new(tls.start(stream)?)),
            None => DataStream::Clear(stream),
        })
    }
}

fn unexpected_address(verb: &str, text: &str) -> Error {
    Error::Unexpected(format!("the reply to {verb} has no port: {text}"))
}
