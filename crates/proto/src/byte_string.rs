//! Strings of bytes, such as paths and commands. On the wire they are bytes. In JSON they are text
//! if they are valid UTF-8, and otherwise an object with a list of bytes.

use std::ops::Deref;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// A string of bytes that is usually, but not always, UTF-8.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Encode,
    Decode,
    Serialize,
    Deserialize,
)]
#[cbor(transparent)]
#[serde(from = "Json", into = "Json")]
pub struct ByteString(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>);

/// The JSON form of a [`ByteString`].
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Json {
    /// Valid UTF-8.
    Text(String),
    /// Any other bytes.
    Bytes {
        /// Bytes of the string.
        bytes: Vec<u8>,
    },
}

impl Deref for ByteString {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for ByteString {
    fn from(bytes: Vec<u8>) -> ByteString {
        ByteString(bytes)
    }
}

impl From<&[u8]> for ByteString {
    fn from(bytes: &[u8]) -> ByteString {
        ByteString(bytes.to_vec())
    }
}

impl From<Json> for ByteString {
    fn from(json: Json) -> ByteString {
        ByteString(match json {
            Json::Text(text) => text.into_bytes(),
            Json::Bytes { bytes } => bytes,
        })
    }
}

impl From<ByteString> for Json {
    fn from(string: ByteString) -> Json {
        match String::from_utf8(string.0) {
            Ok(text) => Json::Text(text),
            Err(error) => Json::Bytes {
                bytes: error.into_bytes(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_in_json_if_they_are_utf8() {
        for (bytes, json) in [
            (&b"a \xc3\xa4"[..], "\"a \u{e4}\""),
            (b"\xff", "{\"bytes\":[255]}"),
            (b"", "\"\""),
        ] {
            let string = ByteString::from(bytes);
            assert_eq!(serde_json::to_string(&string).unwrap(), json);
            assert_eq!(serde_json::from_str::<ByteString>(json).unwrap(), string);
            let wire = minicbor::to_vec(&string).unwrap();
            assert_eq!(minicbor::decode::<ByteString>(&wire).unwrap(), string);
        }
    }
}
