//! What a sender learns about reading, and what it reports.

use super::BlockId;
use crate::digest::Checksum;
use crate::manifest::Entry;
use crate::message::Failure;

/// How reading one entry of a pack went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackedRead {
    /// Read; the entry as it was then, if it had changed since the walk.
    Ready(Option<Entry>),
    /// It grew beyond what the block can hold: to be planned anew.
    Grown(Entry),
    /// It cannot be read.
    Failed(Failure),
}

/// How reading a piece went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceRead {
    /// Read, and the file is still what it was.
    Ready,
    /// Read of a file that grows, with what it was then.
    Front(Checksum),
    /// Read again, and it still is what it was.
    Same,
    /// The file is not what it was; the entry as it is now.
    Changed(Entry),
    /// It cannot be read.
    Failed(Failure),
}

/// What a stream should do with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Send it.
    Send(BlockId),
    /// Nobody needs it any more: free its buffer.
    Discard(BlockId),
}

/// What the other end did wrong; the session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SenderError {
    /// A message that only a sender sends.
    #[error("the receiver sent what only a sender may send ({0})")]
    WrongRole(&'static str),
    /// It says that everything is done, and something is not.
    #[error("the receiver said that everything is done before it was")]
    TooEarly,
    /// It asks for data in a dry run, or plans although it should take them.
    #[error("the receiver and this end do not agree whether this is a dry run")]
    DryRun,
    /// It asks for names, or says what it deleted, where that was not asked for.
    #[error("the receiver speaks of deletion, which was not asked for, or too early")]
    Deletion,
    /// It makes probes or tells results that were not asked for, or too many of them.
    #[error("the receiver speaks of probes in directories that it was not asked for")]
    Probes,
}
