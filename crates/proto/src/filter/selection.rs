//! All that a request asks for of its sources, beside their names.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use super::in_force::Rules;
use super::{BadRule, MAXIMUM_RULES};
use crate::manifest::{Timestamp, TreePath};

/// Most bytes of rules and files that a request carries: half of a handshake, whose sources take
/// the rest.
pub const MAXIMUM_SELECTION_BYTES: usize = 32 << 10;

/// What one rule or file takes beside its own bytes.
const OVERHEAD: usize = 5;

/// Most bytes of a list of files for another host, each file with 64 more.
pub const MAXIMUM_LIST_BYTES: usize = 32 << 20;

/// About the memory that a listed file takes at the sending end, beside its name.
const LISTED_OVERHEAD: usize = 64;

/// Most bytes of one [`PartOfList`], each file with [`OVERHEAD`] more.
const MAXIMUM_PART_BYTES: usize = 32 << 10;

/// A part of a list of files that follows its request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PartOfList {
    /// The lines.
    #[n(0)]
    pub files: Vec<ByteVec>,
}

/// What of the sources is copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Selection {
    /// Rules, as [`super::Gathered`] has them.
    #[n(0)]
    pub rules: Vec<ByteVec>,
    /// Names beneath a source at most: 0 is the source alone. Directories so deep are copied
    /// without what they hold.
    #[n(1)]
    pub maximum_depth: Option<u32>,
    /// Bytes that a file has at least.
    #[n(2)]
    pub minimum_size: Option<u64>,
    /// Bytes that a file has at most.
    #[n(3)]
    pub maximum_size: Option<u64>,
    /// Files modified after this alone.
    #[n(4)]
    pub newer_than: Option<Timestamp>,
    /// Files modified before this alone.
    #[n(5)]
    pub older_than: Option<Timestamp>,
    /// Directories on another file system than their source are copied without what they hold.
    #[n(6)]
    pub one_file_system: bool,
    /// Only these lines of a list, with the directories that they lie in ([`super::ListedPath`]).
    /// The one source is a directory.
    #[n(7)]
    pub files: Option<Vec<ByteVec>>,
    /// Listed directories are copied with everything in them.
    #[n(8)]
    pub files_recursive: bool,
    /// Number of messages ([`PartOfList`]) after the request that have the list.
    #[n(9)]
    pub list_parts: u32,
}

/// Why a selection makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// A rule is none.
    #[error("{0}")]
    Rule(#[from] BadRule),
    /// They are too much for a request.
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

/// What of a file a selection asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Bytes.
    pub size: u64,
    /// Time of modification.
    pub modified: Timestamp,
}

/// Why something is left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Reason {
    /// A rule says so.
    #[n(0)]
    Rule,
    /// It is too small or too large.
    #[n(1)]
    Size,
    /// It is too old or too new.
    #[n(2)]
    Time,
    /// What a directory holds is too deep.
    #[n(3)]
    Depth,
    /// What a directory holds is on another file system.
    #[n(4)]
    FileSystem,
    /// A device, socket or FIFO.
    #[n(5)]
    Special,
    /// The destination has a newer file.
    #[n(6)]
    Newer,
    /// It is missing at the destination, and nothing is made there.
    #[n(7)]
    Missing,
    /// It exists at the destination, and nothing is replaced there.
    #[n(8)]
    Exists,
}

/// Names that one message says were left out, at most; and such messages that were not taken up.
pub const MAXIMUM_OMITTED: usize = 128;
/// See [`MAXIMUM_OMITTED`].
pub const OMITTED_WINDOW: u32 = 16;

/// A name that was left out of the walk on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Omitted {
    /// Where it would be.
    #[n(0)]
    pub path: TreePath,
    /// Why.
    #[n(1)]
    pub reason: Reason,
    /// The rule, as it was written, cut to [`MAXIMUM_RULE_SHOWN`] bytes.
    #[n(2)]
    pub rule: Option<String>,
}

/// Bytes of a rule that a report shows.
pub const MAXIMUM_RULE_SHOWN: usize = 256;

/// How many names were left out on purpose, for each reason. What a directory holds that was not
/// entered is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LeftOut {
    /// By a rule.
    #[n(0)]
    pub rules: u64,
    /// By size.
    #[n(1)]
    pub size: u64,
    /// By time.
    #[n(2)]
    pub time: u64,
    /// Directories not entered, as they are too deep.
    #[n(3)]
    pub depth: u64,
    /// Directories not entered, as they are on another file system.
    #[n(4)]
    pub file_systems: u64,
    /// Devices, sockets and FIFOs.
    #[n(5)]
    pub specials: u64,
    /// Files that are newer at the destination.
    #[n(6)]
    pub newer: u64,
    /// What is not at the destination, where nothing is made.
    #[n(7)]
    pub missing: u64,
    /// What is at the destination, where nothing is replaced.
    #[n(8)]
    pub existing: u64,
}

impl LeftOut {
    /// One more.
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

    /// These, and the counts of what the destination holds back.
    #[must_use]
    pub fn with_held(self, held: LeftOut) -> LeftOut {
        LeftOut {
            newer: held.newer,
            missing: held.missing,
            existing: held.existing,
            ..self
        }
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        *self == LeftOut::default()
    }
}

impl Selection {
    /// Whether it is all there is.
    pub fn is_everything(&self) -> bool {
        *self == Selection::default()
    }

    /// Reads its rules.
    ///
    /// # Errors
    ///
    /// The first rule that is not valid.
    pub fn parse(&self) -> Result<Rules, SelectionError> {
        let rules: Vec<&[u8]> = self.rules.iter().map(|rule| &***rule).collect();
        Ok(Rules::parse(&rules)?)
    }

    /// Whether it may go to another host.
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

    /// Whether its list fits into one message with it.
    pub fn fits_a_request(&self) -> bool {
        check_bytes(self.rules.iter().chain(self.files.iter().flatten())).is_ok()
    }

    /// Takes out a list that does not fit into the request: it follows in parts.
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

    /// Adds the next part of its list.
    ///
    /// # Errors
    ///
    /// [`SelectionError::ListTooLong`].
    pub fn add_part(&mut self, part: PartOfList) -> Result<(), SelectionError> {
        self.list_parts = self.list_parts.saturating_sub(1);
        self.files.get_or_insert_default().extend(part.files);
        self.check_size()
    }

    /// Whether every number is within its range, and every rule valid.
    pub(crate) fn is_valid(&self) -> bool {
        // More parts than that would be empty.
        let most = (MAXIMUM_LIST_BYTES / LISTED_OVERHEAD) as u32;
        self.rules.len() <= MAXIMUM_RULES
            && self.fits_a_request()
            && self.list_parts <= most
            && self.parse().is_ok()
    }

    /// Why a file is left out that no rule leaves out; `None` if it is not.
    pub fn judge(&self, file: FileFacts) -> Option<Reason> {
        let small = self.minimum_size.is_some_and(|least| file.size < least);
        let large = self.maximum_size.is_some_and(|most| file.size > most);
        let old = self.newer_than.is_some_and(|than| file.modified <= than);
        let new = self.older_than.is_some_and(|than| file.modified >= than);
        match (small || large, old || new) {
            (true, _) => Some(Reason::Size),
            (false, true) => Some(Reason::Time),
            (false, false) => None,
        }
    }
}

/// Whether these texts go into a request.
pub(crate) fn check_bytes<'a>(
    texts: impl Iterator<Item = &'a ByteVec>,
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
        let selection = Selection {
            minimum_size: Some(10),
            maximum_size: Some(20),
            newer_than: Some(at(100)),
            older_than: Some(at(200)),
            ..Selection::default()
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
        let selection = Selection {
            rules: vec![b"- *.o".to_vec().into()],
            files: Some(vec![b"a/b".to_vec().into()]),
            one_file_system: true,
            ..Selection::default()
        };
        let bytes = minicbor::to_vec(&selection).unwrap();
        assert_eq!(minicbor::decode::<Selection>(&bytes).unwrap(), selection);
        assert!(selection.is_valid());
        let empty = minicbor::to_vec(Selection::default()).unwrap();
        assert!(
            minicbor::decode::<Selection>(&empty)
                .unwrap()
                .is_everything()
        );
        for rules in [vec!["nothing"], vec![". file"], vec!["- aaaa"; 4096]] {
            let rules = rules.iter().map(|rule| rule.as_bytes().to_vec().into());
            let selection = Selection {
                rules: rules.collect(),
                ..Selection::default()
            };
            assert!(!selection.is_valid());
        }
    }

    #[test]
    fn a_long_list_follows_in_parts() {
        let files = (0..5000_u32).map(|at| format!("directory/file {at}").into_bytes().into());
        let files: Vec<ByteVec> = files.collect();
        let mut selection = Selection {
            files: Some(files.clone()),
            ..Selection::default()
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
        let mut short = Selection {
            files: Some(vec![b"a".to_vec().into()]),
            ..Selection::default()
        };
        assert_eq!(short.split_list(), []);
        let huge = PartOfList {
            files: vec![vec![b'x'; MAXIMUM_LIST_BYTES].into()],
        };
        assert_eq!(short.add_part(huge), Err(SelectionError::ListTooLong));
        let endless = Selection {
            list_parts: u32::MAX,
            ..Selection::default()
        };
        assert!(!endless.is_valid());
    }
}
