//! A sorted run of records in a spill file.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{MAXIMUM_RECORD_BYTES, Record};

/// Location of a run. The runs share the file, which is closed with the last of them.
pub(super) struct Run {
    file: Arc<File>,
    start: u64,
    end: u64,
}

impl Run {
    pub(super) fn all_of(file: File, ranges: &[(u64, u64)]) -> Vec<Run> {
        let file = Arc::new(file);
        let run = |&(start, end): &(u64, u64)| Run {
            file: Arc::clone(&file),
            start,
            end,
        };
        ranges.iter().map(run).collect()
    }

    pub(super) fn read(self, buffer_bytes: usize) -> RunReader {
        RunReader(BufReader::with_capacity(buffer_bytes, Cursor(self)))
    }
}

/// Reads a run from front to back.
pub(super) struct RunReader(BufReader<Cursor>);

/// A record in a separate buffer, which is reused for the next record.
#[derive(Default)]
pub(super) struct OwnedRecord {
    bytes: Vec<u8>,
    key_length: usize,
}

impl OwnedRecord {
    pub(super) fn borrow(&self) -> Record<'_> {
        let (key, value) = self.bytes.split_at(self.key_length);
        Record { key, value }
    }
}

impl RunReader {
    /// Replaces `record` by the next one. Returns false at the end.
    pub(super) fn read_into(&mut self, record: &mut OwnedRecord) -> io::Result<bool> {
        if self.0.buffer().is_empty() && self.0.get_ref().is_at_end() {
            return Ok(false);
        }
        let mut lengths = [[0; 4]; 2];
        self.0.read_exact(lengths.as_flattened_mut())?;
        let [key, value] = lengths.map(|length| u32::from_le_bytes(length) as usize);
        let length = key.saturating_add(value);
        if length > MAXIMUM_RECORD_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it does not hold what was written to it",
            ));
        }
        record.key_length = key;
        record.bytes.resize(length, 0);
        self.0.read_exact(&mut record.bytes)?;
        Ok(true)
    }
}

struct Cursor(Run);

impl Cursor {
    fn is_at_end(&self) -> bool {
        self.0.start == self.0.end
    }
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.0.end - self.0.start).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        let count = self.0.file.read_at(&mut buffer[..wanted], self.0.start)?;
        self.0.start += count as u64;
        Ok(count)
    }
}

/// Writes a record in the format of [`RunReader`]. Returns its size in bytes.
pub(super) fn write_record(writer: &mut impl Write, record: Record<'_>) -> io::Result<u64> {
    let mut written = 0;
    for length in [record.key.len(), record.value.len()] {
        // `Sorter::push` limits both lengths.
        writer.write_all(&(length as u32).to_le_bytes())?;
        written += 4;
    }
    for part in [record.key, record.value] {
        writer.write_all(part)?;
        written += part.len() as u64;
    }
    Ok(written)
}
