//! Extent of a walk: its entries, the names that it left out, and the state of the destination.

use crate::filter::LeftOut;
use crate::manifest::{AnchorState, EntryId};
use crate::message::Message;

/// Extent of a walk so far.
#[derive(Debug, Default)]
pub(super) struct Extent {
    /// Number of entries.
    entries: u64,
    has_ended: bool,
    left_out: LeftOut,
    anchor: Option<Box<AnchorState>>,
}

impl Extent {
    /// Counts an entry. Numbers of entries follow each other.
    pub fn count(&mut self, id: EntryId) {
        self.entries = id.0 + 1;
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Sets the numbers of names that the walk left out on purpose.
    pub fn set_left_out(&mut self, left_out: LeftOut) {
        self.left_out = left_out;
    }

    /// Returns the numbers of names that the walk left out on purpose.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Returns the state that the destination itself gets, or sets it to the result of `state`.
    pub fn anchor_or(&mut self, state: impl FnOnce() -> AnchorState) -> &mut AnchorState {
        self.anchor.get_or_insert_with(|| Box::new(state()))
    }

    /// Ends the walk. Returns the message about it.
    pub fn end(&mut self) -> Message {
        self.has_ended = true;
        Message::WalkEnd {
            entries: self.entries,
            left_out: self.left_out,
            anchor: self.anchor.take(),
        }
    }
}
