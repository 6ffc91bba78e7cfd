//! The record layer of an open TLS 1.3 connection (RFC 8446, section 5).
//!
//! rustls performs the handshake, derives all keys and exports them (its `kernel` interface, made
//! for kTLS). aws-lc encrypts. The records are built here, because rustls would copy each byte once
//! more at both ends. Here, a record is encrypted from the caller's memory into the buffer that
//! goes to the kernel, and decrypted from the kernel's buffer into the caller's memory.
//!
//! After the handshake, only data, alerts and key updates are accepted. Neither end sends tickets
//! or requests certificates later.

use ::aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::kernel::KernelConnection;
use rustls::{ConnectionTrafficSecrets, Error, SupportedCipherSuite};

/// Maximum plaintext of a record in bytes (section 5.1).
pub(super) const RECORD_PLAINTEXT: usize = 16 << 10;

/// Size in bytes of type, version and length before a record.
pub(super) const RECORD_HEADER: usize = 5;

/// Size in bytes of the authentication tag, the same in all three suites.
const TAG: usize = 16;

/// Size in bytes that header, content type and tag add to the plaintext.
pub(super) const RECORD_OVERHEAD: usize = RECORD_HEADER + 1 + TAG;

/// Maximum size in bytes of an encrypted record without its header (section 5.2).
const LARGEST_BODY: usize = RECORD_PLAINTEXT + 256;

/// Maximum size in bytes of an encrypted record with its header.
pub(super) const RECORD_MAXIMUM: usize = LARGEST_BODY + RECORD_HEADER;

/// Maximum number of key updates without data between them. Longhaul peers send one in 2^23
/// records. A peer that sends many is trying to consume CPU time.
const MOST_UPDATES: u32 = 32;

/// Maximum number of records under one key. Sequence numbers must not wrap (section 5.3), even if
/// the suite permits more records.
const MOST_RECORDS: u64 = 1 << 48;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

const KEY_UPDATE: u8 = 24;

/// Alerts (section 6) that are sent or handled here.
mod alert {
    pub const CLOSE_NOTIFY: u8 = 0;
    pub const UNEXPECTED_MESSAGE: u8 = 10;
    pub const BAD_RECORD_MAC: u8 = 20;
    pub const RECORD_OVERFLOW: u8 = 22;
    pub const USER_CANCELED: u8 = 90;
}

/// Derives the keys that follow the current ones.
pub(super) trait Renewal: Send {
    /// Returns the next sending keys.
    fn next_sending(&mut self) -> Result<ConnectionTrafficSecrets, Error>;

    /// Returns the next receiving keys.
    fn next_receiving(&mut self) -> Result<ConnectionTrafficSecrets, Error>;
}

impl<D: Send> Renewal for KernelConnection<D> {
    fn next_sending(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        Ok(self.update_tx_secret()?.1)
    }

    fn next_receiving(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        Ok(self.update_rx_secret()?.1)
    }
}

/// The key of one direction, and the number of its next record.
pub(super) struct Keys {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Keys {
    /// Creates the keys, starting with the record of this number.
    pub(super) fn new(secrets: &ConnectionTrafficSecrets, sequence: u64) -> Result<Keys, Error> {
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(Error::General("a cipher that is not known here".into())),
        };
        let refused = |what: &str| Error::General(format!("a {what} of another length"));
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| refused("key"))?;
        let iv = iv.as_ref().try_into();
        Ok(Keys {
            key: LessSafeKey::new(key),
            iv: iv.map_err(|_| refused("initialization vector"))?,
            sequence,
        })
    }

    /// Returns the next record's nonce (section 5.3). Each number is used once.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Returns the header of an encrypted record whose body has this length (section 5.2). It is also
/// the additional authenticated data.
fn header(body: usize) -> [u8; RECORD_HEADER] {
    let [high, low] = (body as u16).to_be_bytes();
    [DATA, 3, 3, high, low]
}

/// Encrypted records for the kernel, in a reused buffer.
#[derive(Default)]
pub(super) struct Outgoing {
    buffer: Vec<u8>,
    filled: usize,
}

impl Outgoing {
    /// Returns the records to be sent.
    pub(super) fn filled(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Removes sent records and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }

    /// Extends the filled part by `bytes`, and returns the new room.
    fn grow(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.filled + bytes;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        let room = &mut self.buffer[self.filled..end];
        self.filled = end;
        room
    }
}

/// Encryption of the sending direction.
pub(super) struct Sealer {
    keys: Keys,
    /// Maximum number of records under one key.
    limit: u64,
}

impl Sealer {
    /// Creates it with the suite's limit of records under one key (section 5.5).
    pub(super) fn new(keys: Keys, suite: SupportedCipherSuite) -> Sealer {
        // Both ends accept only TLS 1.3.
        let suite = suite.tls13();
        let limit = suite.map_or(0, |suite| suite.common.confidentiality_limit);
        Sealer {
            keys,
            // A key update needs a record too.
            limit: limit.clamp(2, MOST_RECORDS),
        }
    }

    /// True if the next record must be a key update.
    pub(super) fn is_worn(&self) -> bool {
        self.keys.sequence + 1 >= self.limit
    }

    /// Encrypts data into as many records as needed, until [`Sealer::is_worn`] is true. Returns the
    /// number of bytes encrypted.
    pub(super) fn seal(&mut self, data: &[u8], outgoing: &mut Outgoing) -> Result<usize, Error> {
        let mut done = 0;
        for part in data.chunks(RECORD_PLAINTEXT) {
            if self.is_worn() {
                break;
            }
            self.seal_record(DATA, part, outgoing)?;
            done += part.len();
        }
        Ok(done)
    }

    /// Announces a new key with the last record of the old one. If `asks` is true, the peer is
    /// requested to do the same.
    pub(super) fn renew(
        &mut self,
        renewal: &mut dyn Renewal,
        asks: bool,
        outgoing: &mut Outgoing,
    ) -> Result<(), Error> {
        let message = [KEY_UPDATE, 0, 0, 1, u8::from(asks)];
        self.seal_record(HANDSHAKE, &message, outgoing)?;
        self.keys = Keys::new(&renewal.next_sending()?, 0)?;
        Ok(())
    }

    /// Announces the end of the data in this direction.
    pub(super) fn close(&mut self, outgoing: &mut Outgoing) -> Result<(), Error> {
        self.seal_record(ALERT, &[1, alert::CLOSE_NOTIFY], outgoing)
    }

    /// Sends the alert with which the connection is aborted.
    pub(super) fn give_up(&mut self, alert: u8, outgoing: &mut Outgoing) -> Result<(), Error> {
        self.seal_record(ALERT, &[2, alert], outgoing)
    }

    fn seal_record(
        &mut self,
        kind: u8,
        plaintext: &[u8],
        outgoing: &mut Outgoing,
    ) -> Result<(), Error> {
        let header = header(plaintext.len() + 1 + TAG);
        let record = outgoing.grow(plaintext.len() + RECORD_OVERHEAD);
        let (front, body) = record.split_at_mut(RECORD_HEADER);
        front.copy_from_slice(&header);
        let (ciphertext, end) = body.split_at_mut(plaintext.len());
        let nonce = self.keys.nonce();
        let sealed = self.keys.key.seal_out_of_place_scatter(
            nonce,
            Aad::from(header),
            plaintext,
            ciphertext,
            &[kind],
            end,
        );
        sealed.map_err(|_| Error::EncryptError)
    }
}

/// The reason why no more records can be received.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    /// Alert to send to the peer; `None` if the peer sent one.
    pub(super) alert: Option<u8>,
    /// The error to report.
    pub(super) error: Error,
}

impl Damage {
    fn new(alert: u8, what: &str) -> Damage {
        let error = match alert {
            alert::BAD_RECORD_MAC => Error::DecryptError,
            _ => Error::General(what.into()),
        };
        let alert = Some(alert);
        Damage { alert, error }
    }
}

impl From<Error> for Damage {
    fn from(error: Error) -> Damage {
        Damage { alert: None, error }
    }
}

/// Content of a received record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// Data at the front of the caller's memory, with its length in bytes.
    Data(usize),
    /// Data in the record's buffer, after its header, with its length in bytes.
    InPlace(usize),
    /// The peer has changed its key. If true, it requests the same of this end.
    KeyUpdate(bool),
    /// The peer sends no more data.
    Closed,
    /// A record without effect.
    Nothing,
}

/// Decryption of the receiving direction.
pub(super) struct Opener {
    keys: Keys,
    updates: u32,
}

impl Opener {
    pub(super) fn new(keys: Keys) -> Opener {
        Opener { keys, updates: 0 }
    }

    /// Returns the length of the record at the front of the received bytes, with its header; `None`
    /// if it is incomplete.
    ///
    /// # Errors
    ///
    /// The bytes are not a valid record.
    pub(super) fn whole_record(received: &[u8]) -> Result<Option<usize>, Damage> {
        let Some(front) = received.first_chunk::<RECORD_HEADER>() else {
            return Ok(None);
        };
        let body = usize::from(u16::from_be_bytes([front[3], front[4]]));
        if front[..3] != [DATA, 3, 3] {
            let what = "a record that is not encrypted";
            return Err(Damage::new(alert::UNEXPECTED_MESSAGE, what));
        }
        if body > LARGEST_BODY {
            return Err(Damage::new(
                alert::RECORD_OVERFLOW,
                "a record that is too long",
            ));
        }
        if body <= TAG {
            return Err(Damage::new(
                alert::UNEXPECTED_MESSAGE,
                "a record without a type",
            ));
        }
        let length = RECORD_HEADER + body;
        Ok((received.len() >= length).then_some(length))
    }

    /// Decrypts a complete record. Data is decrypted directly into `room` if it fits with one more
    /// byte for its type; otherwise in place.
    ///
    /// # Errors
    ///
    /// The record is forged or not understood. The stream is then unusable.
    pub(super) fn open(
        &mut self,
        record: &mut [u8],
        room: &mut [u8],
        renewal: &mut dyn FnMut() -> Result<ConnectionTrafficSecrets, Error>,
    ) -> Result<Opened, Damage> {
        let forged = || Damage::new(alert::BAD_RECORD_MAC, "");
        let (front, body) = record.split_at_mut(RECORD_HEADER);
        let front: [u8; RECORD_HEADER] = (&*front).try_into().map_err(|_| forged())?;
        let inner = body.len() - TAG;
        let fits = room.len() >= inner;
        let nonce = self.keys.nonce();
        let plain = if fits {
            let (ciphertext, tag) = body.split_at(inner);
            let opened = self.keys.key.open_separate_gather(
                nonce,
                Aad::from(front),
                ciphertext,
                tag,
                &mut room[..inner],
            );
            opened.map_err(|_| forged())?;
            &room[..inner]
        } else {
            let opened = self.keys.key.open_in_place(nonce, Aad::from(front), body);
            &*opened.map_err(|_| forged())?
        };
        // The content type and zeros follow the content (section 5.4).
        let Some(length) = plain.iter().rposition(|byte| *byte != 0) else {
            return Err(Damage::new(
                alert::UNEXPECTED_MESSAGE,
                "a record without a type",
            ));
        };
        if length > RECORD_PLAINTEXT {
            return Err(Damage::new(
                alert::RECORD_OVERFLOW,
                "a record that is too long",
            ));
        }
        match (plain[length], &plain[..length]) {
            (DATA, _) => {
                self.updates = 0;
                Ok(if fits {
                    Opened::Data(length)
                } else {
                    Opened::InPlace(length)
                })
            }
            (ALERT, message) => read_alert(message),
            (HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, wanted @ (0 | 1)]) => {
                self.updates += 1;
                if self.updates > MOST_UPDATES {
                    let what = "key after key without data";
                    return Err(Damage::new(alert::UNEXPECTED_MESSAGE, what));
                }
                self.keys = Keys::new(&renewal()?, 0)?;
                Ok(Opened::KeyUpdate(wanted == 1))
            }
            // Longhaul peers never split a key update, or combine it with other messages.
            _ => Err(Damage::new(
                alert::UNEXPECTED_MESSAGE,
                "a message that has no place after the handshake",
            )),
        }
    }
}

fn read_alert(message: &[u8]) -> Result<Opened, Damage> {
    match message {
        [_, alert::CLOSE_NOTIFY] => Ok(Opened::Closed),
        [_, alert::USER_CANCELED] => Ok(Opened::Nothing),
        [_, other] => Err(Error::AlertReceived((*other).into()).into()),
        _ => Err(Damage::new(
            alert::UNEXPECTED_MESSAGE,
            "an alert of another form",
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustls::crypto::cipher::{AeadKey, Iv};

    use super::*;

    fn secrets() -> ConnectionTrafficSecrets {
        ConnectionTrafficSecrets::Aes256Gcm {
            key: AeadKey::from([7; 32]),
            iv: Iv::from([9; 12]),
        }
    }

    fn keys() -> Keys {
        Keys::new(&secrets(), 0).unwrap()
    }

    fn sealer(limit: u64) -> Sealer {
        let keys = keys();
        Sealer { keys, limit }
    }

    fn no_renewal() -> Result<ConnectionTrafficSecrets, Error> {
        Err(Error::General("not asked for".into()))
    }

    fn record(kind: u8, plaintext: &[u8]) -> Vec<u8> {
        let mut outgoing = Outgoing::default();
        let mut sealer = sealer(1 << 20);
        sealer.seal_record(kind, plaintext, &mut outgoing).unwrap();
        outgoing.filled().to_vec()
    }

    fn open(record: &mut [u8], room: usize) -> Result<Opened, Damage> {
        let mut room = vec![0; room];
        Opener::new(keys()).open(record, &mut room, &mut no_renewal)
    }

    #[test]
    fn a_record_is_opened_into_the_callers_memory_or_in_place() {
        let mut outgoing = Outgoing::default();
        let data: Vec<u8> = (0..40_000_u32).map(|at| (at % 251) as u8).collect();
        let mut sealer = sealer(1 << 20);
        assert_eq!(sealer.seal(&data, &mut outgoing).unwrap(), data.len());
        let mut opener = Opener::new(keys());
        let (mut rest, mut found) = (outgoing.filled().to_vec(), Vec::new());
        for room in [20_000, RECORD_PLAINTEXT, 3] {
            let length = Opener::whole_record(&rest).unwrap().unwrap();
            let mut room = vec![0; room];
            let record = &mut rest[..length];
            match opener.open(record, &mut room, &mut no_renewal).unwrap() {
                Opened::Data(count) => found.extend_from_slice(&room[..count]),
                Opened::InPlace(count) => {
                    found.extend_from_slice(&record[RECORD_HEADER..RECORD_HEADER + count]);
                }
                other => unreachable!("{other:?}"),
            }
            rest.drain(..length);
        }
        assert!(rest.is_empty());
        assert_eq!(found, data);
    }

    #[test]
    fn padding_is_taken_off() {
        let mut record = record(DATA, b"data");
        assert_eq!(open(&mut record, 100).unwrap(), Opened::Data(4));
        // Content, its type, and zeros. The type of the outer call is one of these zeros.
        let mut padded = self::record(0, &[b'x', DATA, 0, 0, 0]);
        assert_eq!(open(&mut padded, 100).unwrap(), Opened::Data(1));
        let mut empty = self::record(0, &[0; 30]);
        let damage = open(&mut empty, 100).unwrap_err();
        assert_eq!(damage.alert, Some(alert::UNEXPECTED_MESSAGE));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let genuine = record(DATA, b"some data");
        for bit in 0..8 * genuine.len() {
            for room in [0, 100] {
                let mut forged = genuine.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                let opened = Opener::whole_record(&forged).map(|length| length.is_some());
                if opened.is_ok_and(|whole| whole) {
                    assert!(open(&mut forged, room).is_err(), "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_key_makes_no_more_records_than_it_may() {
        let mut outgoing = Outgoing::default();
        let mut sealer = sealer(4);
        let data = vec![1; 10 * RECORD_PLAINTEXT];
        let done = sealer.seal(&data, &mut outgoing).unwrap();
        // The fourth record is the key update.
        assert_eq!(done, 3 * RECORD_PLAINTEXT);
        assert!(sealer.is_worn());
        assert_eq!(sealer.seal(&data, &mut outgoing).unwrap(), 0);
    }

    #[test]
    fn an_invalid_record_is_refused_before_it_is_complete() {
        for (front, alert) in [
            ([22, 3, 3, 0, 40], alert::UNEXPECTED_MESSAGE),
            ([23, 3, 1, 0, 40], alert::UNEXPECTED_MESSAGE),
            ([23, 3, 3, 0, 16], alert::UNEXPECTED_MESSAGE),
            ([23, 3, 3, 0x41, 1], alert::RECORD_OVERFLOW),
        ] {
            let damage = Opener::whole_record(&front).unwrap_err();
            assert_eq!(damage.alert, Some(alert), "{front:?}");
        }
        assert_eq!(Opener::whole_record(&[23, 3, 3, 0]).unwrap(), None);
        assert_eq!(Opener::whole_record(&[23, 3, 3, 0, 17, 0]).unwrap(), None);
    }

    #[test]
    fn alerts_end_the_stream_or_break_it() {
        let mut close = record(ALERT, &[1, alert::CLOSE_NOTIFY]);
        assert_eq!(open(&mut close, 100).unwrap(), Opened::Closed);
        let mut canceled = record(ALERT, &[1, alert::USER_CANCELED]);
        assert_eq!(open(&mut canceled, 0).unwrap(), Opened::Nothing);
        let mut fatal = record(ALERT, &[2, alert::BAD_RECORD_MAC]);
        let damage = open(&mut fatal, 100).unwrap_err();
        // The peer sent the alert, so it does not get one.
        assert_eq!(damage.alert, None);
        assert!(open(&mut record(ALERT, &[1]), 100).is_err());
    }

    #[test]
    fn only_whole_key_updates_follow_the_handshake() {
        let with = |message: &[u8], times: u32| {
            let mut opener = Opener::new(keys());
            let mut result = Ok(Opened::Nothing);
            for _ in 0..times {
                // Each update is the first record under a new key.
                let mut update = record(HANDSHAKE, message);
                result = opener.open(&mut update, &mut [0; 100], &mut || Ok(secrets()));
            }
            result
        };
        let wanted = |wanted| [KEY_UPDATE, 0, 0, 1, wanted];
        assert_eq!(with(&wanted(0), 1).unwrap(), Opened::KeyUpdate(false));
        assert_eq!(with(&wanted(1), 1).unwrap(), Opened::KeyUpdate(true));
        assert!(with(&wanted(1), MOST_UPDATES).is_ok());
        assert!(with(&wanted(1), MOST_UPDATES + 1).is_err());
        for message in [
            &wanted(2)[..],
            &wanted(0)[..4],
            &[4, 0, 0, 0],
            &[wanted(0), wanted(0)].concat(),
            &[],
        ] {
            let damage = with(message, 1).unwrap_err();
            assert_eq!(damage.alert, Some(alert::UNEXPECTED_MESSAGE));
        }
    }
}
