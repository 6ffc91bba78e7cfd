//! Corrects the owner, attributes, mode and time of existing entries without sending their data.
//!
//! An inode may have several names that are different entries of the copy. The first entry that is
//! compared decides the metadata of the inode. An entry that needs other metadata is sent, and so
//! gets a separate inode.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::{Entry, EntryId};
use longhaul_proto::notice::NoticeKind;
use longhaul_proto::receiver::Compared;
use longhaul_storage::attributes::Inode;
use longhaul_storage::notices::Notices;
use longhaul_storage::{FileKind, Status, StoredFile};
use longhaul_system::queue::lock;
use longhaul_system::refusals::or_without;

use super::folders::Folder;
use super::keeper::{Before, Doing};
use super::keeping::note_mode;
use super::{Comparer, ReceiveSide};

/// Maximum number of remembered inodes with several names. Others count as changed by another
/// entry.
const MOST_SHARED: usize = 65_536;

/// Inodes and directories that existing entries use.
#[derive(Default)]
pub(crate) struct Mending {
    /// Entry that decides the metadata of each inode with several names, by device and inode
    /// number.
    shared: HashMap<(u64, u64), EntryId>,
    /// For each device, a directory with a changed link or special file that is not durable yet.
    unsynced: BTreeMap<u64, Arc<Folder>>,
    /// Unfinished directories that differed from the source in owner, mode, time or attributes
    /// before the copy changed them. The sender bounds the number of unfinished directories.
    differing_directories: HashSet<EntryId>,
}

impl Mending {
    /// True if an entry decides the metadata of its inode.
    fn decides(&mut self, entry: &Entry, status: &Status) -> bool {
        if status.names <= 1 {
            return true;
        }
        let inode = (status.device, status.inode);
        match self.shared.get(&inode) {
            Some(first) => *first == entry.id,
            None if self.shared.len() >= MOST_SHARED => false,
            None => {
                self.shared.insert(inode, entry.id);
                true
            }
        }
    }
}

impl ReceiveSide {
    /// Notes that a directory differs from the source's in more than its content. Call it before
    /// the directory changes, because each change sets the directory's time.
    pub(super) fn note_directory(&self, entry: &Entry) {
        let path = self.destination.path_of(&entry.path);
        let above = path.parent();
        let Ok(folder) = self.folders.find_in_copy(above.as_ref()) else {
            return;
        };
        let Ok(status) = folder.directory().status_of(path.name()) else {
            return;
        };
        if status.kind == FileKind::Directory {
            let looked = look(self, &folder, entry, &status);
            if !self.is_directory_right(entry, &status, looked) {
                lock(&self.mending).differing_directories.insert(entry.id);
            }
        }
    }

    /// Returns true if [`ReceiveSide::note_directory`] noted this directory, and forgets it.
    pub(super) fn take_differing_directory(&self, entry: &Entry) -> bool {
        lock(&self.mending).differing_directories.remove(&entry.id)
    }

    /// True if an existing directory has the correct owner, mode, time and attributes, as far as
    /// this can be seen without a change.
    pub(super) fn is_directory_right(
        &self,
        entry: &Entry,
        status: &Status,
        looked: Looked,
    ) -> bool {
        let keeping = self.destination.keeper.keeping();
        let same_mode = keeping.leaves_modes || looked.mode == status.mode;
        let same_time = keeping.omits_directory_times
            || self
                .destination
                .keeps_as(entry.modified, status, Operation::DryRun);
        same_mode && same_time && looked.dresses.is_ok_and(|dresses| !dresses)
    }

    /// Records that an entry needs its inode unchanged: other entries must not change it.
    pub(super) fn note_inode(&self, entry: &Entry, status: &Status) {
        lock(&self.mending).decides(entry, status);
    }

    /// Makes changes of links and special files durable, which requires a sync of their file
    /// system.
    pub(super) fn sync_mended(&self) -> io::Result<()> {
        let unsynced = std::mem::take(&mut lock(&self.mending).unsynced);
        let mut folders = unsynced.into_values();
        folders.try_for_each(|folder| or_without(folder.directory().sync_file_system()))
    }
}

impl Comparer<'_> {
    /// Corrects the owner, mode and time of an existing link or special file.
    pub(super) fn same_name(
        &self,
        folder: &Arc<Folder>,
        entry: &Entry,
        status: &Status,
    ) -> Compared {
        if !self.receiving().copies() {
            return self.planned(folder, entry, status);
        }
        let same = self.mend_name(folder, entry, status);
        // The source will be removed, so the destination must be durable.
        let durable = || {
            folder
                .sync_with_inodes()
                .and_then(|()| self.side.sync_mended())
        };
        if self.transfer.settings.moves_away && durable().is_err() {
            Compared::Send
        } else {
            same
        }
    }

    fn mend_name(&self, folder: &Arc<Folder>, entry: &Entry, status: &Status) -> Compared {
        let path = self.side.destination.path_of(&entry.path);
        let directory = &**folder.directory();
        let destination = &self.side.destination;
        let looked = look(self.side, folder, entry, status);
        let decides = lock(&self.side.mending).decides(entry, status);
        if looked.keeps(status) && entry.modified == status.modified {
            destination.notices.merge(looked.notices);
            return Compared::Same(None);
        }
        if !decides {
            return Compared::Send;
        }
        let inode = directory.inode_of(path.name());
        let now = inode.as_ref().map(|inode| inode.status());
        let place = |status: &Status| (status.device, status.inode);
        if now.is_some_and(|now| now.is_ok_and(|now| place(&now) != place(status))) {
            // The name now belongs to another inode.
            return Compared::Send;
        }
        // A fenced session changes no metadata. A failure to correct metadata does not fail the
        // entry.
        let mended = destination.while_owned(|| -> io::Result<bool> {
            let dressed = destination.dress(inode.as_deref(), entry, (status.owner, Doing::Set))?;
            let mut changed = dressed.changed;
            let operation = self.transfer.settings.operation;
            let late = !destination.keeps_as(entry.modified, status, operation);
            let before = Before::There(status.mode);
            let mode = destination.mode_for(entry, dressed.owner, before);
            if status.kind == FileKind::Special
                && (changed || status.mode != mode)
                && let Some(inode) = &inode
            {
                let set = inode.set_mode(mode);
                let kind = NoticeKind::ModeRefused;
                changed |= destination.notices.wish(kind, &entry.path, set)?.is_some();
            }
            if entry.modified != status.modified {
                changed |= destination.date_link(directory, path.name(), entry)? && late;
            }
            Ok(changed)
        });
        if let Ok(device) = folder.device() {
            let mut mending = lock(&self.side.mending);
            mending.unsynced.entry(device).or_insert(Arc::clone(folder));
        }
        match mended {
            Ok(Ok(true)) => Compared::Mended(None),
            _ => Compared::Same(None),
        }
    }

    /// True if the time must be corrected: it is outside the accepted window.
    pub(super) fn is_late(&self, entry: &Entry, status: &Status) -> bool {
        let criteria = &self.transfer.settings.criteria;
        let (wanted, there) = (entry.modified, status.modified);
        !criteria.is_near(wanted, there)
            && (criteria.checksum || criteria.size_only)
            && !self
                .side
                .destination
                .keeps_as(wanted, status, self.transfer.settings.operation)
    }

    /// Corrects the owner, attributes, mode and time of an existing file. Returns true if any of
    /// these changed. Returns `None` on failure, or if another entry of the copy uses the same
    /// inode and needs it unchanged.
    pub(super) fn mend(
        &self,
        folder: &Folder,
        (entry, status): (&Entry, &Status),
        file: &dyn StoredFile,
    ) -> Option<bool> {
        let late = self.is_late(entry, status);
        if !lock(&self.side.mending).decides(entry, status) {
            let looked = look(self.side, folder, entry, status);
            let is_dressed = looked.dresses.is_ok_and(|dresses| !dresses);
            let same = is_dressed && !late && looked.mode == status.mode;
            return same.then_some(false);
        }
        let mut changed = mend(self.side, file, entry, status)?;
        if late {
            changed |= mend_time(self.side, file, entry)?;
        }
        self.side.ensure_up(folder).is_ok().then_some(changed)
    }
}

/// Result of inspecting an existing entry.
pub(super) struct Looked {
    /// Notices about metadata that is not kept.
    pub notices: Notices,
    /// True if its owner, lists or attributes would change.
    pub dresses: io::Result<bool>,
    /// The correct mode.
    pub mode: u32,
}

impl Looked {
    /// True if an existing entry keeps its mode, owner, lists and attributes.
    pub(super) fn keeps(&self, status: &Status) -> bool {
        let same_mode = status.kind == FileKind::Symlink || status.mode == self.mode;
        same_mode && matches!(self.dresses, Ok(false))
    }
}

/// Inspects an existing entry without a change.
pub(super) fn look(side: &ReceiveSide, folder: &Folder, entry: &Entry, status: &Status) -> Looked {
    let path = side.destination.path_of(&entry.path);
    let inode = folder.directory().inode_of(path.name());
    look_at(side, inode.as_deref(), entry, status)
}

/// Inspects an existing entry whose inode is already open.
pub(super) fn look_at(
    side: &ReceiveSide,
    inode: Option<&dyn Inode>,
    entry: &Entry,
    status: &Status,
) -> Looked {
    let destination = &side.destination;
    let notices = Notices::default();
    let doing = (status.owner, Doing::Look, &notices);
    let dressed = destination.dress_noting(inode, entry, doing);
    let before = (Before::There(status.mode), &notices);
    let mode = destination.mode_noting(entry, status.owner, before);
    Looked {
        notices,
        dresses: dressed.map(|dressed| dressed.changed),
        mode,
    }
}

/// Corrects the owner, attributes and mode of an existing file. Returns true if any changed, and
/// `None` on failure. A file of another user keeps its mode, which only its owner can set.
fn mend(side: &ReceiveSide, file: &dyn StoredFile, entry: &Entry, status: &Status) -> Option<bool> {
    let destination = &side.destination;
    let owner = status.owner;
    // A fenced session changes no metadata.
    let set = destination.while_owned(|| -> io::Result<Option<u32>> {
        let dressed = destination.dress(file.inode().as_deref(), entry, (owner, Doing::Set))?;
        let before = Before::There(status.mode);
        let mode = destination.mode_for(entry, dressed.owner, before);
        if !dressed.changed && mode == status.mode {
            return Ok(None);
        }
        let set = file.set_mode(mode);
        let kind = NoticeKind::ModeRefused;
        let set = destination.notices.wish(kind, &entry.path, set)?;
        Ok(set.map(|()| mode))
    });
    let mode = match set {
        Ok(Ok(Some(mode))) => mode,
        Ok(Ok(None)) => return Some(false),
        Ok(Err(_)) | Err(_) => return None,
    };
    let kept = file.status().ok()?;
    note_mode(&destination.notices, &entry.path, mode, kept.mode);
    let changed = kept.changed != status.changed;
    (!changed || file.sync_all().is_ok()).then_some(changed)
}

/// Corrects the time of an existing file. Returns false if the file belongs to another user and
/// keeps its time, and `None` on failure.
fn mend_time(side: &ReceiveSide, file: &dyn StoredFile, entry: &Entry) -> Option<bool> {
    let destination = &side.destination;
    let set = destination
        .while_owned(|| file.set_modified(entry.modified))
        .ok()?;
    let set = destination
        .notices
        .wish(NoticeKind::TimeRefused, &entry.path, set)
        .ok()?;
    file.sync_all().ok().map(|()| set.is_some())
}

#[cfg(test)]
mod tests {
    use longhaul_proto::manifest::{EntryKind, TreePath};

    use super::*;

    fn entry(number: u64) -> Entry {
        Entry {
            id: EntryId(number),
            parent: None,
            path: TreePath::new(b"x").unwrap(),
            kind: EntryKind::Directory,
            mode: 0o644,
            modified: Default::default(),
            owner: None,
        }
    }

    #[test]
    fn the_first_entry_decides_the_metadata_of_a_shared_inode() {
        let mut mending = Mending::default();
        let mut status = Status::on_no_disk(FileKind::File, 0o644, 1);
        assert!(mending.decides(&entry(1), &status) && mending.decides(&entry(2), &status));
        status.names = 2;
        assert!(mending.decides(&entry(1), &status) && mending.decides(&entry(1), &status));
        assert!(!mending.decides(&entry(2), &status));
        status.inode = 9;
        assert!(mending.decides(&entry(2), &status));
    }
}
