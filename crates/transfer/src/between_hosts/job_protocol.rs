//! Defines the messages between a job and its followers, as frames of the protocol's handshake (at
//! most 64 KiB each); see `FORMAT.md`. A job's files hold the same frames.

use std::io::{self, Read, Write};

use longhaul_proto::allowed::Allowed;
use longhaul_proto::frame::{self, FrameError, FrameHeader, FrameKind, HEADER_BYTES};
use longhaul_units::rfc3339;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::rate_limit::LEAST_RATE;

/// Maximum number of bytes of output in one message.
pub const MAXIMUM_OUTPUT_BYTES: usize = 32 << 10;

/// Maximum length of the name of a host or endpoint, in bytes.
pub const MAXIMUM_NAME_BYTES: usize = 4096;

/// Maximum length of other texts, in bytes.
const MAXIMUM_TEXT_BYTES: usize = 16 << 10;

/// Maximum value of [`Follow::alive_seconds`].
pub const LONGEST_ALIVE_SECONDS: u32 = 3600;

/// Number of hexadecimal digits of a job's name.
const NAME_DIGITS: usize = 8;

/// A message to a job.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Order {
    /// Begin the job.
    #[n(0)]
    Begin(#[n(0)] Begin),
    /// Send the job's output so far, and its further output.
    #[n(1)]
    Follow(#[n(0)] Follow),
    /// End the job. Durable data stay.
    #[n(2)]
    Cancel,
    /// Limit the job to this many bytes per second from now on; 0: no limit.
    #[n(3)]
    Limit(#[n(0)] u64),
    /// The requests that the introduced host may make. Sent to the other host, which runs no job.
    #[n(4)]
    Allow(#[n(0)] Allowed),
    /// Describe the job as it is now. The answer is one Listed, and then the end of the channel.
    #[n(5)]
    Describe,
}

/// Everything that a host needs to begin a job.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Begin {
    /// Operation of the job: a `TransferSpec` as JSON.
    #[n(0)]
    pub spec: String,
    /// The source as the user named it.
    #[n(1)]
    pub from: String,
    /// The destination as the user named it.
    #[n(2)]
    pub to: String,
    /// Way to the other host.
    #[n(3)]
    pub reach: Reach,
    /// Name that the user gave to the host that runs the job.
    #[n(4)]
    pub host: String,
    /// The file for the digests of all files, as the user named it.
    #[n(5)]
    pub manifest: Option<String>,
    /// Output of the job.
    #[n(6)]
    pub shown: Shown,
    /// True if the job compares and copies nothing.
    #[n(7)]
    pub compares: bool,
    /// File in which a job of this host reports the result of each entry, for programs. No other
    /// host receives it.
    #[n(8)]
    pub report: Option<ByteVec>,
    /// File in which a job of this host reports the result of each entry, for people.
    #[n(9)]
    pub log: Option<ByteVec>,
}

/// Selects the texts that a job writes to its standard output and error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Shown {
    /// If true, writes events for programs instead of a summary.
    #[n(0)]
    pub json: bool,
    /// If true, writes failures only.
    #[n(1)]
    pub quiet: bool,
    /// If true, also writes names, layers, wire bytes and decisions.
    #[n(2)]
    pub verbose: bool,
    /// If true, writes the forecast before the copy, and compares it with the result.
    #[n(3)]
    pub explain: bool,
}

/// Way of a job to its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Reach {
    /// A direct connection, opened by either of the two hosts.
    #[n(0)]
    Direct,
    /// Channels that the client carries.
    #[n(1)]
    Through,
    /// A direct connection to a daemon that accepts this end's key.
    #[n(2)]
    Daemon,
    /// Channels that the client carries to a daemon. This end speaks TLS with the daemon within
    /// them.
    #[n(3)]
    Sealed,
}

/// Output that a follower has already, and the output that it requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Follow {
    /// Number of bytes of standard output that the follower has.
    #[n(0)]
    pub output: u64,
    /// Number of bytes of standard error that the follower has.
    #[n(1)]
    pub errors: u64,
    /// Form in which the follower receives progress.
    #[n(2)]
    pub progress: ShownProgress,
    /// If true, requests the manifest, if there is one.
    #[n(3)]
    pub manifest: bool,
    /// Seconds of silence after which the job sends [`JobEvent::Alive`], at most
    /// [`LONGEST_ALIVE_SECONDS`]; 0: never.
    #[n(4)]
    pub alive_seconds: u32,
}

/// Form in which progress is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ShownProgress {
    /// No progress.
    #[n(0)]
    None,
    /// A line for a terminal.
    #[n(1)]
    Line,
    /// An event for programs.
    #[n(2)]
    Json,
}

/// An output of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Channel {
    /// Standard output.
    #[n(0)]
    Output,
    /// Standard error.
    #[n(1)]
    Errors,
    /// The manifest.
    #[n(2)]
    Manifest,
    /// The file of names that a manifest cannot represent.
    #[n(3)]
    RawManifest,
}

/// A message from a job, or about one.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum JobEvent {
    /// The name of the new job. The job will continue without its client once it runs.
    #[n(0)]
    Named(#[n(0)] String),
    /// The session is open.
    #[n(1)]
    Running,
    /// Output of the job: the channel, the offset in it, the bytes.
    #[n(2)]
    Output(
        #[n(0)] Channel,
        #[n(1)] u64,
        #[cbor(n(2), with = "minicbor::bytes")] Vec<u8>,
    ),
    /// Progress of the job. A newer message replaces an older one.
    #[n(3)]
    Progress(#[n(0)] String),
    /// The job has ended with this exit code.
    #[n(4)]
    Ended(#[n(0)] u8),
    /// A description of one job of this host.
    #[n(5)]
    Listed(#[n(0)] Listed),
    /// The request failed: the reason, and the exit code if it is known.
    #[n(6)]
    Failed(#[n(0)] String, #[n(1)] Option<u8>),
    /// This user has no job of that name.
    #[n(7)]
    Absent,
    /// The job runs and has no news.
    #[n(8)]
    Alive,
}

/// Description of a job in a list.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Listed {
    /// Name of the job.
    #[n(0)]
    pub name: String,
    /// Name of the host that runs the job, as the host names itself. In the records of the host
    /// that started the job: the host as ssh reaches it.
    #[n(1)]
    pub host: String,
    /// The source as the user named it.
    #[n(2)]
    pub from: String,
    /// The destination as the user named it.
    #[n(3)]
    pub to: String,
    /// Time at which the job began, in seconds since 1970.
    #[n(4)]
    pub began: u64,
    /// State of the job.
    #[n(5)]
    pub state: State,
    /// True if the job compares and copies nothing.
    #[n(6)]
    pub compares: bool,
    /// Number of bytes of files that are durable at the destination, including bytes that were
    /// there before. `None` if the job was killed or has not begun.
    #[n(7)]
    pub done_bytes: Option<u64>,
    /// Rate limit of a running job, in bytes per second; `None`: no limit.
    #[n(8)]
    pub bwlimit_bytes_per_second: Option<u64>,
}

impl Listed {
    /// Formats the time at which the job began, in UTC. Times after the year 9999 are capped.
    pub fn began_at(&self) -> String {
        const LAST: u64 = 253_402_300_799;
        rfc3339(self.began.min(LAST).cast_signed())
    }

    /// Returns the name of the job's command.
    pub fn command(&self) -> &'static str {
        if self.compares { "verify" } else { "cp" }
    }
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum State {
    /// The job runs.
    #[n(0)]
    Running,
    /// The job ended with this exit code.
    #[n(1)]
    Ended(#[n(0)] u8),
    /// The job was killed.
    #[n(2)]
    Lost,
    /// Another host, which shares this directory, runs the job; `host` names it.
    #[n(3)]
    Elsewhere,
}

/// True if the text is a valid job name, which is safe in paths and command lines.
pub fn is_name(text: &str) -> bool {
    let digits = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == NAME_DIGITS && text.bytes().all(digits)
}

/// Formats random bytes as a job's name.
pub fn name_of(random: [u8; NAME_DIGITS / 2]) -> String {
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A message with a check of its limits.
pub trait JobMessage: Encode<()> + for<'b> Decode<'b, ()> {
    /// Returns true if every length is within its range.
    fn is_valid(&self) -> bool;
}

impl JobEvent {
    /// Creates a failure with its exit code, if known. A text that is too long is truncated.
    pub fn failed(text: &str, code: Option<u8>) -> JobEvent {
        let end = text.floor_char_boundary(MAXIMUM_TEXT_BYTES);
        JobEvent::Failed(text[..end].to_owned(), code)
    }
}

impl JobMessage for Order {
    fn is_valid(&self) -> bool {
        match self {
            Order::Begin(begin) => {
                let names = [&begin.from, &begin.to, &begin.host].into_iter();
                let mut names = names.chain(&begin.manifest);
                let named = names.all(|name| name.len() <= MAXIMUM_NAME_BYTES);
                let mut files = begin.report.iter().chain(&begin.log);
                let fit = files.all(|file| file.len() <= MAXIMUM_NAME_BYTES);
                named && fit && !begin.spec.is_empty()
            }
            Order::Limit(rate) => *rate == 0 || *rate >= LEAST_RATE,
            Order::Allow(allowed) => allowed.is_valid(),
            Order::Follow(follow) => follow.alive_seconds <= LONGEST_ALIVE_SECONDS,
            Order::Cancel | Order::Describe => true,
        }
    }
}

impl JobMessage for JobEvent {
    fn is_valid(&self) -> bool {
        match self {
            JobEvent::Named(name) => is_name(name),
            JobEvent::Running | JobEvent::Ended(_) | JobEvent::Absent | JobEvent::Alive => true,
            JobEvent::Output(_, at, bytes) => {
                let end = at.checked_add(bytes.len() as u64);
                bytes.len() <= MAXIMUM_OUTPUT_BYTES && end.is_some()
            }
            JobEvent::Progress(text) | JobEvent::Failed(text, _) => {
                text.len() <= MAXIMUM_TEXT_BYTES
            }
            JobEvent::Listed(listed) => {
                let names = [&listed.host, &listed.from, &listed.to];
                is_name(&listed.name) && names.iter().all(|name| name.len() <= MAXIMUM_NAME_BYTES)
            }
        }
    }
}

fn invalid(error: &FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Encodes a message as a frame.
///
/// # Errors
///
/// Fails if a length is out of its range or the frame is too long.
pub fn frame_of<T: JobMessage>(message: &T) -> io::Result<Vec<u8>> {
    if !message.is_valid() {
        return Err(invalid(&FrameError::Unexpected("a value out of its range")));
    }
    frame::encode(FrameKind::Handshake, message, 0).map_err(|error| invalid(&error))
}

/// Sends a message.
///
/// # Errors
///
/// The same as [`frame_of`], and errors of the write.
pub fn send<T: JobMessage>(mut to: impl Write, message: &T) -> io::Result<()> {
    to.write_all(&frame_of(message)?)
}

/// Receives the next message; `None` if the other end closed the channel between two messages.
///
/// # Errors
///
/// Fails if the channel cannot be read, or if the message is invalid. The channel cannot be used
/// after an error.
pub fn receive<T: JobMessage>(mut from: impl Read) -> io::Result<Option<T>> {
    let mut bytes = [0; HEADER_BYTES];
    if !fill(&mut from, &mut bytes)? {
        return Ok(None);
    }
    let header = FrameHeader::parse(&bytes).map_err(|error| invalid(&error))?;
    if header.kind != FrameKind::Handshake {
        return Err(invalid(&FrameError::Unexpected("a frame of a session")));
    }
    let mut body = vec![0; header.body];
    from.read_exact(&mut body)?;
    let received: T = header.decode(&body).map_err(|error| invalid(&error))?;
    if received.is_valid() {
        Ok(Some(received))
    } else {
        Err(invalid(&FrameError::Unexpected("a value out of its range")))
    }
}

/// Fills a buffer; returns false if the stream ended before its first byte.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Listed {
        Listed {
            name: "0a1b2c3d".into(),
            host: "dtn7".into(),
            from: "a:x".into(),
            to: "b:y".into(),
            began: 7,
            state: State::Ended(2),
            compares: true,
            done_bytes: Some(5),
            bwlimit_bytes_per_second: Some(LEAST_RATE),
        }
    }

    #[test]
    fn written_messages_are_received() {
        let told = [
            JobEvent::Named("0a1b2c3d".into()),
            JobEvent::Running,
            JobEvent::Output(Channel::Errors, 3, b"\xff".to_vec()),
            JobEvent::Progress("half".into()),
            JobEvent::Ended(130),
            JobEvent::Listed(listed()),
            JobEvent::Failed("no".into(), Some(4)),
            JobEvent::failed(&"é".repeat(MAXIMUM_TEXT_BYTES), None),
            JobEvent::Absent,
            JobEvent::Alive,
        ];
        let mut channel = Vec::new();
        for message in &told {
            send(&mut channel, message).unwrap();
        }
        let mut channel = channel.as_slice();
        for message in &told {
            assert_eq!(receive(&mut channel).unwrap().as_ref(), Some(message));
        }
        assert_eq!(receive::<JobEvent>(&mut channel).unwrap(), None);
    }

    #[test]
    fn messages_out_of_range_are_neither_sent_nor_received() {
        let bad = [
            JobEvent::Named("../../x".into()),
            JobEvent::Output(Channel::Output, u64::MAX, vec![0]),
            JobEvent::Output(Channel::Output, 0, vec![0; MAXIMUM_OUTPUT_BYTES + 1]),
            JobEvent::Listed(Listed {
                name: String::new(),
                ..listed()
            }),
        ];
        for message in bad {
            assert!(send(Vec::new(), &message).is_err(), "{message:?}");
            let frame = frame::encode(FrameKind::Handshake, &message, 0).unwrap();
            assert!(
                receive::<JobEvent>(frame.as_slice()).is_err(),
                "{message:?}"
            );
        }
        for rate in [1, LEAST_RATE - 1] {
            assert!(frame_of(&Order::Limit(rate)).is_err(), "{rate}");
        }
        for rate in [0, LEAST_RATE, u64::MAX] {
            assert!(frame_of(&Order::Limit(rate)).is_ok(), "{rate}");
        }
    }

    #[test]
    fn half_a_frame_is_an_error() {
        let frame = frame_of(&JobEvent::Running).unwrap();
        for length in 1..frame.len() {
            assert!(receive::<JobEvent>(&frame[..length]).is_err(), "{length}");
        }
    }
}
