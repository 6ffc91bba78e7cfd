//! A file whose pieces arrive in any order while it is stored.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::control::Control;
use crate::error::Error;
use crate::session::Session;
use crate::tls::DataStream;

/// Bytes of a file in one frame, or in one write in stream mode.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;

/// Bytes that wait to be sent. Beyond them, a thread that adds a piece waits.
const WAITING_BYTES: usize = 32 << 20;

/// The pieces of a file that wait to be sent. Threads add pieces while another thread sends them.
#[derive(Debug)]
pub struct Pieces {
    state: Mutex<State>,
    changed: Condvar,
    /// A byte arrives at the first one when a piece arrives.
    woken: UnixStream,
    waker: UnixStream,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Piece>,
    /// Number of bytes in `waiting`.
    bytes: usize,
    /// True if no further piece comes.
    is_ended: bool,
    /// True if pieces are not sent any more.
    is_closed: bool,
    /// True while the first byte of the file is missing, which must be sent first.
    awaits_start: bool,
}

/// A piece of a file.
#[derive(Debug)]
pub(super) struct Piece {
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Number of its bytes that were taken.
    used: usize,
}

/// Result of asking for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Data of the file at this offset.
    Data(u64),
    /// No data wait now.
    Later,
    /// All data were taken.
    End,
}

impl Pieces {
    /// Creates an empty set of pieces.
    ///
    /// # Errors
    ///
    /// As `socketpair`.
    pub fn new() -> io::Result<Pieces> {
        let (woken, waker) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        Ok(Pieces {
            state: Mutex::default(),
            changed: Condvar::new(),
            woken,
            waker,
        })
    }

    /// Adds a piece. Waits while many bytes wait to be sent. Returns false if the file has ended,
    /// or if pieces are not sent any more.
    pub fn push(&self, offset: u64, bytes: Vec<u8>) -> bool {
        let mut state = self.lock();
        let is_full = |state: &State| state.bytes >= WAITING_BYTES && !state.awaits_start;
        while is_full(&state) && !state.is_ended && !state.is_closed {
            state = self.wait(state);
        }
        // A transfer that has seen the end takes no further piece.
        if state.is_ended || state.is_closed {
            return false;
        }
        state.bytes += bytes.len();
        let used = 0;
        state.waiting.push_back(Piece {
            offset,
            bytes,
            used,
        });
        self.tell(state);
        true
    }

    /// Ends the file: no further piece comes.
    pub fn end(&self) {
        let mut state = self.lock();
        state.is_ended = true;
        self.tell(state);
    }

    /// Refuses further pieces.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.waiting.clear();
        self.tell(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        drop(state);
        self.changed.notify_all();
        // A full buffer also wakes the reader.
        let _ = (&self.waker).write(&[0]);
    }

    /// Returns the descriptor that is readable when a piece has arrived.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// Takes the signals of arrived pieces.
    pub(super) fn clear_signal(&self) {
        let mut bytes = [0; 64];
        while (&self.woken).read(&mut bytes).is_ok_and(|count| count > 0) {}
    }

    /// True if the next call of [`Pieces::take`] returns data or the end.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.lock();
        state.is_ended || !state.waiting.is_empty()
    }

    /// Takes data of the oldest piece, at most as many as fit into one frame, and adds them to
    /// `out`.
    pub(super) fn take(&self, out: &mut Vec<u8>) -> Next {
        let mut state = self.lock();
        let Some(piece) = state.waiting.front_mut() else {
            return if state.is_ended {
                Next::End
            } else {
                Next::Later
            };
        };
        let start = piece.used;
        let end = piece.bytes.len().min(start + BLOCK_BYTES);
        out.extend_from_slice(&piece.bytes[start..end]);
        let offset = piece.offset + start as u64;
        piece.used = end;
        if end == piece.bytes.len() {
            state.waiting.pop_front();
        }
        state.bytes -= end - start;
        drop(state);
        self.changed.notify_all();
        Next::Data(offset)
    }

    /// Takes the piece at an offset. Waits for it, unless no further piece comes, or too many
    /// others wait: then takes the piece that is nearest to the start of the file. The first
    /// piece of a new file is always the one at offset 0. `None` if no piece remains.
    fn take_at(&self, offset: u64, must_match: bool) -> Option<Piece> {
        let mut state = self.lock();
        state.awaits_start = must_match;
        loop {
            let found = state.waiting.iter().position(|one| one.offset == offset);
            let may_jump = state.is_ended || (state.bytes >= WAITING_BYTES && !must_match);
            let lowest = || {
                let pieces = state.waiting.iter().enumerate();
                let lowest = pieces.min_by_key(|(_, one)| one.offset);
                lowest.map(|(index, _)| index)
            };
            let found = found.or_else(|| may_jump.then(lowest).flatten());
            if let Some(piece) = found.and_then(|index| state.waiting.remove(index)) {
                state.bytes -= piece.bytes.len();
                state.awaits_start = false;
                drop(state);
                self.changed.notify_all();
                return Some(piece);
            }
            if state.is_ended || state.is_closed {
                return None;
            }
            state = self.wait(state);
        }
    }
}

impl Session {
    /// Stores pieces of a file until they end. A file that is not new keeps its other data.
    ///
    /// # Errors
    ///
    /// If the server rejects the file or the session ended. In stream mode, also if the first byte
    /// of a new file does not come. The pieces are closed then.
    pub fn store_pieces(
        &mut self,
        path: &[u8],
        is_new: bool,
        pieces: &Pieces,
    ) -> Result<(), Error> {
        let stored = if self.is_extended() {
            self.store_pieces_extended(path, is_new, pieces)
        } else {
            self.store_pieces_in_order(path, is_new, pieces)
        };
        pieces.close();
        stored
    }

    /// Stores pieces in stream mode. Each gap needs a transfer of its own.
    fn store_pieces_in_order(
        &mut self,
        path: &[u8],
        mut is_new: bool,
        pieces: &Pieces,
    ) -> Result<(), Error> {
        let mut at = 0;
        let mut open: Option<DataStream> = None;
        while let Some(piece) = pieces.take_at(at, is_new) {
            if open.is_none() || piece.offset != at {
                finish(&mut self.control, open.take())?;
                // At offset 0, servers remove the data that a file has.
                if is_new != (piece.offset == 0) {
                    return Err(Error::Unsupported(
                        "store a file whose first byte comes last; run the same command again",
                    ));
                }
                open = Some(self.start_stream("STOR", path, piece.offset)?);
                is_new = false;
            }
            let sent = open
                .as_mut()
                .map_or(Ok(()), |to| to.write_all(&piece.bytes));
            if let Err(error) = sent {
                // The reply gives the reason of a failure, such as a full disk.
                drop(open.take());
                self.control.finished("STOR")?;
                return Err(Error::io("send data to the server", error));
            }
            at = piece.offset + piece.bytes.len() as u64;
        }
        if is_new {
            open = Some(self.start_stream("STOR", path, 0)?);
        }
        finish(&mut self.control, open)
    }
}

/// Ends a transfer in stream mode.
fn finish(control: &mut Control, stream: Option<DataStream>) -> Result<(), Error> {
    let Some(mut stream) = stream else {
        return Ok(());
    };
    let sent = stream.flush().and_then(|()| stream.finish());
    control.finished("STOR")?;
    sent.map_err(|error| Error::io("send data to the server", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_in_frames() {
        let pieces = Pieces::new().unwrap();
        let mut out = Vec::new();
        assert_eq!(pieces.take(&mut out), Next::Later);
        assert!(pieces.push(7, vec![1; BLOCK_BYTES + 3]));
        assert!(pieces.is_ready());
        assert_eq!(pieces.take(&mut out), Next::Data(7));
        assert_eq!(out.len(), BLOCK_BYTES);
        assert_eq!(pieces.take(&mut out), Next::Data(7 + BLOCK_BYTES as u64));
        assert_eq!(out.len(), BLOCK_BYTES + 3);
        assert!(pieces.push(0, vec![1]));
        pieces.end();
        assert!(!pieces.push(1, vec![1]));
        assert_eq!(pieces.take(&mut out), Next::Data(0));
        assert_eq!(pieces.take(&mut out), Next::End);
        pieces.close();
        assert!(!pieces.push(0, vec![1]));
    }

    #[test]
    fn pieces_are_ordered_for_stream_mode() {
        let pieces = Pieces::new().unwrap();
        let offset_of = |piece: Option<Piece>| piece.map(|piece| piece.offset);
        assert!(pieces.push(4, vec![0; 4]));
        assert!(pieces.push(0, vec![0; 4]));
        assert_eq!(offset_of(pieces.take_at(0, true)), Some(0));
        assert_eq!(offset_of(pieces.take_at(4, false)), Some(4));
        // The piece at offset 8 does not come in time.
        assert!(pieces.push(100, vec![0; WAITING_BYTES]));
        assert_eq!(offset_of(pieces.take_at(8, false)), Some(100));
        pieces.end();
        assert_eq!(offset_of(pieces.take_at(8, false)), None);
    }

    #[test]
    fn many_pieces_wait_for_room() {
        let pieces = Pieces::new().unwrap();
        assert!(pieces.push(0, vec![0; WAITING_BYTES]));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| pieces.push(1, vec![0; 1]));
            assert_eq!(offset(&pieces), Some(0));
            assert!(second.join().unwrap());
        });
        fn offset(pieces: &Pieces) -> Option<u64> {
            pieces.take_at(0, false).map(|piece| piece.offset)
        }
    }
}
