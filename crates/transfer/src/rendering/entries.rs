//! What happens with an entry, in words.

use longhaul_proto::manifest::TreePath;
use longhaul_proto::message::Change;

/// What to say of a block that arrived wrong.
pub fn damage(path: &TreePath, piece: Option<(u64, u64)>, entries: usize) -> String {
    let what = match (piece, entries) {
        (Some((offset, length)), _) => format!(", {length} bytes from byte {offset} on,"),
        (None, 2..) => format!(" and {} other files", entries - 1),
        (None, _) => String::new(),
    };
    format!("{path}{what} arrived damaged: sent again")
}

/// What a copy would do with an entry.
pub fn planned(change: Change) -> &'static [u8] {
    match change {
        Change::New => b"new ",
        Change::Changed => b"changed ",
        Change::Attributes => b"attributes ",
    }
}
