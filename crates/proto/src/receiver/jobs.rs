//! Jobs of a receiver on the disk, their results, and events for observers.

use super::settings::{MAXIMUM_REMEMBERED_BYTES, MAXIMUM_UNDER_WAY};
use crate::criteria::Held;
use crate::deletion::NamesOf;
use crate::digest::Checksum;
use crate::distinct::Question;
use crate::filter::Omitted;
use crate::ledger::DurableBlock;
use crate::manifest::{Entry, EntryId};
use crate::message::{Change, Failure, Outcome, Removal};

/// Decision about a block that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The block must be verified and written.
    Keep,
    /// The block already arrived or is not needed.
    Drop,
}

/// A job on the disk. The thread that does it reports the result with the named method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageJob {
    /// Compares entries with the destination: `Receiver::handle_compared`.
    Compare(Vec<Entry>),
    /// Compares the content of an existing file with the source's digest:
    /// `Receiver::handle_contents_compared`.
    CompareContents(Entry, Checksum),
    /// Makes blocks durable and journals them: `Receiver::handle_checkpointed`.
    Checkpoint(Vec<Checkpoint>),
    /// Makes the rest of a file durable and gives the file its name:
    /// `Receiver::handle_committed`.
    Commit {
        /// The file's final state.
        entry: Entry,
        /// Its generation.
        generation: u32,
        /// Digest of the file; `None` without `Integrity::Digest`.
        digest: Option<Checksum>,
    },
    /// Removes the written data of a file. Writes and checkpoints of it that are still under way
    /// must leave no data behind.
    Discard {
        /// The file.
        file: EntryId,
        /// Its generation.
        generation: u32,
        /// If true, durable data remains for a later session.
        stays: bool,
    },
    /// Reads the data that an earlier session left and compares it with its checksums:
    /// `Receiver::handle_read_back`.
    ReadBack {
        /// The file.
        entry: Entry,
        /// Its generation.
        generation: u32,
        /// Durable blocks of the earlier session.
        blocks: Vec<DurableBlock>,
    },
    /// Makes a hard link to an entry that is done: `Receiver::handle_packed`.
    Link(Entry),
    /// Gives a directory its mode and time, and creates it if it is missing:
    /// `Receiver::handle_directory`.
    FinishDirectory(Entry),
    /// Compares the destination with names at the source: `Removals::handle_names_taken`.
    Names(Vec<NamesOf>),
    /// Handles the end of the names, or the reason why they are incomplete:
    /// `Removals::handle_names_compared`.
    EndNames(Option<Failure>),
    /// Removes the next names that the source does not have, at most
    /// [`crate::deletion::REMOVED_AT_ONCE`]: `Removals::handle_removed`.
    Remove,
    /// Makes a probe in each of the directories: `Probes::handle_probes_made`.
    MakeProbes(Vec<Question>),
    /// Removes the probes, given which of them the sender saw: `Probes::handle_probes_removed`.
    RemoveProbes(Vec<bool>),
    /// Removes all temporary files after everything is done: `Receiver::handle_finished`.
    Finish,
}

/// Blocks of one file to be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The file.
    pub file: EntryId,
    /// Its generation.
    pub generation: u32,
    /// Blocks written since the last checkpoint.
    pub blocks: Vec<DurableBlock>,
}

/// Result of an entry, for observers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedEvent {
    /// The entry is done.
    Ended {
        /// The entry; `None` if only its number is known.
        entry: Option<Entry>,
        /// Number of the entry.
        id: EntryId,
        /// Outcome; `None` if the entry already existed.
        outcome: Option<Outcome>,
        /// Digest of the existing file, if requested.
        digest: Option<Checksum>,
    },
    /// An earlier session left durable bytes of the entry.
    Resumed {
        /// The entry.
        entry: Entry,
        /// Number of bytes that are not sent again.
        bytes: u64,
    },
    /// More of the entry is durable. It does not have its name yet.
    Durable {
        /// The entry.
        entry: Entry,
        /// Total durable bytes, including those of earlier sessions.
        bytes: u64,
    },
    /// Result of deleting a name that the source does not have.
    Removed(Removal),
    /// The sender left out an entry on purpose.
    Omitted(Omitted),
}

/// Result of comparing one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The entry must be sent.
    Send,
    /// The entry exists and is unchanged; its digest, if requested.
    Same(Option<Checksum>),
    /// The entry exists, and its owner, mode, time or attributes were corrected; its digest, if
    /// requested.
    Mended(Option<Checksum>),
    /// A file of the same size and time exists. Its content must be compared.
    Contents,
    /// The content was compared and differs from the source.
    Differs,
    /// The entry exists, but further work must finish first: `Receiver::handle_contents_compared`
    /// follows.
    Later,
    /// An earlier session left these durable blocks.
    Partial(Vec<DurableBlock>),
    /// The destination refuses the entry.
    Refused(Failure),
    /// In a dry run: the change that a copy would make.
    Planned(Change),
    /// The existing state remains.
    Left(Held),
}

/// Error of the other end that ends the session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverError {
    /// The sender sent a message that only a receiver sends.
    #[error("the sender sent what only a receiver may send ({0})")]
    WrongRole(&'static str),
    /// Too many entries are under way.
    #[error("the sender has more than {MAXIMUM_UNDER_WAY} entries under way")]
    TooMany,
    /// Entries under way need too many bytes.
    #[error(
        "the sender has more than {} MiB of entries, paths and texts under way",
        MAXIMUM_REMEMBERED_BYTES >> 20
    )]
    TooMuch,
    /// Names for deletion were not requested, are out of order, or are too many.
    #[error("the sender told names for deletion that it was not asked for, or out of order")]
    Names,
    /// Questions about directories are not part of this copy, or too many are open.
    #[error("the sender asks for probes in directories out of turn")]
    Probes,
    /// An entry is invalid.
    #[error("the sender sent an entry with values out of their range")]
    InvalidEntry,
}
