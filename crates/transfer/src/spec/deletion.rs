//! What is deleted at the destination after the copy, as plain data.

use longhaul_proto::deletion;
use serde::{Deserialize, Serialize};

use super::{Backup, Filter};

/// What the sources do not have is deleted in the directories that are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deletion {
    /// What filters leave out, too.
    pub excluded: bool,
    /// With more names than this nothing is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<u64>,
}

impl Deletion {
    /// As the ends of a session hear it, with what the filters protect. They protect backups, too:
    /// those that the copy just made are among them.
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
