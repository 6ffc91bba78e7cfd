//! Resolution and range of the times that the destination's file system stores. A file is unchanged
//! if its time equals the source's time as the file system would store it.

use std::sync::Arc;

use longhaul_proto::manifest::Timestamp;
use longhaul_storage::{Status, StoredFile};

use super::landing::file_time_now;

/// Units of stored times in nanoseconds: those of Windows, databases, exFAT, old file systems and
/// FAT.
const TIME_UNITS: [u32; 6] = [
    100,
    1000,
    1_000_000,
    10_000_000,
    1_000_000_000,
    2_000_000_000,
];

/// Last seconds that file systems of Linux can store: 32 bits with and without a sign, ext4's large
/// inodes, XFS's large times, FAT's and exFAT's (in UTC).
const LAST_SECONDS: [i64; 5] = [
    i32::MAX as i64,
    u32::MAX as i64,
    15_032_385_535,
    16_299_260_424,
    4_354_819_199,
];

/// First seconds: 32 bits with a sign, without a sign, FAT's and exFAT's.
const FIRST_SECONDS: [i64; 3] = [i32::MIN as i64, 0, 315_532_800];

/// Known properties of a file system's times.
#[derive(Debug, Default)]
pub(super) struct KeptTimes {
    /// Resolution in nanoseconds, if it is known and not 1.
    unit: Option<u32>,
    /// Range of times that are known to be stored.
    within: Option<(Timestamp, Timestamp)>,
    /// The file system replaces times from the first one upwards (`above`) or downwards (`below`)
    /// by the second one.
    above: Option<(Timestamp, Timestamp)>,
    below: Option<(Timestamp, Timestamp)>,
}

impl KeptTimes {
    /// Sets the resolution of a destination that stores all times with it.
    pub(super) fn set_unit(&mut self, unit: u32) {
        self.unit = Some(unit);
        let all = |seconds| Timestamp {
            seconds,
            nanoseconds: 0,
        };
        self.within = Some((all(i64::MIN), all(i64::MAX)));
    }

    /// Learns the resolution by setting a time on a new file. Afterwards the file's time is within
    /// two seconds of the present.
    pub(super) fn learn_unit(&mut self, file: &dyn StoredFile) {
        // The second is odd, to tell a resolution of two seconds from one of one second.
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

    /// True if the file system stores the time `wanted` as `kept`. A time outside the known ranges
    /// is set on `file`, a file of this session, to find out.
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

    /// Sets a time on a file and then resets it to the present. All times between two stored times
    /// count as stored, too.
    fn learn_range(&mut self, wanted: Timestamp, file: &dyn StoredFile) -> Option<Timestamp> {
        let kept = set_and_look(file, wanted);
        // The file belongs to this session, and a recent time shows other processes that the
        // session is alive.
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

/// True if one time is the other one at a lower resolution.
pub(super) fn is_rounded(wanted: Timestamp, kept: Timestamp) -> bool {
    TIME_UNITS
        .iter()
        .any(|unit| kept == truncated(wanted, *unit))
}

/// True if a file's time may be the stored form of another time, in a run that must not set times.
/// The change time, which programs cannot set, shows the resolution.
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

/// Rounds a time down to a multiple of `unit` nanoseconds, which is at most two seconds.
fn truncated(time: Timestamp, unit: u32) -> Timestamp {
    let unit = i128::from(unit.max(1));
    let whole = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let kept = whole.div_euclid(unit) * unit;
    Timestamp {
        // Rounding down cannot overflow, except for units of two seconds near the minimum.
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
    fn times_are_truncated_to_units() {
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
        // Times before 1970 are rounded to the past as well, as kernels do.
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
        // Without a file to set the time on, the limit is unknown.
        assert!(!times.keeps_as(late, LAST, None));
        // A file system that stores the time has no reason to store another one.
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
        // Within the known range, no time is set.
        assert!(!times.keeps_as(at(5_000), at(6_000), None));
        assert!(times.keeps_as(at(5_000), at(5_000), None));
    }
}
