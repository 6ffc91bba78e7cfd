//! Defines the backups of replaced and deleted entries, as plain data.

use longhaul_proto::backup;
use serde::{Deserialize, Serialize};

use crate::endpoint::Written;

/// Keeps destination entries that are replaced or deleted under another name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Backup {
    /// Backup directory, relative to the destination; `None`: the entry's own directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<Written>,
    /// Suffix of a backup's name; `None`: `~`, or an empty suffix if there is a backup directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<Written>,
}

impl Backup {
    /// Converts this into the message for the receiving end.
    pub fn backup(&self) -> backup::Backup {
        let bytes = |text: &Written| text.as_bytes().to_vec();
        let usual = || match self.directory {
            Some(_) => Vec::new(),
            None => b"~".to_vec(),
        };
        backup::Backup {
            suffix: self.suffix.as_ref().map_or_else(usual, bytes).into(),
            directory: self.directory.as_ref().map(|path| bytes(path).into()),
        }
    }
}
