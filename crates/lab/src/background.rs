//! Background traffic: TCP streams from a separate host at site A to a separate host at
//! site B. They share only the path with the command under test.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::lab::Host;
use crate::netns::NamespaceError;

/// Number and timing of the background TCP streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// Number of TCP streams, 1 to 256.
    pub streams: u16,
    /// If set, all streams alternate: they send for the first duration and pause for the
    /// second.
    pub on_off: Option<(Duration, Duration)>,
}

/// Reasons why background traffic cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// A host's network namespace cannot be entered.
    #[error(transparent)]
    Host(#[from] NamespaceError),
    /// A socket or a thread cannot be created.
    #[error("background traffic cannot start: {0}")]
    Io(#[from] io::Error),
}

/// Number of bytes per write, equal to the block size of iperf3.
const WRITE_BYTES: usize = 128 << 10;

/// Starts the streams between two hosts. They run until the process ends.
///
/// # Errors
///
/// Returns an error if a socket or a thread cannot be created, or a namespace cannot be
/// entered.
pub fn start(from: &Host, to: &Host, background: Background) -> Result<(), BackgroundError> {
    let address = to.address();
    let listener = to
        .namespace()
        .within(|| TcpListener::bind((address, 0)))??;
    let target = listener.local_addr()?;
    spawn("lab-sink", move || sink(&listener))?;
    from.namespace().within(|| {
        // A thread stays in the namespace of the thread that started it.
        (0..background.streams)
            .try_for_each(|_| spawn("lab-source", move || source(target, background.on_off)))
    })??;
    Ok(())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map(drop)
}

fn sink(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        let read = move || {
            let mut room = vec![0; WRITE_BYTES];
            while stream.read(&mut room).is_ok_and(|bytes| bytes > 0) {}
        };
        // If no thread can be started, the stream is dropped and its source connects
        // again.
        let _ = spawn("lab-sink", read);
    }
}

/// Sends until the lab ends. Reconnects if the connection breaks, for example during a
/// long cut.
fn source(target: SocketAddr, on_off: Option<(Duration, Duration)>) {
    let bytes = vec![0; WRITE_BYTES];
    let (ticket, rest) = std::sync::mpsc::channel::<()>();
    loop {
        if let Ok(mut stream) = TcpStream::connect(target) {
            let mut began = Instant::now();
            while stream.write_all(&bytes).is_ok() {
                let Some((on, off)) = on_off else { continue };
                if began.elapsed() >= on {
                    // The channel never receives a message: this waits for the pause.
                    let _ = rest.recv_timeout(off);
                    began = Instant::now();
                }
            }
        } else {
            let _ = rest.recv_timeout(Duration::from_millis(100));
        }
        let _still_there = &ticket;
    }
}
