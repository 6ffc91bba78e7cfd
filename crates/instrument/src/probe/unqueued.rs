//! Counts losses that a full queue cannot explain.
//!
//! A queue fills before it drops packets, and the round-trip time rises. This may happen
//! between two samples, in particular in slow start, whose rate doubles with each round
//! trip. Such losses are found and repaired over several round trips, when the queue may
//! be empty again. A loss therefore counts only if no queue was seen for a while, and not
//! directly after the first losses of a session.

/// A queue exists if the round-trip time exceeds the minimum by this fraction and by this
/// number of seconds.
const QUEUE_SHARE: f64 = 0.25;
const QUEUE_SECONDS: f64 = 5e-3;

/// Time in which TCP repairs the losses of a full queue: a number of round trips, but at
/// least this number of seconds, because of the timers of hosts.
const REPAIR_ROUND_TRIPS: f64 = 10.0;
const REPAIR_SECONDS: f64 = 0.3;

/// Minimum number of intervals with losses. Losses in fewer intervals may be a single
/// event.
const LEAST_INTERVALS: usize = 3;

/// Sums over all streams of a session at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Seconds since the session began.
    pub at: f64,
    /// Maximum round-trip time of all streams in seconds.
    pub rtt: f64,
    /// Number of segments lost so far.
    pub lost: u64,
    /// Number of segments sent so far.
    pub sent: u64,
}

/// Segments sent and lost while no queue can have dropped them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unqueued {
    /// Number of lost segments.
    pub lost: u64,
    /// Number of sent segments.
    pub sent: u64,
    /// Number of intervals between two samples in which segments were lost.
    pub intervals: usize,
}

impl Unqueued {
    /// Evaluates samples in order of time. `least_rtt` is the minimum round-trip time of
    /// the path in seconds.
    pub fn of(looks: &[Look], least_rtt: f64) -> Unqueued {
        let Some(first) = looks.iter().find(|look| look.lost > 0) else {
            return Unqueued::default();
        };
        let queued = least_rtt + QUEUE_SECONDS.max(QUEUE_SHARE * least_rtt);
        let repair = REPAIR_SECONDS.max(REPAIR_ROUND_TRIPS * least_rtt);
        let mut counts_from = first.at + repair;
        let mut found = Unqueued::default();
        for pair in looks.windows(2) {
            let [before, now] = pair else { continue };
            if before.rtt.max(now.rtt) > queued {
                counts_from = counts_from.max(now.at + repair);
            }
            if before.at < counts_from {
                continue;
            }
            // The far end sends the counts and may send smaller ones than before.
            let lost = now.lost.saturating_sub(before.lost);
            found.intervals += usize::from(lost > 0);
            found.lost = found.lost.saturating_add(lost);
            found.sent = found
                .sent
                .saturating_add(now.sent.saturating_sub(before.sent));
        }
        found
    }

    /// Returns the fraction of lost segments, 0 to 1; 0 if the losses may be a single
    /// event.
    pub fn loss(self) -> f64 {
        if self.intervals < LEAST_INTERVALS {
            0.0
        } else {
            (self.lost as f64 / self.sent.max(1) as f64).min(1.0)
        }
    }

    /// Returns the sum of both.
    pub fn and(self, other: Unqueued) -> Unqueued {
        Unqueued {
            lost: self.lost.saturating_add(other.lost),
            sent: self.sent.saturating_add(other.sent),
            intervals: self.intervals + other.intervals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates one sample per tenth of a second on a path of 20 ms, given as round-trip
    /// time in milliseconds and number of losses. 1000 segments are sent per tenth.
    fn of(tenths: &[(f64, u64)]) -> Unqueued {
        let mut lost = 0;
        let looks = tenths.iter().enumerate().map(|(tenth, (rtt, more))| {
            lost += more;
            Look {
                at: tenth as f64 / 10.0,
                rtt: rtt / 1e3,
                lost,
                sent: tenth as u64 * 1000,
            }
        });
        Unqueued::of(&looks.collect::<Vec<Look>>(), 0.02)
    }

    #[test]
    fn the_burst_at_the_end_of_slow_start_does_not_count() {
        // The queue filled and emptied between two samples.
        let mut tenths = vec![(20.0, 0); 25];
        tenths[2] = (21.0, 700);
        tenths[3] = (20.0, 150);
        assert_eq!(of(&tenths).lost, 0);
    }

    #[test]
    fn losses_during_and_shortly_after_a_queue_do_not_count() {
        let mut tenths = vec![(20.0, 0); 40];
        tenths[1] = (20.0, 5);
        for full in [10, 20, 30] {
            tenths[full] = (38.0, 3);
            tenths[full + 1] = (22.0, 8);
        }
        assert_eq!(of(&tenths).lost, 0);
    }

    #[test]
    fn repeated_losses_without_a_queue_count() {
        let tenths: Vec<(f64, u64)> = (0..25).map(|tenth| (20.5, tenth % 3)).collect();
        let found = of(&tenths);
        assert!((0.0009..0.0011).contains(&found.loss()), "{found:?}");
        // A short queue excludes only losses close to it.
        let mut once = tenths.clone();
        once[12].0 = 40.0;
        let fewer = of(&once);
        assert!(0 < fewer.lost && fewer.lost < found.lost, "{fewer:?}");
        assert!((0.0007..0.0013).contains(&fewer.loss()), "{fewer:?}");
    }

    #[test]
    fn a_single_event_does_not_count() {
        let mut tenths = vec![(20.0, 0); 25];
        tenths[1] = (20.0, 1);
        tenths[15] = (20.0, 400);
        tenths[16] = (20.0, 50);
        assert_eq!(of(&tenths).intervals, 2);
        assert_eq!(of(&tenths).loss(), 0.0);
        assert_eq!(Unqueued::of(&[], 0.02), Unqueued::default());
    }

    #[test]
    fn decreasing_counts_are_harmless() {
        let look = |at: f64, lost| Look {
            at,
            rtt: f64::NAN,
            lost,
            sent: u64::MAX - lost,
        };
        let looks = [
            look(0.0, 9),
            look(1.0, u64::MAX),
            look(2.0, 3),
            look(3.0, 7),
        ];
        assert!(Unqueued::of(&looks, 0.0).loss() <= 1.0);
    }
}
