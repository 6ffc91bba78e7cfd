//! Limits the failures that are printed: prints the first ones of a kind, and counts the others.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of failures of one kind that are printed.
const SHOWN: u64 = 10;

/// Maximum number of kinds. Further ones count as one kind.
const MOST_KINDS: usize = 64;

/// Maximum number of characters of a kind's text.
const MOST_TEXT: usize = 200;

/// Counts failures by their text without the name of the entry.
pub struct Failures {
    /// If true, all failures are printed.
    all: bool,
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Failures {
    /// Creates an empty count; `all` prints every failure.
    pub fn new(all: bool) -> Failures {
        Failures {
            all,
            counts: Mutex::default(),
        }
    }

    /// Counts a failure; returns true if it should be printed.
    pub fn note(&self, path: &str, text: &str) -> bool {
        if self.all {
            return true;
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kind = kind_of(path, text);
        if counts.len() >= MOST_KINDS && !counts.contains_key(&kind) {
            "other failures".clone_into(&mut kind);
        }
        let count = counts.entry(kind).or_default();
        *count += 1;
        *count <= SHOWN
    }

    /// Returns a line for each kind with unprinted failures, and resets the counts.
    pub fn rest(&self) -> Vec<String> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = std::mem::take(&mut *counts).into_iter();
        counts
            .filter(|(_, count)| *count > SHOWN)
            .map(|(kind, count)| format!("{} more (-v names each): {kind}", count - SHOWN))
            .collect()
    }
}

/// Returns the text without the path at its beginning.
fn kind_of(path: &str, text: &str) -> String {
    let rest = text.strip_prefix(path).filter(|_| !path.is_empty());
    let rest = rest.or_else(|| text.split_once(": ").map(|(_, rest)| rest));
    let rest = rest.unwrap_or(text).trim_start_matches([':', ' ']);
    rest.chars().take(MOST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_kind_are_counted_after_ten() {
        let failures = Failures::new(false);
        let full = "cannot write: No space left on device (os error 28); free some room";
        for number in 0..100 {
            let path = format!("d/f{number}");
            let shown = failures.note(&path, &format!("{path}: {full}"));
            assert_eq!(shown, number < 10, "{number}");
        }
        // The first failure has its path in the text only, and the second one is of another kind.
        assert!(!failures.note("", &format!("d/x: {full}")));
        assert!(failures.note("d/g", "d/g: cannot read: Permission denied"));
        assert_eq!(
            failures.rest(),
            [format!("91 more (-v names each): {full}")]
        );
        assert!(failures.rest().is_empty());
    }

    #[test]
    fn kinds_are_bounded() {
        let failures = Failures::new(false);
        let shown = (0..1000).filter(|number| failures.note("a", &format!("a: error {number}")));
        assert_eq!(shown.count(), MOST_KINDS + SHOWN as usize);
        assert_eq!(failures.rest().len(), 1);
    }
}
