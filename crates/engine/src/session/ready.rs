//! Blocks that wait for streams at a sending end.

use std::collections::BTreeMap;

use longhaul_proto::sender::BlockId;

use super::stages::WireBlock;

/// Divisor for the maximum share of buffers that hold blocks before a stream takes them. With all
/// buffers, a copy in clear would need 10 % more CPU time, because data leave the caches before
/// they are sent. With much fewer, pauses of the source would delay the streams.
const READY_PART: usize = 4;

/// Blocks that wait for streams.
pub(crate) struct ReadyBlocks {
    blocks: BTreeMap<BlockId, Box<dyn WireBlock>>,
    /// Maximum number of bytes; `u64::MAX` if only the buffers limit them.
    most_bytes: u64,
}

impl Default for ReadyBlocks {
    fn default() -> ReadyBlocks {
        ReadyBlocks {
            blocks: BTreeMap::new(),
            most_bytes: u64::MAX,
        }
    }
}

impl ReadyBlocks {
    /// Adds a block.
    pub fn insert(&mut self, id: BlockId, block: Box<dyn WireBlock>) {
        self.blocks.insert(id, block);
    }

    /// Removes a block.
    pub fn remove(&mut self, id: BlockId) -> Option<Box<dyn WireBlock>> {
        self.blocks.remove(&id)
    }

    /// Removes all blocks.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    /// True if no block waits.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Limits the waiting blocks to this many bytes or one block for each stream; true if the limit
    /// was lower before.
    pub fn bound(&mut self, bytes: u64) -> bool {
        let before = std::mem::replace(&mut self.most_bytes, bytes);
        bytes > before
    }

    /// True if more blocks wait than `streams` streams take before the data leave the cache.
    /// `buffers` is the number of buffers of the transfer.
    pub fn are_far_ahead(&self, streams: usize, buffers: usize) -> bool {
        let waiting = self.blocks.len();
        let bytes = || -> u64 {
            let blocks = self.blocks.values();
            blocks.map(|block| block.payload_bytes() as u64).sum()
        };
        waiting > (buffers / READY_PART).max(streams)
            || (waiting > streams && self.most_bytes < u64::MAX && bytes() > self.most_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use longhaul_net::StreamWriter;

    use super::*;

    /// A block of this many bytes.
    struct Bytes(usize);

    impl WireBlock for Bytes {
        fn frame_bytes(&self) -> usize {
            0
        }

        fn hole_bytes(&self) -> u64 {
            0
        }

        fn payload_bytes(&self) -> usize {
            self.0
        }

        fn late_bytes(&self) -> usize {
            0
        }

        fn send(
            &mut self,
            _: &mut dyn StreamWriter,
            _: (usize, usize),
            _: (usize, usize),
            _: &mut Vec<u8>,
        ) -> io::Result<()> {
            Ok(())
        }
    }

    fn ready(count: u64) -> ReadyBlocks {
        let mut ready = ReadyBlocks::default();
        for id in 0..count {
            ready.insert(BlockId(id), Box::new(Bytes(100)));
        }
        ready
    }

    #[test]
    fn a_share_of_the_buffers_may_wait_but_at_least_one_block_for_each_stream() {
        assert!(!ready(10).are_far_ahead(2, 40));
        assert!(ready(11).are_far_ahead(2, 40));
        assert!(!ready(11).are_far_ahead(11, 40));
    }

    #[test]
    fn a_limit_in_bytes_leaves_one_block_for_each_stream() {
        let mut ready = ready(5);
        assert!(!ready.bound(400), "there was no limit");
        assert!(ready.are_far_ahead(4, 400));
        assert!(!ready.are_far_ahead(5, 400));
        assert!(ready.bound(500), "the limit was lower");
        assert!(!ready.are_far_ahead(4, 400));
    }
}
