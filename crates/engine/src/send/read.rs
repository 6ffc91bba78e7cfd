//! Reads the next data into a buffer and computes the checksum while they are in the CPU cache. The
//! source is compared with the walk's result when it is opened and after its last byte was read, so
//! that two states never mix.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_proto::block::{
    Codec, Content, Extent, MAXIMUM_EXTENTS, PackedEntry, Piece, PieceName,
};
use longhaul_proto::digest::{BlockHasher, Checksum, whole_file};
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::sender::{BlockId, PackedJob, PackedRead, PieceRead, ReadData, ReadJob};
use longhaul_storage::failure::failure_of;
use longhaul_storage::file_data::{PART_BYTES, hash_zeros, read_mode_for};
use longhaul_storage::{Advice, DataMode, FileKind, Status, StoredFile};
use longhaul_system::descriptors;
use longhaul_system::queue::lock;

use super::Sending;
use super::automatic::Dealt;
use super::compress::{Uncoded, Verdict};
use super::origin::Origins;
use super::parents::Parents;
use super::payload::{HeldFile, LatePiece, Pages, Payload};
use super::walk::entry_again;
use crate::flows::Flow;
use crate::pool::Buffer;
use crate::session::Counters;

// tidy: long file because the ways to read a block share its checks of the source.

/// Maximum number of files of a pack that are opened at once on slow file systems.
const OPENED_AHEAD: usize = 64;
/// Divisor for their share of the open files, for each reader.
const OPENED_PART: usize = 64;

/// Number of attempts to read a small file that changes meanwhile.
const TRIES: usize = 3;

/// Maximum number of large files kept open for their next pieces, and divisor for their share of
/// the open files.
const OPEN_FILES: usize = 64;
const FILES_PART: usize = 16;

/// A block that was read, with its checksum.
pub struct ReadBlock {
    pub(crate) content: Content,
    pub(crate) payload: Payload,
    /// Codec that was chosen before the block was read, if any.
    pub(crate) dealt: Option<Dealt>,
}

/// A piece, its payload if not in the buffer, and its codec if it was chosen before the read.
pub(super) type ReadPiece = (Piece, Option<Payload>, Option<Dealt>);

/// Maximum number of large files that are open for their next pieces. The same number may be open
/// for blocks that wait to be sent.
pub(super) fn most_open_files() -> usize {
    descriptors::share(FILES_PART, OPEN_FILES)
}

/// A file with its number and generation.
type OpenFile = (EntryId, u32, Arc<dyn StoredFile>);

/// Files that were opened for one piece and are kept for the next.
#[derive(Default)]
pub(crate) struct OpenFiles {
    files: Mutex<VecDeque<OpenFile>>,
}

impl OpenFiles {
    pub(super) fn get(&self, id: EntryId, generation: u32) -> Option<Arc<dyn StoredFile>> {
        let files = lock(&self.files);
        files
            .iter()
            .find(|file| file.0 == id && file.1 == generation)
            .map(|file| Arc::clone(&file.2))
    }

    pub(super) fn keep(&self, id: EntryId, generation: u32, file: &Arc<dyn StoredFile>) {
        let mut files = lock(&self.files);
        if files.len() >= most_open_files() {
            files.pop_front();
        }
        files.push_back((id, generation, Arc::clone(file)));
    }
}

/// Reasons why a piece was not read.
pub(super) enum Unread {
    Changed(Box<Entry>),
    Failed(Failure),
}

impl Sending<'_> {
    /// Runs a reader's thread.
    pub(crate) fn run_reader(&self, flow: &Flow) {
        while flow.is_wanted() {
            let Some(buffer) = self.transfer.pool.take() else {
                return;
            };
            let Some(job) = self.next_read(flow) else {
                return;
            };
            let uncoded = flow.busy(|| self.read(job, buffer));
            self.pass_to_coding(uncoded);
        }
    }

    /// Waits for the next read.
    fn next_read(&self, flow: &Flow) -> Option<ReadJob> {
        let mut shared = self.transfer.lock();
        loop {
            if shared.is_over() || !flow.is_wanted() {
                return None;
            }
            if shared.is_far_ahead(&self.transfer.pool) {
                let waited = self.transfer.signals.reading.wait(shared);
                shared = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let now = self.transfer.now();
            shared.judge_suspects(now);
            let sender = shared.machine.sender_mut()?;
            if let Some(job) = sender.poll_read(now) {
                // There may be more reads for other threads.
                self.transfer.signals.reading.notify_one();
                return Some(job);
            }
            // Without a read, request the state of the entries walked so far.
            sender.work_mut().flush_listing();
            let timeout = sender.poll_timeout(now);
            shared.follow_better_stream(now);
            shared.wake_writers();
            shared = match timeout {
                Some(at) => {
                    let waited = self.transfer.signals.reading.wait_timeout(shared, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .transfer
                    .signals
                    .reading
                    .wait(shared)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(crate) fn read(&self, job: ReadJob, mut buffer: Buffer) -> Uncoded {
        let ReadJob { block, data } = job;
        match data {
            ReadData::Piece { entry, piece } => {
                let read = self.read_piece(&entry, piece, &mut buffer);
                uncoded_piece(block, read, buffer)
            }
            ReadData::Front {
                entry,
                piece,
                earlier,
            } => self.read_front(block, (&entry, piece, earlier), buffer),
            ReadData::Pack(jobs) => self.read_pack(block, jobs, buffer),
        }
    }

    /// Holds a piece's file open for a stream if the piece is in the page cache.
    fn hold_cached(&self, file: &Arc<dyn StoredFile>, piece: PieceName) -> Option<HeldFile> {
        let all = &self.side.held_files;
        if !all.shall_ask(piece.file) {
            return None;
        }
        if !lies_in_cache(&**file, piece) {
            all.note_cold(piece.file);
            return None;
        }
        all.hold(file, piece)
    }

    /// Returns an open large file, which is opened if necessary, and checks that it did not change
    /// since the walk.
    fn open_large(&self, entry: &Entry, generation: u32) -> Result<Arc<dyn StoredFile>, Unread> {
        let output = || self.side.outputs.get(entry.id);
        let known = self.side.open_files.get(entry.id, generation);
        if let Some(file) = known.or_else(output) {
            return Ok(file);
        }
        let shown = entry.path.to_string();
        let failed = |error: io::Error| Unread::Failed(failure_of("open", &shown, &error));
        let mode = read_mode_for(self.transfer.settings.direct, entry.size());
        let (parent, name) = self
            .side
            .sources
            .open_parent(entry.id, &entry.path)
            .map_err(failed)?;
        let mut file = parent.open_file(&name, mode).map_err(failed)?;
        if let Err(changed) = check_unchanged(&self.side.origins, &*file, entry) {
            if !ends_early(&*file, entry).map_err(failed)? {
                return Err(changed);
            }
            file = parent.open_whole(&name).map_err(failed)?;
            check_unchanged(&self.side.origins, &*file, entry)?;
        }
        file.advise(Advice::Sequential, 0, entry.size());
        self.side.open_files.keep(entry.id, generation, &file);
        Ok(file)
    }

    /// True if payloads are sent from files without a copy.
    fn sends_pages(&self) -> bool {
        let settings = &self.transfer.settings;
        let codec = codec_for(settings.operation, settings.codec);
        self.transfer.settings.is_clear() && codec == Codec::Plain
    }

    /// True if the stream's thread reads a cached piece part by part while sending. With fewer
    /// streams than cores, readers work faster in parallel.
    fn reads_late(&self, piece: PieceName) -> bool {
        let settings = &self.transfer.settings;
        let codec = codec_for(settings.operation, settings.codec);
        let due = !self.transfer.settings.is_clear()
            && codec == Codec::Plain
            && piece.length > PART_BYTES as u64;
        due && self.transfer.lock().carriers() >= settings.cores
    }

    /// Reads and hashes a piece: into the buffer, or in the page cache, from where it is then sent;
    /// or leaves that to the stream's thread.
    fn read_piece(
        &self,
        entry: &Entry,
        piece: PieceName,
        buffer: &mut Buffer,
    ) -> Result<ReadPiece, Unread> {
        let file = self.open_large(entry, piece.generation)?;
        let shown = entry.path.to_string();
        let failed = |error: io::Error| Unread::Failed(failure_of("read", &shown, &error));
        let extents = match entry.kind {
            EntryKind::File { sparse: true, .. } => extents_of(&*file, piece).map_err(failed)?,
            _ => None,
        };
        let new_hasher = || {
            let hasher = BlockHasher::new(
                self.transfer.settings.integrity,
                piece.offset,
                piece.length,
                entry.size(),
            );
            hasher.ok_or_else(|| Unread::Failed(gone(entry)))
        };
        let mut hasher = new_hasher()?;
        let whole = extents.is_none();
        let (late, sends_pages) = if whole && !self.transfer.settings.is_clear() {
            (self.reads_late(piece), false)
        } else {
            (
                false,
                whole && self.sends_pages() && file.descriptor().is_some(),
            )
        };
        let mut held = if late || sends_pages {
            self.hold_cached(&file, piece)
        } else {
            None
        };
        let dealt = match held {
            Some(_) => self.deal_in_cache(&*file, piece, buffer),
            None => None,
        };
        if dealt.is_some() {
            held = None;
        }
        if let Some(file) = held.take_if(|_| late) {
            if check_unchanged(&self.side.origins, &*file, entry).is_err() {
                return Err(self.changed(entry));
            }
            let late = LatePiece::new(file, (entry, &self.side.origins), piece, hasher);
            return Ok((
                piece_of(entry, piece, None, None),
                Some(Payload::Late(Box::new(late))),
                None,
            ));
        }
        let pages = held
            .filter(|_| hash_pages(&*file, piece, &mut hasher, buffer))
            .map(|file| Pages::new(file, piece));
        if pages.is_none() {
            let runs = extents.clone().unwrap_or_else(|| self::whole(piece));
            hasher = new_hasher()?;
            let filled = read_runs(&*file, piece, &runs, &mut hasher, buffer).map_err(failed)?;
            buffer.set_filled(filled.ok_or_else(|| self.changed(entry))?);
        }
        let uncopied = pages.as_ref().map_or(0, Pages::len);
        Counters::add(&self.transfer.counters.uncopied_bytes, uncopied as u64);
        let count = uncopied + buffer.filled().len();
        Counters::add(&self.transfer.counters.read_bytes, count as u64);
        // Only after a read is the actual data mode known.
        self.side.note_data_mode(file.data_mode());
        if check_unchanged(&self.side.origins, &*file, entry).is_err() {
            return Err(self.changed(entry));
        }
        let checksum = Some(hasher.finish());
        let piece = piece_of(entry, piece, extents, checksum);
        Ok((piece, pages.map(Payload::Pages), dealt))
    }

    /// Returns the state of a changed file.
    pub(super) fn changed(&self, entry: &Entry) -> Unread {
        let shown = entry.path.to_string();
        let status = self
            .side
            .sources
            .open_parent(entry.id, &entry.path)
            .and_then(|(parent, name)| {
                let status = parent.content_status_of(&name)?;
                // Its status is unchanged although it has less data than its size.
                if self.side.origins.kind_of(&status) == entry.kind {
                    parent.open_whole(&name)?.status()
                } else {
                    Ok(status)
                }
            });
        match status {
            Ok(status) if status.kind == FileKind::File => {
                let kind = self.side.origins.kind_of(&status);
                Unread::Changed(Box::new(entry_again(entry, kind, &status)))
            }
            Ok(_) => Unread::Failed(gone(entry)),
            Err(error) => Unread::Failed(failure_of("read", &shown, &error)),
        }
    }

    fn read_pack(&self, block: BlockId, jobs: Vec<PackedJob>, mut buffer: Buffer) -> Uncoded {
        let (mut results, mut packed, mut filled) = (Vec::new(), Vec::new(), 0);
        let mut parents = Parents::default();
        let mut reserved: u64 = jobs.iter().map(|job| job.entry.size()).sum();
        let mut opened = VecDeque::new();
        let mut jobs = jobs.into_iter();
        loop {
            if opened.is_empty() {
                opened.extend(self.open_ahead(jobs.as_slice(), &mut parents));
            }
            let Some(PackedJob { entry, generation }) = jobs.next() else {
                break;
            };
            let opened = opened.pop_front().flatten();
            let id = entry.id;
            // A file that has grown must not use the room reserved for the next ones.
            reserved -= entry.size();
            let end = buffer.len() - reserved as usize;
            let room = &mut buffer[filled..end];
            let (result, read) = match &entry.kind {
                EntryKind::File { .. } => self.read_small(&entry, room, (&mut parents, opened)),
                _ => (PackedRead::Ready(None), Some((entry, None))),
            };
            if let Some((entry, checksum)) = read {
                filled += entry.size() as usize;
                packed.push(PackedEntry {
                    entry,
                    generation,
                    checksum,
                });
            }
            results.push((id, result));
        }
        buffer.set_filled(filled);
        Counters::add(&self.transfer.counters.read_bytes, filled as u64);
        let read = ReadBlock {
            content: Content::Pack(packed),
            payload: Payload::Buffer(buffer),
            dealt: None,
        };
        Uncoded {
            block,
            verdict: Verdict::Pack(results),
            read: Some(read),
        }
    }

    /// Opens the first of these files in parallel on a slow file system, and starts the kernel's
    /// read-ahead. An item is `None` if the file is opened later, or if the entry is not a file.
    fn open_ahead(
        &self,
        jobs: &[PackedJob],
        parents: &mut Parents,
    ) -> Vec<Option<Arc<dyn StoredFile>>> {
        if !self.side.opens.is_slow() || self.side.filter.is_some() {
            return vec![None];
        }
        let most = descriptors::share(OPENED_PART, OPENED_AHEAD);
        let located = jobs.iter().take(most).map(|job| {
            let is_file = matches!(job.entry.kind, EntryKind::File { .. });
            let located = is_file.then(|| parents.parent_of(&self.side.sources, &job.entry));
            (job, located)
        });
        let located: Vec<_> = located.collect();
        self.side.opens.look(&located, |(job, located)| {
            let (parent, name) = located.as_ref()?.as_ref().ok()?;
            // A file that cannot be opened now is opened again when it is read.
            let opened = parent.open_file(name, DataMode::Buffered).ok()?;
            opened.advise(Advice::Soon, 0, job.entry.size());
            Some(opened)
        })
    }

    /// Reads a small file completely.
    fn read_small(
        &self,
        entry: &Entry,
        room: &mut [u8],
        (parents, mut opened): (&mut Parents, Option<Arc<dyn StoredFile>>),
    ) -> (PackedRead, Option<(Entry, Option<Checksum>)>) {
        let shown = entry.path.to_string();
        let mut grown = None;
        for _ in 0..TRIES {
            let file = match opened.take() {
                Some(opened) => Ok(opened),
                None => parents.open(self.side, entry),
            };
            let read = file.and_then(|file| {
                read_file(
                    &*file,
                    (entry, &self.side.origins),
                    room,
                    self.transfer.settings.block_bytes,
                )
            });
            match read {
                Ok(Small::Same) => {
                    let data = &room[..entry.size() as usize];
                    return (
                        PackedRead::Ready(None),
                        Some((entry.clone(), Some(self.digest(data)))),
                    );
                }
                Ok(Small::Other(now)) => {
                    let data = &room[..now.size() as usize];
                    let digest = self.digest(data);
                    return (
                        PackedRead::Ready(Some(now.clone())),
                        Some((now, Some(digest))),
                    );
                }
                Ok(Small::Grown(now)) => return (PackedRead::Grown(now), None),
                Ok(Small::Changing(now)) => grown = now,
                Ok(Small::Otherwise) => match parents.open_whole(self.side, entry) {
                    Ok(whole) => opened = Some(whole),
                    Err(error) => {
                        return (PackedRead::Failed(failure_of("read", &shown, &error)), None);
                    }
                },
                Err(error) => {
                    return (PackedRead::Failed(failure_of("read", &shown, &error)), None);
                }
            }
        }
        if let Some(now) = grown {
            return (PackedRead::Grown(now), None);
        }
        let text =
            format!("{shown}: changes while it is read; copy it again when nobody writes to it");
        (
            PackedRead::Failed(Failure::new(FailureKind::Changing, text)),
            None,
        )
    }

    fn digest(&self, data: &[u8]) -> Checksum {
        whole_file(self.transfer.settings.integrity, data)
    }
}

/// Results of reading a small file.
enum Small {
    /// It is unchanged since the walk.
    Same,
    /// It changed, and the new state was read completely.
    Other(Entry),
    /// It no longer fits.
    Grown(Entry),
    /// It has more or less data than its size.
    Otherwise,
    /// It changed while being read. If it only became longer, its new state is given.
    Changing(Option<Entry>),
}

/// Reads a small file in its current state.
fn read_file(
    file: &dyn StoredFile,
    (entry, origins): (&Entry, &Origins),
    room: &mut [u8],
    block: usize,
) -> io::Result<Small> {
    let before = file.status()?;
    let same = EntryKind::File {
        identity: origins.identity_of(&before),
        sparse: entry.is_sparse(),
    } == entry.kind;
    let size = before.size;
    let entry_of = |status: &Status| entry_again(entry, origins.kind_of(status), status);
    if size > room.len() as u64 || size > block as u64 {
        return Ok(Small::Grown(entry_of(&before)));
    }
    let read = file.read_at(&mut room[..size as usize], 0)?;
    let after = file.status()?;
    let is_unchanged = origins.identity_of(&after) == origins.identity_of(&before);
    let has_more = || Ok::<_, io::Error>(size == 0 && file.read_at(&mut [0], 0)? > 0);
    if is_unchanged && ((read as u64) < size || has_more()?) {
        return Ok(Small::Otherwise);
    }
    if !is_unchanged {
        let grew = after.size > size && size >= entry.size();
        return Ok(Small::Changing(grew.then(|| entry_of(&after))));
    }
    Ok(if same {
        Small::Same
    } else {
        Small::Other(entry_of(&before))
    })
}

/// True if a file with unchanged times reports a larger size than is known of its content.
fn ends_early(file: &dyn StoredFile, entry: &Entry) -> io::Result<bool> {
    let status = file.status()?;
    let EntryKind::File { identity, .. } = &entry.kind else {
        return Ok(false);
    };
    let same = (status.modified, status.changed) == (identity.modified, identity.changed);
    Ok(same && status.size > identity.size)
}

pub(super) fn gone(entry: &Entry) -> Failure {
    let text = format!("{}: is no longer a regular file", entry.path);
    Failure::new(FailureKind::Vanished, text)
}

pub(super) fn check_unchanged(
    origins: &Origins,
    file: &dyn StoredFile,
    entry: &Entry,
) -> Result<(), Unread> {
    let shown = entry.path.to_string();
    let status = file
        .status()
        .map_err(|error| Unread::Failed(failure_of("read", &shown, &error)))?;
    match &entry.kind {
        EntryKind::File { identity, .. } if *identity == origins.identity_of(&status) => Ok(()),
        _ => {
            let kind = origins.kind_of(&status);
            Err(Unread::Changed(Box::new(entry_again(entry, kind, &status))))
        }
    }
}

pub(super) fn piece_of(
    entry: &Entry,
    name: PieceName,
    extents: Option<Vec<Extent>>,
    checksum: Option<Checksum>,
) -> Piece {
    Piece {
        entry: entry.clone(),
        generation: name.generation,
        offset: name.offset,
        length: name.length,
        extents,
        checksum,
    }
}

/// Returns all of a piece as one run of data.
pub(super) fn whole(piece: PieceName) -> Vec<Extent> {
    vec![Extent {
        start: 0,
        length: piece.length as u32,
    }]
}

/// Returns the data ranges of a piece; `None` if it has no hole, or more ranges than allowed.
pub(super) fn extents_of(
    file: &dyn StoredFile,
    piece: PieceName,
) -> io::Result<Option<Vec<Extent>>> {
    let end = piece.offset + piece.length;
    let (mut extents, mut from) = (Vec::new(), piece.offset);
    while from < end {
        let Some(range) = file.next_data(from)? else {
            break;
        };
        let (start, stop) = (range.start.max(from), range.end.min(end));
        if start >= end || stop <= start {
            break;
        }
        let start = (start - piece.offset) as u32;
        extents.push(Extent {
            start,
            length: (stop - piece.offset) as u32 - start,
        });
        from = stop;
    }
    let whole = extents.len() == 1 && u64::from(extents[0].length) == piece.length;
    Ok((!whole && extents.len() <= MAXIMUM_EXTENTS).then_some(extents))
}

/// Reads the runs of data into the buffer, one after the other, and hashes data and holes; `None`
/// if the file ended early.
pub(super) fn read_runs(
    file: &dyn StoredFile,
    piece: PieceName,
    runs: &[Extent],
    hasher: &mut BlockHasher,
    buffer: &mut Buffer,
) -> io::Result<Option<usize>> {
    let (mut filled, mut hashed) = (0_usize, 0_u64);
    for run in runs {
        hash_zeros(hasher, u64::from(run.start) - hashed);
        let mut done = 0;
        while done < run.length as usize {
            let part = PART_BYTES.min(run.length as usize - done);
            let room = &mut buffer[filled..filled + part];
            let offset = piece.offset + u64::from(run.start) + done as u64;
            if file.read_at(room, offset)? != part {
                return Ok(None);
            }
            hasher.update(room);
            filled += part;
            done += part;
        }
        hashed = u64::from(run.start) + u64::from(run.length);
    }
    hash_zeros(hasher, piece.length - hashed);
    Ok(Some(filled))
}

/// Hashes a piece in the page cache, through the front of the buffer; false if a part of it is not
/// cached.
fn hash_pages(
    file: &dyn StoredFile,
    piece: PieceName,
    hasher: &mut BlockHasher,
    buffer: &mut Buffer,
) -> bool {
    let most = PART_BYTES.min(buffer.len()) as u64;
    let mut done = 0;
    while done < piece.length {
        let part = most.min(piece.length - done) as usize;
        let room = &mut buffer[..part];
        if file.read_cached_at(room, piece.offset + done) != part {
            return false;
        }
        hasher.update(room);
        done += part as u64;
    }
    true
}

/// True if a piece seems to be in the page cache: one byte of each part is.
fn lies_in_cache(file: &dyn StoredFile, piece: PieceName) -> bool {
    let parts = (0..piece.length).step_by(PART_BYTES);
    let last = piece.length.saturating_sub(1);
    parts
        .chain([last])
        .all(|at| file.read_cached_at(&mut [0], piece.offset + at) == 1)
}

fn uncoded_piece(block: BlockId, read: Result<ReadPiece, Unread>, buffer: Buffer) -> Uncoded {
    let (verdict, read) = match read {
        Ok((piece, elsewhere, dealt)) => (
            PieceRead::Ready,
            Some(ReadBlock {
                content: Content::Piece(piece),
                payload: elsewhere.unwrap_or(Payload::Buffer(buffer)),
                dealt,
            }),
        ),
        Err(Unread::Changed(entry)) => (PieceRead::Changed(*entry), None),
        Err(Unread::Failed(failure)) => (PieceRead::Failed(failure), None),
    };
    Uncoded {
        block,
        verdict: Verdict::Piece(verdict),
        read,
    }
}

/// Returns the codec of a block for an operation; a comparison sends no payload.
pub(crate) fn codec_for(operation: Operation, codec: Codec) -> Codec {
    match operation {
        Operation::Copy => codec,
        Operation::Verify | Operation::DryRun => Codec::Omitted,
    }
}
