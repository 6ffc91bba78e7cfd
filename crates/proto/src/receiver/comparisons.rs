//! Entries that are being compared with the destination, one list after the other.

use std::collections::{BTreeMap, VecDeque};

use super::jobs::{ReceiverError, StorageJob};
use super::load::Load;
use crate::digest::Checksum;
use crate::manifest::{Entry, EntryId};
use crate::message::MAXIMUM_LISTED_ENTRIES;

/// Bytes of a path that count as another entry.
const WEIGHED_BYTES: usize = 8192;

/// Memory of a waiting entry in bytes without its path, slightly above the measured one.
const ASKED_BYTES: usize = 128;

/// Number of entries and bytes of their paths.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    /// Number of entries. A long path counts as several.
    entries: usize,
    texts: usize,
}

impl Weight {
    /// Returns the weight of a waiting entry. Most paths are short, so that an entry counts as one.
    fn of(entry: &Entry) -> Weight {
        let texts = entry.text_bytes();
        Weight {
            entries: 1 + texts / WEIGHED_BYTES,
            texts,
        }
    }

    fn add(&mut self, other: Weight) {
        self.entries += other.entries;
        self.texts += other.texts;
    }

    fn remove(&mut self, other: Weight) {
        self.entries = self.entries.saturating_sub(other.entries);
        self.texts = self.texts.saturating_sub(other.texts);
    }
}

/// Entries that are being compared with the destination.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    /// Weight of all lists, and of each list.
    listed: Weight,
    lists: VecDeque<Weight>,
    /// Files whose digests were requested from the sender.
    waiting: BTreeMap<EntryId, Entry>,
    /// Weight of entries whose answers follow later: files in `waiting`, and files that are being
    /// read.
    later: Weight,
}

impl Comparisons {
    /// Handles a list of entries from the sender. Returns the job that compares them, if
    /// `compares` is true.
    pub fn handle_entries(
        &mut self,
        entries: Vec<Entry>,
        compares: bool,
    ) -> Result<Option<StorageJob>, ReceiverError> {
        if !entries.iter().all(Entry::is_valid) {
            return Err(ReceiverError::InvalidEntry);
        }
        if !compares {
            return Ok(None);
        }
        if entries.len() > MAXIMUM_LISTED_ENTRIES {
            return Err(ReceiverError::TooMany);
        }
        // Directories are not compared (they are handled after all their entries), but wait with
        // the other entries.
        let mut list = Weight::default();
        for entry in &entries {
            list.add(Weight::of(entry));
        }
        self.listed.add(list);
        self.lists.push_back(list);
        Ok(Some(StorageJob::Compare(entries)))
    }

    /// Handles digests that were requested from the sender. Returns the jobs that compare the
    /// contents. Their files keep their weight until then.
    pub fn handle_digests(
        &mut self,
        digests: Vec<(EntryId, Checksum)>,
    ) -> Result<Vec<StorageJob>, ReceiverError> {
        if digests.len() > MAXIMUM_LISTED_ENTRIES {
            return Err(ReceiverError::TooMany);
        }
        let jobs = digests.into_iter().filter_map(|(id, digest)| {
            let entry = self.waiting.remove(&id)?;
            Some(StorageJob::CompareContents(entry, digest))
        });
        Ok(jobs.collect())
    }

    /// Removes the oldest list, which was compared. Lists are compared in order.
    pub fn end_list(&mut self) {
        let list = self.lists.pop_front().unwrap_or_default();
        self.listed.remove(list);
    }

    /// Counts an entry whose answer follows later.
    pub fn begin_later(&mut self, entry: &Entry) {
        self.later.add(Weight::of(entry));
    }

    /// Uncounts an entry whose answer followed.
    pub fn end_later(&mut self, entry: &Entry) {
        self.later.remove(Weight::of(entry));
    }

    /// Adds a file whose digest is requested from the sender.
    pub fn wait_for_digest(&mut self, entry: Entry) {
        self.begin_later(&entry);
        self.waiting.insert(entry.id, entry);
    }

    /// Removes a file that ended before its digest arrived.
    pub fn forget(&mut self, id: EntryId) {
        if let Some(entry) = self.waiting.remove(&id) {
            self.end_later(&entry);
        }
    }

    pub fn load(&self) -> Load {
        let loads = [
            Load::of(self.listed.entries, ASKED_BYTES).with_bytes(self.listed.texts),
            Load::of(self.waiting.len(), ASKED_BYTES),
            Load::of(self.later.entries, 0).with_bytes(self.later.texts),
        ];
        loads.into_iter().sum()
    }
}
