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

/// What of the sources is copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Selection {
    /// Rules, as [`super::Gathered`] has them.
    #[n(0)]
    #[cbor(default)]
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
    #[cbor(default)]
    pub one_file_system: bool,
    /// These alone, with the directories that they lie in; the one source is a directory.
    #[n(7)]
    pub files: Option<Vec<ByteVec>>,
}

/// Why a selection makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// A rule is none.
    #[error("{0}")]
    Rule(#[from] BadRule),
    /// A file's name is none.
    #[error("\"{0}\" names nothing beneath the source: {1}")]
    File(String, crate::manifest::PathError),
    /// They are too much for a request.
    #[error(
        "the filters and the list of files have {0} bytes, and {most} go to another host: give \
         fewer patterns, copy fewer files at once, or run the command there",
        most = MAXIMUM_SELECTION_BYTES
    )]
    TooLarge(usize),
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
    #[cbor(default)]
    pub newer: u64,
    /// What is not at the destination, where nothing is made.
    #[n(7)]
    #[cbor(default)]
    pub missing: u64,
    /// What is at the destination, where nothing is replaced.
    #[n(8)]
    #[cbor(default)]
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

    /// Reads its rules and its files' names; of files `None` if all are meant.
    ///
    /// # Errors
    ///
    /// [`SelectionError`].
    pub fn parse(&self) -> Result<(Rules, Option<Vec<TreePath>>), SelectionError> {
        let rules: Vec<&[u8]> = self.rules.iter().map(|rule| &***rule).collect();
        let rules = Rules::parse(&rules)?;
        let path = |file: &ByteVec| {
            let error = |error| SelectionError::File(file.escape_ascii().to_string(), error);
            TreePath::new(file).map_err(error)
        };
        let files = self.files.as_ref();
        let files = files.map(|files| files.iter().map(path).collect());
        Ok((rules, files.transpose()?))
    }

    /// Whether it fits into a request.
    ///
    /// # Errors
    ///
    /// [`SelectionError::TooLarge`].
    pub fn check_size(&self) -> Result<(), SelectionError> {
        check_bytes(self.rules.iter().chain(self.files.iter().flatten()))
    }

    /// Whether every number is within its range, and every rule one.
    pub(crate) fn is_valid(&self) -> bool {
        self.rules.len() <= MAXIMUM_RULES && self.check_size().is_ok() && self.parse().is_ok()
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
    match bytes > MAXIMUM_SELECTION_BYTES {
        true => Err(SelectionError::TooLarge(bytes)),
        false => Ok(()),
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
        for file in ["", "/a", "a/../b", "a/"] {
            let selection = Selection {
                files: Some(vec![file.as_bytes().to_vec().into()]),
                ..Selection::default()
            };
            assert!(!selection.is_valid(), "{file}");
        }
    }
}
