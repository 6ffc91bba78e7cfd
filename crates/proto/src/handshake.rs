//! Opens and joins sessions. The dialing end, the TLS server and the direction of data are chosen
//! independently: the dialer's [`Hello`] says which end of the session it is.
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
use crate::block::HeaderKey;
pub use crate::coding::Capability;
use crate::command::FileCommand;
use crate::listing::{ListRequest, Listed};
pub use crate::options::Operation;
use crate::options::{Stack, TransferOptions};
pub use crate::secret::Secret;

// tidy: long file because it is the one list of what opens and joins a session.

/// Version of the protocol, equal at both ends of a session.
pub const PROTOCOL_VERSION: u32 = 1;

/// Maximum number of sources in one request.
pub const MAXIMUM_SOURCES: usize = 4096;

/// Default for [`Request::checkpoint_bytes`].
pub const USUAL_CHECKPOINT_BYTES: u64 = 256 << 20;

/// Default for [`Request::checkpoint_milliseconds`].
pub const USUAL_CHECKPOINT_MILLISECONDS: u64 = 1000;

/// Number of a session, chosen by its acceptor at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct SessionId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

/// Identity that the dialer claims.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Credential {
    /// Name of a principal of the acceptor.
    #[n(0)]
    pub principal: String,
    /// The principal's token; `None` if the TLS certificate is the proof.
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
    /// Name and version of the software, shown in messages.
    #[n(1)]
    pub software: String,
    /// Capabilities of the dialer.
    #[n(2)]
    pub capabilities: Vec<Capability>,
    /// Purpose of the stream.
    #[n(3)]
    pub purpose: Purpose,
}

/// A decoded first frame. If its protocol version differs, only the version and the software are
/// read.
#[derive(Debug)]
pub enum Heard {
    /// The version is [`PROTOCOL_VERSION`].
    Same(Hello),
    /// The version differs.
    Other(Spoken),
}

/// The fields at the start of a [`Hello`] that are the same in every version.
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

/// Purpose of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Purpose {
    /// Opens a new session.
    #[n(0)]
    Open(#[n(0)] Box<Request>),
    /// Adds a stream to a session.
    #[n(1)]
    Join(#[n(0)] Join),
    /// Lists a path at the acceptor without a session. The stream then ends.
    #[n(4)]
    List(#[n(0)] ListRequest),
    /// Allows another host to join as the same principal.
    #[n(2)]
    Vouch(#[n(0)] Vouch),
    /// Asks the acceptor for a task outside any session.
    #[n(5)]
    ControlRequest(#[n(0)] ControlRequest),
}

/// Maximum length of a host name in bytes, as in DNS.
const MAXIMUM_HOST_BYTES: usize = 253;

/// Maximum length in bytes of the name of a job or of the name under which a job takes channels.
const MAXIMUM_JOB_BYTES: usize = 64;

/// Requests a task outside any session.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ControlRequest {
    /// Identity of the dialer.
    #[n(0)]
    pub credential: Option<Credential>,
    /// Requested task.
    #[n(1)]
    pub what: Task,
}

/// Task of the acceptor. After the answer, the stream becomes the task's channel, except for
/// [`Task::Reach`]. The channel carries bytes in both directions until either end closes it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Task {
    /// Runs a job with another daemon, to which the client introduces this one.
    #[n(0)]
    Drive,
    /// Connects the channel to the principal's job of this name.
    #[n(1)]
    Attach(#[n(0)] String),
    /// Lists the principal's jobs.
    #[n(2)]
    Jobs,
    /// Tests if the acceptor can connect to another daemon.
    #[n(3)]
    Reach(#[n(0)] Target),
    /// Runs a job with another daemon through channels that the client carries. The acceptor itself
    /// connects to no host.
    #[n(4)]
    DriveThrough,
    /// Becomes a channel to the other end of the principal's job that takes channels under this
    /// name.
    #[n(5)]
    Channel(#[n(0)] String),
}

/// Another daemon.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Target {
    /// Host name, 1 to 253 bytes.
    #[n(0)]
    pub host: String,
    /// Port, 1 to 65535.
    #[n(1)]
    pub port: u16,
    /// SHA-256 of the daemon's public key. A host with another key is rejected.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub key: [u8; 32],
}

impl ControlRequest {
    /// True if every length is within its range.
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

/// Asks the acceptor to admit another host, which proves itself with the certificate of this key
/// and may open one session.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Vouch {
    /// Identity of the dialer.
    #[n(0)]
    pub credential: Option<Credential>,
    /// SHA-256 of the public key of the other host's certificate.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub key: [u8; 32],
    /// The session that the other host may open; `None` for any session.
    #[n(2)]
    pub allowed: Option<Allowed>,
}

/// Joins a session.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Join {
    /// Session to join.
    #[n(0)]
    pub session: SessionId,
    /// Proof that the dialer may join.
    #[n(1)]
    pub secret: Secret,
    /// Number of the stream within the session. A number is never reused.
    #[n(2)]
    pub stream: u32,
    /// Number of control messages that the dialer has received.
    #[n(3)]
    pub received: u64,
}

/// The dialer's end of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Role {
    /// The dialer has the sources.
    #[n(0)]
    Sender,
    /// The dialer has the destination.
    #[n(1)]
    Receiver,
}

/// Place and name of a single source without a trailing slash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Landing {
    /// Inside the destination, a directory that is created if it is missing.
    #[default]
    #[n(0)]
    Within,
    /// Inside the destination if that is a directory. Otherwise the single file gets the
    /// destination's name.
    #[n(1)]
    WithinOrAs,
    /// Under the destination's name, even if that is a directory.
    #[n(2)]
    As,
}

/// Settings of a new session.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Request {
    /// Identity of the dialer.
    #[n(0)]
    pub credential: Option<Credential>,
    /// The dialer's end of the session.
    #[n(1)]
    pub role: Role,
    /// Options of the transfer that concern the acceptor.
    #[n(2)]
    pub options: Box<TransferOptions>,
    /// Paths at the acceptor: at most [`MAXIMUM_SOURCES`] sources if it sends, otherwise one
    /// destination.
    #[n(3)]
    pub paths: Vec<RequestPath>,
    /// Place and name of a single source.
    #[n(4)]
    pub landing: Landing,
    /// Hash of the sending host and its sources. It distinguishes a restarted transfer from
    /// another transfer.
    #[cbor(n(5), with = "minicbor::bytes")]
    pub source: [u8; 32],
    /// Hash of the sources, equal on every host that sees them, so that this session takes over
    /// the leftovers of a dead session of the same transfer from another host. `None` if no other
    /// host sees the sources.
    #[n(6)]
    pub anywhere: Option<minicbor::bytes::ByteArray<32>>,
    /// Block size in bytes, a power of two.
    #[n(7)]
    pub block_bytes: u32,
    /// Distribution of the acceptor's threads over its layers.
    #[n(8)]
    pub stack: Stack,
    /// Key that authenticates block headers on streams in clear; `None` if streams in clear are
    /// not requested.
    #[n(9)]
    pub block_key: Option<Secret>,
    /// Received bytes after which the receiver makes them durable and reports them.
    #[n(10)]
    pub checkpoint_bytes: u64,
    /// Time after which the receiver makes received bytes durable, in milliseconds (1 to
    /// 3,600,000).
    #[n(11)]
    pub checkpoint_milliseconds: u64,
    /// True if a receiving dialer knows that its destination is empty.
    #[n(12)]
    pub destination_empty: bool,
    /// Names that a sending dialer puts directly into the destination; `None` if it fills the
    /// destination with the contents of a directory.
    #[n(13)]
    pub names: Option<Vec<minicbor::bytes::ByteVec>>,
    /// Number of large files that a receiving dialer can keep open; 0 if unspecified.
    #[n(14)]
    pub large_files: u32,
    /// Maximum rate of all streams of a sending acceptor together, in bytes per second; `None` for
    /// no limit.
    #[n(15)]
    pub limit: Option<u64>,
    /// True if the acceptor should describe its host in its [`Welcome`].
    #[n(16)]
    pub wants_host: bool,
    /// Milliseconds since the dialer's first attempt, if the acceptor refused it because it was
    /// busy; 0 in the first attempt.
    #[n(17)]
    pub waited_milliseconds: u64,
}

/// A path at the acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum RequestPath {
    /// Absolute path, as in the URL, resolved beneath a root.
    #[n(0)]
    Path(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>),
    /// A generated file of this many zero bytes.
    #[n(1)]
    Zero(#[n(0)] u64),
    /// Destination that discards all data.
    #[n(2)]
    Null,
    /// Destination file that receives one stream of bytes (see [`crate::stream`]).
    #[n(3)]
    Stream(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>),
}

/// Answer of the acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Answer {
    /// A session was opened.
    #[n(0)]
    Welcome(#[n(0)] Welcome),
    /// The stream joined.
    #[n(1)]
    Joined(#[n(0)] Joined),
    /// The request was refused.
    #[n(2)]
    Refused(#[n(0)] Refused),
    /// A part of a listing. Several such answers follow each other.
    #[n(4)]
    Listed(#[n(0)] Listed),
    /// The acceptor will admit the other host.
    #[n(3)]
    Vouched(#[n(0)] Vouched),
    /// A control request was started or is done.
    #[n(5)]
    Begun,
}

/// Answer to [`Vouch`]: the acceptor will admit the other host.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Vouched {
    /// Seconds within which the other host must open its session.
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
    /// Number of the session.
    #[n(3)]
    pub session: SessionId,
    /// Secret with which further streams join.
    #[n(4)]
    pub secret: Secret,
    /// Number of this session among those of the transfer. Acknowledgements carry it.
    #[n(5)]
    pub epoch: u64,
    /// True if the destination is empty, so that the sender need not ask about entries.
    #[n(6)]
    pub destination_empty: bool,
    /// True if streams in clear are granted.
    #[n(7)]
    pub clear: bool,
    /// Maximum number of streams of a session.
    #[n(8)]
    pub maximum_streams: u32,
    /// Time that the session outlives its last stream, in seconds.
    #[n(9)]
    pub linger_seconds: u32,
    /// True if the source of a sending acceptor is a single file, not a tree.
    #[n(11)]
    pub single_file: bool,
    /// Number of large files that a receiving acceptor can keep open; 0 if unspecified.
    #[n(12)]
    pub large_files: u32,
    /// Description of the acceptor's host as JSON, if requested and if the principal may measure.
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
    /// Number of control messages that the acceptor has received.
    #[n(0)]
    pub received: u64,
}

/// Reason to refuse a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Refusal {
    /// The protocol versions differ.
    #[n(0)]
    Version,
    /// The principal is unknown, or the token or certificate is wrong.
    #[n(1)]
    Credential,
    /// The principal lacks the permission, or has no such path.
    #[n(2)]
    Forbidden,
    /// The session is unknown or over, or the secret is wrong.
    #[n(3)]
    NoSession,
    /// There are too many sessions or streams.
    #[n(4)]
    Busy,
    /// The request is invalid.
    #[n(5)]
    Malformed,
    /// The destination or a source cannot be opened.
    #[n(6)]
    Path,
    /// Clear streams are not allowed here.
    #[n(7)]
    Clear,
    /// The acceptor cannot connect to the other host.
    #[n(8)]
    Unreachable,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Refused {
    /// Reason.
    #[n(0)]
    pub refusal: Refusal,
    /// Explanation with the remedy.
    #[n(1)]
    pub text: String,
    /// True if a newer request of the same transfer arrived, so that the dialer must not retry.
    #[n(3)]
    pub superseded: bool,
}

impl Request {
    /// Creates a request with these options, and with default settings.
    pub fn new(role: Role, paths: Vec<RequestPath>, options: TransferOptions) -> Request {
        Request {
            credential: None,
            role,
            options: Box::new(options),
            paths,
            landing: Landing::default(),
            source: [0; 32],
            anywhere: None,
            block_bytes: 1 << 20,
            stack: Stack::default(),
            block_key: None,
            checkpoint_bytes: USUAL_CHECKPOINT_BYTES,
            checkpoint_milliseconds: USUAL_CHECKPOINT_MILLISECONDS,
            destination_empty: false,
            names: None,
            large_files: 0,
            limit: None,
            wants_host: false,
            waited_milliseconds: 0,
        }
    }

    /// True if streams in clear are requested.
    pub fn is_clear(&self) -> bool {
        self.block_key.is_some()
    }

    /// Returns the key that authenticates block headers; `None` without streams in clear.
    pub fn header_key(&self) -> Option<HeaderKey> {
        self.block_key.map(HeaderKey::new)
    }

    /// True if every value is within its range and the settings are compatible.
    pub fn is_valid(&self) -> bool {
        let paths = match self.role {
            Role::Sender => self.paths.len() == 1,
            Role::Receiver => (1..=MAXIMUM_SOURCES).contains(&self.paths.len()),
        };
        let block = self.block_bytes as usize;
        let options = &self.options;
        let commands = [&options.on_commit, &options.filter_command];
        let has_command = commands.into_iter().any(Option::is_some);
        paths
            && options.is_valid()
            && (self.role == Role::Sender || options.on_commit.is_none())
            && (self.role == Role::Receiver || options.filter.is_everything())
            && (self.role == Role::Sender
                || options
                    .filter_command
                    .as_ref()
                    .is_none_or(FileCommand::is_valid))
            && !(has_command && self.stack == Stack::Paired)
            && block.is_power_of_two()
            && (crate::digest::SMALLEST_BLOCK_BYTES as usize..=crate::block::LARGEST_BLOCK_BYTES)
                .contains(&block)
            && self.checkpoint_bytes > 0
            && (1..=3_600_000).contains(&self.checkpoint_milliseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::FilterAt;

    #[test]
    fn another_version_is_recognised_before_any_other_field() {
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
    fn names_in_control_requests_contain_no_path() {
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

    /// The command line of a filter stays at an end that runs it and begins the session.
    #[test]
    fn only_an_end_that_writes_needs_no_filter_command() {
        let request = |role, command: &[u8]| {
            let options = TransferOptions {
                filter_at: FilterAt::Source,
                filter_command: Some(FileCommand {
                    command: command.into(),
                    jobs: 1,
                    milliseconds: 1,
                }),
                ..TransferOptions::default()
            };
            let path = RequestPath::Path(b"/data".to_vec());
            Request::new(role, vec![path], options).is_valid()
        };
        assert!(request(Role::Sender, b""));
        assert!(request(Role::Receiver, b"gzip"));
        assert!(!request(Role::Receiver, b""));
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
