//! Results of reading for the sender, and its decisions for streams.

use super::BlockId;
use crate::digest::Checksum;
use crate::manifest::Entry;
use crate::message::Failure;

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
}
