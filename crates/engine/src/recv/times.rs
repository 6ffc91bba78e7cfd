//! Which times the destination's file system keeps: how exactly, and from when to when. A file
//! is unchanged where its time is what the file system makes of the source's.

use std::sync::Arc;

use longhaul_proto::manifest::Timestamp;
use longhaul_storage::{Status, StoredFile};

use super::landing::file_time_now;

/// Units in which file systems keep times, in nanoseconds: those of Windows, of databases, of
/// exFAT, of old ones and of FAT.
const TIME_UNITS: [u32; 6] = [
    100,
    1000,
    1_000_000,
    10_000_000,
    1_000_000_000,
    2_000_000_000,
];

/// The last second that file systems of Linux can keep: 32 bits with and without a sign, ext4's
/// large inodes, XFS's large times, FAT's and exFAT's (in UTC).
const LAST_SECONDS: [i64; 5] = [
    i32::MAX as i64,
    u32::MAX as i64,
    15_032_385_535,
    16_299_260_424,
    4_354_819_199,
];

/// The first one: 32 bits with a sign, without, FAT's and exFAT's.
const FIRST_SECONDS: [i64; 3] = [i32::MIN as i64, 0, 315_532_800];

/// What was found out of a file system.
#[derive(Debug, Default)]
pub(super) struct KeptTimes {
    /// Nanoseconds to which it keeps times, where that is known and not 1.
    unit: Option<u32>,
    /// It keeps times between these.
    within: Option<(Timestamp, Timestamp)>,
    /// Later than, or earlier than, the first of these it keeps the second instead.
    above: Option<(Timestamp, Timestamp)>,
    below: Option<(Timestamp, Timestamp)>,
}

impl KeptTimes {
    /// Tries on a new file how exactly times are kept. Its time is within two seconds of now
    /// after that.
    pub(super) fn learn_unit(&mut self, file: &dyn StoredFile) {
        // Odd, to tell two seconds from one.
        let wanted = Timestamp {
            seconds: file_time_now().seconds | 1,
            nanoseconds: 999_999_999,
        };
        let Some(kept) = set_and_look(file, wanted) else {
            return;
        };
        let unit = TIME_UNITS.into_iter();
        let is_kept = |unit: &u32| kept == truncated(wanted, *unit);
        self.unit = unit.filter(|_| kept != wanted).find(is_kept);
        if self.rounded(wanted) == kept {
            self.within = Some((wanted, wanted));
        }
    }

    /// Whether the file system makes `kept` of a time. One that is outside of what it is known
    /// to keep is tried on a file of this session.
    pub(super) fn keeps_as(
        &mut self,
        wanted: Timestamp,
        kept: Timestamp,
        file: Option<&Arc<dyn StoredFile>>,
    ) -> bool {
        if self.rounded(wanted) == kept {
            return true;
        }
        if self
            .within
            .is_some_and(|(low, high)| (low..=high).contains(&wanted))
        {
            return false;
        }
        if let Some((_, last)) = self.above.filter(|(from, _)| *from <= wanted) {
            return last == kept;
        }
        if let Some((_, first)) = self.below.filter(|(from, _)| wanted <= *from) {
            return first == kept;
        }
        file.is_some_and(|file| self.learn_range(wanted, &**file) == Some(kept))
    }

    /// Tries a time on a file, whose time is about now after that. What is between two times
    /// that are kept is kept too.
    fn learn_range(&mut self, wanted: Timestamp, file: &dyn StoredFile) -> Option<Timestamp> {
        let kept = set_and_look(file, wanted);
        // The file is this session's; its time says that somebody is at work.
        let _ = file.set_modified(file_time_now());
        let kept = kept?;
        if kept == self.rounded(wanted) {
            let (low, high) = self.within.unwrap_or((wanted, wanted));
            self.within = Some((low.min(wanted), high.max(wanted)));
        } else if kept < wanted {
            self.above = Some((wanted, kept));
        } else {
            self.below = Some((wanted, kept));
        }
        Some(kept)
    }

    fn rounded(&self, time: Timestamp) -> Timestamp {
        self.unit.map_or(time, |unit| truncated(time, unit))
    }
}

fn set_and_look(file: &dyn StoredFile, wanted: Timestamp) -> Option<Timestamp> {
    file.set_modified(wanted).ok()?;
    Some(file.status().ok()?.modified)
}

/// Whether one time is the other one, kept less exactly.
pub(super) fn is_rounded(wanted: Timestamp, kept: Timestamp) -> bool {
    TIME_UNITS
        .iter()
        .any(|unit| kept == truncated(wanted, *unit))
}

/// Whether a file's time may be what its file system makes of another one, where nothing may be
/// tried: the time of its last change, which nobody sets, tells how exactly times are kept.
pub(super) fn seems_kept(wanted: Timestamp, there: &Status) -> bool {
    let (kept, changed) = (there.modified, there.changed);
    let is_kept =
        |unit: &u32| changed == truncated(changed, *unit) && kept == truncated(wanted, *unit);
    let is_limit = kept.nanoseconds == 0
        && if kept < wanted {
            LAST_SECONDS.contains(&kept.seconds)
        } else {
            FIRST_SECONDS.contains(&kept.seconds)
        };
    kept == wanted || is_limit || TIME_UNITS.iter().any(is_kept)
}

/// A time without what is less than a unit of this many nanoseconds, up to two seconds.
fn truncated(time: Timestamp, unit: u32) -> Timestamp {
    let unit = i128::from(unit.max(1));
    let whole = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let kept = whole.div_euclid(unit) * unit;
    Timestamp {
        // No further from zero than it was, but for two seconds.
        seconds: i64::try_from(kept.div_euclid(1_000_000_000)).unwrap_or(time.seconds),
        nanoseconds: kept.rem_euclid(1_000_000_000) as u32,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_storage::forgetting::ForgettingStorage;
    use longhaul_storage::{Creation, DataMode};

    use super::*;

    #[test]
    fn times_are_cut_to_units() {
        let at = |seconds, nanoseconds| Timestamp {
            seconds,
            nanoseconds,
        };
        let time = at(1_500_000_001, 123_456_789);
        for (unit, kept) in [
            (1, time),
            (100, at(1_500_000_001, 123_456_700)),
            (10_000_000, at(1_500_000_001, 120_000_000)),
            (1_000_000_000, at(1_500_000_001, 0)),
            (2_000_000_000, at(1_500_000_000, 0)),
        ] {
            assert_eq!(truncated(time, unit), kept, "{unit}");
        }
        // Before 1970 too: to the past, as kernels do.
        assert_eq!(truncated(at(-1, 5), 1_000_000_000), at(-1, 0));
        assert_eq!(truncated(at(i64::MIN, 0), 2_000_000_000).nanoseconds, 0);
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp {
            seconds,
            nanoseconds: 5,
        }
    }

    fn a_file() -> Arc<dyn StoredFile> {
        let root = ForgettingStorage::new().root();
        root.create_file(b"f", Creation::New, DataMode::Buffered)
            .unwrap()
    }

    #[test]
    fn a_time_beyond_the_limit_is_unchanged_at_the_limit() {
        const LAST: Timestamp = Timestamp {
            seconds: i32::MAX as i64,
            nanoseconds: 0,
        };
        let late = at(2_208_988_800);
        let mut times = KeptTimes::default();
        // Nothing is known without a file to try it on, ...
        assert!(!times.keeps_as(late, LAST, None));
        // ... and a file system that keeps the time has no reason to have another.
        assert!(!times.keeps_as(late, LAST, Some(&a_file())));
        assert!(times.within.is_some());
        let mut times = KeptTimes {
            above: Some((at(2_200_000_000), LAST)),
            ..KeptTimes::default()
        };
        assert!(times.keeps_as(late, LAST, None));
        assert!(!times.keeps_as(late, at(5), None));
        assert!(!times.keeps_as(at(1_600_000_000), LAST, None));
    }

    #[test]
    fn times_within_a_known_range_are_not_tried() {
        let mut times = KeptTimes::default();
        let file = a_file();
        assert_eq!(times.learn_range(at(1_000), &*file), Some(at(1_000)));
        assert_eq!(times.learn_range(at(9_000), &*file), Some(at(9_000)));
        assert_eq!(times.within, Some((at(1_000), at(9_000))));
        // Where a try would say otherwise, it is not made.
        assert!(!times.keeps_as(at(5_000), at(6_000), None));
        assert!(times.keeps_as(at(5_000), at(5_000), None));
    }
}
