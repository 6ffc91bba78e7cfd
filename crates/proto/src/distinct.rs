//! Proof that a directory of the destination is not the directory of a source under another name.
//!
//! Two hosts may share a file system, and one host may have several paths to a directory, through
//! mounts that device and inode numbers do not reveal. So the receiver makes a file with a random
//! name in its directory, a probe. The sender looks up that name in its own directory. Nobody
//! looked it up before, so no cache knows that it is missing. If the source's directory shows the
//! probe, both directories are one.
//!
//! 1. The sender asks for directories: [`crate::message::Message::AskDistinct`].
//! 2. The receiver makes a probe in each: [`crate::message::Message::Probes`].
//! 3. The sender tells which of them it sees: [`crate::message::Message::Sighted`].
//! 4. The receiver removes the probes and tells the result for each directory:
//!    [`crate::message::Message::Distinct`]. A probe that was removed meanwhile proves nothing.
//!
//! One question at a time is under way. The sender cannot choose a probe's name, and the receiver
//! only its numbers, so that neither can have the other look up a name of its choice.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// Most directories in one question.
pub const MAXIMUM_PROBES: usize = 512;

/// A file that the receiver made in a directory of the destination. The two numbers are those of a
/// temporary name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Probe {
    /// Number of the receiver's session.
    #[n(0)]
    pub session: u64,
    /// A random number.
    #[n(1)]
    pub number: u64,
    /// The name that a single source gets in this directory, if that is not its own name.
    #[n(2)]
    pub landing: Option<ByteVec>,
}
