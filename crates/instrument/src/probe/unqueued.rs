//! Losses that a full queue cannot explain.
//!
//! Before a queue drops packets it fills, and the round trip rises. It may do so between two looks,
//! above all in slow start, whose rate doubles with each round trip. What is lost then is found and
//! sent again over several round trips, when the queue is empty again. So a loss counts only if no
//! queue was seen for a while, and if the stream's first losses are over.

/// A queue shows if the round trip is longer than the least by this share, and by this many
/// seconds.
const QUEUE_SHARE: f64 = 0.25;
const QUEUE_SECONDS: f64 = 5e-3;

/// TCP finds and repairs the losses of a full queue in this many round trips, and in this many
/// seconds if the round trip is shorter than what hosts' timers take.
const REPAIR_ROUND_TRIPS: f64 = 10.0;
const REPAIR_SECONDS: f64 = 0.3;

/// Losses in fewer intervals may be one event.
const LEAST_INTERVALS: usize = 3;

/// All streams of a session at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Seconds since the session began.
    pub at: f64,
    /// The longest round trip of a stream, in seconds.
    pub rtt: f64,
    /// Segments lost until then.
    pub lost: u64,
    /// Segments sent until then.
    pub sent: u64,
}

/// What was sent and lost while no queue can have dropped it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unqueued {
    /// Segments lost.
    pub lost: u64,
    /// Segments sent.
    pub sent: u64,
    /// Number of intervals between two looks in which some were lost.
    pub intervals: usize,
}

impl Unqueued {
    /// Of looks in the order of time, over a path of this round trip.
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
            // A far end sends its counts itself, and may send less than before.
            let lost = now.lost.saturating_sub(before.lost);
            found.intervals += usize::from(lost > 0);
            found.lost = found.lost.saturating_add(lost);
            found.sent = found
                .sent
                .saturating_add(now.sent.saturating_sub(before.sent));
        }
        found
    }

    /// The share of the segments that was lost, 0 to 1; 0 if the losses may be one event.
    pub fn loss(self) -> f64 {
        if self.intervals < LEAST_INTERVALS {
            0.0
        } else {
            (self.lost as f64 / self.sent.max(1) as f64).min(1.0)
        }
    }

    /// Both together.
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

    /// A look each tenth of a second on a path of 20 ms, with the round trip in milliseconds and
    /// the losses of each tenth; 1000 segments are sent in each.
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
    fn the_burst_at_the_end_of_slow_start_is_a_queues() {
        // The queue filled and emptied between two looks.
        let mut tenths = vec![(20.0, 0); 25];
        tenths[2] = (21.0, 700);
        tenths[3] = (20.0, 150);
        assert_eq!(of(&tenths).lost, 0);
    }

    #[test]
    fn losses_while_and_shortly_after_a_queue_stands_are_its_own() {
        let mut tenths = vec![(20.0, 0); 40];
        tenths[1] = (20.0, 5);
        for full in [10, 20, 30] {
            tenths[full] = (38.0, 3);
            tenths[full + 1] = (22.0, 8);
        }
        assert_eq!(of(&tenths).lost, 0);
    }

    #[test]
    fn losses_again_and_again_without_a_queue_are_no_queues() {
        let tenths: Vec<(f64, u64)> = (0..25).map(|tenth| (20.5, tenth % 3)).collect();
        let found = of(&tenths);
        assert!((0.0009..0.0011).contains(&found.loss()), "{found:?}");
        // A queue for a moment hides those near it alone.
        let mut once = tenths.clone();
        once[12].0 = 40.0;
        let fewer = of(&once);
        assert!(0 < fewer.lost && fewer.lost < found.lost, "{fewer:?}");
        assert!((0.0007..0.0013).contains(&fewer.loss()), "{fewer:?}");
    }

    #[test]
    fn one_event_is_no_evidence() {
        let mut tenths = vec![(20.0, 0); 25];
        tenths[1] = (20.0, 1);
        tenths[15] = (20.0, 400);
        tenths[16] = (20.0, 50);
        assert_eq!(of(&tenths).intervals, 2);
        assert_eq!(of(&tenths).loss(), 0.0);
        assert_eq!(Unqueued::of(&[], 0.02), Unqueued::default());
    }

    #[test]
    fn counts_that_fall_are_survived() {
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
