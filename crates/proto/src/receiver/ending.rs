//! Ends of entries.

use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId};
use crate::message::Outcome;

/// An entry that ended, and how its end is reported.
pub(super) struct Ending {
    pub id: EntryId,
    pub parent: Option<EntryId>,
    pub entry: Option<Entry>,
    /// Outcome; `None` if the entry already existed.
    pub outcome: Option<Outcome>,
    /// Digest of the existing file, if requested.
    pub digest: Option<Checksum>,
    /// True if the answer to the sender's question reports the end.
    pub is_answered: bool,
}
