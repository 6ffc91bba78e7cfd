//! Defines the deletions at the destination after the copy, as plain data.

use longhaul_proto::deletion;
use serde::{Deserialize, Serialize};

use super::{Backup, Filter};

/// Deletes entries that the sources lack from the copied directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deletion {
    /// If true, also deletes entries that the filters exclude.
    pub excluded: bool,
    /// Maximum number of names to delete. If there are more, nothing is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u64>,
}

impl Deletion {
    /// Converts this into the message for the session, with the names that the filters protect. The
    /// filters also protect backups, because the copy itself may just have made some.
    pub fn with(&self, filter: &Filter, backup: Option<&Backup>) -> deletion::Deletion {
        let backups = backup.and_then(|backup| backup.backup().protection());
        let rules = filter.rules.iter().map(|rule| rule.as_bytes().to_vec());
        deletion::Deletion {
            excluded: self.excluded,
            maximum: self.maximum,
            one_file_system: filter.one_file_system,
            rules: rules.chain(backups).map(Into::into).collect(),
        }
    }
}
