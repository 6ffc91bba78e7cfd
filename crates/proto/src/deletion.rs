//! Deletion at the destination, after a copy in which nothing failed.
//!
//! The receiver asks for the names that the source has ([`crate::message::Message::AskNames`]). The
//! sender lists each directory of the copy once more and tells them, at most [`NAMES_WINDOW`]
//! batches ahead. The receiver compares a directory at a time with its own listing. It deletes
//! only after the sender said that it listed everything without an error: at each end a name is
//! present, absent, or could not be looked at, and only what is known to be absent is deleted.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::filter::{MAXIMUM_PER_DIRECTORY, MAXIMUM_RULES, Rules, SelectionError, check_bytes};
use crate::manifest::TreePath;

/// Batches of names told and not taken up, at most.
pub const NAMES_WINDOW: u32 = 64;

/// Names in one batch at most, and bytes of them: from there on a batch is sent.
pub const MAXIMUM_NAMES: usize = 2048;
/// See [`MAXIMUM_NAMES`].
pub const MAXIMUM_NAMES_BYTES: usize = 32 << 10;

/// Most bytes of files of rules of one directory: rules that hold have half of it.
pub const MAXIMUM_TOLD_RULES: usize = 512 << 10;

/// What is removed in one step, and told in one message.
pub const REMOVED_AT_ONCE: usize = 512;

/// What is to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Deletion {
    /// What filters leave out is deleted, too, unless a rule protects it.
    #[n(0)]
    pub excluded: bool,
    /// With more nothing is deleted.
    #[n(1)]
    pub maximum: Option<u64>,
    /// Directories on other file systems than the anchor stay as they are.
    #[n(2)]
    pub one_file_system: bool,
    /// The rules of the copy, which protect what they leave out.
    #[n(3)]
    pub rules: Vec<ByteVec>,
}

impl Deletion {
    /// Its rules.
    ///
    /// # Errors
    ///
    /// The first that is none.
    pub fn parse(&self) -> Result<Rules, SelectionError> {
        let rules: Vec<&[u8]> = self.rules.iter().map(|rule| &***rule).collect();
        Ok(Rules::parse(&rules)?)
    }

    /// Whether a peer may ask for it.
    pub fn is_valid(&self) -> bool {
        self.rules.len() <= MAXIMUM_RULES && self.check_size().is_ok() && self.parse().is_ok()
    }

    /// Whether it goes into a request.
    ///
    /// # Errors
    ///
    /// [`SelectionError::TooLarge`].
    pub fn check_size(&self) -> Result<(), SelectionError> {
        check_bytes(self.rules.iter())
    }
}

/// Names that the source has in a directory: all of them, or the next ones.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct NamesOf {
    /// The directory beneath the anchor; `None`: the anchor.
    #[n(0)]
    pub directory: Option<TreePath>,
    /// The first of its names are among these.
    #[n(1)]
    pub begins: bool,
    /// The last ones are.
    #[n(2)]
    pub ends: bool,
    /// Names in byte order, each after those before it.
    #[n(3)]
    pub names: Vec<ByteVec>,
    /// Where the first names are: the files of rules that are in it at the source and are copied,
    /// or protect without being copied, in the order of their rules; `None` if there is none.
    #[n(4)]
    pub rules: Vec<Option<ByteVec>>,
    /// Where the last names are: it is a source that was named, and holds nothing. If the
    /// destination has something in its place, nothing is deleted anywhere.
    #[n(5)]
    pub is_empty_source: bool,
}

/// Checks that names come as they should: whole directories, one after the other, each in order.
#[derive(Debug, Default)]
pub struct NamesOrder {
    /// The directory that has begun and not ended, and its last name.
    open: Option<(Option<TreePath>, Vec<u8>)>,
}

impl NamesOrder {
    /// Whether these may come next.
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

    /// Whether all that began has ended.
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
    fn names_come_in_order_and_directories_whole() {
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
    fn a_deletion_is_read_as_it_was_said_and_bounded() {
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
