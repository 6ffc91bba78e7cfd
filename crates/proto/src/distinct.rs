//! Proof that a directory of the destination is not the directory of a source under another name.
//!
//! Two hosts may share a file system, and one host may have several paths to a directory, through
//! mounts that device and inode numbers do not reveal. So the receiver makes a file with a random
//! name in its directory, a probe. The sender looks up that name in its own directory. The name is
//! new, so no cache knows that it is missing. If the source's directory shows the probe, both
//! directories are one.
//!
//! A file system may show the files of other directories, as overlays do. So the sender makes a
//! probe of its own in the source's directory, and the receiver checks if it is in the
//! destination's. If the sender cannot make one, only files that this copy wrote are known to be
//! distinct from the source's.
//!
//! 1. The sender makes its probes and asks: [`crate::message::Message::AskDistinct`].
//! 2. The receiver looks for these, and makes a probe in each of its directories:
//!    [`crate::message::Message::Probes`].
//! 3. The sender reports which of them it sees: [`crate::message::Message::Sighted`].
//! 4. The receiver removes the probes and sends the result for each directory:
//!    [`crate::message::Message::Distinct`]. A probe that was removed meanwhile is no proof.
//!
//! Deletion and backups need more: no directory in which names are deleted, or files are replaced
//! by backups, may be a source's directory, lie in one or hold one. The receiver makes one probe in
//! all of them and asks if it is in any directory of the sources that is copied, or in one above
//! them: [`crate::message::Message::AskSources`], [`crate::message::Message::Sources`]. If only
//! names in the probe's own directory are replaced, the directories above the sources do not
//! matter.
//!
//! Only one question is open at a time. The sender cannot choose a probe's name, and the receiver
//! only its numbers, so that neither can make the other look up a name of its choice.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::manifest::TreePath;

/// Maximum number of directories in one question.
pub const MAXIMUM_PROBES: usize = 512;

/// Asks if a directory of the destination is distinct from the source's.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Question {
    /// Directory beneath the anchor; `None` for the anchor.
    #[n(0)]
    pub directory: Option<TreePath>,
    /// Probe that the sender made in the source's directory; `None` if it could not make one.
    #[n(1)]
    pub probe: Option<Probe>,
}

/// Asks if a probe is in a directory of the sources.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SourcesQuestion {
    /// The probe.
    #[n(0)]
    pub probe: Probe,
    /// True if the parent directories of the sources are searched, too.
    #[n(1)]
    #[cbor(default)]
    pub above: bool,
}

/// A file that one end made in its directory. The two numbers form its temporary name.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Probe {
    /// Number of a session, or a random number.
    #[n(0)]
    pub session: u64,
    /// A random number.
    #[n(1)]
    pub number: u64,
    /// Name that a single source gets in this directory, if it differs from its own name.
    #[n(2)]
    pub landing: Option<ByteVec>,
    /// True if the sender's probe is in this directory.
    #[n(3)]
    pub shown: bool,
}
