//! The ledger: the tasks of a transfer that are complete. The transfer may be complete only if
//! every task of the walk is in it, regardless of the queue.

use std::collections::{BTreeMap, BTreeSet};

use crate::task::TaskName;

/// The tasks of a transfer.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Tasks that are not complete.
    open: BTreeSet<TaskName>,
    /// Complete tasks, with the number of the attempt that completed each.
    complete: BTreeMap<TaskName, u32>,
    /// Tasks that failed in every attempt.
    failed: BTreeSet<TaskName>,
}

impl Ledger {
    /// Adds a task of the walk.
    pub fn open(&mut self, name: &TaskName) {
        self.complete.remove(name);
        self.failed.remove(name);
        self.open.insert(name.clone());
    }

    /// Records that an attempt completed a task. Returns false if the task was complete, or is
    /// unknown.
    pub fn complete(&mut self, name: &TaskName, attempt: u32) -> bool {
        let known = self.open.remove(name) || self.failed.remove(name);
        if known {
            self.complete.insert(name.clone(), attempt);
        }
        known
    }

    /// Records that no further attempt of a task follows.
    pub fn give_up(&mut self, name: &TaskName) {
        if self.open.remove(name) {
            self.failed.insert(name.clone());
        }
    }

    /// True if every task is complete or was given up.
    pub fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the numbers of complete tasks, of all tasks, and of tasks that were given up.
    pub fn counts(&self) -> (usize, usize, usize) {
        let [open, failed] = [self.open.len(), self.failed.len()];
        let complete = self.complete.len();
        (complete, open + failed + complete, failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_counts_once_regardless_of_late_attempts() {
        let name = |text: &str| TaskName(text.to_owned());
        let mut ledger = Ledger::default();
        ledger.open(&name("a"));
        ledger.open(&name("b"));
        assert!(!ledger.complete(&name("never opened"), 1));
        assert!(ledger.complete(&name("a"), 2));
        assert!(!ledger.complete(&name("a"), 1));
        ledger.give_up(&name("a"));
        assert_eq!(ledger.counts(), (1, 2, 0));
        assert!(!ledger.is_settled());
        ledger.give_up(&name("b"));
        assert!(ledger.is_settled());
        assert_eq!(ledger.counts(), (1, 2, 1));
        // An attempt whose lease had expired may complete the task all the same.
        assert!(ledger.complete(&name("b"), 1));
        assert_eq!(ledger.counts(), (2, 2, 0));
    }
}
