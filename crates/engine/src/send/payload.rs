//! Payload of a block: bytes in a buffer of the pool, pages of a file in the page cache, or a piece
//! that the stream's thread reads.
//!
//! Data in a buffer have left the core's cache before they are sent, and are fetched again: a fifth
//! of the cost of sending without distance. If a piece is in the page cache, both steps are
//! avoided.
//!
//! On a stream in clear the bytes are only hashed and sent. They are hashed in a small part of a
//! buffer, which stays in the core's cache, and then the kernel sends them from the page cache.
//! Neither the copy to memory nor the one to the socket is made. If the file changes between the
//! two, the checksum fails at the other end, as for a block that was damaged on its way. Reading it
//! again then finds the change.
//!
//! On other streams the stream's thread reads, hashes and sends a part at a time. The checksum
//! follows the piece once the source is known to be unchanged since the walk. Otherwise a mark
//! follows that the piece is void.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex};

use longhaul_net::StreamWriter;
use longhaul_proto::block::{PieceName, TRAILER_BYTES, Trailer};
use longhaul_proto::digest::BlockHasher;
use longhaul_proto::manifest::{Entry, EntryId};
use longhaul_storage::StoredFile;
use longhaul_storage::file_data::PART_BYTES;
use longhaul_system::queue::lock;

use super::origin::Origins;
use super::read::{check_unchanged, most_open_files};
use crate::pool::Buffer;

/// Data of a block.
pub(crate) enum Payload {
    /// The filled part of a buffer.
    Buffer(Buffer),
    /// A range of a file in the page cache.
    Pages(Pages),
    /// A piece that is read while it is sent.
    Late(Box<LatePiece>),
}

/// Number of waiting blocks for each file that is open for them, by file number and generation.
#[derive(Default)]
pub(crate) struct HeldFiles {
    blocks: Mutex<HashMap<(EntryId, u32), usize>>,
    /// Files with a void piece. A reader finds the reason.
    void: Mutex<HashSet<(EntryId, u32)>>,
    /// A file with a piece that was not in the page cache, and the number of its next pieces to
    /// skip: each check costs a disk access if the piece is not cached.
    cold: Mutex<Option<(EntryId, u32)>>,
}

/// Number of pieces of a file that are not checked after one that was not in the page cache.
const COLD_PIECES: u32 = 15;

/// Maximum number of remembered files with a void piece.
const MOST_VOID: usize = 4096;

/// A file that is held open for a block.
pub(crate) struct HeldFile {
    file: Arc<dyn StoredFile>,
    key: (EntryId, u32),
    all: Arc<HeldFiles>,
}

impl HeldFiles {
    /// True if the next piece of a file should be looked up in the page cache.
    pub fn shall_ask(&self, file: EntryId) -> bool {
        match &mut *lock(&self.cold) {
            Some((cold, left)) if *cold == file && *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        }
    }

    /// Records that a piece of the file is not in the page cache.
    pub fn note_cold(&self, file: EntryId) {
        *lock(&self.cold) = Some((file, COLD_PIECES));
    }

    /// Holds a piece's file open; `None` if too many files are open, or if a piece of the file was
    /// void.
    pub fn hold(
        self: &Arc<HeldFiles>,
        file: &Arc<dyn StoredFile>,
        piece: PieceName,
    ) -> Option<HeldFile> {
        let key = (piece.file, piece.generation);
        if lock(&self.void).contains(&key) {
            return None;
        }
        let mut blocks = lock(&self.blocks);
        if blocks.len() >= most_open_files() && !blocks.contains_key(&key) {
            return None;
        }
        *blocks.entry(key).or_default() += 1;
        Some(HeldFile {
            file: Arc::clone(file),
            key,
            all: Arc::clone(self),
        })
    }
}

impl HeldFile {
    /// Records that a piece is void. The file is not held for further blocks.
    fn avoid(&self) {
        let mut void = lock(&self.all.void);
        if void.len() >= MOST_VOID {
            void.clear();
        }
        void.insert(self.key);
    }
}

impl std::ops::Deref for HeldFile {
    type Target = dyn StoredFile;

    fn deref(&self) -> &Self::Target {
        &*self.file
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let mut blocks = lock(&self.all.blocks);
        if let Some(count) = blocks.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                blocks.remove(&self.key);
            }
        }
    }
}

/// A range of a file that was read and hashed.
pub(crate) struct Pages {
    file: HeldFile,
    offset: u64,
    length: usize,
}

impl Pages {
    /// Creates the payload for a piece in the page cache.
    pub fn new(file: HeldFile, piece: PieceName) -> Pages {
        Pages {
            file,
            offset: piece.offset,
            length: piece.length as usize,
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }
}

/// A piece that is read and hashed while it is sent, part by part from its front.
pub(crate) struct LatePiece {
    file: HeldFile,
    /// The file as the walk found it.
    entry: Entry,
    origins: Arc<Origins>,
    piece: PieceName,
    /// State of the checksum; `None` after a failed read.
    hasher: Option<BlockHasher>,
    /// Number of bytes sent, with the trailer.
    done: usize,
    trailer: Option<[u8; TRAILER_BYTES]>,
}

impl LatePiece {
    /// Creates a piece of which no part is hashed yet.
    pub fn new(
        file: HeldFile,
        (entry, origins): (&Entry, &Arc<Origins>),
        piece: PieceName,
        hasher: BlockHasher,
    ) -> LatePiece {
        LatePiece {
            file,
            entry: entry.clone(),
            origins: Arc::clone(origins),
            piece,
            hasher: Some(hasher),
            done: 0,
            trailer: None,
        }
    }

    /// Returns the number of bytes without the trailer.
    fn len(&self) -> usize {
        self.piece.length as usize
    }

    /// Reads and hashes the next part. If the read fails, the part is zeros and the piece is void.
    fn read(&mut self, part: &mut [u8]) {
        let offset = self.piece.offset + self.done as u64;
        let there = self.file.read_cached_at(part, offset);
        let rest = &mut part[there..];
        let read = if rest.is_empty() {
            Ok(0)
        } else {
            self.file.read_at(rest, offset + there as u64)
        };
        if !read.is_ok_and(|read| read == rest.len()) {
            rest.fill(0);
            self.hasher = None;
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(part);
        }
        self.done += part.len();
    }

    /// Returns the trailer, once all data were read.
    fn trailer(&mut self) -> [u8; TRAILER_BYTES] {
        if let Some(trailer) = self.trailer {
            return trailer;
        }
        let same = check_unchanged(&self.origins, &*self.file, &self.entry).is_ok();
        let hasher = self.hasher.take().filter(|_| same);
        if hasher.is_none() {
            self.file.avoid();
        }
        *self
            .trailer
            .insert(Trailer::encode(hasher.map(|hasher| hasher.finish())))
    }

    /// Sends `head` and then this many bytes; the last of them are the trailer's.
    fn send(
        &mut self,
        writer: &mut dyn StreamWriter,
        mut head: &[u8],
        mut length: usize,
        room: &mut Vec<u8>,
    ) -> io::Result<()> {
        while length > 0 || !head.is_empty() {
            let data = length
                .min(self.len().saturating_sub(self.done))
                .min(PART_BYTES);
            room.resize(room.len().max(data), 0);
            let part = &mut room[..data];
            self.read(part);
            length -= data;
            // The trailer is sent with the last part, unless the rate limit allows less.
            let mut end: &[u8] = &[];
            let trailer;
            if self.done >= self.len() && length > 0 {
                trailer = self.trailer();
                let from = (self.done - self.len()).min(TRAILER_BYTES);
                end = &trailer[from..(from + length).min(TRAILER_BYTES)];
                self.done += length;
                length = 0;
            }
            writer.write_all(&[head, part, end])?;
            head = &[];
        }
        Ok(())
    }
}

impl Payload {
    /// Returns the number of bytes of data.
    pub fn len(&self) -> usize {
        match self {
            Payload::Buffer(buffer) => buffer.filled().len(),
            Payload::Pages(pages) => pages.length,
            Payload::Late(late) => late.len(),
        }
    }

    /// Returns the number of bytes on the wire, with a trailer.
    pub fn wire_len(&self) -> usize {
        match self.trailer() {
            Some(Trailer::Checksum) => self.len() + TRAILER_BYTES,
            None => self.len(),
        }
    }

    /// Returns the number of bytes that were read while they were sent.
    pub fn late_bytes(&self) -> usize {
        match self {
            Payload::Late(late) => late.done.min(late.len()),
            Payload::Buffer(_) | Payload::Pages(_) => 0,
        }
    }

    /// Returns the kind of trailer, if there is one.
    pub fn trailer(&self) -> Option<Trailer> {
        matches!(self, Payload::Late(_)).then_some(Trailer::Checksum)
    }

    /// Sends `head`, then a range of the payload; `room` is a buffer for reuse.
    ///
    /// # Errors
    ///
    /// Errors of the socket or of the file.
    pub fn send(
        &mut self,
        writer: &mut dyn StreamWriter,
        head: &[u8],
        (start, length): (usize, usize),
        room: &mut Vec<u8>,
    ) -> io::Result<()> {
        match self {
            Payload::Buffer(buffer) => {
                writer.write_all(&[head, &buffer.filled()[start..start + length]])
            }
            Payload::Pages(pages) => {
                let file = pages.file.descriptor();
                let file = file.ok_or(io::ErrorKind::Unsupported)?;
                writer.write_file(head, file, pages.offset + start as u64, length)
            }
            // Successive calls send successive ranges.
            Payload::Late(late) => late.send(writer, head, length, room),
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_proto::digest::Integrity;
    use longhaul_proto::manifest::{EntryKind, Timestamp, TreePath};
    use longhaul_storage::posix::PosixDirectory;
    use longhaul_storage::{Creation, DataMode, Directory};

    use super::*;
    use crate::send::walk::entry_of;

    const SIZE: usize = 3 * PART_BYTES + 1000;

    /// Written bytes, and number of calls.
    #[derive(Default)]
    struct Written(Vec<u8>, usize);

    impl StreamWriter for Written {
        fn write_all(&mut self, parts: &[&[u8]]) -> io::Result<()> {
            parts.iter().for_each(|part| self.0.extend_from_slice(part));
            self.1 += 1;
            Ok(())
        }

        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Source {
        root: Arc<dyn Directory>,
        file: Arc<dyn StoredFile>,
        data: Vec<u8>,
        held: Arc<HeldFiles>,
        _place: tempfile::TempDir,
    }

    fn source() -> Source {
        let place = tempfile::tempdir().unwrap();
        let root = PosixDirectory::open_root(place.path()).unwrap();
        let data: Vec<u8> = (0..SIZE).map(|at| (at / 7 % 251) as u8).collect();
        let file = root.create_file(b"a", Creation::New, DataMode::Buffered);
        let file = file.unwrap();
        file.write_at(&data, 0).unwrap();
        Source {
            root,
            file,
            data,
            held: Arc::default(),
            _place: place,
        }
    }

    impl Source {
        fn piece(&self) -> PieceName {
            PieceName {
                file: EntryId(0),
                generation: 0,
                offset: 0,
                length: SIZE as u64,
            }
        }

        fn late(&self, integrity: Integrity) -> Payload {
            let status = self.file.status().unwrap();
            let path = TreePath::new(b"a").unwrap();
            let origins = Arc::<Origins>::default();
            let entry = entry_of(EntryId(0), None, path, origins.kind_of(&status), &status);
            assert!(matches!(entry.kind, EntryKind::File { .. }));
            let held = self.held.hold(&self.file, self.piece()).unwrap();
            let hasher = BlockHasher::new(integrity, 0, SIZE as u64, SIZE as u64).unwrap();
            let late = LatePiece::new(held, (&entry, &origins), self.piece(), hasher);
            Payload::Late(Box::new(late))
        }

        fn checksum(&self, integrity: Integrity) -> longhaul_proto::digest::Checksum {
            longhaul_proto::digest::whole_file(integrity, &self.data)
        }
    }

    /// Sends all of it in ranges of `step` bytes; returns the data and the trailer.
    fn send(payload: &mut Payload, step: usize) -> (Vec<u8>, [u8; TRAILER_BYTES]) {
        let (mut written, mut room) = (Written::default(), Vec::new());
        let mut sent = 0;
        let mut head: &[u8] = b"head";
        while sent < payload.wire_len() {
            let now = step.min(payload.wire_len() - sent);
            payload
                .send(&mut written, head, (sent, now), &mut room)
                .unwrap();
            (head, sent) = (&[], sent + now);
        }
        assert_eq!(payload.late_bytes(), SIZE);
        let data = written.0.strip_prefix(b"head").unwrap();
        let (data, trailer) = data.split_at(SIZE);
        (data.to_vec(), trailer.try_into().unwrap())
    }

    #[test]
    fn a_piece_is_sent_completely_before_its_checksum_for_every_split() {
        let source = source();
        for integrity in [Integrity::Digest, Integrity::Checksum] {
            for step in [usize::MAX, PART_BYTES, 100_000, 1009] {
                let (data, trailer) = send(&mut source.late(integrity), step);
                assert!(data == source.data, "{step}");
                let expected = Some(source.checksum(integrity));
                assert_eq!(Trailer::parse(&trailer), Ok(expected), "{step}");
            }
        }
    }

    #[test]
    fn a_piece_that_changed_meanwhile_is_void() {
        type Change = fn(&Source);
        let changes: [Change; 3] = [
            |source| source.file.set_length(1000).unwrap(),
            |source| {
                // Size and bytes are the same, the modification time is different.
                let time = Timestamp {
                    seconds: 7,
                    ..Timestamp::default()
                };
                source.file.set_modified(time).unwrap();
            },
            |source| source.file.write_at(&[1; SIZE + 1], 0).unwrap(),
        ];
        for change in changes {
            let source = source();
            let mut late = source.late(Integrity::Digest);
            change(&source);
            let (_, trailer) = send(&mut late, usize::MAX);
            assert_eq!(Trailer::parse(&trailer), Ok(None));
            // The next time a reader reads it and reports the reason.
            assert!(source.held.hold(&source.file, source.piece()).is_none());
        }
    }

    #[test]
    fn the_page_cache_is_rarely_queried_for_a_cold_file() {
        let held = HeldFiles::default();
        let (cold, other) = (EntryId(1), EntryId(2));
        assert!(held.shall_ask(cold));
        held.note_cold(cold);
        for _ in 0..COLD_PIECES {
            assert!(!held.shall_ask(cold));
            assert!(held.shall_ask(other));
        }
        assert!(held.shall_ask(cold));
    }

    #[test]
    fn no_more_files_are_held_than_may_be() {
        let source = source();
        let names = (0..).map(|number| PieceName {
            file: EntryId(number),
            ..source.piece()
        });
        let mut held: Vec<HeldFile> = names
            .map_while(|name| source.held.hold(&source.file, name))
            .collect();
        assert_eq!(held.len(), most_open_files());
        // Any number of blocks of one file can be held.
        held.push(source.held.hold(&source.file, source.piece()).unwrap());
        let other = PieceName {
            generation: 1,
            ..source.piece()
        };
        held.remove(0);
        assert!(source.held.hold(&source.file, other).is_none());
        held.pop();
        assert!(source.held.hold(&source.file, other).is_some());
        assert!(source.root.status_of(b"a").is_ok());
    }
}
