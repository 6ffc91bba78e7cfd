//! Reads a journal's records in order, with bounded memory.

use std::io;

use longhaul_proto::digest::Integrity;
use longhaul_proto::ledger::DurableBlock;

use super::entry::MAXIMUM_RECORD_BYTES;
use super::entry::{self, Entry, EntryError, Header, Owner};
use crate::StoredFile;

/// Number of bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Reads records up to the first invalid one.
pub struct Reader<'a> {
    file: &'a dyn StoredFile,
    buffer: Vec<u8>,
    /// Number of consumed bytes of the buffer.
    consumed: usize,
    /// Offset in the journal of the next record.
    position: u64,
    ended: bool,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of a journal.
    pub fn new(file: &'a dyn StoredFile) -> Reader<'a> {
        Reader::from(file, 0)
    }

    /// Starts at the record at `position` bytes.
    pub fn from(file: &'a dyn StoredFile, position: u64) -> Reader<'a> {
        Reader {
            file,
            buffer: Vec::new(),
            consumed: 0,
            position,
            ended: false,
        }
    }

    /// Returns the total size of the valid records so far, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next record; `None` at the end. If the journal has a torn tail, returns its
    /// error once, and then `None`.
    ///
    /// # Errors
    ///
    /// The errors of the storage.
    pub fn next_entry(&mut self) -> io::Result<Option<Result<Entry, EntryError>>> {
        if self.ended {
            return Ok(None);
        }
        if self.buffer.len() - self.consumed < MAXIMUM_RECORD_BYTES {
            self.fill()?;
        }
        let rest = &self.buffer[self.consumed..];
        if rest.is_empty() {
            self.ended = true;
            return Ok(None);
        }
        let decoded = entry::decode(rest, self.position);
        match &decoded {
            Ok((_, bytes)) => {
                self.consumed += bytes;
                self.position += *bytes as u64;
            }
            Err(_) => self.ended = true,
        }
        Ok(Some(decoded.map(|(entry, _)| entry)))
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        let held = self.buffer.len();
        self.buffer.resize(CHUNK_BYTES, 0);
        let offset = self.position + held as u64;
        let read = self.file.read_at(&mut self.buffer[held..], offset)?;
        self.buffer.truncate(held + read);
        Ok(())
    }
}

/// Content of a journal's valid records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Description of the file.
    pub header: Header,
    /// Epoch of the last owner.
    pub epoch: u64,
    /// The last owner.
    pub owner: Owner,
    /// True if owners that came after it share the file.
    pub shared: bool,
    /// Session numbers of all owners.
    pub sessions: Vec<u64>,
    /// Durable blocks in order of offset, without overlaps.
    pub blocks: Vec<DurableBlock>,
    /// Total size of the valid records in bytes. Bytes after them are a torn tail.
    pub valid_bytes: u64,
}

/// Result of reading a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The file has no header and owner: its first write never reached the disk.
    Nothing,
    /// Journal of another version of longhaul.
    Version(u16),
    /// A valid journal.
    Journal(Box<Replay>),
}

/// Reads a whole journal. Memory use grows with the number of its blocks.
///
/// # Errors
///
/// The errors of the storage.
pub fn replay(file: &dyn StoredFile) -> io::Result<Found> {
    let mut reader = Reader::new(file);
    let header = match reader.next_entry()? {
        Some(Ok(Entry::Header(header))) => header,
        Some(Err(EntryError::Version { version })) => return Ok(Found::Version(version)),
        _ => return Ok(Found::Nothing),
    };
    let Some(Ok(Entry::Owner { epoch, owner })) = reader.next_entry()? else {
        return Ok(Found::Nothing);
    };
    let mut replay = Replay {
        header,
        epoch,
        sessions: vec![owner.session_number()],
        owner,
        shared: false,
        blocks: Vec::new(),
        valid_bytes: reader.position(),
    };
    while let Some(Ok(entry)) = reader.next_entry()? {
        if !replay.accept(entry) {
            break;
        }
        replay.valid_bytes = reader.position();
    }
    replay.blocks = without_overlaps(replay.blocks, replay.header.integrity);
    Ok(Found::Journal(Box::new(replay)))
}

impl Replay {
    /// Adds a record. Returns false if no owner would have written it here.
    fn accept(&mut self, entry: Entry) -> bool {
        match entry {
            Entry::Header(_) => return false,
            Entry::Owner { epoch, .. } | Entry::Shared { epoch } if epoch <= self.epoch => {
                return false;
            }
            Entry::Owner { epoch, owner } => {
                self.sessions.push(owner.session_number());
                (self.epoch, self.owner) = (epoch, owner);
                self.shared = false;
            }
            Entry::Shared { epoch } => (self.epoch, self.shared) = (epoch, true),
            Entry::Durable(block) => self.blocks.push(block),
        }
        true
    }
}

/// Removes overlaps. Blocks of several owners may cover the same bytes with different boundaries.
/// They hold the same data, and the longer ones are kept.
fn without_overlaps(mut blocks: Vec<DurableBlock>, integrity: Integrity) -> Vec<DurableBlock> {
    blocks.retain(|block| integrity.fits(&block.checksum));
    blocks.sort_by_key(|block| (block.offset, std::cmp::Reverse(block.length)));
    let mut end = 0;
    blocks.retain(|block| {
        let free = block.offset >= end;
        if free {
            end = block.end();
        }
        free
    });
    blocks
}
