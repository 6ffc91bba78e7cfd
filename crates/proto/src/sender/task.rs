//! Tasks of a sender, and the source that they come from.

use super::results::{Ending, EntryEvent, SenderError};
use crate::manifest::{Entry, EntryId};
use crate::message::{Answer, Message, Outcome};

/// Number of a task. Its [`Work`] chooses it and gets it back with each result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// An entry, or a part of it, that must be sent. The tasks of a pack of small entries may have the
/// same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Number of the task.
    pub id: TaskId,
    /// The entry, with the identity of its source. All tasks of an entry have the same one.
    pub entry: Entry,
    /// Number of changes of the source during the copy.
    pub generation: u32,
    /// Part of the entry.
    pub part: Part,
}

/// Part of an entry that a task sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole entry. The receiver commits it.
    Whole,
    /// The whole entry except these ranges (offset and length), which the receiver already has.
    Rest(Vec<(u64, u64)>),
    /// A range of a file, which the receiver makes durable without giving the file its name. The
    /// range ends the entry. It must begin and end at a multiple of [`SMALLEST_BLOCK_BYTES`] or at
    /// the end of the file.
    ///
    /// [`SMALLEST_BLOCK_BYTES`]: crate::digest::SMALLEST_BLOCK_BYTES
    Only {
        /// Offset of the first byte.
        start: u64,
        /// Offset after the last byte.
        end: u64,
        /// Ranges (offset and length) that the receiver already has.
        held: Vec<(u64, u64)>,
    },
    /// The front of a file that keeps growing.
    Front,
}

/// Result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskResult {
    /// The task is over.
    Ended {
        /// The entry as it was sent.
        entry: Entry,
        /// Outcome of the entry.
        ending: Ending,
    },
    /// The source changed. All data of the entry that was sent is void, and each task of the entry
    /// gets this result.
    Changed {
        /// New state of the entry.
        entry: Entry,
        /// True if the file became longer.
        grew: bool,
    },
}

/// Expectation of further tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Supply {
    /// Further tasks may follow at any time.
    #[default]
    More,
    /// Further tasks follow only after results.
    Paused,
    /// No further tasks follow.
    Ended,
}

/// Source of tasks: the walk of a tree ([`Walk`](super::Walk)), or a queue.
pub trait Work {
    /// Returns the next task, if there is one now.
    fn next_task(&mut self) -> Option<Task>;

    /// Handles a result of a task.
    fn handle_result(&mut self, task: TaskId, result: TaskResult);

    /// Returns the expectation of further tasks. It determines the sizes of the last blocks.
    fn supply(&self) -> Supply;

    /// True if no further tasks follow and all have their results.
    fn is_done(&self) -> bool;

    /// Handles the acceptance of the session. `asks` is false if the destination is empty, so that
    /// no questions about entries are necessary.
    fn handle_welcome(&mut self, _asks: bool) {}

    /// Returns a number that grows with the progress of the work outside of tasks.
    fn progress(&self) -> u64 {
        0
    }

    /// Handles the receiver's answer to a question about an entry.
    ///
    /// # Errors
    ///
    /// [`SenderError`]: the session is over.
    fn handle_answer(&mut self, _id: EntryId, _answer: Answer) -> Result<(), SenderError> {
        Err(SenderError::NotAsked)
    }

    /// Checks that an outcome fits the operation.
    ///
    /// # Errors
    ///
    /// [`SenderError`]: the session is over.
    fn check_outcome(&self, _outcome: &Outcome) -> Result<(), SenderError> {
        Ok(())
    }

    /// Handles the outcome of an entry that is not a task.
    fn handle_outcome(&mut self, _id: EntryId, _ending: Ending) {}

    /// Handles a message of the receiver that is not about tasks.
    ///
    /// # Errors
    ///
    /// [`SenderError`]: the session is over.
    fn handle_message(&mut self, _message: Message) -> Result<(), SenderError> {
        Ok(())
    }

    /// True if [`Work::poll_message`] returns a message.
    fn has_message(&self) -> bool {
        false
    }

    /// Returns the next message to the receiver that is not about tasks.
    fn poll_message(&mut self) -> Option<Message> {
        None
    }

    /// Returns the next event for observers.
    fn poll_event(&mut self) -> Option<EntryEvent> {
        None
    }

    /// True if the work is done, including all that follows the tasks.
    fn is_settled(&self) -> bool {
        self.is_done()
    }
}
