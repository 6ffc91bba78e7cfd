//! How a sender works, and its windows.

use super::filtering::MOST_FILTERED;
use crate::block::MAXIMUM_PACK_ENTRIES;

/// Large files begun and not done at most, whatever the receiver can have open:
/// of two blocks of 512 KiB each, what a path of 366 ms takes at 80 Gbit/s.
pub const MOST_LARGE_FILES: usize = 4096;

/// How a sender works.
#[derive(Clone, Copy, Debug)]
pub struct SenderSettings {
    /// Bytes of a block, a power of two.
    pub block_bytes: u64,
    /// Most entries in a pack.
    pub pack_entries: usize,
    /// Most entries known and not done.
    pub window_entries: usize,
    /// Most bytes of their paths: from there on the walk waits. The receiver keeps them too.
    pub window_bytes: usize,
    /// Most packed entries sent and not done: what a kill may cost.
    pub unacknowledged_entries: usize,
    /// Most blocks read and not acknowledged.
    pub unacknowledged_blocks: usize,
    /// Most large files begun and not done: the receiver has each of them open.
    pub large_files: usize,
    /// Every entry is asked for first: the destination is not empty.
    pub asks: bool,
    /// Data are moved; else this is a dry run, in which every entry is asked
    /// for and nothing is sent.
    pub moves: bool,
    /// Sources are removed once they are durable at the destination.
    pub moves_away: bool,
    /// The receiver may ask for names, for deletion.
    pub deletes: bool,
    /// Nothing is deleted: names that would be are differences, whatever failed.
    pub names_only: bool,
    /// A dry run compares the contents of files that are there.
    pub compares: bool,
    /// Of a file that keeps growing the front is sent: the receiver understands that.
    pub fronts: bool,
    /// Files go through a command before they are read.
    pub filters: bool,
    /// Files that are in the command, or whose output waits to be sent, at most; 1 or more. Each is
    /// open, and takes room.
    pub filtered_files: usize,
    /// The session's epoch.
    pub epoch: u64,
}

impl Default for SenderSettings {
    fn default() -> SenderSettings {
        SenderSettings {
            block_bytes: 1 << 20,
            pack_entries: MAXIMUM_PACK_ENTRIES,
            window_entries: 16_384,
            window_bytes: 4 << 20,
            unacknowledged_entries: 4096,
            unacknowledged_blocks: 65_536,
            large_files: MOST_LARGE_FILES,
            asks: false,
            moves: true,
            moves_away: false,
            deletes: false,
            names_only: false,
            compares: false,
            fronts: false,
            filters: false,
            filtered_files: MOST_FILTERED,
            epoch: 1,
        }
    }
}
