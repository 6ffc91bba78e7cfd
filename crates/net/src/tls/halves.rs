//! The reader and the writer of an encrypted stream.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustls::Error;

use super::handshake::Done;
use super::records::{
    Damage, Opened, Opener, Outgoing, RECORD_HEADER, RECORD_MAXIMUM, RECORD_OVERHEAD,
    RECORD_PLAINTEXT, Renewal, Sealer,
};
use super::session::Parts;
use super::{TlsOptions, suite_name};
use crate::sleeper::Sleeper;
use crate::stream::{Half, Socket, Stream, StreamHandle, StreamReader, StreamWriter, Wire};
use crate::tls_errors::explained;

/// Initial size in bytes of a reader's buffer: a full record, and the beginning of the next one.
const FIRST_INCOMING: usize = 2 * RECORD_PLAINTEXT;

/// Creates a stream from a connection after its handshake.
pub(super) fn build(done: Done, socket: Socket, options: TlsOptions) -> Stream {
    let Parts {
        opener,
        sealer,
        renewal,
        suite,
        unread,
        closed,
    } = done.parts;
    let protection = suite_name(Some(suite));
    let wire = Wire::new(socket, done.peer, protection);
    let (reading, writing) = Half::pair(&wire);
    let shared = Arc::new(Shared {
        renewal: Mutex::new(renewal),
        sealer: Mutex::new(sealer),
        owes_update: AtomicBool::new(false),
    });
    let limit = options.buffer_bytes.max(2 * RECORD_MAXIMUM);
    Stream {
        reader: Box::new(TlsReader {
            half: reading,
            sleeper: Sleeper::new(),
            shared: Arc::clone(&shared),
            opener,
            incoming: Incoming::new(done.received, limit),
            early: unread,
            state: if closed { State::Closed } else { State::Open },
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

/// State shared by both halves. A thread that takes both locks takes `sealer` first.
struct Shared {
    /// Locked during computations only.
    renewal: Mutex<Box<dyn Renewal>>,
    /// Locked from the encryption to the sending of records, because they must be sent in the order
    /// in which they were encrypted. The reader never waits for this lock.
    sealer: Mutex<Sealer>,
    /// True if the peer changed its key and requested the same of this end. The writer answers
    /// before its next data.
    owes_update: AtomicBool,
}

/// Locks shared state. Fails if the other half panicked while it held the lock, because the keys
/// may then be inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> io::Result<MutexGuard<'_, T>> {
    mutex
        .lock()
        .map_err(|_| io::Error::other("the stream's other half failed: connect again"))
}

/// Returns the error of later operations on a damaged stream.
fn broken(error: &Error) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "the encrypted stream is damaged ({}): connect again",
            explained(error)
        ),
    )
}

/// Buffer of received records, which are decrypted from here.
struct Incoming {
    buffer: Vec<u8>,
    /// Data that was decrypted in place, before a caller had room for it. It lies before `start`.
    plain: std::ops::Range<usize>,
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
            plain: 0..0,
            start: 0,
            end,
            limit,
        }
    }

    /// Moves decrypted data to the caller. Returns the number of bytes.
    fn take_plain(&mut self, room: &mut [u8]) -> usize {
        let count = self.plain.len().min(room.len());
        let from = self.plain.start;
        room[..count].copy_from_slice(&self.buffer[from..from + count]);
        self.plain.start += count;
        count
    }

    /// Takes the next record, if it is complete.
    fn next_record(&mut self) -> Result<Option<&mut [u8]>, Damage> {
        let Some(length) = Opener::whole_record(&self.buffer[self.start..self.end])? else {
            return Ok(None);
        };
        let record = self.start..self.start + length;
        self.start = record.end;
        Ok(Some(&mut self.buffer[record]))
    }

    /// Records that the last record's data lies in the buffer, with its length in bytes.
    fn keep_plain(&mut self, record: usize, bytes: usize) {
        let start = self.start - record + RECORD_HEADER;
        self.plain = start..start + bytes;
    }

    /// Blocks until data arrives. `Ok(0)` means the end. The buffer must hold no decrypted data.
    fn receive(&mut self, wire: &Wire, sleeper: &mut Sleeper) -> io::Result<usize> {
        // Less than one record is left, so that moving it is cheap.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room = self.buffer.len() - self.end;
        // The encrypted form of the expected data is longer, never shorter.
        let held = self.end;
        let count = sleeper.receive(wire, &mut self.buffer[self.end..], held)?;
        self.end += count;
        if count == room && self.buffer.len() < self.limit {
            // The kernel probably has more data than the buffer had room for.
            let larger = (self.buffer.len() * 2).min(self.limit);
            self.buffer.resize(larger, 0);
        }
        Ok(count)
    }
}

/// State of the receiving direction.
enum State {
    Open,
    /// The peer announced the end of its data.
    Closed,
    /// The stream is damaged.
    Broken(Error),
}

struct TlsReader {
    half: Half,
    sleeper: Sleeper,
    shared: Arc<Shared>,
    opener: Opener,
    incoming: Incoming,
    /// Data that arrived with the handshake.
    early: Vec<u8>,
    state: State,
}

impl TlsReader {
    /// Decrypts received records into the caller's memory, until that is full or no complete record
    /// is left. Returns the number of bytes.
    fn open(&mut self, buffer: &mut [u8]) -> Result<usize, Damage> {
        let mut filled = self.incoming.take_plain(buffer);
        while filled < buffer.len() && matches!(self.state, State::Open) {
            let Some(record) = self.incoming.next_record()? else {
                break;
            };
            let length = record.len();
            let renewal = &self.shared.renewal;
            let mut renew = || {
                let mut renewal = lock(renewal).map_err(|e| Error::General(e.to_string()))?;
                renewal.next_receiving()
            };
            match self
                .opener
                .open(record, &mut buffer[filled..], &mut renew)?
            {
                Opened::Data(count) => filled += count,
                Opened::InPlace(count) => {
                    self.incoming.keep_plain(length, count);
                    filled += self.incoming.take_plain(&mut buffer[filled..]);
                }
                Opened::KeyUpdate(wanted) => {
                    if wanted {
                        self.shared.owes_update.store(true, Ordering::Relaxed);
                    }
                }
                Opened::Closed => self.state = State::Closed,
                Opened::Nothing => {}
            }
        }
        Ok(filled)
    }

    /// Sends the peer an alert, if that is possible without waiting, and closes the stream in both
    /// directions.
    fn break_off(&mut self, damage: Damage) -> io::Error {
        if let Some(alert) = damage.alert
            && let Ok(mut sealer) = self.shared.sealer.try_lock()
        {
            let mut outgoing = Outgoing::default();
            // The original error is reported, not a failure to send the alert.
            if sealer.give_up(alert, &mut outgoing).is_ok() {
                let _ = self.half.send_now(outgoing.filled());
            }
        }
        let _ = self.half.shutdown(Shutdown::Both);
        let error = broken(&damage.error);
        self.state = State::Broken(damage.error);
        error
    }

    /// Records that this many bytes were returned.
    fn count(&mut self, bytes: usize) {
        self.sleeper.note(bytes);
        self.half.count_read(bytes);
    }

    fn take_early(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.early.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.early[..count]);
        self.early.drain(..count);
        count
    }
}

impl StreamReader for TlsReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if !self.early.is_empty() {
            let count = self.take_early(buffer);
            self.count(count);
            return Ok(count);
        }
        loop {
            if let State::Broken(error) = &self.state {
                return Err(broken(error));
            }
            let filled = match self.open(buffer) {
                Ok(filled) => filled,
                Err(damage) => return Err(self.break_off(damage)),
            };
            if filled > 0 || matches!(self.state, State::Closed) {
                self.count(filled);
                return Ok(filled);
            }
            if self.incoming.receive(&self.half, &mut self.sleeper)? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the encrypted stream was cut off before its end: connect again",
                ));
            }
        }
    }

    fn anticipate(&mut self, bytes: usize) {
        self.sleeper.anticipate(&self.half, bytes);
    }
}

struct TlsWriter {
    half: Half,
    shared: Arc<Shared>,
    outgoing: Outgoing,
    /// Small parts, collected to fill a record.
    staged: Vec<u8>,
    limit: usize,
}

impl TlsWriter {
    /// Returns the size of the plaintext that still fits into the buffer, in complete records.
    fn capacity(&self) -> usize {
        let room = self.limit.saturating_sub(self.outgoing.filled().len());
        room / (RECORD_PLAINTEXT + RECORD_OVERHEAD) * RECORD_PLAINTEXT
    }

    /// Encrypts all parts and sends them, one buffer at a time.
    fn send_parts(&mut self, parts: &[&[u8]], sealer: &mut Sealer) -> io::Result<()> {
        self.staged.clear();
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                rest = self.put(rest, sealer)?;
            }
        }
        self.seal_staged(sealer)?;
        self.send()
    }

    /// Takes some of the front of a part and returns the rest. Full records are encrypted directly
    /// from the caller's memory. Smaller pieces are collected in `staged`.
    fn put<'p>(&mut self, part: &'p [u8], sealer: &mut Sealer) -> io::Result<&'p [u8]> {
        if self.staged.is_empty() && part.len() >= RECORD_PLAINTEXT {
            if self.capacity() == 0 {
                self.send()?;
            }
            let whole = part.len() / RECORD_PLAINTEXT * RECORD_PLAINTEXT;
            let (now, later) = part.split_at(whole.min(self.capacity()));
            self.seal(now, sealer)?;
            return Ok(later);
        }
        let missing = RECORD_PLAINTEXT - self.staged.len();
        let (now, later) = part.split_at(missing.min(part.len()));
        self.staged.extend_from_slice(now);
        if self.staged.len() == RECORD_PLAINTEXT {
            self.seal_staged(sealer)?;
        }
        Ok(later)
    }

    fn seal_staged(&mut self, sealer: &mut Sealer) -> io::Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        if self.capacity() == 0 {
            self.send()?;
        }
        let staged = std::mem::take(&mut self.staged);
        let result = self.seal(&staged, sealer);
        self.staged = staged;
        self.staged.clear();
        result
    }

    /// Encrypts data. Changes the key first if its limit is reached or the peer requested a change.
    fn seal(&mut self, mut plaintext: &[u8], sealer: &mut Sealer) -> io::Result<()> {
        while !plaintext.is_empty() {
            let owes = self.shared.owes_update.swap(false, Ordering::Relaxed);
            if owes || sealer.is_worn() {
                let mut renewal = lock(&self.shared.renewal)?;
                // An answer to a key update must not request another one.
                let renewed = sealer.renew(&mut **renewal, !owes, &mut self.outgoing);
                renewed.map_err(|error| broken(&error))?;
            }
            let sealed = sealer.seal(plaintext, &mut self.outgoing);
            plaintext = &plaintext[sealed.map_err(|error| broken(&error))?..];
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let result = match self.outgoing.filled() {
            [] => Ok(()),
            filled => self.half.send_all(&mut [IoSlice::new(filled)]),
        };
        self.outgoing.clear();
        result
    }

    /// Runs `body` with the lock that permits sending.
    fn while_sending(
        &mut self,
        body: impl FnOnce(&mut TlsWriter, &mut Sealer) -> io::Result<()>,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut sealer = lock(&shared.sealer)?;
        let result = body(self, &mut sealer);
        if result.is_err() {
            // Records may be missing in the middle, so the stream is unusable.
            self.outgoing.clear();
            let _ = self.half.shutdown(Shutdown::Both);
        }
        result
    }
}

impl StreamWriter for TlsWriter {
    fn write_all(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.while_sending(|writer, sealer| writer.send_parts(parts, sealer))?;
        self.half
            .count_written(parts.iter().map(|part| part.len()).sum());
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.while_sending(|writer, sealer| {
            let closed = sealer.close(&mut writer.outgoing);
            closed.map_err(|error| broken(&error))?;
            writer.send()?;
            writer.half.shutdown(Shutdown::Write)
        })
    }
}

impl Drop for TlsWriter {
    fn drop(&mut self) {
        // Without the closing message, the peer detects that the stream was truncated.
        let _ = self.half.shutdown(Shutdown::Write);
    }
}
