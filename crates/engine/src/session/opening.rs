//! The first frames of a stream: they open a session or join one. Each exchange takes one round
//! trip and has a deadline.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, mpsc};
use std::time::Duration;

use longhaul_net::{Stream, StreamReader};
use longhaul_proto::filter::{Filter, PartOfList};
use longhaul_proto::frame::{self, FrameError, FrameHeader, FrameKind, HEADER_BYTES};
use longhaul_proto::handshake::{
    Answer, Capability, ControlRequest, Hello, Join, Joined, MAXIMUM_SOURCES, PROTOCOL_VERSION,
    Purpose, Refused, Request, Vouch, Vouched, Welcome,
};
use longhaul_proto::listing::{ListRequest, Listed};
use longhaul_system::limits::thread_refusal;
use minicbor::{Decode, Encode};

use super::streams::dial;
use super::{Shared, Side, Transfer};

/// Name and version of this software.
pub const SOFTWARE: &str = concat!("longhaul ", env!("CARGO_PKG_VERSION"));

/// Reasons why a stream could not open or join a session.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The connection broke, or the other end did not answer in time.
    #[error("the connection was lost before the session began: {0}")]
    Io(#[from] io::Error),
    /// The other end sent an invalid frame.
    #[error("the other end does not speak longhaul's protocol: {0}")]
    Frame(#[from] FrameError),
    /// The other end refused the request.
    #[error("{}", .0.text)]
    Refused(Refused),
    /// The path seems to lose large packets; with smaller segments the session may open.
    #[error(
        "the other end did not answer, and large packets seem to be lost on the path (an MTU black \
         hole)"
    )]
    LargePackets,
    /// The request is longer than allowed; it was not sent.
    #[error(
        "the sources are too many, or their names too long, for one command: copy the directory \
         they are in, or use several commands"
    )]
    TooManyNames,
}

/// Sends an answer, or any other message of the handshake.
///
/// # Errors
///
/// Fails as the stream reports.
pub fn send<T: Encode<()>>(stream: &mut Stream, value: &T) -> Result<(), OpenError> {
    let frame = frame::encode(FrameKind::Handshake, value, 0)?;
    Ok(stream.writer.write_all(&[&frame])?)
}

/// Time without an answer after which an unacknowledged request may be too large for the path: the
/// kernel has sent it several times.
const LARGE_PACKETS_AFTER: Duration = Duration::from_secs(3);

/// Maximum number of bytes that are read after a refusal: the other end's first messages.
const LAST_WORDS: usize = 64 << 10;

/// Ends a stream that was refused, after the other end had time to read the refusal. If it were
/// closed with unread data, the connection would be reset and the refusal lost.
pub fn close(stream: &mut Stream, patience: Duration) {
    let _ = by(stream, patience, |stream| {
        stream.writer.finish()?;
        let (mut room, mut left) = ([0; 4096], LAST_WORDS);
        while left > 0 {
            match stream.reader.read(&mut room)? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        Ok(())
    });
}

/// Sends a last answer and ends the stream like [`close`]. Gives up at the deadline if the other
/// end, which may be anyone, does not read.
pub fn answer_last<T: Encode<()>>(stream: &mut Stream, value: &T, patience: Duration) {
    if by(stream, patience, |stream| send(stream, value)).is_ok() {
        close(stream, patience);
    }
}

/// Waits for a message of the handshake.
///
/// # Errors
///
/// [`OpenError`]; at the deadline the stream is shut down.
pub fn receive<T: for<'b> Decode<'b, ()>>(
    stream: &mut Stream,
    deadline: Duration,
) -> Result<T, OpenError> {
    by(stream, deadline, |stream| {
        receive_frame(&mut *stream.reader)
    })
}

/// Runs an operation on a stream that is shut down at a deadline.
fn by<T>(
    stream: &mut Stream,
    deadline: Duration,
    what: impl FnOnce(&mut Stream) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    until(stream, (deadline, deadline), || false, what)
}

/// Runs an operation on a stream that is shut down at `deadline`, or at `early` if `chokes` is true
/// then.
fn until<T>(
    stream: &mut Stream,
    (early, deadline): (Duration, Duration),
    chokes: impl FnOnce() -> bool + Send,
    what: impl FnOnce(&mut Stream) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let handle = stream.handle.clone();
    let (done, wait) = mpsc::channel::<()>();
    let (late, choked) = (AtomicBool::new(false), AtomicBool::new(false));
    let (is_late, is_choked) = (&late, &choked);
    let is_over = move |span| wait.recv_timeout(span) != Err(mpsc::RecvTimeoutError::Timeout);
    std::thread::scope(|scope| {
        let started = std::thread::Builder::new()
            .name("deadline".into())
            .spawn_scoped(scope, move || {
                if is_over(early) {
                    return;
                }
                is_choked.store(chokes(), Ordering::Relaxed);
                if !is_choked.load(Ordering::Relaxed) && is_over(deadline.saturating_sub(early)) {
                    return;
                }
                is_late.store(true, Ordering::Relaxed);
                handle.shutdown();
            });
        started.map_err(|error| io::Error::other(thread_refusal(&error)))?;
        let result = what(stream);
        drop(done);
        match result {
            Err(OpenError::Io(_)) if choked.load(Ordering::Relaxed) => Err(OpenError::LargePackets),
            Err(OpenError::Io(_)) if is_late.load(Ordering::Relaxed) => {
                let seconds = deadline.as_secs_f64().ceil();
                let text = format!("the other end did not answer within {seconds} s");
                Err(io::Error::new(io::ErrorKind::TimedOut, text).into())
            }
            result => result,
        }
    })
}

fn receive_frame<T: for<'b> Decode<'b, ()>>(reader: &mut dyn StreamReader) -> Result<T, OpenError> {
    let mut bytes = [0; HEADER_BYTES];
    super::streams::reading::read_exact(reader, &mut bytes)?;
    let header = FrameHeader::parse(&bytes)?;
    if header.kind != FrameKind::Handshake {
        return Err(FrameError::Unexpected("data before the handshake").into());
    }
    let mut body = vec![0; header.body];
    super::streams::reading::read_exact(reader, &mut body)?;
    Ok(header.decode(&body)?)
}

fn hello(purpose: Purpose) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        software: SOFTWARE.to_owned(),
        capabilities: Capability::ALL.to_vec(),
        purpose,
    }
}

/// Sends a request and waits for its answer. If the request cannot be written, the other end may
/// have refused it and closed the connection: that refusal is then the answer.
fn exchange(
    stream: &mut Stream,
    frames: &[&[u8]],
    deadline: Duration,
) -> Result<Answer, OpenError> {
    let sent = stream.writer.write_all(frames);
    let handle = stream.handle.clone();
    let early = LARGE_PACKETS_AFTER.min(deadline);
    let chokes = move || handle.tcp_info().is_some_and(|info| info.chokes());
    let answer = until(stream, (early, deadline), chokes, |stream| {
        receive_frame(&mut *stream.reader)
    });
    match (sent, answer) {
        (Ok(()), answer) => answer,
        (Err(_), Ok(refused @ Answer::Refused(_))) => Ok(refused),
        (Err(error), _) => Err(error.into()),
    }
}

/// Opens a session with a stream. `ahead` holds complete frames that the other end reads once it
/// accepts.
///
/// # Errors
///
/// [`OpenError`].
pub fn open(
    stream: &mut Stream,
    mut request: Request,
    ahead: &[u8],
    deadline: Duration,
) -> Result<Welcome, OpenError> {
    let paths = request.paths.len();
    let list = request.options.filter.split_list();
    let hello = hello(Purpose::Open(Box::new(request)));
    let frame = naming(&hello, paths)?;
    let parts = list
        .iter()
        .map(|part| frame::encode(FrameKind::Handshake, part, 0));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let mut frames: Vec<&[u8]> = vec![&frame];
    frames.extend(parts.iter().map(|part| &part[..]));
    frames.push(ahead);
    match exchange(stream, &frames, deadline)? {
        Answer::Welcome(welcome) => Ok(welcome),
        Answer::Refused(refused) => Err(OpenError::Refused(refused)),
        _ => Err(unasked()),
    }
}

/// Receives the list of files that follows a request.
///
/// # Errors
///
/// [`OpenError`], also if the list is longer than it may be.
pub fn receive_list(
    stream: &mut Stream,
    filter: &mut Filter,
    deadline: Duration,
) -> Result<(), OpenError> {
    while filter.list_parts > 0 {
        let part: PartOfList = receive(stream, deadline)?;
        let added = filter.add_part(part);
        added.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    }
    Ok(())
}

/// Encodes a request that names this many paths.
fn naming(hello: &Hello, paths: usize) -> Result<Vec<u8>, OpenError> {
    if paths > MAXIMUM_SOURCES {
        return Err(OpenError::TooManyNames);
    }
    frame::encode(FrameKind::Handshake, hello, 0).map_err(|error| match error {
        FrameError::TooLong { .. } => OpenError::TooManyNames,
        other => OpenError::Frame(other),
    })
}

/// Joins a session with a stream.
///
/// # Errors
///
/// [`OpenError`].
pub fn join(stream: &mut Stream, join: Join, deadline: Duration) -> Result<Joined, OpenError> {
    let frame = frame::encode(FrameKind::Handshake, &hello(Purpose::Join(join)), 0)?;
    match exchange(stream, &[&frame], deadline)? {
        Answer::Joined(joined) => Ok(joined),
        Answer::Refused(refused) => Err(OpenError::Refused(refused)),
        _ => Err(unasked()),
    }
}

/// Asks a server to admit another host. The stream cannot be used afterwards.
///
/// # Errors
///
/// [`OpenError`].
pub fn vouch(stream: &mut Stream, vouch: Vouch, deadline: Duration) -> Result<Vouched, OpenError> {
    let allowed = vouch.allowed.as_ref();
    let paths = allowed.map_or(0, |allowed| allowed.paths.len().max(allowed.sources.len()));
    let frame = naming(&hello(Purpose::Vouch(vouch)), paths)?;
    match exchange(stream, &[&frame], deadline)? {
        Answer::Vouched(vouched) => Ok(vouched),
        Answer::Refused(refused) => Err(OpenError::Refused(refused)),
        _ => Err(unasked()),
    }
}

/// Sends a request outside any session. If the request opens a channel, the stream becomes that
/// channel.
///
/// # Errors
///
/// [`OpenError`].
pub fn control_request(
    stream: &mut Stream,
    control_request: ControlRequest,
    deadline: Duration,
) -> Result<(), OpenError> {
    let hello = hello(Purpose::ControlRequest(control_request));
    let frame = frame::encode(FrameKind::Handshake, &hello, 0)?;
    match exchange(stream, &[&frame], deadline)? {
        Answer::Begun => Ok(()),
        Answer::Refused(refused) => Err(OpenError::Refused(refused)),
        _ => Err(unasked()),
    }
}

/// Joins an existing session without waiting for the answer: blocks may follow at once. A refusal
/// ends the stream when it is read.
///
/// # Errors
///
/// [`OpenError`].
pub fn join_at_once(mut stream: Stream, join: Join) -> Result<dial::Joined, OpenError> {
    send(&mut stream, &hello(Purpose::Join(join)))?;
    let (reader, writer, handle) = (stream.reader, stream.writer, stream.handle);
    Ok(dial::Joined {
        stream: Stream {
            reader: Box::new(Joining {
                reader,
                answered: false,
            }),
            writer,
            handle,
        },
        clear: false,
        // The other end sends this number with its later messages.
        received: 0,
    })
}

/// Reader of a stream that skips the answer to its joining.
struct Joining {
    reader: Box<dyn StreamReader>,
    answered: bool,
}

impl StreamReader for Joining {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.answered {
            match receive_frame(&mut *self.reader) {
                // The other end sends its count of received messages again later.
                Ok(Answer::Joined(_)) => self.answered = true,
                Ok(Answer::Refused(refused)) => return Err(io::Error::other(refused.text)),
                Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, unasked())),
                Err(OpenError::Io(error)) => return Err(error),
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        self.reader.read(buffer)
    }

    fn anticipate(&mut self, bytes: usize) {
        self.reader.anticipate(bytes);
    }
}

/// Lists the entries at a path and passes each to `tell`. The stream cannot be used afterwards.
///
/// # Errors
///
/// [`OpenError`] if the other end refuses, or is silent for longer than `silence`; errors of
/// `tell`.
pub fn list<E: From<OpenError>>(
    stream: &mut Stream,
    request: ListRequest,
    silence: Duration,
    mut tell: impl FnMut(Listed) -> Result<(), E>,
) -> Result<(), E> {
    let frame = frame::encode(FrameKind::Handshake, &hello(Purpose::List(request)), 0);
    let frame = frame.map_err(OpenError::from)?;
    let mut answer = exchange(stream, &[&frame], silence)?;
    loop {
        match answer {
            Answer::Listed(Listed::End) => return Ok(()),
            Answer::Listed(listed) if listed.is_valid() => tell(listed)?,
            Answer::Refused(refused) => return Err(OpenError::Refused(refused).into()),
            _ => return Err(unasked().into()),
        }
        answer = receive(stream, silence)?;
    }
}

fn unasked() -> OpenError {
    FrameError::Unexpected("an answer to another question").into()
}

/// Bytes of messages after which no more are sent with the request: the first ten segments of a
/// connection, less the request itself. A message that begins within this size may exceed it.
const FIRST_WORDS: usize = 8 << 10;

/// Parameters of the other end's welcome, for a sender that dialed and began before it knew them.
#[derive(Clone, Copy, Debug)]
pub struct Agreed {
    /// If true, the destination may not be empty, and the sender requests the state of every entry.
    pub asks: bool,
    /// Epoch of the session.
    pub epoch: u64,
    /// Time that the session stays alive after its last stream was lost.
    pub linger: Duration,
    /// Number of streams at the start.
    pub streams: usize,
    /// Number of large files that the other end can have open.
    pub large_files: usize,
    /// True if the other end has every codec.
    pub any_codec: bool,
}

/// Opening of a session that this end, which sends, requested.
#[derive(Clone, Copy)]
pub struct Opening<'a> {
    transfer: &'a Transfer,
}

impl<'a> Opening<'a> {
    pub(super) fn of(transfer: &'a Transfer) -> Opening<'a> {
        Opening { transfer }
    }
}

impl Opening<'_> {
    /// Returns the messages that a dialing sender sends with its request, as complete frames: the
    /// first questions then need no round trip of their own. Waits at most `patience` for the walk
    /// to fill them.
    pub fn first_words(&self, patience: Duration) -> Vec<u8> {
        let until = self.transfer.now() + patience;
        let mut shared = self.transfer.lock();
        while !shared.has_first_questions() {
            let left = until - self.transfer.now();
            if left.is_zero() {
                break;
            }
            let waited = self.transfer.signals.walking.wait_timeout(shared, left);
            shared = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        shared.first_words()
    }

    /// Applies the welcome to the session that this end, which sends, requested.
    pub fn handle_welcome(&self, agreed: Agreed) {
        if let Side::Sending(side) = self.transfer.side() {
            side.handle_any_codec(agreed.any_codec);
        }
        let mut shared = self.transfer.lock();
        shared.lifetime.set_linger(agreed.linger);
        shared.streams.handle_agreed(agreed.streams);
        if let Some(sender) = shared.machine.sender_mut() {
            sender.handle_welcome(agreed.asks, agreed.epoch, agreed.large_files);
        }
        drop(shared);
        self.transfer.regulator().look_for_codecs();
        let shared = self.transfer.lock();
        self.transfer.settle(shared);
    }
}

impl Shared {
    fn has_first_questions(&self) -> bool {
        let sender = self.machine.sender();
        self.is_over() || sender.is_none_or(|sender| sender.work().has_first_questions())
    }

    fn first_words(&mut self) -> Vec<u8> {
        let mut words = Vec::new();
        if let Some(sender) = self.machine.sender_mut() {
            sender.work_mut().flush_listing();
        }
        while words.len() < FIRST_WORDS {
            let Some(frame) = self.next_frame() else {
                break;
            };
            words.extend(frame);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use longhaul_net::clear::local_pair;
    use longhaul_proto::handshake::{Refusal, Secret, SessionId, Task};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Returns a stream that joined at once, and the other end after it received that.
    fn joined() -> (Stream, Stream) {
        let (near, mut far) = local_pair().unwrap();
        let join = Join {
            session: SessionId([1; 16]),
            secret: Secret([2; 32]),
            stream: 7,
            received: 3,
        };
        let mut near = join_at_once(near, join).unwrap().stream;
        near.writer.write_all(&[b"blocks"]).unwrap();
        let heard: Hello = receive(&mut far, LIMIT).unwrap();
        let Purpose::Join(heard) = heard.purpose else {
            panic!("{heard:?}");
        };
        assert_eq!((heard.stream, heard.received), (7, 3));
        let mut blocks = [0; 6];
        super::super::streams::reading::read_exact(&mut *far.reader, &mut blocks).unwrap();
        assert_eq!(&blocks, b"blocks");
        (near, far)
    }

    #[test]
    fn a_late_answer_to_a_stream_is_removed_from_its_data() {
        let (mut near, mut far) = joined();
        send(&mut far, &Answer::Joined(Joined { received: 9 })).unwrap();
        far.writer.write_all(&[b"and more"]).unwrap();
        let mut more = [0; 8];
        super::super::streams::reading::read_exact(&mut *near.reader, &mut more).unwrap();
        assert_eq!(&more, b"and more");
    }

    fn no_session() -> Refused {
        Refused {
            refusal: Refusal::NoSession,
            text: "no such session".to_owned(),
            superseded: false,
        }
    }

    #[test]
    fn a_refusal_is_reported_even_if_the_request_cannot_be_written() {
        let refusing = || {
            let (near, mut far) = local_pair().unwrap();
            send(&mut far, &Answer::Refused(no_session())).unwrap();
            far.handle.shutdown();
            near
        };
        let attach = ControlRequest {
            credential: None,
            what: Task::Attach("00000000".to_owned()),
        };
        let list = ListRequest {
            credential: None,
            path: b"a".to_vec(),
            recursive: false,
            details: false,
        };
        let errors = [
            control_request(&mut refusing(), attach, LIMIT).unwrap_err(),
            super::list(&mut refusing(), list, LIMIT, |_| Ok::<_, OpenError>(())).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, OpenError::Refused(_)), "{error:?}");
        }
        let (mut near, far) = local_pair().unwrap();
        far.handle.shutdown();
        let request = ControlRequest {
            credential: None,
            what: Task::Jobs,
        };
        let lost = control_request(&mut near, request, LIMIT).unwrap_err();
        assert!(matches!(lost, OpenError::Io(_)), "{lost:?}");
    }

    #[test]
    fn a_refusal_ends_a_stream_that_did_not_wait() {
        let (mut near, mut far) = joined();
        send(&mut far, &Answer::Refused(no_session())).unwrap();
        let error = near.reader.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.to_string(), "no such session");
    }

    #[test]
    fn nonsense_instead_of_an_answer_ends_it_too() {
        let (mut near, mut far) = joined();
        far.writer.write_all(&[&[0xff; 64]]).unwrap();
        let error = near.reader.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
