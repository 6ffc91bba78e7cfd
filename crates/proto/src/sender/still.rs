//! Detects periods without any progress.

use std::time::Duration;

use longhaul_units::Moment;

/// Maximum number of doublings of the patience without progress.
const MOST_DOUBLINGS: u32 = 5;

/// Values that change with any progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity {
    pub arrived_bytes: u64,
    pub durable_bytes: u64,
    /// Number of open tasks.
    pub tasks: usize,
    /// Progress of the work outside of tasks.
    pub work: u64,
}

/// Period without any progress.
#[derive(Debug, Default)]
pub(super) struct Still {
    since: Moment,
    seen: Activity,
    tries: u32,
}

impl Still {
    /// True if there was no progress for longer than `patience`, which doubles with each try. Time
    /// in which `waits` is true does not count.
    pub fn is_over(
        &mut self,
        patience: Duration,
        seen: Activity,
        waits: bool,
        now: Moment,
    ) -> bool {
        if seen != self.seen {
            *self = Still {
                since: now,
                seen,
                tries: 0,
            };
        }
        if waits {
            self.since = now;
        }
        let patience = patience.saturating_mul(1 << self.tries.min(MOST_DOUBLINGS));
        now - self.since > patience
    }

    /// Notes that the blocks were sent again.
    pub fn note_try(&mut self, now: Moment) {
        self.since = now;
        self.tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn patience_doubles_without_progress_and_waiting_does_not_count() {
        let mut still = Still::default();
        let mut progress = Activity::default();
        let mut tries = Vec::new();
        for second in 0..100 {
            let now = Moment(0) + Duration::from_secs(second);
            let waits = second < 5;
            if still.is_over(PATIENCE, progress, waits, now) {
                still.note_try(now);
                tries.push(second);
            }
        }
        assert_eq!(tries, [15, 36, 77]);
        progress.tasks = 1;
        let at = |second| Moment(0) + Duration::from_secs(second);
        assert!(!still.is_over(PATIENCE, progress, false, at(200)));
        assert!(still.is_over(PATIENCE, progress, false, at(211)));
    }
}
