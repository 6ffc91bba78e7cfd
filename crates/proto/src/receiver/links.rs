//! Hard links that wait. Each waits until the first name of its inode is done, so that it becomes a
//! link to the entry that is then at the destination.

use std::collections::BTreeMap;

use super::load::Load;
use crate::manifest::{Entry, EntryId};

/// Memory of a link in bytes without its paths, slightly above the measured one.
const LINK_BYTES: usize = 256;

/// Hard links that wait.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Links that wait for their first name, by that entry, and their number.
    waiting: BTreeMap<EntryId, Vec<Entry>>,
    count: usize,
    /// Bytes of their paths.
    texts: usize,
    /// Links whose first name is done. A list replaces recursion, because the other end determines
    /// the length of a chain of links.
    released: Vec<Entry>,
}

impl Links {
    /// Adds a link whose first name is not done.
    pub fn wait(&mut self, first: EntryId, link: Entry) {
        self.texts += link.text_bytes();
        self.count += 1;
        self.waiting.entry(first).or_default().push(link);
    }

    /// Adds a link whose first name is done.
    pub fn push_released(&mut self, link: Entry) {
        self.released.push(link);
    }

    /// Releases the links to an entry that is done.
    pub fn release(&mut self, first: EntryId) {
        for link in self.waiting.remove(&first).unwrap_or_default() {
            self.texts -= link.text_bytes();
            self.count -= 1;
            self.released.push(link);
        }
    }

    /// Takes a released link.
    pub fn pop_released(&mut self) -> Option<Entry> {
        self.released.pop()
    }

    pub fn load(&self) -> Load {
        Load::of(self.count, LINK_BYTES).with_bytes(self.texts)
    }
}
