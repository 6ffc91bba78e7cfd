//! Defines the filters of a specification, as plain data.

use longhaul_proto::filter::{Selection, SelectionError};
use longhaul_proto::manifest::Timestamp;
use serde::{Deserialize, Serialize};

use crate::endpoint::Written;

/// Filter rules, limits of size, time and depth, and a list of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Rules in their order, in rsync's syntax: `- *.o`, `+ /d/`, `: .filter`. The command line has
    /// already replaced merge files by their rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Written>,
    /// Paths below the only source to copy, as lines of `--files-from`; `None`: all paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<Written>>,
    /// If true, copies listed directories with their contents.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub files_recursive: bool,
    /// Minimum size of a file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_size: Option<u64>,
    /// Maximum size of a file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_size: Option<u64>,
    /// Selects files modified after this time, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newer_than: Option<i64>,
    /// Selects files modified before this time, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than: Option<i64>,
    /// Maximum number of path components below a source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_depth: Option<u32>,
    /// If true, does not enter other file systems.
    pub one_file_system: bool,
}

impl Filter {
    /// Converts this into the message for the sending end; `None` if it excludes nothing.
    ///
    /// # Errors
    ///
    /// Returns an error for the first invalid rule.
    pub fn selection(&self) -> Result<Option<Selection>, SelectionError> {
        let at = |seconds| Timestamp {
            seconds,
            nanoseconds: 0,
        };
        let bytes = |texts: &[Written]| {
            let texts = texts.iter().map(|text| text.as_bytes().to_vec().into());
            texts.collect()
        };
        let selection = Selection {
            rules: bytes(&self.rules),
            maximum_depth: self.maximum_depth,
            minimum_size: self.minimum_size,
            maximum_size: self.maximum_size,
            newer_than: self.newer_than.map(at),
            older_than: self.older_than.map(at),
            one_file_system: self.one_file_system,
            files: self.files.as_deref().map(bytes),
            files_recursive: self.files_recursive && self.files.is_some(),
            list_parts: 0,
        };
        selection.parse()?;
        Ok((!selection.is_everything()).then_some(selection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_as_they_were_written() {
        let filter = Filter {
            rules: vec![b"- *.o".to_vec().into(), b"+ \xff".to_vec().into()],
            files: Some(vec![b"a/b".to_vec().into()]),
            newer_than: Some(-1),
            one_file_system: true,
            ..Filter::default()
        };
        let json = serde_json::to_string(&filter).unwrap();
        assert_eq!(serde_json::from_str::<Filter>(&json).unwrap(), filter);
        let selection = filter.selection().unwrap().unwrap();
        assert_eq!(**selection.rules[1], *b"+ \xff");
        assert_eq!(Filter::default().selection(), Ok(None));
        let bad = Filter {
            rules: vec![b"nothing".to_vec().into()],
            ..Filter::default()
        };
        assert!(bad.selection().is_err());
    }
}
