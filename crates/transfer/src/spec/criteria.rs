//! When something is copied over what has its name, as plain data.

use longhaul_proto::criteria;
use serde::{Deserialize, Serialize};

/// When something is copied. Without any of these: where size or time differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Criteria {
    /// Files of the same size are compared by their contents.
    pub checksum: bool,
    /// Files that are newer at the destination stay.
    pub update: bool,
    /// What is not at the destination is not made.
    pub existing: bool,
    /// What is at the destination stays.
    pub ignore_existing: bool,
    /// Files of the same size are the same.
    pub size_only: bool,
    /// No file is taken for unchanged.
    pub ignore_times: bool,
    /// Times that differ by no more nanoseconds are the same; a day at most.
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
