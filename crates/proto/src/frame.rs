//! Encoding of messages and blocks on a byte stream.
//!
//! ```text
//!  0      1      2             4                    8                   12
//!  +------+------+-------------+--------------------+--------------------+
//!  | kind | 'L'  | check       | body bytes         | payload bytes      |
//!  +------+------+-------------+--------------------+--------------------+
//!  | XXH3-64 of the twelve bytes above, and the body's, mixed            |
//!  +---------------------------------------------------------------------+
//!  | body: CBOR ...                                                      |
//!  | payload: the data of a block, else nothing ...                      |
//!  +---------------------------------------------------------------------+
//! ```
//!
//! Numbers are little-endian. The check is the low 16 bits of the XXH3-64 of the first two bytes
//! and the lengths, so that a corrupted length is detected before the receiver waits for that many
//! bytes. The header's checksum matters on streams in clear; its cost on other streams is
//! negligible. The payload has its own checksum in the body.

use minicbor::{Decode, Encode};
use twox_hash::XxHash3_64;

/// Length of a frame's header in bytes.
pub const HEADER_BYTES: usize = 20;

/// Maximum length of a body in bytes: a full pack's entries, or an answer with many ranges.
pub const MAXIMUM_BODY_BYTES: usize = 1 << 20;

/// Maximum length of a handshake's body in bytes. It is smaller because the peer is not yet
/// authenticated.
pub const MAXIMUM_HANDSHAKE_BYTES: usize = 64 << 10;

/// Maximum length of a payload in bytes: the largest block, incompressible, with the overhead of a
/// codec.
pub const MAXIMUM_PAYLOAD_BYTES: usize = (16 << 20) + (64 << 10);

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// [`crate::handshake`], before anything else.
    Handshake,
    /// [`crate::control::Numbered`] messages.
    Control,
    /// [`crate::block::BlockHeader`] and its payload.
    Block,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        [FrameKind::Handshake, FrameKind::Control, FrameKind::Block]
            .into_iter()
            .find(|kind| kind.byte() == byte)
    }

    fn byte(self) -> u8 {
        match self {
            FrameKind::Handshake => 1,
            FrameKind::Control => 2,
            FrameKind::Block => 3,
        }
    }

    /// Returns the maximum length of a body of this kind in bytes.
    pub fn maximum_body(self) -> usize {
        match self {
            FrameKind::Handshake => MAXIMUM_HANDSHAKE_BYTES,
            FrameKind::Control | FrameKind::Block => MAXIMUM_BODY_BYTES,
        }
    }

    fn maximum_payload(self) -> usize {
        match self {
            FrameKind::Block => MAXIMUM_PAYLOAD_BYTES,
            FrameKind::Handshake | FrameKind::Control => 0,
        }
    }
}

/// Error of a frame that cannot be read. The stream is then lost, because later data cannot be
/// trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The data is not from longhaul, or the stream is corrupt.
    #[error("this is no longhaul stream (its first bytes are {0:02x?})")]
    NotLonghaul([u8; 2]),
    /// A length exceeds its maximum.
    #[error("a frame announces {body} bytes and {payload} of payload, more than is allowed")]
    TooLong {
        /// Announced body bytes.
        body: usize,
        /// Announced payload bytes.
        payload: usize,
    },
    /// The header's checksum is wrong.
    #[error("a frame's header was corrupted on its way")]
    Corrupt,
    /// The body is not the expected CBOR, or a value is out of its range.
    #[error("a frame cannot be decoded: {0}")]
    Undecodable(String),
    /// A frame of this kind is not allowed here.
    #[error("a frame came where it is not allowed: {0}")]
    Unexpected(&'static str),
}

/// A frame's header with lengths within their maxima.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Content of the frame.
    pub kind: FrameKind,
    /// Length of the body in bytes, at most [`FrameKind::maximum_body`].
    pub body: usize,
    /// Length of the payload in bytes, at most [`MAXIMUM_PAYLOAD_BYTES`].
    pub payload: usize,
    checksum: u64,
}

impl FrameHeader {
    /// Parses a header.
    ///
    /// # Errors
    ///
    /// [`FrameError`] if the bytes are not a valid header or a length exceeds its maximum.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
        let [
            kind,
            magic,
            check,
            check_too,
            b0,
            b1,
            b2,
            b3,
            p0,
            p1,
            p2,
            p3,
            checksum @ ..,
        ] = *bytes;
        let known = FrameKind::from_byte(kind).filter(|_| magic == b'L');
        let Some(kind) = known else {
            return Err(FrameError::NotLonghaul([kind, magic]));
        };
        let body = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
        let payload = u32::from_le_bytes([p0, p1, p2, p3]) as usize;
        if [check, check_too] != check_of([kind.byte(), magic], [b0, b1, b2, b3], [p0, p1, p2, p3])
        {
            return Err(FrameError::Corrupt);
        }
        if body > kind.maximum_body() || payload > kind.maximum_payload() {
            return Err(FrameError::TooLong { body, payload });
        }
        Ok(FrameHeader {
            kind,
            body,
            payload,
            checksum: u64::from_le_bytes(checksum),
        })
    }

    /// Verifies the checksum of the body and decodes it.
    ///
    /// # Errors
    ///
    /// [`FrameError::Corrupt`] or [`FrameError::Undecodable`].
    pub fn decode<'b, T: Decode<'b, ()>>(&self, body: &'b [u8]) -> Result<T, FrameError> {
        let start = start_of(self.kind, self.body as u32, self.payload as u32);
        if body.len() != self.body || checksum_of(&start, body) != self.checksum {
            return Err(FrameError::Corrupt);
        }
        minicbor::decode(body).map_err(|error| FrameError::Undecodable(error.to_string()))
    }
}

fn start_of(kind: FrameKind, body: u32, payload: u32) -> [u8; 12] {
    let (b, p) = (body.to_le_bytes(), payload.to_le_bytes());
    let [c0, c1] = check_of([kind.byte(), b'L'], b, p);
    let ([b0, b1, b2, b3], [p0, p1, p2, p3]) = (b, p);
    [kind.byte(), b'L', c0, c1, b0, b1, b2, b3, p0, p1, p2, p3]
}

fn check_of(start: [u8; 2], body: [u8; 4], payload: [u8; 4]) -> [u8; 2] {
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&start);
    bytes[2..6].copy_from_slice(&body);
    bytes[6..].copy_from_slice(&payload);
    (XxHash3_64::oneshot(&bytes) as u16).to_le_bytes()
}

fn checksum_of(start: &[u8; 12], body: &[u8]) -> u64 {
    XxHash3_64::oneshot(start) ^ XxHash3_64::oneshot(body).rotate_left(1)
}

/// Returns the header and body of a frame whose payload has `payload` bytes.
///
/// # Errors
///
/// [`FrameError::TooLong`] if a length exceeds its maximum.
pub fn encode<T: Encode<()>>(
    kind: FrameKind,
    value: &T,
    payload: usize,
) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; HEADER_BYTES];
    minicbor::encode(value, &mut frame)
        .map_err(|error| FrameError::Undecodable(error.to_string()))?;
    let body = frame.len() - HEADER_BYTES;
    if body > kind.maximum_body() || payload > kind.maximum_payload() {
        return Err(FrameError::TooLong { body, payload });
    }
    let start = start_of(kind, body as u32, payload as u32);
    let checksum = checksum_of(&start, &frame[HEADER_BYTES..]);
    frame[..12].copy_from_slice(&start);
    frame[12..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(frame: &[u8]) -> Result<FrameHeader, FrameError> {
        FrameHeader::parse(frame[..HEADER_BYTES].try_into().unwrap())
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let frame = encode(FrameKind::Control, &(7_u64, "text"), 0).unwrap();
        let header = header_of(&frame).unwrap();
        assert_eq!(
            header.decode::<(u64, &str)>(&frame[HEADER_BYTES..]),
            Ok((7, "text"))
        );
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let read = header_of(&bad).and_then(|header| {
                header
                    .decode::<(u64, &str)>(&bad[HEADER_BYTES..])
                    .map(|_| ())
            });
            assert!(read.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn lengths_are_bounded_before_data_are_read() {
        let mut frame = encode(FrameKind::Block, &1_u64, 5).unwrap();
        frame[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(header_of(&frame), Err(FrameError::Corrupt));
        let start = start_of(FrameKind::Block, 1, u32::MAX);
        frame[..12].copy_from_slice(&start);
        assert!(matches!(header_of(&frame), Err(FrameError::TooLong { .. })));
        assert!(encode(FrameKind::Control, &1_u64, 1).is_err());
        assert!(encode(FrameKind::Handshake, &"x".repeat(70_000).as_str(), 0).is_err());
    }
}
