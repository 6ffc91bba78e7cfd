//! A first-in, first-out queue of records, in a file of limited length.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::{TemporaryError, nameless_file};

/// Number of bytes that are written to the file or read from it at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Maximum length of a record in bytes. It is far above an entry with all its attributes, and
/// limits the memory that a damaged length in the file can cause.
const MAXIMUM_RECORD_BYTES: usize = 16 << 20;

/// A first-in, first-out queue. The first and the last chunk of records are in memory, and the
/// others in the file, whose space is reused as records are taken.
pub struct SpillQueue {
    directory: PathBuf,
    file: Option<File>,
    /// True if the file could not be created or written. The next record after the queue was empty
    /// tries again.
    refused: bool,
    /// Maximum number of chunks in the file.
    slots: u64,
    /// Number of chunks that were written to the file, and that were read from it.
    written: u64,
    read: u64,
    /// Bytes that were read back, and the number of them that were taken.
    front: Vec<u8>,
    taken: usize,
    /// Bytes that are not in the file yet.
    back: Vec<u8>,
    records: u64,
}

impl SpillQueue {
    /// Creates a queue with a file of at most `file_bytes` in a directory. The file is created when
    /// the memory is full.
    pub fn new(directory: PathBuf, file_bytes: u64) -> SpillQueue {
        SpillQueue {
            directory,
            file: None,
            refused: false,
            slots: file_bytes / CHUNK_BYTES as u64,
            written: 0,
            read: 0,
            front: Vec::new(),
            taken: 0,
            back: Vec::new(),
            records: 0,
        }
    }

    /// True if the queue has no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// True if [`SpillQueue::push`] may be called. If the file is full or cannot be written,
    /// records must be taken first.
    pub fn has_room(&mut self) -> bool {
        while self.back.len() >= CHUNK_BYTES && self.write_chunk() {}
        self.back.len() < CHUNK_BYTES
    }

    /// Adds a record of at most 16 MiB.
    pub fn push(&mut self, record: &[u8]) {
        if self.is_empty() {
            self.refused = false;
        }
        self.back
            .extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.back.extend_from_slice(record);
        self.records += 1;
    }

    /// Takes the oldest record.
    ///
    /// # Errors
    ///
    /// The file cannot be read. The records in it are then lost.
    pub fn pop(&mut self) -> io::Result<Option<&[u8]>> {
        if self.is_empty() {
            return Ok(None);
        }
        let record = self
            .next_record()
            .map_err(|error| TemporaryError::wrap(error, &self.directory))?;
        self.records -= 1;
        Ok(self.front.get(record))
    }

    /// Finds the next record in `front`.
    fn next_record(&mut self) -> io::Result<std::ops::Range<usize>> {
        loop {
            let rest = self.front.get(self.taken..).unwrap_or_default();
            if let Some(length) = rest.first_chunk::<4>() {
                let length = u32::from_le_bytes(*length) as usize;
                if length > MAXIMUM_RECORD_BYTES {
                    return Err(damaged());
                }
                if rest.len() >= 4 + length {
                    let start = self.taken + 4;
                    self.taken = start + length;
                    return Ok(start..self.taken);
                }
            }
            self.refill()?;
        }
    }

    fn refill(&mut self) -> io::Result<()> {
        self.front.drain(..self.taken);
        self.taken = 0;
        if self.read == self.written {
            if self.back.is_empty() {
                return Err(damaged());
            }
            self.front.append(&mut self.back);
            return Ok(());
        }
        let Some(file) = &self.file else {
            return Err(damaged());
        };
        let (start, place) = (self.front.len(), self.place_of(self.read));
        self.front.resize(start + CHUNK_BYTES, 0);
        file.read_exact_at(&mut self.front[start..], place)?;
        self.read += 1;
        Ok(())
    }

    /// Moves the oldest chunk of `back` to the file. Returns false if that is not possible.
    fn write_chunk(&mut self) -> bool {
        if self.refused || self.written - self.read >= self.slots {
            return false;
        }
        match self.try_write_chunk() {
            Ok(()) => {
                self.back.drain(..CHUNK_BYTES);
                self.written += 1;
                true
            }
            Err(_) => {
                self.refused = true;
                false
            }
        }
    }

    fn try_write_chunk(&mut self) -> io::Result<()> {
        let place = self.place_of(self.written);
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(nameless_file(&self.directory)?),
        };
        file.write_all_at(&self.back[..CHUNK_BYTES], place)
    }

    fn place_of(&self, chunk: u64) -> u64 {
        chunk % self.slots.max(1) * CHUNK_BYTES as u64
    }
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the file does not hold what was written to it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a record whose length depends on its number.
    fn record(number: u64) -> Vec<u8> {
        let length = 8 + (number * 7919 % 3000) as usize;
        let mut record = number.to_le_bytes().to_vec();
        record.resize(length, number as u8);
        record
    }

    fn take(queue: &mut SpillQueue, next: &mut u64) {
        assert_eq!(queue.pop().unwrap(), Some(&*record(*next)), "{next}");
        *next += 1;
    }

    #[test]
    fn records_come_back_in_their_order() {
        let directory = std::env::temp_dir();
        let mut queue = SpillQueue::new(directory, 1 << 30);
        let mut next = 0;
        for number in 0..5000 {
            assert!(queue.has_room());
            queue.push(&record(number));
            if number % 3 == 0 {
                take(&mut queue, &mut next);
            }
        }
        assert!(queue.file.is_some(), "7 MB are more than memory takes");
        while next < 5000 {
            take(&mut queue, &mut next);
        }
        assert!(queue.is_empty());
        assert_eq!(queue.pop().unwrap(), None);
    }

    #[test]
    fn a_full_file_has_no_room_until_records_are_taken() {
        let mut queue = SpillQueue::new(std::env::temp_dir(), 4 * CHUNK_BYTES as u64);
        let (mut pushed, mut next) = (0, 0);
        for _ in 0..20 {
            while queue.has_room() {
                queue.push(&record(pushed));
                pushed += 1;
            }
            assert!(queue.back.len() < CHUNK_BYTES + 4096);
            let length = queue.file.as_ref().unwrap().metadata().unwrap().len();
            assert!(length <= 4 * CHUNK_BYTES as u64, "{length}");
            for _ in 0..100 {
                take(&mut queue, &mut next);
            }
        }
        while next < pushed {
            take(&mut queue, &mut next);
        }
    }

    #[test]
    fn without_a_file_memory_holds_two_chunks() {
        let missing = std::env::temp_dir().join("no such directory");
        let mut queue = SpillQueue::new(missing, 1 << 30);
        let (mut pushed, mut next) = (0, 0);
        for _ in 0..5 {
            while queue.has_room() {
                queue.push(&record(pushed));
                pushed += 1;
            }
            take(&mut queue, &mut next);
            assert!(queue.front.len() + queue.back.len() < 3 * CHUNK_BYTES);
            while next < pushed {
                take(&mut queue, &mut next);
            }
        }
        assert!(queue.is_empty() && queue.file.is_none());
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let mut queue = SpillQueue::new(std::env::temp_dir(), 1 << 30);
        for number in 0..1000 {
            queue.push(&record(number));
            queue.has_room();
        }
        let file = queue.file.as_ref().unwrap();
        file.write_all_at(&[0xff; CHUNK_BYTES], 0).unwrap();
        let error = queue.pop().unwrap_err();
        assert!(TemporaryError::within(&error).is_some(), "{error}");
    }
}
