//! Receives the data of files and of other entries in packs.
//!
//! Pieces of a large file are *claimed* when they arrive, *placed* when they are written
//! ([`Placement`]), and durable after a checkpoint ([`Durability`]). The file is committed when it
//! is complete. The writer of packed entries commits them.

mod incoming;
mod packs;

use std::collections::{BTreeMap, VecDeque};

use longhaul_units::Moment;

use super::durability::Durability;
use super::jobs::{Checkpoint, ReceivedEvent, StorageJob, Verdict};
use super::load::{Load, NUMBER_BYTES};
use super::outbox::Outbox;
use super::outcomes::Outcomes;
use super::placement::Placement;
use super::settings::ReceiverSettings;
use crate::account::{Account, Share};
use crate::block::{ContentName, Piece, PieceName};
use crate::digest::{Checksum, Integrity};
use crate::ledger::DurableBlock;
use crate::manifest::{Entry, EntryId};
use crate::message::{AgainReason, Answer, Failure, FailureKind, Message, Outcome, Totals};

pub(super) use incoming::{Ended, Seal};
use incoming::{Incoming, Packing};

/// Memory of one item of each kind in bytes without paths, slightly above the measured one.
const FILE_BYTES: usize = 1024;
const PACKED_BYTES: usize = 192;

/// Average number of ranges of claimed bytes per entry under way. A sender has no good reason to
/// leave a gap after every block.
const FRAGMENTS_PER_ENTRY: usize = 8;

/// Files and packed entries that are being received.
#[derive(Debug)]
pub struct Files {
    integrity: Integrity,
    /// True if acknowledgements carry digests.
    digests: bool,
    /// See [`ReceiverSettings::part`].
    part: Option<(u64, u64)>,
    /// See [`ReceiverSettings::reads_back`].
    reads_back: bool,
    files: BTreeMap<EntryId, Incoming>,
    packed: BTreeMap<EntryId, Packing>,
    /// Seals that arrived before the first piece of their file.
    seals: BTreeMap<EntryId, Seal>,
    /// Corrupt packed entries, with the generation that must be sent again. Older generations are
    /// dropped.
    expected: BTreeMap<EntryId, u32>,
    durability: Durability,
    /// Pieces that became durable and were not yet acknowledged.
    durable: Vec<PieceName>,
    /// Entries that ended.
    ended: VecDeque<Ended>,
    /// Bytes of the paths of `files`.
    texts: usize,
    /// Number of ranges in the claims of all files.
    fragments: usize,
    /// Counts of blocks and bytes.
    totals: Totals,
    account: Account,
}

impl Files {
    pub(super) fn new(settings: &ReceiverSettings) -> Files {
        Files {
            integrity: settings.integrity,
            digests: settings.digests,
            part: settings.part,
            reads_back: settings.reads_back,
            files: BTreeMap::new(),
            packed: BTreeMap::new(),
            seals: BTreeMap::new(),
            expected: BTreeMap::new(),
            durability: Durability::new(settings),
            durable: Vec::new(),
            ended: VecDeque::new(),
            texts: 0,
            fragments: 0,
            totals: Totals::default(),
            account: Account::default(),
        }
    }

    /// Returns the data that are written and not known to be durable.
    pub fn durability(&self) -> &Durability {
        &self.durability
    }

    /// Returns the account of file data so far.
    pub fn account(&self) -> Account {
        Account {
            arrived_bytes: self.account.moved_bytes,
            ..self.account
        }
    }

    /// Returns the parts of a file that is being received.
    pub fn placement(&self, file: EntryId) -> Option<&Placement> {
        Some(&self.files.get(&file)?.placement)
    }

    /// True if this generation of the file is being received.
    pub fn is_under_way(&self, file: EntryId, generation: u32) -> bool {
        let known = self.files.get(&file);
        known.is_some_and(|known| known.generation == generation)
    }

    /// Returns the number of files and packed entries that have begun to arrive and are not done.
    pub fn under_way(&self) -> usize {
        self.files.len() + self.packed.len()
    }

    /// Sets the digest of a file whose committed content differs from the received data.
    pub fn handle_filtered(&mut self, file: EntryId, generation: u32, digest: Checksum) {
        if let Some(known) = self.of_generation(file, generation) {
            known.became = Some(digest);
        }
    }

    /// Returns a file, unless it has another generation.
    fn of_generation(&mut self, id: EntryId, generation: u32) -> Option<&mut Incoming> {
        let file = self.files.get_mut(&id)?;
        (file.generation == generation).then_some(file)
    }

    /// Returns the number of seals that arrived early.
    pub(super) fn early_seals(&self) -> usize {
        self.seals.len()
    }

    /// True if a block with this content may still be needed.
    pub(super) fn awaits(&self, content: &ContentName, outcomes: &Outcomes) -> bool {
        match content {
            ContentName::Piece(piece) => match self.files.get(&piece.file) {
                Some(file) => {
                    let placement = &file.placement;
                    file.generation <= piece.generation
                        && !placement.has_claimed(piece.offset, piece.length)
                }
                None => !outcomes.is_done(piece.file),
            },
            ContentName::Pack(ids) => ids.iter().any(|&id| !outcomes.is_done(id)),
        }
    }

    /// Gives up the claim of a piece that must be sent again.
    fn release(&mut self, piece: PieceName) {
        let (fragments, account) = (&mut self.fragments, &mut self.account);
        let file = self.files.get_mut(&piece.file);
        if let Some(file) = file.filter(|file| file.generation == piece.generation) {
            *fragments -= file.placement.fragments();
            file.placement.release(piece.offset, piece.length);
            *fragments += file.placement.fragments();
            account.take_back(&mut file.share, piece.length);
        }
    }

    /// Handles a valid piece that arrived.
    pub(super) fn handle_piece(
        &mut self,
        piece: &Piece,
        outcomes: &Outcomes,
        outbox: &mut Outbox,
    ) -> Verdict {
        let id = piece.entry.id;
        let size = piece.entry.size();
        let stale = self.files.get(&id).is_some_and(|file| {
            file.generation > piece.generation
                || file.committing
                || file.generation == piece.generation && file.placement.size() != size
        });
        // A newer state of an entry is kept although a pack with the entry is being written,
        // because that pack may be corrupt.
        let packed = self.packed.get(&id);
        let packed = packed.is_some_and(|packing| packing.generation >= piece.generation);
        let outdated = self.is_outdated(id, piece.generation);
        if outcomes.is_done(id) || packed || stale || outdated {
            return self.drop_piece(piece.length);
        }
        let is_older = |file: &Incoming| file.generation < piece.generation;
        if self.files.get(&id).is_none_or(is_older) {
            self.begin(piece.entry.clone(), piece.generation, outbox);
        }
        let (fragments, account) = (&mut self.fragments, &mut self.account);
        let Some(file) = self.files.get_mut(&id) else {
            return self.drop_piece(piece.length);
        };
        let before = file.placement.fragments();
        if file.placement.claim(piece.offset, piece.length) {
            *fragments = *fragments - before + file.placement.fragments();
            account.add_moved(&mut file.share, piece.length, piece.length);
            return Verdict::Keep;
        }
        // The piece was cut differently than an earlier one.
        for piece in file.placement.unclaimed(piece.name()) {
            outbox.push_message(Message::Again {
                content: ContentName::Piece(piece),
                reason: AgainReason::Overlap,
            });
        }
        self.drop_piece(piece.length)
    }

    fn drop_piece(&mut self, bytes: u64) -> Verdict {
        self.totals.duplicate_blocks += 1;
        self.account.add_unclaimed(bytes);
        Verdict::Drop
    }

    /// Handles a piece that was verified and written but not synced, or could not be written.
    pub(super) fn handle_written(
        &mut self,
        piece: PieceName,
        result: Result<Checksum, Failure>,
        now: Moment,
        outbox: &mut Outbox,
    ) {
        let Some(file) = self.of_generation(piece.file, piece.generation) else {
            return;
        };
        let checksum = match result {
            Ok(checksum) => checksum,
            Err(failure) => return self.fail(piece.file, failure),
        };
        let block = DurableBlock {
            offset: piece.offset,
            length: piece.length,
            checksum,
        };
        if file.placement.place(block) {
            self.durability.handle_written(piece.file, block, now);
            self.commit_if_complete(piece.file, outbox);
        }
    }

    /// Returns a checkpoint that is due.
    pub(super) fn due_checkpoint(&mut self, now: Moment) -> Option<StorageJob> {
        let due = self.durability.take_due(now).into_iter();
        let checkpoint = |(id, blocks)| {
            Some(Checkpoint {
                file: id,
                generation: self.files.get(&id)?.generation,
                blocks,
            })
        };
        let checkpoints: Vec<Checkpoint> = due.filter_map(checkpoint).collect();
        (!checkpoints.is_empty()).then_some(StorageJob::Checkpoint(checkpoints))
    }

    /// Handles a checkpoint. All its files are durable, except those with a failure.
    pub(super) fn handle_checkpointed(
        &mut self,
        files: Vec<(Checkpoint, Option<Failure>)>,
        outbox: &mut Outbox,
    ) {
        for (checkpoint, failure) in files {
            let Checkpoint {
                file: id,
                generation,
                blocks,
            } = checkpoint;
            if !self.is_under_way(id, generation) {
                continue;
            }
            let bytes: u64 = blocks.iter().map(|block| block.length).sum();
            self.durability.handle_checkpointed(id, bytes);
            if let Some(failure) = failure {
                self.fail(id, failure);
                continue;
            }
            if let Some(file) = self.files.get_mut(&id) {
                self.account.add_durable(&mut file.share, bytes);
                outbox.push_event(ReceivedEvent::Durable {
                    entry: file.entry.clone(),
                    bytes: file.share.at_destination(),
                });
            }
            self.durable.extend(blocks.iter().map(|block| PieceName {
                file: id,
                generation,
                offset: block.offset,
                length: block.length,
            }));
            self.commit_if_complete(id, outbox);
        }
    }

    /// Handles a file that has its name and is durable, or failed.
    pub(super) fn handle_committed(
        &mut self,
        id: EntryId,
        generation: u32,
        result: Result<(), Failure>,
    ) {
        if !self.is_under_way(id, generation) {
            return;
        }
        if let Err(failure) = result {
            return self.fail(id, failure);
        }
        let Some(mut file) = self.remove(id) else {
            return;
        };
        let size = file.placement.wanted_bytes();
        self.totals.bytes += size;
        self.account.complete(&mut file.share, size);
        let digest = file.became.or_else(|| file.placement.digest());
        let digest = digest.filter(|_| self.digests);
        let outcome = if file.grew {
            Outcome::Failed(Failure::grew(size))
        } else {
            Outcome::Committed { digest }
        };
        self.end(file.entry.parent, file.entry, outcome);
    }

    fn begin(&mut self, entry: Entry, generation: u32, outbox: &mut Outbox) {
        let id = entry.id;
        self.let_go(id, false, outbox);
        self.texts += entry.text_bytes();
        let mut placement = Placement::new(entry.size(), self.integrity);
        if let Some(part) = self.part {
            placement = placement.within(part);
        }
        let incoming = Incoming {
            placement,
            entry,
            generation,
            share: Share::default(),
            grew: false,
            reading_back: false,
            committing: false,
            became: None,
        };
        self.files.insert(id, incoming);
        if let Some(seal) = self.seals.remove(&id) {
            self.handle_sealed(id, seal, false, outbox);
        }
    }

    /// Continues a file of which an earlier session left durable blocks.
    pub(super) fn resume(
        &mut self,
        entry: Entry,
        blocks: &[DurableBlock],
        outbox: &mut Outbox,
    ) -> Answer {
        let id = entry.id;
        self.begin(entry, 0, outbox);
        let Some(file) = self.files.get_mut(&id) else {
            return Answer::Send;
        };
        let wanted = |block: &&DurableBlock| file.placement.wants(block.offset, block.length);
        let blocks: Vec<DurableBlock> = blocks.iter().filter(wanted).copied().collect();
        let absorbed = file.placement.absorb(&blocks);
        self.fragments += file.placement.fragments();
        let ranges = file.placement.placed();
        let bytes = ranges.total();
        let answer = Answer::Resume(ranges.iter().map(|(a, b)| (a, b - a)).collect());
        if bytes > 0 {
            self.account.add_resumed(&mut file.share, bytes);
            let entry = file.entry.clone();
            // Another program may have changed the file since then.
            file.reading_back = self.reads_back;
            if self.reads_back {
                outbox.push_job(StorageJob::ReadBack {
                    entry: entry.clone(),
                    generation: file.generation,
                    blocks: file.placement.merged_blocks().unwrap_or(absorbed),
                });
            }
            outbox.push_event(ReceivedEvent::Resumed { entry, bytes });
        }
        answer
    }

    /// Handles the result of reading the data that an earlier session left. A mismatch with its
    /// checksums fails the file.
    pub(super) fn handle_read_back(
        &mut self,
        id: EntryId,
        generation: u32,
        result: Result<(), Failure>,
        outbox: &mut Outbox,
    ) {
        let Some(file) = self.of_generation(id, generation) else {
            return;
        };
        file.reading_back = false;
        match result {
            Ok(()) => self.commit_if_complete(id, outbox),
            Err(failure) => {
                let entry = file.entry.clone();
                // Data that cannot be read now may still be correct.
                self.let_go(id, failure.kind != FailureKind::Corrupt, outbox);
                self.end(entry.parent, entry, Outcome::Failed(failure));
            }
        }
    }

    /// Handles a file that the sender read completely; `is_done` is true if the entry is done.
    pub(super) fn handle_sealed(
        &mut self,
        id: EntryId,
        seal: Seal,
        is_done: bool,
        outbox: &mut Outbox,
    ) {
        let generation = seal.generation;
        match self.files.get_mut(&id) {
            Some(file) if file.generation == generation && file.placement.size() == seal.size => {
                file.grew = seal.grew;
                file.placement.seal();
                self.commit_if_complete(id, outbox);
            }
            Some(file) if file.generation > generation => {}
            _ if is_done => {}
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
        outbox: &mut Outbox,
    ) {
        if let Some(packing) = self.packed.get_mut(&id) {
            packing.abandoned = Some(failure);
            return;
        }
        if self.files.get(&id).is_some_and(|file| file.committing) {
            return;
        }
        // A source that cannot be read now may be the same later.
        let stays = matches!(
            failure.kind,
            FailureKind::Permission | FailureKind::TooManyOpen | FailureKind::Other
        );
        self.let_go(id, stays, outbox);
        self.ended.push_back(Ended {
            id,
            parent,
            entry: None,
            outcome: Outcome::Failed(failure),
        });
    }

    /// Discards the written data of a file. If `stays` is true, a later session continues with its
    /// durable data.
    fn let_go(&mut self, id: EntryId, stays: bool, outbox: &mut Outbox) {
        if let Some(file) = self.remove(id) {
            self.account.void(file.share);
            outbox.push_job(StorageJob::Discard {
                file: id,
                generation: file.generation,
                stays,
            });
        }
    }

    /// Commits a file that is complete, unless other work on it must end first.
    fn commit_if_complete(&mut self, id: EntryId, outbox: &mut Outbox) {
        let Some(file) = self.files.get_mut(&id) else {
            return;
        };
        let is_busy = file.committing || file.reading_back || self.durability.is_syncing(id);
        if !file.placement.is_complete() || is_busy || self.packed.contains_key(&id) {
            return;
        }
        // The commit of a whole file makes its last blocks durable.
        if self.part.is_some() && self.durability.hurry(id) {
            return;
        }
        file.committing = true;
        outbox.push_job(StorageJob::Commit {
            entry: file.entry.clone(),
            generation: file.generation,
            digest: file.placement.digest(),
        });
        self.durability.take(id);
    }

    fn fail(&mut self, id: EntryId, failure: Failure) {
        if let Some(file) = self.remove(id) {
            self.end(file.entry.parent, file.entry, Outcome::Failed(failure));
        }
    }

    fn end(&mut self, parent: Option<EntryId>, entry: Entry, outcome: Outcome) {
        self.ended.push_back(Ended {
            id: entry.id,
            parent,
            entry: Some(entry),
            outcome,
        });
    }

    /// Removes a file and all that is counted for it.
    fn remove(&mut self, id: EntryId) -> Option<Incoming> {
        self.durability.remove(id);
        let file = self.files.remove(&id)?;
        self.texts -= file.entry.text_bytes();
        self.fragments -= file.placement.fragments();
        Some(file)
    }

    /// True if a newer state of the entry is expected.
    fn is_outdated(&self, id: EntryId, generation: u32) -> bool {
        let expected = self.expected.get(&id);
        expected.is_some_and(|expected| generation < *expected)
    }

    /// Takes an entry that ended.
    pub(super) fn take_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Takes the pieces that became durable.
    pub(super) fn take_durable(&mut self) -> impl Iterator<Item = PieceName> + '_ {
        self.durable.drain(..)
    }

    /// Forgets what is noted for an entry that is done.
    pub(super) fn forget(&mut self, id: EntryId) {
        self.seals.remove(&id);
        self.expected.remove(&id);
    }

    /// Adds the counts of blocks and bytes.
    pub(super) fn add_to(&self, totals: &mut Totals) {
        totals.bytes += self.totals.bytes;
        totals.corrupt_blocks += self.totals.corrupt_blocks;
        totals.duplicate_blocks += self.totals.duplicate_blocks;
    }

    pub(super) fn load(&self) -> Load {
        let under_way = Load {
            items: self.under_way(),
            bytes: self.files.len() * FILE_BYTES + self.packed.len() * PACKED_BYTES + self.texts,
        };
        let loads = [
            under_way,
            Load::of(self.seals.len(), NUMBER_BYTES),
            Load::of(self.expected.len(), NUMBER_BYTES),
            Load::of(self.fragments, NUMBER_BYTES).per_entry(FRAGMENTS_PER_ENTRY),
        ];
        loads.into_iter().sum()
    }
}
