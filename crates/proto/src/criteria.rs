//! Conditions under which a file or link replaces an existing entry, as in rsync's options of the
//! same names.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::filter::Reason;
use crate::manifest::Timestamp;

/// Maximum window in which two times count as equal: a day, in nanoseconds. Tools and file systems
/// differ by a few seconds, or by an hour if they keep local time.
pub const WIDEST_WINDOW: u64 = 24 * 3600 * 1_000_000_000;

/// Conditions for copying an entry. By default, an entry is copied if its size or time differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(map)]
#[serde(deny_unknown_fields, default)]
pub struct Criteria {
    /// If true, files of the same size are compared by content, regardless of their times.
    #[n(0)]
    pub checksum: bool,
    /// If true, files that are newer at the destination remain.
    #[n(1)]
    pub update: bool,
    /// If true, entries that are missing at the destination are not created.
    #[n(2)]
    pub existing: bool,
    /// If true, entries that exist at the destination remain.
    #[n(3)]
    pub ignore_existing: bool,
    /// If true, files of the same size count as unchanged.
    #[n(4)]
    pub size_only: bool,
    /// If true, the same size and time do not make a file unchanged.
    #[n(5)]
    pub ignore_times: bool,
    /// Maximum difference of equal times in nanoseconds, 0 to [`WIDEST_WINDOW`].
    #[n(6)]
    pub window: u64,
}

/// Reason to leave an entry unchanged at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Held {
    /// The file at the destination is newer.
    #[n(0)]
    Newer,
    /// The entry is missing, and only existing entries are updated.
    #[n(1)]
    Missing,
    /// The entry exists, and existing entries are not replaced.
    #[n(2)]
    Exists,
}

impl Held {
    /// Returns the reason under which the summary counts the entry.
    pub fn reason(self) -> Reason {
        match self {
            Held::Newer => Reason::Newer,
            Held::Missing => Reason::Missing,
            Held::Exists => Reason::Exists,
        }
    }
}

/// Properties of a file that exists at both ends.
#[derive(Clone, Copy, Debug)]
pub struct Both {
    /// Sizes in bytes at the source and at the destination.
    pub sizes: (u64, u64),
    /// Times of modification at the source and at the destination.
    pub modified: (Timestamp, Timestamp),
    /// True if the destination's time equals the source's at the precision of its file system.
    pub same_time: bool,
}

/// Decision about a file that exists at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The file remains unchanged.
    Left(Held),
    /// The data is the same. The mode and, if different, the time are corrected.
    Same,
    /// A comparison of the contents decides.
    Contents,
    /// The file is copied.
    Copy,
}

impl Criteria {
    /// True if only size and time decide.
    pub fn is_usual(&self) -> bool {
        *self == Criteria::default()
    }

    /// True if the values are within their ranges.
    pub fn is_valid(&self) -> bool {
        self.window <= WIDEST_WINDOW
    }

    /// Decides about a file that exists at both ends.
    pub fn judge(&self, file: &Both) -> Verdict {
        if self.ignore_existing {
            return Verdict::Left(Held::Exists);
        }
        let (source, there) = file.modified;
        let same_time = file.same_time || self.is_near(source, there);
        if self.update && self.is_newer(there, source, same_time) {
            let same = file.sizes.0 == file.sizes.1 && same_time;
            // A file that is the same within the window gets its mode, as it would without
            // `update`.
            return if same && !self.checksum && !self.ignore_times {
                Verdict::Same
            } else {
                Verdict::Left(Held::Newer)
            };
        }
        if file.sizes.0 != file.sizes.1 {
            return Verdict::Copy;
        }
        // The same order as in rsync.
        match *self {
            Criteria { checksum: true, .. } => Verdict::Contents,
            Criteria {
                size_only: true, ..
            } => Verdict::Same,
            Criteria {
                ignore_times: true, ..
            } => Verdict::Copy,
            _ if same_time => Verdict::Same,
            _ => Verdict::Copy,
        }
    }

    /// True if the destination's file counts as newer than the source. With a window, the source
    /// counts as newer only if its time is later by at least the window, as in rsync.
    fn is_newer(&self, there: Timestamp, source: Timestamp, same_time: bool) -> bool {
        match self.window {
            0 => there > source && !same_time,
            window => nanoseconds(source) - nanoseconds(there) < i128::from(window),
        }
    }

    /// True if two times are within the window.
    pub fn is_near(&self, one: Timestamp, other: Timestamp) -> bool {
        let apart = nanoseconds(one).abs_diff(nanoseconds(other));
        self.window > 0 && apart <= u128::from(self.window)
    }
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(sizes: (u64, u64), seconds: (i64, i64)) -> Both {
        let at = |seconds| Timestamp {
            seconds,
            nanoseconds: 0,
        };
        Both {
            sizes,
            modified: (at(seconds.0), at(seconds.1)),
            same_time: seconds.0 == seconds.1,
        }
    }

    #[test]
    fn size_and_time_decide_by_default() {
        let usual = Criteria::default();
        assert_eq!(usual.judge(&both((5, 5), (7, 7))), Verdict::Same);
        assert_eq!(usual.judge(&both((5, 6), (7, 7))), Verdict::Copy);
        assert_eq!(usual.judge(&both((5, 5), (7, 8))), Verdict::Copy);
    }

    #[test]
    fn each_criterion_has_the_effect_of_rsyncs_option() {
        let of = |set: fn(&mut Criteria)| {
            let mut criteria = Criteria::default();
            set(&mut criteria);
            criteria
        };
        let checksum = of(|criteria| criteria.checksum = true);
        assert_eq!(checksum.judge(&both((5, 5), (7, 8))), Verdict::Contents);
        assert_eq!(checksum.judge(&both((5, 5), (7, 7))), Verdict::Contents);
        assert_eq!(checksum.judge(&both((5, 6), (7, 7))), Verdict::Copy);
        let update = of(|criteria| criteria.update = true);
        let newer = Verdict::Left(Held::Newer);
        assert_eq!(update.judge(&both((5, 6), (7, 8))), newer);
        assert_eq!(update.judge(&both((5, 6), (8, 7))), Verdict::Copy);
        // A different size at the same time is a change.
        assert_eq!(update.judge(&both((5, 6), (7, 7))), Verdict::Copy);
        assert_eq!(update.judge(&both((5, 5), (7, 7))), Verdict::Same);
        let ignored = of(|criteria| criteria.ignore_existing = true);
        let exists = Verdict::Left(Held::Exists);
        assert_eq!(ignored.judge(&both((5, 6), (8, 7))), exists);
        let by_size = of(|criteria| criteria.size_only = true);
        assert_eq!(by_size.judge(&both((5, 5), (7, 8))), Verdict::Same);
        assert_eq!(by_size.judge(&both((5, 6), (7, 7))), Verdict::Copy);
        let timeless = of(|criteria| criteria.ignore_times = true);
        assert_eq!(timeless.judge(&both((5, 5), (7, 7))), Verdict::Copy);
        let near = of(|criteria| criteria.window = 2_000_000_000);
        assert_eq!(near.judge(&both((5, 5), (7, 9))), Verdict::Same);
        assert_eq!(near.judge(&both((5, 5), (9, 7))), Verdict::Same);
        assert_eq!(near.judge(&both((5, 5), (7, 10))), Verdict::Copy);
        let both_said = of(|criteria| (criteria.window, criteria.update) = (2_000_000_000, true));
        for (there, verdict) in [
            (4, Verdict::Copy),
            (5, Verdict::Copy),
            (6, newer),
            (7, newer),
            (10, newer),
        ] {
            assert_eq!(
                both_said.judge(&both((5, 6), (7, there))),
                verdict,
                "{there}"
            );
        }
        assert_eq!(both_said.judge(&both((5, 5), (7, 8))), Verdict::Same);
    }

    #[test]
    fn times_at_the_ends_of_their_range_are_compared() {
        let criteria = Criteria {
            window: WIDEST_WINDOW,
            ..Criteria::default()
        };
        let far = both((1, 1), (i64::MIN, i64::MAX));
        assert_eq!(criteria.judge(&far), Verdict::Copy);
    }

    #[test]
    fn criteria_are_decoded_as_encoded() {
        let criteria = Criteria {
            update: true,
            window: 3,
            ..Criteria::default()
        };
        let bytes = minicbor::to_vec(criteria).unwrap();
        assert_eq!(minicbor::decode::<Criteria>(&bytes).unwrap(), criteria);
        assert!(Criteria::default().is_usual());
        let wide = Criteria {
            window: WIDEST_WINDOW + 1,
            ..criteria
        };
        assert!(criteria.is_valid() && !wide.is_valid());
    }
}
