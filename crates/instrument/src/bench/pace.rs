//! Predicts the duration of a job from earlier jobs. A job that would exceed the budget
//! is not started, because a sync cannot be interrupted.

use std::collections::BTreeMap;
use std::time::Duration;

/// An amount of work of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Effort {
    /// Name of the kind. Work of one kind has the same speed.
    kind: String,
    /// Number of bytes or files.
    amount: f64,
}

impl Effort {
    /// Creates an amount of bytes or files.
    pub fn new(kind: &str, amount: u64) -> Effort {
        Effort {
            kind: kind.to_owned(),
            amount: amount as f64,
        }
    }
}

/// Lowest speed per kind of work, in seconds per unit.
#[derive(Debug, Default)]
pub struct Pace {
    slowest: BTreeMap<String, f64>,
}

impl Pace {
    /// Records that a job took `whole` seconds, of which `measured` seconds were the
    /// first of its efforts.
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
        // An amount of 0 gives no finite quotient.
        if own.is_finite() && own > *slowest {
            *slowest = own;
        }
    }

    /// Returns the predicted duration of a job. Unknown kinds of work count as 0.
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
    fn the_prediction_uses_the_slowest_sample_of_each_kind() {
        let mut pace = Pace::default();
        let read = |bytes| Effort::new("read", bytes);
        let write = |bytes| Effort::new("write", bytes);
        assert_eq!(pace.expected(&[read(100)]), Duration::ZERO);
        // The file was written before, in the time outside the measured part.
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
