//! Handles lost blocks. The other end counts the blocks of a stream. If bytes in clear vanish on
//! the path, a whole block may vanish unnoticed, and a later block is then counted in its place.
//! Only the lack of progress shows that the block must be sent again. This module also plans blocks
//! again that are known to be lost.

use super::Plan;
use super::queues::SmallEntry;
use super::tasks::Stage;
use crate::block::{ContentName, PieceName};
use crate::manifest::EntryId;
use crate::sender::results::BlockId;

impl Plan {
    /// Plans all sent blocks again that are not acknowledged. Returns their number.
    pub fn replan_sent(&mut self) -> usize {
        let lost = self.blocks.sent();
        for block in &lost {
            self.replan(*block);
        }
        lost.len()
    }

    /// Plans a lost block again, unless a twin of it is under way.
    pub fn replan(&mut self, block: BlockId) {
        let twin = self.blocks.twin(block);
        match self.blocks.forget(block) {
            Some(ContentName::Piece(piece)) => {
                let large = self.tasks.large_mut(piece.file);
                if !large.is_some_and(|large| large.remove_block(piece.offset, block)) {
                    self.replan_piece(piece);
                }
            }
            Some(ContentName::Pack(ids)) => {
                let mut moved = 0;
                for id in ids.into_iter().rev() {
                    moved += usize::from(self.replan_packed(id, block, twin));
                }
                if let Some(twin) = twin.filter(|_| moved > 0) {
                    self.blocks.inherit(twin, moved);
                }
            }
            None => {}
        }
    }

    /// Moves an entry of a lost pack to the pack's twin, or queues it for another pack. Returns
    /// true if the twin holds it.
    fn replan_packed(&mut self, id: EntryId, lost: BlockId, twin: Option<BlockId>) -> bool {
        let Some(tracked) = self.tasks.get_mut(id) else {
            return false;
        };
        match (&tracked.stage, twin) {
            (Stage::Packed(at), Some(twin)) if *at == lost => {
                tracked.stage = Stage::Packed(twin);
                true
            }
            (Stage::Packed(at), None) if *at == lost => {
                self.replan_small(id);
                false
            }
            _ => false,
        }
    }

    pub(super) fn replan_piece(&mut self, piece: PieceName) {
        let lost = self
            .tasks
            .large_of(piece)
            .and_then(|large| large.lose(piece));
        let Some(blocks) = lost else {
            return;
        };
        for block in blocks {
            self.blocks.forget(block);
        }
        self.queues.queue_large_first(piece.file);
    }

    pub(super) fn replan_small(&mut self, id: EntryId) {
        let Some(tracked) = self.tasks.get_mut(id) else {
            return;
        };
        let Stage::Packed(block) = tracked.stage else {
            return;
        };
        tracked.stage = Stage::Small;
        let small = SmallEntry::of(&tracked.entry);
        for block in self.blocks.entry_done(block) {
            self.blocks.forget(block);
        }
        self.queues.queue_small_first(small);
    }
}
