//! Directories whose entries are under way. A directory gets its mode and time after all its
//! entries are done.

use std::collections::BTreeMap;

use super::jobs::ReceiverError;
use super::load::Load;
use crate::manifest::{Entry, EntryId, EntryKind};

/// Memory of a directory in bytes without its path, slightly above the measured one.
const FOLDER_BYTES: usize = 320;

#[derive(Debug, Default)]
struct Folder {
    /// Number of its entries that are done.
    done: u64,
    /// The directory and the number of its entries, after its end.
    end: Option<(Entry, u64)>,
}

/// Directories whose entries are under way.
#[derive(Debug, Default)]
pub(super) struct Folders {
    folders: BTreeMap<EntryId, Folder>,
    /// Bytes of the paths of directories that have ended and are not done.
    texts: usize,
}

impl Folders {
    /// Handles the end of a directory with this number of entries; `is_done` is true if it is done.
    /// Returns the directory if all its entries are done. A second end replaces the first.
    pub fn handle_end(
        &mut self,
        entry: Entry,
        children: u64,
        is_done: bool,
    ) -> Result<Option<Entry>, ReceiverError> {
        if !entry.is_valid() || entry.kind != EntryKind::Directory {
            return Err(ReceiverError::InvalidEntry);
        }
        if is_done {
            return Ok(None);
        }
        let id = entry.id;
        self.texts += entry.text_bytes();
        let folder = self.folders.entry(id).or_default();
        if let Some((before, _)) = folder.end.replace((entry, children)) {
            self.texts -= before.text_bytes();
        }
        Ok(self.take_if_done(id))
    }

    /// Counts a done entry of a directory. Returns the directory if all its entries are done.
    pub fn count_done(&mut self, id: EntryId) -> Option<Entry> {
        self.folders.entry(id).or_default().done += 1;
        self.take_if_done(id)
    }

    fn take_if_done(&mut self, id: EntryId) -> Option<Entry> {
        let folder = self.folders.get(&id)?;
        let (_, children) = folder.end.as_ref()?;
        if folder.done < *children {
            return None;
        }
        Some(self.folders.remove(&id)?.end?.0)
    }

    /// Handles a directory that is done.
    pub fn handle_finished(&mut self, entry: &Entry) {
        self.texts = self.texts.saturating_sub(entry.text_bytes());
    }

    pub fn len(&self) -> usize {
        self.folders.len()
    }

    pub fn load(&self) -> Load {
        Load::of(self.folders.len(), FOLDER_BYTES).with_bytes(self.texts)
    }
}
