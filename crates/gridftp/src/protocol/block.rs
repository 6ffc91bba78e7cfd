//! Frames of extended block mode (MODE E, GFD.20).
//!
//! ```text
//! flags (1 byte) | length (8 bytes) | offset (8 bytes) | length bytes of the file
//! ```
//!
//! Each data connection ends its part of a file with the flag [`END_OF_DATA`]. One of them also
//! sends [`END_OF_FILE`]; its offset is then the number of connections that the file used.

/// The sender closes the connection afterwards.
pub const CLOSE: u8 = 4;
/// The connection carries no further data of this file.
pub const END_OF_DATA: u8 = 8;
/// The offset is the number of connections that carry data of this file.
pub const END_OF_FILE: u8 = 64;

/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 17;

/// Maximum number of data connections that a server may announce or open for one file.
pub const MAXIMUM_CONNECTIONS: usize = 256;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sum of the flags.
    pub flags: u8,
    /// Number of bytes of the file that follow.
    pub length: u64,
    /// Offset of these bytes in the file, or the number of connections.
    pub offset: u64,
}

impl Header {
    /// Encodes the header.
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.flags;
        bytes[1..9].copy_from_slice(&self.length.to_be_bytes());
        bytes[9..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Header {
        let number = |at: usize| {
            let digits = bytes[at..at + 8].iter();
            digits.fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        Header {
            flags: bytes[0],
            length: number(1),
            offset: number(9),
        }
    }
}

/// Reasons to reject frames of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The frame has a flag with an unknown meaning, or one that says the data may be wrong.
    #[error("a frame of the server has the flags {0:#x}, which say that its data may be wrong")]
    Flags(u8),
    /// The frame lies outside of the file.
    #[error("the server sent data beyond the end of the file")]
    Outside,
    /// The frame announces an impossible number of connections.
    #[error("the server announced {0} data connections")]
    Connections(u64),
}

/// A part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Bytes of the file.
    Data {
        /// Offset of the first byte in the file.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The frame has ended this connection's part of the file, or told the number of
    /// connections.
    Flags {
        /// True if the connection carries no further data of this file.
        is_end: bool,
        /// Number of connections that carry data of this file.
        connections: Option<u64>,
    },
}

/// Splits the bytes of one data connection into frames.
#[derive(Debug, Default)]
pub struct BlockReader {
    header: [u8; HEADER_BYTES],
    /// Number of bytes of the header that have arrived.
    filled: usize,
    /// The frame whose data are arriving: its header with the offset and length that are left.
    current: Option<Header>,
}

impl BlockReader {
    /// True if the connection may end here.
    pub fn is_between_frames(&self) -> bool {
        self.filled == 0 && self.current.is_none()
    }

    /// Returns the number of bytes that [`BlockReader::next`] consumed, and a part of a frame.
    /// Call it again with the rest until it has consumed all bytes and returns no part. After
    /// a part of kind [`Part::Flags`], the rest belongs to the next file if `is_end` is true.
    ///
    /// # Errors
    ///
    /// [`BlockError`], also if data lie beyond `size`, the size of the file in bytes.
    pub fn next<'a>(
        &mut self,
        bytes: &'a [u8],
        size: u64,
    ) -> Result<(usize, Option<Part<'a>>), BlockError> {
        let mut used = 0;
        if self.current.is_none() {
            used = bytes.len().min(HEADER_BYTES - self.filled);
            self.header[self.filled..self.filled + used].copy_from_slice(&bytes[..used]);
            self.filled += used;
            if self.filled < HEADER_BYTES {
                return Ok((used, None));
            }
            self.filled = 0;
            self.current = Some(checked(Header::parse(&self.header), size)?);
        }
        let Some(mut header) = self.current.take() else {
            return Ok((used, None));
        };
        if header.length == 0 || header.flags & END_OF_FILE != 0 {
            return Ok((used, flags_of(header)));
        }
        let count = bytes.len() - used;
        let count = usize::try_from(header.length).map_or(count, |left| left.min(count));
        if count == 0 {
            self.current = Some(header);
            return Ok((used, None));
        }
        let part = Part::Data {
            offset: header.offset,
            bytes: &bytes[used..used + count],
        };
        header.offset += count as u64;
        header.length -= count as u64;
        if header.length > 0 || header.flags != 0 {
            self.current = Some(header);
        }
        Ok((used + count, Some(part)))
    }
}

/// Checks a header against the bounds of the file.
fn checked(header: Header, size: u64) -> Result<Header, BlockError> {
    if header.flags & !(CLOSE | END_OF_DATA | END_OF_FILE) != 0 {
        return Err(BlockError::Flags(header.flags));
    }
    if header.flags & END_OF_FILE != 0 {
        if header.length != 0 {
            return Err(BlockError::Flags(header.flags));
        }
        if header.offset == 0 || header.offset > MAXIMUM_CONNECTIONS as u64 {
            return Err(BlockError::Connections(header.offset));
        }
        return Ok(header);
    }
    let end = header.offset.checked_add(header.length);
    let is_inside = header.length == 0 || end.is_some_and(|end| end <= size);
    is_inside.then_some(header).ok_or(BlockError::Outside)
}

fn flags_of(header: Header) -> Option<Part<'static>> {
    let is_end_of_file = header.flags & END_OF_FILE != 0;
    (header.flags != 0).then_some(Part::Flags {
        is_end: header.flags & END_OF_DATA != 0,
        connections: is_end_of_file.then_some(header.offset),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(flags: u8, offset: u64, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u64;
        let header = Header {
            flags,
            length,
            offset,
        };
        [&header.bytes()[..], data].concat()
    }

    fn end(flags: u8, offset: u64) -> Vec<u8> {
        frame(flags, offset, b"")
    }

    /// Splits bytes that arrive in steps. Returns the file, and the flags.
    fn read(bytes: &[u8], step: usize, size: u64) -> Result<(Vec<u8>, Vec<String>), BlockError> {
        let mut reader = BlockReader::default();
        let mut file = vec![0; size as usize];
        let mut flags = Vec::new();
        for part in bytes.chunks(step) {
            let mut rest = part;
            loop {
                let (used, part) = reader.next(rest, size)?;
                rest = &rest[used..];
                match part {
                    Some(Part::Data { offset, bytes }) => {
                        let at = offset as usize;
                        file[at..at + bytes.len()].copy_from_slice(bytes);
                    }
                    Some(other) => flags.push(format!("{other:?}")),
                    None if rest.is_empty() => break,
                    None => {}
                }
            }
        }
        assert!(reader.is_between_frames());
        Ok((file, flags))
    }

    #[test]
    fn frames_are_found_however_their_bytes_arrive() {
        let bytes = [
            frame(0, 3, b"defgh"),
            end(0, 0),
            frame(END_OF_DATA, 0, b"abc"),
            end(END_OF_DATA | END_OF_FILE | CLOSE, 2),
        ]
        .concat();
        let mut seen = None;
        for step in 1..=bytes.len() {
            let found = read(&bytes, step, 8).unwrap();
            assert_eq!(found.0, b"abcdefgh", "{step}");
            assert_eq!(found.1.len(), 2, "{step}: {found:?}");
            assert_eq!(*seen.get_or_insert(found.clone()), found);
        }
    }

    #[test]
    fn frames_outside_of_the_file_are_refused() {
        for (bytes, error) in [
            (frame(0, 6, b"abc"), BlockError::Outside),
            (frame(0, u64::MAX, b"abc"), BlockError::Outside),
            (frame(32, 0, b"abc"), BlockError::Flags(32)),
            (
                frame(END_OF_FILE, 1, b"abc"),
                BlockError::Flags(END_OF_FILE),
            ),
            (end(END_OF_FILE, 0), BlockError::Connections(0)),
            (end(END_OF_FILE, 1 << 40), BlockError::Connections(1 << 40)),
        ] {
            assert_eq!(read(&bytes, 100, 8), Err(error));
        }
    }
}
