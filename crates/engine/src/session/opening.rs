//! The first frames of a stream: opens a session with it, or joins one. Each
//! costs one round trip, and no more time than a deadline.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use longhaul_proto::frame::{self, FrameError, FrameHeader, FrameKind, HEADER_BYTES};
use longhaul_proto::handshake::{
    Answer, Feature, Hello, Join, Joined, PROTOCOL_VERSION, Purpose, Refused, Request, Welcome,
};
use minicbor::{Decode, Encode};

use crate::net::Stream;

/// Name and version of this software.
pub const SOFTWARE: &str = concat!("longhaul ", env!("CARGO_PKG_VERSION"));

/// Why a stream could not open or join a session.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It broke, or the other end said nothing in time.
    #[error("the connection was lost before the session began: {0}")]
    Io(#[from] io::Error),
    /// Nonsense came.
    #[error("the other end does not speak longhaul's protocol: {0}")]
    Frame(#[from] FrameError),
    /// The other end said no.
    #[error("{}", .0.text)]
    Refused(Refused),
}

/// Says an answer, or anything of the handshake.
///
/// # Errors
///
/// As the stream has it.
pub fn send<T: Encode<()>>(stream: &mut Stream, value: &T) -> Result<(), OpenError> {
    let frame = frame::encode(FrameKind::Handshake, value, 0)?;
    Ok(stream.writer.write_all(&[&frame])?)
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
    let handle = stream.handle.clone();
    let (done, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("deadline".into())
            .spawn_scoped(scope, move || {
                if wait.recv_timeout(deadline) == Err(mpsc::RecvTimeoutError::Timeout) {
                    handle.shutdown();
                }
            })?;
        let result = receive_frame(stream);
        drop(done);
        result
    })
}

fn receive_frame<T: for<'b> Decode<'b, ()>>(stream: &mut Stream) -> Result<T, OpenError> {
    let mut bytes = [0; HEADER_BYTES];
    super::streams::read_exact(&mut *stream.reader, &mut bytes)?;
    let header = FrameHeader::parse(&bytes)?;
    if header.kind != FrameKind::Handshake {
        return Err(FrameError::Unexpected("data before the handshake").into());
    }
    let mut body = vec![0; header.body];
    super::streams::read_exact(&mut *stream.reader, &mut body)?;
    Ok(header.decode(&body)?)
}

fn hello(purpose: Purpose) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        software: SOFTWARE.to_owned(),
        features: Feature::ALL.to_vec(),
        purpose,
    }
}

/// Opens a session with a stream.
///
/// # Errors
///
/// [`OpenError`].
pub fn open(
    stream: &mut Stream,
    request: Request,
    deadline: Duration,
) -> Result<Welcome, OpenError> {
    send(stream, &hello(Purpose::Open(Box::new(request))))?;
    match receive(stream, deadline)? {
        Answer::Welcome(welcome) => Ok(welcome),
        Answer::Refused(refused) => Err(OpenError::Refused(refused)),
        Answer::Joined(_) => Err(FrameError::Unexpected("an answer to another question").into()),
    }
}

/// Joins a session with a stream.
///
/// # Errors
///
/// [`OpenError`].
pub fn join(stream: &mut Stream, join: Join, deadline: Duration) -> Result<Joined, OpenError> {
    send(stream, &hello(Purpose::Join(join)))?;
    match receive(stream, deadline)? {
        Answer::Joined(joined) => Ok(joined),
        Answer::Refused(refused) => Err(OpenError::Refused(refused)),
        Answer::Welcome(_) => Err(FrameError::Unexpected("an answer to another question").into()),
    }
}
