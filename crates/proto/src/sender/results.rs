//! Jobs of a sender for readers, their results, its decisions for streams, and its events for
//! observers.

use crate::block::PieceName;
use crate::criteria::Held;
use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId};
use crate::message::{Change, Failure, FailureKind, Outcome, Removal};

/// Number of a block on its way through the sending end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

/// A job for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadJob {
    /// Number of the resulting block.
    pub block: BlockId,
    /// Data to read.
    pub data: ReadData,
}

/// Data to read for one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadData {
    /// A piece of a large file.
    Piece {
        /// The file as the walk found it, or as it was after its last change.
        entry: Entry,
        /// The piece.
        piece: PieceName,
    },
    /// A piece of the front of a file that grows.
    Front {
        /// The front, as the file was after its last change.
        entry: Entry,
        /// The piece.
        piece: PieceName,
        /// Checksum of the piece if it was already sent, so that it is only compared; `None` if it
        /// must be sent.
        earlier: Option<Checksum>,
    },
    /// Small entries.
    Pack(Vec<PackedJob>),
}

/// An entry of a pack to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedJob {
    /// The entry as the walk found it.
    pub entry: Entry,
    /// Number of changes of the source during the copy.
    pub generation: u32,
}

/// Result of reading a file for its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestRead {
    /// The file was read and has not changed since the walk.
    Ready(Checksum),
    /// The file changed. This is its new state.
    Changed(Entry),
    /// The file cannot be read.
    Failed(Failure),
}

/// Next step for a file that goes through the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterStep {
    /// Run the command on the file and report to
    /// [`Walk::handle_filtered`](super::Walk::handle_filtered).
    Filter(Entry),
    /// Discard the output of the file.
    Forget(EntryId),
}

/// Result of reading one entry of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackedRead {
    /// The entry was read. If it changed since the walk, this is its new state.
    Ready(Option<Entry>),
    /// The entry grew beyond the block's size and must be planned again.
    Grown(Entry),
    /// The entry cannot be read.
    Failed(Failure),
}

/// Result of reading a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceRead {
    /// The piece was read, and the file has not changed.
    Ready,
    /// A piece of a growing file was read, with this checksum.
    Front(Checksum),
    /// A piece of a front was read again and has not changed.
    Same,
    /// The file changed. This is its new state.
    Changed(Entry),
    /// The piece cannot be read.
    Failed(Failure),
}

/// Decision of the sender about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// The stream must send the block.
    Send(BlockId),
    /// The block is no longer needed. Its buffer must be freed.
    Discard(BlockId),
}

/// Event of an entry, for observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryEvent {
    /// The entry is done.
    Ended {
        /// The entry.
        entry: Entry,
        /// Result of the entry.
        ending: Ending,
    },
    /// An earlier session left durable bytes of the entry.
    Resumed {
        /// The entry.
        entry: Entry,
        /// Number of bytes that are neither read nor sent again.
        bytes: u64,
    },
    /// More of the entry is durable. It does not have its name yet.
    Durable {
        /// The entry.
        entry: Entry,
        /// Total durable bytes, including those of earlier sessions.
        bytes: u64,
    },
    /// A block arrived corrupt and is sent again.
    Damaged {
        /// The entry; for a pack the first corrupt one.
        entry: Entry,
        /// Offset and length of a large file's block.
        piece: Option<(u64, u64)>,
        /// Number of corrupt entries.
        entries: usize,
    },
    /// Result of deleting a name that the source does not have.
    Removed(Removal),
}

/// Result of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The entry was copied.
    Committed(Option<Checksum>),
    /// The entry already existed.
    Skipped(Option<Checksum>),
    /// The entry already existed, and its owner, mode, time or attributes were corrected.
    Mended(Option<Checksum>),
    /// In a dry run: the entry would be copied.
    Planned(Change),
    /// The destination omits the entry.
    LeftOut,
    /// The existing state at the destination remains.
    Left(Held),
    /// The entry failed.
    Failed(Failure),
}

impl Ending {
    /// True if all bytes that were sent of the entry are at the destination.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Ending::Committed(_) => true,
            Ending::Failed(failure) => failure.kind == FailureKind::Grew,
            _ => false,
        }
    }
}

impl From<Outcome> for Ending {
    fn from(outcome: Outcome) -> Ending {
        match outcome {
            Outcome::Committed { digest } => Ending::Committed(digest),
            Outcome::Failed(failure) => Ending::Failed(failure),
            Outcome::Planned(Some(change)) => Ending::Planned(change),
            Outcome::Planned(None) | Outcome::Unchanged => Ending::Skipped(None),
            Outcome::Mended => Ending::Mended(None),
            Outcome::LeftOut => Ending::LeftOut,
            Outcome::Left(held) => Ending::Left(held),
        }
    }
}

/// Error of the other end that ends the session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SenderError {
    /// The receiver sent a message that only a sender sends.
    #[error("the receiver sent what only a sender may send ({0})")]
    WrongRole(&'static str),
    /// The receiver reported the end while entries were not done.
    #[error("the receiver said that everything is done before it was")]
    TooEarly,
    /// The receiver asks for data in a dry run, or plans in a real copy.
    #[error("the receiver and this end do not agree whether this is a dry run")]
    DryRun,
    /// The receiver asks for names or reports deletions in a copy without deletion, or too early.
    #[error("the receiver speaks of deletion, which was not asked for, or too early")]
    Deletion,
    /// The receiver sends probes or results that were not requested, or too many.
    #[error("the receiver speaks of probes in directories that it was not asked for")]
    Probes,
    /// The receiver answers a question that was not asked.
    #[error("the receiver answers a question that it was not asked")]
    NotAsked,
}
