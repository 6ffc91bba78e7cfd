//! Measures the rate of a count that grows in steps, such as the number of durable bytes.

use std::collections::VecDeque;
use std::time::Duration;

/// Time over which the rate is measured. The durable bytes of large files grow in steps of about a
/// second.
const RATE_SPAN: Duration = Duration::from_secs(5);

/// Times at which a count grew, and its values.
#[derive(Debug)]
pub struct Steps(VecDeque<(Duration, u64)>);

impl Default for Steps {
    /// Returns the state at the beginning of a session, with a count of 0.
    fn default() -> Steps {
        Steps(VecDeque::from([(Duration::ZERO, 0)]))
    }
}

impl Steps {
    /// Records the count at a time, which must not precede the last one.
    pub fn note(&mut self, at: Duration, count: u64) {
        match self.0.back() {
            Some(&(_, last)) if last == count => return,
            // A source changed, so its durable bytes no longer count.
            Some(&(_, last)) if last > count => self.0.clear(),
            _ => {}
        }
        self.0.push_back((at, count));
        while self.0.len() > 2 && at.saturating_sub(self.0[0].0) > RATE_SPAN {
            self.0.pop_front();
        }
    }

    /// Returns the rate per second, measured from step to step. It decreases if the next step is
    /// overdue.
    pub fn rate(&self, now: Duration) -> f64 {
        let (Some(&first), Some(&last)) = (self.0.front(), self.0.back()) else {
            return 0.0;
        };
        let steps = u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX);
        let Some(usual) = last.0.saturating_sub(first.0).checked_div(steps) else {
            return 0.0;
        };
        let until = last.0.max(now.saturating_sub(usual));
        let passed = until.saturating_sub(first.0).as_secs_f64();
        if passed > 0.0 {
            last.1.saturating_sub(first.1) as f64 / passed
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_taken_from_step_to_step() {
        let seconds = Duration::from_secs_f64;
        let mut steps = Steps::default();
        assert_eq!(steps.rate(seconds(1.0)), 0.0);
        let mut soon = Steps::default();
        soon.note(seconds(0.5), 1_000_000);
        assert_eq!(soon.rate(seconds(0.5)), 2e6);
        for quarter in 0..41 {
            // The count grows by 8 MB at each whole second.
            let at = f64::from(quarter) / 4.0;
            steps.note(seconds(at), 8_000_000 * (quarter / 4) as u64);
            if quarter >= 4 {
                assert_eq!(steps.rate(seconds(at)), 8e6, "after {at} s");
            }
        }
        // No step for five seconds longer than usual: half the rate.
        assert_eq!(steps.rate(seconds(16.0)), 4e6);
        // A source changed, and was sent from its beginning.
        steps.note(seconds(17.0), 1_000_000);
        steps.note(seconds(18.0), 2_000_000);
        assert_eq!(steps.rate(seconds(18.0)), 1e6);
    }
}
