//! Receives the data of an object in order.

use std::io::Read;
use std::ops::Range;

use crate::client::{Failed, Response, of_read};
use crate::error::Error;
use crate::store::{Object, Sink, Version};
use crate::time;

/// Number of bytes that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Returns the version that a response describes.
pub fn version_of(response: &Response) -> Option<Version> {
    let tag = response.header("etag").map(str::trim);
    // A weak tag stays the same for data that differ.
    let is_strong = |tag: &&str| tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"');
    if let Some(tag) = tag.filter(is_strong) {
        return Some(Version::Tag(tag.to_owned()));
    }
    let modified = response.header("last-modified")?;
    time::parse_header(modified).map(|_| Version::Modified(modified.to_owned()))
}

/// Checks that a response has the version of an object.
///
/// # Errors
///
/// [`Error::Changed`].
pub fn check_version(response: &Response, object: &Object) -> Result<(), Error> {
    match (&object.version, version_of(response)) {
        (Some(known), Some(now)) if *known != now => Err(Error::Changed),
        _ => Ok(()),
    }
}

/// Refuses data that are encoded, such as compressed ones: their parts are not parts of the file.
///
/// # Errors
///
/// [`Error::Unexpected`].
pub fn check_encoding(response: &Response) -> Result<(), Error> {
    match response.header("content-encoding").map(str::trim) {
        None | Some("" | "identity") => Ok(()),
        // Some servers call a compressed file so, and send it as it is.
        Some("aws-chunked") => Ok(()),
        Some(_) => {
            let text = "the server sends the object in an encoding that was not requested";
            Err(Error::Unexpected(text.to_owned()))
        }
    }
}

/// The first byte, the last byte and the size in a header `Content-Range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
    /// Size of the object, if the server knows it.
    pub size: Option<u64>,
}

/// Parses `bytes FIRST-LAST/SIZE`.
pub fn parse_content_range(text: &str) -> Option<ContentRange> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits)
    };
    let (first, last) = (number(first)?, number(last)?);
    let size = match size.trim() {
        "*" => None,
        size => Some(number(size)?),
    };
    let end = last.checked_add(1)?;
    let is_valid = first < end && size.is_none_or(|size| end <= size);
    is_valid.then_some(ContentRange {
        start: first,
        end,
        size,
    })
}

/// Checks the response to a request for a part of an object. `size` is the size of the object.
///
/// # Errors
///
/// [`Error::NoRanges`], [`Error::Changed`], or an error of the response.
pub fn check_part(response: &Response, object: &Object, range: &Range<u64>) -> Result<(), Error> {
    let size = object.size;
    match response.status {
        206 => {
            check_version(response, object)?;
            check_encoding(response)?;
            let found = response
                .header("content-range")
                .and_then(parse_content_range);
            let found = found.ok_or_else(|| {
                Error::Unexpected("a part of an object has no valid Content-Range".to_owned())
            })?;
            if found.size.is_some() && found.size != size {
                return Err(Error::Changed);
            }
            if (found.start, found.end) != (range.start, range.end) {
                let text = "the server sent another part of the object than requested";
                return Err(Error::Unexpected(text.to_owned()));
            }
            Ok(())
        }
        200 => {
            check_version(response, object)?;
            // Without a version, an object of another size is another one.
            if response.length().is_some() && response.length() != size {
                return Err(Error::Changed);
            }
            Err(Error::NoRanges)
        }
        412 | 416 => Err(Error::Changed),
        _ => Ok(()),
    }
}

/// Passes exactly `expected` bytes of a response to `sink`. `advanced` counts them.
///
/// # Errors
///
/// The data are shorter or longer, the connection fails, or `sink` fails.
pub fn receive(
    response: Response,
    expected: u64,
    advanced: &mut u64,
    sink: &mut Sink<'_>,
) -> Result<(), Error> {
    let mut reader = response.into_reader();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut received = 0;
    loop {
        let count = reader.read(&mut buffer).map_err(of_read)?;
        if count == 0 {
            break;
        }
        received += count as u64;
        if received > expected {
            return Err(Error::Incomplete { received, expected });
        }
        let data = buffer.get(..count).unwrap_or_default();
        sink(data).map_err(Error::Local)?;
        *advanced += count as u64;
    }
    if received < expected {
        return Err(Error::Incomplete { received, expected });
    }
    Ok(())
}

/// Passes all bytes of a response of unknown length to `sink`. Returns their number.
///
/// # Errors
///
/// The connection fails, or `sink` fails.
pub fn receive_all(response: Response, sink: &mut Sink<'_>) -> Result<u64, Error> {
    let mut reader = response.into_reader();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut received = 0;
    loop {
        let count = reader.read(&mut buffer).map_err(of_read)?;
        if count == 0 {
            return Ok(received);
        }
        sink(buffer.get(..count).unwrap_or_default()).map_err(Error::Local)?;
        received += count as u64;
    }
}

/// Describes a failed attempt that received some bytes.
pub fn failed(error: Error, advanced: u64) -> Failed {
    Failed {
        advanced: advanced > 0,
        ..Failed::from(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_parsed() {
        let range = |start, end, size| Some(ContentRange { start, end, size });
        for (text, expected) in [
            ("bytes 0-0/1", range(0, 1, Some(1))),
            ("bytes 5-9/*", range(5, 10, None)),
            ("bytes 5-4/10", None),
            ("bytes 5-9/9", None),
            ("bytes */10", None),
            ("bytes 0-18446744073709551615/*", None),
            ("bytes +0-1/2", None),
            ("items 0-1/2", None),
            ("", None),
        ] {
            assert_eq!(parse_content_range(text), expected, "{text}");
        }
    }
}
