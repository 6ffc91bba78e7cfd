//! Receives entries in packs, and handles corrupt blocks.

use super::Files;
use super::incoming::{Ended, Incoming, Packing};
use crate::account::Share;
use crate::block::{ContentName, PackedEntry};
use crate::manifest::{Entry, EntryId, EntryKind};
use crate::message::{AgainReason, Message, Outcome};
use crate::receiver::jobs::Verdict;
use crate::receiver::outbox::Outbox;
use crate::receiver::outcomes::Outcomes;

impl Files {
    /// Handles a valid pack that arrived. Returns one verdict for each entry.
    pub(in crate::receiver) fn handle_pack(
        &mut self,
        pack: &[PackedEntry],
        outcomes: &Outcomes,
        outbox: &mut Outbox,
    ) -> Vec<Verdict> {
        let mut verdicts = Vec::with_capacity(pack.len());
        for PackedEntry {
            entry, generation, ..
        } in pack
        {
            let id = entry.id;
            let is_newer = |file: &Incoming| file.generation < *generation && !file.committing;
            let newer = self.files.get(&id).is_none_or(is_newer);
            let known = outcomes.is_done(id) || self.packed.contains_key(&id);
            let newer = newer && !self.is_outdated(id, *generation);
            if known || !newer || entry.kind == EntryKind::Directory {
                self.account.add_unclaimed(entry.size());
                verdicts.push(Verdict::Drop);
                continue;
            }
            self.let_go(id, false, outbox);
            let mut share = Share::default();
            if matches!(entry.kind, EntryKind::File { .. }) {
                let size = entry.size();
                self.account.add_moved(&mut share, size, size);
            }
            let packing = Packing {
                parent: entry.parent,
                generation: *generation,
                share,
                abandoned: None,
            };
            self.packed.insert(id, packing);
            verdicts.push(Verdict::Keep);
        }
        if verdicts.iter().all(|verdict| *verdict == Verdict::Drop) {
            self.totals.duplicate_blocks += 1;
        }
        verdicts
    }

    /// Handles packed entries that were committed or failed.
    pub(in crate::receiver) fn handle_packed(
        &mut self,
        entries: Vec<(Entry, Outcome)>,
        outbox: &mut Outbox,
    ) {
        for (entry, outcome) in entries {
            let Some(mut packing) = self.packed.remove(&entry.id) else {
                continue;
            };
            if let Outcome::Committed { .. } = outcome {
                self.totals.bytes += entry.size();
                self.account.complete(&mut packing.share, entry.size());
            }
            self.let_go(entry.id, false, outbox);
            self.end(packing.parent, entry, outcome);
        }
    }

    /// Handles a block that is corrupt or cannot be decoded. For a pack, `content` names only the
    /// corrupt entries that were to be kept; other entries arrived another way.
    pub(in crate::receiver) fn handle_corrupt(
        &mut self,
        content: ContentName,
        reason: AgainReason,
        outbox: &mut Outbox,
    ) {
        self.totals.corrupt_blocks += u64::from(reason.is_damage());
        let content = match content {
            ContentName::Piece(piece) => {
                self.release(piece);
                ContentName::Piece(piece)
            }
            ContentName::Pack(mut ids) => {
                ids.retain(|&id| self.is_wanted_again(id, outbox));
                if ids.is_empty() {
                    return;
                }
                ContentName::Pack(ids)
            }
        };
        outbox.push_message(Message::Again { content, reason });
    }

    /// Removes a damaged packed entry. Returns true if the sender must send it again.
    fn is_wanted_again(&mut self, id: EntryId, outbox: &mut Outbox) -> bool {
        let Some(packing) = self.packed.remove(&id) else {
            return false;
        };
        self.account.void(packing.share);
        if let Some(failure) = packing.abandoned {
            self.let_go(id, false, outbox);
            self.ended.push_back(Ended {
                id,
                parent: packing.parent,
                entry: None,
                outcome: Outcome::Failed(failure),
            });
            return false;
        }
        // The older state of the file was discarded when this entry arrived. With the generation
        // noted here, late results of that state are ignored.
        self.expected.insert(id, packing.generation);
        // A newer state of the file may have waited for this entry.
        self.commit_if_complete(id, outbox);
        true
    }
}
