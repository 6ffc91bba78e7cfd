//! Files and packed entries that are being received.

use crate::account::Share;
use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId};
use crate::message::{Failure, Outcome};
use crate::receiver::placement::Placement;

/// End of a file that the sender read completely.
#[derive(Clone, Copy, Debug)]
pub(in crate::receiver) struct Seal {
    pub generation: u32,
    /// Size of the file in bytes.
    pub size: u64,
    /// True if the file grew meanwhile.
    pub grew: bool,
}

/// A large file that is being received.
#[derive(Debug)]
pub(super) struct Incoming {
    pub entry: Entry,
    pub generation: u32,
    pub placement: Placement,
    /// The file's part of the account.
    pub share: Share,
    /// True if this is the front of a file that grew.
    pub grew: bool,
    /// True if data of an earlier session is being read.
    pub reading_back: bool,
    /// True if the commit was requested.
    pub committing: bool,
    /// Digest of the committed content, if a command changed the received data.
    pub became: Option<Checksum>,
}

/// A packed entry that is being verified and written.
#[derive(Debug)]
pub(super) struct Packing {
    pub parent: Option<EntryId>,
    pub generation: u32,
    /// The packed entry's part of the account.
    pub share: Share,
    /// Failure, if the sender gave up the entry meanwhile.
    pub abandoned: Option<Failure>,
}

/// An entry that ended.
#[derive(Debug)]
pub(in crate::receiver) struct Ended {
    pub id: EntryId,
    pub parent: Option<EntryId>,
    /// The entry; `None` if only its number is known.
    pub entry: Option<Entry>,
    pub outcome: Outcome,
}
