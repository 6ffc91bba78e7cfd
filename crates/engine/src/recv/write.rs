//! Writes verified blocks. Written data is not durable yet.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use longhaul_proto::block::{Content, PackedEntry, Piece};
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::{Entry, EntryKind};
use longhaul_proto::message::{Failure, FailureKind, Farewell, Outcome};
use longhaul_proto::notice::NoticeKind;
use longhaul_proto::receiver::Verdict;
use longhaul_proto::stream::StreamPart;
use longhaul_storage::failure::failure_of;
use longhaul_storage::journal::gate::create_held;
use longhaul_storage::journal::{JournalError, temporary};
use longhaul_storage::together::start_writeback;
use longhaul_storage::{Advice, DataMode, Special, StoredFile};

use super::Receiving;
use super::commit::Staged;
use super::filter::Unfiltered;
use super::folders::Folder;
use super::landing::Destination;
use super::parts::{PartKind, journal_failure};
use super::sparse::write_around_holes;
use super::stream::{DataStream, part_of, put_entry};
use super::verify::{VerifiedBlock, runs_of};
use crate::flows::Flow;
use crate::pool::Buffer;
use crate::session::Counters;

/// Minimum size in bytes above which a packed file is copied to aligned memory for direct I/O. The
/// copy costs no more than finding cache pages for the file, and much less if the kernel must free
/// memory first (files of 2 MB: the same time, or 0.4 of it).
const PACKED_DIRECT_BYTES: usize = 1 << 20;

impl Receiving<'_> {
    /// Runs the thread of a writer.
    pub(crate) fn run_writer(&self, flow: &Flow) {
        while let Some(block) = self.side.queues.verified.pop(|| flow.is_wanted()) {
            if let Content::Piece(_) = block.content {
                self.wait_to_write();
            }
            let _writing = self.side.staging.write();
            flow.busy(|| self.write_block(block));
        }
    }

    /// Writes one block on the thread of the stream that received it.
    pub(super) fn write_here(&self, block: VerifiedBlock) {
        if let Content::Piece(_) = block.content {
            self.wait_to_write();
        }
        let _writing = self.side.staging.write();
        // A thread that stops the flows waits for writers that have begun.
        if !self.transfer.is_over() {
            self.side.busy_writing(|| self.write_block(block));
        }
    }

    /// Waits while the amount of written data that is not durable is at its limit. Blocks keep
    /// their buffers meanwhile, so that the sender waits in the end, too.
    fn wait_to_write(&self) {
        let mut shared = self.transfer.lock();
        while !shared.is_over()
            && let Some(receiver) = shared.machine.receiver()
            && !receiver.files().durability().may_write()
        {
            let waited = self.transfer.signals.writing.wait(shared);
            shared = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn write_block(&self, block: VerifiedBlock) {
        let VerifiedBlock {
            content,
            keeps,
            mut buffer,
            omitted,
        } = block;
        match content {
            Content::Piece(piece) => {
                let written = if omitted {
                    self.compare_piece(&piece, buffer)
                } else {
                    self.write_piece(&piece, buffer.filled())
                };
                self.report_piece(&piece, written);
            }
            Content::Pack(entries) if omitted => {
                let entries = wanted(entries, &keeps, &[]);
                let done = entries
                    .into_iter()
                    .map(|(packed, _)| self.compare_small(packed, &mut buffer));
                let done: Vec<(Entry, Outcome)> = done.collect();
                self.tell(|receiver| receiver.handle_packed(done));
            }
            Content::Pack(entries) => self.write_pack(entries, &keeps, buffer.filled()),
        }
    }

    /// Reports a written piece. A failed file is closed: its durable data stays for the next
    /// attempt.
    fn report_piece(&self, piece: &Piece, written: Result<(), Failure>) {
        let (name, now) = (piece.name(), self.transfer.now());
        match (written, piece.checksum) {
            (Ok(()), Some(checksum)) => {
                Counters::add(&self.transfer.counters.written_bytes, piece.data_bytes());
                Counters::add(&self.transfer.counters.hole_bytes, piece.hole_bytes());
                self.tell(|receiver| receiver.handle_written(name, Ok(checksum), now));
            }
            (Ok(()), None) => {}
            (Err(failure), _) => {
                if self.end_if_lost() {
                    return;
                }
                self.tell(|receiver| receiver.handle_written(name, Err(failure), now));
                self.side.parts.leave_behind(name.file, name.generation);
            }
        }
    }

    /// Ends the whole session if a later session of this transfer took over or the destination is
    /// gone, and then returns true. Call it after a failure.
    pub(super) fn end_if_lost(&self) -> bool {
        match self.side.destination.ensure_there() {
            Ok(()) | Err(JournalError::Closed) => return false,
            Err(JournalError::Fenced { .. }) => self.transfer.end(Farewell::Fenced),
            Err(error) => self
                .transfer
                .end(Farewell::Storage(self.side.destination.lost(&error))),
        }
        true
    }

    fn write_piece(&self, piece: &Piece, mut data: &[u8]) -> Result<(), Failure> {
        let shown = piece.entry.path.to_string();
        if let Some(stream) = &self.side.destination.stream {
            return put_piece(&**stream, piece, data);
        }
        let part = self.part(&piece.entry, piece.generation)?;
        let PartKind::Partial(partial) = &part.kind else {
            return Ok(());
        };
        partial
            .ensure_owned()
            .map_err(|error| journal_failure(&shown, &error))?;
        let file = partial.file();
        let failed = |error: io::Error| failure_of("write", &shown, &error);
        let makes_holes = self.side.makes_holes();
        for run in runs_of(piece) {
            let (now, rest) = data.split_at(run.length as usize);
            let offset = piece.offset + u64::from(run.start);
            let written = if makes_holes {
                write_around_holes(&**file, offset, now)
            } else {
                file.write_at(now, offset)
            };
            written.map_err(failed)?;
            data = rest;
        }
        // The mode of data transfer is known only after the first write.
        self.side.note_data_mode(file.data_mode());
        if file.data_mode() == DataMode::Buffered {
            // The disk writes while the next blocks arrive, so the sync of the checkpoint has
            // little left to do. The other modes do this themselves.
            file.advise(Advice::StartWriteback, piece.offset, piece.length);
        }
        Ok(())
    }

    /// Writes the small files of a pack with temporary names and passes them to the committer,
    /// which takes files of many packs at once.
    fn write_pack(&self, entries: Vec<PackedEntry>, keeps: &[Verdict], data: &[u8]) {
        for (packed, data) in wanted(entries, keeps, data) {
            let entry = packed.entry;
            let generation = packed.generation;
            if let Some(failure) = self.side.destination.refuses(&entry) {
                let done = vec![(entry, Outcome::Failed(failure))];
                self.tell(|receiver| receiver.handle_packed(done));
                continue;
            }
            if let EntryKind::HardLink { .. } = &entry.kind
                && !self.side.destination.is_sink
            {
                // A hard link waits for its target.
                self.tell(|receiver| receiver.handle_link(entry));
                continue;
            }
            if let Some(left_out) = self.leaves_out(&entry) {
                self.tell(|receiver| receiver.handle_packed(vec![(entry, left_out)]));
                continue;
            }
            let mut result = self.stage((&entry, generation), data);
            if let Err(failure) = &result
                && failure.kind == FailureKind::TooManyOpen
            {
                self.side.staging.drain();
                result = self.stage((&entry, generation), data);
            }
            match result {
                Ok(file) => {
                    let digest = packed.checksum;
                    self.pass_staged(Staged {
                        entry,
                        file,
                        digest,
                    });
                }
                Err(failure) => {
                    if self.end_if_lost() {
                        return;
                    }
                    let done = vec![(entry, Outcome::Failed(failure))];
                    self.tell(|receiver| receiver.handle_packed(done));
                }
            }
        }
    }

    /// Passes a small file to the committer, or to its filter command.
    fn pass_staged(&self, staged: Staged) {
        if !self.committer().filters_entry(&staged.entry) {
            self.side.staging.push(staged);
            return;
        }
        self.side.queues.filtering.push(Unfiltered::Small(staged));
    }

    /// Returns the outcome of a device that must not be created here.
    fn leaves_out(&self, entry: &Entry) -> Option<Outcome> {
        let EntryKind::Special { kind, .. } = &entry.kind else {
            return None;
        };
        if !kind.is_device() || self.side.destination.is_sink {
            return None;
        }
        let why = self.side.destination.keeper.may_make_devices().err()?;
        let notices = &self.side.destination.notices;
        notices.note(NoticeKind::DeviceNotMade, &entry.path, || why.to_owned());
        Some(Outcome::LeftOut)
    }

    fn stage(
        &self,
        (entry, generation): (&Entry, u32),
        data: &[u8],
    ) -> Result<super::commit::StagedFile, Failure> {
        let shown = entry.path.to_string();
        let path = self.side.destination.path_of(&entry.path);
        if let Some(stream) = &self.side.destination.stream {
            check_first(entry, generation)?;
            put_entry(&**stream, entry, data)?;
            Counters::add(&self.transfer.counters.written_bytes, data.len() as u64);
        }
        if self.side.destination.is_sink {
            let folder = Arc::clone(self.side.folders.anchor());
            return Ok(super::commit::StagedFile {
                folder,
                temporary: Box::default(),
                name: path,
                file: None,
            });
        }
        self.side
            .destination
            .ensure_owned()
            .map_err(|error| journal_failure(&shown, &error))?;
        let parent = path.parent();
        let folder = self.side.folders.make(parent.as_ref());
        let folder = folder.map_err(|error| failure_of("make its directory", &shown, &error))?;
        let number = self.side.temporaries.fetch_add(1, Ordering::Relaxed);
        let name = temporary(self.side.destination.owner.session_number(), number);
        let aligned = self.align_for_disk(data);
        let (data, mode) = match &aligned {
            Some(aligned) => (aligned.filled(), DataMode::Direct),
            None => (data, DataMode::Buffered),
        };
        let destination = &self.side.destination;
        let finish = |file: &dyn StoredFile| {
            if self.committer().filters_entry(entry) {
                // The output of the command gets the mode and time; its input does not need them.
                Ok(())
            } else {
                destination.finish_file(&**folder.directory(), file, entry)
            }
        };
        let into = (destination, &*folder, &*name);
        let staged = stage_file(into, entry, (data, mode), &finish);
        let file = staged.map_err(|error| failure_of("write", &shown, &error))?;
        Counters::add(&self.transfer.counters.written_bytes, data.len() as u64);
        if let Some(file) = &file {
            self.side.note_data_mode(file.data_mode());
        }
        Ok(super::commit::StagedFile {
            folder,
            temporary: name,
            name: path,
            file,
        })
    }

    /// Copies a packed file that is large enough for direct I/O to aligned memory. Returns `None`
    /// if the file is small or no buffer is free; the page cache is used then.
    fn align_for_disk(&self, data: &[u8]) -> Option<Buffer> {
        let large = data.len() > PACKED_DIRECT_BYTES;
        let mut aligned = large.then(|| self.transfer.pool.try_take()).flatten()?;
        aligned.get_mut(..data.len())?.copy_from_slice(data);
        aligned.set_filled(data.len());
        Some(aligned)
    }

    /// Compares a piece with the destination.
    fn compare_piece(&self, piece: &Piece, mut buffer: Buffer) -> Result<(), Failure> {
        let part = self.part(&piece.entry, piece.generation)?;
        let PartKind::Compared(file) = &part.kind else {
            return Ok(());
        };
        let shown = piece.entry.path.to_string();
        let room = buffer.get_mut(..piece.length as usize).unwrap_or_default();
        let read = file.read_at(room, piece.offset);
        let read = read.map_err(|error| failure_of("read", &shown, &error))?;
        let size = piece.entry.size();
        let hasher = longhaul_proto::digest::BlockHasher::new(
            self.transfer.settings.integrity,
            piece.offset,
            piece.length,
            size,
        );
        let same = read as u64 == piece.length
            && hasher.is_some_and(|mut hasher| {
                hasher.update(room);
                piece.checksum == Some(hasher.finish())
            });
        Counters::add(&self.transfer.counters.read_bytes, read as u64);
        same.then_some(())
            .ok_or_else(|| differs(&shown, "the contents differ"))
    }

    /// Compares a small entry with the destination.
    fn compare_small(&self, packed: PackedEntry, buffer: &mut [u8]) -> (Entry, Outcome) {
        let PackedEntry {
            entry, checksum, ..
        } = packed;
        let shown = entry.path.to_string();
        let path = self.side.destination.path_of(&entry.path);
        let found = self
            .side
            .folders
            .find(path.parent().as_ref())
            .and_then(|folder| {
                let directory = folder.directory();
                Ok(match &entry.kind {
                    EntryKind::Symlink { target } => {
                        *directory.read_symlink(path.name())? == target[..]
                    }
                    EntryKind::Directory => true,
                    EntryKind::Special { kind, major, minor } => {
                        let special = directory.status_of(path.name())?.special;
                        let device = (*major, *minor);
                        special
                            == Some(Special {
                                kind: *kind,
                                device,
                            })
                    }
                    EntryKind::HardLink { .. } => true,
                    EntryKind::File { identity, .. } => {
                        let file = directory.open_file(path.name(), DataMode::Buffered)?;
                        let room = buffer.get_mut(..identity.size as usize);
                        let room = room.ok_or(io::ErrorKind::InvalidData)?;
                        let read = file.read_at(room, 0)?;
                        Counters::add(&self.transfer.counters.read_bytes, read as u64);
                        let digest = longhaul_proto::digest::whole_file(
                            self.transfer.settings.integrity,
                            room,
                        );
                        read == room.len()
                            && file.status()?.size == identity.size
                            && checksum == Some(digest)
                    }
                })
            });
        let outcome = match found {
            Ok(true) => Outcome::Committed {
                digest: checksum.filter(|_| self.transfer.settings.digests),
            },
            Ok(false) => Outcome::Failed(differs(&shown, "the contents differ")),
            Err(error) => Outcome::Failed(failure_of("compare", &shown, &error)),
        };
        (entry, outcome)
    }

    /// True if the operation writes data.
    pub(super) fn copies(&self) -> bool {
        self.transfer.settings.operation == Operation::Copy
    }
}

/// Rejects a file that changed while it was sent to a stream: its earlier state was already
/// written.
fn check_first(entry: &Entry, generation: u32) -> Result<(), Failure> {
    if generation == 0 {
        return Ok(());
    }
    let text = format!(
        "{}: it changed while it was copied, and what it was has left already: run the whole \
         pipe again when nobody writes to it",
        entry.path
    );
    Err(Failure::new(FailureKind::Changing, text))
}

/// Writes a piece of the file that a stream receives. Holes have no data and are written as zeros.
fn put_piece(stream: &dyn DataStream, piece: &Piece, mut data: &[u8]) -> Result<(), Failure> {
    check_first(&piece.entry, piece.generation)?;
    let failed = |error: io::Error| failure_of("write", stream.shown(), &error);
    // If blocks are smaller than the parts that are read from the stream, each part is split into
    // pieces.
    let base = match part_of(&piece.entry) {
        Some(StreamPart::Data(base)) => base,
        _ => 0,
    };
    // Both numbers are less than 2^63.
    let offset = base + piece.offset;
    let mut at = 0;
    for run in runs_of(piece) {
        put_zeros(stream, offset, at, u64::from(run.start)).map_err(failed)?;
        let (now, rest) = data.split_at(run.length as usize);
        let start = u64::from(run.start);
        stream
            .put(offset.saturating_add(start), now)
            .map_err(failed)?;
        at = start + u64::from(run.length);
        data = rest;
    }
    put_zeros(stream, offset, at, piece.length).map_err(failed)
}

/// Zeros that are written at once for a part of a hole.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

fn put_zeros(stream: &dyn DataStream, offset: u64, from: u64, to: u64) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let now = (to - at).min(ZEROS.len() as u64);
        stream.put(offset.saturating_add(at), &ZEROS[..now as usize])?;
        at += now;
    }
    Ok(())
}

/// Returns the failure for a difference between source and destination.
pub(super) fn differs(shown: &str, how: &str) -> Failure {
    Failure::new(FailureKind::Differs, format!("{shown}: {how}"))
}

/// Returns the wanted entries of a pack, each with its data.
fn wanted<'a>(
    entries: Vec<PackedEntry>,
    keeps: &[Verdict],
    mut data: &'a [u8],
) -> Vec<(PackedEntry, &'a [u8])> {
    let mut list = Vec::with_capacity(entries.len());
    for (packed, keep) in entries.into_iter().zip(keeps) {
        let size = (packed.entry.size() as usize).min(data.len());
        let (own, rest) = data.split_at(size);
        data = rest;
        if *keep == Verdict::Keep {
            list.push((packed, own));
        }
    }
    list
}

/// Creates a small file or link with its temporary name.
fn stage_file(
    (destination, folder, name): (&Destination, &Folder, &[u8]),
    entry: &Entry,
    (data, mode): (&[u8], DataMode),
    finish: &dyn Fn(&dyn StoredFile) -> io::Result<()>,
) -> io::Result<Option<Arc<dyn StoredFile>>> {
    let directory = folder.directory();
    if let EntryKind::Symlink { target } = &entry.kind {
        destination.make_link(&**directory, name, (target, entry))?;
        return Ok(None);
    }
    if let EntryKind::Special { kind, major, minor } = &entry.kind {
        let special = Special {
            kind: *kind,
            device: (*major, *minor),
        };
        destination.make_special(&**directory, name, (special, entry))?;
        return Ok(None);
    }
    // The lock shows `longhaul clean` that the file is in use.
    let file = create_held(&**directory, name, mode)?;
    let put = if entry.is_sparse() || destination.keeper.keeping().sparse {
        let length = file.set_length(data.len() as u64);
        length.and_then(|()| write_around_holes(&*file, 0, data))
    } else {
        file.write_at(data, 0)
    };
    let finished = put.and_then(|()| finish(&*file));
    if let Err(error) = finished {
        // The first error is reported; `longhaul clean` finds a file that stays.
        let _ = directory.remove_file(name);
        return Err(error);
    }
    if file.data_mode() == DataMode::Buffered {
        start_writeback(&*file, data.len() as u64);
    }
    Ok(Some(file))
}
