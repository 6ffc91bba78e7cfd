//! Bounds the memory of a receiver. A bound on the number of items is not enough, because a path
//! may have 16 KiB.

use std::iter::Sum;

use super::jobs::ReceiverError;
use super::settings::{MAXIMUM_REMEMBERED_BYTES, MAXIMUM_UNDER_WAY};

/// Memory of a number in a tree or list in bytes, slightly above the measured one.
pub(super) const NUMBER_BYTES: usize = 64;

/// Memory of a message in bytes without lists and texts, slightly above the measured one.
pub(super) const MESSAGE_BYTES: usize = 128;

/// Memory of a part of a receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Approximate bytes.
    pub bytes: usize,
    /// Largest number of items of one kind, in entries under way.
    pub items: usize,
}

impl Load {
    /// Returns the load of `count` items of `bytes` bytes each.
    pub(super) fn of(count: usize, bytes: usize) -> Load {
        Load {
            bytes: count.saturating_mul(bytes),
            items: count,
        }
    }

    /// Adds bytes.
    pub(super) fn with_bytes(self, bytes: usize) -> Load {
        let bytes = self.bytes.saturating_add(bytes);
        Load { bytes, ..self }
    }

    /// Divides the number of items by the number that one entry under way may have.
    pub(super) fn per_entry(self, items: usize) -> Load {
        let items = self.items / items;
        Load { items, ..self }
    }

    /// Checks that the load is within all bounds.
    pub(super) fn check(self) -> Result<(), ReceiverError> {
        if self.items > MAXIMUM_UNDER_WAY {
            Err(ReceiverError::TooMany)
        } else if self.bytes > MAXIMUM_REMEMBERED_BYTES {
            Err(ReceiverError::TooMuch)
        } else {
            Ok(())
        }
    }
}

impl Sum for Load {
    fn sum<I: Iterator<Item = Load>>(loads: I) -> Load {
        loads.fold(Load::default(), |sum, load| Load {
            bytes: sum.bytes.saturating_add(load.bytes),
            items: sum.items.max(load.items),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_add_up_and_the_largest_number_counts() {
        let loads = [
            Load::of(MAXIMUM_UNDER_WAY, 100),
            Load::of(4 * MAXIMUM_UNDER_WAY, 1).per_entry(4),
        ];
        let sum: Load = loads.into_iter().sum();
        assert_eq!(
            (sum.bytes, sum.items),
            (104 * MAXIMUM_UNDER_WAY, MAXIMUM_UNDER_WAY)
        );
        assert_eq!(sum.check(), Ok(()));
        assert_eq!(
            sum.with_bytes(MAXIMUM_REMEMBERED_BYTES).check(),
            Err(ReceiverError::TooMuch)
        );
        let many = Load::of(MAXIMUM_UNDER_WAY + 1, 1);
        assert_eq!(many.check(), Err(ReceiverError::TooMany));
    }
}
