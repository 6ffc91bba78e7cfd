//! How long a job takes, guessed by those before it: one that would end after the budget is
//! not begun, since a sync cannot be ended early.

use std::collections::BTreeMap;
use std::time::Duration;

/// An amount of one kind of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// What is alike fast for each of its amount.
    kind: String,
    /// Bytes or files.
    amount: f64,
}

impl Effort {
    /// This many bytes or files.
    pub fn new(kind: &str, amount: u64) -> Effort {
        Effort {
            kind: kind.to_owned(),
            amount: amount as f64,
        }
    }
}

/// The slowest that was seen of each kind, in seconds for each of its amount.
#[derive(Debug, Default)]
pub struct Pace {
    slowest: BTreeMap<String, f64>,
}

impl Pace {
    /// Notes that a job took `whole` seconds, `measured` of them for what it measures.
    pub fn learn(&mut self, efforts: &[Effort], measured: f64, whole: f64) {
        match efforts {
            [only] => self.note(only, whole),
            [first, rest @ ..] => {
                self.note(first, measured);
                for before in rest {
                    self.note(before, (whole - measured) / rest.len() as f64);
                }
            }
            [] => {}
        }
    }

    fn note(&mut self, effort: &Effort, seconds: f64) {
        let own = (seconds / effort.amount).max(0.0);
        let slowest = self.slowest.entry(effort.kind.clone()).or_default();
        // Of no amount it is no number.
        if own.is_finite() && own > *slowest {
            *slowest = own;
        }
    }

    /// How long a job will take; what was not seen yet takes no time.
    pub fn expected(&self, efforts: &[Effort]) -> Duration {
        let each = efforts.iter().map(|effort| {
            let slowest = self.slowest.get(&effort.kind).copied();
            slowest.unwrap_or(0.0) * effort.amount
        });
        Duration::try_from_secs_f64(each.sum()).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_takes_as_long_as_the_slowest_like_it() {
        let mut pace = Pace::default();
        let read = |bytes| Effort::new("read", bytes);
        let write = |bytes| Effort::new("write", bytes);
        assert_eq!(pace.expected(&[read(100)]), Duration::ZERO);
        // It was written before, in what the sample leaves of the time.
        pace.learn(&[read(100), write(100)], 1.0, 3.0);
        assert_eq!(pace.expected(&[read(800)]), Duration::from_secs(8));
        assert_eq!(pace.expected(&[write(800)]), Duration::from_secs(16));
        let both = [read(800), write(800)];
        assert_eq!(pace.expected(&both), Duration::from_secs(24));
        pace.learn(&[write(100)], 0.5, 0.5);
        pace.learn(&[write(0)], 1.0, 1.0);
        assert_eq!(pace.expected(&[write(800)]), Duration::from_secs(16));
        pace.learn(&[write(100)], 4.0, 4.0);
        assert_eq!(pace.expected(&[write(800)]), Duration::from_secs(32));
    }
}
