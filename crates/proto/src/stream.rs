//! Pipes, whose length is unknown before their end. A pipe travels as a directory of pieces. Each
//! piece is a small file named by its offset, and one more name gives the total length. The
//! receiving end joins the pieces into one file.

use std::fmt::Write as _;

use crate::digest::LARGEST_FILE_BYTES;

/// Name of the directory that contains the pieces.
pub const STREAM_NAME: &[u8] = b"stream";

/// Number of hexadecimal digits of a number, so that names sort by number.
const DIGITS: usize = 16;

/// Meaning of a name in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPart {
    /// Data from this offset on.
    Data(u64),
    /// End of the pipe, with its total number of bytes. The file is empty.
    End(u64),
}

impl StreamPart {
    /// Returns the name.
    pub fn name(self) -> Box<[u8]> {
        let (letter, number) = match self {
            StreamPart::Data(offset) => ('d', offset),
            StreamPart::End(total) => ('e', total),
        };
        let mut name = String::from(letter);
        // Writing to a string cannot fail.
        let _ = write!(name, "{number:016x}");
        name.into_bytes().into()
    }

    /// Parses a name; `None` if it is not a name of a pipe's directory, or its number exceeds the
    /// maximum size of a file.
    pub fn parse(name: &[u8]) -> Option<StreamPart> {
        let (letter, digits) = name.split_first()?;
        let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != DIGITS || !digits.iter().all(is_digit) {
            return None;
        }
        let number = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        match letter {
            _ if number > LARGEST_FILE_BYTES => None,
            b'd' => Some(StreamPart::Data(number)),
            b'e' => Some(StreamPart::End(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pieces_are_parsed_and_in_order() {
        let parts = [
            StreamPart::Data(0),
            StreamPart::Data(255),
            StreamPart::Data(256),
            StreamPart::Data(LARGEST_FILE_BYTES),
            StreamPart::End(0),
            StreamPart::End(LARGEST_FILE_BYTES),
        ];
        for part in parts {
            assert_eq!(StreamPart::parse(&part.name()), Some(part));
        }
        assert!(parts.map(StreamPart::name).is_sorted());
        for name in [
            &b""[..],
            b"d",
            b"d000000000000000",
            b"x0000000000000000",
            b"d00000000000000G0",
            b"d000000000000000A",
            b"dffffffffffffffff",
            b"d+000000000000001",
        ] {
            assert_eq!(StreamPart::parse(name), None, "{name:?}");
        }
    }
}
