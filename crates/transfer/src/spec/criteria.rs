//! Defines the rules that decide if an entry is copied over an existing one, as plain data.

use longhaul_proto::criteria;
use serde::{Deserialize, Serialize};

/// Rules that decide if a file is copied. The default copies files whose size or time differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Criteria {
    /// If true, compares files of equal size by their contents.
    pub checksum: bool,
    /// If true, keeps destination files that are newer than the source.
    pub update: bool,
    /// If true, creates no entries that do not exist at the destination.
    pub existing: bool,
    /// If true, keeps all existing destination entries.
    pub ignore_existing: bool,
    /// If true, treats files of equal size as unchanged.
    pub size_only: bool,
    /// If true, treats no file as unchanged.
    pub ignore_times: bool,
    /// Largest difference of two times that count as equal, in nanoseconds, at most one day.
    pub window: u64,
}

impl From<Criteria> for criteria::Criteria {
    fn from(asked: Criteria) -> criteria::Criteria {
        let Criteria {
            checksum,
            update,
            existing,
            ignore_existing,
            size_only,
            ignore_times,
            window,
        } = asked;
        criteria::Criteria {
            checksum,
            update,
            existing,
            ignore_existing,
            size_only,
            ignore_times,
            window,
        }
    }
}
