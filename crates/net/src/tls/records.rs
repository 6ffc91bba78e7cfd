//! The record layer of an open TLS 1.3 connection (RFC 8446, section 5).
//!
//! rustls does the handshake, derives all keys and exports them (its `kernel` interface, made for
//! kTLS); aws-lc encrypts. The records are made here, because rustls copies each byte once more at
//! either end. Here a record is encrypted from the caller's memory into the buffer that goes to
//! the kernel, and decrypted from the kernel's buffer into the caller's memory.
//!
//! After the handshake there are data, alerts and key updates. Nothing else is
//! understood: neither end gives tickets or asks for certificates later.

use ::aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::kernel::KernelConnection;
use rustls::{ConnectionTrafficSecrets, Error, SupportedCipherSuite};

/// Plaintext of a full record (section 5.1).
pub(super) const RECORD_PLAINTEXT: usize = 16 << 10;

/// Type, version and length before a record.
pub(super) const RECORD_HEADER: usize = 5;

/// The authentication tag of all three suites.
const TAG: usize = 16;

/// What header, content type and tag add to the plaintext.
pub(super) const RECORD_OVERHEAD: usize = RECORD_HEADER + 1 + TAG;

/// The largest encrypted record that a peer may send, without its header
/// (section 5.2).
const LARGEST_BODY: usize = RECORD_PLAINTEXT + 256;

/// The largest that a peer may send, with its header.
pub(super) const RECORD_MAXIMUM: usize = LARGEST_BODY + RECORD_HEADER;

/// Key updates without data between them: our own peers send one in 2^23
/// records, so one who sends many wants us to compute.
const MOST_UPDATES: u32 = 32;

/// Sequence numbers must not wrap (section 5.3), however long a suite's keys
/// last.
const MOST_RECORDS: u64 = 1 << 48;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

const KEY_UPDATE: u8 = 24;

/// Alerts (section 6) that are sent or understood here.
mod alert {
    pub const CLOSE_NOTIFY: u8 = 0;
    pub const UNEXPECTED_MESSAGE: u8 = 10;
    pub const BAD_RECORD_MAC: u8 = 20;
    pub const RECORD_OVERFLOW: u8 = 22;
    pub const USER_CANCELED: u8 = 90;
}

/// Gives the keys that follow the ones in use.
pub(super) trait Renewal: Send {
    /// For what is sent.
    fn next_sending(&mut self) -> Result<ConnectionTrafficSecrets, Error>;

    /// For what is received.
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

/// One direction's key, and the number of its next record.
pub(super) struct Keys {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Keys {
    /// From the record with this number on.
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

    /// The next record's nonce (section 5.3): a number is used once.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The header of an encrypted record whose body has this length (section 5.2);
/// it is what is authenticated beside the body.
fn header(body: usize) -> [u8; RECORD_HEADER] {
    let [high, low] = (body as u16).to_be_bytes();
    [DATA, 3, 3, high, low]
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

    /// Room for `bytes` more, which count as filled.
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

/// The sending direction.
pub(super) struct Sealer {
    keys: Keys,
    /// Records for which a key is good.
    limit: u64,
}

impl Sealer {
    /// With the suite's limit of records for a key (section 5.5).
    pub(super) fn new(keys: Keys, suite: SupportedCipherSuite) -> Sealer {
        let SupportedCipherSuite::Tls13(suite) = suite;
        let limit = suite.common.confidentiality_limit;
        Sealer {
            keys,
            // A key update needs a record too.
            limit: limit.clamp(2, MOST_RECORDS),
        }
    }

    /// Whether the next record must be a key update.
    pub(super) fn is_worn(&self) -> bool {
        self.keys.sequence + 1 >= self.limit
    }

    /// Encrypts data into as many records as it takes; at most as many as
    /// [`Sealer::is_worn`] allows: returns how much of it.
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

    /// Says that this key has been used for the last time, and takes the next;
    /// `asks` wants the peer to do the same.
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

    /// Says that nothing more will come.
    pub(super) fn close(&mut self, outgoing: &mut Outgoing) -> Result<(), Error> {
        self.seal_record(ALERT, &[1, alert::CLOSE_NOTIFY], outgoing)
    }

    /// Says why the connection is given up.
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

/// Why nothing more can be received.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    /// The alert that tells the peer; `None` if it told us.
    pub(super) alert: Option<u8>,
    /// What happened.
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

/// What a record brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// This many bytes of data at the front of the caller's memory.
    Data(usize),
    /// The same where the record is, after its header.
    InPlace(usize),
    /// The peer took its next key, and wants us to take ours where true.
    KeyUpdate(bool),
    /// The peer sends no more.
    Closed,
    /// Nothing of interest.
    Nothing,
}

/// The receiving direction.
pub(super) struct Opener {
    keys: Keys,
    updates: u32,
}

impl Opener {
    pub(super) fn new(keys: Keys) -> Opener {
        Opener { keys, updates: 0 }
    }

    /// Length of the record at the front of what was received, with its header; `None` if it is
    /// not whole.
    ///
    /// # Errors
    ///
    /// Where it can be no record.
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

    /// Decrypts a whole record: data straight into `room` where it fits, with a
    /// byte more for its type; else where it is.
    ///
    /// # Errors
    ///
    /// Where it is not genuine, or not understood: then nothing more can be
    /// believed.
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
        // Type and zeros follow the content (section 5.4).
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
            // Our own peers never cut a key update in pieces, or put anything
            // beside it.
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
    fn a_record_is_opened_into_the_callers_memory_or_where_it_is() {
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
        // Content, its type, and zeros; then what is called the type is zero.
        let mut padded = self::record(0, &[b'x', DATA, 0, 0, 0]);
        assert_eq!(open(&mut padded, 100).unwrap(), Opened::Data(1));
        let mut empty = self::record(0, &[0; 30]);
        let damage = open(&mut empty, 100).unwrap_err();
        assert_eq!(damage.alert, Some(alert::UNEXPECTED_MESSAGE));
    }

    #[test]
    fn whatever_bit_is_flipped_it_is_noticed() {
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
        // The fourth is the key update.
        assert_eq!(done, 3 * RECORD_PLAINTEXT);
        assert!(sealer.is_worn());
        assert_eq!(sealer.seal(&data, &mut outgoing).unwrap(), 0);
    }

    #[test]
    fn what_is_no_record_is_refused_before_it_is_whole() {
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
        // It was the peer that said so: it is not told.
        assert_eq!(damage.alert, None);
        assert!(open(&mut record(ALERT, &[1]), 100).is_err());
    }

    #[test]
    fn only_whole_key_updates_follow_the_handshake() {
        let with = |message: &[u8], times: u32| {
            let mut opener = Opener::new(keys());
            let mut result = Ok(Opened::Nothing);
            for _ in 0..times {
                // Each under a fresh key, from its first record.
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
