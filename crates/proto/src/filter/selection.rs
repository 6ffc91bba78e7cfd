//! The selection of entries that a request makes from its sources.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::in_force::Rules;
use super::{BadRule, MAXIMUM_RULES};
use crate::byte_string::ByteString;
use crate::manifest::{Timestamp, TreePath};

/// Maximum size of a request's rules and files in bytes: half of a handshake. The sources' paths
/// take the other half.
pub const MAXIMUM_SELECTION_BYTES: usize = 32 << 10;

/// Overhead of one rule or file in bytes.
const OVERHEAD: usize = 5;

/// Maximum size of a list of files for another host in bytes. Each file counts 64 bytes more.
pub const MAXIMUM_LIST_BYTES: usize = 32 << 20;

/// Approximate memory overhead of a listed file at the sending end, in bytes.
const LISTED_OVERHEAD: usize = 64;

/// Maximum size of one [`PartOfList`] in bytes, each file with [`OVERHEAD`] more.
const MAXIMUM_PART_BYTES: usize = 32 << 10;

/// Part of a list of files. It follows the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PartOfList {
    /// Lines of the list.
    #[n(0)]
    pub files: Vec<ByteString>,
}

/// Selects the entries that are copied: rules, limits of size, time and depth, and a list of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(map)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Rules in their order, in rsync's syntax: `- *.o`, `+ /d/`, `: .filter`
    /// ([`super::Gathered`]). The command line has already replaced merge files by their rules.
    #[n(0)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<ByteString>,
    /// Maximum number of names beneath a source: 0 selects the source alone. Directories at this
    /// depth are copied without their contents.
    #[n(1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_depth: Option<u32>,
    /// Minimum file size in bytes.
    #[n(2)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_size: Option<u64>,
    /// Maximum file size in bytes.
    #[n(3)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_size: Option<u64>,
    /// Selects only files modified after this time, in seconds since 1970.
    #[n(4)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newer_than: Option<i64>,
    /// Selects only files modified before this time, in seconds since 1970.
    #[n(5)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than: Option<i64>,
    /// If true, directories on another file system than their source are copied without their
    /// contents.
    #[n(6)]
    pub one_file_system: bool,
    /// Selects only these lines of a list, and the directories that contain them
    /// ([`super::ListedPath`]). The only source is a directory.
    #[n(7)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<ByteString>>,
    /// If true, listed directories are copied with all their contents.
    #[n(8)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub files_recursive: bool,
    /// Number of messages ([`PartOfList`]) after the request that carry the list.
    #[n(9)]
    #[serde(skip)]
    pub list_parts: u32,
}

/// Reason why a selection is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// A rule is invalid.
    #[error("{0}")]
    Rule(#[from] BadRule),
    /// The rules and files are too long for a request.
    #[error(
        "the filters have {0} bytes, and at most {most} go to another host: give fewer patterns, \
         or run the command there",
        most = MAXIMUM_SELECTION_BYTES
    )]
    TooLarge(usize),
    /// The list of files is too long for another host.
    #[error(
        "the list of files is too long for another host (at most {} MiB, of which a file takes \
         its path and {LISTED_OVERHEAD} bytes): split it, or run the command there",
        MAXIMUM_LIST_BYTES >> 20
    )]
    ListTooLong,
}

/// Properties of a file that a selection tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Size in bytes.
    pub size: u64,
    /// Time of modification.
    pub modified: Timestamp,
}

/// Reason why an entry is left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Reason {
    /// A rule excludes it.
    #[n(0)]
    Rule,
    /// The file is too small or too large.
    #[n(1)]
    Size,
    /// The file is too old or too new.
    #[n(2)]
    Time,
    /// The contents of a directory are too deep.
    #[n(3)]
    Depth,
    /// The contents of a directory are on another file system.
    #[n(4)]
    FileSystem,
    /// The entry is a device, socket or FIFO.
    #[n(5)]
    Special,
    /// The destination has a newer file.
    #[n(6)]
    Newer,
    /// The entry is missing at the destination, and no entries may be created there.
    #[n(7)]
    Missing,
    /// The entry exists at the destination, and no entries may be replaced there.
    #[n(8)]
    Exists,
}

/// Maximum number of names in one message of omitted names.
pub const MAXIMUM_OMITTED: usize = 128;
/// Maximum number of unacknowledged messages with omitted names.
pub const OMITTED_WINDOW: u32 = 16;

/// A name that was left out of the walk on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Omitted {
    /// Path that the name would have at the destination.
    #[n(0)]
    pub path: TreePath,
    /// Reason.
    #[n(1)]
    pub reason: Reason,
    /// The rule, as it was written, cut to [`MAXIMUM_RULE_SHOWN`] bytes.
    #[n(2)]
    pub rule: Option<String>,
}

/// Maximum number of bytes of a rule that a report shows.
pub const MAXIMUM_RULE_SHOWN: usize = 256;

/// Numbers of names left out on purpose, by reason. Contents of directories that were not entered
/// are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LeftOut {
    /// Names left out by a rule.
    #[n(0)]
    pub rules: u64,
    /// Files left out because of their size.
    #[n(1)]
    pub size: u64,
    /// Files left out because of their time.
    #[n(2)]
    pub time: u64,
    /// Directories not entered because they are too deep.
    #[n(3)]
    pub depth: u64,
    /// Directories not entered because they are on another file system.
    #[n(4)]
    pub file_systems: u64,
    /// Devices, sockets and FIFOs.
    #[n(5)]
    pub specials: u64,
    /// Files that are newer at the destination.
    #[n(6)]
    pub newer: u64,
    /// Entries missing at the destination, if no entries may be created.
    #[n(7)]
    pub missing: u64,
    /// Entries that exist at the destination, if no entries may be replaced.
    #[n(8)]
    pub existing: u64,
}

impl LeftOut {
    /// Adds one to the count of a reason.
    pub fn count(&mut self, reason: Reason) {
        *match reason {
            Reason::Rule => &mut self.rules,
            Reason::Size => &mut self.size,
            Reason::Time => &mut self.time,
            Reason::Depth => &mut self.depth,
            Reason::FileSystem => &mut self.file_systems,
            Reason::Special => &mut self.specials,
            Reason::Newer => &mut self.newer,
            Reason::Missing => &mut self.missing,
            Reason::Exists => &mut self.existing,
        } += 1;
    }

    /// Returns these counts, with the counts of the destination replaced by those of `held`.
    #[must_use]
    pub fn with_held(self, held: LeftOut) -> LeftOut {
        LeftOut {
            newer: held.newer,
            missing: held.missing,
            existing: held.existing,
            ..self
        }
    }

    /// True if all counts are zero.
    pub fn is_empty(&self) -> bool {
        *self == LeftOut::default()
    }
}

impl Filter {
    /// True if all entries are selected.
    pub fn is_everything(&self) -> bool {
        *self == Filter::default()
    }

    /// Parses the rules.
    ///
    /// # Errors
    ///
    /// The first rule that is not valid.
    pub fn parse(&self) -> Result<Rules, SelectionError> {
        let rules: Vec<&[u8]> = self.rules.iter().map(|rule| &**rule).collect();
        Ok(Rules::parse(&rules)?)
    }

    /// Checks that the selection may be sent to another host.
    ///
    /// # Errors
    ///
    /// [`SelectionError::TooLarge`], [`SelectionError::ListTooLong`].
    pub fn check_size(&self) -> Result<(), SelectionError> {
        check_bytes(self.rules.iter())?;
        let files = self.files.iter().flatten();
        let bytes: usize = files.map(|file| file.len() + LISTED_OVERHEAD).sum();
        if bytes > MAXIMUM_LIST_BYTES {
            Err(SelectionError::ListTooLong)
        } else {
            Ok(())
        }
    }

    /// True if the list of files fits into one message with the rules.
    pub fn fits_a_request(&self) -> bool {
        check_bytes(self.rules.iter().chain(self.files.iter().flatten())).is_ok()
    }

    /// Removes and returns a list that does not fit into the request. It follows in parts.
    pub fn split_list(&mut self) -> Vec<PartOfList> {
        if self.fits_a_request() {
            return Vec::new();
        }
        let (mut parts, mut bytes) = (vec![PartOfList::default()], 0);
        for file in self.files.replace(Vec::new()).into_iter().flatten() {
            bytes += file.len() + OVERHEAD;
            if bytes > MAXIMUM_PART_BYTES {
                bytes = file.len() + OVERHEAD;
                parts.push(PartOfList::default());
            }
            if let Some(last) = parts.last_mut() {
                last.files.push(file);
            }
        }
        self.list_parts = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        parts
    }

    /// Adds the next part of the list.
    ///
    /// # Errors
    ///
    /// [`SelectionError::ListTooLong`].
    pub fn add_part(&mut self, part: PartOfList) -> Result<(), SelectionError> {
        self.list_parts = self.list_parts.saturating_sub(1);
        self.files.get_or_insert_default().extend(part.files);
        self.check_size()
    }

    /// True if every number is within its range and every rule is valid.
    pub(crate) fn is_valid(&self) -> bool {
        // With more parts than this, some would be empty.
        let most = (MAXIMUM_LIST_BYTES / LISTED_OVERHEAD) as u32;
        self.rules.len() <= MAXIMUM_RULES
            && self.fits_a_request()
            && self.list_parts <= most
            && self.parse().is_ok()
    }

    /// Returns the reason to leave out a file that no rule excludes; `None` if it is selected.
    pub fn judge(&self, file: FileFacts) -> Option<Reason> {
        let small = self.minimum_size.is_some_and(|least| file.size < least);
        let large = self.maximum_size.is_some_and(|most| file.size > most);
        let at = |seconds| Timestamp {
            seconds,
            nanoseconds: 0,
        };
        let old = self
            .newer_than
            .is_some_and(|than| file.modified <= at(than));
        let new = self
            .older_than
            .is_some_and(|than| file.modified >= at(than));
        match (small || large, old || new) {
            (true, _) => Some(Reason::Size),
            (false, true) => Some(Reason::Time),
            (false, false) => None,
        }
    }
}

/// Checks that the texts fit into a request.
pub(crate) fn check_bytes<'a>(
    texts: impl Iterator<Item = &'a ByteString>,
) -> Result<(), SelectionError> {
    let bytes = texts.map(|text| text.len() + OVERHEAD).sum();
    if bytes > MAXIMUM_SELECTION_BYTES {
        Err(SelectionError::TooLarge(bytes))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp {
            seconds,
            nanoseconds: 0,
        }
    }

    #[test]
    fn files_are_judged_by_size_and_time() {
        let selection = Filter {
            minimum_size: Some(10),
            maximum_size: Some(20),
            newer_than: Some(100),
            older_than: Some(200),
            ..Filter::default()
        };
        for (size, seconds, expected) in [
            (9, 150, Some(Reason::Size)),
            (10, 150, None),
            (20, 101, None),
            (21, 50, Some(Reason::Size)),
            (15, 100, Some(Reason::Time)),
            (15, 200, Some(Reason::Time)),
        ] {
            let modified = at(seconds);
            assert_eq!(selection.judge(FileFacts { size, modified }), expected);
        }
    }

    #[test]
    fn a_selection_is_read_as_it_was_said_and_bounded() {
        let selection = Filter {
            rules: vec![b"- *.o".to_vec().into()],
            files: Some(vec![b"a/b".to_vec().into()]),
            one_file_system: true,
            ..Filter::default()
        };
        let bytes = minicbor::to_vec(&selection).unwrap();
        assert_eq!(minicbor::decode::<Filter>(&bytes).unwrap(), selection);
        assert!(selection.is_valid());
        let empty = minicbor::to_vec(Filter::default()).unwrap();
        assert!(minicbor::decode::<Filter>(&empty).unwrap().is_everything());
        for rules in [vec!["nothing"], vec![". file"], vec!["- aaaa"; 4096]] {
            let rules = rules.iter().map(|rule| rule.as_bytes().to_vec().into());
            let selection = Filter {
                rules: rules.collect(),
                ..Filter::default()
            };
            assert!(!selection.is_valid());
        }
    }

    #[test]
    fn a_long_list_follows_in_parts() {
        let files = (0..5000_u32).map(|at| format!("directory/file {at}").into_bytes().into());
        let files: Vec<ByteString> = files.collect();
        let mut selection = Filter {
            files: Some(files.clone()),
            ..Filter::default()
        };
        assert!(selection.check_size().is_ok() && !selection.is_valid());
        let parts = selection.split_list();
        assert!(selection.is_valid() && parts.len() > 2);
        assert_eq!(selection.list_parts as usize, parts.len());
        for part in parts {
            assert!(minicbor::to_vec(&part).unwrap().len() < 40 << 10);
            selection.add_part(part).unwrap();
        }
        assert_eq!((selection.list_parts, &selection.files), (0, &Some(files)));
        let mut short = Filter {
            files: Some(vec![b"a".to_vec().into()]),
            ..Filter::default()
        };
        assert_eq!(short.split_list(), []);
        let huge = PartOfList {
            files: vec![vec![b'x'; MAXIMUM_LIST_BYTES].into()],
        };
        assert_eq!(short.add_part(huge), Err(SelectionError::ListTooLong));
        let endless = Filter {
            list_parts: u32::MAX,
            ..Filter::default()
        };
        assert!(!endless.is_valid());
    }
}
