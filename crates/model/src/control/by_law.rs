//! Limits how often streams are added by the law of loss after they were removed.
//!
//! If added streams filled the path, some are removed. Either this was right and the law is wrong,
//! or the rate falls and the law requires the streams again. Then they are added in one step, and
//! stay longer each time. Other additions wait for a pause.

use std::time::Duration;

use longhaul_units::Moment;

/// Time for which streams stay after they were removed without need: the first and the longest.
const STAY: (Duration, Duration) = (Duration::from_secs(16), Duration::from_secs(160));

/// Minimum time before the law adds streams again after its streams were removed.
const PAUSE: Duration = Duration::from_secs(6);

/// History of the streams that the law added.
#[derive(Clone, Copy, Debug)]
pub struct ByLaw {
    /// True if streams were added since the last removal.
    added: bool,
    /// True if added streams were removed.
    undone: bool,
    /// True if the last change removed streams because the path was full.
    given_back: bool,
    /// Time before which no streams are added, after a removal.
    paused: Moment,
    /// Time before which no streams are removed.
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
    /// True if streams may be added now, if the law requires them.
    pub fn may_add(&self, now: Moment) -> bool {
        !self.undone || self.given_back || now >= self.paused
    }

    /// True if no streams were added or removed for a while.
    pub fn has_paused(&self, now: Moment) -> bool {
        now >= self.paused
    }

    /// True if all required streams are added in one step, because they existed before.
    pub fn adds_at_once(&self) -> bool {
        self.undone
    }

    /// Records that streams were added.
    pub fn add(&mut self, now: Moment) {
        if self.given_back {
            self.stays = now + self.stay;
            self.stay = (self.stay * 2).min(STAY.1);
        }
        (self.added, self.given_back) = (true, false);
        self.paused = now + PAUSE;
    }

    /// True if streams may be removed when the path is always full.
    pub fn may_give_back(&self, now: Moment) -> bool {
        now >= self.stays
    }

    /// Records that streams were removed because the path was full.
    pub fn give_back(&mut self, now: Moment) {
        self.given_back = self.added || self.given_back;
        self.undo(now);
    }

    /// Records that streams were removed because they had no effect.
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
    fn streams_are_added_without_a_pause_until_some_are_removed() {
        let mut law = ByLaw::default();
        for second in 0..5 {
            assert!(law.may_add(at(second)) && !law.adds_at_once());
            law.add(at(second));
        }
        assert!(law.may_give_back(at(5)));
        // The removal of streams that the law did not add has no effect.
        let mut other = ByLaw::default();
        other.give_back(at(1));
        assert!(other.may_add(at(1)) && !other.adds_at_once());
    }

    #[test]
    fn streams_removed_without_need_stay_longer_each_time() {
        let mut law = ByLaw::default();
        law.add(at(0));
        let mut changes = Vec::new();
        for second in 1..400 {
            // The path is always full, and the law always requires more streams.
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
    fn streams_without_effect_are_not_added_again_soon() {
        let mut law = ByLaw::default();
        law.add(at(0));
        law.undo(at(10));
        assert!(!law.may_add(at(15)) && law.may_add(at(16)));
        law.add(at(16));
        assert!(!law.may_add(at(21)));
    }
}
