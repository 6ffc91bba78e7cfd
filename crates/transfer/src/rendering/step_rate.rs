//! The rate of a count that grows in steps, such as the bytes that are durable.

use std::collections::VecDeque;
use std::time::Duration;

/// The rate is taken over this span: what is durable of large files grows in
/// steps of about a second.
const RATE_SPAN: Duration = Duration::from_secs(5);

/// When a count grew that grows in steps, and what it was then.
#[derive(Debug)]
pub struct Steps(VecDeque<(Duration, u64)>);

impl Default for Steps {
    /// A session begins with nothing.
    fn default() -> Steps {
        Steps(VecDeque::from([(Duration::ZERO, 0)]))
    }
}

impl Steps {
    /// The count at a moment, no earlier than the last one.
    pub fn note(&mut self, at: Duration, count: u64) {
        match self.0.back() {
            Some(&(_, last)) if last == count => return,
            // A source changed: what was durable of it is void.
            Some(&(_, last)) if last > count => self.0.clear(),
            _ => {}
        }
        self.0.push_back((at, count));
        while self.0.len() > 2 && at.saturating_sub(self.0[0].0) > RATE_SPAN {
            self.0.pop_front();
        }
    }

    /// Per second, from step to step; less where the next one is overdue.
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
            // 8 MB more at each whole second.
            let at = f64::from(quarter) / 4.0;
            steps.note(seconds(at), 8_000_000 * (quarter / 4) as u64);
            if quarter >= 4 {
                assert_eq!(steps.rate(seconds(at)), 8e6, "after {at} s");
            }
        }
        // Nothing for five seconds more than usual: half of it.
        assert_eq!(steps.rate(seconds(16.0)), 4e6);
        // A source changed, and began anew.
        steps.note(seconds(17.0), 1_000_000);
        steps.note(seconds(18.0), 2_000_000);
        assert_eq!(steps.rate(seconds(18.0)), 1e6);
    }
}
