//! The destination's disk: durable data survives a kill, other data is lost.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_proto::digest::{Checksum, Integrity};
use longhaul_proto::ledger::DurableBlock;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind, TreePath};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::receiver::{Checkpoint, Compared};

/// A file under its name.
#[derive(Clone, Debug)]
pub struct Committed {
    pub entry: Entry,
    pub data: Vec<u8>,
}

/// Blocks of a file that does not have its name yet.
#[derive(Clone, Debug, Default)]
pub struct Part {
    entry: Option<Entry>,
    blocks: BTreeMap<u64, (DurableBlock, Vec<u8>)>,
}

/// State of the disk.
#[derive(Debug, Default)]
pub struct Disk {
    pub named: BTreeMap<TreePath, Committed>,
    /// Durable parts, by name and state of the source.
    parts: BTreeMap<(TreePath, i64), Part>,
    /// Blocks written in this session and not synced.
    volatile: BTreeMap<(EntryId, u32), Part>,
    /// Files that must leave no data. Writes and checkpoints of them may still be under way.
    discarded: BTreeSet<(EntryId, u32)>,
    /// Names given in this session.
    pub given: BTreeSet<TreePath>,
    pub finished_directories: BTreeSet<TreePath>,
    /// Files that fail because the disk is full.
    pub full: BTreeSet<TreePath>,
    /// Files and directories that cannot get their names.
    pub refused: BTreeSet<TreePath>,
    /// Existing entries that conflict with the copy.
    pub conflicts: BTreeSet<TreePath>,
}

fn key(entry: &Entry) -> (TreePath, i64) {
    (entry.path.clone(), entry.modified.seconds)
}

pub fn no_space() -> Failure {
    Failure::new(FailureKind::NoSpace, "full")
}

impl Disk {
    /// Loses all data that is not durable, as when the process is killed.
    pub fn lose_volatile(&mut self) {
        self.volatile.clear();
        self.discarded.clear();
        self.given.clear();
        self.finished_directories.clear();
    }

    pub fn compare(&self, entry: &Entry) -> Compared {
        if self.conflicts.contains(&entry.path) {
            return Compared::Refused(Failure::new(FailureKind::Conflict, "in the way"));
        }
        let same = self
            .named
            .get(&entry.path)
            .is_some_and(|there| there.entry.kind == entry.kind);
        if same && !matches!(entry.kind, EntryKind::Directory) {
            return Compared::Same(None);
        }
        match self.parts.get(&key(entry)) {
            Some(part) => Compared::Partial(part.blocks.values().map(|b| b.0).collect()),
            None => Compared::Send,
        }
    }

    pub fn write(
        &mut self,
        entry: &Entry,
        generation: u32,
        block: DurableBlock,
        data: Vec<u8>,
    ) -> Result<(), Failure> {
        if self.full.contains(&entry.path) {
            return Err(no_space());
        }
        if self.discarded.contains(&(entry.id, generation)) {
            return Ok(());
        }
        let part = self.volatile.entry((entry.id, generation)).or_default();
        part.entry = Some(entry.clone());
        assert!(
            part.blocks.insert(block.offset, (block, data)).is_none(),
            "written twice"
        );
        Ok(())
    }

    pub fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Option<Failure> {
        let key_of_part = (checkpoint.file, checkpoint.generation);
        let part = self.volatile.get_mut(&key_of_part)?;
        let entry = part.entry.clone().unwrap();
        // A file that cannot get its name may fail earlier.
        if self.refused.contains(&entry.path) && entry.id.0.is_multiple_of(2) {
            return Some(Failure::new(FailureKind::Other, "no sync"));
        }
        let durable = self.parts.entry(key(&entry)).or_default();
        durable.entry = Some(entry);
        for block in &checkpoint.blocks {
            let (known, data) = part.blocks.remove(&block.offset).expect("was written");
            assert_eq!(known, *block);
            durable.blocks.insert(block.offset, (known, data));
        }
        None
    }

    /// Gives a large file its name.
    pub fn commit(
        &mut self,
        entry: &Entry,
        generation: u32,
        digest: Option<Checksum>,
        integrity: Integrity,
    ) -> Result<(), Failure> {
        if self.refused.contains(&entry.path) {
            return Err(Failure::new(FailureKind::Permission, "no"));
        }
        let volatile = self
            .volatile
            .remove(&(entry.id, generation))
            .unwrap_or_default();
        let durable = self.parts.remove(&key(entry)).unwrap_or_default();
        let mut blocks = durable.blocks;
        for (offset, block) in volatile.blocks {
            assert!(
                blocks.insert(offset, block).is_none(),
                "a durable block was written again"
            );
        }
        let mut data = Vec::new();
        for (offset, (_, bytes)) in blocks {
            assert_eq!(offset, data.len() as u64, "committed with a gap");
            data.extend(bytes);
        }
        assert_eq!(data.len() as u64, entry.size());
        let right = Checksum::Blake3(*blake3::hash(&data).as_bytes());
        assert_eq!(digest, (integrity == Integrity::Digest).then_some(right));
        self.give_name(entry.clone(), data);
        Ok(())
    }

    pub fn commit_packed(&mut self, entry: &Entry, data: &[u8]) -> Result<(), Failure> {
        if self.refused.contains(&entry.path) {
            return Err(Failure::new(FailureKind::Permission, "no"));
        }
        if self.full.contains(&entry.path) {
            return Err(no_space());
        }
        self.give_name(entry.clone(), data.to_vec());
        Ok(())
    }

    fn give_name(&mut self, entry: Entry, data: Vec<u8>) {
        let path = entry.path.clone();
        assert!(
            self.given.insert(path.clone()),
            "{path} was committed twice in a session"
        );
        for ancestor in std::iter::successors(path.parent(), TreePath::parent) {
            assert!(
                !self.finished_directories.contains(&ancestor),
                "{ancestor} was finished early"
            );
        }
        self.parts.retain(|(other, _), _| *other != path);
        self.named.insert(path, Committed { entry, data });
    }

    pub fn discard(&mut self, file: EntryId, generation: u32) {
        self.discarded.insert((file, generation));
        if let Some(entry) = self
            .volatile
            .remove(&(file, generation))
            .and_then(|part| part.entry)
        {
            self.parts.remove(&key(&entry));
        }
    }

    pub fn finish_directory(&mut self, entry: &Entry) -> Result<(), Failure> {
        assert!(
            self.finished_directories.insert(entry.path.clone()),
            "finished twice"
        );
        if self.refused.contains(&entry.path) || self.conflicts.contains(&entry.path) {
            return Err(Failure::new(FailureKind::Permission, "no"));
        }
        Ok(())
    }
}
