//! Deletion at the destination, after a copy in which nothing failed.
//!
//! The receiver asks for the names at the source ([`crate::message::Message::AskNames`]). The
//! sender lists each directory of the copy once more and sends the names, at most [`NAMES_WINDOW`]
//! batches ahead. The receiver compares a directory at a time with its own listing. It deletes only
//! after the sender reported that it listed everything without an error. At each end a name is
//! present, absent or unreadable, and only a name known to be absent at the source is deleted.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::backup::Backup;
use crate::byte_string::ByteString;
use crate::filter::{
    Filter, MAXIMUM_PER_DIRECTORY, MAXIMUM_RULES, Rules, SelectionError, check_bytes,
};
use crate::manifest::TreePath;

/// Maximum number of unacknowledged batches of names.
pub const NAMES_WINDOW: u32 = 64;

/// Maximum number of names in a batch, and of their bytes. A batch that reaches either is sent.
pub const MAXIMUM_NAMES: usize = 2048;
/// See [`MAXIMUM_NAMES`].
pub const MAXIMUM_NAMES_BYTES: usize = 32 << 10;

/// Maximum bytes of rule files of one directory. Rules in force take half of them.
pub const MAXIMUM_TOLD_RULES: usize = 512 << 10;

/// Maximum number of names that are removed in one step and reported in one message.
pub const REMOVED_AT_ONCE: usize = 512;

/// Settings of a deletion: entries that the sources lack are deleted from the copied directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(map)]
#[serde(deny_unknown_fields, default)]
pub struct Deletion {
    /// True if filtered names are deleted too, unless a rule protects them.
    #[n(0)]
    pub excluded: bool,
    /// Maximum number of deletions. If more are necessary, no names are deleted.
    #[n(1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u64>,
    /// If true, directories on other file systems than the anchor remain unchanged. The filter
    /// decides ([`Deletion::protecting`]).
    #[n(2)]
    #[serde(skip)]
    pub one_file_system: bool,
    /// Rules of the copy, which protect the names that they exclude ([`Deletion::protecting`]).
    #[n(3)]
    #[serde(skip)]
    pub rules: Vec<ByteString>,
}

impl Deletion {
    /// Returns this deletion with the names that the filter protects, and the backups, because the
    /// copy itself may just have made some.
    #[must_use]
    pub fn protecting(&self, filter: &Filter, backup: Option<&Backup>) -> Deletion {
        let backups = backup.and_then(Backup::protection).map(Into::into);
        Deletion {
            one_file_system: filter.one_file_system,
            rules: filter.rules.iter().cloned().chain(backups).collect(),
            ..self.clone()
        }
    }

    /// Parses the rules.
    ///
    /// # Errors
    ///
    /// The error of the first invalid rule.
    pub fn parse(&self) -> Result<Rules, SelectionError> {
        let rules: Vec<&[u8]> = self.rules.iter().map(|rule| &**rule).collect();
        Ok(Rules::parse(&rules)?)
    }

    /// True if a peer may request this deletion.
    pub fn is_valid(&self) -> bool {
        self.rules.len() <= MAXIMUM_RULES && self.check_size().is_ok() && self.parse().is_ok()
    }

    /// Checks that the rules fit into a request.
    ///
    /// # Errors
    ///
    /// [`SelectionError::TooLarge`].
    pub fn check_size(&self) -> Result<(), SelectionError> {
        check_bytes(self.rules.iter())
    }
}

/// Names in a directory of the source: all of them, or the next ones.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct NamesOf {
    /// Directory beneath the anchor; `None` for the anchor.
    #[n(0)]
    pub directory: Option<TreePath>,
    /// True if this is the first part of the directory's names.
    #[n(1)]
    pub begins: bool,
    /// True if this is the last part of the directory's names.
    #[n(2)]
    pub ends: bool,
    /// Names in ascending byte order, continuing the previous part.
    #[n(3)]
    pub names: Vec<ByteVec>,
    /// In the first part: the directory's rule files at the source that are copied, or that protect
    /// without being copied, in the order of their rules; `None` for a missing file.
    #[n(4)]
    pub rules: Vec<Option<ByteVec>>,
    /// In the last part: true if this is an empty source named in the command. If the destination
    /// has entries in its place, no names are deleted at all.
    #[n(5)]
    pub is_empty_source: bool,
}

/// Checks that names arrive in order: whole directories one after the other, each sorted.
#[derive(Debug, Default)]
pub struct NamesOrder {
    /// The directory that has begun and not ended, and its last name.
    open: Option<(Option<TreePath>, Vec<u8>)>,
}

impl NamesOrder {
    /// Returns true if this batch may come next.
    pub fn accepts(&mut self, batch: &[NamesOf]) -> bool {
        let count: usize = batch.iter().map(|some| some.names.len() + 1).sum();
        count <= 2 * MAXIMUM_NAMES && batch.iter().all(|some| self.accepts_some(some))
    }

    fn accepts_some(&mut self, some: &NamesOf) -> bool {
        let mut last = match (self.open.take(), some.begins) {
            (None, true) => Vec::new(),
            (Some((directory, last)), false) if directory == some.directory => last,
            _ => return false,
        };
        let told = some.rules.iter().flatten().map(|text| text.len());
        if some.rules.len() > MAXIMUM_PER_DIRECTORY
            || told.sum::<usize>() > MAXIMUM_TOLD_RULES
            || !(some.begins || some.rules.is_empty())
        {
            return false;
        }
        for name in &some.names {
            let is_name = TreePath::new(name).is_ok_and(|path| path.names().count() == 1);
            if !is_name || name[..] <= last[..] {
                return false;
            }
            last = name.to_vec();
        }
        if !some.ends {
            self.open = Some((some.directory.clone(), last));
        }
        true
    }

    /// True if every directory that began has ended.
    pub fn is_whole(&self) -> bool {
        self.open.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(directory: &str, (begins, ends): (bool, bool), names: &[&str]) -> NamesOf {
        NamesOf {
            directory: TreePath::new(directory.as_bytes()).ok(),
            begins,
            ends,
            names: names
                .iter()
                .map(|name| name.as_bytes().to_vec().into())
                .collect(),
            rules: Vec::new(),
            is_empty_source: false,
        }
    }

    #[test]
    fn names_are_in_order_and_directories_complete() {
        let mut order = NamesOrder::default();
        assert!(order.accepts(&[
            of("", (true, true), &["a", "b"]),
            of("d", (true, false), &[])
        ]));
        assert!(!order.is_whole());
        assert!(order.accepts(&[of("d", (false, false), &["a"])]));
        assert!(order.accepts(&[of("d", (false, true), &["b"])]));
        assert!(order.is_whole());
        let whole = (true, true);
        let with = |(begins, ends), rules: Vec<Option<Vec<u8>>>| NamesOf {
            rules: rules.into_iter().map(|text| text.map(Into::into)).collect(),
            ..of("d", (begins, ends), &[])
        };
        let told = with(whole, vec![None, Some(b"- x".to_vec())]);
        assert!(NamesOrder::default().accepts(&[told]));
        let large = with(whole, vec![Some(vec![b'x'; MAXIMUM_TOLD_RULES + 1])]);
        let many = with(whole, vec![None; MAXIMUM_PER_DIRECTORY + 1]);
        let late = with((false, true), vec![None]);
        for bad in [
            vec![large],
            vec![many],
            vec![with((true, false), Vec::new()), late],
            vec![of("", whole, &["b", "a"])],
            vec![of("", whole, &["a", "a"])],
            vec![of("", whole, &["a/b"])],
            vec![of("", whole, &[".."])],
            vec![of("", whole, &[""])],
            vec![of("", (false, true), &["a"])],
            vec![of("", (true, false), &["a"]), of("d", (true, true), &["a"])],
            vec![of("", (true, false), &["b"]), of("", (false, true), &["a"])],
        ] {
            assert!(!NamesOrder::default().accepts(&bad), "{bad:?}");
        }
    }

    #[test]
    fn a_deletion_is_bounded_and_decoded_as_encoded() {
        let deletion = Deletion {
            excluded: true,
            maximum: Some(3),
            rules: vec![b"P x".to_vec().into()],
            ..Deletion::default()
        };
        let bytes = minicbor::to_vec(&deletion).unwrap();
        assert_eq!(minicbor::decode::<Deletion>(&bytes).unwrap(), deletion);
        assert!(deletion.is_valid());
        for rules in [
            vec!["nothing".to_owned()],
            vec![format!("- {}", "a".repeat(4000)); 9],
        ] {
            let rules = rules.into_iter().map(|rule| rule.into_bytes().into());
            let deletion = Deletion {
                rules: rules.collect(),
                ..Deletion::default()
            };
            assert!(!deletion.is_valid());
        }
    }
}
