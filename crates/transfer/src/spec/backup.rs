//! What is kept of what is replaced or deleted, as plain data.

use longhaul_proto::backup;
use serde::{Deserialize, Serialize};

use crate::endpoint::Written;

/// What is replaced or deleted at the destination is kept under another name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Backup {
    /// Where it goes, relative to the destination; none: it stays in its directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<Written>,
    /// What its name gets at its end; none: `~`, and in a directory of its own nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<Written>,
}

impl Backup {
    /// As the receiving end hears it.
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
