//! The reader and the writer of an encrypted stream.

use std::io::{self, IoSlice};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use super::handshake::Done;
use super::session::{
    Endpoint, Opened, Outgoing, RECORD_MAXIMUM, RECORD_OVERHEAD, RECORD_PLAINTEXT, Session, Sink,
    broken,
};
use super::{TlsOptions, suite_name};
use crate::net::stream::{Half, Socket, Stream, StreamHandle, StreamReader, StreamWriter, Wire};

/// A reader's first buffer: a full record with room for the next one's start.
const FIRST_INCOMING: usize = 2 * RECORD_PLAINTEXT;

/// Makes a stream of a session.
pub(super) fn build<E: Endpoint>(done: Done<E>, socket: TcpStream, options: TlsOptions) -> Stream {
    let protection = suite_name(done.session.suite());
    let wire = Wire::new(Socket::Tcp(socket), done.peer, protection);
    let (reading, writing) = Half::pair(&wire);
    let shared = Arc::new(Shared {
        session: Mutex::new(done.session),
        sending: Mutex::new(()),
    });
    let limit = options.buffer_bytes.max(2 * RECORD_MAXIMUM);
    Stream {
        reader: Box::new(TlsReader {
            half: reading,
            shared: Arc::clone(&shared),
            incoming: Incoming::new(done.received, limit),
        }),
        writer: Box::new(TlsWriter {
            half: writing,
            shared,
            outgoing: Outgoing::default(),
            staged: Vec::new(),
            limit,
        }),
        handle: StreamHandle::new(&wire),
    }
}

/// What the halves share. Whoever takes both locks takes `sending` first.
struct Shared<E> {
    /// Held while computing only.
    session: Mutex<Session<E>>,
    /// The right to send: records must reach the wire in the order in which
    /// they were encrypted, so it is held from encrypting to having sent. The
    /// reader never waits for it.
    sending: Mutex<()>,
}

/// A half that panicked while it held a lock has left a session in an unknown
/// state; the other half must not go on with it.
fn lock<T>(mutex: &Mutex<T>) -> io::Result<MutexGuard<'_, T>> {
    mutex
        .lock()
        .map_err(|_| io::Error::other("the stream's other half failed: connect again"))
}

impl<E: Endpoint> Shared<E> {
    /// Sends rustls's own records, as far as that goes without waiting: by
    /// itself, or by leaving them to the writer that is sending now and looks
    /// again afterwards. What the kernel does not take goes with the next data.
    fn send_pending(&self, wire: &Wire) -> io::Result<()> {
        while lock(&self.session)?.has_pending() {
            let Ok(_sending) = self.sending.try_lock() else {
                return Ok(());
            };
            let mut records = lock(&self.session)?.take_pending();
            let sent = match wire.send_now(&records) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                other => other?,
            };
            if sent < records.len() {
                records.drain(..sent);
                lock(&self.session)?.return_pending(records);
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Received bytes whose records are decrypted where they lie.
struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    limit: usize,
}

impl Incoming {
    fn new(received: Vec<u8>, limit: usize) -> Incoming {
        let end = received.len();
        let mut buffer = received;
        buffer.resize(FIRST_INCOMING.max(end), 0);
        Incoming {
            buffer,
            start: 0,
            end,
            limit,
        }
    }

    fn unread(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Blocks until something came; `Ok(0)` is the end.
    fn receive(&mut self, wire: &Wire) -> io::Result<usize> {
        // Less than a record is left: moving it costs nothing worth saving.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room = self.buffer.len() - self.end;
        let count = wire.receive(&mut self.buffer[self.end..])?;
        self.end += count;
        if count == room && self.buffer.len() < self.limit {
            // The kernel had more to give than there was room.
            let larger = (self.buffer.len() * 2).min(self.limit);
            self.buffer.resize(larger, 0);
        }
        Ok(count)
    }
}

struct TlsReader<E> {
    half: Half,
    shared: Arc<Shared<E>>,
    incoming: Incoming,
}

impl<E: Endpoint> TlsReader<E> {
    fn open(&mut self, sink: &mut Sink<'_>) -> io::Result<Opened> {
        let mut session = lock(&self.shared.session)?;
        let (consumed, opened) = session.open(self.incoming.unread(), sink);
        let answers = session.has_pending();
        drop(session);
        self.incoming.start += consumed;
        if answers {
            // A failure to answer shows again at the next send or receive.
            let _ = self.shared.send_pending(&self.half);
        }
        opened.map_err(|error| {
            // Nothing more can be believed in either direction.
            let _ = self.half.shutdown(Shutdown::Both);
            broken(&error)
        })
    }
}

impl<E: Endpoint> StreamReader for TlsReader<E> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut sink = Sink::new(buffer);
        loop {
            let opened = self.open(&mut sink)?;
            if sink.filled > 0 || opened == Opened::Closed {
                self.half.count_read(sink.filled);
                return Ok(sink.filled);
            }
            if self.incoming.receive(&self.half)? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the encrypted stream was cut off before its end: connect again",
                ));
            }
        }
    }
}

struct TlsWriter<E: Endpoint> {
    half: Half,
    shared: Arc<Shared<E>>,
    outgoing: Outgoing,
    /// Small parts, gathered to a record.
    staged: Vec<u8>,
    limit: usize,
}

impl<E: Endpoint> TlsWriter<E> {
    /// Plaintext that fits beside what is already encrypted, in whole records.
    fn capacity(&self) -> usize {
        let room = self.limit.saturating_sub(self.outgoing.filled().len());
        room / (RECORD_PLAINTEXT + RECORD_OVERHEAD) * RECORD_PLAINTEXT
    }

    /// Encrypts all parts and sends them, a buffer at a time.
    fn send_parts(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.staged.clear();
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                rest = self.put(rest)?;
            }
        }
        self.seal_staged()?;
        self.send()
    }

    /// Takes some of the front of a part and returns the rest: whole records
    /// straight from the caller's memory; what is less than a record, or fills
    /// one up that was begun, over `staged`.
    fn put<'p>(&mut self, part: &'p [u8]) -> io::Result<&'p [u8]> {
        if self.staged.is_empty() && part.len() >= RECORD_PLAINTEXT {
            if self.capacity() == 0 {
                self.send()?;
            }
            let whole = part.len() / RECORD_PLAINTEXT * RECORD_PLAINTEXT;
            let (now, later) = part.split_at(whole.min(self.capacity()));
            self.seal(now)?;
            return Ok(later);
        }
        let missing = RECORD_PLAINTEXT - self.staged.len();
        let (now, later) = part.split_at(missing.min(part.len()));
        self.staged.extend_from_slice(now);
        if self.staged.len() == RECORD_PLAINTEXT {
            self.seal_staged()?;
        }
        Ok(later)
    }

    fn seal_staged(&mut self) -> io::Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        if self.capacity() == 0 {
            self.send()?;
        }
        let staged = std::mem::take(&mut self.staged);
        let result = self.seal(&staged);
        self.staged = staged;
        self.staged.clear();
        result
    }

    fn seal(&mut self, plaintext: &[u8]) -> io::Result<()> {
        let records = plaintext.len().div_ceil(RECORD_PLAINTEXT);
        self.outgoing
            .reserve(plaintext.len() + records * RECORD_OVERHEAD);
        lock(&self.shared.session)?.seal(plaintext, &mut self.outgoing)
    }

    fn send(&mut self) -> io::Result<()> {
        let result = match self.outgoing.filled() {
            [] => Ok(()),
            filled => self.half.send_all(&mut [IoSlice::new(filled)]),
        };
        self.outgoing.clear();
        result
    }

    /// Runs `body` with the right to send, then sends what the reader may have
    /// left to be sent meanwhile.
    fn while_sending(
        &mut self,
        body: impl FnOnce(&mut TlsWriter<E>) -> io::Result<()>,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let sending = lock(&shared.sending)?;
        let result = body(self);
        drop(sending);
        if result.is_err() {
            // Records may be missing from the middle: the stream is dead.
            self.outgoing.clear();
            let _ = self.half.shutdown(Shutdown::Both);
            return result;
        }
        shared.send_pending(&self.half)
    }
}

impl<E: Endpoint> StreamWriter for TlsWriter<E> {
    fn write_all(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.while_sending(|writer| writer.send_parts(parts))?;
        self.half
            .count_written(parts.iter().map(|part| part.len()).sum());
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.while_sending(|writer| {
            lock(&writer.shared.session)?.seal_end(&mut writer.outgoing)?;
            writer.send()?;
            writer.half.shutdown(Shutdown::Write)
        })
    }
}

impl<E: Endpoint> Drop for TlsWriter<E> {
    fn drop(&mut self) {
        // Without the closing message the peer knows that this was no end.
        let _ = self.half.shutdown(Shutdown::Write);
    }
}
