//! Plans the data that is read next: cuts files into blocks, packs small entries, and plans lost
//! data again.
//!
//! A task goes to a queue, then into one block or many ([`reading`]). Blocks are named by their
//! content. The content of a lost block is planned again, perhaps cut differently. A whole entry is
//! done when the receiver reports its outcome, and a range of a file when it is durable.

mod account;
mod again;
mod blocks;
mod front;
mod fronts;
mod lost;
mod queues;
mod reading;
mod sizes;
mod tasks;

use std::collections::{BTreeSet, VecDeque};

use super::results::{BlockId, Dispatch, Ending, EntryEvent, PackedRead, PieceRead};
use super::settings::SenderSettings;
use super::task::{Part, Supply, Task, TaskId, TaskResult, Work};
use crate::account::Account;
use crate::block::PieceName;
use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId};
use crate::message::{Failure, FailureKind, Message};
use crate::session::StreamId;
use blocks::Blocks;
pub(super) use blocks::Help;
use front::Front;
use fronts::Fronts;
use queues::{Queues, SmallEntry};
pub(super) use sizes::{BlockBytes, Speed};
use tasks::{Stage, Tasks, Tracked};

/// Maximum size in bytes of a sparse file in a pack. The other end restores its holes. File systems
/// that compress, or store short files in the inode, use fewer bytes than a file has, and files
/// outside packs cost many times as much.
const SPARSE_APART_BYTES: u64 = 256 << 10;

/// Maximum number of changes of a source during its copy. After more, the copy of the source fails.
const MAXIMUM_RESTARTS: u32 = 5;

/// True if an entry is sent in pieces of its own and not packed with others.
pub fn is_large(entry: &Entry, block_bytes: u64) -> bool {
    let size = entry.size();
    size > block_bytes || entry.is_sparse() && size > SPARSE_APART_BYTES
}

/// Plan of the data of tasks, and the blocks on their way.
#[derive(Debug)]
pub(super) struct Plan {
    settings: SenderSettings,
    tasks: Tasks,
    queues: Queues,
    blocks: Blocks,
    fronts: Fronts,
    /// Size of a full block.
    pub block_bytes: BlockBytes,
    /// True if no further tasks follow.
    supply_ended: bool,
    account: Account,
    results: VecDeque<(TaskId, TaskResult)>,
    /// Messages for the receiver.
    pub messages: VecDeque<Message>,
    pub events: VecDeque<EntryEvent>,
}

impl Plan {
    /// Makes a plan without tasks.
    pub fn new(settings: SenderSettings) -> Plan {
        Plan {
            settings,
            tasks: Tasks::default(),
            queues: Queues::default(),
            blocks: Blocks::default(),
            fronts: Fronts::default(),
            block_bytes: BlockBytes::new(settings.block_bytes),
            supply_ended: false,
            account: Account::default(),
            results: VecDeque::new(),
            messages: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Gives results to the source of the tasks and takes new tasks from it, as long as the window
    /// has room.
    pub fn exchange(&mut self, work: &mut impl Work) {
        while let Some((task, result)) = self.results.pop_front() {
            work.handle_result(task, result);
        }
        while self.tasks.len() < self.settings.window_entries
            && let Some(task) = work.next_task()
        {
            self.add(task);
        }
        self.supply_ended = work.supply() == Supply::Ended;
    }

    /// Sets the number of large files that the receiver can keep open.
    pub fn bound_large_files(&mut self, most: usize) {
        self.settings.large_files = most.max(1);
    }

    fn add(&mut self, task: Task) {
        let id = task.entry.id;
        let is_large = is_large(&task.entry, self.settings.block_bytes);
        let mut tracked = Tracked::new(task.id, task.entry, task.generation);
        match task.part {
            Part::Rest(ranges) => {
                tracked.make_large(|large| large.resume_all(&ranges));
                self.continue_large(tracked, None);
                return;
            }
            Part::Only { start, end, held } => {
                tracked.make_large(|large| large.resume_all(&held));
                self.continue_large(tracked, Some((start, end)));
                return;
            }
            Part::Front => tracked.make_large(|large| large.front = Some(Front::default())),
            _ if is_large => tracked.make_large(|_| {}),
            _ => {
                self.queues.queue_small(SmallEntry::of(&tracked.entry));
                self.tasks.insert(tracked);
                return;
            }
        }
        self.tasks.insert(tracked);
        self.queues.queue_large(id);
    }

    /// Begins a large file of which the receiver may have ranges. The receiver already has the file
    /// open, so it comes before files that are not open. Only the given range is sent.
    fn continue_large(&mut self, mut tracked: Tracked, only: Option<(u64, u64)>) {
        let id = tracked.entry.id;
        if let (Some((start, end)), Some(large)) = (only, tracked.large_mut()) {
            large.limit(start, end);
        }
        self.tasks.insert(tracked);
        self.handle_resumed(id);
        self.queues.begin_large(id);
        self.queues.queue_large_first(id);
        self.seal_if_read(id);
    }

    /// Counts bytes of a large file that an earlier session left.
    fn handle_resumed(&mut self, id: EntryId) {
        let Some(tracked) = self.tasks.get_mut(id) else {
            return;
        };
        let bytes = tracked.large_mut().map_or(0, |large| large.durable_bytes());
        if bytes > 0 {
            self.account.add_resumed(&mut tracked.share, bytes);
            let entry = tracked.entry.clone();
            self.events.push_back(EntryEvent::Resumed { entry, bytes });
        }
    }

    /// Handles the result of reading a pack, entry by entry. Returns false if the block is no
    /// longer needed, so that its buffer can be freed.
    pub fn handle_pack_read(
        &mut self,
        block: BlockId,
        results: Vec<(EntryId, PackedRead)>,
    ) -> bool {
        // A twin must have the same content as its original.
        let changed = |read: &(_, PackedRead)| matches!(read.1, PackedRead::Ready(Some(_)));
        let useless = self.blocks.is_twin(block) && results.iter().any(changed);
        for (id, result) in results {
            let stage = self.tasks.get(id).map(|tracked| &tracked.stage);
            // The entry is in this pack, or in the pack of which this is a twin.
            let is_here = |at| at == block || self.blocks.twin(at) == Some(block);
            if !matches!(stage, Some(Stage::Packed(at)) if is_here(*at)) {
                continue;
            }
            match result {
                PackedRead::Ready(_) if useless => {}
                PackedRead::Ready(None) => {}
                PackedRead::Ready(Some(entry)) => {
                    if let Some(tracked) = self.tasks.get_mut(id) {
                        tracked.entry = entry;
                    }
                }
                PackedRead::Grown(entry) => {
                    self.blocks.drop_from_pack(block, id);
                    self.give_back(id, entry);
                }
                PackedRead::Failed(failure) => {
                    self.blocks.drop_from_pack(block, id);
                    self.abandon(id, failure);
                }
            }
        }
        if useless {
            self.replan(block);
            return false;
        }
        self.blocks.make_ready(block)
    }

    /// Handles the result of reading a piece. Returns false under the same condition as
    /// [`Plan::handle_pack_read`].
    pub fn handle_piece_read(&mut self, block: BlockId, result: PieceRead) -> bool {
        if let Some(piece) = self.fronts.take_check(block) {
            self.handle_checked(piece, result == PieceRead::Same);
            return false;
        }
        let Some(piece) = self.blocks.piece(block) else {
            return false;
        };
        match result {
            PieceRead::Front(checksum) => self.handle_front_read(block, piece, checksum),
            PieceRead::Same => false,
            PieceRead::Ready => {
                self.mark_read(piece);
                self.blocks.make_ready(block)
            }
            PieceRead::Changed(entry) => {
                self.give_back(piece.file, entry);
                false
            }
            PieceRead::Failed(failure) => {
                self.abandon(piece.file, failure);
                false
            }
        }
    }

    /// Handles a piece of a front that was read.
    fn handle_front_read(&mut self, block: BlockId, piece: PieceName, checksum: Checksum) -> bool {
        let Some(large) = self.tasks.large_mut(piece.file) else {
            return false;
        };
        let sealed = large.sealed;
        let Some(front) = &mut large.front else {
            return false;
        };
        if !front.accepts(piece, checksum, sealed) {
            self.abandon(piece.file, keeps_changing());
            return false;
        }
        self.mark_read(piece);
        self.blocks.make_ready(block)
    }

    /// Handles a piece of a front that was read again.
    fn handle_checked(&mut self, piece: PieceName, same: bool) {
        let large = self.tasks.large_of(piece);
        let Some(front) = large.and_then(|large| large.front.as_mut()) else {
            return;
        };
        front.note_checked();
        if same {
            self.seal_if_read(piece.file);
        } else {
            self.abandon(piece.file, keeps_changing());
        }
    }

    /// Returns the blocks on their way.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Returns the blocks on their way.
    pub fn blocks_mut(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    /// Returns the number of entries of which a part must be sent.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Takes the next block for a stream. `alone` is true if no other stream takes blocks. Returns
    /// the bytes of the block, too.
    pub fn dispatch(&mut self, stream: StreamId, alone: bool) -> Option<(Dispatch, u64)> {
        let dispatch = self.blocks.next_ready(stream, alone)?;
        let Dispatch::Send(block) = dispatch else {
            return Some((dispatch, 0));
        };
        let bytes = self.blocks.handle_sent(block);
        if let Some(content) = self.blocks.content(block) {
            account::count_moved(&mut self.account, content, bytes, &mut self.tasks);
        }
        Some((dispatch, bytes))
    }

    /// Returns the account of file data so far, without arrivals.
    pub fn account(&self) -> Account {
        Account {
            discarded_bytes: self.blocks.discarded_bytes(),
            ..self.account
        }
    }

    /// Handles pieces that are durable at the receiver.
    pub fn handle_durable(&mut self, pieces: Vec<PieceName>) {
        let files: BTreeSet<EntryId> = pieces.iter().map(|piece| piece.file).collect();
        for piece in pieces {
            let Some(tracked) = self.tasks.get_mut(piece.file) else {
                continue;
            };
            if tracked.generation != piece.generation {
                continue;
            }
            tracked.corruptions = 0;
            let Stage::Large(large) = &mut tracked.stage else {
                continue;
            };
            let (fresh, blocks) = large.note_durable(piece);
            for block in blocks {
                self.blocks.forget(block);
            }
            self.account.add_durable(&mut tracked.share, fresh);
        }
        for id in files {
            self.events.extend(self.tasks.durable_event(id));
        }
    }

    /// Ends an entry whose outcome the receiver reported, and all its tasks. Returns the ending if
    /// the plan does not have the entry.
    pub fn end(&mut self, id: EntryId, ending: Ending) -> Option<Ending> {
        let Some(mut tracked) = self.remove(id) else {
            return Some(ending);
        };
        if ending.is_complete() {
            let size = tracked.bytes();
            self.account.complete(&mut tracked.share, size);
        }
        let entry = tracked.entry;
        let result = TaskResult::Ended { entry, ending };
        self.results.push_back((tracked.task, result));
        None
    }

    /// Removes an entry and forgets its blocks.
    fn remove(&mut self, id: EntryId) -> Option<Tracked> {
        let tracked = self.tasks.remove(id)?;
        self.queues.end_large(id);
        self.forget_blocks(&tracked.stage);
        Some(tracked)
    }

    fn forget_blocks(&mut self, stage: &Stage) {
        let blocks = match stage {
            Stage::Packed(block) => self.blocks.entry_done(*block),
            Stage::Large(large) => large.all_blocks(),
            Stage::Small | Stage::Abandoned => Vec::new(),
        };
        for block in blocks {
            self.blocks.forget(block);
        }
    }

    /// Gives the tasks of an entry back after its source changed. All data sent for it is void. An
    /// entry that changes too often fails.
    fn give_back(&mut self, id: EntryId, entry: Entry) {
        let Some(tracked) = self.remove(id) else {
            return;
        };
        self.account.void(tracked.share);
        if tracked.generation >= MAXIMUM_RESTARTS {
            let generation = tracked.generation + 1;
            let fresh = Tracked::new(tracked.task, entry, generation);
            self.tasks.insert(fresh);
            self.abandon(id, keeps_changing());
            return;
        }
        let grew = entry.size() > tracked.entry.size();
        let result = TaskResult::Changed { entry, grew };
        self.results.push_back((tracked.task, result));
    }

    /// Announces that an entry will not be sent. The entry ends when the receiver reports its
    /// outcome.
    fn abandon(&mut self, id: EntryId, failure: Failure) {
        let Some(tracked) = self.tasks.get_mut(id) else {
            return;
        };
        let stage = std::mem::replace(&mut tracked.stage, Stage::Abandoned);
        if matches!(stage, Stage::Abandoned) {
            return;
        }
        let parent = tracked.entry.parent;
        self.queues.end_large(id);
        self.forget_blocks(&stage);
        self.messages.push_back(Message::Abandoned {
            id,
            parent,
            failure,
        });
    }

    fn mark_read(&mut self, piece: PieceName) {
        if let Some(large) = self.tasks.large_mut(piece.file) {
            large.read.insert(piece.offset, piece.offset + piece.length);
            large.doubted = false;
        }
        self.seal_if_read(piece.file);
    }

    /// Seals a file of which all bytes that must be sent were read.
    fn seal_if_read(&mut self, file: EntryId) {
        let is_read = |large: &tasks::Large| large.read.contains(0, large.size);
        let is_read = self.tasks.large(file).is_some_and(is_read);
        if !is_read || !self.fronts.is_checked(file, &mut self.tasks) {
            return;
        }
        let Some(tracked) = self.tasks.get_mut(file) else {
            return;
        };
        let generation = tracked.generation;
        let Some(large) = tracked.large_mut() else {
            return;
        };
        if !large.sealed {
            large.sealed = true;
            let (size, grew) = (large.size, large.front.is_some());
            self.messages.push_back(Message::Sealed {
                file,
                generation,
                size,
                grew,
            });
        }
    }
}

/// Returns the failure of a file that changes too often.
pub(super) fn keeps_changing() -> Failure {
    let text = "it keeps changing while it is copied: copy it again when nobody writes to it";
    Failure::new(FailureKind::Changing, text)
}
