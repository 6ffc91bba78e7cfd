//! Streams that the law of loss asks for, given back and asked for again: a bound on how often.
//!
//! Where streams that it added filled the path, some are given back. Either that was right, and the
//! law is wrong, or the rate falls, and the law asks for them again. Then they come back in one
//! step, and stay for longer each time. Anything else that it asks for waits for a pause.

use std::time::Duration;

use longhaul_units::Moment;

/// How long streams stay that were given back without need, at first and at most.
const STAY: (Duration, Duration) = (Duration::from_secs(16), Duration::from_secs(160));

/// No sooner does the law add streams again, where what it added was taken away before.
const PAUSE: Duration = Duration::from_secs(6);

/// What became of them so far.
#[derive(Clone, Copy, Debug)]
pub struct ByLaw {
    /// Some were added since some were last taken away.
    added: bool,
    /// Some that were added were taken away.
    undone: bool,
    /// The last change gave some back.
    given_back: bool,
    /// No more before this, once some were taken away.
    paused: Moment,
    /// None is given back before this.
    stays: Moment,
    stay: Duration,
}

impl Default for ByLaw {
    fn default() -> ByLaw {
        ByLaw {
            added: false,
            undone: false,
            given_back: false,
            paused: Moment(0),
            stays: Moment(0),
            stay: STAY.0,
        }
    }
}

impl ByLaw {
    /// Whether streams may be added now, if the law asks for them.
    pub fn may_add(&self, now: Moment) -> bool {
        !self.undone || self.given_back || now >= self.paused
    }

    /// Whether none were added or taken away for a while.
    pub fn has_paused(&self, now: Moment) -> bool {
        now >= self.paused
    }

    /// Whether all that it asks for comes in one step: it was there before.
    pub fn adds_at_once(&self) -> bool {
        self.undone
    }

    /// Some were added.
    pub fn add(&mut self, now: Moment) {
        if self.given_back {
            self.stays = now + self.stay;
            self.stay = (self.stay * 2).min(STAY.1);
        }
        (self.added, self.given_back) = (true, false);
        self.paused = now + PAUSE;
    }

    /// Whether some may be given back where the path is always full.
    pub fn may_give_back(&self, now: Moment) -> bool {
        now >= self.stays
    }

    /// Some were given back.
    pub fn give_back(&mut self, now: Moment) {
        self.given_back = self.added || self.given_back;
        self.undo(now);
    }

    /// Some were taken away, since they carried nothing.
    pub fn undo(&mut self, now: Moment) {
        if self.added {
            self.undone = true;
            self.paused = now + PAUSE;
        }
        self.added = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn nothing_waits_before_something_was_taken_away() {
        let mut law = ByLaw::default();
        for second in 0..5 {
            assert!(law.may_add(at(second)) && !law.adds_at_once());
            law.add(at(second));
        }
        assert!(law.may_give_back(at(5)));
        // Others' streams are no concern of it.
        let mut other = ByLaw::default();
        other.give_back(at(1));
        assert!(other.may_add(at(1)) && !other.adds_at_once());
    }

    #[test]
    fn what_was_given_back_without_need_stays_for_longer_each_time() {
        let mut law = ByLaw::default();
        law.add(at(0));
        let mut changes = Vec::new();
        for second in 1..400 {
            // The path is always full, and the law asks always.
            if law.given_back && law.may_add(at(second)) {
                assert!(law.adds_at_once());
                law.add(at(second));
                changes.push(second);
            } else if law.may_give_back(at(second)) {
                law.give_back(at(second));
                changes.push(second);
            }
        }
        let most = (0..400).map(|from| {
            let window = from..from + 30;
            changes.iter().filter(|at| window.contains(*at)).count()
        });
        assert!(most.max().unwrap() <= 4, "{changes:?}");
        assert!(changes.len() < 14, "{changes:?}");
    }

    #[test]
    fn what_carried_nothing_is_not_tried_again_soon() {
        let mut law = ByLaw::default();
        law.add(at(0));
        law.undo(at(10));
        assert!(!law.may_add(at(15)) && law.may_add(at(16)));
        law.add(at(16));
        assert!(!law.may_add(at(21)));
    }
}
