//! Messages within a session, in order and once ([`crate::control`]).

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

/// Most entries in one [`Message::Entries`].
pub const MAXIMUM_LISTED_ENTRIES: usize = 512;

/// Most ranges in one [`Answer::Resume`]; what is beyond is sent again.
pub const MAXIMUM_RESUMED_RANGES: usize = 8192;

/// Most names in [`Observation::congestions`].
pub const MAXIMUM_CONGESTIONS: usize = 32;

/// Longest name of a congestion control in bytes, as in the kernel.
pub const MAXIMUM_CONGESTION_BYTES: usize = 16;

/// Longest text of a failure in bytes.
pub const MAXIMUM_TEXT_BYTES: usize = 1024;

/// A message.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message {
    /// Sender: these are next; what of them is there already?
    #[n(0)]
    Entries(#[n(0)] Vec<Entry>),
    /// Receiver: the answers, in the same order.
    #[n(1)]
    Answers(#[n(0)] Vec<(EntryId, Answer)>),
    /// Sender: the directory's number of entries. When all are done, it gets its mode and time.
    #[n(2)]
    DirectoryEnd {
        /// The directory's final state.
        #[n(0)]
        entry: Entry,
        /// Entries directly in it.
        #[n(1)]
        children: u64,
    },
    /// Sender: the walk is over; the number of entries.
    #[n(3)]
    WalkEnd {
        /// One more than the highest number.
        #[n(0)]
        entries: u64,
        /// How many names were left out on purpose.
        #[n(1)]
        left_out: LeftOut,
        /// What the first source that fills the destination gives it, if that was asked for.
        /// Otherwise a limit: its mode has the bits that all sources have that fill it.
        #[n(2)]
        anchor: Option<Box<AnchorState>>,
    },
    /// Sender: the file was read to its end and is what it was at the start.
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
        /// It grew meanwhile: this is its front, which was read twice and stayed the same.
        #[n(3)]
        grew: bool,
    },
    /// Sender: this entry will not come.
    #[n(5)]
    Abandoned {
        /// The entry.
        #[n(0)]
        id: EntryId,
        /// The directory it is in.
        #[n(1)]
        parent: Option<EntryId>,
        /// Why.
        #[n(2)]
        failure: Failure,
    },
    /// Sender: checksums of a block that went over a stream in clear.
    #[n(6)]
    Checksums {
        /// The block.
        #[n(0)]
        content: ContentName,
        /// One for a piece; for a pack one for each entry, `None` if it is no file.
        #[n(1)]
        checksums: Vec<Option<Checksum>>,
    },
    /// Receiver: these pieces are durable.
    #[n(7)]
    Durable {
        /// The session's epoch.
        #[n(0)]
        epoch: u64,
        /// The pieces.
        #[n(1)]
        pieces: Vec<PieceName>,
    },
    /// Receiver: these entries are done, one way or the other.
    #[n(9)]
    Done {
        /// The session's epoch.
        #[n(0)]
        epoch: u64,
        /// The entries.
        #[n(1)]
        entries: Vec<(EntryId, Outcome)>,
    },
    /// Receiver: this arrived wrong, send it again.
    #[n(10)]
    Again {
        /// What.
        #[n(0)]
        content: ContentName,
        /// Why.
        #[n(1)]
        reason: AgainReason,
    },
    /// Receiver: the number of blocks that arrived on these streams since they began.
    #[n(11)]
    Arrived {
        /// Streams and their blocks.
        #[n(0)]
        streams: Vec<(u32, u64)>,
        /// There is room for more: where there is none, a stream that stands
        /// still waits for this end and not for the path.
        #[n(1)]
        room: bool,
    },
    /// Receiver: everything is done and durable.
    #[n(12)]
    Finished(
        #[n(0)] Totals,
        /// What the destination did not keep or refused, one of each kind.
        #[n(1)]
        #[cbor(decode_with = "bounded_notices")]
        Vec<Notice>,
    ),
    /// Either: what this end sees.
    #[n(13)]
    Observed(#[n(0)] Observation),
    /// Steering end: use these numbers of flows.
    #[n(14)]
    SetFlows(#[n(0)] Flows),
    /// Dialer: I want to join with this many streams in clear.
    #[n(16)]
    WantTickets(#[n(0)] u32),
    /// Acceptor: each is good for one stream in clear.
    #[n(17)]
    Tickets(#[n(0)] Vec<Secret>),
    /// Either: the session is over, nothing more will come.
    #[n(18)]
    Goodbye(#[n(0)] Farewell),
    /// Steering end, to the sender: how its kernel should send.
    #[n(19)]
    Tune(#[n(0)] Tuning),
    /// Dialer: connect to me; each is a stream that I join with.
    #[n(20)]
    WantCalls {
        /// How many times.
        #[n(0)]
        count: u32,
        /// Instead once at each of my addresses, and say what came of it.
        #[n(1)]
        told: bool,
    },
    /// Acceptor, where it was asked: what came of each address.
    #[n(21)]
    Called(#[n(0)] Vec<Call>),
    /// Sender: the digests of files that the receiver has with the same size and
    /// time ([`Answer::Compare`]), at most [`MAXIMUM_LISTED_ENTRIES`].
    #[n(22)]
    Digests(#[n(0)] Vec<(EntryId, Checksum)>),
    /// Receiver: everything is copied; what names are there? ([`crate::deletion`])
    #[n(23)]
    AskNames,
    /// Sender: these, within the receiver's window.
    #[n(24)]
    Names(#[n(0)] Vec<NamesOf>),
    /// Receiver: that many batches were compared.
    #[n(25)]
    NamesTaken(#[n(0)] u32),
    /// Sender: that was all, or why it could not be listed.
    #[n(26)]
    NamesEnd(#[n(0)] Option<Failure>),
    /// Receiver: these were deleted, or would be, or were not; at most
    /// [`crate::deletion::REMOVED_AT_ONCE`].
    #[n(27)]
    Removed(#[n(0)] Vec<Removal>),
    /// Sender: one such message was heard.
    #[n(28)]
    RemovedTaken,
    /// Sender: this is at the destination, and could not be removed at the source.
    #[n(29)]
    Unmoved(#[n(0)] TreePath, #[n(1)] Failure),
    /// Sender: these were left out on purpose, where that is wanted for a report.
    #[n(30)]
    Omitted(#[n(0)] Vec<Omitted>),
    /// Receiver: one such message was heard.
    #[n(31)]
    OmittedTaken,
    /// Sender: are these directories of the destination other ones than those of the sources? At
    /// most [`crate::distinct::MAXIMUM_PROBES`], one such question at a time.
    #[n(32)]
    AskDistinct(#[n(0)] Vec<Question>),
    /// Receiver: a probe in each of them, in the same order; `None` if none could be made.
    #[n(33)]
    Probes(#[n(0)] Vec<Option<Probe>>),
    /// Sender: whether it sees each probe in the source's directory.
    #[n(34)]
    Sighted(#[n(0)] Vec<bool>),
    /// Receiver: the result for each directory; `None` if it is another one and durable.
    #[n(35)]
    Distinct(#[n(0)] Vec<Option<Failure>>),
    /// Sender: no source remains to be removed.
    #[n(36)]
    MovesEnd,
    /// Receiver: is a probe in a directory of the sources? One such question at a time.
    #[n(37)]
    AskSources(#[n(0)] SourcesQuestion),
    /// Sender: why it is, or may be; `None` if it is not.
    #[n(38)]
    Sources(#[n(0)] Option<Failure>),
}

/// What of an entry is at the destination.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    /// Nothing of use.
    #[n(0)]
    Send,
    /// All of it, unchanged.
    #[n(1)]
    Skip {
        /// The digest, where it was asked for.
        #[n(0)]
        digest: Option<Checksum>,
        /// True if its owner, mode, time or attributes were corrected.
        #[n(1)]
        #[cbor(default)]
        mended: bool,
    },
    /// These ranges of the file, durable: first byte and length.
    #[n(2)]
    Resume(#[n(0)] Vec<(u64, u64)>),
    /// It cannot go there.
    #[n(3)]
    Refuse(#[n(0)] Failure),
    /// In a dry run: what a copy would do with it.
    #[n(4)]
    Planned(#[n(0)] Change),
    /// A file with the same size and time: its contents are compared with the
    /// digest that the sender tells ([`Message::Digests`]). Another answer follows.
    #[n(5)]
    Compare,
    /// It stays as it is there, whatever the source has.
    #[n(6)]
    Leave(#[n(0)] Held),
}

/// What a copy would do with an entry that is not there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Change {
    /// Make it: nothing has its name.
    #[n(0)]
    New,
    /// Replace what has its name.
    #[n(1)]
    Changed,
    /// Give it another owner, mode or attribute, without its data.
    #[n(2)]
    Attributes,
}

/// How an entry ended.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Outcome {
    /// It is there under its name, verified and durable.
    #[n(0)]
    Committed {
        /// The digest, where it was asked for and is a file.
        #[n(0)]
        digest: Option<Checksum>,
    },
    /// It is not.
    #[n(1)]
    Failed(#[n(0)] Failure),
    /// In a dry run, a directory: what a copy would do with it; `None` if it is there.
    #[n(2)]
    Planned(#[n(0)] Option<Change>),
    /// It was there already, which showed only now: another name of what an earlier entry is, or
    /// a directory.
    #[n(3)]
    Unchanged,
    /// The destination does without it, which is no failure: a device that nobody may make there.
    #[n(4)]
    LeftOut,
    /// It stays as it is there: a directory that is not made.
    #[n(5)]
    Left(#[n(0)] Held),
    /// It was there already, and its owner, mode, time or attributes were corrected: a directory.
    #[n(6)]
    Mended,
}

/// What kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum FailureKind {
    /// Permission denied.
    #[n(0)]
    Permission,
    /// It is not there (any more).
    #[n(1)]
    Vanished,
    /// No space or quota left.
    #[n(2)]
    NoSpace,
    /// It keeps changing while it is copied.
    #[n(3)]
    Changing,
    /// Another source is being written to that name.
    #[n(4)]
    InUse,
    /// Something else has that name.
    #[n(5)]
    Conflict,
    /// A device, socket or FIFO.
    #[n(6)]
    Special,
    /// A name that cannot be there.
    #[n(7)]
    Name,
    /// The two are not the same (verify).
    #[n(8)]
    Differs,
    /// It is only at the destination (verify).
    #[n(9)]
    Extra,
    /// Too many open files.
    #[n(10)]
    TooManyOpen,
    /// It arrives wrong again and again.
    #[n(11)]
    Corrupt,
    /// Anything else.
    #[n(12)]
    Other,
    /// It grew while it was copied: its front is there.
    #[n(13)]
    Grew,
}

/// Why one entry failed; the others continue.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Failure {
    /// Its kind.
    #[n(0)]
    pub kind: FailureKind,
    /// In words, with the remedy; at most [`MAXIMUM_TEXT_BYTES`].
    #[cbor(n(1), decode_with = "bounded_text")]
    pub text: String,
}

impl Failure {
    /// A failure whose text is cut to its bound.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
        let text = cut(text.into());
        Failure { kind, text }
    }

    /// This many bytes of a file that grew meanwhile are there.
    pub fn grew(size: u64) -> Failure {
        let text = format!(
            "it grew while copied: its first {size} bytes are there, as they were when it was looked at; \
             copy it again when nobody writes to it"
        );
        Failure::new(FailureKind::Grew, text)
    }
}

/// A text cut to [`MAXIMUM_TEXT_BYTES`].
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > MAXIMUM_TEXT_BYTES {
        let end = (0..=MAXIMUM_TEXT_BYTES)
            .rev()
            .find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

/// A text that is kept, of a peer who may be anybody.
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

/// What became of a name that the source does not have.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Removal {
    /// Where it is beneath the anchor; `None`: nothing is deleted, and `failure` says why.
    #[n(0)]
    pub path: Option<TreePath>,
    /// Bytes of a file.
    #[n(1)]
    pub size: u64,
    /// It is a directory.
    #[n(2)]
    pub directory: bool,
    /// Why it stays; `None` if it was deleted, or would be.
    #[n(3)]
    pub failure: Option<Failure>,
}

/// Why something is to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum AgainReason {
    /// Its checksum is wrong.
    #[n(0)]
    Corrupt,
    /// It could not be decoded.
    #[n(1)]
    Undecodable,
    /// Part of it is here already, cut otherwise; this is the rest.
    #[n(2)]
    Overlap,
    /// The sender itself said that it is void.
    #[n(3)]
    Void,
}

impl AgainReason {
    /// Whether it was damaged on its way.
    pub fn is_damage(self) -> bool {
        matches!(self, AgainReason::Corrupt | AgainReason::Undecodable)
    }
}

/// What a finished receiver counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Totals {
    /// Entries made or replaced.
    #[n(0)]
    pub committed: u64,
    /// Entries that were there.
    #[n(1)]
    pub skipped: u64,
    /// Entries that failed.
    #[n(2)]
    pub failed: u64,
    /// Bytes of the files committed.
    #[n(3)]
    pub bytes: u64,
    /// Blocks that arrived wrong.
    #[n(4)]
    pub corrupt_blocks: u64,
    /// Blocks that arrived twice.
    #[n(5)]
    pub duplicate_blocks: u64,
    /// Files that were there and were read to compare their contents.
    #[n(6)]
    pub digests_read: u64,
    /// Their bytes.
    #[n(7)]
    pub digest_bytes_read: u64,
    /// Leftovers of other copies that expired and were removed.
    #[n(8)]
    pub expired: u64,
    /// Entries that a copy would make or replace, in a dry run.
    #[n(9)]
    pub planned: u64,
    /// Files that were there with the same size and time but other contents.
    #[n(10)]
    pub differed: u64,
    /// Entries that were there and got another mode, owner, time or attribute, without their data.
    /// `skipped` counts them as well.
    #[n(20)]
    pub mended: u64,
    /// Entries that stay as they are there on purpose.
    #[n(11)]
    pub left: u64,
    /// Names deleted at the destination, or that would be.
    #[n(12)]
    pub deleted: u64,
    /// Bytes of the files among them.
    #[n(13)]
    pub deleted_bytes: u64,
}

/// What one end sees: of each stream what its kernel tells, and how busy each
/// layer was.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Observation {
    /// Nanoseconds since the session began at that end.
    #[n(0)]
    pub at: u64,
    /// Streams.
    #[n(1)]
    pub streams: Vec<StreamObservation>,
    /// Layers: its number (in the order of the pipeline), flows, and the part
    /// of the flows' time in which they worked, 0 to 1.
    #[n(2)]
    pub layers: Vec<(u8, u32, f32)>,
    /// CPU nanoseconds of the process.
    #[n(3)]
    pub cpu: u64,
    /// Cores that it may use.
    #[n(4)]
    pub cores: u32,
    /// Sender: bytes still to be acknowledged; none while the walk runs, and
    /// of a receiver.
    #[n(5)]
    pub remaining: Option<u64>,
    /// What governs its streams' windows, by the kernel's name; empty where
    /// there is none.
    #[n(6)]
    pub congestion: String,
    /// What its kernel lets it choose, at most [`MAXIMUM_CONGESTIONS`].
    #[n(7)]
    pub congestions: Vec<String>,
    /// Third number of `net.ipv4.tcp_wmem` in bytes.
    #[n(8)]
    pub send_buffer: Option<u64>,
    /// Third number of `net.ipv4.tcp_rmem` in bytes.
    #[n(9)]
    pub receive_buffer: Option<u64>,
    /// A sender's entries known so far.
    #[n(10)]
    pub known_entries: u64,
    /// The bytes of the files among them.
    #[n(11)]
    pub known_bytes: u64,
    /// A sender knows all.
    #[n(12)]
    pub walk_ended: bool,
    /// What this end's clock said, in nanoseconds since 1970; 0 where it is not
    /// said.
    #[n(13)]
    pub clock: u64,
    /// Of its host's cores, those that idled lately, at most as many as it may use; none if it
    /// cannot know.
    #[n(14)]
    pub idle: Option<f32>,
    /// What codecs did at this end, at most [`crate::coding::MAXIMUM_CODEC_USES`].
    #[n(15)]
    pub codecs: Vec<CodecUse>,
    /// Nanoseconds that the flows of each of [`Observation::layers`] worked, summed over them;
    /// empty where it is not said.
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
    /// Segments sent again since the stream began.
    #[n(3)]
    pub retransmitted: u64,
    /// Bytes acknowledged by the other end.
    #[n(4)]
    pub acknowledged: u64,
    /// Bytes received.
    #[n(5)]
    pub received: u64,
    /// Least round-trip time in microseconds.
    #[n(6)]
    pub minimum_rtt: u32,
    /// Bytes in a segment.
    #[n(7)]
    pub segment: u32,
    /// Microseconds with data to send.
    #[n(8)]
    pub busy: u64,
    /// Of these, held up by the other end's window.
    #[n(9)]
    pub window_limited: u64,
    /// Of these, held up by this end's send buffer.
    #[n(10)]
    pub buffer_limited: u64,
    /// The other end's window in bytes.
    #[n(11)]
    pub send_window: u64,
    /// Which of the observing end's paths (pairs of addresses) this is. A stream over several has
    /// one observation for each, with counts that never fall.
    #[n(12)]
    pub path: u32,
    /// Segments with data sent since the stream began, including those sent again; `None` if the
    /// kernel does not count them.
    #[n(13)]
    pub sent: Option<u64>,
    /// Of those sent again, segments that the other end said it had already (DSACK);
    /// likewise.
    #[n(14)]
    pub duplicates: Option<u64>,
    /// Bytes sent again since the stream began; likewise.
    #[n(15)]
    pub retransmitted_bytes: Option<u64>,
    /// Segments taken for lost now.
    #[n(16)]
    pub lost: u32,
}

/// How a sender's kernel should send, on all streams from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Tuning {
    /// Congestion control by the kernel's name, at most
    /// [`MAXIMUM_CONGESTION_BYTES`]; none leaves it.
    #[n(0)]
    pub congestion: Option<String>,
    /// Bytes per second of each stream at most; none without bound.
    #[n(1)]
    pub pace: Option<u64>,
    /// Bytes that the kernel may hold unsent for a stream; none leaves it.
    #[n(2)]
    pub unsent: Option<u32>,
    /// Bytes per second of all streams together at most; none leaves it, 0 is
    /// without bound.
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
    /// Threads that make data durable and give names, as an observation counts them.
    #[n(5)]
    pub committers: Option<u32>,
}

/// Why a session ends.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Farewell {
    /// All is done.
    #[n(0)]
    Complete,
    /// A newer session of the same transfer took over.
    #[n(1)]
    Fenced,
    /// The steering end asked for it.
    #[n(2)]
    Cancelled,
    /// This end cannot continue.
    #[n(3)]
    Broken(#[n(0)] String),
    /// This end cannot continue, since the destination cannot be used any more.
    #[n(4)]
    Storage(#[n(0)] String),
}
