//! Decides when written data of large files are made durable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_units::Moment;

use super::settings::ReceiverSettings;
use crate::ledger::DurableBlock;
use crate::manifest::EntryId;

/// Written data of one file.
#[derive(Debug, Default)]
struct Writes {
    /// Blocks written and not yet handed to a checkpoint.
    blocks: Vec<DurableBlock>,
    /// Bytes of these blocks, and the time at which the first of them was written.
    bytes: u64,
    since: Option<Moment>,
    /// Bytes written and not known to be durable.
    unsynced: u64,
    /// True if a checkpoint of the file is under way.
    syncing: bool,
}

/// Written data of large files that are not known to be durable.
#[derive(Debug)]
pub struct Durability {
    /// See [`ReceiverSettings::checkpoint_bytes`].
    most_bytes: u64,
    /// See [`ReceiverSettings::checkpoint_span`].
    span: Duration,
    files: BTreeMap<EntryId, Writes>,
    /// Files with blocks for a checkpoint while no checkpoint of them runs.
    waiting: BTreeSet<EntryId>,
    /// Bytes of the blocks in `waiting`, and the time at which the first of them was written.
    bytes: u64,
    since: Option<Moment>,
    /// True if a checkpoint is due now.
    hurried: bool,
    /// Bytes written and not known to be durable, including those in a running checkpoint.
    unsynced: u64,
}

impl Durability {
    pub(super) fn new(settings: &ReceiverSettings) -> Durability {
        Durability {
            most_bytes: settings.checkpoint_bytes,
            span: settings.checkpoint_span,
            files: BTreeMap::new(),
            waiting: BTreeSet::new(),
            bytes: 0,
            since: None,
            hurried: false,
            unsynced: 0,
        }
    }

    /// True if another piece may be written. After a power loss, at most the data of one checkpoint
    /// and of the writers would have to be sent again. If false, the piece waits for a checkpoint
    /// or a commit.
    pub fn may_write(&self) -> bool {
        self.unsynced < self.most_bytes
    }

    /// Returns the bytes that were written and are not known to be durable.
    pub fn unsynced(&self) -> u64 {
        self.unsynced
    }

    /// Returns the time at which a checkpoint is due.
    pub fn poll_timeout(&self) -> Option<Moment> {
        self.since.map(|since| since + self.span)
    }

    /// True if enough bytes wait for a checkpoint, or the oldest has waited long enough.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.since.is_some_and(|since| {
            self.hurried || self.bytes >= self.most_bytes.div_ceil(2) || now >= since + self.span
        })
    }

    /// Makes a checkpoint due if blocks of a file wait for one. Returns false if none wait.
    pub(super) fn hurry(&mut self, id: EntryId) -> bool {
        let waits = self.waiting.contains(&id);
        self.hurried |= waits;
        waits
    }

    /// Notes a block that was written.
    pub(super) fn handle_written(&mut self, id: EntryId, block: DurableBlock, now: Moment) {
        let writes = self.files.entry(id).or_default();
        writes.blocks.push(block);
        writes.bytes += block.length;
        writes.since.get_or_insert(now);
        writes.unsynced += block.length;
        self.unsynced += block.length;
        if !writes.syncing {
            self.waiting.insert(id);
            self.bytes += block.length;
            self.since.get_or_insert(now);
        }
    }

    /// Takes the blocks of a checkpoint that is due, by file.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<(EntryId, Vec<DurableBlock>)> {
        if !self.is_due(now) {
            return Vec::new();
        }
        let files: Vec<EntryId> = self.waiting.iter().copied().collect();
        let files = files.into_iter().map(|id| (id, self.take(id)));
        let mut due: Vec<(EntryId, Vec<DurableBlock>)> = files.collect();
        due.retain(|(_, blocks)| !blocks.is_empty());
        for (id, _) in &due {
            if let Some(writes) = self.files.get_mut(id) {
                writes.syncing = true;
            }
        }
        due
    }

    /// Removes and returns the blocks of a file that wait for a checkpoint.
    pub(super) fn take(&mut self, id: EntryId) -> Vec<DurableBlock> {
        let Some(writes) = self.files.get_mut(&id) else {
            return Vec::new();
        };
        writes.since = None;
        let bytes = std::mem::take(&mut writes.bytes);
        let blocks = std::mem::take(&mut writes.blocks);
        if self.waiting.remove(&id) {
            self.bytes -= bytes;
        }
        if self.waiting.is_empty() {
            self.since = None;
            self.hurried = false;
        }
        blocks
    }

    /// True if a checkpoint of the file is under way.
    pub(super) fn is_syncing(&self, id: EntryId) -> bool {
        self.files.get(&id).is_some_and(|writes| writes.syncing)
    }

    /// Handles the end of a checkpoint of a file with this number of bytes. Blocks that were
    /// written meanwhile wait for the next checkpoint.
    pub(super) fn handle_checkpointed(&mut self, id: EntryId, bytes: u64) {
        let Some(writes) = self.files.get_mut(&id) else {
            return;
        };
        writes.syncing = false;
        writes.unsynced = writes.unsynced.saturating_sub(bytes);
        self.unsynced = self.unsynced.saturating_sub(bytes);
        if let Some(since) = writes.since {
            self.waiting.insert(id);
            self.bytes += writes.bytes;
            self.since = self.since.min(Some(since)).or(Some(since));
        }
    }

    /// Forgets a file.
    pub(super) fn remove(&mut self, id: EntryId) {
        self.take(id);
        if let Some(writes) = self.files.remove(&id) {
            self.unsynced = self.unsynced.saturating_sub(writes.unsynced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Checksum;

    const FILE: EntryId = EntryId(1);
    const OTHER: EntryId = EntryId(2);

    fn durability() -> Durability {
        Durability::new(&ReceiverSettings {
            checkpoint_bytes: 100,
            checkpoint_span: Duration::from_secs(1),
            ..ReceiverSettings::default()
        })
    }

    fn block(length: u64) -> DurableBlock {
        DurableBlock {
            offset: 0,
            length,
            checksum: Checksum::Xxh3(0),
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_checkpoint_is_due_after_half_of_the_bytes_or_the_span() {
        let mut durability = durability();
        durability.handle_written(FILE, block(49), at(0));
        assert!(!durability.is_due(at(0)) && durability.take_due(at(0)).is_empty());
        assert_eq!(durability.poll_timeout(), Some(at(1)));
        assert!(durability.is_due(at(1)));
        durability.handle_written(OTHER, block(1), at(0));
        let due = durability.take_due(at(0));
        assert_eq!(due, [(FILE, vec![block(49)]), (OTHER, vec![block(1)])]);
        assert_eq!(durability.poll_timeout(), None);
        assert_eq!(durability.unsynced(), 50);
    }

    #[test]
    fn blocks_written_during_a_checkpoint_wait_for_the_next_one() {
        let mut durability = durability();
        durability.handle_written(FILE, block(60), at(0));
        assert_eq!(durability.take_due(at(0)).len(), 1);
        assert!(durability.is_syncing(FILE));
        durability.handle_written(FILE, block(50), at(3));
        assert!(!durability.is_due(at(9)) && !durability.may_write());
        durability.handle_checkpointed(FILE, 60);
        assert!(durability.is_due(at(3)) && durability.may_write());
        assert_eq!(durability.poll_timeout(), Some(at(4)));
        durability.remove(FILE);
        assert_eq!(
            (durability.unsynced(), durability.poll_timeout()),
            (0, None)
        );
        assert!(!durability.is_due(at(9)));
    }

    #[test]
    fn a_commit_takes_the_blocks_of_its_file() {
        let mut durability = durability();
        durability.handle_written(FILE, block(60), at(0));
        durability.handle_written(OTHER, block(10), at(1));
        assert_eq!(durability.take(FILE), [block(60)]);
        assert!(!durability.is_due(at(0)), "only ten bytes wait");
        assert_eq!(durability.unsynced(), 70);
        durability.remove(FILE);
        assert_eq!(durability.unsynced(), 10);
    }
}
