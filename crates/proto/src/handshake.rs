//! How a stream opens a session or joins one. Who dials, who is TLS server and
//! which way data flows are independent: the dialer says in its [`Hello`]
//! which of them it wants to be.
//!
//! ```text
//! dialer                                acceptor
//!   Hello { Open(Request) }     ->
//!                               <-      Welcome | Refused       one round trip
//!   Hello { Join { secret } }   ->
//!                               <-      Joined | Refused        each further stream
//!   Hello { List(ListRequest) } ->
//!                               <-      Listed... | Refused     no session
//!   Hello { Vouch { key } }     ->
//!                               <-      Vouched | Refused       for another host
//!   Hello { ControlRequest { what } }   ->
//!                               <-      Begun | Refused         no session
//! ```

use minicbor::{Decode, Decoder, Encode, decode};

use crate::allowed::Allowed;
use crate::backup::Backup;
use crate::block::{Codec, HeaderKey};
use crate::command::FileCommand;
use crate::criteria::Criteria;
use crate::deletion::Deletion;
use crate::digest::Integrity;
use crate::filter::Selection;
use crate::keeping::Keeping;
use crate::listing::{ListRequest, Listed};
pub use crate::secret::Secret;

// tidy: long file because it is the one list of what opens and joins a session.

/// Version of the protocol; both ends must speak the same.
pub const PROTOCOL_VERSION: u32 = 1;

/// Most sources in one request.
pub const MAXIMUM_SOURCES: usize = 4096;

/// Something that an end can do only on some hosts or in some builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Capability {
    /// Compresses and decompresses with zstd.
    #[n(0)]
    Zstd,
    /// Compresses and decompresses with lz4.
    #[n(1)]
    Lz4,
}

impl Capability {
    /// Capabilities of this end.
    pub const ALL: [Capability; 2] = [Capability::Zstd, Capability::Lz4];

    /// True if these capabilities include every codec.
    pub fn include_every_codec(capabilities: &[Capability]) -> bool {
        let codecs = [Capability::Zstd, Capability::Lz4];
        codecs.iter().all(|codec| capabilities.contains(codec))
    }
}

/// Number of a session, chosen by its acceptor at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct SessionId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

/// Who the dialer says it is.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Credential {
    /// Name of a principal of the acceptor.
    #[n(0)]
    pub principal: String,
    /// Its token; `None` if the TLS certificate is the proof.
    #[n(1)]
    pub token: Option<String>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({}, …)", self.principal)
    }
}

/// The first frame on a stream, from the dialer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`].
    #[n(0)]
    pub version: u32,
    /// Name and version of the software, for messages.
    #[n(1)]
    pub software: String,
    /// Capabilities of the dialer.
    #[n(2)]
    pub capabilities: Vec<Capability>,
    /// What the stream is for.
    #[n(3)]
    pub purpose: Purpose,
}

/// A first frame, of which only the version and the software are read if the version is another
/// one.
#[derive(Debug)]
pub enum Heard {
    /// Same version.
    Same(Hello),
    /// Other version of the protocol.
    Other(Spoken),
}

/// Start of every [`Hello`], of any version.
#[derive(Debug, Decode)]
#[cbor(map)]
pub struct Spoken {
    /// Version of the protocol.
    #[n(0)]
    pub version: u32,
    /// Name and version of the software.
    #[n(1)]
    pub software: String,
}

impl<'b, C> Decode<'b, C> for Heard {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Heard, decode::Error> {
        let start = decoder.position();
        let spoken = Spoken::decode(decoder, context)?;
        if spoken.version != PROTOCOL_VERSION {
            return Ok(Heard::Other(spoken));
        }
        decoder.set_position(start);
        Ok(Heard::Same(Hello::decode(decoder, context)?))
    }
}

/// What a stream is for.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Purpose {
    /// A new session.
    #[n(0)]
    Open(#[n(0)] Box<Request>),
    /// One more stream of a session.
    #[n(1)]
    Join(#[n(0)] Join),
    /// No session: the acceptor lists a path, and the stream ends.
    #[n(4)]
    List(#[n(0)] ListRequest),
    /// Another host may join as the same principal.
    #[n(2)]
    Vouch(#[n(0)] Vouch),
    /// Something that the acceptor does outside any session.
    #[n(5)]
    ControlRequest(#[n(0)] ControlRequest),
}

/// The longest name of a host, in bytes, as in DNS.
const MAXIMUM_HOST_BYTES: usize = 253;

/// The longest name of a job, or of where channels to one come, in bytes.
const MAXIMUM_JOB_BYTES: usize = 64;

/// Asks for something beside any session.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ControlRequest {
    /// Who asks.
    #[n(0)]
    pub credential: Option<Credential>,
    /// What for.
    #[n(1)]
    pub what: Task,
}

/// What the acceptor should do. Except for [`Task::Reach`], the stream becomes the channel of the
/// task after the answer: bytes both ways, to the end of either.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Task {
    /// Run a job with another daemon, which the client introduces.
    #[n(0)]
    Drive,
    /// Carry the channel of the principal's job of this name.
    #[n(1)]
    Attach(#[n(0)] String),
    /// Tell the principal's jobs.
    #[n(2)]
    Jobs,
    /// Find out whether another daemon can be connected to from there.
    #[n(3)]
    Reach(#[n(0)] Target),
    /// Run a job with another daemon, to which the client carries channels. The acceptor connects
    /// to no host.
    #[n(4)]
    DriveThrough,
    /// Be a channel of the principal's job that takes them under this name, to
    /// the job's other end.
    #[n(5)]
    Channel(#[n(0)] String),
}

/// Another daemon.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Target {
    /// Its host, 1 to 253 bytes.
    #[n(0)]
    pub host: String,
    /// Its port, 1 or more.
    #[n(1)]
    pub port: u16,
    /// SHA-256 of its public key; nobody else is spoken to.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub key: [u8; 32],
}

impl ControlRequest {
    /// Whether every length is within its range.
    pub fn is_valid(&self) -> bool {
        match &self.what {
            Task::Drive | Task::DriveThrough | Task::Jobs => true,
            Task::Attach(name) | Task::Channel(name) => {
                (1..=MAXIMUM_JOB_BYTES).contains(&name.len())
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
            }
            Task::Reach(target) => {
                (1..=MAXIMUM_HOST_BYTES).contains(&target.host.len())
                    && target.host.bytes().all(|byte| byte.is_ascii_graphic())
                    && target.port > 0
            }
        }
    }
}

/// Asks to let in another host, which opens one session with the key's
/// certificate as its proof.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Vouch {
    /// Who asks.
    #[n(0)]
    pub credential: Option<Credential>,
    /// SHA-256 of the public key of the other host's certificate.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub key: [u8; 32],
    /// The session that it may open; `None` if the client does not restrict it.
    #[n(2)]
    pub allowed: Option<Allowed>,
}

/// Joins a session.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Join {
    /// The session.
    #[n(0)]
    pub session: SessionId,
    /// The proof.
    #[n(1)]
    pub secret: Secret,
    /// Number of the stream within the session, never used twice.
    #[n(2)]
    pub stream: u32,
    /// Control messages received so far.
    #[n(3)]
    pub received: u64,
}

/// Which end the dialer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Role {
    /// It has the sources.
    #[n(0)]
    Sender,
    /// It has the destination.
    #[n(1)]
    Receiver,
}

/// What a session does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Operation {
    /// Copies.
    #[default]
    #[n(0)]
    Copy,
    /// Compares by digest, moves nothing.
    #[n(1)]
    Verify,
    /// Says what a copy would do.
    #[n(2)]
    DryRun,
}

/// Where a single source without a trailing slash lands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Landing {
    /// In the destination, which is a directory and made if missing.
    #[default]
    #[n(0)]
    Within,
    /// One file: within the destination if that is a directory, else it gets
    /// that name.
    #[n(1)]
    WithinOrAs,
    /// It gets the destination's name, whatever it is.
    #[n(2)]
    As,
}

/// What a new session does.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Request {
    /// Who asks.
    #[n(0)]
    pub credential: Option<Credential>,
    /// Which end the dialer is.
    #[n(1)]
    pub role: Role,
    /// Copy or compare.
    #[n(2)]
    pub operation: Operation,
    /// The acceptor's paths: sources where it sends, at most
    /// [`MAXIMUM_SOURCES`]; else one, the destination.
    #[n(3)]
    pub paths: Vec<RequestPath>,
    /// Where a single source lands.
    #[n(4)]
    pub landing: Landing,
    /// Hash of the sending host and its sources: tells a restart of a transfer
    /// from another one.
    #[cbor(n(5), with = "minicbor::bytes")]
    pub source: [u8; 32],
    /// How blocks are verified.
    #[n(6)]
    pub integrity: Integrity,
    /// How payloads are encoded.
    #[n(7)]
    pub codec: Codec,
    /// Bytes of a block, a power of two.
    #[n(8)]
    pub block_bytes: u32,
    /// Streams in clear are asked for.
    #[n(9)]
    pub clear: bool,
    /// Bytes after which what was received is made durable and reported.
    #[n(10)]
    pub checkpoint_bytes: u64,
    /// Milliseconds after which it is.
    #[n(11)]
    pub checkpoint_milliseconds: u64,
    /// A receiving dialer says that its destination is empty.
    #[n(12)]
    pub destination_empty: bool,
    /// Directories are copied, not passed over.
    #[n(13)]
    pub recursive: bool,
    /// Digests of finished files are wanted, also of those that were there.
    #[n(15)]
    pub digests: bool,
    /// Direct I/O is asked for.
    #[n(16)]
    pub direct: bool,
    /// What was written is read back past the cache and compared.
    #[n(18)]
    pub verify_written: bool,
    /// Names that a sending dialer puts directly into the destination; `None` if it fills it with
    /// whatever a directory contains.
    #[n(19)]
    pub names: Option<Vec<minicbor::bytes::ByteVec>>,
    /// A sending acceptor sends what links lead to.
    #[n(21)]
    pub copy_links: bool,
    /// Of files that are there, only kept digests are reported: no file is read for it.
    #[n(22)]
    pub kept_digests_only: bool,
    /// Large files that a receiving dialer can have open; 0 where it does not
    /// say.
    #[n(23)]
    pub large_files: u32,
    /// Bytes per second of all streams together at most, where the acceptor
    /// sends; none without bound.
    #[n(26)]
    pub limit: Option<u64>,
    /// The acceptor's streams have one thread each for all their work, instead
    /// of layers.
    #[n(27)]
    pub paired: bool,
    /// The acceptor is asked to describe its host in its [`Welcome`].
    #[n(28)]
    pub wants_host: bool,
    /// What blocks' headers on streams in clear are proved with: there where those are
    /// asked for.
    #[n(29)]
    pub block_key: Option<Secret>,
    /// Set-user-ID and set-group-ID bits are wanted also where a file belongs to
    /// another user or group than at the source.
    #[n(30)]
    pub keep_set_ids: bool,
    /// Hash of the sources, the same on every host that sees them. What a dead session of the same
    /// transfer from another host left belongs to this one. `None` if no other host sees them.
    #[n(31)]
    pub anywhere: Option<minicbor::bytes::ByteArray<32>>,
    /// Milliseconds since the dialer first connected to ask for this, where it was refused for
    /// want of a place and asks again; 0 where it asks for the first time.
    #[n(32)]
    pub waited_milliseconds: u64,
    /// What of its sources a sending acceptor sends; `None`: all.
    #[n(33)]
    pub selection: Option<Box<Selection>>,
    /// A sending acceptor chooses the codec of each block; `codec` is plain then.
    #[n(34)]
    pub automatic: bool,
    /// Bytes of an element in arrays, for a sending acceptor: 1 (no arrays), 2, 4 or 8; 0 where it
    /// finds that itself.
    #[n(35)]
    pub element_bytes: u8,
    /// What is kept of an entry, at either end; `None`: what always is.
    #[n(40)]
    pub keeping: Option<Box<Keeping>>,
    /// When something is copied.
    #[n(44)]
    pub criteria: Criteria,
    /// What is deleted after the copy; `None`: nothing. A comparison deletes nothing: such
    /// names are differences.
    #[n(45)]
    pub deletion: Option<Box<Deletion>>,
    /// Sources are removed once they are durable at the destination.
    #[n(46)]
    pub moves_away: bool,
    /// A sending acceptor tells what it left out.
    #[n(47)]
    pub tells_omitted: bool,
    /// What is replaced or deleted is kept under another name; `None`: it is not kept.
    #[n(50)]
    pub backup: Option<Box<Backup>>,
    /// A command that a receiving acceptor runs for each file that is committed.
    #[n(60)]
    pub on_commit: Option<Box<FileCommand>>,
    /// A command whose output becomes the file: at a receiving acceptor what comes goes through it,
    /// at a sending one what leaves.
    #[n(61)]
    pub filter: Option<Box<FileCommand>>,
    /// Files go through a command at a sending dialer: their sizes are not those that it lists.
    #[n(62)]
    pub filtered: bool,
}

/// A path at the acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum RequestPath {
    /// As in the URL: absolute, to be resolved beneath a root.
    #[n(0)]
    Path(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>),
    /// This many zeros, from no file.
    #[n(1)]
    Zero(#[n(0)] u64),
    /// A sink without a disk.
    #[n(2)]
    Null,
    /// A file that a stream becomes (see [`crate::stream`]); a destination.
    #[n(3)]
    Stream(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>),
}

/// The acceptor's answer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    /// A session was opened.
    #[n(0)]
    Welcome(#[n(0)] Welcome),
    /// The stream joined.
    #[n(1)]
    Joined(#[n(0)] Joined),
    /// It did not.
    #[n(2)]
    Refused(#[n(0)] Refused),
    /// Some of what lies at a path; many of these follow each other.
    #[n(4)]
    Listed(#[n(0)] Listed),
    /// The other host will be let in.
    #[n(3)]
    Vouched(#[n(0)] Vouched),
    /// A control request was begun or is done.
    #[n(5)]
    Begun,
}

/// Another host will be let in.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Vouched {
    /// Seconds within which it must open its session.
    #[n(0)]
    pub seconds: u32,
}

/// A session was opened.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Welcome {
    /// Name and version of the software.
    #[n(1)]
    pub software: String,
    /// Capabilities of the acceptor.
    #[n(2)]
    pub capabilities: Vec<Capability>,
    /// The session.
    #[n(3)]
    pub session: SessionId,
    /// What further streams join with.
    #[n(4)]
    pub secret: Secret,
    /// Counts the sessions of this transfer; acknowledgements carry it.
    #[n(5)]
    pub epoch: u64,
    /// Nothing is there yet: no entry needs to be asked for.
    #[n(6)]
    pub destination_empty: bool,
    /// Streams in clear are granted.
    #[n(7)]
    pub clear: bool,
    /// Most streams of a session.
    #[n(8)]
    pub maximum_streams: u32,
    /// Seconds that the session outlives its last stream.
    #[n(9)]
    pub linger_seconds: u32,
    /// A sending acceptor has one file, not a tree.
    #[n(11)]
    pub single_file: bool,
    /// Large files that a receiving acceptor can have open; 0 where it does not
    /// say.
    #[n(12)]
    pub large_files: u32,
    /// The acceptor's host as JSON, where the request asked for it and the principal may
    /// measure.
    #[n(13)]
    pub host: Option<String>,
    /// Congestion control of a sending acceptor, by its kernel's name; `None` if unknown.
    #[n(14)]
    pub congestion: Option<String>,
}

/// A stream joined.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Joined {
    /// Control messages received so far.
    #[n(0)]
    pub received: u64,
}

/// Why a stream was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Refusal {
    /// Another version of the protocol.
    #[n(0)]
    Version,
    /// No such principal, wrong token or certificate.
    #[n(1)]
    Credential,
    /// The principal may not do this, or there is no such path for it.
    #[n(2)]
    Forbidden,
    /// No such session (any more), or a wrong secret.
    #[n(3)]
    NoSession,
    /// Too many sessions or streams.
    #[n(4)]
    Busy,
    /// The request makes no sense.
    #[n(5)]
    Malformed,
    /// The destination or a source cannot be opened.
    #[n(6)]
    Path,
    /// Clear streams are not allowed here.
    #[n(7)]
    Clear,
    /// Another host cannot be connected to from here.
    #[n(8)]
    Unreachable,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Refused {
    /// Why.
    #[n(0)]
    pub refusal: Refusal,
    /// In words, with the remedy.
    #[n(1)]
    pub text: String,
    /// A newer request of the same transfer came: this one is not to be tried again.
    #[n(3)]
    pub superseded: bool,
}

impl Request {
    /// Returns the capability that both ends need for the codec, if any.
    pub fn needed(&self) -> Option<Capability> {
        match self.codec {
            Codec::Zstd { .. } => Some(Capability::Zstd),
            Codec::Lz4 => Some(Capability::Lz4),
            Codec::Plain | Codec::Omitted => None,
        }
    }

    /// Whether files may go through a command as this says.
    fn has_valid_filter(&self) -> bool {
        let is_valid = self
            .filter
            .as_ref()
            .is_none_or(|command| command.is_valid());
        let fits = self.operation != Operation::Verify
            && !self.paired
            && !self.compares_contents()
            && !self.criteria.size_only;
        let at_one_end = !self.filtered || self.role == Role::Sender && self.filter.is_none();
        is_valid && at_one_end && (fits || self.filter.is_none() && !self.filtered)
    }

    /// Whether the end that is asked has in attributes what only a superuser may give.
    pub fn fakes(&self) -> bool {
        let keeping = self.keeping.as_deref();
        keeping.is_some_and(|keeping| keeping.as_attribute)
    }

    /// Whether files that are there are compared by their contents too.
    fn compares_contents(&self) -> bool {
        let wanted = self.verify_written || self.moves_away;
        let wanted = wanted || self.digests && !self.kept_digests_only;
        let copies = wanted && self.operation == Operation::Copy;
        (copies || self.criteria.checksum) && self.integrity == Integrity::Digest
    }

    /// What headers of blocks are proved with; none without streams in clear.
    pub fn header_key(&self) -> Option<HeaderKey> {
        self.block_key.map(HeaderKey::new)
    }

    /// Whether every number is within its range.
    pub fn is_valid(&self) -> bool {
        let paths = match self.role {
            Role::Sender => self.paths.len() == 1,
            Role::Receiver => (1..=MAXIMUM_SOURCES).contains(&self.paths.len()),
        };
        let block = self.block_bytes as usize;
        let selection = self.selection.as_ref();
        let keeping = self.keeping.as_deref().cloned();
        paths
            && keeping.is_none_or(|keeping| keeping.read().is_ok())
            && selection.is_none_or(|selection| self.role == Role::Receiver && selection.is_valid())
            && self.criteria.is_valid()
            // What was deleted for it would be what was moved.
            && !(self.moves_away && self.deletion.is_some())
            && !(self.moves_away && self.integrity == Integrity::Checksum)
            && self.deletion.as_ref().is_none_or(|deletion| {
                let names_only = !deletion.excluded && deletion.maximum.is_none();
                self.recursive
                    && (names_only || self.operation != Operation::Verify)
                    && deletion.is_valid()
            })
            && self.backup.as_ref().is_none_or(|backup| {
                self.operation != Operation::Verify && backup.is_valid()
            })
            && self.has_valid_filter()
            && self.on_commit.as_ref().is_none_or(|command| {
                self.role == Role::Sender
                    && self.operation == Operation::Copy
                    && command.is_valid()
                    && !self.paired
            })
            && self.clear == self.block_key.is_some()
            && block.is_power_of_two()
            && (crate::digest::SMALLEST_BLOCK_BYTES as usize..=crate::block::LARGEST_BLOCK_BYTES)
                .contains(&block)
            && self.checkpoint_bytes > 0
            && (1..=3_600_000).contains(&self.checkpoint_milliseconds)
            && [0, 1, 2, 4, 8].contains(&self.element_bytes)
            && (self.codec == Codec::Plain || !self.automatic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_known_whatever_follows_it() {
        #[derive(Encode)]
        #[cbor(map)]
        struct Later {
            #[n(0)]
            version: u32,
            #[n(1)]
            software: String,
            #[n(3)]
            purpose: [bool; 2],
        }
        let later = |version| {
            let software = "longhaul 9".to_owned();
            let purpose = [true, false];
            minicbor::to_vec(Later {
                version,
                software,
                purpose,
            })
            .unwrap()
        };
        match minicbor::decode(&later(PROTOCOL_VERSION + 1)).unwrap() {
            Heard::Other(spoken) => {
                assert_eq!(spoken.version, PROTOCOL_VERSION + 1);
                assert_eq!(spoken.software, "longhaul 9");
            }
            Heard::Same(hello) => panic!("{hello:?}"),
        }
        assert!(minicbor::decode::<Heard>(&later(PROTOCOL_VERSION)).is_err());
    }

    #[test]
    fn names_in_control_requests_are_names_alone() {
        let valid = |what| {
            let credential = None;
            ControlRequest { credential, what }.is_valid()
        };
        let tasks = |name: &str| [Task::Attach(name.into()), Task::Channel(name.into())];
        for name in ["0a1b2c3d", &"f".repeat(64)] {
            assert!(tasks(name).into_iter().all(valid), "{name}");
        }
        for name in ["", "..", "../x", "a/b", "a\0", "é", &"f".repeat(65)] {
            assert!(!tasks(name).into_iter().any(valid), "{name}");
        }
        assert!(valid(Task::DriveThrough));
    }

    #[test]
    fn secrets_are_not_printed() {
        let credential = Credential {
            principal: "a".into(),
            token: Some("hidden".into()),
        };
        assert!(!format!("{credential:?}").contains("hidden"));
    }
}
