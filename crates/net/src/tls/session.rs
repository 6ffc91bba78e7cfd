//! State of a TLS connection during its handshake.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, ReadTraffic, UnbufferedStatus,
};
use rustls::{CommonState, Error, ExtractedSecrets, SupportedCipherSuite};

use super::records::{Keys, Opener, Renewal, Sealer};
use crate::identity::KeyAndDates;

/// The client's or the server's side of rustls.
pub(super) trait Endpoint: Send + 'static {
    /// Private data of rustls.
    type Data;

    /// Processes the records in `incoming`.
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// Returns the state that is common to both sides.
    fn common(&self) -> &CommonState;

    /// Returns the keys, and the source of later keys.
    fn into_keys(self) -> Result<(ExtractedSecrets, Box<dyn Renewal>), Error>;
}

impl Endpoint for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn into_keys(self) -> Result<(ExtractedSecrets, Box<dyn Renewal>), Error> {
        let (secrets, renewal) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Box::new(renewal)))
    }

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

impl Endpoint for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn into_keys(self) -> Result<(ExtractedSecrets, Box<dyn Renewal>), Error> {
        let (secrets, renewal) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Box::new(renewal)))
    }

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

/// A TLS connection during its handshake.
pub(super) struct Session<E> {
    endpoint: E,
    /// Records from rustls (handshake, alerts), to be sent before any others.
    pending: Vec<u8>,
    /// Data that arrived with the handshake's last message.
    unread: Vec<u8>,
    /// True if the peer announced that it will send no more data.
    peer_closed: bool,
}

/// Result of [`Session::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is no complete record left: receive more.
    Starved,
    /// Data arrived and was stored.
    Early,
    /// The peer will send no more data.
    Closed,
}

/// The parts of a connection after its handshake.
pub(super) struct Parts {
    pub(super) opener: Opener,
    pub(super) sealer: Sealer,
    pub(super) renewal: Box<dyn Renewal>,
    pub(super) suite: SupportedCipherSuite,
    /// Data that has already arrived.
    pub(super) unread: Vec<u8>,
    /// True if the peer announced that it will send no more data.
    pub(super) closed: bool,
}

impl<E: Endpoint> Session<E> {
    pub(super) fn new(endpoint: E) -> Session<E> {
        Session {
            endpoint,
            pending: Vec::new(),
            unread: Vec::new(),
            peer_closed: false,
        }
    }

    /// True until the handshake is complete.
    pub(super) fn is_handshaking(&self) -> bool {
        self.endpoint.common().is_handshaking()
    }

    /// Splits the connection into its parts after the handshake.
    ///
    /// # Errors
    ///
    /// The handshake is not complete, or rustls does not export the keys.
    pub(super) fn into_parts(self) -> Result<Parts, Error> {
        let suite = self.endpoint.common().negotiated_cipher_suite();
        let suite = suite.ok_or(Error::HandshakeNotComplete)?;
        let (secrets, renewal) = self.endpoint.into_keys()?;
        let (sent, sending) = secrets.tx;
        let (received, receiving) = secrets.rx;
        Ok(Parts {
            opener: Opener::new(Keys::new(&receiving, received)?),
            sealer: Sealer::new(Keys::new(&sending, sent)?, suite),
            renewal,
            suite,
            unread: self.unread,
            closed: self.peer_closed,
        })
    }

    /// True if both ends agreed on the protocol `name`.
    pub(super) fn has_protocol(&self, name: &[u8]) -> bool {
        self.endpoint.common().alpn_protocol() == Some(name)
    }

    /// Returns the certificate whose key the peer has proved to own.
    pub(super) fn peer(&self) -> Option<KeyAndDates> {
        let certificates = self.endpoint.common().peer_certificates()?;
        KeyAndDates::of_certificate(certificates.first()?).ok()
    }

    /// Takes the records from rustls. They must be sent at once and in order.
    pub(super) fn take_pending(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// Processes the records in `incoming`. Returns the number of bytes consumed.
    ///
    /// # Errors
    ///
    /// The errors of rustls; an alert may be pending then.
    pub(super) fn open(&mut self, incoming: &mut [u8]) -> (usize, Result<Progress, Error>) {
        let mut consumed = 0;
        let result = self.open_records(incoming, &mut consumed);
        if result.is_err() {
            self.collect_alert(&mut incoming[consumed..]);
        }
        (consumed, result)
    }

    fn open_records(
        &mut self,
        incoming: &mut [u8],
        consumed: &mut usize,
    ) -> Result<Progress, Error> {
        loop {
            if self.peer_closed {
                return Ok(Progress::Closed);
            }
            let status = self.endpoint.process(&mut incoming[*consumed..]);
            *consumed += status.discard;
            match status.state? {
                ConnectionState::ReadTraffic(traffic) => {
                    *consumed += read(traffic, &mut self.unread)?;
                    return Ok(Progress::Early);
                }
                ConnectionState::EncodeTlsData(data) => encode(data, &mut self.pending)?,
                ConnectionState::TransmitTlsData(transmission) => transmission.done(),
                ConnectionState::PeerClosed | ConnectionState::Closed => self.peer_closed = true,
                _ => return Ok(Progress::Starved),
            }
        }
    }

    /// Collects the alert that rustls may have after an error. rustls requires the remaining bytes
    /// again, though it does not use them.
    fn collect_alert(&mut self, rest: &mut [u8]) {
        if let Ok(ConnectionState::EncodeTlsData(data)) = self.endpoint.process(rest).state {
            // The original error is reported, not a failure to send the alert.
            let _ = encode(data, &mut self.pending);
        }
    }
}

fn read<D>(mut traffic: ReadTraffic<'_, '_, D>, unread: &mut Vec<u8>) -> Result<usize, Error> {
    let mut discard = 0;
    while let Some(record) = traffic.next_record() {
        let record = record?;
        discard += record.discard;
        unread.extend_from_slice(record.payload);
    }
    Ok(discard)
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, pending: &mut Vec<u8>) -> Result<(), Error> {
    let start = pending.len();
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else {
        return Ok(());
    };
    pending.resize(start + needed.required_size, 0);
    data.encode(&mut pending[start..])
        .map_err(|error| Error::General(error.to_string()))?;
    Ok(())
}
