//! When a file or link is copied over what has its name: as rsync's options of these names say.

use minicbor::{Decode, Encode};

use crate::filter::Reason;
use crate::manifest::Timestamp;

/// The widest window in which two times count as the same: a day, in nanoseconds. Tools and file
/// systems differ by a few seconds, or by an hour where they keep local time.
pub const WIDEST_WINDOW: u64 = 24 * 3600 * 1_000_000_000;

/// When something is copied. Without any of these: where size or time differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Criteria {
    /// Files of the same size are compared by their contents, whatever their times are.
    #[n(0)]
    pub checksum: bool,
    /// Files that are newer at the destination stay.
    #[n(1)]
    pub update: bool,
    /// What is not at the destination is not made.
    #[n(2)]
    pub existing: bool,
    /// What is at the destination stays.
    #[n(3)]
    pub ignore_existing: bool,
    /// Files of the same size are the same.
    #[n(4)]
    pub size_only: bool,
    /// No file is taken for unchanged.
    #[n(5)]
    pub ignore_times: bool,
    /// Times that differ by no more nanoseconds are the same, 0 to [`WIDEST_WINDOW`].
    #[n(6)]
    pub window: u64,
}

/// Why something is left as it is at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Held {
    /// The file there is newer.
    #[n(0)]
    Newer,
    /// It is not there, and only what exists is updated.
    #[n(1)]
    Missing,
    /// It is there, and what exists is ignored.
    #[n(2)]
    Exists,
}

impl Held {
    /// As the summary counts it.
    pub fn reason(self) -> Reason {
        match self {
            Held::Newer => Reason::Newer,
            Held::Missing => Reason::Missing,
            Held::Exists => Reason::Exists,
        }
    }
}

/// A file at both ends.
#[derive(Clone, Copy, Debug)]
pub struct Both {
    /// Bytes at the source and at the destination.
    pub sizes: (u64, u64),
    /// Times of modification.
    pub modified: (Timestamp, Timestamp),
    /// The destination's time is the source's, as exactly as its file system keeps times.
    pub same_time: bool,
}

/// What becomes of a file that is at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it is.
    Left(Held),
    /// It is there: its mode, and where that differs its time, follow.
    Same,
    /// Its contents say whether it is there.
    Contents,
    /// It is copied.
    Copy,
}

impl Criteria {
    /// Whether size and time alone decide.
    pub fn is_usual(&self) -> bool {
        *self == Criteria::default()
    }

    /// Whether a peer may ask for them.
    pub fn is_valid(&self) -> bool {
        self.window <= WIDEST_WINDOW
    }

    /// What becomes of a file.
    pub fn judge(&self, file: &Both) -> Verdict {
        if self.ignore_existing {
            return Verdict::Left(Held::Exists);
        }
        let (source, there) = file.modified;
        let same_time = file.same_time || self.is_near(source, there);
        if self.update && self.is_newer(there, source, same_time) {
            let same = file.sizes.0 == file.sizes.1 && same_time;
            // What is the same but for the window gets its mode, as without.
            return if same && !self.checksum && !self.ignore_times {
                Verdict::Same
            } else {
                Verdict::Left(Held::Newer)
            };
        }
        if file.sizes.0 != file.sizes.1 {
            return Verdict::Copy;
        }
        // In the order in which rsync asks.
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

    /// Whether a file counts as newer than its source. With a window a source is the newer one only
    /// if its time is later by as much, as for rsync.
    fn is_newer(&self, there: Timestamp, source: Timestamp, same_time: bool) -> bool {
        match self.window {
            0 => there > source && !same_time,
            window => nanoseconds(source) - nanoseconds(there) < i128::from(window),
        }
    }

    /// Whether two times are within the window.
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
    fn size_and_time_decide_where_nothing_else_is_said() {
        let usual = Criteria::default();
        assert_eq!(usual.judge(&both((5, 5), (7, 7))), Verdict::Same);
        assert_eq!(usual.judge(&both((5, 6), (7, 7))), Verdict::Copy);
        assert_eq!(usual.judge(&both((5, 5), (7, 8))), Verdict::Copy);
    }

    #[test]
    fn each_criterion_does_what_rsyncs_does() {
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
        // At the same time another size is a change.
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
    fn criteria_are_read_as_they_were_said() {
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
