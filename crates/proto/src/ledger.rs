//! Tracks the blocks of a file that are received or durable, and the parts that are missing.

use std::collections::BTreeMap;

use crate::digest::{Checksum, DigestTree, Integrity};

/// A set of `u64` as disjoint, non-adjacent ranges. Its memory is proportional to the number of
/// ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Ranges, from the first element to one past the last.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds `[start, end)`. An empty range has no effect.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut low, mut high) = (start, end);
        if let Some((&before, &before_end)) = self.ranges.range(..=start).next_back()
            && before_end >= start
        {
            low = before;
            high = high.max(before_end);
        }
        while let Some((&next, &next_end)) = self.ranges.range(low..=high).next() {
            self.ranges.remove(&next);
            high = high.max(next_end);
        }
        self.ranges.insert(low, high);
    }

    /// Removes `[start, end)`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if let Some((&before, &before_end)) = self.ranges.range(..start).next_back()
            && before_end > start
        {
            self.ranges.insert(before, start);
            if before_end > end {
                self.ranges.insert(end, before_end);
            }
        }
        while let Some((&next, &next_end)) = self.ranges.range(start..end).next() {
            self.ranges.remove(&next);
            if next_end > end {
                self.ranges.insert(end, next_end);
            }
        }
    }

    /// True if the set contains all of `[start, end)`. True for an empty range.
    pub fn contains(&self, start: u64, end: u64) -> bool {
        start >= end
            || self
                .ranges
                .range(..=start)
                .next_back()
                .is_some_and(|(_, &last)| last >= end)
    }

    /// True if the set contains any element of `[start, end)`.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end
            && self
                .ranges
                .range(..end)
                .next_back()
                .is_some_and(|(_, &last)| last > start)
    }

    /// Returns the first range at or after `from` and before `limit` that is not in the set.
    pub fn first_gap(&self, from: u64, limit: u64) -> Option<(u64, u64)> {
        let mut start = from;
        if let Some((_, &end)) = self.ranges.range(..=start).next_back() {
            start = start.max(end);
        }
        if start >= limit {
            return None;
        }
        let end = self
            .ranges
            .range(start..limit)
            .next()
            .map_or(limit, |(&next, _)| next);
        Some((start, end))
    }

    /// Returns the range of the set that contains all of `[start, end)`.
    pub fn range_around(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let (&first, &last) = self.ranges.range(..=start).next_back()?;
        (last >= end).then_some((first, last))
    }

    /// Returns the parts of `[start, end)` that are in the set, in order.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.ranges.range(..start).next_back();
        before
            .into_iter()
            .chain(self.ranges.range(start..end.max(start)))
            .map(move |(&first, &last)| (first.max(start), last.min(end)))
            .filter(|(first, last)| first < last)
    }

    /// Returns the number of elements of `[start, end)` that are not in the set.
    pub fn missing(&self, start: u64, end: u64) -> u64 {
        let there: u64 = self.within(start, end).map(|(a, b)| b - a).sum();
        end.saturating_sub(start) - there
    }

    /// Returns the ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(&start, &end)| (start, end))
    }

    /// Returns the number of ranges.
    pub fn fragments(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the number of elements.
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }
}

/// A block of a file that is at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DurableBlock {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes, at least one.
    pub length: u64,
    /// Checksum of the block.
    pub checksum: Checksum,
}

impl DurableBlock {
    /// Returns the offset one past the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// The set of blocks of one large file that are known to be at the destination. The end with a
/// complete ledger may commit the file, on either host.
#[derive(Clone, Debug)]
pub struct FileLedger {
    size: u64,
    blocks: RangeSet,
    tree: Option<DigestTree>,
    sealed: bool,
}

impl FileLedger {
    /// Makes a ledger without blocks for a file of `size` bytes.
    pub fn new(size: u64, integrity: Integrity) -> FileLedger {
        let tree = (integrity == Integrity::Digest).then(|| DigestTree::new(size));
        FileLedger {
            size,
            blocks: RangeSet::default(),
            tree,
            sealed: false,
        }
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds a block. Returns false without a change if the block does not fit the file or overlaps
    /// a known block.
    pub fn insert(&mut self, block: DurableBlock) -> bool {
        let Some(end) = block.offset.checked_add(block.length) else {
            return false;
        };
        if end > self.size || self.blocks.overlaps(block.offset, end) {
            return false;
        }
        match (&mut self.tree, block.checksum) {
            (Some(tree), Checksum::Blake3(value)) => {
                if !tree.insert(block.offset, block.length, value) {
                    return false;
                }
            }
            (None, Checksum::Xxh3(_)) => {}
            _ => return false,
        }
        self.blocks.insert(block.offset, end);
        true
    }

    /// Returns the ranges of the known blocks.
    pub fn blocks(&self) -> &RangeSet {
        &self.blocks
    }

    /// Returns the known data as the minimum number of blocks, each with its checksum; `None`
    /// without [`Integrity::Digest`].
    pub fn merged_blocks(&self) -> Option<Vec<DurableBlock>> {
        let subtrees = self.tree.as_ref()?.subtrees().into_iter();
        let blocks = subtrees.map(|(offset, length, value)| DurableBlock {
            offset,
            length,
            checksum: Checksum::Blake3(value),
        });
        Some(blocks.collect())
    }

    /// Notes that the source read the file to its end without a change.
    pub fn seal(&mut self) {
        self.sealed = true;
    }

    /// True if the source read the file to its end without a change.
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// True if every byte is known.
    pub fn is_whole(&self) -> bool {
        self.blocks.contains(0, self.size)
    }

    /// True if the file may be committed, because it is whole and sealed.
    pub fn is_complete(&self) -> bool {
        self.sealed && self.is_whole()
    }

    /// Returns the digest of a whole file; `None` without [`Integrity::Digest`].
    pub fn digest(&self) -> Option<Checksum> {
        self.tree.as_ref()?.root().map(Checksum::Blake3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_agree_with_a_plain_set(
            operations in prop::collection::vec((any::<bool>(), 0_u64..64, 0_u64..64), 0..40)
        ) {
            let mut set = RangeSet::default();
            let mut reference = [false; 64];
            for (add, a, b) in operations {
                let (start, end) = (a.min(b), a.max(b));
                if add { set.insert(start, end) } else { set.remove(start, end) }
                reference[start as usize..end as usize].fill(add);
                prop_assert_eq!(set.total(), reference.iter().filter(|x| **x).count() as u64);
                let fragments = (0..64).filter(|&i| reference[i] && (i == 0 || !reference[i - 1])).count();
                prop_assert_eq!(set.fragments(), fragments);
                let window = &reference[start as usize..end as usize];
                prop_assert_eq!(set.contains(start, end), window.iter().all(|x| *x));
                prop_assert_eq!(set.overlaps(start, end), window.iter().any(|x| *x));
                let parts: u64 = set.within(start, end).map(|(first, last)| last - first).sum();
                prop_assert_eq!(parts, window.iter().filter(|x| **x).count() as u64);
                prop_assert_eq!(set.missing(start, end), window.iter().filter(|x| !**x).count() as u64);
                prop_assert_eq!(
                    set.range_around(start, end).is_some(),
                    set.contains(start, end) && (start < end || set.overlaps(start, start + 1)
                        || start > 0 && set.overlaps(start - 1, start))
                );
                let gap = (start..64).find(|&i| !reference[i as usize]).map(|first| {
                    (first, (first..64).find(|&i| reference[i as usize]).unwrap_or(64))
                });
                prop_assert_eq!(set.first_gap(start, 64), gap);
            }
        }
    }

    #[test]
    fn overlapping_and_foreign_blocks_are_refused() {
        let mut ledger = FileLedger::new(3 << 20, Integrity::Checksum);
        let block = |offset, length| DurableBlock {
            offset,
            length,
            checksum: Checksum::Xxh3(1),
        };
        assert!(ledger.insert(block(0, 1 << 20)));
        assert!(!ledger.insert(block(0, 2 << 20)));
        assert!(!ledger.insert(block(2 << 20, 2 << 20)));
        assert!(!ledger.insert(block(u64::MAX, 2)));
        assert!(!ledger.insert(DurableBlock {
            checksum: Checksum::Blake3([0; 32]),
            ..block(1 << 20, 1 << 20)
        }));
        assert!(ledger.insert(block(1 << 20, 1 << 20)));
        assert!(ledger.insert(block(2 << 20, 1 << 20)));
        assert!(ledger.is_whole() && !ledger.is_complete());
        ledger.seal();
        assert!(ledger.is_complete());
    }
}
