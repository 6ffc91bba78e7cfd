//! Settings of a sender and its windows.

use crate::block::MAXIMUM_PACK_ENTRIES;

/// Maximum number of large files that are begun and not done, independent of the receiver's limit.
/// With two blocks of 512 KiB each, they fill a path of 366 ms at 80 Gbit/s.
pub const MOST_LARGE_FILES: usize = 4096;

/// Default of [`SenderSettings::filtered_files`].
pub const MOST_FILTERED: usize = 64;

/// Settings of a sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderSettings {
    /// Block size in bytes, a power of two.
    pub block_bytes: u64,
    /// Maximum number of entries in a pack.
    pub pack_entries: usize,
    /// Maximum number of entries that are known and not done.
    pub window_entries: usize,
    /// Maximum bytes of the paths of these entries, at which the walk waits. The receiver keeps
    /// them too.
    pub window_bytes: usize,
    /// Maximum number of packed entries that are sent and not done. A kill can lose them.
    pub unacknowledged_entries: usize,
    /// Maximum number of blocks that are read and not acknowledged.
    pub unacknowledged_blocks: usize,
    /// Maximum number of large files that are begun and not done. The receiver has each of them
    /// open.
    pub large_files: usize,
    /// True if every entry is first compared by the receiver, because the destination is not empty.
    pub asks: bool,
    /// True if data is sent. False in a dry run, which asks for every entry and sends no data.
    pub moves: bool,
    /// True if sources are removed once they are durable at the destination.
    pub moves_away: bool,
    /// True if the receiver may ask for names for deletion.
    pub deletes: bool,
    /// True if extra names are only reported as differences, even after failures, and not deleted.
    pub names_only: bool,
    /// True if a dry run compares the contents of existing files.
    pub compares: bool,
    /// True if the front of a file that keeps growing is sent.
    pub fronts: bool,
    /// True if files go through a command before they are read.
    pub filters: bool,
    /// Maximum number of files in the command or with output that waits to be sent; at least 1.
    /// Each is open and takes space.
    pub filtered_files: usize,
    /// Range of the only file that is sent, as its first byte and the byte after its last; `None`:
    /// all of it.
    pub part: Option<(u64, u64)>,
    /// Number of this session among those of the transfer.
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
            part: None,
            epoch: 1,
        }
    }
}
