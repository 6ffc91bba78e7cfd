//! Places the parts of a file, and decides when the file is complete.
//!
//! Several receivers may each hold some ranges of one file. Each has a placement of the whole file
//! and places its ranges. One placement absorbs the others and then shows that the file is
//! complete.

use crate::block::PieceName;
use crate::digest::{Checksum, Integrity, longest_block};
use crate::ledger::{DurableBlock, FileLedger, RangeSet};
use crate::message::MAXIMUM_RESUMED_RANGES;

/// Parts of a file. A range is *claimed* when its data arrives, and *placed* when they are written.
#[derive(Clone, Debug)]
pub struct Placement {
    claimed: RangeSet,
    ledger: FileLedger,
    /// Range that must be placed, as its first byte and the byte after its last.
    wanted: (u64, u64),
}

impl Placement {
    /// Makes a placement without parts for a file of `size` bytes.
    pub fn new(size: u64, integrity: Integrity) -> Placement {
        Placement {
            claimed: RangeSet::default(),
            ledger: FileLedger::new(size, integrity),
            wanted: (0, size),
        }
    }

    /// Limits the placement to a range. The file is complete when the range is placed.
    #[must_use]
    pub fn within(self, (start, end): (u64, u64)) -> Placement {
        let end = end.min(self.size());
        Placement {
            wanted: (start.min(end), end),
            ..self
        }
    }

    /// True if `[offset, offset + length)` is within the range that must be placed.
    pub fn wants(&self, offset: u64, length: u64) -> bool {
        self.wanted.0 <= offset && offset.saturating_add(length) <= self.wanted.1
    }

    /// Returns the number of bytes that must be placed.
    pub fn wanted_bytes(&self) -> u64 {
        self.wanted.1 - self.wanted.0
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.ledger.size()
    }

    /// Claims `[offset, offset + length)`. Returns false without a change if a part of it is
    /// already claimed.
    pub fn claim(&mut self, offset: u64, length: u64) -> bool {
        let end = offset.saturating_add(length);
        let is_free = !self.claimed.overlaps(offset, end);
        if is_free {
            self.claimed.insert(offset, end);
        }
        is_free
    }

    /// Gives up the claim of a range whose data must arrive again.
    pub fn release(&mut self, offset: u64, length: u64) {
        self.claimed.remove(offset, offset.saturating_add(length));
    }

    /// True if all of a range is claimed.
    pub fn has_claimed(&self, offset: u64, length: u64) -> bool {
        self.claimed.contains(offset, offset.saturating_add(length))
    }

    /// Returns the parts of a piece that are not claimed, as blocks.
    pub fn unclaimed(&self, piece: PieceName) -> Vec<PieceName> {
        let (mut from, end) = (piece.offset, piece.offset.saturating_add(piece.length));
        let mut missing = Vec::new();
        while let Some((offset, stop)) = self.claimed.first_gap(from, end) {
            let most = piece.length.next_power_of_two();
            let length = longest_block(offset, stop, self.size(), most);
            missing.push(PieceName {
                offset,
                length,
                ..piece
            });
            from = offset + length;
        }
        missing
    }

    /// Places a block that was written. Returns false without a change if the block does not fit
    /// the file or overlaps a placed block.
    pub fn place(&mut self, block: DurableBlock) -> bool {
        self.ledger.insert(block)
    }

    /// Claims and places blocks that are already at the destination, from an earlier session or at
    /// another receiver. Blocks that do not fit are left out. Returns the blocks that were placed,
    /// in at most [`MAXIMUM_RESUMED_RANGES`] ranges.
    pub fn absorb(&mut self, blocks: &[DurableBlock]) -> Vec<DurableBlock> {
        let (mut ranges, mut placed) = (RangeSet::default(), Vec::new());
        for block in blocks {
            if ranges.fragments() >= MAXIMUM_RESUMED_RANGES {
                break;
            }
            let is_free = !self.claimed.overlaps(block.offset, block.end());
            if is_free && self.ledger.insert(*block) {
                self.claimed.insert(block.offset, block.end());
                ranges.insert(block.offset, block.end());
                placed.push(*block);
            }
        }
        placed
    }

    /// Returns the placed ranges.
    pub fn placed(&self) -> &RangeSet {
        self.ledger.blocks()
    }

    /// Returns the placed data as the minimum number of blocks; `None` without
    /// [`Integrity::Digest`].
    pub fn merged_blocks(&self) -> Option<Vec<DurableBlock>> {
        self.ledger.merged_blocks()
    }

    /// Notes that the source was read to its end without a change.
    pub fn seal(&mut self) {
        self.ledger.seal();
    }

    /// True if the file may be committed: every wanted byte is placed, and the source is sealed.
    pub fn is_complete(&self) -> bool {
        let (start, end) = self.wanted;
        self.ledger.is_sealed() && self.ledger.blocks().contains(start, end)
    }

    /// Returns the digest of the file once every byte is placed; `None` without
    /// [`Integrity::Digest`].
    pub fn digest(&self) -> Option<Checksum> {
        self.ledger.digest()
    }

    /// Returns the number of claimed ranges.
    pub(super) fn fragments(&self) -> usize {
        self.claimed.fragments()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{BlockHasher, whole_file};
    use crate::manifest::EntryId;

    const SIZE: u64 = (4 << 20) + 5;
    const MIB: u64 = 1 << 20;

    fn data() -> Vec<u8> {
        (0..SIZE).map(|at| (at / 1000) as u8).collect()
    }

    fn block(integrity: Integrity, offset: u64, length: u64) -> DurableBlock {
        let mut hasher = BlockHasher::new(integrity, offset, length, SIZE).unwrap();
        hasher.update(&data()[offset as usize..(offset + length) as usize]);
        DurableBlock {
            offset,
            length,
            checksum: hasher.finish(),
        }
    }

    #[test]
    fn parts_at_several_receivers_complete_one_file_in_any_order() {
        let integrity = Integrity::Digest;
        let mut receivers = [(); 3].map(|()| Placement::new(SIZE, integrity));
        let parts = [
            (2, 3 * MIB, MIB),
            (0, 0, MIB),
            (1, 2 * MIB, MIB),
            (2, 4 * MIB, 5),
        ];
        for (receiver, offset, length) in parts.into_iter().chain([(0, MIB, MIB)]) {
            let placement = &mut receivers[receiver];
            assert!(placement.claim(offset, length));
            assert!(placement.place(block(integrity, offset, length)));
            placement.seal();
            assert!(!placement.is_complete());
        }
        let mut whole = Placement::new(SIZE, integrity);
        for (count, placement) in receivers.iter().enumerate().rev() {
            assert!(!whole.is_complete() && whole.digest().is_none(), "{count}");
            let blocks = placement.merged_blocks().unwrap();
            assert_eq!(whole.absorb(&blocks), blocks);
        }
        assert!(!whole.is_complete(), "the source may have changed");
        whole.seal();
        assert!(whole.is_complete());
        assert_eq!(whole.digest(), Some(whole_file(integrity, &data())));
    }

    #[test]
    fn a_part_that_two_receivers_hold_counts_once() {
        let integrity = Integrity::Checksum;
        let mut placement = Placement::new(SIZE, integrity);
        let first = block(integrity, 0, MIB);
        assert_eq!(placement.absorb(&[first, first]), [first]);
        assert!(placement.absorb(&[block(integrity, 0, 2 * MIB)]).is_empty());
        assert!(
            placement
                .absorb(&[block(Integrity::Digest, MIB, MIB)])
                .is_empty()
        );
        // Data of the second MiB are on their way to this receiver.
        assert!(placement.claim(MIB, MIB));
        assert!(placement.absorb(&[block(integrity, MIB, MIB)]).is_empty());
        assert_eq!(placement.placed().total(), MIB);
    }

    #[test]
    fn a_claim_excludes_others_until_it_is_released() {
        let mut placement = Placement::new(SIZE, Integrity::Checksum);
        assert!(placement.claim(MIB, MIB));
        assert!(!placement.claim(0, 2 * MIB) && !placement.has_claimed(0, 2 * MIB));
        let piece = PieceName {
            file: EntryId(1),
            generation: 2,
            offset: 0,
            length: 4 * MIB,
        };
        let missing = placement.unclaimed(piece);
        let ranges: Vec<(u64, u64)> = missing.iter().map(|p| (p.offset, p.length)).collect();
        assert_eq!(ranges, [(0, MIB), (2 * MIB, 2 * MIB)]);
        placement.release(MIB, MIB);
        assert!(placement.claim(0, 2 * MIB) && placement.has_claimed(0, 2 * MIB));
        assert_eq!(placement.fragments(), 1);
    }
}
