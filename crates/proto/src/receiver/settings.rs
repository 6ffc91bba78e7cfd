//! Settings of a receiver.

use std::time::Duration;

use crate::digest::Integrity;

/// Maximum number of entries under way of a sender, a multiple of our own sender's. More is an
/// error of the other end and ends the session.
pub(super) const MAXIMUM_UNDER_WAY: usize = 65_536;

/// Maximum number of bytes that a session remembers, independent of the host's memory; see
/// [`Receiver::load`](super::Receiver::load). Our own sender's windows need
/// a small part of it.
pub const MAXIMUM_REMEMBERED_BYTES: usize = 64 << 20;

/// Settings of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverSettings {
    /// Verification of blocks.
    pub integrity: Integrity,
    /// Number of this session among those of the transfer.
    pub epoch: u64,
    /// Maximum number of bytes of large files that are written and not durable. When half of them
    /// are written, they are made durable and reported while the other half arrives.
    pub checkpoint_bytes: u64,
    /// Time after which written bytes are made durable.
    pub checkpoint_span: Duration,
    /// True if acknowledgements carry digests.
    pub digests: bool,
    /// True if the destination may have entries, so that questions are answered. If false, the
    /// sender knows that it is empty, and early questions are ignored.
    pub compares: bool,
    /// True if deletion follows the copy.
    pub deletes: bool,
    /// True if extra names are only reported as differences, even after failures, and not deleted.
    pub names_only: bool,
    /// True if the sender removes its sources. This end finishes after that.
    pub moves_away: bool,
    /// Range of the only file that this session receives, as its first byte and the byte after its
    /// last; `None`: all of it. A file of which a part is durable counts as done.
    pub part: Option<(u64, u64)>,
    /// True if data of earlier sessions are read and compared with their checksums.
    pub reads_back: bool,
}

impl Default for ReceiverSettings {
    fn default() -> ReceiverSettings {
        ReceiverSettings {
            integrity: Integrity::Digest,
            epoch: 1,
            checkpoint_bytes: 256 << 20,
            checkpoint_span: Duration::from_secs(1),
            digests: false,
            compares: true,
            deletes: false,
            names_only: false,
            moves_away: false,
            part: None,
            reads_back: true,
        }
    }
}
