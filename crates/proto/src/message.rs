//! Messages within a session, delivered once and in order ([`crate::control`]).

use minicbor::{Decode, Encode};

use crate::block::{ContentName, PieceName};
use crate::calls::Call;
use crate::coding::CodecUse;
use crate::criteria::Held;
use crate::deletion::NamesOf;
use crate::digest::Checksum;
use crate::distinct::{Probe, Question, SourcesQuestion};
use crate::filter::{LeftOut, Omitted};
use crate::handshake::Secret;
use crate::manifest::{AnchorState, Entry, EntryId, TreePath};
use crate::notice::{Notice, bounded_notices};

// tidy: long file because it is the one list of messages, each with its bounds.

/// Maximum number of entries in one [`Message::Entries`].
pub const MAXIMUM_LISTED_ENTRIES: usize = 512;

/// Maximum number of ranges in one [`Answer::Resume`]. Data beyond them is sent again.
pub const MAXIMUM_RESUMED_RANGES: usize = 8192;

/// Maximum number of names in [`Observation::congestions`].
pub const MAXIMUM_CONGESTIONS: usize = 32;

/// Maximum length of the name of a congestion control in bytes, as in the kernel.
pub const MAXIMUM_CONGESTION_BYTES: usize = 16;

/// Maximum length of a failure's text in bytes.
pub const MAXIMUM_TEXT_BYTES: usize = 1024;

/// A message between the ends of a session.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message {
    /// Sender: announces the next entries and asks which of them exist at the destination.
    #[n(0)]
    Entries(#[n(0)] Vec<Entry>),
    /// Receiver: answers for announced entries, in the same order.
    #[n(1)]
    Answers(#[n(0)] Vec<(EntryId, Answer)>),
    /// Sender: gives a directory's number of entries. When all are done, the directory gets its
    /// mode and time.
    #[n(2)]
    DirectoryEnd {
        /// The directory's final state.
        #[n(0)]
        entry: Entry,
        /// Number of entries directly in the directory.
        #[n(1)]
        children: u64,
    },
    /// Sender: reports that the walk is over.
    #[n(3)]
    WalkEnd {
        /// Number of entries: one more than the highest entry number.
        #[n(0)]
        entries: u64,
        /// Number of names left out on purpose, by reason.
        #[n(1)]
        left_out: LeftOut,
        /// State of the first source that fills the destination, if requested. Otherwise a limit
        /// whose mode has the bits that all sources that fill the destination share.
        #[n(2)]
        anchor: Option<Box<AnchorState>>,
    },
    /// Sender: reports that the file was read to its end and did not change meanwhile.
    #[n(4)]
    Sealed {
        /// The file.
        #[n(0)]
        file: EntryId,
        /// Its generation.
        #[n(1)]
        generation: u32,
        /// Its size in bytes.
        #[n(2)]
        size: u64,
        /// True if the file grew meanwhile. The sent front was read twice and did not change.
        #[n(3)]
        grew: bool,
    },
    /// Sender: reports that an entry will not be sent.
    #[n(5)]
    Abandoned {
        /// The entry.
        #[n(0)]
        id: EntryId,
        /// Directory that contains the entry.
        #[n(1)]
        parent: Option<EntryId>,
        /// Reason.
        #[n(2)]
        failure: Failure,
    },
    /// Sender: gives the checksums of a block that it sent over a stream in clear.
    #[n(6)]
    Checksums {
        /// Content of the block.
        #[n(0)]
        content: ContentName,
        /// One checksum for a piece. For a pack one per entry, `None` if the entry is not a file.
        #[n(1)]
        checksums: Vec<Option<Checksum>>,
    },
    /// Receiver: acknowledges durable pieces.
    #[n(7)]
    Durable {
        /// The session's epoch.
        #[n(0)]
        epoch: u64,
        /// The pieces.
        #[n(1)]
        pieces: Vec<PieceName>,
    },
    /// Receiver: reports entries that are done, whether they succeeded or failed.
    #[n(9)]
    Done {
        /// The session's epoch.
        #[n(0)]
        epoch: u64,
        /// The entries and their outcomes.
        #[n(1)]
        entries: Vec<(EntryId, Outcome)>,
    },
    /// Receiver: asks the sender to send content again.
    #[n(10)]
    Again {
        /// Content to send again.
        #[n(0)]
        content: ContentName,
        /// Reason.
        #[n(1)]
        reason: AgainReason,
    },
    /// Receiver: gives the number of blocks that arrived on each stream since the stream began.
    #[n(11)]
    Arrived {
        /// Numbers of the streams, with their numbers of blocks.
        #[n(0)]
        streams: Vec<(u32, u64)>,
        /// True if the receiver has room for more blocks. If false, an idle stream waits for the
        /// receiver, not for the path.
        #[n(1)]
        room: bool,
    },
    /// Receiver: reports that everything is done and durable.
    #[n(12)]
    Finished(
        #[n(0)] Totals,
        /// Properties that the destination lost or refused, one of each kind.
        #[n(1)]
        #[cbor(decode_with = "bounded_notices")]
        Vec<Notice>,
    ),
    /// Either end: reports its measurements.
    #[n(13)]
    Observed(#[n(0)] Observation),
    /// Steering end: sets the number of flows of each layer.
    #[n(14)]
    SetFlows(#[n(0)] Flows),
    /// Dialer: asks for tickets to join with this many streams in clear.
    #[n(16)]
    WantTickets(#[n(0)] u32),
    /// Acceptor: gives tickets, each valid for one stream in clear.
    #[n(17)]
    Tickets(#[n(0)] Vec<Secret>),
    /// Either end: ends the session. No more messages follow.
    #[n(18)]
    Goodbye(#[n(0)] Farewell),
    /// Steering end, to the sender: sets kernel parameters for sending.
    #[n(19)]
    Tune(#[n(0)] Tuning),
    /// Dialer: asks the acceptor to open connections to it. Each connection becomes a stream with
    /// which the dialer joins.
    #[n(20)]
    WantCalls {
        /// Number of connections.
        #[n(0)]
        count: u32,
        /// If true, the acceptor instead connects once to each address of the dialer and reports
        /// the results.
        #[n(1)]
        told: bool,
    },
    /// Acceptor: reports the result for each address, if the dialer asked for results.
    #[n(21)]
    Called(#[n(0)] Vec<Call>),
    /// Sender: gives the digests of files that the receiver has with the same size and time
    /// ([`Answer::Compare`]), at most [`MAXIMUM_LISTED_ENTRIES`].
    #[n(22)]
    Digests(#[n(0)] Vec<(EntryId, Checksum)>),
    /// Receiver: reports that everything is copied and asks for the names at the source
    /// ([`crate::deletion`]).
    #[n(23)]
    AskNames,
    /// Sender: gives names at the source, within the receiver's window.
    #[n(24)]
    Names(#[n(0)] Vec<NamesOf>),
    /// Receiver: acknowledges this many compared batches of names.
    #[n(25)]
    NamesTaken(#[n(0)] u32),
    /// Sender: ends the names, or gives the reason why they could not be listed.
    #[n(26)]
    NamesEnd(#[n(0)] Option<Failure>),
    /// Receiver: reports names that were deleted, would be deleted or could not be deleted, at most
    /// [`crate::deletion::REMOVED_AT_ONCE`].
    #[n(27)]
    Removed(#[n(0)] Vec<Removal>),
    /// Sender: acknowledges one message [`Message::Removed`].
    #[n(28)]
    RemovedTaken,
    /// Sender: reports a path that is at the destination and could not be removed at the source.
    #[n(29)]
    Unmoved(#[n(0)] TreePath, #[n(1)] Failure),
    /// Sender: lists entries that it left out on purpose, if the report needs them.
    #[n(30)]
    Omitted(#[n(0)] Vec<Omitted>),
    /// Receiver: acknowledges one message [`Message::Omitted`].
    #[n(31)]
    OmittedTaken,
    /// Sender: asks if these directories of the destination are distinct from those of the sources.
    /// It asks about at most [`crate::distinct::MAXIMUM_PROBES`] directories at a time, with one
    /// such question open.
    #[n(32)]
    AskDistinct(#[n(0)] Vec<Question>),
    /// Receiver: gives a probe in each of the directories, in the same order; `None` if it could
    /// not make the probe.
    #[n(33)]
    Probes(#[n(0)] Vec<Option<Probe>>),
    /// Sender: gives for each probe true if it sees the probe in the source's directory.
    #[n(34)]
    Sighted(#[n(0)] Vec<bool>),
    /// Receiver: gives the result for each directory; `None` if the directory is distinct and
    /// durable.
    #[n(35)]
    Distinct(#[n(0)] Vec<Option<Failure>>),
    /// Sender: reports that it has no more sources to remove.
    #[n(36)]
    MovesEnd,
    /// Receiver: asks if a probe is in a directory of the sources. Only one such question is open
    /// at a time.
    #[n(37)]
    AskSources(#[n(0)] SourcesQuestion),
    /// Sender: gives the reason if the probe is or may be there; `None` if it is not.
    #[n(38)]
    Sources(#[n(0)] Option<Failure>),
}

/// State of an entry at the destination.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    /// The entry must be sent.
    #[n(0)]
    Send,
    /// The entry exists and is unchanged.
    #[n(1)]
    Skip {
        /// Digest, if requested.
        #[n(0)]
        digest: Option<Checksum>,
        /// True if the entry's owner, mode, time or attributes were corrected.
        #[n(1)]
        #[cbor(default)]
        mended: bool,
    },
    /// Durable ranges of the file: first byte and length of each.
    #[n(2)]
    Resume(#[n(0)] Vec<(u64, u64)>),
    /// The destination refuses the entry.
    #[n(3)]
    Refuse(#[n(0)] Failure),
    /// In a dry run: the change that a copy would make.
    #[n(4)]
    Planned(#[n(0)] Change),
    /// A file with the same size and time exists. The receiver will compare its content with the
    /// sender's digest ([`Message::Digests`]) and then answer again.
    #[n(5)]
    Compare,
    /// The existing entry remains unchanged on purpose.
    #[n(6)]
    Leave(#[n(0)] Held),
}

/// Change that a copy would make for an entry that is missing or differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Change {
    /// Creates an entry under an unused name.
    #[n(0)]
    New,
    /// Replaces the existing entry.
    #[n(1)]
    Changed,
    /// Changes the entry's owner, mode or attributes without its data.
    #[n(2)]
    Attributes,
}

/// Result of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Outcome {
    /// The entry exists under its name, verified and durable.
    #[n(0)]
    Committed {
        /// Digest of a file, if requested.
        #[n(0)]
        digest: Option<Checksum>,
    },
    /// The entry failed.
    #[n(1)]
    Failed(#[n(0)] Failure),
    /// In a dry run: the change that a copy would make to a directory; `None` if the directory
    /// exists.
    #[n(2)]
    Planned(#[n(0)] Option<Change>),
    /// The entry already existed, which was found only now. Such entries are hard links to earlier
    /// entries and directories.
    #[n(3)]
    Unchanged,
    /// The destination omits the entry without a failure, for example a device that the user may
    /// not create.
    #[n(4)]
    LeftOut,
    /// A directory that is not created on purpose.
    #[n(5)]
    Left(#[n(0)] Held),
    /// The directory already existed, and its owner, mode, time or attributes were corrected.
    #[n(6)]
    Mended,
}

impl From<Result<(), Failure>> for Outcome {
    fn from(result: Result<(), Failure>) -> Outcome {
        match result {
            Ok(()) => Outcome::Committed { digest: None },
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum FailureKind {
    /// The operating system denied permission.
    #[n(0)]
    Permission,
    /// The entry does not exist or no longer exists.
    #[n(1)]
    Vanished,
    /// No space or quota is left.
    #[n(2)]
    NoSpace,
    /// The file keeps changing while it is copied.
    #[n(3)]
    Changing,
    /// Another source is being written to the same name.
    #[n(4)]
    InUse,
    /// An entry of another kind has the name.
    #[n(5)]
    Conflict,
    /// The entry is a device, socket or FIFO.
    #[n(6)]
    Special,
    /// The name is impossible at the destination.
    #[n(7)]
    Name,
    /// The two entries differ (verify).
    #[n(8)]
    Differs,
    /// The entry exists only at the destination (verify).
    #[n(9)]
    Extra,
    /// Too many files are open.
    #[n(10)]
    TooManyOpen,
    /// The data arrives corrupt again and again.
    #[n(11)]
    Corrupt,
    /// Any other failure.
    #[n(12)]
    Other,
    /// The file grew while it was copied. Its front is at the destination.
    #[n(13)]
    Grew,
}

/// Failure of one entry. Other entries continue.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Failure {
    /// Kind of the failure.
    #[n(0)]
    pub kind: FailureKind,
    /// Explanation with the remedy, at most [`MAXIMUM_TEXT_BYTES`].
    #[cbor(n(1), decode_with = "bounded_text")]
    pub text: String,
}

impl Failure {
    /// Makes a failure and cuts its text to [`MAXIMUM_TEXT_BYTES`].
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
        let text = cut(text.into());
        Failure { kind, text }
    }

    /// Makes the failure of a file that grew while its first `size` bytes were copied.
    pub fn grew(size: u64) -> Failure {
        let text = format!(
            "it grew while copied: its first {size} bytes are there, as they were when it was looked at; \
             copy it again when nobody writes to it"
        );
        Failure::new(FailureKind::Grew, text)
    }
}

/// Cuts a text to at most [`MAXIMUM_TEXT_BYTES`] at a character boundary.
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > MAXIMUM_TEXT_BYTES {
        let end = (0..=MAXIMUM_TEXT_BYTES)
            .rev()
            .find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

/// Decodes a text from an untrusted peer. Fails if it is longer than [`MAXIMUM_TEXT_BYTES`].
pub(crate) fn bounded_text<C>(
    decoder: &mut minicbor::Decoder<'_>,
    _: &mut C,
) -> Result<String, minicbor::decode::Error> {
    let text = decoder.str()?;
    if text.len() > MAXIMUM_TEXT_BYTES {
        Err(minicbor::decode::Error::message("too long a text"))
    } else {
        Ok(text.to_owned())
    }
}

/// Result of deleting a name that the source does not have.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Removal {
    /// Path beneath the anchor; `None` if no names are deleted, for the reason in `failure`.
    #[n(0)]
    pub path: Option<TreePath>,
    /// Size of a file in bytes.
    #[n(1)]
    pub size: u64,
    /// True for a directory.
    #[n(2)]
    pub directory: bool,
    /// Reason why the name remains; `None` if it was deleted or would be deleted.
    #[n(3)]
    pub failure: Option<Failure>,
}

/// Reason to send content again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum AgainReason {
    /// The checksum is wrong.
    #[n(0)]
    Corrupt,
    /// The data could not be decoded.
    #[n(1)]
    Undecodable,
    /// The receiver has a part of the content, cut differently. The request names the rest.
    #[n(2)]
    Overlap,
    /// The sender itself declared the block void.
    #[n(3)]
    Void,
}

impl AgainReason {
    /// True if the content was damaged on the way.
    pub fn is_damage(self) -> bool {
        matches!(self, AgainReason::Corrupt | AgainReason::Undecodable)
    }
}

/// Counts of a finished receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Totals {
    /// Entries created or replaced.
    #[n(0)]
    pub committed: u64,
    /// Entries that already existed.
    #[n(1)]
    pub skipped: u64,
    /// Entries that failed.
    #[n(2)]
    pub failed: u64,
    /// Bytes of the files committed.
    #[n(3)]
    pub bytes: u64,
    /// Blocks that arrived corrupt.
    #[n(4)]
    pub corrupt_blocks: u64,
    /// Blocks that arrived twice.
    #[n(5)]
    pub duplicate_blocks: u64,
    /// Existing files that were read to compare their contents.
    #[n(6)]
    pub digests_read: u64,
    /// Bytes of the files in `digests_read`.
    #[n(7)]
    pub digest_bytes_read: u64,
    /// Expired leftovers of other copies that were removed.
    #[n(8)]
    pub expired: u64,
    /// In a dry run: entries that a copy would create or replace.
    #[n(9)]
    pub planned: u64,
    /// Existing files with the same size and time but other contents.
    #[n(10)]
    pub differed: u64,
    /// Existing entries whose mode, owner, time or attributes were corrected without sending data.
    /// `skipped` also counts them.
    #[n(20)]
    pub mended: u64,
    /// Entries whose existing state remains on purpose.
    #[n(11)]
    pub left: u64,
    /// Names that were deleted at the destination, or would be in a dry run.
    #[n(12)]
    pub deleted: u64,
    /// Bytes of the files in `deleted`.
    #[n(13)]
    pub deleted_bytes: u64,
}

/// Measurements of one end: the kernel's view of each stream, and the load of each layer.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Observation {
    /// Time since the session began at this end, in nanoseconds.
    #[n(0)]
    pub at: u64,
    /// One observation for each path of each stream.
    #[n(1)]
    pub streams: Vec<StreamObservation>,
    /// Layers in the order of the pipeline: number, number of flows, and the fraction (0 to 1) of
    /// the flows' time in which they worked.
    #[n(2)]
    pub layers: Vec<(u8, u32, f32)>,
    /// CPU time of the process in nanoseconds.
    #[n(3)]
    pub cpu: u64,
    /// Number of cores that the process may use.
    #[n(4)]
    pub cores: u32,
    /// Bytes that a sender has yet to get acknowledged; `None` during the walk and for a receiver.
    #[n(5)]
    pub remaining: Option<u64>,
    /// Kernel's name of the congestion control of the streams; empty if they have no congestion
    /// control.
    #[n(6)]
    pub congestion: String,
    /// Congestion controls that the kernel offers, at most [`MAXIMUM_CONGESTIONS`].
    #[n(7)]
    pub congestions: Vec<String>,
    /// Maximum send buffer in bytes, the third number of `net.ipv4.tcp_wmem`.
    #[n(8)]
    pub send_buffer: Option<u64>,
    /// Maximum receive buffer in bytes, the third number of `net.ipv4.tcp_rmem`.
    #[n(9)]
    pub receive_buffer: Option<u64>,
    /// Number of entries that a sender has found.
    #[n(10)]
    pub known_entries: u64,
    /// Bytes of the files in `known_entries`.
    #[n(11)]
    pub known_bytes: u64,
    /// True if a sender has found all entries.
    #[n(12)]
    pub walk_ended: bool,
    /// Clock of this end in nanoseconds since 1970; 0 if unspecified.
    #[n(13)]
    pub clock: u64,
    /// Number of the host's cores that were recently idle, at most `cores`; `None` if unknown.
    #[n(14)]
    pub idle: Option<f32>,
    /// Use of codecs at this end, at most [`crate::coding::MAXIMUM_CODEC_USES`].
    #[n(15)]
    pub codecs: Vec<CodecUse>,
    /// Working time of all flows of each layer in `layers`, in nanoseconds; empty if unspecified.
    #[n(16)]
    pub worked: Vec<u64>,
}

/// A stream as its kernel sees it (`TCP_INFO`), on one of its paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StreamObservation {
    /// Number of the stream.
    #[n(0)]
    pub stream: u32,
    /// Smoothed round-trip time in microseconds.
    #[n(1)]
    pub rtt: u32,
    /// Congestion window in bytes.
    #[n(2)]
    pub window: u64,
    /// Segments retransmitted since the stream began.
    #[n(3)]
    pub retransmitted: u64,
    /// Bytes that the other end acknowledged.
    #[n(4)]
    pub acknowledged: u64,
    /// Bytes received.
    #[n(5)]
    pub received: u64,
    /// Minimum round-trip time in microseconds.
    #[n(6)]
    pub minimum_rtt: u32,
    /// Segment size in bytes.
    #[n(7)]
    pub segment: u32,
    /// Time with data to send, in microseconds.
    #[n(8)]
    pub busy: u64,
    /// Part of `busy` in which the other end's window limited the stream, in microseconds.
    #[n(9)]
    pub window_limited: u64,
    /// Part of `busy` in which this end's send buffer limited the stream, in microseconds.
    #[n(10)]
    pub buffer_limited: u64,
    /// The other end's window in bytes.
    #[n(11)]
    pub send_window: u64,
    /// Number of the path (a pair of addresses) at the observing end. A stream over several paths
    /// has one observation for each, with counts that never decrease.
    #[n(12)]
    pub path: u32,
    /// Data segments sent since the stream began, including retransmissions; `None` if the kernel
    /// does not count them.
    #[n(13)]
    pub sent: Option<u64>,
    /// Retransmitted segments that the other end had already received (DSACK); `None` if the kernel
    /// does not count them.
    #[n(14)]
    pub duplicates: Option<u64>,
    /// Bytes retransmitted since the stream began; `None` if the kernel does not count them.
    #[n(15)]
    pub retransmitted_bytes: Option<u64>,
    /// Segments that the kernel currently considers lost.
    #[n(16)]
    pub lost: u32,
}

/// Parameters of a sender's kernel for all streams from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Tuning {
    /// Kernel's name of the congestion control, at most [`MAXIMUM_CONGESTION_BYTES`]; `None` leaves
    /// it unchanged.
    #[n(0)]
    pub congestion: Option<String>,
    /// Maximum rate of each stream in bytes per second; `None` for no limit.
    #[n(1)]
    pub pace: Option<u64>,
    /// Maximum number of unsent bytes in the kernel per stream; `None` leaves it unchanged.
    #[n(2)]
    pub unsent: Option<u32>,
    /// Maximum rate of all streams together in bytes per second; `None` leaves it unchanged, 0
    /// removes the limit.
    #[n(3)]
    pub limit: Option<u64>,
}

/// The number of flows of each layer; `None` leaves it unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Flows {
    /// Threads that read.
    #[n(0)]
    pub readers: Option<u32>,
    /// Threads that compress.
    #[n(1)]
    pub compressors: Option<u32>,
    /// Streams.
    #[n(2)]
    pub streams: Option<u32>,
    /// Threads that decompress and verify.
    #[n(3)]
    pub decompressors: Option<u32>,
    /// Threads that write.
    #[n(4)]
    pub writers: Option<u32>,
    /// Threads that make data durable and give files their names, as an observation counts them.
    #[n(5)]
    pub committers: Option<u32>,
}

/// Reason for the end of a session.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Farewell {
    /// The session completed.
    #[n(0)]
    Complete,
    /// A newer session of the same transfer took over.
    #[n(1)]
    Fenced,
    /// The steering end cancelled the session.
    #[n(2)]
    Cancelled,
    /// This end cannot continue.
    #[n(3)]
    Broken(#[n(0)] String),
    /// This end cannot continue, because the destination is no longer usable.
    #[n(4)]
    Storage(#[n(0)] String),
    /// This end stops and is started again soon. The same request then resumes the transfer.
    #[n(5)]
    Restarting,
}
