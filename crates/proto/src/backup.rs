//! What becomes of a file that is replaced or deleted at the destination, where it is to be kept.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// The longest suffix, in bytes: a name has 255, and something is to be left of it.
pub const MAXIMUM_SUFFIX_BYTES: usize = 128;

/// The longest path of a directory for backups, in bytes: the most that the kernel takes.
pub const MAXIMUM_DIRECTORY_BYTES: usize = 4095;

/// What is replaced or deleted is kept under another name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Backup {
    /// What its name gets at its end, 0 to [`MAXIMUM_SUFFIX_BYTES`]; 1 or more without a directory.
    #[n(0)]
    pub suffix: ByteVec,
    /// Where it goes, by its path beneath the anchor; relative to the anchor. `None`: it stays in
    /// its directory.
    #[n(1)]
    pub directory: Option<ByteVec>,
}

impl Backup {
    /// Whether a peer may ask for it.
    pub fn is_valid(&self) -> bool {
        let is_part = |byte: &u8| !matches!(byte, 0 | b'/');
        let suffix = &**self.suffix;
        let in_its_place = match &self.directory {
            None => !suffix.is_empty(),
            Some(path) => (1..=MAXIMUM_DIRECTORY_BYTES).contains(&path.len()) && !path.contains(&0),
        };
        in_its_place && suffix.len() <= MAXIMUM_SUFFIX_BYTES && suffix.iter().all(is_part)
    }

    /// A rule for names that have the suffix, which protects earlier backups from deletion; `None`
    /// if these lie in a directory of their own.
    pub fn protection(&self) -> Option<Vec<u8>> {
        if self.directory.is_some() {
            return None;
        }
        let mut rule = b"P *".to_vec();
        for byte in self.suffix.iter() {
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
            suffix: suffix.to_vec().into(),
            directory: directory.map(|path| path.to_vec().into()),
        }
    }

    #[test]
    fn a_backup_is_bounded_and_read_as_it_was_said() {
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
