//! Collects walked entries for questions to the receiver.

use crate::manifest::Entry;
use crate::message::MAXIMUM_LISTED_ENTRIES;

/// Number of entries in the first batch of questions. Each takes about 100 bytes of the ten
/// segments that a new connection may send at once.
pub(super) const FIRST_QUESTIONS: u64 = 64;

/// Bytes of paths and attributes at which a batch is full. One more entry still fits into a frame.
const LISTED_BYTES: usize = 512 << 10;

/// Walked entries that were not yet asked for.
#[derive(Debug, Default)]
pub(super) struct Listing {
    entries: Vec<Entry>,
    /// Bytes of their paths and attributes.
    bytes: usize,
}

impl Listing {
    /// Adds an entry. Returns true if the batch is full.
    pub fn push(&mut self, entry: &Entry) -> bool {
        // The first questions must fit into the first packets of a connection.
        let most = if entry.id.0 < FIRST_QUESTIONS {
            FIRST_QUESTIONS as usize
        } else {
            MAXIMUM_LISTED_ENTRIES
        };
        self.bytes += entry.text_bytes();
        self.entries.push(entry.clone());
        self.entries.len() >= most || self.bytes >= LISTED_BYTES
    }

    /// Removes and returns the entries, if there are any.
    pub fn take(&mut self) -> Option<Vec<Entry>> {
        self.bytes = 0;
        let entries = std::mem::take(&mut self.entries);
        (!entries.is_empty()).then_some(entries)
    }
}
