//! Opens a session: connects, starts TLS, logs in and reads the abilities of the server.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::process::Command;

use super::{Kept, Options, Session, TlsUse};
use crate::control::{Control, connect};
use crate::error::Error;
use crate::location::{Location, Scheme};
use crate::protocol::features::Features;
use crate::protocol::reply::Reply;
use crate::tls::TlsClient;

/// Name of the user of an anonymous login (RFC 1635).
const ANONYMOUS: &str = "anonymous";

/// Password of an anonymous login. RFC 1635 asks for a mail address, which servers do not check.
const ANONYMOUS_PASSWORD: &str = "anonymous@";

/// Maximum number of replies before the server is ready.
const MAXIMUM_GREETINGS: usize = 16;

/// Command that starts the server at a host that SSH reaches. The first program is the one that
/// administrators of GridFTP install for this purpose.
const SSHFTP: &str = "for p in \"$HOME/.globus/sshftp\" /etc/grid-security/sshftp; do \
    [ -x \"$p\" ] && exec \"$p\"; done; PATH=$PATH:/usr/sbin:/usr/local/sbin; \
    exec globus-gridftp-server -ssh";

/// Port of UDP that finds the address of this end. No packet is sent to it.
const ANY_PORT: u16 = 9;

pub(super) fn open(location: &Location, options: Options) -> Result<Session, Error> {
    if options.tls == TlsUse::Required && location.scheme != Scheme::Ftp {
        return Err(Error::ClearText);
    }
    let mut control = match location.scheme {
        Scheme::Sshftp => over_ssh(location, &options)?,
        scheme => {
            let port = location.port.or(scheme.default_port()).unwrap_or_default();
            let stream = connect(&location.host, port)?;
            let limit = Some(options.silence);
            let limited = stream
                .set_read_timeout(limit)
                .and_then(|()| stream.set_write_timeout(limit));
            limited.map_err(|error| Error::io("limit the time of a connection", error))?;
            Control::over_tcp(stream, options.silence)
        }
    };
    greeting(&mut control)?;
    let tls = start_tls(&mut control, location, &options)?;
    let (here, server) = match control.addresses() {
        Some((here, server)) => (here.ip(), server.ip()),
        None => addresses_of(&location.host)?,
    };
    log_in(&mut control, location)?;
    let mut session = Session {
        control,
        options,
        kept: Kept::Stream,
        features: Features::default(),
        server,
        here,
        tls,
        without_extended_passive: false,
    };
    session.prepare()?;
    Ok(session)
}

/// Starts the server through ssh.
fn over_ssh(location: &Location, options: &Options) -> Result<Control, Error> {
    let mut words = options.ssh.iter();
    let program = words
        .next()
        .ok_or_else(|| Error::Unexpected("the command of ssh is empty".to_owned()))?;
    let mut command = Command::new(program);
    command.args(words);
    if let Some(port) = location.port {
        command.args(["-p", &port.to_string()]);
    }
    if let Some(user) = &location.user {
        command.args(["-l", user]);
    }
    command.args(["-T", "--", &location.host, SSHFTP]);
    Control::over_program(command, options.silence)
}

/// Waits until the server is ready.
fn greeting(control: &mut Control) -> Result<(), Error> {
    for _ in 0..MAXIMUM_GREETINGS {
        let reply = control.reply()?;
        if reply.is_success() {
            return Ok(());
        }
        if !reply.is_preliminary() {
            return Err(Error::refused("the connection", &reply));
        }
    }
    Err(Error::Unexpected("the server is not ready".to_owned()))
}

/// Starts TLS if the server offers it and the options permit it.
fn start_tls(
    control: &mut Control,
    location: &Location,
    options: &Options,
) -> Result<Option<TlsClient>, Error> {
    if location.scheme != Scheme::Ftp {
        return Ok(None);
    }
    let features = Features::parse(&control.ask("FEAT", None)?);
    if !features.tls {
        if options.tls == TlsUse::Required {
            return Err(Error::ClearText);
        }
        return Ok(None);
    }
    let client = TlsClient::new(&location.host, options.trusted.as_deref())?;
    control.command("AUTH", Some(b"TLS"))?;
    control.secure(|stream| client.start(stream))?;
    Ok(Some(client))
}

/// Returns the address of this end towards a host, and the host's address, for data connections
/// of a session over SSH.
fn addresses_of(host: &str) -> Result<(IpAddr, IpAddr), Error> {
    let failed = |error| Error::io(format!("look up {host} for data connections"), error);
    let mut found = (host, ANY_PORT).to_socket_addrs().map_err(failed)?;
    let server = found
        .next()
        .ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let any: SocketAddr = if server.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any).map_err(failed)?;
    socket.connect(server).map_err(failed)?;
    let here = socket.local_addr().map_err(failed)?;
    Ok((here.ip(), server.ip()))
}

/// Sends the user and the password.
fn log_in(control: &mut Control, location: &Location) -> Result<(), Error> {
    // The server that ssh started has the rights of the user, but asks for a name.
    let own_name = (location.scheme == Scheme::Sshftp).then(own_user);
    let user = location.user.clone().or(own_name.flatten());
    let user = user.as_deref().unwrap_or(ANONYMOUS);
    let password = location.password.as_deref().unwrap_or(ANONYMOUS_PASSWORD);
    let mut reply = control.ask("USER", Some(user.as_bytes()))?;
    if reply.is_intermediate() {
        reply = control.ask("PASS", Some(password.as_bytes()))?;
    }
    if reply.is_success() {
        return Ok(());
    }
    Err(login_error(location, &reply))
}

fn own_user() -> Option<String> {
    std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .ok()
}

fn login_error(location: &Location, reply: &Reply) -> Error {
    let remedy = match location.scheme {
        Scheme::Gsiftp => {
            "; longhaul has no login by X.509: use sshftp://, or an anonymous or password login"
        }
        Scheme::Ftp if location.user.is_none() => "; write ftp://USER:PASSWORD@HOST/PATH",
        _ => "",
    };
    Error::Refused {
        command: "the login".to_owned(),
        code: reply.code,
        text: format!("{}{remedy}", reply.text()),
    }
}

impl Session {
    /// Reads the abilities of the server, and sets the type of all transfers.
    fn prepare(&mut self) -> Result<(), Error> {
        if self.tls.is_some() {
            self.control.command("PBSZ", Some(b"0"))?;
            self.control.command("PROT", Some(b"P"))?;
        }
        // Commands that do not depend on each other share a round trip.
        self.control.send("FEAT", None)?;
        self.control.send("TYPE", Some(b"I"))?;
        self.features = Features::parse(&self.control.final_reply()?);
        self.control.finished("TYPE")?;
        // Servers that reject these commands need none of them: names are bytes, and data
        // connections are authenticated only after a login by X.509.
        let mut sent = 0;
        if self.features.utf8 {
            self.control.send("OPTS", Some(b"UTF8 ON"))?;
            sent += 1;
        }
        if self.features.data_authentication {
            self.control.send("DCAU", Some(b"N"))?;
            sent += 1;
        }
        if let Some(bytes) = self.options.buffer_bytes {
            let bytes = bytes.to_string();
            self.control.send("SBUF", Some(bytes.as_bytes()))?;
            sent += 1;
        }
        for _ in 0..sent {
            self.control.final_reply()?;
        }
        Ok(())
    }
}
