//! Backups of files that are replaced or deleted at the destination.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::byte_string::ByteString;

/// Maximum length of the suffix in bytes. A name has at most 255 bytes, and a part of the original
/// name must remain.
pub const MAXIMUM_SUFFIX_BYTES: usize = 128;

/// Maximum length of the path of a backup directory in bytes, the kernel's limit.
pub const MAXIMUM_DIRECTORY_BYTES: usize = 4095;

/// Settings of backups: replaced and deleted files get another name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(map)]
#[serde(deny_unknown_fields, default)]
pub struct Backup {
    /// Directory of the backups, relative to the destination, in which they keep their paths; at
    /// most [`MAXIMUM_DIRECTORY_BYTES`]. `None` if they stay in their directories.
    #[n(1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<ByteString>,
    /// Suffix of a backup's name, at most [`MAXIMUM_SUFFIX_BYTES`]; `None`: `~`, or an empty suffix
    /// if there is a directory. It is not empty without a directory.
    #[n(0)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<ByteString>,
}

impl Backup {
    /// Returns the suffix of a backup's name.
    pub fn suffix(&self) -> &[u8] {
        match (&self.suffix, &self.directory) {
            (Some(suffix), _) => suffix,
            (None, Some(_)) => b"",
            (None, None) => b"~",
        }
    }

    /// True if every value is within its range.
    pub fn is_valid(&self) -> bool {
        let is_part = |byte: &u8| !matches!(byte, 0 | b'/');
        let suffix = self.suffix();
        let in_its_place = match &self.directory {
            None => !suffix.is_empty(),
            Some(path) => (1..=MAXIMUM_DIRECTORY_BYTES).contains(&path.len()) && !path.contains(&0),
        };
        in_its_place && suffix.len() <= MAXIMUM_SUFFIX_BYTES && suffix.iter().all(is_part)
    }

    /// Returns a rule that protects names with the suffix from deletion; `None` if backups have a
    /// directory of their own.
    pub fn protection(&self) -> Option<Vec<u8>> {
        if self.directory.is_some() {
            return None;
        }
        let mut rule = b"P *".to_vec();
        for byte in self.suffix() {
            if b"\\*?[".contains(byte) {
                rule.push(b'\\');
            }
            rule.push(*byte);
        }
        Some(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Action, End, InForce, Rules};

    fn backup(suffix: &[u8], directory: Option<&[u8]>) -> Backup {
        Backup {
            suffix: Some(suffix.into()),
            directory: directory.map(Into::into),
        }
    }

    #[test]
    fn a_backup_is_bounded_and_decoded_as_encoded() {
        for (suffix, directory, valid) in [
            (&b"~"[..], None, true),
            (b"", None, false),
            (b"", Some(&b"../old"[..]), true),
            (b".1", Some(b"/old"), true),
            (b"a/b", None, false),
            (b"a\0", None, false),
            (b"~", Some(b""), false),
            (b"~", Some(b"a\0"), false),
            (&[b'x'; 129], None, false),
            (b"~", Some(&[b'x'; 4096]), false),
        ] {
            let backup = backup(suffix, directory);
            assert_eq!(backup.is_valid(), valid, "{backup:?}");
            let bytes = minicbor::to_vec(&backup).unwrap();
            assert_eq!(minicbor::decode::<Backup>(&bytes).unwrap(), backup);
        }
    }

    #[test]
    fn names_that_have_the_suffix_are_protected_and_no_others() {
        let rule = backup(b".[old]*", None).protection().unwrap();
        let rules = Rules::parse(&[rule]).unwrap();
        let protects = |name: &[u8]| {
            let decided = InForce::default().decide_at(End::Receiving, &rules, name, false);
            decided == Some(Action::Exclude)
        };
        assert!(protects(b"d/a.[old]*"));
        for name in [&b"a.o"[..], b"a.[old]", b"a.[old]x", b"a"] {
            assert!(!protects(name), "{name:?}");
        }
        assert_eq!(backup(b"~", Some(b"x")).protection(), None);
    }
}
