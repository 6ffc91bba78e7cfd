//! Assembly of one file by several sessions: each session but the last copies one part.

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Minimum length of a part in bytes. Blocks of any size fit, and digests of parts merge.
pub const MINIMUM_PART_BYTES: u64 = 1 << 20;

/// Role of a session in the assembly of its only source, a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Assembly {
    /// The session makes a part of the file durable at the destination. The file does not get its
    /// name.
    #[n(0)]
    Part {
        /// Offset of the first byte, a multiple of the length.
        #[n(0)]
        offset: u64,
        /// Length in bytes, a power of two of at least [`MINIMUM_PART_BYTES`]. The last part ends
        /// with the file.
        #[n(1)]
        length: u64,
    },
    /// The session copies the bytes that no part has, and gives the file its name. It does not read
    /// the parts back at the destination.
    #[n(1)]
    Whole,
}

impl Assembly {
    /// Returns the range of the part, as its first byte and the byte after its last; `None` for the
    /// whole file.
    pub fn range(self) -> Option<(u64, u64)> {
        match self {
            Assembly::Part { offset, length } => Some((offset, offset.saturating_add(length))),
            Assembly::Whole => None,
        }
    }

    /// True if the session copies a part.
    pub fn is_part(self) -> bool {
        self.range().is_some()
    }

    /// True if the values are within their limits.
    pub fn is_valid(self) -> bool {
        match self {
            Assembly::Part { offset, length } => {
                length.is_power_of_two()
                    && length >= MINIMUM_PART_BYTES
                    && offset.is_multiple_of(length)
                    && offset.checked_add(length).is_some()
            }
            Assembly::Whole => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_powers_of_two() {
        let part = |offset, length| Assembly::Part { offset, length };
        let mib = MINIMUM_PART_BYTES;
        for valid in [part(0, mib), part(3 * mib, mib), part(8 * mib, 8 * mib)] {
            assert!(valid.is_valid(), "{valid:?}");
        }
        let last = u64::MAX - (u64::MAX % mib);
        let invalid = [
            part(0, 0),
            part(0, mib / 2),
            part(0, 3 * mib),
            part(mib, 2 * mib),
            part(last, 1 << 63),
        ];
        for invalid in invalid {
            assert!(!invalid.is_valid(), "{invalid:?}");
        }
        assert_eq!(part(mib, mib).range(), Some((mib, 2 * mib)));
        assert_eq!(Assembly::Whole.range(), None);
    }
}
