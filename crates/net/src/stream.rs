//! A full-duplex blocking byte stream. It has a half for the reading thread, a half for the writing
//! thread, and a handle for all other threads.

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

/// Maximum number of bytes that a receiver waits for: the absolute limit, and the divisor applied
/// to the size of the kernel's receive buffer.
const LONGEST_SLEEP: usize = 128 << 10;
const HELD_PART: usize = 16;

/// `MSG_MORE`: more data follows at once.
#[cfg(target_os = "linux")]
const MORE_FOLLOWS: rustix::net::SendFlags = rustix::net::SendFlags::MORE;
#[cfg(not(target_os = "linux"))]
const MORE_FOLLOWS: rustix::net::SendFlags = rustix::net::SendFlags::empty();

/// Size in bytes of the parts in which a file is copied if `sendfile` is not possible.
const COPIED_AT_ONCE: usize = 64 << 10;

/// Receiving half of a stream.
pub trait StreamReader: Send {
    /// Blocks until bytes arrive, and returns their number. 0 means a clean end of the stream (or
    /// an empty `buffer`).
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if an encrypted stream ends without its closing message. `InvalidData` if
    /// its bytes were changed on the way; the stream is then unusable in both directions. Otherwise
    /// the error of the socket.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Announces that at least this many more bytes will come. Until then, [`StreamReader::read`]
    /// may wait for many bytes before it returns some, so that its thread wakes less often.
    fn anticipate(&mut self, bytes: usize);
}

/// Sending half of a stream. If it is dropped without [`StreamWriter::finish`], the peer of an
/// encrypted stream detects the truncation.
pub trait StreamWriter: Send {
    /// Sends all bytes of all parts, in order, as one run of records. Returns when the kernel has
    /// accepted them.
    ///
    /// # Errors
    ///
    /// The error of the socket. The stream is then unusable.
    fn write_all(&mut self, parts: &[&[u8]]) -> io::Result<()>;

    /// Sends `head`, then `length` bytes of a file from `offset` on, as [`StreamWriter::write_all`]
    /// would. If the file has become shorter, zeros replace the missing bytes, because the peer
    /// expects `length` bytes. The checksum then does not match.
    ///
    /// # Errors
    ///
    /// The errors of [`StreamWriter::write_all`], and of reading the file.
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

    /// Announces the end of the data in this direction. The other half continues.
    ///
    /// # Errors
    ///
    /// The error of the socket.
    fn finish(&mut self) -> io::Result<()>;
}

/// Reads a range part by part. Zeros replace bytes beyond the end of the file.
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

/// A stream, to be split into its parts.
pub struct Stream {
    /// For the receiving thread.
    pub reader: Box<dyn StreamReader>,
    /// For the sending thread.
    pub writer: Box<dyn StreamWriter>,
    /// For any thread.
    pub handle: StreamHandle,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

/// Observes and closes a stream from any thread. A handle keeps the socket open for queries, but
/// not the connection alive: the connection ends when both halves are dropped.
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

    /// Closes the stream in both directions at once and wakes threads that are blocked in one of
    /// its halves. Data that was written and not yet acknowledged may be lost.
    pub fn shutdown(&self) {
        // Fails only if the peer has already disconnected, which is the same result.
        let _ = self.wire.socket.shutdown(Shutdown::Both);
    }

    /// Closes the stream as [`StreamHandle::shutdown`] does, and discards the kernel's unsent data.
    /// The other end learns of the close at once.
    pub fn abort(&self) {
        if let Some(socket) = self.wire.socket.tcp() {
            let linger = Some(Duration::ZERO);
            // Without the option, the close is only slower.
            let _ = SockRef::from(socket).set_linger(linger);
        }
        self.shutdown();
    }

    /// Returns which ends have closed the stream.
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

    /// Returns the kernel's measurements, combined for all paths. `None` for a local pair or an old
    /// kernel.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        let socket = self.wire.socket.tcp()?;
        if let Some(subflows) = self.subflows() {
            return Some(TcpInfo::together(subflows.iter().map(|path| path.info)));
        }
        TcpInfo::of(socket).ok()
    }

    /// Returns each path of the stream: one for plain TCP, an empty list for a local pair. A
    /// multipath stream that fell back to TCP continues as its first path, with that path's number.
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

    /// True if the kernels may spread the stream over several paths. A multipath stream falls back
    /// to TCP if a device on the path changes its segments.
    pub fn is_multipath(&self) -> bool {
        let socket = self.wire.socket.tcp();
        self.wire.multipath && socket.is_some_and(multipath::is_multipath)
    }

    /// Returns the paths of a multipath stream; `None` for other streams. If the query fails or
    /// finds no paths while the stream is multipath, returns the last known paths.
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

    /// Returns the other end's address; `None` for a local pair.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.wire.peer
    }

    /// Returns this end's address; `None` for a local pair.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.wire.local
    }

    /// Returns this end's address and the other's; `None` if either is unknown.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.wire.local?, self.wire.peer?))
    }

    /// Returns the fingerprint of the key that the other end proved to own. `None` if it had no key
    /// (clear streams, clients without a certificate).
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        Some(self.wire.peer_certificate?.fingerprint)
    }

    /// Returns the validity period of the certificate of that key.
    pub fn peer_validity(&self) -> Option<Validity> {
        Some(self.wire.peer_certificate?.validity)
    }

    /// Returns the name of the protection: `TLS 1.3, AES-128-GCM`, `clear`.
    pub fn protection(&self) -> &'static str {
        self.wire.protection
    }

    /// Returns the number of bytes that the reader has returned, without the overhead of
    /// encryption.
    pub fn bytes_read(&self) -> ByteCount {
        ByteCount(self.wire.read.load(Ordering::Relaxed))
    }

    /// Returns the number of bytes that the writer has sent to the kernel, without the overhead of
    /// encryption.
    pub fn bytes_written(&self) -> ByteCount {
        ByteCount(self.wire.written.load(Ordering::Relaxed))
    }

    /// Returns the number of bytes that the kernel has accepted in vectored writes, with the
    /// overhead of encryption. It grows while a long block is being sent.
    pub fn bytes_taken(&self) -> ByteCount {
        ByteCount(self.wire.taken.load(Ordering::Relaxed))
    }

    /// Removes the limit on the time that the other end may leave data unread (`TCP_USER_TIMEOUT`,
    /// which also closes a connection to a live peer that does not read). For streams that a user
    /// watches.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a local pair, else the error of the kernel.
    pub fn wait_for_reader(&self) -> io::Result<()> {
        socket2::SockRef::from(self.tcp()?).set_tcp_user_timeout(None)
    }

    /// Changes the congestion control of the live connection (`bbr`, `cubic`).
    ///
    /// # Errors
    ///
    /// `NotFound` if the kernel has no such module, `PermissionDenied` if the module is not in
    /// `net.ipv4.tcp_allowed_congestion_control`, `Unsupported` for a local pair.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        congestion::set(self.tcp()?, name)
    }

    /// Returns the congestion control in use.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a local pair.
    pub fn congestion(&self) -> io::Result<String> {
        congestion::of(self.tcp()?)
    }

    /// Returns the congestion control that suits the stream's round trip, if it began with another
    /// one ([`congestion::by_distance`]).
    pub fn congestion_by_distance(&self) -> Option<&'static str> {
        let info = self.tcp_info();
        let least = info.and_then(|info| info.minimum_rtt);
        congestion::by_distance(self.tcp().ok()?, least)
    }

    /// Returns the default congestion control for this stream's path; `None` for a local pair.
    pub fn governed_by(&self) -> Option<String> {
        let found = self.congestion_by_distance().map(str::to_owned);
        found.or_else(|| self.congestion().ok())
    }

    /// Limits the unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`), in bytes; 0 to 2^32 - 1.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a local pair, else the error of the kernel.
    pub fn set_unsent_limit(&self, bytes: u32) -> io::Result<()> {
        tcp::set_unsent_limit(self.tcp()?, bytes)
    }

    /// Limits the sending rate of the kernel (`SO_MAX_PACING_RATE`), in bytes per second. `None`
    /// removes the limit.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a local pair, else the error of the kernel.
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
    /// Closes the stream when no bytes have arrived for a minute. A reader of a failing test then
    /// meets the end instead of waiting for ever. A busy host still has enough time.
    pub(super) fn end_in_time(&self) {
        let handle = self.clone();
        std::thread::spawn(move || {
            let mut before = None;
            while before != Some(handle.bytes_read()) {
                before = Some(handle.bytes_read());
                // tidy: reason: the minute is the limit.
                std::thread::sleep(Duration::from_secs(60));
            }
            handle.shutdown();
        });
    }
}

/// Poll event for a close by the other end. Only Linux has one.
#[cfg(target_os = "linux")]
const CLOSED_BY_PEER: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const CLOSED_BY_PEER: PollFlags = PollFlags::empty();

/// Set of ends that have closed a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Neither end has closed it.
    Not,
    /// The other end has closed it. Data that it sent before can still be read.
    ByPeer,
    /// Both ends have closed it, or the connection failed.
    Both,
}

/// Socket of a stream.
#[derive(Debug)]
pub(super) enum Socket {
    /// Connection between hosts.
    Tcp(TcpStream),
    /// Connection within a host.
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

    /// Sets the maximum duration of a single send or receive. `None` means no limit. Durations
    /// below a microsecond are rounded up to one.
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

    /// Makes the kernel send small writes at once (`TCP_NODELAY`).
    pub(super) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_nodelay(true),
            // A Unix socket never delays small writes.
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

/// State shared by both halves and the handle.
#[derive(Debug)]
pub(super) struct Wire {
    socket: Socket,
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
    /// True if the socket used Multipath TCP at the start.
    multipath: bool,
    /// Paths found by the last query that found any.
    last_subflows: Mutex<Vec<Subflow>>,
    peer_certificate: Option<KeyAndDates>,
    protection: &'static str,
    read: AtomicU64,
    written: AtomicU64,
    /// Bytes accepted by the kernel in vectored writes.
    taken: AtomicU64,
    /// Number of halves not yet dropped.
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

    /// Receives the available bytes; waits for at least one. Returns 0 if the peer has ended.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.socket.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Makes later calls of [`Wire::sleep`] return once this many bytes have arrived, 1 or more.
    /// Returns false if the socket does not support it.
    pub(super) fn sleep_for(&self, bytes: usize) -> bool {
        let socket = self.socket.tcp();
        socket.is_some_and(|socket| tcp::set_receive_threshold(socket, bytes).is_ok())
    }

    /// Waits until enough bytes have arrived, or the stream has ended.
    pub(super) fn sleep(&self) -> io::Result<()> {
        self.poll_for(PollFlags::IN, None)
    }

    /// Waits for this time, or until the stream has ended, so that more bytes can arrive.
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

    /// Receives the available bytes, if there are any.
    pub(super) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        use rustix::io::Errno;
        match rustix::net::recv(&self.socket, buffer, rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, count)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the maximum number of bytes that a receiver on one path may wait for. It is a small
    /// part of the kernel's receive buffer, so that the sender never has to wait.
    pub(super) fn longest_sleep(&self) -> usize {
        let held = self
            .on_one_path()
            .and_then(|socket| SockRef::from(socket).recv_buffer_size().ok());
        (held.unwrap_or(0) / HELD_PART).min(LONGEST_SLEEP)
    }

    /// Returns the receiver's estimate of the round trip on a single path, if there is one.
    pub(super) fn receive_round_trip(&self) -> Option<Duration> {
        TcpInfo::of(self.on_one_path()?).ok()?.receive_rtt
    }

    /// Returns the connection if it is plain TCP.
    fn on_one_path(&self) -> Option<&TcpStream> {
        self.socket.tcp().filter(|_| !self.multipath)
    }

    /// Sends all bytes.
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

    /// Sends all bytes with `MSG_MORE`, so that they may share a segment with the data that
    /// follows.
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

    /// Sends a range of a file from the page cache, without copying it through this process.
    /// Returns the number of bytes sent before the file ended or the kernel could not continue.
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

    /// Only Linux supports `sendfile` in this form.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn send_file(&self, _: BorrowedFd<'_>, _: u64, _: usize) -> io::Result<usize> {
        Ok(0)
    }

    /// Sends as many bytes as the kernel accepts without waiting.
    pub(super) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        use rustix::net::SendFlags;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(&self.socket, bytes, flags)?)
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self.socket.shutdown(how) {
            // The peer has already disconnected.
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

/// A half's reference to the wire. When the second half is dropped, the connection is closed, even
/// if handles remain.
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
            // An error has no receiver here.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_fell_back_continues_as_its_first_path() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let before = Subflow {
            number: 7,
            local: "10.0.0.1:1".parse().unwrap(),
            peer: "10.0.0.2:2".parse().unwrap(),
            info: TcpInfo::together([]),
        };
        let mut wire = Wire::new(Socket::Tcp(socket), None, "clear");
        // The kernel reports no paths of this socket, as for a stream that fell back.
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
