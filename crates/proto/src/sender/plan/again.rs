//! Handles data that must be sent again.

use super::Plan;
use crate::block::ContentName;
use crate::message::{AgainReason, Failure, FailureKind};

/// Maximum number of corrupt arrivals of an entry, without durable progress in between, before it
/// fails.
const MAXIMUM_CORRUPTIONS: u32 = 16;

impl Plan {
    /// Plans content again that must be sent again, for a limited number of corrupt arrivals.
    pub fn handle_again(&mut self, content: ContentName, reason: AgainReason) {
        if let ContentName::Piece(piece) = &content {
            let tracked = self.tasks.get(piece.file);
            if tracked.is_none_or(|tracked| tracked.generation != piece.generation) {
                // The request is for an older, void generation.
                return;
            }
        }
        if reason.is_damage() {
            self.events.extend(self.tasks.damage(&content));
        }
        let ids = match &content {
            ContentName::Piece(piece) => vec![piece.file],
            ContentName::Pack(ids) => ids.clone(),
        };
        for id in ids {
            let Some(tracked) = self.tasks.get_mut(id) else {
                continue;
            };
            tracked.count_again(reason);
            if tracked.corruptions > MAXIMUM_CORRUPTIONS {
                let text = "it arrives corrupted again and again: look for faulty memory or \
                            network hardware on the way";
                self.abandon(id, Failure::new(FailureKind::Corrupt, text));
                continue;
            }
            match &content {
                ContentName::Piece(piece) => self.replan_piece(*piece),
                ContentName::Pack(_) => self.replan_small(id),
            }
        }
    }
}
