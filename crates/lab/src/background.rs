//! Other people's traffic: TCP streams from site A to site B of hosts of their
//! own, which share nothing with the command but the path.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::lab::Host;
use crate::netns::NamespaceError;

/// What other hosts send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// TCP streams, 1 to 256.
    pub streams: u16,
    /// All of them send for the first and rest for the second, again and again.
    pub on_off: Option<(Duration, Duration)>,
}

/// Why there is no other traffic.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// A host cannot be entered.
    #[error(transparent)]
    Host(#[from] NamespaceError),
    /// No socket or thread.
    #[error("background traffic cannot start: {0}")]
    Io(#[from] io::Error),
}

/// Bytes of one write: as many as iperf3 writes.
const WRITE_BYTES: usize = 128 << 10;

/// Starts the streams between two hosts; they end with the process.
///
/// # Errors
///
/// Where sockets cannot be made.
pub fn start(from: &Host, to: &Host, background: Background) -> Result<(), BackgroundError> {
    let address = to.address();
    let listener = to
        .namespace()
        .within(|| TcpListener::bind((address, 0)))??;
    let target = listener.local_addr()?;
    spawn("lab-sink", move || sink(&listener))?;
    from.namespace().within(|| {
        // Threads that begin in the host stay in it.
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
        // No thread: that stream is refused, and begins again.
        let _ = spawn("lab-sink", read);
    }
}

/// Sends for as long as the lab lives; a stream that breaks, as a long cut does
/// it, begins again.
fn source(target: SocketAddr, on_off: Option<(Duration, Duration)>) {
    let bytes = vec![0; WRITE_BYTES];
    let (ticket, rest) = std::sync::mpsc::channel::<()>();
    loop {
        if let Ok(mut stream) = TcpStream::connect(target) {
            let mut began = Instant::now();
            while stream.write_all(&bytes).is_ok() {
                let Some((on, off)) = on_off else { continue };
                if began.elapsed() >= on {
                    // Nobody sends: this waits for as long as they rest.
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
