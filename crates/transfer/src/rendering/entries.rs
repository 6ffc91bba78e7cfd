//! Describes events of an entry in words.

use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::Change;

/// Returns the message about a block that arrived damaged.
pub fn damage(path: &TreePath, piece: Option<(u64, u64)>, entries: usize) -> String {
    let what = match (piece, entries) {
        (Some((offset, length)), _) => format!(", {length} bytes from byte {offset} on,"),
        (None, 2..) => format!(" and {} other files", entries - 1),
        (None, _) => String::new(),
    };
    format!("{path}{what} arrived damaged: sent again")
}

/// Returns the word for the change that a copy would make to an entry.
pub fn planned(change: Change) -> &'static [u8] {
    match change {
        Change::New => b"new ",
        Change::Changed => b"changed ",
        Change::Attributes => b"attributes ",
    }
}
