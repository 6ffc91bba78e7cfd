//! Digests of files that have their final names, kept until the copy is complete. A copy that is
//! interrupted and repeated with `--manifest` need not read these files again.
//!
//! The records lie in the partial file of the session's claim to its anchor, which has no other
//! content. They are created and removed with that claim.
//!
//! ```text
//! record  0        24       56         64
//!         +--------+--------+----------+
//!         | file   | digest | checksum |
//!         +--------+--------+----------+
//! ```
//!
//! `file` is a hash of path, inode, size and both times of the file, and of inode, size and both
//! times of its source. After a change of either, the record no longer matches. The checksum is
//! XXH3-64 of the preceding bytes, seeded with the record's offset. Each record is independent: an
//! invalid one (torn, or never written to disk) is skipped. Digests are not synced. A file whose
//! digest is missing is read again.

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

/// Size of a record in bytes.
pub const RECORD_BYTES: usize = 64;

/// Size of the `file` field in bytes.
const FILE_BYTES: usize = 24;

/// Number of bytes that the checksum covers.
const CHECKED_BYTES: usize = RECORD_BYTES - 8;

/// Context that separates this hash from every other use of BLAKE3.
const CONTEXT: &str = "longhaul 2026 a file and its source whose digest is kept";

/// Context of the hash for records about commands.
const COMMAND_CONTEXT: &str = "longhaul 2026 a file and its source that a command runs for";

/// Replaces the digest if the file's command has not succeeded yet.
const AWAITED: [u8; 32] = [0; 32];

/// Replaces the digest if the file's command has succeeded.
const RAN: [u8; 32] = [0xff; 32];

/// Number of records that are read at once.
const CHUNK_RECORDS: u64 = 1024;

/// State of a file: a hash of 192 bits, so that accidental collisions are negligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState([u8; FILE_BYTES]);

impl FileState {
    /// Hashes the state of the file at a path beneath the anchor, and of its source.
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

    /// Hashes a file at a path beneath the anchor that a command runs for. It covers the source's
    /// size and time, by which a later session recognises an unchanged source.
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

/// Encodes a record for an offset.
pub fn encode(file: &FileState, digest: &[u8; 32], position: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..FILE_BYTES].copy_from_slice(&file.0);
    record[FILE_BYTES..CHECKED_BYTES].copy_from_slice(digest);
    let checksum = XxHash3_64::oneshot_with_seed(position, &record[..CHECKED_BYTES]);
    record[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    record
}

/// Decodes a record at an offset; `None` if its checksum does not match.
pub fn decode(record: &[u8; RECORD_BYTES], position: u64) -> Option<(FileState, [u8; 32])> {
    let (checked, checksum) = record.split_at(CHECKED_BYTES);
    let expected = XxHash3_64::oneshot_with_seed(position, checked).to_le_bytes();
    if *checksum != expected {
        return None;
    }
    let (file, digest) = checked.split_at(FILE_BYTES);
    Some((FileState(file.try_into().ok()?), digest.try_into().ok()?))
}

/// The digests of one session and of its predecessors.
pub struct KeptDigests {
    file: Arc<dyn StoredFile>,
    /// Directory for the temporary file of the index.
    directory: Box<Path>,
    /// Number of records of earlier sessions, valid or not.
    earlier: u64,
    /// Number of the next record; `None` after a failure.
    next: Mutex<Option<u64>>,
    index: OnceLock<Option<Index>>,
}

impl KeptDigests {
    /// Opens the digests in a file. `directory` is for temporary files.
    ///
    /// # Errors
    ///
    /// The errors of `fstat`.
    pub fn open(file: Arc<dyn StoredFile>, directory: &Path) -> io::Result<KeptDigests> {
        // The last record may be torn. Its position is not used again.
        let earlier = file.status()?.size.div_ceil(RECORD_BYTES as u64);
        Ok(KeptDigests {
            file,
            directory: directory.into(),
            earlier,
            next: Mutex::new(Some(earlier)),
            index: OnceLock::new(),
        })
    }

    /// Appends digests. Only the owner of the session may call this, at a time when no other
    /// process can take the session over. After a failure, no more digests are kept.
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

    /// Records that a command must run for each of these files once it has its name
    /// ([`FileState::of_command`]). A later session runs it if it does not succeed in this one. The
    /// conditions of [`KeptDigests::append`] apply, and [`KeptDigests::sync`] must follow.
    ///
    /// # Errors
    ///
    /// The records could not be written, now or before.
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

    /// Records that a file's command succeeded. The conditions of [`KeptDigests::append`] apply.
    pub fn end_command(&self, file: FileState) {
        self.append(&[(file, RAN)]);
    }

    /// True if an earlier session left a file whose command did not succeed. Call
    /// [`KeptDigests::prepare`] first.
    pub fn awaits_command(&self, file: &FileState) -> bool {
        match self.index().map(|index| index.find(self, file)) {
            Some(Ok(found)) => found.is_some_and(|(_, value)| value == AWAITED),
            // A repeated command is better than a missing one.
            Some(Err(_)) => true,
            None => false,
        }
    }

    /// Builds the index of the records.
    ///
    /// # Errors
    ///
    /// The temporary file cannot be created or filled.
    pub fn prepare(&self) -> io::Result<()> {
        let index = Index::build(self, self.earlier)?;
        // The index cannot exist yet, because the session has not begun.
        let _ = self.index.set(index);
        Ok(())
    }

    /// Makes appended records durable.
    ///
    /// # Errors
    ///
    /// The errors of `fdatasync`.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Removes all digests if there are more than `most`. Digests of files that have changed since
    /// are never found, and a copy that never completes must not collect them without limit.
    /// Records of files whose command did not succeed stay. The conditions of
    /// [`KeptDigests::append`] apply. Earlier digests are not found afterwards.
    pub fn forget_beyond(&self, most: u64) {
        let mut next = lock(&self.next);
        if let Some(count) = next.filter(|next| *next > most) {
            *next = self.keep_awaited(count).ok();
        }
    }

    /// Moves the last record of each file that awaits its command to the front, and cuts off the
    /// rest. No unread record is overwritten.
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

    /// Returns the digest of a file from an earlier session. `None` if it is missing or cannot be
    /// read.
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

    /// Calls `tell` with each valid record among the first `count`, and its number.
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

/// Size of a slot in bytes: the number of a record plus one (0 for an empty slot), and a part of
/// its file's hash, each u32.
const SLOT_BYTES: usize = 8;

/// Number of slots read at once: slightly more than a search needs in a half-full table.
const WINDOW_SLOTS: u64 = 16;

/// Index of records by file: a hash table with open addressing in an unnamed file, so that memory
/// use does not grow with the number of files.
struct Index {
    table: File,
    /// Number of slots: a power of two, at least twice the number of records.
    slots: u64,
}

impl Index {
    /// Builds an index of the first `count` records; `None` if there are no records, or too many.
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

    /// Returns the first slot of a search, and the part of the file's hash that its slot holds.
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

    /// Returns the number and content of a file's last record. A search finds records in the order
    /// of their numbers.
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

    /// Visits the slots that may hold a file's record, until `visit` (slot, record, tag) returns
    /// true. Half of the slots are empty, so the search ends.
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
