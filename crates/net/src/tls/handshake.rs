//! Performs the TLS handshake on a connected socket, within a deadline and 32 KiB.

use std::io;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use rustls::{AlertDescription, Error, InvalidMessage, PeerIncompatible};

use super::session::{Endpoint, Parts, Progress, Session};
use super::{End, PROTOCOL_NAME, TlsError};
use crate::identity::KeyAndDates;
use crate::stream::Socket;
use crate::tcp::HostPort;
use crate::tls_errors::alert_words;
use crate::trust::TrustError;

/// Maximum size in bytes of the received handshake. A client's greeting has 2 KB, and a server's
/// answer with a chain of three RSA certificates 6 KB.
pub(super) const HANDSHAKE_BUFFER: usize = 32 << 10;

/// Result of a successful handshake.
pub(super) struct Done {
    /// The parts of the connection.
    pub(super) parts: Parts,
    /// Bytes received after the handshake's last message.
    pub(super) received: Vec<u8>,
    /// Certificate whose key the peer proved to own.
    pub(super) peer: Option<KeyAndDates>,
}

/// Reasons why a handshake failed.
#[derive(Debug)]
pub(super) enum Failure {
    Tls(Error),
    Io(io::Error),
    Closed,
    Deadline,
    TooLarge,
    Protocol,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::Deadline,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Io(error),
        }
    }
}

impl Failure {
    /// Returns the error with its remedy. `end` is the peer's role.
    pub(super) fn explain(self, (peer, end): (HostPort, End), timeout: Duration) -> TlsError {
        match self {
            Failure::Closed => TlsError::Closed { peer, end },
            Failure::Deadline => TlsError::Deadline { peer, end, timeout },
            Failure::Protocol => TlsError::Protocol { peer },
            Failure::TooLarge => TlsError::TooLarge {
                peer,
                limit: HANDSHAKE_BUFFER,
            },
            Failure::Io(cause) => TlsError::Io { peer, cause },
            Failure::Tls(error) => explain_tls(error, peer, end),
        }
    }
}

fn explain_tls(error: Error, peer: HostPort, end: End) -> TlsError {
    if let Some(refusal) = TrustError::within(&error) {
        return refusal.into();
    }
    match error {
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::InvalidEmptyPayload,
        ) => TlsError::NotTls { peer, end },
        Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        )
        | Error::AlertReceived(AlertDescription::ProtocolVersion) => TlsError::Version { peer },
        Error::NoApplicationProtocol
        | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            TlsError::Protocol { peer }
        }
        Error::AlertReceived(alert) => TlsError::Refused {
            peer,
            end,
            reason: alert_words(alert),
        },
        cause => TlsError::Other { peer, cause },
    }
}

/// Performs the handshake. On failure, sends the peer an alert, if TLS has one for the cause, and
/// closes the connection.
pub(super) fn run<E: Endpoint>(
    endpoint: E,
    socket: &Socket,
    deadline: Instant,
) -> Result<Done, Failure> {
    let mut shake = Handshake {
        session: Session::new(endpoint),
        socket,
        deadline,
        buffer: vec![0; HANDSHAKE_BUFFER],
        filled: 0,
    };
    let result = shake.run();
    if result.is_err() {
        // The original error is reported, not a failure to send the alert.
        let _ = shake.flush();
        let _ = socket.shutdown(Shutdown::Both);
    }
    result?;
    socket.set_timeouts(None)?;
    socket.set_nodelay()?;
    shake.buffer.truncate(shake.filled);
    Ok(Done {
        peer: shake.session.peer(),
        parts: shake.session.into_parts().map_err(Failure::Tls)?,
        received: shake.buffer,
    })
}

struct Handshake<'a, E> {
    session: Session<E>,
    socket: &'a Socket,
    deadline: Instant,
    buffer: Vec<u8>,
    filled: usize,
}

impl<E: Endpoint> Handshake<'_, E> {
    fn run(&mut self) -> Result<(), Failure> {
        loop {
            let unread = &mut self.buffer[..self.filled];
            let (consumed, opened) = self.session.open(unread);
            self.buffer.copy_within(consumed..self.filled, 0);
            self.filled -= consumed;
            let opened = opened.map_err(Failure::Tls)?;
            self.flush()?;
            match opened {
                _ if !self.session.is_handshaking() => break,
                Progress::Closed => return Err(Failure::Closed),
                _ => self.receive()?,
            }
        }
        if self.session.has_protocol(PROTOCOL_NAME) {
            Ok(())
        } else {
            Err(Failure::Protocol)
        }
    }

    /// Limits the next wait to the remaining time, so that a peer cannot extend the deadline by
    /// sending single bytes.
    fn arm(&self) -> Result<(), Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Deadline);
        }
        Ok(self.socket.set_timeouts(Some(left))?)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let records = self.session.take_pending();
        let mut rest = &records[..];
        while !rest.is_empty() {
            self.arm()?;
            match self.socket.write(rest) {
                Ok(0) => return Err(Failure::Closed),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Failure> {
        if self.filled == self.buffer.len() {
            return Err(Failure::TooLarge);
        }
        loop {
            self.arm()?;
            match self.socket.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err(Failure::Closed),
                Ok(count) => {
                    self.filled += count;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
