//! A pipe, whose length is unknown before its end. It travels as a directory of pieces. Each is a
//! small file that is named by its offset, and one more name gives the length of the whole. The
//! receiving end joins them into one file.

use std::fmt::Write as _;

use crate::digest::LARGEST_FILE_BYTES;

/// Name of the directory in which the pieces are.
pub const STREAM_NAME: &[u8] = b"stream";

/// Hexadecimal digits of a number, so that names are in the order of numbers.
const DIGITS: usize = 16;

/// What a name in the directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPart {
    /// The data from this byte on.
    Data(u64),
    /// Nothing: the number of bytes of the pipe.
    End(u64),
}

impl StreamPart {
    /// Its name.
    pub fn name(self) -> Box<[u8]> {
        let (letter, number) = match self {
            StreamPart::Data(offset) => ('d', offset),
            StreamPart::End(total) => ('e', total),
        };
        let mut name = String::from(letter);
        // Writing to a string does not fail.
        let _ = write!(name, "{number:016x}");
        name.into_bytes().into()
    }

    /// Parses a name; `None` if it is not of a pipe, or of one that is longer than a file may be.
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
    fn names_are_understood_again_and_in_order() {
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
