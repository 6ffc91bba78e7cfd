//! Chooses the data that is read next: pieces of large files, packs of small entries, and twins of
//! blocks that a slow stream carries.

use super::Plan;
use super::blocks::{Blocks, Help};
use super::sizes::{SHORT_BLOCK_BYTES, Speed};
use super::tasks::{Stage, Tasks};
use crate::block::{ContentName, PieceName};
use crate::digest::longest_block;
use crate::manifest::{Entry, EntryId};
use crate::sender::results::{BlockId, PackedJob, ReadData, ReadJob};
use crate::sender::task::Supply;

/// Maximum total length of a pack's paths in bytes: half of the maximum body of a frame.
const MAXIMUM_PACK_PATH_BYTES: usize = 256 << 10;

/// Number of short first pieces per stream. Pieces stay short until as many blocks have arrived as
/// there are streams. On a slow path, a surplus stream ends no sooner than its block.
const FIRST_PIECES: usize = 4;

fn piece_data(entry: Entry, piece: PieceName, grows: bool) -> ReadData {
    if grows {
        ReadData::Front {
            entry,
            piece,
            earlier: None,
        }
    } else {
        ReadData::Piece { entry, piece }
    }
}

/// Returns the part of a block's content that is still needed.
fn needed_data(block: BlockId, blocks: &Blocks, tasks: &Tasks) -> Option<(ContentName, ReadData)> {
    match blocks.content(block)? {
        ContentName::Piece(piece) => {
            let tracked = tasks.get(piece.file)?;
            let grows = matches!(&tracked.stage, Stage::Large(large) if large.front.is_some());
            let data = piece_data(tracked.entry.clone(), *piece, grows);
            (tracked.generation == piece.generation).then_some((ContentName::Piece(*piece), data))
        }
        ContentName::Pack(ids) => {
            let jobs: Vec<PackedJob> = ids
                .iter()
                .filter_map(|id| tasks.get(*id))
                .filter(|t| matches!(t.stage, Stage::Packed(at) if at == block))
                .map(|t| PackedJob {
                    entry: t.entry.clone(),
                    generation: t.generation,
                })
                .collect();
            let ids = jobs.iter().map(|job| job.entry.id).collect();
            (!jobs.is_empty()).then_some((ContentName::Pack(ids), ReadData::Pack(jobs)))
        }
    }
}

impl Plan {
    /// Returns the next data to read; `None` if no data can be read now.
    pub fn next_read(&mut self, speed: Speed) -> Option<ReadJob> {
        if let Some(check) = self.fronts.next_check(&mut self.tasks, &mut self.blocks) {
            return Some(check);
        }
        if self.blocks.count() >= self.settings.unacknowledged_blocks {
            return None;
        }
        if self.queues.prefers_packs() {
            self.next_pack(speed).or_else(|| self.next_piece(speed))
        } else {
            self.next_piece(speed).or_else(|| self.next_pack(speed))
        }
    }

    /// True if a pack should be read now: it is full, or waiting would not help.
    fn pack_is_due(&self) -> bool {
        let queues = &self.queues;
        queues.small_count() > 0
            && self.blocks.packed_entries() < self.settings.unacknowledged_entries
            && (queues.small_bytes() >= self.block_bytes.full()
                || queues.small_count() >= self.settings.pack_entries
                || self.supply_ended
                || self.blocks.is_idle())
    }

    /// Returns the maximum bytes of the next piece, a power of two. It is smaller before the first
    /// blocks arrive, and when little data is left.
    fn next_piece_bytes(&self, speed: Speed) -> u64 {
        let first = (speed.streams * FIRST_PIECES) as u64;
        let early = self.blocks.next().0 < first && !speed.is_proven;
        if early {
            self.block_bytes.full().min(SHORT_BLOCK_BYTES)
        } else {
            self.next_block_bytes(speed)
        }
    }

    /// Returns the maximum bytes of the next block, a power of two. It is smaller when little data
    /// is left.
    fn next_block_bytes(&self, speed: Speed) -> u64 {
        let block = self.block_bytes.full();
        if self.supply_ended {
            self.queues
                .last_block_bytes(block, speed.streams, &self.tasks)
        } else {
            block
        }
    }

    /// Packs queued small entries, up to one block.
    fn next_pack(&mut self, speed: Speed) -> Option<ReadJob> {
        if !self.pack_is_due() {
            return None;
        }
        let room = self.settings.unacknowledged_entries - self.blocks.packed_entries();
        let most = self.settings.pack_entries.min(room);
        let limit = self.next_block_bytes(speed);
        let (mut jobs, mut ids, mut bytes, mut paths) = (Vec::new(), Vec::new(), 0, 0);
        let block = self.blocks.next();
        while let Some(small) = self.queues.first_small() {
            let fits = bytes + small.size <= limit
                && paths + small.path_bytes <= MAXIMUM_PACK_PATH_BYTES
                && ids.len() < most;
            if !ids.is_empty() && !fits {
                break;
            }
            self.queues.next_small();
            let Some(tracked) = self.tasks.get_mut(small.id) else {
                continue;
            };
            if !matches!(tracked.stage, Stage::Small) {
                continue;
            }
            tracked.stage = Stage::Packed(block);
            jobs.push(PackedJob {
                entry: tracked.entry.clone(),
                generation: tracked.generation,
            });
            ids.push(small.id);
            bytes += small.size;
            paths += small.path_bytes;
        }
        if ids.is_empty() {
            return None;
        }
        self.queues.note_block(true);
        let block = self.blocks.add_pack(ids, bytes);
        let data = ReadData::Pack(jobs);
        Some(ReadJob { block, data })
    }

    /// Cuts the next piece off the first large file with unplanned data.
    fn next_piece(&mut self, speed: Speed) -> Option<ReadJob> {
        while let Some(id) = self.queues.first_large() {
            if self.queues.large_waits(self.settings.large_files) {
                return None;
            }
            if let Some(job) = self.cut(id, speed) {
                self.queues.note_block(false);
                return Some(job);
            }
            self.queues.drop_large();
        }
        None
    }

    fn cut(&mut self, id: EntryId, speed: Speed) -> Option<ReadJob> {
        let limit = self.next_piece_bytes(speed);
        let tracked = self.tasks.get_mut(id)?;
        let (entry, generation) = (tracked.entry.clone(), tracked.generation);
        let large = tracked.large_mut()?;
        let grows = large.front.is_some();
        let (offset, end) = large.planned.first_gap(0, large.size)?;
        let length = longest_block(offset, end, large.size, limit);
        let piece = PieceName {
            file: id,
            generation,
            offset,
            length,
        };
        large.planned.insert(offset, offset + length);
        self.queues.begin_large(id);
        let block = self.blocks.add(ContentName::Piece(piece), length, None);
        large.add_block(offset, offset + length, block);
        let data = piece_data(entry, piece, grows);
        Some(ReadJob { block, data })
    }

    /// True if it is useful to search for slow streams now: no new data can be read before an
    /// acknowledgement, because no further tasks follow or a window is full.
    pub fn waits_for_streams(&self, supply: Supply) -> bool {
        let is_held_up = supply != Supply::More
            || self.blocks.packed_entries() >= self.settings.unacknowledged_entries
            || self.blocks.count() >= self.settings.unacknowledged_blocks
            || self.queues.large_waits(self.settings.large_files);
        self.blocks.is_idle() && is_held_up
    }

    /// Reads a block once more for the streams in `help`. The first of the two blocks to become
    /// durable wins.
    pub fn read_twin(&mut self, original: BlockId, help: Help) -> Option<ReadJob> {
        let (content, data) = needed_data(original, &self.blocks, &self.tasks)?;
        let piece = match &content {
            ContentName::Piece(piece) => Some(*piece),
            ContentName::Pack(_) => None,
        };
        let block = self.blocks.add_twin(original, content, help)?;
        if let Some(piece) = piece
            && let Some(large) = self.tasks.large_mut(piece.file)
        {
            large.add_block(piece.offset, piece.offset + piece.length, block);
        }
        Some(ReadJob { block, data })
    }
}
