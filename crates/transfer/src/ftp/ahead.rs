//! A large file that is fetched ahead of its reads.
//!
//! A thread fetches the file from the first read on. Reads take the data in any order. The thread
//! waits if it is too far ahead of all reads. Data that no read takes in time are forgotten.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_gridftp::protocol::ranges::Ranges;
use longhaul_gridftp::retrieve::{Fetch, Sink};
use longhaul_system::queue::lock;

use super::sessions::Sessions;

/// Bytes that may arrive beyond the last read. Parallel connections deliver out of order by a few
/// frames of 256 KiB each.
const AHEAD_BYTES: u64 = 16 << 20;

/// Bytes before the last read that are kept for slower reads.
const BEHIND_BYTES: u64 = 32 << 20;

/// Maximum size of a piece in bytes to which adjacent data are added: frames may be tiny, and each
/// piece needs memory beside its data.
const PIECE_BYTES: usize = 256 * 1024;

/// A read this far beyond the data starts another transfer there.
const JUMP_BYTES: u64 = 64 << 20;

/// A transfer and its data.
pub struct Ahead {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Offset at which the transfer began.
    start: u64,
    /// Data by offset, without overlaps.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// All data that have arrived, including forgotten ones.
    arrived: Ranges,
    /// End of the read that is furthest in the file.
    furthest: u64,
    /// Ranges for which reads wait.
    awaited: Vec<(u64, u64)>,
    /// True if no further data arrive.
    is_over: bool,
    /// True if no further read comes.
    is_abandoned: bool,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The buffer is filled.
    All,
    /// The data do not come. Fetch them in another way.
    Absent,
    /// The data are far ahead, or the transfer failed before them. Start another one there.
    Far,
}

impl Ahead {
    /// Starts to fetch a file from an offset.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(
        sessions: Arc<Sessions>,
        path: Vec<u8>,
        size: u64,
        offset: u64,
    ) -> io::Result<Arc<Ahead>> {
        let ahead = Arc::new(Ahead::new(offset));
        let receiving = Arc::clone(&ahead);
        let thread = std::thread::Builder::new().name("ftp".to_owned());
        thread.spawn(move || {
            receiving.fetch(&sessions, &path, size, offset);
            lock(&receiving.state).is_over = true;
            receiving.changed.notify_all();
        })?;
        Ok(ahead)
    }

    fn new(offset: u64) -> Ahead {
        Ahead {
            state: Mutex::new(State {
                start: offset,
                pieces: BTreeMap::new(),
                arrived: Ranges::default(),
                furthest: offset,
                awaited: Vec::new(),
                is_over: false,
                is_abandoned: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Fetches the file in a session of its own, which may wait for reads. Reads find the data
    /// absent after an error, and report the error of their own attempt. The sessions remember
    /// that the server cannot connect to this host.
    fn fetch(&self, sessions: &Sessions, path: &[u8], size: u64, offset: u64) {
        let Ok(mut session) = sessions.open_for_file() else {
            return;
        };
        let file = Fetch {
            path,
            size,
            present: Ranges::front(offset),
            sink: self,
        };
        let mut result = Ok(());
        let ended = session.retrieve(&[file], &mut |_, ended| result = ended);
        match ended.and(result) {
            Ok(()) => sessions.keep_for_file(session),
            Err(error) => sessions.learn_from(&error),
        }
    }

    /// Ends the transfer.
    pub fn abandon(&self) {
        lock(&self.state).is_abandoned = true;
        self.changed.notify_all();
    }

    /// Fills a buffer. Waits for data that are coming.
    pub fn take(&self, buffer: &mut [u8], offset: u64) -> Taken {
        let end = offset + buffer.len() as u64;
        let mut state = lock(&self.state);
        if offset > state.furthest + JUMP_BYTES {
            return Taken::Far;
        }
        state.furthest = state.furthest.max(end);
        state.awaited.push((offset, end));
        self.changed.notify_all();
        let taken = loop {
            if state.copy(buffer, offset) {
                break Taken::All;
            }
            if offset < state.start || state.has_forgotten(offset, end) {
                break Taken::Absent;
            }
            if state.is_over {
                break Taken::Far;
            }
            state = self.wait(state);
        };
        let own = state
            .awaited
            .iter()
            .position(|range| *range == (offset, end));
        if let Some(own) = own {
            state.awaited.swap_remove(own);
        }
        state.forget_old();
        self.changed.notify_all();
        taken
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Ahead {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        let mut state = lock(&self.state);
        loop {
            if state.is_abandoned {
                return Err(io::Error::other("the file is not read any more"));
            }
            // While a read waits, its data may be behind these in another connection.
            let may_wait = state.awaited.is_empty();
            if offset <= state.furthest + AHEAD_BYTES || !may_wait {
                break;
            }
            state = self.wait(state);
        }
        let is_near = offset <= state.furthest + AHEAD_BYTES + BEHIND_BYTES;
        if is_near && !state.arrived.overlaps(offset, end) {
            state.keep(offset, bytes);
        }
        state
            .arrived
            .insert(offset, end)
            .map_err(io::Error::other)?;
        state.forget_old();
        self.changed.notify_all();
        Ok(())
    }
}

impl State {
    /// Keeps data. Adds them to the piece before them if that is small.
    fn keep(&mut self, offset: u64, bytes: &[u8]) {
        if let Some((start, piece)) = self.pieces.range_mut(..offset).next_back()
            && start + piece.len() as u64 == offset
            && piece.len() + bytes.len() <= PIECE_BYTES
        {
            piece.extend_from_slice(bytes);
        } else {
            self.pieces.insert(offset, bytes.to_vec());
        }
    }

    /// Fills a buffer if all its bytes are here. Removes pieces that it uses to their end.
    fn copy(&mut self, buffer: &mut [u8], offset: u64) -> bool {
        let end = offset + buffer.len() as u64;
        let mut at = offset;
        let mut used = Vec::new();
        while at < end {
            let Some((start, piece)) = self.pieces.range(..=at).next_back() else {
                return false;
            };
            let piece_end = start + piece.len() as u64;
            if piece_end <= at {
                return false;
            }
            let until = piece_end.min(end);
            let to = (at - offset) as usize..(until - offset) as usize;
            let from = (at - start) as usize..(until - start) as usize;
            buffer[to].copy_from_slice(&piece[from]);
            if at == *start && until == piece_end {
                used.push(*start);
            }
            at = until;
        }
        for start in used {
            self.pieces.remove(&start);
        }
        true
    }

    /// True if bytes of a range have arrived, and are not here any more.
    fn has_forgotten(&self, offset: u64, end: u64) -> bool {
        let mut at = offset;
        while at < end {
            let before = self.pieces.range(..=at).next_back();
            let piece_end = before.map_or(0, |(start, piece)| start + piece.len() as u64);
            if piece_end > at {
                at = piece_end;
                continue;
            }
            let next = self.pieces.range(at..).next();
            let until = next.map_or(end, |(start, _)| *start).min(end);
            if self.arrived.overlaps(at, until) {
                return true;
            }
            at = until;
        }
        false
    }

    /// Forgets pieces far before the furthest read that no read waits for.
    fn forget_old(&mut self) {
        let oldest = self.furthest.saturating_sub(BEHIND_BYTES);
        while let Some((start, piece)) = self.pieces.first_key_value() {
            let range = (*start, *start + piece.len() as u64);
            let is_awaited = |awaited: &(u64, u64)| awaited.0 < range.1 && range.0 < awaited.1;
            if range.1 > oldest || self.awaited.iter().any(is_awaited) {
                return;
            }
            self.pieces.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(offset: u64, length: usize) -> Vec<u8> {
        (0..length).map(|at| (offset as usize + at) as u8).collect()
    }

    fn write(ahead: &Ahead, offset: u64, length: usize) {
        ahead.write_at(offset, &data(offset, length)).unwrap();
    }

    fn read(ahead: &Ahead, offset: u64, length: usize) -> Taken {
        let mut buffer = vec![0; length];
        let taken = ahead.take(&mut buffer, offset);
        assert!(taken != Taken::All || buffer == data(offset, length));
        taken
    }

    #[test]
    fn reads_take_data_in_any_order() {
        let ahead = Ahead::new(100);
        write(&ahead, 110, 10);
        write(&ahead, 100, 10);
        write(&ahead, 120, 30);
        assert_eq!(read(&ahead, 115, 20), Taken::All);
        assert_eq!(read(&ahead, 100, 15), Taken::All);
        assert_eq!(read(&ahead, 135, 15), Taken::All);
        // Data before the transfer, and data that a read has taken, do not come.
        assert_eq!(read(&ahead, 90, 5), Taken::Absent);
        assert_eq!(read(&ahead, 100, 5), Taken::Absent);
        assert_eq!(read(&ahead, 200 + JUMP_BYTES, 5), Taken::Far);
    }

    #[test]
    fn a_read_waits_for_data_until_the_transfer_is_over() {
        let ahead = Ahead::new(0);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| read(&ahead, 0, 20));
            let second = scope.spawn(|| read(&ahead, 30, 20));
            write(&ahead, 10, 10);
            write(&ahead, 0, 10);
            assert_eq!(first.join().unwrap(), Taken::All);
            lock(&ahead.state).is_over = true;
            ahead.changed.notify_all();
            assert_eq!(second.join().unwrap(), Taken::Far);
        });
    }

    #[test]
    fn memory_is_bounded_by_the_distance_to_the_reads() {
        let ahead = Ahead::new(0);
        let step = 1 << 20;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for piece in 0..100 {
                    write(&ahead, piece * step, step as usize);
                }
            });
            // Every second piece is read: the others are forgotten.
            for piece in (0..100).step_by(2) {
                assert_eq!(read(&ahead, piece * step, step as usize), Taken::All);
                let kept = lock(&ahead.state).pieces.len() as u64;
                assert!(kept <= (AHEAD_BYTES + BEHIND_BYTES) / step + 3, "{kept}");
            }
            writer.join().unwrap();
        });
        assert_eq!(read(&ahead, step, 10), Taken::Absent);
    }

    #[test]
    fn tiny_pieces_are_merged() {
        let ahead = Ahead::new(0);
        for offset in 0..10_000 {
            write(&ahead, offset, 1);
        }
        assert_eq!(lock(&ahead.state).pieces.len(), 1);
        assert_eq!(read(&ahead, 0, 10_000), Taken::All);
    }

    #[test]
    fn an_abandoned_transfer_ends() {
        let ahead = Ahead::new(0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| ahead.write_at(AHEAD_BYTES + 1, b"x"));
            ahead.abandon();
            assert!(writer.join().unwrap().is_err());
        });
    }
}
