//! The state of one TLS connection, as both halves use it.

use std::io;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, ReadTraffic,
    UnbufferedStatus,
};
use rustls::{CommonState, SupportedCipherSuite};

use crate::net::identity::Fingerprint;

/// Plaintext of a full record (RFC 8446, section 5.1).
pub(super) const RECORD_PLAINTEXT: usize = 16 << 10;

/// The most that a record's header, content type and tag add (5 + 1 + 16).
pub(super) const RECORD_OVERHEAD: usize = 22;

/// The largest record that a peer may send: 2^14 + 256 and the header (RFC
/// 8446, section 5.2).
pub(super) const RECORD_MAXIMUM: usize = RECORD_PLAINTEXT + 256 + RECORD_HEADER;

const RECORD_HEADER: usize = 5;

/// The client's or the server's side of rustls.
pub(super) trait Endpoint: Send + 'static {
    /// Its own data, which rustls keeps to itself.
    type Data;

    /// Advances by the records in `incoming`.
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// What both sides have in common.
    fn common(&self) -> &CommonState;
}

impl Endpoint for UnbufferedClientConnection {
    type Data = ClientConnectionData;

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

/// Where plaintext goes: first to the caller, what he has no room for to be
/// kept for his next call.
pub(super) struct Sink<'a> {
    buffer: &'a mut [u8],
    pub(super) filled: usize,
}

impl Sink<'_> {
    pub(super) fn new(buffer: &mut [u8]) -> Sink<'_> {
        Sink { buffer, filled: 0 }
    }

    fn is_full(&self) -> bool {
        self.filled == self.buffer.len()
    }

    /// Takes the front of `plaintext`, and returns the rest.
    fn take<'p>(&mut self, plaintext: &'p [u8]) -> &'p [u8] {
        let count = plaintext.len().min(self.buffer.len() - self.filled);
        let (now, later) = plaintext.split_at(count);
        self.buffer[self.filled..self.filled + count].copy_from_slice(now);
        self.filled += count;
        later
    }
}

/// Plaintext that was decrypted before somebody had room for it; a record at
/// most, as decrypting stops when the caller's buffer is full.
#[derive(Default)]
struct Unread {
    bytes: Vec<u8>,
    start: usize,
}

impl Unread {
    fn push(&mut self, bytes: &[u8]) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn drain_into(&mut self, sink: &mut Sink<'_>) {
        let rest = sink.take(&self.bytes[self.start..]).len();
        self.start = self.bytes.len() - rest;
    }
}

/// A TLS connection after its handshake (or, in the hands of the handshake,
/// during it).
pub(super) struct Session<E> {
    endpoint: E,
    /// Records of rustls's own (handshake, alerts), to be sent before any
    /// others.
    pending: Vec<u8>,
    unread: Unread,
    /// The peer said that it will send no more.
    peer_closed: bool,
    /// Why the session is dead.
    broken: Option<rustls::Error>,
}

/// How far [`Session::open`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// There is no complete record left: receive more.
    Starved,
    /// The sink is full.
    Full,
    /// Data came before the handshake's last message went out (handshake
    /// only); it is kept.
    Early,
    /// The peer has finished.
    Closed,
}

impl<E: Endpoint> Session<E> {
    pub(super) fn new(endpoint: E) -> Session<E> {
        Session {
            endpoint,
            pending: Vec::new(),
            unread: Unread::default(),
            peer_closed: false,
            broken: None,
        }
    }

    /// Whether data may flow.
    pub(super) fn is_handshaking(&self) -> bool {
        self.endpoint.common().is_handshaking()
    }

    /// The suite, once there is one.
    pub(super) fn suite(&self) -> Option<SupportedCipherSuite> {
        self.endpoint.common().negotiated_cipher_suite()
    }

    /// Whether both ends named our protocol.
    pub(super) fn has_protocol(&self, name: &[u8]) -> bool {
        self.endpoint.common().alpn_protocol() == Some(name)
    }

    /// The key that the peer has proved to have.
    pub(super) fn peer(&self) -> Option<Fingerprint> {
        let certificates = self.endpoint.common().peer_certificates()?;
        Fingerprint::of_certificate(certificates.first()?).ok()
    }

    /// Takes rustls's own records, to be sent at once and in order.
    pub(super) fn take_pending(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// Gives back what could not be sent.
    pub(super) fn return_pending(&mut self, mut unsent: Vec<u8>) {
        unsent.append(&mut self.pending);
        self.pending = unsent;
    }

    /// Whether rustls has records of its own to send.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Decrypts records from the front of `incoming` until `sink` is full;
    /// returns how many bytes of `incoming` are done with.
    ///
    /// # Errors
    ///
    /// rustls's; the session is then broken for both halves, and an alert may
    /// be pending.
    pub(super) fn open(
        &mut self,
        incoming: &mut [u8],
        sink: &mut Sink<'_>,
    ) -> (usize, Result<Opened, rustls::Error>) {
        let mut consumed = 0;
        let result = match &self.broken {
            Some(error) => Err(error.clone()),
            None => self.open_records(incoming, sink, &mut consumed),
        };
        if let (Err(error), None) = (&result, &self.broken) {
            self.broken = Some(error.clone());
            self.collect_alert(&mut incoming[consumed..]);
        }
        (consumed, result)
    }

    fn open_records(
        &mut self,
        incoming: &mut [u8],
        sink: &mut Sink<'_>,
        consumed: &mut usize,
    ) -> Result<Opened, rustls::Error> {
        self.unread.drain_into(sink);
        loop {
            // The handshake brings an empty sink and wants everything done.
            if sink.is_full() && sink.filled > 0 {
                return Ok(Opened::Full);
            }
            if self.peer_closed {
                return Ok(Opened::Closed);
            }
            let status = self.endpoint.process(&mut incoming[*consumed..]);
            *consumed += status.discard;
            match status.state? {
                ConnectionState::ReadTraffic(traffic) => {
                    *consumed += read(traffic, sink, &mut self.unread)?;
                    if sink.buffer.is_empty() {
                        return Ok(Opened::Early);
                    }
                }
                ConnectionState::EncodeTlsData(data) => encode(data, &mut self.pending)?,
                ConnectionState::TransmitTlsData(transmission) => transmission.done(),
                ConnectionState::PeerClosed | ConnectionState::Closed => self.peer_closed = true,
                _ => {
                    refuse_fragment(&incoming[*consumed..], self.is_handshaking())?;
                    return Ok(Opened::Starved);
                }
            }
        }
    }

    /// Encrypts `plaintext` at the end of `outgoing`, after whatever rustls
    /// has to say first.
    ///
    /// # Errors
    ///
    /// Where the session is broken.
    pub(super) fn seal(&mut self, plaintext: &[u8], outgoing: &mut Outgoing) -> io::Result<()> {
        self.with_traffic(outgoing, |traffic, room| traffic.encrypt(plaintext, room))
    }

    /// Puts the closing message at the end of `outgoing`.
    ///
    /// # Errors
    ///
    /// Where the session is broken.
    pub(super) fn seal_end(&mut self, outgoing: &mut Outgoing) -> io::Result<()> {
        self.with_traffic(outgoing, |traffic, room| traffic.queue_close_notify(room))
    }

    fn with_traffic(
        &mut self,
        outgoing: &mut Outgoing,
        mut put: impl FnMut(
            &mut rustls::unbuffered::WriteTraffic<'_, E::Data>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> io::Result<()> {
        loop {
            if let Some(error) = &self.broken {
                return Err(broken(error));
            }
            // No handshake message is ever left half-received (open() refuses
            // that), so rustls needs none of the reader's bytes here.
            let state = self.endpoint.process(&mut []).state;
            match state.map_err(|error| broken(&error))? {
                ConnectionState::WriteTraffic(mut traffic) if self.pending.is_empty() => {
                    match put(&mut traffic, outgoing.room()) {
                        Ok(count) => return outgoing.grown(count),
                        Err(EncryptError::InsufficientSize(InsufficientSizeError {
                            required_size,
                        })) => outgoing.reserve(required_size),
                        Err(EncryptError::EncryptExhausted) => return Err(exhausted()),
                    }
                }
                ConnectionState::WriteTraffic(_) => outgoing.append(&mut self.pending),
                ConnectionState::EncodeTlsData(data) => {
                    encode(data, &mut self.pending).map_err(|error| broken(&error))?;
                }
                ConnectionState::TransmitTlsData(transmission) => transmission.done(),
                ConnectionState::ReadTraffic(traffic) => {
                    read(traffic, &mut Sink::new(&mut []), &mut self.unread)
                        .map_err(|error| broken(&error))?;
                }
                ConnectionState::PeerClosed => self.peer_closed = true,
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    /// After an error, rustls may have an alert that tells the peer why. It
    /// wants to see the rest of the bytes again, though it does not use them.
    fn collect_alert(&mut self, rest: &mut [u8]) {
        if let Ok(ConnectionState::EncodeTlsData(data)) = self.endpoint.process(rest).state {
            // The error that is known counts, not one of telling it.
            let _ = encode(data, &mut self.pending);
        }
    }
}

/// What a broken session says to everybody who comes later.
pub(super) fn broken(error: &rustls::Error) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the encrypted stream is damaged ({error}): connect again"),
    )
}

fn exhausted() -> io::Error {
    io::Error::other("the encrypted stream has used up its keys: connect again")
}

fn read<D>(
    mut traffic: ReadTraffic<'_, '_, D>,
    sink: &mut Sink<'_>,
    unread: &mut Unread,
) -> Result<usize, rustls::Error> {
    let mut discard = 0;
    while let Some(record) = traffic.next_record() {
        let record = record?;
        discard += record.discard;
        let rest = sink.take(record.payload);
        if !rest.is_empty() {
            unread.push(rest);
        }
    }
    Ok(discard)
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, pending: &mut Vec<u8>) -> Result<(), rustls::Error> {
    let start = pending.len();
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else {
        return Ok(());
    };
    pending.resize(start + needed.required_size, 0);
    data.encode(&mut pending[start..])
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    Ok(())
}

/// After the handshake a whole record that rustls neither used nor discarded
/// is a piece of a handshake message whose rest is still to come. rustls then
/// expects to see it again in every call, which the writer cannot do; our own
/// peers never split the few bytes of a key update, so whoever does is refused.
fn refuse_fragment(rest: &[u8], handshaking: bool) -> Result<(), rustls::Error> {
    let whole = match rest {
        [_, _, _, high, low, ..] => {
            rest.len() >= RECORD_HEADER + usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => false,
    };
    if whole && !handshaking {
        return Err(rustls::Error::General(
            "a handshake message in pieces after the handshake".into(),
        ));
    }
    Ok(())
}

/// Records on their way to the kernel, in one reused piece of memory.
#[derive(Default)]
pub(super) struct Outgoing {
    buffer: Vec<u8>,
    filled: usize,
}

impl Outgoing {
    /// What is to be sent.
    pub(super) fn filled(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Forgets what was sent, keeps the memory.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }

    /// Makes room for `bytes` more.
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.buffer.len() < self.filled + bytes {
            self.buffer.resize(self.filled + bytes, 0);
        }
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    fn grown(&mut self, bytes: usize) -> io::Result<()> {
        self.filled += bytes;
        Ok(())
    }

    fn append(&mut self, bytes: &mut Vec<u8>) {
        self.reserve(bytes.len());
        self.buffer[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_record_that_stays_is_a_fragment() {
        let record = [23, 3, 3, 0, 2, 9, 9];
        assert!(refuse_fragment(&record, false).is_err());
        assert!(refuse_fragment(&record, true).is_ok());
        for cut in 0..record.len() {
            assert!(refuse_fragment(&record[..cut], false).is_ok());
        }
    }

    #[test]
    fn what_has_no_room_is_kept() {
        let mut unread = Unread::default();
        unread.push(b"abc");
        let mut buffer = [0; 2];
        let mut sink = Sink::new(&mut buffer);
        unread.drain_into(&mut sink);
        assert!(sink.is_full());
        unread.push(b"d");
        let mut buffer = [0; 8];
        let mut sink = Sink::new(&mut buffer);
        unread.drain_into(&mut sink);
        assert_eq!(sink.filled, 2);
        assert_eq!(&buffer[..2], b"cd");
    }
}
