//! The messages between a job and its followers, as frames of the protocol's
//! handshake (at most 64 KiB each); see `FORMAT.md`. A job's files hold the same frames.

use std::io::{self, Read, Write};

use longhaul_proto::allowed::Allowed;
use longhaul_proto::frame::{self, FrameError, FrameHeader, FrameKind, HEADER_BYTES};
use longhaul_units::rfc3339;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::rate_limit::LEAST_RATE;

/// Bytes of output in one message, at most.
pub const MAXIMUM_OUTPUT_BYTES: usize = 32 << 10;

/// The longest name of a host or endpoint, in bytes.
pub const MAXIMUM_NAME_BYTES: usize = 4096;

/// The longest other text, in bytes.
const MAXIMUM_TEXT_BYTES: usize = 16 << 10;

/// The longest time after which a job may be asked to say that it is there, in seconds.
pub const LONGEST_ALIVE_SECONDS: u32 = 3600;

/// Digits of a job's name.
const NAME_DIGITS: usize = 8;

/// A message to a job.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Order {
    /// Begin it.
    #[n(0)]
    Begin(#[n(0)] Begin),
    /// Send its output so far, and what comes.
    #[n(1)]
    Follow(#[n(0)] Follow),
    /// End it; what is durable stays.
    #[n(2)]
    Cancel,
    /// Limit it to this many bytes per second from now on; 0: no limit.
    #[n(3)]
    Limit(#[n(0)] u64),
    /// What the introduced host may ask for; goes to the other host, which runs no job.
    #[n(4)]
    Allow(#[n(0)] Allowed),
    /// Describe the job as it is now: one Listed, and then the end of the channel.
    #[n(5)]
    Describe,
}

/// A job to begin.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Begin {
    /// What it does: a `TransferSpec` as JSON.
    #[n(0)]
    pub spec: String,
    /// The source as the user named it.
    #[n(1)]
    pub from: String,
    /// The destination as the user named it.
    #[n(2)]
    pub to: String,
    /// How the other host is reached.
    #[n(3)]
    pub reach: Reach,
    /// What the user calls the host that runs it.
    #[n(4)]
    pub host: String,
    /// The file for the digests of all files, as the user named it.
    #[n(5)]
    pub manifest: Option<String>,
    /// What it tells.
    #[n(6)]
    pub shown: Shown,
    /// It compares and copies nothing.
    #[n(7)]
    pub compares: bool,
    /// Where a job of this host writes what became of each entry, for programs. No other host
    /// receives it.
    #[n(8)]
    pub report: Option<ByteVec>,
    /// The same for people.
    #[n(9)]
    pub log: Option<ByteVec>,
}

/// What a job tells on its standard output and error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Shown {
    /// Events for programs instead of a summary.
    #[n(0)]
    pub json: bool,
    /// Failures alone.
    #[n(1)]
    pub quiet: bool,
    /// Names, layers, wire and decisions too.
    #[n(2)]
    pub verbose: bool,
    /// The forecast before the copy, and the comparison with the outcome after it.
    #[n(3)]
    pub explain: bool,
}

/// How a job reaches its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Reach {
    /// Directly, from either of the two.
    #[n(0)]
    Direct,
    /// Over channels that the client carries.
    #[n(1)]
    Through,
    /// It is a daemon that was told this end's key.
    #[n(2)]
    Daemon,
    /// The same, over channels that the client carries there: within them this end speaks TLS with
    /// it.
    #[n(3)]
    Sealed,
}

/// What a follower has already, and wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Follow {
    /// Bytes of standard output that it has.
    #[n(0)]
    pub output: u64,
    /// Bytes of standard error that it has.
    #[n(1)]
    pub errors: u64,
    /// How it sees progress.
    #[n(2)]
    pub progress: ShownProgress,
    /// It wants the manifest, if there is one.
    #[n(3)]
    pub manifest: bool,
    /// Seconds without a word after which the job says that it is there, at most
    /// [`LONGEST_ALIVE_SECONDS`]; 0: never.
    #[n(4)]
    pub alive_seconds: u32,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ShownProgress {
    /// Not at all.
    #[n(0)]
    None,
    /// As a line for a terminal.
    #[n(1)]
    Line,
    /// As an event for programs.
    #[n(2)]
    Json,
}

/// Where a job wrote something.
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
    /// The names that a manifest cannot have.
    #[n(3)]
    RawManifest,
}

/// A message from a job, or about one.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum JobEvent {
    /// It has a name, and will continue without its client once it runs.
    #[n(0)]
    Named(#[n(0)] String),
    /// The session is open.
    #[n(1)]
    Running,
    /// It wrote something: the channel, the offset there, the bytes.
    #[n(2)]
    Output(
        #[n(0)] Channel,
        #[n(1)] u64,
        #[cbor(n(2), with = "minicbor::bytes")] Vec<u8>,
    ),
    /// How far it is; the newest counts.
    #[n(3)]
    Progress(#[n(0)] String),
    /// It has ended with this exit code.
    #[n(4)]
    Ended(#[n(0)] u8),
    /// One of the jobs here.
    #[n(5)]
    Listed(#[n(0)] Listed),
    /// Something could not be done there, and why.
    #[n(6)]
    Failed(#[n(0)] String, #[n(1)] Option<u8>),
    /// There is no such job of this user.
    #[n(7)]
    Absent,
    /// It is there, and there is nothing new.
    #[n(8)]
    Alive,
}

/// A job as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Listed {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// The host it runs on, as that calls itself; in the starter's own records
    /// as ssh reaches it.
    #[n(1)]
    pub host: String,
    /// The source as the user named it.
    #[n(2)]
    pub from: String,
    /// The destination as the user named it.
    #[n(3)]
    pub to: String,
    /// Seconds since 1970 when it began.
    #[n(4)]
    pub began: u64,
    /// What became of it.
    #[n(5)]
    pub state: State,
    /// It compares and copies nothing.
    #[n(6)]
    pub compares: bool,
    /// Bytes of files that are durable at the destination, with those that were there before.
    /// `None` if the job was killed or has not begun.
    #[n(7)]
    pub done_bytes: Option<u64>,
    /// Bytes per second that a running job is limited to. `None`: no limit.
    #[n(8)]
    pub bwlimit_bytes_per_second: Option<u64>,
}

impl Listed {
    /// When it began, in UTC; no later than the year 9999, whatever the other end says.
    pub fn began_at(&self) -> String {
        const LAST: u64 = 253_402_300_799;
        rfc3339(self.began.min(LAST).cast_signed())
    }

    /// The command that it is.
    pub fn command(&self) -> &'static str {
        if self.compares { "verify" } else { "cp" }
    }
}

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum State {
    /// It runs.
    #[n(0)]
    Running,
    /// It ended with this exit code.
    #[n(1)]
    Ended(#[n(0)] u8),
    /// It was killed.
    #[n(2)]
    Lost,
    /// Another host that shares this directory runs it: its `host`.
    #[n(3)]
    Elsewhere,
}

/// Whether text is a job's name: it is part of paths and command lines.
pub fn is_name(text: &str) -> bool {
    let digits = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == NAME_DIGITS && text.bytes().all(digits)
}

/// A job's name from random bytes.
pub fn name_of(random: [u8; NAME_DIGITS / 2]) -> String {
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A message that can be checked against its bounds.
pub trait JobMessage: Encode<()> + for<'b> Decode<'b, ()> {
    /// Whether every length is within its range.
    fn is_valid(&self) -> bool;
}

impl JobEvent {
    /// It failed, with this exit code where one is known. Of a text that is too
    /// long, the beginning is kept.
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

/// A frame of it.
///
/// # Errors
///
/// Where it is too long.
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
/// As [`frame_of`], and where it cannot be written.
pub fn send<T: JobMessage>(mut to: impl Write, message: &T) -> io::Result<()> {
    to.write_all(&frame_of(message)?)
}

/// Receives the next message; `None` if the other end has ended between two.
///
/// # Errors
///
/// Where it cannot be read, or is none; nothing after it is to be trusted.
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

/// False where nothing came at all.
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
    fn what_is_said_is_heard() {
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
    fn what_is_out_of_its_range_is_neither_said_nor_heard() {
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
