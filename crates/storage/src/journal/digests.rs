//! Digests of files that have their final names, kept until the copy is
//! complete: a copy that is killed and run again with `--manifest` does not
//! read them once more.
//!
//! They lie in the part of the session's claim to its anchor, which holds
//! nothing else, and so come and go with that claim.
//!
//! ```text
//! record  0        24       56         64
//!         +--------+--------+----------+
//!         | file   | digest | checksum |
//!         +--------+--------+----------+
//! ```
//!
//! `file` is a hash of path, inode, size and both times of the file, and of inode, size and both
//! times of its source: after any change of either nobody asks for this record again. The checksum
//! is XXH3-64 of what is before it, seeded with the record's offset. A record stands for itself:
//! one that is not valid (torn, or never reached the disk) is passed over. Nothing here is ever
//! synced, and nothing depends on it: what is not found is read again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_proto::manifest::SourceIdentity;
use longhaul_system::queue::lock;
use twox_hash::XxHash3_64;

use crate::spill::nameless_file;
use crate::{Status, StoredFile};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;

/// Bytes of a record that are its file's.
const FILE_BYTES: usize = 24;

/// Bytes of a record before its checksum.
const CHECKED_BYTES: usize = RECORD_BYTES - 8;

/// Separates this hash from every other use of BLAKE3.
const CONTEXT: &str = "longhaul 2026 a file and its source whose digest is kept";

/// The same of what tells whether a command has run for it.
const COMMAND_CONTEXT: &str = "longhaul 2026 a file and its source that a command runs for";

/// In the place of a digest: the file gets its name, and its command has not succeeded yet.
const AWAITED: [u8; 32] = [0; 32];

/// In the place of a digest: its command succeeded.
const RAN: [u8; 32] = [0xff; 32];

/// Records read at once.
const CHUNK_RECORDS: u64 = 1024;

/// A state of a file: 192 bits, so that two never meet by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState([u8; FILE_BYTES]);

impl FileState {
    /// Of the file at a path beneath the anchor, and of its source.
    pub fn new(path: &[u8], source: &SourceIdentity, status: &Status) -> FileState {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for number in [status.inode, status.size, source.inode, source.size] {
            hasher.update(&number.to_le_bytes());
        }
        let of_file = [status.modified, status.changed];
        for time in of_file.into_iter().chain([source.modified, source.changed]) {
            hasher.update(&time.seconds.to_le_bytes());
            hasher.update(&time.nanoseconds.to_le_bytes());
        }
        hasher.update(path);
        let mut state = [0; FILE_BYTES];
        state.copy_from_slice(&hasher.finalize().as_bytes()[..FILE_BYTES]);
        FileState(state)
    }

    /// Of a file at a path beneath the anchor that a command runs for, by what a later session
    /// takes an unchanged source for: its size and time.
    pub fn of_command(path: &[u8], source: &SourceIdentity) -> FileState {
        let mut hasher = blake3::Hasher::new_derive_key(COMMAND_CONTEXT);
        hasher.update(&source.size.to_le_bytes());
        hasher.update(&source.modified.seconds.to_le_bytes());
        hasher.update(&source.modified.nanoseconds.to_le_bytes());
        hasher.update(path);
        let mut state = [0; FILE_BYTES];
        state.copy_from_slice(&hasher.finalize().as_bytes()[..FILE_BYTES]);
        FileState(state)
    }
}

/// A record, for an offset.
pub fn encode(file: &FileState, digest: &[u8; 32], position: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..FILE_BYTES].copy_from_slice(&file.0);
    record[FILE_BYTES..CHECKED_BYTES].copy_from_slice(digest);
    let checksum = XxHash3_64::oneshot_with_seed(position, &record[..CHECKED_BYTES]);
    record[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    record
}

/// What a record at an offset says; `None` if it is not valid there.
pub fn decode(record: &[u8; RECORD_BYTES], position: u64) -> Option<(FileState, [u8; 32])> {
    let (checked, checksum) = record.split_at(CHECKED_BYTES);
    let expected = XxHash3_64::oneshot_with_seed(position, checked).to_le_bytes();
    if *checksum != expected {
        return None;
    }
    let (file, digest) = checked.split_at(FILE_BYTES);
    Some((FileState(file.try_into().ok()?), digest.try_into().ok()?))
}

/// The digests of one session and of those before it.
pub struct KeptDigests {
    file: Arc<dyn StoredFile>,
    /// Where records may be spilled to be found again.
    directory: Box<Path>,
    /// Records of earlier sessions, valid or not.
    earlier: u64,
    /// Number of the next record; none after a failure.
    next: Mutex<Option<u64>>,
    index: OnceLock<Option<Index>>,
}

impl KeptDigests {
    /// Those in a file. `directory` is for temporary files.
    ///
    /// # Errors
    ///
    /// As `fstat`.
    pub fn open(file: Arc<dyn StoredFile>, directory: &Path) -> io::Result<KeptDigests> {
        // The last may be torn: it keeps its place.
        let earlier = file.status()?.size.div_ceil(RECORD_BYTES as u64);
        Ok(KeptDigests {
            file,
            directory: directory.into(),
            earlier,
            next: Mutex::new(Some(earlier)),
            index: OnceLock::new(),
        })
    }

    /// Keeps some. Only the owner of the session may, in a moment in which
    /// nobody can take it over. After a failure no more are kept.
    pub fn append(&self, files: &[(FileState, [u8; 32])]) {
        let mut next = lock(&self.next);
        let Some(number) = *next else {
            return;
        };
        let start = number * RECORD_BYTES as u64;
        let mut bytes = Vec::with_capacity(files.len() * RECORD_BYTES);
        for (file, digest) in files {
            let position = start + bytes.len() as u64;
            bytes.extend_from_slice(&encode(file, digest, position));
        }
        *next = match self.file.write_at(&bytes, start) {
            Ok(()) => Some(number + files.len() as u64),
            Err(_) => None,
        };
    }

    /// A command is to run for each of these once it has its name ([`FileState::of_command`]), in
    /// a later session where it did not succeed in this one. To be called as
    /// [`KeptDigests::append`] is, and followed by [`KeptDigests::sync`].
    ///
    /// # Errors
    ///
    /// If that could not be kept, now or before.
    pub fn await_commands(&self, files: &[FileState]) -> io::Result<()> {
        let awaited: Vec<_> = files.iter().map(|file| (*file, AWAITED)).collect();
        self.append(&awaited);
        match *lock(&self.next) {
            Some(_) => Ok(()),
            None => Err(io::Error::other(
                "it cannot be kept what commands are to run for",
            )),
        }
    }

    /// The command of this one succeeded. To be called as [`KeptDigests::append`] is.
    pub fn end_command(&self, file: FileState) {
        self.append(&[(file, RAN)]);
    }

    /// Whether an earlier session left a file of which the command did not succeed; after
    /// [`KeptDigests::prepare`].
    pub fn awaits_command(&self, file: &FileState) -> bool {
        match self.index().map(|index| index.find(self, file)) {
            Some(Ok(found)) => found.is_some_and(|(_, value)| value == AWAITED),
            // Once too often is better than never.
            Some(Err(_)) => true,
            None => false,
        }
    }

    /// Makes what is needed to find records.
    ///
    /// # Errors
    ///
    /// If the temporary file for it cannot be made or filled.
    pub fn prepare(&self) -> io::Result<()> {
        let index = Index::build(self, self.earlier)?;
        // Nobody else has made it meanwhile: the session is about to begin.
        let _ = self.index.set(index);
        Ok(())
    }

    /// Makes what was appended durable.
    ///
    /// # Errors
    ///
    /// As `fdatasync`.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Forgets all digests, where there are more than `most`: states of files that have
    /// changed since are found by nobody, and a copy that never completes must
    /// not gather them for ever. Files of which the command did not succeed stay. To be called as
    /// [`KeptDigests::append`] is; nothing is found afterwards.
    pub fn forget_beyond(&self, most: u64) {
        let mut next = lock(&self.next);
        if let Some(count) = next.filter(|next| *next > most) {
            *next = self.keep_awaited(count).ok();
        }
    }

    /// Moves the last record of each file that awaits its command to the front, and cuts off the
    /// rest. A record never moves beyond one that was not looked at.
    fn keep_awaited(&self, count: u64) -> io::Result<u64> {
        let index = Index::build(self, count)?;
        let mut kept = 0;
        for number in 0..count {
            let Some((file, AWAITED)) = self.record(number)? else {
                continue;
            };
            let last = index.as_ref().map(|index| index.find(self, &file));
            if last
                .transpose()?
                .flatten()
                .is_some_and(|(last, _)| last == number)
            {
                let position = kept * RECORD_BYTES as u64;
                self.file
                    .write_at(&encode(&file, &AWAITED, position), position)?;
                kept += 1;
            }
        }
        self.file.set_length(kept * RECORD_BYTES as u64)?;
        Ok(kept)
    }

    fn index(&self) -> Option<&Index> {
        let build = || Index::build(self, self.earlier).ok().flatten();
        self.index.get_or_init(build).as_ref()
    }

    /// The digest of a file that an earlier session kept. What cannot be read
    /// is not there.
    pub fn find(&self, file: &FileState) -> Option<[u8; 32]> {
        let found = self.index()?.find(self, file).ok().flatten();
        found.map(|(_, digest)| digest)
    }

    fn record(&self, number: u64) -> io::Result<Option<(FileState, [u8; 32])>> {
        let position = number * RECORD_BYTES as u64;
        let mut record = [0; RECORD_BYTES];
        let read = self.file.read_at(&mut record, position)?;
        Ok((read == RECORD_BYTES)
            .then(|| decode(&record, position))
            .flatten())
    }

    /// Reports about all valid records among the first ones with their numbers.
    fn for_each(
        &self,
        count: u64,
        mut tell: impl FnMut(u64, &FileState) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_RECORDS as usize * RECORD_BYTES];
        let mut first = 0;
        while first < count {
            let start = first * RECORD_BYTES as u64;
            let read = self.file.read_at(&mut chunk, start)?;
            let (records, _) = chunk[..read].as_chunks::<RECORD_BYTES>();
            for (number, record) in (first..count).zip(records) {
                if let Some((file, _)) = decode(record, number * RECORD_BYTES as u64) {
                    tell(number, &file)?;
                }
            }
            first += CHUNK_RECORDS;
        }
        Ok(())
    }
}

/// Bytes of a slot: the number of a record plus one (0: empty), and part of its
/// file's hash, each u32.
const SLOT_BYTES: usize = 8;

/// Slots read at once: a few more than a search needs in a table that is half
/// full.
const WINDOW_SLOTS: u64 = 16;

/// Where to find the record of a file: a hash table with open addresses in a
/// file without a name, so that memory does not grow with the number of files.
struct Index {
    table: File,
    /// A power of two, at least twice the number of records.
    slots: u64,
}

impl Index {
    /// Of the first records; `None` if there is nothing, or too much, to find.
    fn build(digests: &KeptDigests, count: u64) -> io::Result<Option<Index>> {
        if count == 0 || count >= u64::from(u32::MAX) {
            return Ok(None);
        }
        let slots = (2 * count).next_power_of_two().max(WINDOW_SLOTS);
        let table = nameless_file(&digests.directory)?;
        table.set_len(slots * SLOT_BYTES as u64)?;
        let index = Index { table, slots };
        digests.for_each(count, |number, file| index.insert(number, file))?;
        Ok(Some(index))
    }

    /// Where a search begins, and what a slot has of the file's hash.
    fn place(&self, file: &FileState) -> (u64, u32) {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = file.0;
        let start = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        (start & (self.slots - 1), u32::from_le_bytes([i, j, k, l]))
    }

    fn insert(&self, number: u64, file: &FileState) -> io::Result<()> {
        let (_, tag) = self.place(file);
        self.search(file, |slot, record, _| {
            if record.is_some() {
                return Ok(false);
            }
            let bytes = (u64::from(tag) << 32 | (number + 1)).to_le_bytes();
            self.table.write_all_at(&bytes, slot * SLOT_BYTES as u64)?;
            Ok(true)
        })
    }

    /// The last record of a file: its number and what it says. Later ones lie behind earlier ones.
    fn find(&self, digests: &KeptDigests, file: &FileState) -> io::Result<Option<(u64, [u8; 32])>> {
        let (_, wanted) = self.place(file);
        let mut found = None;
        self.search(file, |_, record, tag| {
            let Some(number) = record else {
                return Ok(true);
            };
            if tag == wanted
                && let Some((other, digest)) = digests.record(number)?
                && other == *file
            {
                found = Some((number, digest));
            }
            Ok(false)
        })?;
        Ok(found)
    }

    /// Goes over the slots where a file's record may be, until `visit` (slot,
    /// record, tag) is content. Half of them are empty, so it will be.
    fn search(
        &self,
        file: &FileState,
        mut visit: impl FnMut(u64, Option<u64>, u32) -> io::Result<bool>,
    ) -> io::Result<()> {
        let (start, _) = self.place(file);
        let mut window = [0; WINDOW_SLOTS as usize * SLOT_BYTES];
        let mut passed = 0;
        while passed < self.slots {
            let slot = (start + passed) & (self.slots - 1);
            let count = WINDOW_SLOTS.min(self.slots - slot);
            let window = &mut window[..count as usize * SLOT_BYTES];
            self.table.read_exact_at(window, slot * SLOT_BYTES as u64)?;
            let (entries, _) = window.as_chunks::<SLOT_BYTES>();
            for (slot, entry) in (slot..).zip(entries) {
                let value = u64::from_le_bytes(*entry);
                let record = (value & u64::from(u32::MAX)).checked_sub(1);
                if visit(slot, record, (value >> 32) as u32)? {
                    return Ok(());
                }
            }
            passed += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
