//! Partial files: large files that are not complete. Each is claimed by name in the directory of
//! its destination, with its journal next to it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_proto::assembly::Assembly;
use longhaul_proto::digest::Checksum;
use longhaul_proto::ledger::DurableBlock;
use longhaul_proto::manifest::{Entry, EntryId, EntryKind};
use longhaul_proto::message::{Failure, FailureKind};
use longhaul_proto::sender::{MOST_LARGE_FILES, is_large};
use longhaul_storage::failure::failure_of;
use longhaul_storage::file_data::write_mode_for;
use longhaul_storage::journal::{
    Claim, ClaimError, JournalError, Key, Partial, Sharing, StepError, claim,
};
use longhaul_storage::{DataMode, StoredFile};
use longhaul_system::descriptors;
use longhaul_system::queue::lock;

use super::folders::Folder;
use super::landing::Destination;
use super::{ReceiveSide, Receiving};
use crate::session::TransferSettings;

/// A file that is not complete.
pub struct Part {
    pub(super) folder: Arc<Folder>,
    pub(super) kind: PartKind,
}

/// Storage of a part.
pub(super) enum PartKind {
    /// A data file and its journal.
    Partial(Partial),
    /// An existing file, opened only for a comparison.
    Compared(Arc<dyn StoredFile>),
    /// No storage: the sink discards data.
    Sink,
}

/// Descriptors that a process needs for any copy: its standard streams, sockets, roots and the
/// claim to the destination.
const OTHER_FILES: usize = 24;

/// Divisor of the remaining descriptors for a session's parts; each part has two.
const PARTS_PART: usize = 16;

/// Parts beyond the limit given to the sender: parts of an earlier run are opened when they are
/// found.
const SPARE_PARTS: usize = 64;

/// Returns the number of large files that a receiving end of this process can have open, at least
/// one. The sender should not exceed it.
pub fn most_open_parts() -> usize {
    descriptors::share_after(OTHER_FILES, PARTS_PART, MOST_LARGE_FILES)
}

/// The open parts of a session.
#[derive(Default)]
pub(crate) struct Parts {
    open: Mutex<BTreeMap<(EntryId, u32), Arc<Part>>>,
    /// Failures to open files of this session. Changed while `open` is locked.
    refused: Mutex<BTreeMap<(EntryId, u32), Failure>>,
    /// True if durable data of a failed file stays for the next attempt.
    left_behind: AtomicBool,
}

impl Parts {
    pub fn clear(&self) {
        lock(&self.open).clear();
    }

    pub fn get(&self, file: EntryId, generation: u32) -> Option<Arc<Part>> {
        lock(&self.open).get(&(file, generation)).cloned()
    }

    /// Closes a failed file, so that the next attempt can continue it.
    pub fn leave_behind(&self, file: EntryId, generation: u32) {
        let mut open = lock(&self.open);
        if open.remove(&(file, generation)).is_some() {
            self.note_left_behind();
        }
    }

    /// Records that data stays for the next session, because this one did not claim it or could not
    /// continue it.
    pub fn note_left_behind(&self) {
        self.left_behind.store(true, Ordering::Relaxed);
    }

    /// True if data is left for a next attempt; call it at the end. A part that is still open
    /// belongs to a file that failed just now: the thread that reported the failure has not closed
    /// it yet.
    pub fn have_left_behind(&self) -> bool {
        let open = lock(&self.open);
        !open.is_empty() || self.left_behind.load(Ordering::Relaxed)
    }

    pub fn take(&self, file: EntryId, generation: u32) -> Option<Arc<Part>> {
        lock(&self.open).remove(&(file, generation))
    }

    /// Removes the data of a file that will not be finished. Holding the lock prevents a claim
    /// until the data is gone.
    pub fn discard(&self, file: EntryId, generation: u32) {
        let mut open = lock(&self.open);
        if let Some(part) = open.remove(&(file, generation)) {
            part.abandon();
        }
    }
}

impl Part {
    /// Removes the part. `longhaul clean` finds files that cannot be removed.
    fn abandon(&self) {
        if let PartKind::Partial(partial) = &self.kind {
            let _ = partial.abandon();
        }
    }
}

impl ReceiveSide {
    /// Sets the length of a part and reserves its space.
    fn prepare(&self, partial: &Partial, entry: &Entry, resumed: bool) -> Result<(), Failure> {
        let shown = entry.path.to_string();
        let file = partial.file();
        if !entry.is_sparse() && !self.makes_holes() {
            match file.preallocate(entry.size()) {
                // File systems that reserve no space (ZFS) compare the whole length with the free
                // space, even if the file already has data. A lack of space then shows when data is
                // written.
                Err(error) if resumed && error.kind() == std::io::ErrorKind::StorageFull => (),
                reserved => {
                    reserved.map_err(|error| failure_of("reserve room for it", &shown, &error))?;
                }
            }
        }
        file.set_length(entry.size())
            .map_err(|error| failure_of("write", &shown, &error))?;
        Ok(())
    }

    /// True if each run of zeros becomes a hole.
    pub(super) fn makes_holes(&self) -> bool {
        self.destination.keeper.keeping().sparse
    }

    fn claim(
        &self,
        settings: &TransferSettings,
        folder: &Arc<Folder>,
        entry: &Entry,
    ) -> Result<Partial, Failure> {
        let EntryKind::File { identity, sparse } = &entry.kind else {
            return Err(Failure::new(FailureKind::Other, "not a file"));
        };
        let path = self.destination.path_of(&entry.path);
        let Destination {
            principal, owner, ..
        } = &self.destination;
        let superseded = self.destination.former_sessions();
        let wanted = Claim {
            directory: Arc::clone(folder.directory()),
            name: path.name(),
            principal,
            source: source_of(identity.inode),
            identity: *identity,
            integrity: settings.integrity,
            owner: owner.clone(),
            superseded: &superseded,
            inherits: false,
            data_mode: write_mode_for(settings.direct, entry.size(), *sparse || self.makes_holes()),
            sharing: match settings.assembly {
                None => Sharing::Alone,
                Some(Assembly::Part { .. }) => Sharing::Shared,
                Some(Assembly::Whole) => Sharing::Apart,
            },
        };
        let shown = entry.path.to_string();
        // A claim takes a part from its owner, which must not be a later session of this transfer.
        descriptors::patiently_around(|_| {
            let claimed = self.destination.while_owned(|| claim(&wanted));
            let claimed = claimed.map_err(|error| journal_failure(&shown, &error))?;
            claimed.map_err(|error| claim_failure(&shown, error))
        })
    }
}

impl Receiving<'_> {
    /// True if this session copies one part of a file that other sessions assemble.
    pub(super) fn copies_part(&self) -> bool {
        let assembly = self.transfer.settings.assembly;
        assembly.is_some_and(Assembly::is_part)
    }

    /// Returns the part of a file and claims it if it is not open yet.
    pub(super) fn part(&self, entry: &Entry, generation: u32) -> Result<Arc<Part>, Failure> {
        descriptors::patiently_around(|is_last| self.part_at_once((entry, generation), is_last))
    }

    /// Does the same without waiting for a descriptor: a thread that closes a part needs the same
    /// lock.
    fn part_at_once(
        &self,
        (entry, generation): (&Entry, u32),
        is_last: bool,
    ) -> Result<Arc<Part>, Failure> {
        let mut open = lock(&self.side.parts.open);
        if let Some(part) = open.get(&(entry.id, generation)) {
            return Ok(Arc::clone(part));
        }
        // The check is within the lock, so that a discard finds each part that is inserted, and a
        // discarded part is not created again.
        if !self.is_under_way(entry.id, generation) {
            let text = format!("{}: another state of it is copied", entry.path);
            return Err(Failure::new(FailureKind::Changing, text));
        }
        // The data of an older generation is void. It may be of another inode, which would look
        // like another source in use.
        let older = (entry.id, 0)..(entry.id, generation);
        for (_, part) in open.extract_if(older, |_, _| true) {
            part.abandon();
        }
        // A correct sender keeps to the limit that it received.
        let most = 2 * self.transfer.measurements().most_open_parts() + SPARE_PARTS;
        if open.len() >= most {
            let text = format!(
                "{}: {most} files that are not whole are open, as many as may be in this session; \
                 raise the limit of open files (ulimit -n)",
                entry.path
            );
            return Err(Failure::new(FailureKind::TooManyOpen, text));
        }
        let part = Arc::new(self.open_once((entry, generation), is_last)?);
        open.insert((entry.id, generation), Arc::clone(&part));
        Ok(part)
    }

    /// Opens the part of a file, unless that failed before. Pieces of a failed file still arrive
    /// until the state machine knows of the failure. Trying again could change a directory that is
    /// finished meanwhile. A lack of descriptors counts as a failure only at the last attempt.
    fn open_once(
        &self,
        (entry, generation): (&Entry, u32),
        is_last: bool,
    ) -> Result<Part, Failure> {
        let mut refused = lock(&self.side.parts.refused);
        if let Some(failure) = refused.get(&(entry.id, generation)) {
            return Err(failure.clone());
        }
        let opened = self.open_part(entry);
        let goes_on = descriptors::is_wanting() && !is_last;
        if let Err(failure) = &opened
            && !goes_on
        {
            // Failures of files that are no longer copied are not needed.
            refused.retain(|(file, generation), _| self.is_under_way(*file, *generation));
            refused.insert((entry.id, generation), failure.clone());
        }
        opened
    }

    fn open_part(&self, entry: &Entry) -> Result<Part, Failure> {
        let shown = entry.path.to_string();
        let path = self.side.destination.path_of(&entry.path);
        let parent = path.parent();
        if self.side.destination.is_sink {
            return Ok(Part {
                folder: Arc::clone(self.side.folders.anchor()),
                kind: PartKind::Sink,
            });
        }
        if self.transfer.settings.operation != longhaul_proto::handshake::Operation::Copy {
            let folder = self.side.folders.find(parent.as_ref());
            let folder = folder.map_err(|error| failure_of("open", &shown, &error))?;
            let file = folder
                .directory()
                .open_file(path.name(), DataMode::Buffered);
            let file = file.map_err(|error| failure_of("open", &shown, &error))?;
            return Ok(Part {
                folder,
                kind: PartKind::Compared(file),
            });
        }
        let folder = self.side.folders.make(parent.as_ref());
        let folder = folder.map_err(|error| failure_of("make its directory", &shown, &error))?;
        let mut partial = self.side.claim(&self.transfer.settings, &folder, entry)?;
        if !partial.take_recovered().is_empty() && !self.copies_part() {
            // The sender does not know of this data, so it sends it again.
            partial
                .abandon()
                .map_err(|error| journal_failure(&shown, &error))?;
            drop(partial);
            partial = self.side.claim(&self.transfer.settings, &folder, entry)?;
        }
        if let Err(failure) = self.side.prepare(&partial, entry, false) {
            // The part is empty and may hold reserved space. `longhaul clean` finds it if it cannot
            // be removed.
            let _ = partial.abandon();
            return Err(failure);
        }
        Ok(Part {
            folder,
            kind: PartKind::Partial(partial),
        })
    }

    /// Removes the partial data of an earlier attempt for a file that is complete. A crash may undo
    /// the removal of a journal.
    pub(super) fn clear_part(&self, folder: &Arc<Folder>, entry: &Entry) {
        if !is_large(entry, self.transfer.settings.block_bytes as u64) {
            return;
        }
        let path = self.side.destination.path_of(&entry.path);
        let journal = Key::new(path.name(), &self.side.destination.principal).journal();
        if folder.directory().status_of(&journal).is_ok()
            && let Ok(partial) = self.side.claim(&self.transfer.settings, folder, entry)
        {
            // `longhaul clean` finds files that cannot be removed here.
            let _ = partial.abandon();
        }
    }

    /// Claims the partial data of an earlier attempt, if any, and returns its durable blocks.
    pub(super) fn resume_part(
        &self,
        folder: &Arc<Folder>,
        entry: &Entry,
    ) -> Result<Option<Vec<DurableBlock>>, Failure> {
        let path = self.side.destination.path_of(&entry.path);
        let journal = Key::new(path.name(), &self.side.destination.principal).journal();
        if folder.directory().status_of(&journal).is_err() {
            return Ok(None);
        }
        let mut partial = self.side.claim(&self.transfer.settings, folder, entry)?;
        let mut blocks = partial.take_recovered();
        if let Some((start, end)) = self.transfer.settings.assembly.and_then(Assembly::range) {
            blocks.retain(|block| start <= block.offset && block.end() <= end);
        }
        if blocks.is_empty() || self.side.destination.filtered {
            // There are no blocks to continue from, or they are from another run of a command; the
            // file may also come in a pack this time.
            let abandoned = partial.abandon();
            abandoned.map_err(|error| journal_failure(&entry.path.to_string(), &error))?;
            return Ok(None);
        }
        let mut prepared = self.side.prepare(&partial, entry, true);
        if prepared.is_ok() && self.side.makes_holes() {
            prepared = free_room(&**partial.file(), entry, &blocks);
        }
        if let Err(failure) = prepared {
            // The claim now belongs to this session.
            self.side.parts.note_left_behind();
            return Err(failure);
        }
        let part = Part {
            folder: Arc::clone(folder),
            kind: PartKind::Partial(partial),
        };
        lock(&self.side.parts.open).insert((entry.id, 0), Arc::new(part));
        Ok(Some(blocks))
    }
}

/// Frees the space of a part that was reserved before `--sparse` was given, except its durable
/// blocks, which are sorted by offset.
fn free_room(file: &dyn StoredFile, entry: &Entry, blocks: &[DurableBlock]) -> Result<(), Failure> {
    let end = DurableBlock {
        offset: entry.size(),
        length: 0,
        checksum: Checksum::Xxh3(0),
    };
    let mut free = 0;
    for block in blocks.iter().chain([&end]) {
        if block.offset > free {
            let punched = file.punch_hole(free, block.offset - free);
            punched.map_err(|error| {
                failure_of("make a hole in it", &entry.path.to_string(), &error)
            })?;
        }
        free = free.max(block.offset.saturating_add(block.length));
    }
    Ok(())
}

/// Returns the source of a file as in its journal: the number that identifies the file on every
/// host, and zeros.
fn source_of(number: u64) -> [u8; 32] {
    let mut source = [0; 32];
    source[..8].copy_from_slice(&number.to_le_bytes());
    source
}

/// Converts an error of a journal to a failure of its file.
pub(super) fn journal_failure(shown: &str, error: &JournalError) -> Failure {
    match error {
        JournalError::Io(error) => step_failure(shown, error),
        JournalError::Fenced { .. } => {
            Failure::new(FailureKind::InUse, format!("{shown}: {error}"))
        }
        JournalError::Removed => Failure::new(FailureKind::Vanished, format!("{shown}: {error}")),
        _ => Failure::new(FailureKind::Other, format!("{shown}: {error}")),
    }
}

fn claim_failure(shown: &str, error: ClaimError) -> Failure {
    match &error {
        ClaimError::InUse { .. } => Failure::new(FailureKind::InUse, format!("{shown}: {error}")),
        ClaimError::Io(error) => step_failure(shown, error),
        _ => Failure::new(FailureKind::Other, format!("{shown}: {error}")),
    }
}

fn step_failure(shown: &str, StepError { doing, source }: &StepError) -> Failure {
    let Failure { kind, text } = failure_of("write", shown, source);
    Failure::new(kind, format!("{text} ({doing})"))
}

#[cfg(test)]
mod tests;
