//! Compares the sender's entries with the destination. A file of the same size and time counts as
//! equal, as in rsync. A partial file of an earlier attempt is continued.

use std::io;
use std::sync::Arc;

use longhaul_proto::criteria::{Both, Held, Verdict};
use longhaul_proto::digest::Integrity;
use longhaul_proto::handshake::Operation;
use longhaul_proto::manifest::{Entry, EntryKind};
use longhaul_proto::message::{Change, Failure, FailureKind};
use longhaul_proto::notice::NoticeKind;
use longhaul_proto::receiver::{Compared, StorageJob};
use longhaul_storage::failure::failure_of;
use longhaul_storage::fan_out::Pace;
use longhaul_storage::spelling::OtherSpelling;
use longhaul_storage::{DataMode, FileKind, Special, Status, StoredFile};

use super::commit::missing;
use super::contents::ToRead;
use super::folders::Folder;
use super::mending::look;
use super::replacing::{Way, is_obstructed};
use super::write::differs;
use super::{Comparer, ReceiveSide};
use crate::flows::Flow;

/// A part of the sender's listing, in its order.
pub(crate) enum Listed {
    /// Entries to compare.
    Entries(Vec<Entry>),
    /// The end of a directory, in a comparison or a dry run.
    End(Entry),
    /// A deletion job.
    Deletion(StorageJob),
}

impl ReceiveSide {
    /// Passes jobs that must run in the order of the listing to the comparer, and jobs that read
    /// existing data to their threads. Returns any other job.
    pub(super) fn pass_to_comparer(&self, copies: bool, job: StorageJob) -> Option<StorageJob> {
        match job {
            StorageJob::Compare(entries) => self.queues.listed.push(Listed::Entries(entries)),
            StorageJob::CompareContents(entry, digest) => {
                self.queues.to_read.push(ToRead::Contents(entry, digest));
            }
            StorageJob::ReadBack {
                entry,
                generation,
                blocks,
            } => self
                .queues
                .to_read
                .push(ToRead::Part(entry, generation, blocks)),
            job @ (StorageJob::Names(_) | StorageJob::EndNames(_) | StorageJob::Remove) => {
                self.queues.listed.push(Listed::Deletion(job));
            }
            StorageJob::FinishDirectory(entry) if !copies => {
                self.queues.listed.push(Listed::End(entry))
            }
            job => return Some(job),
        }
        None
    }
}

impl Comparer<'_> {
    /// Runs the comparer's thread. There is one such thread, so that answers come in the order of
    /// the requests.
    pub(crate) fn run_comparer(&self, flow: &Flow) {
        let pace = Pace::default();
        while let Some(listed) = self.side.queues.listed.pop(|| flow.is_wanted()) {
            let entries = match listed {
                Listed::Entries(entries) => {
                    self.side.note_directories(&entries);
                    if self.receiving().copies() && !self.side.destination.is_sink {
                        flow.busy(|| look_at_directories(self.side, &entries, &pace));
                    }
                    entries
                }
                Listed::End(entry) => {
                    flow.busy(|| self.compare_directory(entry));
                    continue;
                }
                Listed::Deletion(job) => {
                    flow.busy(|| self.receiving().remover().delete(job));
                    continue;
                }
            };
            if self.transfer.settings.operation == Operation::Verify
                && self.transfer.settings.deletion.is_none()
            {
                for entry in &entries {
                    let path = self.side.destination.path_of(&entry.path);
                    if self
                        .side
                        .extras
                        .handle_listed(&self.side.folders, &path)
                        .is_none()
                    {
                        self.transfer
                            .break_off(&"the other end begins directories and ends none");
                        return;
                    }
                }
            }
            // Directories are not compared here: they get their metadata when their content is
            // complete.
            let asked = entries.into_iter();
            let asked = asked.filter(|entry| entry.kind != EntryKind::Directory);
            let asked: Vec<Entry> = asked.collect();
            let found = flow.busy(|| self.compare_each(&asked, &pace));
            // If a comparison was skipped, the session is over, and later results are not needed.
            let told = asked.into_iter().zip(found);
            let told: Vec<(Entry, Compared)> = told
                .map_while(|(entry, compared)| Some((entry, compared?)))
                .collect();
            let (told, awaited) = self.receiving().committer().awaiting_commands(told);
            self.receiving()
                .tell(|receiver| receiver.handle_compared(told));
            awaited
                .into_iter()
                .for_each(|there| self.side.queues.commands.push(there));
        }
    }

    /// Compares entries; `None` for those skipped because the session ended.
    fn compare_each(&self, asked: &[Entry], pace: &Pace) -> Vec<Option<Compared>> {
        pace.look(asked, |entry| {
            (!self.transfer.is_over()).then(|| self.compare(entry))
        })
    }

    fn compare(&self, entry: &Entry) -> Compared {
        if let Some(failure) = self.side.destination.refuses(entry) {
            return Compared::Refused(failure);
        }
        let shown = || entry.path.to_string();
        let path = self.side.destination.path_of(&entry.path);
        let backups = self.side.destination.backups.as_ref();
        let is_backup = backups.is_some_and(|backups| backups.note(&path));
        let above = path.parent();
        let found = if self.receiving().copies() {
            self.side.folders.find_in_copy(above.as_ref())
        } else {
            self.side.folders.find(above.as_ref())
        };
        let folder = match found {
            Ok(folder) => folder,
            Err(error) if self.is_absent(&error) => return self.absent(entry),
            Err(error) if is_obstructed(&error) && self.receiving().remover().replaces_kinds() => {
                return match above.map_or(Ok(Way::Free), |above| {
                    self.receiving().remover().clear_way(&above)
                }) {
                    Ok(Way::Free) => self.absent(entry),
                    Ok(Way::Left(held)) => Compared::Left(held),
                    Err(failure) => Compared::Refused(failure),
                };
            }
            Err(error) => {
                return Compared::Refused(failure_of("look into its directory", &shown(), &error));
            }
        };
        // A copy needs only the old file's metadata, not its content.
        let directory = folder.directory();
        let status = match self.transfer.settings.operation {
            Operation::Verify => directory.content_status_of(path.name()),
            Operation::Copy | Operation::DryRun => directory.status_of(path.name()),
        };
        let status = status.and_then(|status| {
            folder.ensure_spelled(path.name())?;
            Ok(status)
        });
        let status = match status {
            Ok(status) => Some(status),
            Err(error) if self.is_absent(&error) => None,
            Err(error) => return Compared::Refused(failure_of("look at", &shown(), &error)),
        };
        match status {
            Some(_) if self.transfer.settings.criteria.ignore_existing => {
                Compared::Left(Held::Exists)
            }
            Some(status) if status.kind == FileKind::Directory => self
                .receiving()
                .remover()
                .compare_with_directory(entry, &folder),
            Some(status)
                if status.kind == FileKind::Special
                    && let Some(refused) = self.refuse_special(entry, &folder) =>
            {
                refused
            }
            // The file is a backup of another name, so it is not an earlier version of the entry.
            Some(_) if is_backup && self.receiving().copies() => self.compare_part(entry, &folder),
            Some(status) => self.compare_with(entry, &folder, &status),
            None if !self.receiving().copies() || self.transfer.settings.criteria.existing => {
                self.absent(entry)
            }
            None => self.compare_part(entry, &folder),
        }
    }

    /// Returns the reason why an entry must not replace a device, socket or FIFO of the same name;
    /// `None` if it may.
    fn refuse_special(&self, entry: &Entry, folder: &Arc<Folder>) -> Option<Compared> {
        if may_replace_special(self.side, entry) {
            return None;
        }
        if !self.receiving().remover().replaces_kinds() {
            let shown = &entry.path;
            let text = format!("{shown}: a device, socket or FIFO has that name; move it away");
            return Some(Compared::Refused(Failure::new(FailureKind::Conflict, text)));
        }
        let path = self.side.destination.path_of(&entry.path);
        let ensured = self
            .receiving()
            .copies()
            .then(|| self.receiving().remover().ensure_replaceable(folder, &path));
        ensured?.err().map(Compared::Refused)
    }

    /// True if the name counts as missing. A name with another spelling only is missing for a
    /// comparison, but blocks a copy.
    fn is_absent(&self, error: &io::Error) -> bool {
        let verifies = self.transfer.settings.operation == Operation::Verify;
        error.kind() == io::ErrorKind::NotFound
            || verifies && OtherSpelling::within(error).is_some()
    }

    fn absent(&self, entry: &Entry) -> Compared {
        match self.transfer.settings.operation {
            Operation::Copy | Operation::DryRun if self.transfer.settings.criteria.existing => {
                Compared::Left(Held::Missing)
            }
            Operation::Copy => Compared::Send,
            Operation::DryRun => Compared::Planned(Change::New),
            Operation::Verify => Compared::Refused(Failure::new(
                FailureKind::Differs,
                missing(&entry.path.to_string()),
            )),
        }
    }

    fn compare_with(&self, entry: &Entry, folder: &Arc<Folder>, status: &Status) -> Compared {
        let path = self.side.destination.path_of(&entry.path);
        let shown = || entry.path.to_string();
        match &entry.kind {
            EntryKind::File { identity, .. } if status.kind == FileKind::File => {
                if self.transfer.settings.operation == Operation::Verify {
                    return if identity.size == status.size {
                        Compared::Send
                    } else {
                        Compared::Refused(differs(&shown(), "the sizes differ"))
                    };
                }
                match self.judge(entry, status) {
                    Verdict::Left(held) => return Compared::Left(held),
                    Verdict::Contents if !self.receiving().copies() => return Compared::Contents,
                    Verdict::Same if !self.receiving().copies() => {
                        return self.planned(folder, entry, status);
                    }
                    Verdict::Contents => {
                        self.receiving().clear_part(folder, entry);
                        // The file gets its mode and time after its content was found equal.
                        return Compared::Contents;
                    }
                    Verdict::Same => {
                        self.receiving().clear_part(folder, entry);
                        return self.same(folder, entry, status);
                    }
                    Verdict::Copy => {}
                }
            }
            EntryKind::Symlink { target } if status.kind == FileKind::Symlink => {
                let there = folder.directory().read_symlink(path.name());
                if there.is_ok_and(|there| *there == target[..]) {
                    return self.same_name(folder, entry, status);
                }
            }
            EntryKind::Special { kind, major, minor } if status.special.is_some() => {
                let device = (*major, *minor);
                if status.special
                    == Some(Special {
                        kind: *kind,
                        device,
                    })
                {
                    // A user who may not create devices does not change them either.
                    let keeper = &self.side.destination.keeper;
                    return if kind.is_device() && keeper.may_make_devices().is_err() {
                        Compared::Same(None)
                    } else {
                        self.same_name(folder, entry, status)
                    };
                }
            }
            // A copy compares a hard link when it creates it, because the target may change until
            // then.
            EntryKind::HardLink { .. } if self.receiving().copies() => return Compared::Send,
            EntryKind::HardLink { target, .. }
                if super::links::are_one(self.side, &entry.path, target).unwrap_or(false) =>
            {
                return Compared::Same(None);
            }
            _ => {}
        }
        match self.transfer.settings.operation {
            Operation::Copy => self.compare_part(entry, folder),
            Operation::DryRun => Compared::Planned(Change::Changed),
            Operation::Verify => {
                Compared::Refused(differs(&shown(), "one is not what the other is"))
            }
        }
    }

    /// Applies the criteria of the copy to a file that exists at both ends.
    fn judge(&self, entry: &Entry, status: &Status) -> Verdict {
        // The output size of a filter is unknown in advance.
        let there = if self.side.destination.has_filter() {
            entry.size()
        } else {
            status.size
        };
        let sizes = (entry.size(), there);
        let keeps_as = || {
            let destination = &self.side.destination;
            destination.keeps_as(entry.modified, status, self.transfer.settings.operation)
        };
        let criteria = &self.transfer.settings.criteria;
        let verdict = criteria.judge(&Both {
            sizes,
            modified: (entry.modified, status.modified),
            // Evaluated only if needed: it may have to set a time on a file.
            same_time: (sizes.0 == sizes.1 || criteria.update) && keeps_as(),
        });
        match verdict {
            // A client without this right could test guesses of the content by the result.
            Verdict::Contents if !self.side.destination.keeper.may_compare() => Verdict::Copy,
            verdict => verdict,
        }
    }

    /// Handles an equal file: its metadata may have to change, and its content may have to be
    /// compared.
    fn same(&self, folder: &Folder, entry: &Entry, status: &Status) -> Compared {
        let path = self.side.destination.path_of(&entry.path);
        let wanted =
            self.transfer.settings.digests && self.transfer.settings.integrity == Integrity::Digest;
        let kept = || self.side.destination.kept_digest(&path, entry, status);
        let digest = wanted.then(kept).flatten();
        let destination = &self.side.destination;
        // A stored digest proves an earlier comparison, not the present content of the disk.
        let settings = &self.transfer.settings;
        let compares = digest.is_none() || settings.verify_written || settings.moves_away;
        if settings.compares_contents() && compares {
            // A stored digest also proves that a copy of this principal wrote the file.
            if !destination.keeper.may_compare() && digest.is_none() {
                return self.unlike();
            }
            // The file gets its mode after its content was found equal.
            self.side.note_inode(entry, status);
            return Compared::Contents;
        }
        // Mending reports these notices again, so they are merged only without it.
        let looked = look(self.side, folder, entry, status);
        let (notices, mode) = (looked.notices, looked.mode);
        let dresses = looked.dresses.unwrap_or_else(|error| {
            notices.note(NoticeKind::AttributeNotKept, &entry.path, || {
                error.to_string()
            });
            false
        });
        let late = self.is_late(entry, status);
        if !dresses && !late && status.mode == mode {
            self.side.note_inode(entry, status);
            destination.notices.merge(notices);
            return Compared::Same(digest);
        }
        let file = folder
            .directory()
            .open_file(path.name(), DataMode::Buffered);
        // Another process may have replaced the file meanwhile.
        let is_that = |file: &dyn StoredFile| {
            let now = file.status().ok();
            now.is_some_and(|now| {
                (now.device, now.inode, now.size) == (status.device, status.inode, status.size)
                    && (now.owner, now.modified) == (status.owner, status.modified)
            })
        };
        let Some(file) = file.ok().filter(|file| is_that(&**file)) else {
            return Compared::Send;
        };
        let Some(mended) = self.mend(folder, (entry, status), &*file) else {
            return Compared::Send;
        };
        if let (Some(digest), Ok(status)) = (digest, file.status()) {
            // The change of mode gave the file a new state.
            self.side
                .destination
                .keep_digest(&path, entry, status, digest);
        }
        if mended {
            Compared::Mended(digest)
        } else {
            Compared::Same(digest)
        }
    }

    /// Looks for a partial file of an earlier attempt.
    pub(super) fn compare_part(&self, entry: &Entry, folder: &Arc<Folder>) -> Compared {
        if !matches!(entry.kind, EntryKind::File { .. }) {
            return Compared::Send;
        }
        match self.receiving().resume_part(folder, entry) {
            Ok(Some(blocks)) => Compared::Partial(blocks),
            Ok(None) => Compared::Send,
            Err(failure) => Compared::Refused(failure),
        }
    }
}

/// Notes the directories that differ in owner, mode, time or attributes. This happens before any
/// change in them: their content is compared later, in the order of the listing.
fn look_at_directories(side: &ReceiveSide, entries: &[Entry], pace: &Pace) {
    let directories = entries.iter();
    let directories = directories.filter(|entry| entry.kind == EntryKind::Directory);
    let directories: Vec<&Entry> = directories.collect();
    pace.look(&directories, |entry| side.note_directory(entry));
}

/// True if the entry may replace a special file: it is one, or may be a hard link to one.
fn may_replace_special(side: &ReceiveSide, entry: &Entry) -> bool {
    let keeping = side.destination.keeper.keeping();
    match &entry.kind {
        EntryKind::Special { .. } => true,
        EntryKind::HardLink { .. } => keeping.devices || keeping.specials,
        _ => false,
    }
}
