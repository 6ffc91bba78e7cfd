//! A full-duplex blocking byte stream: one half to read, one to write, each
//! for a thread of its own, and a handle for everybody else.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_system::queue::lock;
use longhaul_units::ByteCount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;

use super::congestion;
use super::identity::{Fingerprint, KeyAndDates};
use super::multipath::{self, Subflow};
use super::tcp;
use super::tcp_info::TcpInfo;
use super::validity::Validity;

// tidy: long file because TLS, clear text and pipes are one type of stream.

/// The most bytes that a receiver sleeps for, and the part of what the kernel
/// holds for it.
const LONGEST_SLEEP: usize = 128 << 10;
const HELD_PART: usize = 16;

/// `MSG_MORE`.
#[cfg(target_os = "linux")]
const MORE_FOLLOWS: rustix::net::SendFlags = rustix::net::SendFlags::MORE;
#[cfg(not(target_os = "linux"))]
const MORE_FOLLOWS: rustix::net::SendFlags = rustix::net::SendFlags::empty();

/// Bytes of a file that are copied at once where the kernel cannot send them.
const COPIED_AT_ONCE: usize = 64 << 10;

/// The half that receives.
pub trait StreamReader: Send {
    /// Blocks until there are some bytes and returns how many; 0 only at a
    /// clean end (or where `buffer` is empty).
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` where an encrypted stream ends without its closing
    /// message, `InvalidData` where its bytes were tampered with (the stream
    /// is then dead in both directions), else what the socket says.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Says that at least this many bytes more will come, whatever comes after them: until then
    /// [`StreamReader::read`] may wait for many of them before it gives some, so that its thread
    /// is woken seldom.
    fn anticipate(&mut self, bytes: usize);
}

/// The half that sends. Dropping it unfinished tells the peer of an encrypted
/// stream that the end was not meant.
pub trait StreamWriter: Send {
    /// Sends all bytes of all parts, in order, as one run of records. Returns
    /// when the kernel has them.
    ///
    /// # Errors
    ///
    /// What the socket says; the stream is then dead.
    fn write_all(&mut self, parts: &[&[u8]]) -> io::Result<()>;

    /// Sends `head`, then `length` bytes of a file from `offset` on, as
    /// [`StreamWriter::write_all`] would; zeros for what is no longer there, for this many were
    /// promised, and a checksum says that they are not meant.
    ///
    /// # Errors
    ///
    /// As [`StreamWriter::write_all`], and what reading says.
    fn write_file(
        &mut self,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
    ) -> io::Result<()> {
        self.write_all(&[head])?;
        copy_range(file, offset, length, |part| self.write_all(&[part]))
    }

    /// Says that no more will follow. The other half continues.
    ///
    /// # Errors
    ///
    /// What the socket says.
    fn finish(&mut self) -> io::Result<()>;
}

/// Reads a range part by part, and zeros where the file has ended before it.
pub(super) fn copy_range(
    file: BorrowedFd<'_>,
    mut offset: u64,
    mut length: usize,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut part = vec![0; length.min(COPIED_AT_ONCE)];
    while length > 0 {
        let room = length.min(part.len());
        let count = match rustix::io::pread(file, &mut part[..room], offset) {
            Ok(0) => {
                part[..room].fill(0);
                room
            }
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        write(&part[..count])?;
        offset += count as u64;
        length -= count;
    }
    Ok(())
}

/// A stream, to be taken apart.
pub struct Stream {
    /// For the thread that receives.
    pub reader: Box<dyn StreamReader>,
    /// For the thread that sends.
    pub writer: Box<dyn StreamWriter>,
    /// For everybody.
    pub handle: StreamHandle,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

/// Watches and ends a stream from any thread. It keeps the socket's numbers
/// readable but not the connection alive: that ends with its two halves.
#[derive(Clone, Debug)]
pub struct StreamHandle {
    wire: Arc<Wire>,
}

impl StreamHandle {
    pub(super) fn new(wire: &Arc<Wire>) -> StreamHandle {
        StreamHandle {
            wire: Arc::clone(wire),
        }
    }

    /// Ends the stream in both directions at once and wakes threads that are blocked in one of its
    /// halves. What was written and not yet acknowledged may be lost.
    pub fn shutdown(&self) {
        // Fails only where the peer is gone already, which is what was wanted.
        let _ = self.wire.socket.shutdown(Shutdown::Both);
    }

    /// As [`StreamHandle::shutdown`], and the kernel forgets what it still
    /// holds: the other end hears of it at once, not after what is unsent.
    pub fn abort(&self) {
        if let Some(socket) = self.wire.socket.tcp() {
            let linger = Some(Duration::ZERO);
            // Without it the end is only slower.
            let _ = SockRef::from(socket).set_linger(linger);
        }
        self.shutdown();
    }

    /// Whether it was closed, and by whom.
    pub fn is_closed(&self) -> Closed {
        let mut socket = PollFd::new(&self.wire.socket, CLOSED_BY_PEER);
        let told = poll(
            std::slice::from_mut(&mut socket),
            Some(&Timespec::default()),
        );
        let found = socket.revents();
        match told {
            Ok(_) if found.intersects(PollFlags::HUP | PollFlags::ERR) => Closed::Both,
            Ok(_) if found.intersects(CLOSED_BY_PEER) => Closed::ByPeer,
            Ok(_) | Err(_) => Closed::Not,
        }
    }

    /// What the kernel measured, of several paths together; none on a local pair
    /// or an old kernel.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        let socket = self.wire.socket.tcp()?;
        if let Some(subflows) = self.subflows() {
            return Some(TcpInfo::together(subflows.iter().map(|path| path.info)));
        }
        TcpInfo::of(socket).ok()
    }

    /// Each path of the stream by itself; one of plain TCP, none on a local pair. A stream of
    /// several that fell back to TCP continues as the first of them, as its counts do.
    pub fn paths(&self) -> Vec<Subflow> {
        self.subflows().unwrap_or_else(|| {
            let first = lock(&self.wire.last_subflows).first().copied();
            let plain = || {
                let info = TcpInfo::of(self.wire.socket.tcp()?).ok()?;
                Some(match first {
                    Some(first) => Subflow { info, ..first },
                    None => Subflow {
                        number: 0,
                        local: self.wire.local?,
                        peer: self.wire.peer?,
                        info,
                    },
                })
            };
            plain().into_iter().collect()
        })
    }

    /// Whether the kernels may spread it over several paths. One that may falls
    /// back to TCP where something on the way changes what it sends.
    pub fn is_multipath(&self) -> bool {
        let socket = self.wire.socket.tcp();
        self.wire.multipath && socket.is_some_and(multipath::is_multipath)
    }

    /// None of a stream without, be it since a moment ago. Where the kernel
    /// does not tell for once, what it told last.
    fn subflows(&self) -> Option<Vec<Subflow>> {
        let socket = self.wire.socket.tcp().filter(|_| self.wire.multipath)?;
        let found = multipath::subflows(socket).ok();
        let mut last = lock(&self.wire.last_subflows);
        match &found {
            Some(found) if !found.is_empty() => last.clone_from(found),
            None if !last.is_empty() && self.is_multipath() => return Some(last.clone()),
            Some(_) | None => {}
        }
        found
    }

    /// The other end's address; none on a local pair.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.wire.peer
    }

    /// This end's address; none on a local pair.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.wire.local
    }

    /// This end's address and the other's; none if either is not known.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.wire.local?, self.wire.peer?))
    }

    /// The key that the other end proved to have; `None` if it showed none (clear streams, clients
    /// without a certificate).
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        Some(self.wire.peer_certificate?.fingerprint)
    }

    /// The dates of the certificate of that key.
    pub fn peer_validity(&self) -> Option<Validity> {
        Some(self.wire.peer_certificate?.validity)
    }

    /// How the bytes are protected, in words: `TLS 1.3, AES-128-GCM`, `clear`.
    pub fn protection(&self) -> &'static str {
        self.wire.protection
    }

    /// Bytes given to the reader's caller so far, without encryption's own.
    pub fn bytes_read(&self) -> ByteCount {
        ByteCount(self.wire.read.load(Ordering::Relaxed))
    }

    /// Bytes that the kernel took from the writer so far, without encryption's
    /// own.
    pub fn bytes_written(&self) -> ByteCount {
        ByteCount(self.wire.written.load(Ordering::Relaxed))
    }

    /// Bytes that the kernel took in several at once, encryption's own among them: it grows while
    /// a long block is being sent.
    pub fn bytes_taken(&self) -> ByteCount {
        ByteCount(self.wire.taken.load(Ordering::Relaxed))
    }

    /// Lets the other end read as late as it wants (`TCP_USER_TIMEOUT`, which also ends a
    /// connection whose peer lives and reads nothing): for a stream that somebody watches.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a local pair, else what the kernel says.
    pub fn wait_for_reader(&self) -> io::Result<()> {
        socket2::SockRef::from(self.tcp()?).set_tcp_user_timeout(None)
    }

    /// Changes the congestion control of the live connection (`bbr`, `cubic`).
    ///
    /// # Errors
    ///
    /// `NotFound` where the kernel has no such module, `PermissionDenied` where
    /// it is not in `net.ipv4.tcp_allowed_congestion_control`, `Unsupported`
    /// on a local pair.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        congestion::set(self.tcp()?, name)
    }

    /// The congestion control in use.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a local pair.
    pub fn congestion(&self) -> io::Result<String> {
        congestion::of(self.tcp()?)
    }

    /// What should govern it by its distance, where it began with something else
    /// ([`congestion::by_distance`]).
    pub fn congestion_by_distance(&self) -> Option<&'static str> {
        let info = self.tcp_info();
        let least = info.and_then(|info| info.minimum_rtt);
        congestion::by_distance(self.tcp().ok()?, least)
    }

    /// What governs a stream of this path that is not told anything else; none on a local
    /// pair.
    pub fn governed_by(&self) -> Option<String> {
        let found = self.congestion_by_distance().map(str::to_owned);
        found.or_else(|| self.congestion().ok())
    }

    /// Bounds what the kernel holds unsent (`TCP_NOTSENT_LOWAT`), in bytes;
    /// 0 to 2^32 - 1.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a local pair, else what the kernel says.
    pub fn set_unsent_limit(&self, bytes: u32) -> io::Result<()> {
        tcp::set_unsent_limit(self.tcp()?, bytes)
    }

    /// Bounds the rate at which the kernel sends (`SO_MAX_PACING_RATE`), in
    /// bytes per second; none takes the bound away.
    ///
    /// # Errors
    ///
    /// `Unsupported` on a local pair, else what the kernel says.
    pub fn set_pace(&self, bytes_per_second: Option<u64>) -> io::Result<()> {
        tcp::set_pace(self.tcp()?, bytes_per_second)
    }

    fn tcp(&self) -> io::Result<&TcpStream> {
        self.wire.socket.tcp().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "a local pair has no TCP: use a TCP stream",
            )
        })
    }
}

#[cfg(test)]
impl StreamHandle {
    /// Ends the stream once nothing came for a minute: a reader that waits for ever for what a
    /// test should have brought meets the end. A busy host has the time that it needs.
    pub(super) fn end_in_time(&self) {
        let handle = self.clone();
        std::thread::spawn(move || {
            let mut before = None;
            while before != Some(handle.bytes_read()) {
                before = Some(handle.bytes_read());
                std::thread::sleep(Duration::from_secs(60));
            }
            handle.shutdown();
        });
    }
}

/// How `poll` tells that the other end closed it; not everywhere does it.
#[cfg(target_os = "linux")]
const CLOSED_BY_PEER: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const CLOSED_BY_PEER: PollFlags = PollFlags::empty();

/// Which ends have closed a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// None.
    Not,
    /// The other one: what it sent before is still to be had.
    ByPeer,
    /// Both, or it broke.
    Both,
}

/// The socket below a stream.
#[derive(Debug)]
pub(super) enum Socket {
    /// Between hosts.
    Tcp(TcpStream),
    /// Within a host.
    Unix(UnixStream),
}

impl Socket {
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Socket::Tcp(socket) => Some(socket),
            Socket::Unix(_) => None,
        }
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.shutdown(how),
            Socket::Unix(socket) => socket.shutdown(how),
        }
    }

    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).read(buffer),
            Socket::Unix(socket) => (&*socket).read(buffer),
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).write(bytes),
            Socket::Unix(socket) => (&*socket).write(bytes),
        }
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).write_vectored(slices),
            Socket::Unix(socket) => (&*socket).write_vectored(slices),
        }
    }

    /// Sets how long a single send or receive may take; none for ever. Less than
    /// a microsecond is taken as one.
    pub(super) fn set_timeouts(&self, span: Option<Duration>) -> io::Result<()> {
        let span = span.map(|s| s.max(Duration::from_micros(1)));
        match self {
            Socket::Tcp(socket) => {
                socket.set_read_timeout(span)?;
                socket.set_write_timeout(span)
            }
            Socket::Unix(socket) => {
                socket.set_read_timeout(span)?;
                socket.set_write_timeout(span)
            }
        }
    }

    /// What is sent leaves at once.
    pub(super) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_nodelay(true),
            // It does so anyway.
            Socket::Unix(_) => Ok(()),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

/// What both halves and the handle share.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Socket,
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
    /// It was one of several paths when it began.
    multipath: bool,
    /// What was seen when last any were.
    last_subflows: Mutex<Vec<Subflow>>,
    peer_certificate: Option<KeyAndDates>,
    protection: &'static str,
    read: AtomicU64,
    written: AtomicU64,
    /// Taken by the kernel, as it took them.
    taken: AtomicU64,
    /// Halves not yet dropped.
    halves: AtomicU8,
}

impl Wire {
    pub(super) fn new(
        socket: Socket,
        peer_certificate: Option<KeyAndDates>,
        protection: &'static str,
    ) -> Arc<Wire> {
        let tcp = socket.tcp();
        Arc::new(Wire {
            peer: tcp.and_then(|s| s.peer_addr().ok()),
            local: tcp.and_then(|s| s.local_addr().ok()),
            multipath: tcp.is_some_and(multipath::is_multipath),
            last_subflows: Mutex::default(),
            socket,
            peer_certificate,
            protection,
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            halves: AtomicU8::new(2),
        })
    }

    /// Receives what is there, at least a byte unless the peer has ended.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// From now on [`Wire::sleep`] ends when this many bytes have come, 1 or more. False where
    /// that cannot be had.
    pub(super) fn sleep_for(&self, bytes: usize) -> bool {
        let socket = self.socket.tcp();
        socket.is_some_and(|socket| tcp::set_receive_threshold(socket, bytes).is_ok())
    }

    /// Waits until enough has come, or the end.
    pub(super) fn sleep(&self) -> io::Result<()> {
        self.poll_for(PollFlags::IN, None)
    }

    /// Lets come what comes in this time, or until the end.
    pub(super) fn let_come(&self, time: Duration) -> io::Result<()> {
        let time = Timespec::try_from(time).unwrap_or_default();
        self.poll_for(PollFlags::empty(), Some(&time))
    }

    fn poll_for(&self, events: PollFlags, time: Option<&Timespec>) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.socket, events)], time) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives what is there, if anything is.
    pub(super) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        use rustix::io::Errno;
        match rustix::net::recv(&self.socket, buffer, rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, count)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What a receiver on one path may sleep for at most: a small part of what
    /// the kernel holds for it, so that the sender is never kept waiting.
    pub(super) fn longest_sleep(&self) -> usize {
        let held = self
            .on_one_path()
            .and_then(|socket| SockRef::from(socket).recv_buffer_size().ok());
        (held.unwrap_or(0) / HELD_PART).min(LONGEST_SLEEP)
    }

    /// The round trip by what is received on one path, if anything was.
    pub(super) fn receive_round_trip(&self) -> Option<Duration> {
        TcpInfo::of(self.on_one_path()?).ok()?.receive_rtt
    }

    /// The connection, where it is one of TCP alone.
    fn on_one_path(&self) -> Option<&TcpStream> {
        self.socket.tcp().filter(|_| !self.multipath)
    }

    /// Sends everything.
    pub(super) fn send_all(&self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        // Empty slices at the front would make "0 bytes taken" ambiguous.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match self.socket.write_vectored(slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.taken.fetch_add(count as u64, Ordering::Relaxed);
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends everything, and says that more comes at once, so that both may leave
    /// in one segment.
    pub(super) fn send_head(&self, mut bytes: &[u8]) -> io::Result<()> {
        use rustix::net::SendFlags;
        let flags = SendFlags::NOSIGNAL | MORE_FOLLOWS;
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, flags) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends a range of a file from the page cache, without copying it here;
    /// gives how much of it went before the file ended or the kernel could not.
    #[cfg(target_os = "linux")]
    pub(super) fn send_file(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
    ) -> io::Result<usize> {
        use rustix::io::Errno;
        let (mut at, mut sent) = (offset, 0);
        while sent < length {
            match rustix::fs::sendfile(&self.socket, file, Some(&mut at), length - sent) {
                Ok(0) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => break,
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// Nowhere else can the kernel be asked in the same way.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn send_file(&self, _: BorrowedFd<'_>, _: u64, _: usize) -> io::Result<usize> {
        Ok(0)
    }

    /// Sends as much as the kernel takes without waiting.
    pub(super) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        use rustix::net::SendFlags;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(&self.socket, bytes, flags)?)
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self.socket.shutdown(how) {
            // The peer was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            other => other,
        }
    }

    pub(super) fn count_read(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A half's hold on the wire: when the second one goes, the connection goes,
/// however many handles there are.
pub(super) struct Half(Arc<Wire>);

impl Half {
    pub(super) fn pair(wire: &Arc<Wire>) -> (Half, Half) {
        (Half(Arc::clone(wire)), Half(Arc::clone(wire)))
    }
}

impl Deref for Half {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.0
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if self.halves.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Nobody is left who could be told.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_fell_back_goes_on_as_its_first_path() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let before = Subflow {
            number: 7,
            local: "10.0.0.1:1".parse().unwrap(),
            peer: "10.0.0.2:2".parse().unwrap(),
            info: TcpInfo::together([]),
        };
        let mut wire = Wire::new(Socket::Tcp(socket), None, "clear");
        // The kernel tells of no path of it, as of one that fell back.
        let inner = Arc::get_mut(&mut wire).unwrap();
        inner.multipath = true;
        inner.last_subflows = Mutex::new(vec![before]);
        let handle = StreamHandle::new(&wire);
        assert!(!handle.is_multipath());
        let [path] = handle.paths()[..] else {
            panic!("{:?}", handle.paths());
        };
        assert_eq!((path.number, path.local), (7, before.local));
        assert!(path.info.rtt > Duration::ZERO);
        assert_eq!(handle.tcp_info().unwrap().timeouts, 0);
    }
}
