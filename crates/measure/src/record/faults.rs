//! The lines of a file that were skipped, grouped by kind of fault.

use std::fmt;

use super::{Fault, LineFault};

/// Maximum number of ranges of lines that are kept. They need 16 MB for a file of two million lines
/// in which every second line is faulty.
const MOST_STRETCHES: usize = 1_000_000;

/// Maximum number of kinds of faults that are distinguished in detail. Further faults are grouped
/// by variant only.
const MOST_DETAILED: usize = 50;

/// The lines that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of skipped lines.
    pub count: u64,
    /// Skipped lines by kind of fault, in the order of the first line of each kind.
    pub kinds: Vec<FaultLines>,
    /// Number of skipped lines that `kinds` does not contain because of the limit on ranges.
    pub unnamed: u64,
    stretches: usize,
}

/// The lines with one kind of fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultLines {
    /// First line and its fault.
    pub first: LineFault,
    /// Number of lines.
    pub count: u64,
    /// Ranges of consecutive line numbers (first, last), in ascending order.
    pub stretches: Vec<(u64, u64)>,
}

impl Skipped {
    pub(super) fn add(&mut self, fault: LineFault) {
        self.count += 1;
        let detailed = self.kinds.len() < MOST_DETAILED;
        let same = |kind: &&mut FaultLines| is_alike(&kind.first.fault, &fault.fault, detailed);
        let Some(kind) = self.kinds.iter_mut().find(same) else {
            self.stretches += 1;
            self.kinds.push(FaultLines {
                count: 1,
                stretches: vec![(fault.line, fault.line)],
                first: fault,
            });
            return;
        };
        match kind.stretches.last_mut() {
            Some((_, last)) if *last + 1 == fault.line => *last = fault.line,
            _ if self.stretches == MOST_STRETCHES => {
                self.unnamed += 1;
                return;
            }
            _ => {
                self.stretches += 1;
                kind.stretches.push((fault.line, fault.line));
            }
        }
        kind.count += 1;
    }
}

/// True if two faults are of the same kind. Ignores the column, and the name of a repeated run.
fn is_alike(one: &Fault, other: &Fault, detailed: bool) -> bool {
    let cause = |text: &'_ str| text.rfind(" at column").unwrap_or(text.len());
    match (one, other) {
        (Fault::Repeated(_), Fault::Repeated(_)) => true,
        (Fault::Malformed(one), Fault::Malformed(other)) if detailed => {
            one[..cause(one)] == other[..cause(other)]
        }
        (one, other) if detailed => one == other,
        (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

/// Writes `line 7 is not a record: …`, or `lines 3–9, 12 (8 lines): line 3 is not a record: …`.
impl fmt::Display for FaultLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count > 1 {
            let mut before = "lines ";
            for (first, last) in &self.stretches {
                if first == last {
                    write!(f, "{before}{first}")?;
                } else {
                    write!(f, "{before}{first}–{last}")?;
                }
                before = ", ";
            }
            write!(f, " ({} lines): ", self.count)?;
        }
        write!(f, "{}", self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(faults: impl IntoIterator<Item = (u64, Fault)>) -> Skipped {
        let mut skipped = Skipped::default();
        for (line, fault) in faults {
            skipped.add(LineFault { line, fault });
        }
        skipped
    }

    #[test]
    fn every_line_is_named_by_kind() {
        let malformed =
            |column: u64| Fault::Malformed(format!("expected value at column {column}"));
        let skipped = skipped([
            (2, malformed(1)),
            (3, malformed(7)),
            (4, Fault::Schema(2)),
            (5, malformed(2)),
            (9, Fault::Schema(3)),
            (10, Fault::Repeated("a".to_owned())),
            (11, Fault::Repeated("b".to_owned())),
        ]);
        assert_eq!((skipped.count, skipped.unnamed), (7, 0));
        let told: Vec<String> = skipped.kinds.iter().map(ToString::to_string).collect();
        assert_eq!(
            told[0],
            "lines 2–3, 5 (3 lines): line 2 is not a record: expected value at column 1"
        );
        assert!(
            told[1].starts_with("line 4 has schema version 2"),
            "{}",
            told[1]
        );
        assert!(
            told[2].starts_with("line 9 has schema version 3"),
            "{}",
            told[2]
        );
        assert!(
            told[3].starts_with("lines 10–11 (2 lines): line 10 repeats run a"),
            "{}",
            told[3]
        );
        assert_eq!(told.len(), 4);
    }

    #[test]
    fn memory_is_bounded_for_any_faults() {
        // Each line has a different schema. The first fifty are kept in detail, the others
        // together.
        let many = skipped((1..=10_000).map(|n| (n, Fault::Schema(n + 1))));
        assert_eq!(many.kinds.len(), MOST_DETAILED);
        assert_eq!(
            many.kinds.iter().map(|kind| kind.count).sum::<u64>(),
            10_000
        );
        let rest = many.kinds[0].to_string();
        assert!(rest.starts_with("lines 1, 51–10000 (9951 lines)"), "{rest}");
        // Every second line is faulty, and there are more ranges than the limit.
        let lines = MOST_STRETCHES as u64 + 5;
        let alternate = skipped((1..=lines).map(|n| (2 * n, Fault::TooLong)));
        assert_eq!((alternate.count, alternate.unnamed), (lines, 5));
        assert_eq!(alternate.kinds[0].stretches.len(), MOST_STRETCHES);
    }
}
