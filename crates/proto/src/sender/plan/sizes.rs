//! Sizes of blocks.

/// Minimum size of a block in bytes that is made smaller than a full one on purpose.
pub(super) const SHORT_BLOCK_BYTES: u64 = 64 << 10;

/// Knowledge of the streams that determines the sizes of blocks.
#[derive(Clone, Copy, Debug)]
pub(in crate::sender) struct Speed {
    /// Number of streams that take blocks.
    pub streams: usize,
    /// True if as many blocks have arrived as there are streams.
    pub is_proven: bool,
}

/// Size of a full block.
#[derive(Clone, Copy, Debug)]
pub(in crate::sender) struct BlockBytes {
    /// Size in the settings.
    block: u64,
    /// Current maximum.
    most: u64,
}

impl BlockBytes {
    pub fn new(block: u64) -> BlockBytes {
        BlockBytes { block, most: block }
    }

    /// Sets the maximum size of new blocks to `bytes`, rounded down to a power of two. It is at
    /// least 64 KiB and at most the block size of the settings.
    pub fn bound(&mut self, bytes: u64) {
        self.most = 1 << bytes.max(SHORT_BLOCK_BYTES).ilog2();
    }

    /// Returns the size of a full block in bytes, a power of two.
    pub(super) fn full(self) -> u64 {
        self.most.min(self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_a_power_of_two_between_the_least_and_the_set_size() {
        let mut bytes = BlockBytes::new(1 << 20);
        assert_eq!(bytes.full(), 1 << 20);
        for (bound, full) in [(0, 64 << 10), (200_000, 128 << 10), (u64::MAX, 1 << 20)] {
            bytes.bound(bound);
            assert_eq!(bytes.full(), full);
        }
    }
}
