//! Failures as they happen: the first ones of a kind are printed, the others counted.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Failures of one kind that are printed.
const SHOWN: u64 = 10;

/// Most kinds. Further ones count as one kind.
const MOST_KINDS: usize = 64;

/// Most characters of a kind's text.
const MOST_TEXT: usize = 200;

/// Number of failures by their text without the name that it concerns.
pub struct Failures {
    /// All are printed.
    all: bool,
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Failures {
    /// With no failure yet; `all` prints each.
    pub fn new(all: bool) -> Failures {
        Failures {
            all,
            counts: Mutex::default(),
        }
    }

    /// Counts a failure; true if it is to be printed.
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

    /// A line for each kind of which not all were printed. Counting begins anew.
    pub fn rest(&self) -> Vec<String> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = std::mem::take(&mut *counts).into_iter();
        counts
            .filter(|(_, count)| *count > SHOWN)
            .map(|(kind, count)| format!("{} more (-v names each): {kind}", count - SHOWN))
            .collect()
    }
}

/// The text without the path at its beginning.
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
    fn after_ten_of_a_kind_they_are_counted() {
        let failures = Failures::new(false);
        let full = "cannot write: No space left on device (os error 28); free some room";
        for number in 0..100 {
            let path = format!("d/f{number}");
            let shown = failures.note(&path, &format!("{path}: {full}"));
            assert_eq!(shown, number < 10, "{number}");
        }
        // One whose text alone names it, and one of another kind.
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
