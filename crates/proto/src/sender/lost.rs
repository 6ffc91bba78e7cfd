//! Handles lost blocks. The other end counts the blocks of a stream. If bytes in clear vanish on
//! the path, a whole block may vanish unnoticed, and a later block is then counted in its place.
//! Only the lack of progress shows that the block must be sent again. This module also plans blocks
//! again that are known to be lost.

use std::time::Duration;

use longhaul_units::Moment;

use super::track::{Stage, Tracked};
use super::{BlockId, Sender};
use crate::block::{ContentName, PieceName};
use crate::digest::is_block;
use crate::manifest::EntryId;

/// Maximum number of doublings of the patience without progress.
const MOST_DOUBLINGS: u32 = 5;

/// Period without any progress.
#[derive(Debug, Default)]
pub(super) struct Still {
    since: Moment,
    /// Arrived bytes, durable bytes, number of open entries and number of walked entries.
    seen: (u64, u64, usize, u64),
    tries: u32,
}

impl Sender {
    /// Sends blocks again that seem lost. Called regularly. Acts only if all sent blocks count as
    /// arrived, the other end has room, and for `patience` there was no progress. A block that is
    /// already there costs only its transmission. Returns the number of blocks.
    pub fn handle_stillness(&mut self, patience: Duration, now: Moment) -> usize {
        let account = self.account();
        let seen = (
            account.arrived_bytes,
            account.durable_bytes,
            self.entries.len(),
            self.walked,
        );
        if seen != self.still.seen {
            self.still = Still {
                since: now,
                seen,
                tries: 0,
            };
        }
        if self.streams.is_busy() || !self.streams.has_room() {
            self.still.since = now;
        }
        let patience = patience.saturating_mul(1 << self.still.tries.min(MOST_DOUBLINGS));
        if now - self.still.since <= patience {
            return 0;
        }
        let lost = self.plan.sent();
        for block in &lost {
            self.replan(*block);
        }
        self.still.since = now;
        self.still.tries += 1;
        lost.len()
    }

    /// Plans a lost block again, unless a twin of it is under way.
    pub(super) fn replan(&mut self, block: BlockId) {
        let twin = self.plan.twin(block);
        match self.plan.forget(block) {
            Some(ContentName::Piece(piece)) => {
                let tracked = self.entries.get_mut(&piece.file);
                let large = tracked.and_then(Tracked::large_mut);
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
                    self.plan.inherit(twin, moved);
                }
            }
            None => {}
        }
    }

    /// Moves an entry of a lost pack to the pack's twin, or queues it for another pack. Returns
    /// true if the twin holds it.
    pub(super) fn replan_packed(
        &mut self,
        id: EntryId,
        lost: BlockId,
        twin: Option<BlockId>,
    ) -> bool {
        let Some(tracked) = self.entries.get_mut(&id) else {
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
        let Some(tracked) = self.entries.get_mut(&piece.file) else {
            return;
        };
        if tracked.generation != piece.generation {
            return;
        }
        let Some(large) = tracked.large_mut() else {
            return;
        };
        let (offset, end) = (piece.offset, piece.offset.saturating_add(piece.length));
        if !is_block(offset, piece.length, large.size) || large.durable.contains(offset, end) {
            return;
        }
        large.planned.remove(offset, end);
        for (start, stop) in large.durable.within(offset, end) {
            large.planned.insert(start, stop);
        }
        for block in large.take_overlapping(offset, end) {
            self.plan.forget(block);
        }
        self.plan.queue_large_first(piece.file);
    }

    pub(super) fn replan_small(&mut self, id: EntryId) {
        let Some(tracked) = self.entries.get_mut(&id) else {
            return;
        };
        let Stage::Packed(block) = tracked.stage else {
            return;
        };
        tracked.stage = Stage::Small;
        let (size, path) = (tracked.entry.size(), tracked.entry.text_bytes());
        for block in self.plan.entry_done(block) {
            self.plan.forget(block);
        }
        self.plan.queue_small_first(id, size, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Entry, EntryKind, TreePath};
    use crate::message::{Message, Outcome};
    use crate::sender::{Dispatch, PackedRead, ReadJob, SenderSettings, Work};
    use crate::session::StreamId;

    const STREAM: StreamId = StreamId(0);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment(0) + Duration::from_secs(seconds)
    }

    fn link(number: u64) -> Entry {
        Entry {
            id: EntryId(number),
            parent: None,
            path: TreePath::new(format!("link {number}").as_bytes()).unwrap(),
            kind: EntryKind::Symlink {
                target: b"x".to_vec(),
            },
            mode: 0o777,
            modified: Default::default(),
            owner: None,
        }
    }

    /// Reads and sends all pending entries. Returns the entries in the order of their blocks.
    fn send_all(sender: &mut Sender, now: Moment) -> Vec<EntryId> {
        let mut sent = Vec::new();
        while let Some(ReadJob { block, work }) = sender.poll_read(now) {
            let Work::Pack(jobs) = work else {
                panic!("a link is no large file");
            };
            let ids = jobs.iter().map(|job| job.entry.id);
            let ids: Vec<EntryId> = ids.collect();
            let read = ids.iter().map(|id| (*id, PackedRead::Ready(None)));
            assert!(sender.handle_pack_read(block, read.collect()));
            assert_eq!(
                sender.poll_dispatch(STREAM, now),
                Some(Dispatch::Send(block))
            );
            sent.extend(ids);
        }
        sent
    }

    fn done(sender: &mut Sender, id: u64, now: Moment) {
        let entries = vec![(EntryId(id), Outcome::Committed { digest: None })];
        let message = Message::Done { epoch: 1, entries };
        sender.handle_message(message, now).unwrap();
    }

    fn sender() -> Sender {
        let mut sender = Sender::new(SenderSettings {
            pack_entries: 1,
            ..SenderSettings::default()
        });
        sender.handle_stream_up(STREAM, at(0));
        (0..3).for_each(|number| sender.handle_entry(link(number)));
        sender.handle_walk_end();
        sender
    }

    #[test]
    fn a_block_that_vanished_as_a_whole_is_sent_again() {
        let mut sender = sender();
        let all = [0, 1, 2].map(EntryId);
        assert_eq!(send_all(&mut sender, at(0)), all);
        assert_eq!(sender.handle_stillness(PATIENCE, at(0)), 0);
        // The second block is lost, and the third is counted in its place.
        sender.handle_arrived(STREAM, 2, at(1));
        done(&mut sender, 0, at(2));
        done(&mut sender, 2, at(2));
        // The idle stream is closed. Its last block is already done.
        sender.handle_stream_down(STREAM);
        sender.handle_stream_up(StreamId(1), at(12));
        assert_eq!(sender.poll_read(at(12)), None);
        assert_eq!(sender.handle_stillness(PATIENCE, at(12)), 0);
        assert_eq!(sender.handle_stillness(PATIENCE, at(22)), 0);
        assert_eq!(sender.handle_stillness(PATIENCE, at(23)), 1);
        let again = sender.poll_read(at(23)).map(|job| job.work);
        let Some(Work::Pack(jobs)) = again else {
            panic!("nothing is read again");
        };
        assert_eq!(jobs[0].entry.id, EntryId(1));
    }

    #[test]
    fn what_is_under_way_or_waits_for_room_is_not_sent_again() {
        let mut sender = sender();
        send_all(&mut sender, at(0));
        for second in 0..100 {
            assert_eq!(sender.handle_stillness(PATIENCE, at(second)), 0);
        }
        let choked = Message::Arrived {
            streams: vec![(STREAM.0, 3)],
            room: false,
        };
        sender.handle_message(choked, at(100)).unwrap();
        for second in 100..200 {
            assert_eq!(sender.handle_stillness(PATIENCE, at(second)), 0);
        }
    }

    #[test]
    fn what_brings_nothing_is_tried_ever_more_rarely() {
        let mut sender = sender();
        let mut tries = Vec::new();
        for second in 0..100 {
            send_all(&mut sender, at(second));
            sender.handle_arrived(STREAM, u64::MAX, at(second));
            // All sent data counts as arrived.
            sender.account = Default::default();
            if sender.handle_stillness(PATIENCE, at(second)) > 0 {
                tries.push(second);
            }
        }
        assert_eq!(tries, [11, 32, 73]);
    }
}
