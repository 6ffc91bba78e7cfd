//! Receives large files. Pieces are claimed when they arrive, written, and durable after a
//! checkpoint. The file is committed when it is whole and the sender sealed it.

use longhaul_units::Moment;

use super::{Checkpoint, ReceivedEvent, Receiver, ReceiverError, StorageJob, Verdict};
use crate::account::Share;
use crate::block::{ContentName, Piece, PieceName};
use crate::digest::{Checksum, Integrity, longest_block};
use crate::ledger::{DurableBlock, FileLedger, RangeSet};
use crate::manifest::{Entry, EntryId};
use crate::message::{AgainReason, Answer, Failure, FailureKind, Message, Outcome};

/// Generation and size of a file that was read to its end, and true if it grew meanwhile.
pub(super) type Seal = (u32, u64, bool);

/// A large file that is being received.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) entry: Entry,
    pub(super) generation: u32,
    /// Ranges that arrived, perhaps not yet written.
    pub(super) claimed: RangeSet,
    /// The file's part of the account.
    pub(super) share: Share,
    /// Written blocks with their checksums.
    pub(super) ledger: FileLedger,
    /// Blocks written and not yet handed to a checkpoint.
    pub(super) dirty: Vec<DurableBlock>,
    /// Bytes of the blocks in `dirty`, and the time at which the first of them was written.
    pub(super) dirty_bytes: u64,
    pub(super) dirty_since: Option<Moment>,
    /// Bytes written and not known to be durable.
    pub(super) unsynced: u64,
    pub(super) sealed: bool,
    /// True if this is the front of a file that grew.
    pub(super) grew: bool,
    /// True if data of an earlier session is being read.
    pub(super) reading_back: bool,
    /// True if a checkpoint of the file is under way.
    pub(super) syncing: bool,
    /// True if the commit was requested.
    pub(super) committing: bool,
    /// Digest of the committed content, if a command changed the received data.
    pub became: Option<Checksum>,
}

impl Receiver {
    /// Handles a valid piece that arrived.
    ///
    /// # Errors
    ///
    /// [`ReceiverError`] ends the session.
    pub fn handle_piece(&mut self, piece: &Piece) -> Result<Verdict, ReceiverError> {
        let id = piece.entry.id;
        let stale = self.files.get(&id).is_some_and(|file| {
            file.generation > piece.generation
                || file.committing
                || file.generation == piece.generation && file.ledger.size() != piece.entry.size()
        });
        // A newer state of an entry is kept although a pack with the entry is being written,
        // because that pack may be corrupt.
        let packed = self.packed.get(&id);
        let packed = packed.is_some_and(|packing| packing.generation >= piece.generation);
        let outdated = self.is_outdated(id, piece.generation);
        if self.is_done(id) || packed || stale || outdated {
            return Ok(self.drop_piece(piece.length));
        }
        if self
            .files
            .get(&id)
            .is_none_or(|file| file.generation < piece.generation)
        {
            self.begin_file(piece.entry.clone(), piece.generation);
        }
        let end = piece.offset + piece.length;
        match self.files.get(&id) {
            Some(file) if !file.claimed.overlaps(piece.offset, end) => {
                self.claim(id, |claimed| claimed.insert(piece.offset, end));
                if let Some(file) = self.files.get_mut(&id) {
                    self.account
                        .add_moved(&mut file.share, piece.length, piece.length);
                }
                self.check_bounds()?;
                Ok(Verdict::Keep)
            }
            _ => {
                self.ask_for_rest(piece.name(), piece.entry.size());
                self.check_bounds()?;
                Ok(self.drop_piece(piece.length))
            }
        }
    }

    fn drop_piece(&mut self, bytes: u64) -> Verdict {
        self.duplicate();
        self.account.add_unclaimed(bytes);
        Verdict::Drop
    }

    /// Accounts for a claimed piece that must be sent again.
    pub(super) fn take_back(&mut self, piece: PieceName) {
        if let Some(file) = self.files.get_mut(&piece.file) {
            self.account.take_back(&mut file.share, piece.length);
        }
    }

    /// Asks for the missing parts of a piece that overlaps known ranges because it was cut
    /// differently.
    pub(super) fn ask_for_rest(&mut self, piece: PieceName, size: u64) {
        let Some(file) = self.files.get(&piece.file) else {
            return;
        };
        let (mut from, end) = (piece.offset, piece.offset + piece.length);
        let mut missing = Vec::new();
        while let Some((offset, stop)) = file.claimed.first_gap(from, end) {
            let length = longest_block(offset, stop, size, piece.length.next_power_of_two());
            missing.push(PieceName {
                offset,
                length,
                ..piece
            });
            from = offset + length;
        }
        for piece in missing {
            self.push_message(Message::Again {
                content: ContentName::Piece(piece),
                reason: AgainReason::Overlap,
            });
        }
    }

    /// True if another piece may be written. After a power loss, at most the data of one checkpoint
    /// and of the writers would have to be sent again. If false, the piece waits for
    /// [`Receiver::handle_checkpointed`] and [`Receiver::handle_committed`].
    pub fn may_write(&self) -> bool {
        self.unsynced < self.settings.checkpoint_bytes
    }

    /// Returns the bytes of large files that were written and are not known to be durable.
    pub fn unsynced(&self) -> u64 {
        self.unsynced
    }

    /// Handles a piece that was verified and written, but not synced.
    pub fn handle_written(&mut self, piece: PieceName, checksum: Checksum, now: Moment) {
        let Some(file) = self.files.get_mut(&piece.file) else {
            return;
        };
        if file.generation != piece.generation {
            return;
        }
        let block = DurableBlock {
            offset: piece.offset,
            length: piece.length,
            checksum,
        };
        if file.ledger.insert(block) {
            file.dirty.push(block);
            file.dirty_bytes += piece.length;
            file.dirty_since.get_or_insert(now);
            file.unsynced += piece.length;
            self.unsynced += piece.length;
            if !file.syncing {
                self.dirty.insert(piece.file);
                self.dirty_bytes += piece.length;
                self.dirty_since.get_or_insert(now);
            }
            self.commit_if_complete(piece.file);
        }
    }

    /// Handles a piece that could not be written. Its file fails.
    pub fn handle_write_failed(&mut self, piece: PieceName, failure: Failure) {
        let current = self
            .files
            .get(&piece.file)
            .is_some_and(|file| file.generation == piece.generation);
        if current {
            self.fail_file(piece.file, failure);
        }
    }

    /// Handles a checkpoint. All its files are durable, except those with a failure.
    pub fn handle_checkpointed(&mut self, files: Vec<(Checkpoint, Option<Failure>)>) {
        for (checkpoint, failure) in files {
            let Checkpoint {
                file: id,
                generation,
                blocks,
            } = checkpoint;
            let Some(file) = self
                .files
                .get_mut(&id)
                .filter(|f| f.generation == generation)
            else {
                continue;
            };
            file.syncing = false;
            let bytes: u64 = blocks.iter().map(|block| block.length).sum();
            file.unsynced = file.unsynced.saturating_sub(bytes);
            self.unsynced = self.unsynced.saturating_sub(bytes);
            // Blocks that were written meanwhile wait for the next checkpoint.
            if let Some(since) = file.dirty_since {
                self.dirty.insert(id);
                self.dirty_bytes += file.dirty_bytes;
                self.dirty_since = self.dirty_since.min(Some(since)).or(Some(since));
            }
            if let Some(failure) = failure {
                self.fail_file(id, failure);
                continue;
            }
            self.account.add_durable(&mut file.share, bytes);
            self.events.push_back(ReceivedEvent::Durable {
                entry: file.entry.clone(),
                bytes: file.share.at_destination(),
            });
            self.durable.extend(blocks.iter().map(|block| PieceName {
                file: id,
                generation,
                offset: block.offset,
                length: block.length,
            }));
            self.commit_if_complete(id);
        }
    }

    /// Sets the digest of a file whose committed content differs from the received data.
    pub fn handle_filtered(&mut self, file: EntryId, generation: u32, digest: Checksum) {
        if let Some(known) = self.files.get_mut(&file)
            && known.generation == generation
        {
            known.became = Some(digest);
        }
    }

    /// Handles a file that has its name and is durable, or failed.
    pub fn handle_committed(
        &mut self,
        file: EntryId,
        generation: u32,
        result: Result<(), Failure>,
    ) {
        let current = self
            .files
            .get(&file)
            .is_some_and(|known| known.generation == generation);
        if !current {
            return;
        }
        match result {
            Ok(()) => {
                if let Some(mut known) = self.remove_file(file) {
                    let size = known.ledger.size();
                    self.totals.bytes += size;
                    self.account.complete(&mut known.share, size);
                    let digest = known.became.or_else(|| known.ledger.digest());
                    let digest = digest.filter(|_| self.settings.digests);
                    let outcome = if known.grew {
                        Outcome::Failed(Failure::grew(size))
                    } else {
                        Outcome::Committed { digest }
                    };
                    self.finish_entry(file, known.entry.parent, Some(known.entry), outcome);
                }
            }
            Err(failure) => self.fail_file(file, failure),
        }
    }

    pub(super) fn begin_file(&mut self, entry: Entry, generation: u32) {
        let id = entry.id;
        let ledger = FileLedger::new(entry.size(), self.settings.integrity);
        let incoming = Incoming {
            entry,
            generation,
            claimed: RangeSet::default(),
            share: Share::default(),
            ledger,
            dirty: Vec::new(),
            dirty_bytes: 0,
            dirty_since: None,
            unsynced: 0,
            sealed: false,
            grew: false,
            reading_back: false,
            syncing: false,
            committing: false,
            became: None,
        };
        self.discard_file(id);
        self.texts += incoming.entry.text_bytes();
        self.files.insert(id, incoming);
        // A seal may have arrived before the first piece.
        if let Some(seal) = self.seals.remove(&id) {
            self.handle_sealed(id, seal);
        }
    }

    pub(super) fn resume(&mut self, entry: Entry, blocks: &[DurableBlock]) -> Answer {
        let id = entry.id;
        self.begin_file(entry, 0);
        let Some(file) = self.files.get_mut(&id) else {
            return Answer::Send;
        };
        let mut ranges = RangeSet::default();
        let mut taken = Vec::new();
        for block in blocks {
            if ranges.fragments() >= crate::message::MAXIMUM_RESUMED_RANGES {
                break;
            }
            if file.ledger.insert(*block) {
                ranges.insert(block.offset, block.offset + block.length);
                if self.settings.integrity == Integrity::Checksum {
                    taken.push(*block);
                }
            }
        }
        let bytes = ranges.total();
        if bytes > 0 {
            // Another program may have changed the file since then.
            file.reading_back = true;
            self.account.add_resumed(&mut file.share, bytes);
            let entry = file.entry.clone();
            let job = StorageJob::ReadBack {
                entry: entry.clone(),
                generation: file.generation,
                blocks: file.ledger.merged_blocks().unwrap_or(taken),
            };
            self.push_job(job);
            self.events
                .push_back(ReceivedEvent::Resumed { entry, bytes });
        }
        self.claim(id, |claimed| claimed.clone_from(&ranges));
        Answer::Resume(
            ranges
                .iter()
                .map(|(start, end)| (start, end - start))
                .collect(),
        )
    }

    /// Handles the result of reading the data that an earlier session left. A mismatch with its
    /// checksums fails the file.
    pub fn handle_read_back(
        &mut self,
        file: EntryId,
        generation: u32,
        result: Result<(), Failure>,
    ) {
        let known = self.files.get_mut(&file);
        let Some(known) = known.filter(|known| known.generation == generation) else {
            return;
        };
        known.reading_back = false;
        match result {
            Ok(()) => self.commit_if_complete(file),
            Err(failure) => {
                let entry = known.entry.clone();
                // Data that cannot be read now may still be correct.
                self.let_go(file, failure.kind != FailureKind::Corrupt);
                self.finish_entry(file, entry.parent, Some(entry), Outcome::Failed(failure));
            }
        }
    }

    pub(super) fn handle_sealed(&mut self, id: EntryId, seal: Seal) {
        let (generation, size, grew) = seal;
        let done = self.is_done(id);
        match self.files.get_mut(&id) {
            Some(file) if file.generation == generation && file.ledger.size() == size => {
                file.sealed = true;
                file.grew = grew;
                file.ledger.seal();
                self.commit_if_complete(id);
            }
            Some(file) if file.generation > generation => {}
            _ if done => {}
            _ => {
                self.seals.insert(id, seal);
            }
        }
    }

    /// Handles an entry that the sender gave up.
    pub(super) fn handle_abandoned(
        &mut self,
        id: EntryId,
        parent: Option<EntryId>,
        failure: Failure,
    ) {
        if let Some(packing) = self.packed.get_mut(&id) {
            packing.abandoned = Some(failure);
            return;
        }
        let committing = self.files.get(&id).is_some_and(|file| file.committing);
        if !committing {
            // A source that cannot be read now may be the same later.
            let stays = matches!(
                failure.kind,
                FailureKind::Permission | FailureKind::TooManyOpen | FailureKind::Other
            );
            self.let_go(id, stays);
            self.finish_entry(id, parent, None, Outcome::Failed(failure));
        }
    }

    /// Discards the written data of a file.
    pub(super) fn discard_file(&mut self, id: EntryId) {
        self.let_go(id, false);
    }

    /// Discards the written data of a file. If `stays` is true, a later session continues with its
    /// durable data.
    pub(super) fn let_go(&mut self, id: EntryId, stays: bool) {
        if let Some(file) = self.remove_file(id) {
            self.account.void(file.share);
            self.jobs.push_back(StorageJob::Discard {
                file: id,
                generation: file.generation,
                stays,
            });
        }
    }

    /// Commits a file that is complete and sealed.
    pub(super) fn commit_if_complete(&mut self, id: EntryId) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        let busy = file.syncing || file.committing || file.reading_back;
        if !file.ledger.is_complete() || busy || self.packed.contains_key(&id) {
            return;
        }
        file.committing = true;
        let (entry, generation) = (file.entry.clone(), file.generation);
        let digest = file.ledger.digest();
        self.take_dirty(id);
        self.push_job(StorageJob::Commit {
            entry,
            generation,
            digest,
        });
    }

    pub(super) fn fail_file(&mut self, id: EntryId, failure: Failure) {
        if let Some(file) = self.remove_file(id) {
            let parent = file.entry.parent;
            self.finish_entry(id, parent, Some(file.entry), Outcome::Failed(failure));
        }
    }

    /// True if [`Receiver::poll_storage`] may return a job now.
    pub fn has_storage_job(&self, now: Moment) -> bool {
        !self.jobs.is_empty() || self.is_checkpoint_due(now)
    }

    /// True if enough bytes wait for a checkpoint, or the oldest has waited long enough.
    fn is_checkpoint_due(&self, now: Moment) -> bool {
        self.dirty_since.is_some_and(|since| {
            self.dirty_bytes >= self.settings.checkpoint_bytes.div_ceil(2)
                || now >= since + self.settings.checkpoint_span
        })
    }

    pub(super) fn due_checkpoint(&mut self, now: Moment) -> Option<StorageJob> {
        if !self.is_checkpoint_due(now) {
            return None;
        }
        let files: Vec<EntryId> = self.dirty.iter().copied().collect();
        let checkpoints: Vec<Checkpoint> = files
            .into_iter()
            .filter_map(|id| self.take_checkpoint(id))
            .collect();
        (!checkpoints.is_empty()).then_some(StorageJob::Checkpoint(checkpoints))
    }

    /// Takes all written blocks of a file into a checkpoint, if there are any.
    pub(super) fn take_checkpoint(&mut self, id: EntryId) -> Option<Checkpoint> {
        let blocks = self.take_dirty(id);
        let file = self.files.get_mut(&id).filter(|_| !blocks.is_empty())?;
        file.syncing = true;
        Some(Checkpoint {
            file: id,
            generation: file.generation,
            blocks,
        })
    }

    /// Removes and returns the blocks of a file that wait for a checkpoint, and uncounts them.
    pub(super) fn take_dirty(&mut self, id: EntryId) -> Vec<DurableBlock> {
        let Some(file) = self.files.get_mut(&id) else {
            return Vec::new();
        };
        file.dirty_since = None;
        let bytes = std::mem::take(&mut file.dirty_bytes);
        let blocks = std::mem::take(&mut file.dirty);
        if self.dirty.remove(&id) {
            self.dirty_bytes -= bytes;
        }
        if self.dirty.is_empty() {
            self.dirty_since = None;
        }
        blocks
    }

    /// Removes a file and all that is counted for it.
    pub(super) fn remove_file(&mut self, id: EntryId) -> Option<Incoming> {
        self.take_dirty(id);
        let file = self.files.remove(&id)?;
        self.texts -= file.entry.text_bytes();
        self.fragments -= file.claimed.fragments();
        self.unsynced = self.unsynced.saturating_sub(file.unsynced);
        Some(file)
    }

    /// Changes the claimed ranges of a file and updates their count.
    pub(super) fn claim(&mut self, id: EntryId, change: impl FnOnce(&mut RangeSet)) {
        if let Some(file) = self.files.get_mut(&id) {
            self.fragments -= file.claimed.fragments();
            change(&mut file.claimed);
            self.fragments += file.claimed.fragments();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::whole_file;
    use crate::manifest::{EntryKind, SourceIdentity, TreePath};
    use crate::message::Totals;
    use crate::receiver::{Compared, ReceiverSettings};

    const SIZE: u64 = 3 << 20;

    /// Makes a receiver that resumes a file whose data an earlier run left completely, and returns
    /// the job that reads it.
    fn resumed() -> (Receiver, EntryId) {
        let mut receiver = Receiver::new(ReceiverSettings::default());
        let entry = Entry {
            id: EntryId(0),
            parent: None,
            path: TreePath::new(b"file").unwrap(),
            kind: EntryKind::File {
                identity: SourceIdentity {
                    size: SIZE,
                    ..SourceIdentity::default()
                },
                sparse: false,
            },
            mode: 0o644,
            owner: Default::default(),
            modified: Default::default(),
        };
        let now = Moment(0);
        let entries = Message::Entries(vec![entry.clone()]);
        receiver.handle_message(entries).unwrap();
        assert!(receiver.poll_storage(now).is_some());
        let block = DurableBlock {
            offset: 0,
            length: SIZE,
            checksum: whole_file(Integrity::Digest, &vec![1; SIZE as usize]),
        };
        receiver.handle_compared(vec![(entry.clone(), Compared::Partial(vec![block]))]);
        let job = StorageJob::ReadBack {
            entry,
            generation: 0,
            blocks: vec![block],
        };
        assert_eq!(receiver.poll_storage(now), Some(job));
        let sealed = Message::Sealed {
            file: EntryId(0),
            generation: 0,
            size: SIZE,
            grew: false,
        };
        receiver.handle_message(sealed).unwrap();
        assert_eq!(receiver.poll_storage(now), None, "it was not read yet");
        (receiver, EntryId(0))
    }

    #[test]
    fn data_of_an_earlier_run_are_read_before_the_file_gets_its_name() {
        let (mut receiver, id) = resumed();
        receiver.handle_read_back(id, 0, Ok(()));
        let job = receiver.poll_storage(Moment(0));
        assert!(matches!(job, Some(StorageJob::Commit { .. })), "{job:?}");
    }

    #[test]
    fn altered_data_of_an_earlier_run_fail_the_file() {
        let (mut receiver, id) = resumed();
        // Results for another generation are ignored.
        let failure = Failure::new(FailureKind::Corrupt, "altered");
        receiver.handle_read_back(id, 1, Err(failure.clone()));
        assert_eq!(receiver.totals(), Totals::default());
        receiver.handle_read_back(id, 0, Err(failure));
        assert_eq!(receiver.totals().failed, 1);
        let discard = StorageJob::Discard {
            file: id,
            generation: 0,
            stays: false,
        };
        assert_eq!(receiver.poll_storage(Moment(0)), Some(discard));
    }
}
