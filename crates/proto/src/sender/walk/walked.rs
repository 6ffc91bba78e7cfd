//! State of a walked entry that is not done.

use crate::manifest::Entry;

/// An entry that is not done.
#[derive(Debug)]
pub(super) struct Walked {
    /// Number of changes of the source during the copy.
    pub generation: u32,
    /// True if each change so far made the file longer.
    pub only_grew: bool,
    /// True if the file went through a command, so that its output is sent.
    pub filtered: bool,
    /// Bytes of the entry in the window. A directory counts zero while the walk is in it, so that a
    /// deep tree cannot block the walk.
    pub weighs: usize,
    pub stage: Stage,
}

/// Stage of an entry.
#[derive(Debug)]
pub(super) enum Stage {
    /// The receiver has not answered yet.
    Asked(Entry),
    /// The file is read for its digest, with which the receiver compares its own file.
    Compared(Entry),
    /// The file waits for its command or is in it.
    Filtering(Entry),
    /// A directory. It is done after all its entries.
    Directory(Entry),
    /// The entry is a task.
    Sending,
    /// The entry will not be sent. The receiver still decides its outcome.
    Abandoned(Entry),
}

impl Walked {
    /// Makes an entry that has not changed.
    pub fn new(weighs: usize, stage: Stage) -> Walked {
        Walked {
            generation: 0,
            only_grew: true,
            filtered: false,
            weighs,
            stage,
        }
    }
}

impl Stage {
    /// Takes the entry, which becomes a task.
    pub fn take(&mut self) -> Option<Entry> {
        match std::mem::replace(self, Stage::Sending) {
            Stage::Asked(entry)
            | Stage::Compared(entry)
            | Stage::Filtering(entry)
            | Stage::Directory(entry)
            | Stage::Abandoned(entry) => Some(entry),
            Stage::Sending => None,
        }
    }
}
