//! Files that go through a command at this end. The command's output is sent, and its size is known
//! only after the command ended.

use std::collections::{BTreeSet, VecDeque};

use crate::manifest::EntryId;

/// Files that go through the command.
#[derive(Debug)]
pub(super) struct Filtering {
    /// Maximum number of files in `begun`.
    most: usize,
    waiting: VecDeque<EntryId>,
    /// Files in the command or with an output.
    begun: BTreeSet<EntryId>,
    ended: VecDeque<EntryId>,
}

impl Filtering {
    /// Makes a queue for at most `most` files in the command or with an output, at least one.
    pub fn new(most: usize) -> Filtering {
        Filtering {
            most: most.max(1),
            waiting: VecDeque::new(),
            begun: BTreeSet::new(),
            ended: VecDeque::new(),
        }
    }

    fn has_room(&self) -> bool {
        self.begun.len() < self.most
    }

    /// Queues a file for the command.
    pub fn wait(&mut self, id: EntryId) {
        self.waiting.push_back(id);
    }

    /// True if a file waits that can begin, or an output can be discarded.
    pub fn has_step(&self) -> bool {
        !self.ended.is_empty() || !self.waiting.is_empty() && self.has_room()
    }

    /// Takes the next waiting file if it can begin.
    pub fn take_waiting(&mut self) -> Option<EntryId> {
        if self.has_room() {
            self.waiting.pop_front()
        } else {
            None
        }
    }

    /// Notes that the command runs on a file.
    pub fn begin(&mut self, id: EntryId) {
        self.begun.insert(id);
    }

    /// Handles the end of an entry.
    pub fn end(&mut self, id: EntryId) {
        if self.begun.remove(&id) {
            self.ended.push_back(id);
        }
    }

    /// Takes the next file whose output can be discarded.
    pub fn take_ended(&mut self) -> Option<EntryId> {
        self.ended.pop_front()
    }
}
