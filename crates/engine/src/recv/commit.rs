//! The only module that may call data durable: data is synced, then the journal, then the state
//! machine's ledger is updated. It is also the only module that gives files their final names,
//! after their data is durable.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use longhaul_proto::criteria::Held;
use longhaul_proto::digest::Checksum;
use longhaul_proto::manifest::{Entry, EntryKind, TreePath};
use longhaul_proto::message::{Failure, FailureKind, Farewell, Outcome};
use longhaul_proto::notice::NoticeKind;
use longhaul_proto::receiver::{Checkpoint, StorageJob};
use longhaul_storage::failure::{again, failure_of};
use longhaul_storage::fan_out::each;
use longhaul_storage::file_data::digest_of;
use longhaul_storage::journal::digests::FileState;
use longhaul_storage::journal::{JournalError, expire, temporary};
use longhaul_storage::spelling::OtherSpelling;
use longhaul_storage::together::sync_together;
use longhaul_storage::{Advice, Directory, StoredFile};
use longhaul_system::queue::lock;

use super::announcing::{announce_commit, host_path};
use super::backup::Kept;
use super::commands::Committed;
use super::filter::Unfiltered;
use super::folders::Folder;
use super::landing::{Destination, file_time_now, state_of};
use super::parts::{PartKind, journal_failure};
use super::replacing::{Way, is_obstructed};
use super::{Committer, ReceiveSide, Receiving};
use crate::flows::Flow;
use crate::intents::{Intent, IntentKind, unannounced};
use crate::session::Transfer;

// tidy: long file because it is the only place that may call data durable.

/// Maximum number of attempts to create a link that another process may remove as a leftover.
const LINK_TRIES: u32 = 8;

/// A small entry that was written under a temporary name.
pub(super) struct Staged {
    pub entry: Entry,
    pub file: StagedFile,
    pub digest: Option<Checksum>,
}

/// Temporary file of a small entry, and its final name.
pub(super) struct StagedFile {
    pub folder: Arc<Folder>,
    pub temporary: Box<[u8]>,
    pub name: TreePath,
    /// `None` for a link, and in a sink.
    pub file: Option<Arc<dyn StoredFile>>,
}

/// Result of finishing a directory.
pub(super) enum Folded {
    /// This copy created the directory, or the other end does not need the difference.
    Done,
    /// The directory existed.
    There,
    /// The directory existed, and its owner, mode, time or attributes were corrected.
    Mended,
    /// Another entry has the name and stays on purpose.
    Left(Held),
}

/// Returns the failure of comparing the entry `shown` with the source's directory.
fn not_compared(shown: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(FailureKind::Differs, missing(shown)),
        _ => failure_of("compare", shown, error),
    }
}

/// Returns the message for an entry that only the source has.
pub(super) fn missing(shown: &str) -> String {
    format!("{shown}: is missing at the destination")
}

/// Counts the discards that are running. They change their directory, whose time is set by a later
/// job on another thread.
#[derive(Default)]
pub(crate) struct Discarding {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Discarding {
    fn begin(&self) {
        *lock(&self.count) += 1;
    }

    fn end(&self) {
        *lock(&self.count) -= 1;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let count = lock(&self.count);
        let waited = self.changed.wait_while(count, |count| *count > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Committer<'_> {
    /// Runs the thread of a committer.
    pub(crate) fn run_committer(&self, flow: &Flow) {
        while let Some(job) = self.next_storage_job(flow) {
            flow.busy(|| self.do_storage_job(job));
        }
    }

    /// Runs the thread that commits small files. One thread suffices: a batch costs the disk about
    /// the same at any size, and grows while the previous one is running.
    pub(crate) fn run_small_committer(&self, flow: &Flow) {
        while let Some(staged) = self
            .side
            .staging
            .take(|| !self.side.queues.verified.is_empty())
        {
            let count = staged.len();
            flow.busy(|| self.commit_staged(staged));
            self.side.staging.done(count);
        }
    }

    fn next_storage_job(&self, flow: &Flow) -> Option<StorageJob> {
        let mut shared = self.transfer.lock();
        loop {
            if shared.is_over() {
                return None;
            }
            if !flow.is_wanted() {
                // Another thread must do the work for which this one was woken.
                self.transfer.signals.storing.notify_one();
                return None;
            }
            let now = self.transfer.now();
            let receiver = shared.machine.receiver_mut()?;
            if let Some(job) = receiver.poll_storage(now) {
                let Some(job) = self.side.pass_to_comparer(self.receiving().copies(), job) else {
                    continue;
                };
                if let StorageJob::Discard { .. } = job {
                    self.side.discarding.begin();
                }
                self.transfer.signals.storing.notify_one();
                return Some(job);
            }
            let wait = receiver
                .files()
                .durability()
                .poll_timeout()
                .map(|at| (at - now).max(Duration::from_millis(1)));
            shared = match wait {
                Some(wait) => {
                    shared.storing_in_time = true;
                    let waited = self.transfer.signals.storing.wait_timeout(shared, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .transfer
                    .signals
                    .storing
                    .wait(shared)
                    .unwrap_or_else(PoisonError::into_inner),
            };
            // Other threads may still wait with a timeout; an extra wake-up does no harm.
            shared.storing_in_time = false;
        }
    }

    fn do_storage_job(&self, job: StorageJob) {
        match job {
            StorageJob::Compare(_)
            | StorageJob::CompareContents(..)
            | StorageJob::Names(_)
            | StorageJob::EndNames(_)
            | StorageJob::Remove
            | StorageJob::ReadBack { .. } => {}
            job @ (StorageJob::MakeProbes(_) | StorageJob::RemoveProbes(_)) => {
                self.receiving().remover().probe(job);
            }
            StorageJob::Checkpoint(files) => {
                let done: Vec<(Checkpoint, Option<Failure>)> = files
                    .into_iter()
                    .map(|file| checkpoint(self.side, file))
                    .collect();
                let failed = done.iter().filter(|(_, failure)| failure.is_some());
                let failed: Vec<_> = failed.map(|(c, _)| (c.file, c.generation)).collect();
                if !failed.is_empty() && self.receiving().end_if_lost() {
                    return;
                }
                self.receiving()
                    .tell(|receiver| receiver.handle_checkpointed(done));
                for (file, generation) in failed {
                    self.side.parts.leave_behind(file, generation);
                }
            }
            StorageJob::Commit {
                entry,
                generation,
                digest,
            } => self.commit_large(entry, generation, digest),
            StorageJob::Link(entry) => self.link(entry),
            StorageJob::Discard {
                file,
                generation,
                stays,
            } => {
                if stays {
                    self.side.parts.leave_behind(file, generation);
                } else {
                    self.side.parts.discard(file, generation);
                }
                self.side.discarding.end();
            }
            StorageJob::FinishDirectory(entry) => {
                self.side.discarding.wait();
                self.end_directory(entry);
            }
            StorageJob::Finish => {
                self.side.discarding.wait();
                self.receiving().remover().give_up_replacements();
                self.finish_session();
            }
        }
    }

    fn commit_large(&self, entry: Entry, generation: u32, digest: Option<Checksum>) {
        if self.filters() {
            self.side
                .queues
                .filtering
                .push(Unfiltered::Large { entry, generation });
            return;
        }
        let result = self.commit_file(&entry, generation, digest);
        let (id, failed) = (entry.id, result.is_err());
        if matches!(&result, Err(failure) if failure.kind == FailureKind::Corrupt) {
            // The journal records data as durable that is corrupt, so later copies must not
            // continue it.
            self.side.parts.discard(id, generation);
        } else if failed {
            if self.receiving().end_if_lost() {
                return;
            }
        } else {
            // The part is closed first: parts that are open at the end count as left behind.
            drop(self.side.parts.take(id, generation));
            if self.runs_commands() {
                let large = Committed::large(entry, generation, digest);
                self.side.queues.commands.push(large);
                return;
            }
        }
        self.receiving()
            .tell(|receiver| receiver.handle_committed(id, generation, result));
        if failed {
            self.side.parts.leave_behind(id, generation);
        }
    }

    fn end_directory(&self, entry: Entry) {
        if self.is_not_made(&entry) {
            self.receiving()
                .tell(|receiver| receiver.handle_directory(entry, Outcome::Left(Held::Missing)));
            return;
        }
        let result = self.finish_directory(&entry);
        if result.is_err() && self.receiving().copies() && self.receiving().end_if_lost() {
            return;
        }
        self.receiving().tell(|receiver| match result {
            Ok(Folded::There) => receiver.handle_directory(entry, Outcome::Unchanged),
            Ok(Folded::Mended) => receiver.handle_directory(entry, Outcome::Mended),
            Ok(Folded::Left(held)) => receiver.handle_directory(entry, Outcome::Left(held)),
            Ok(Folded::Done) => {
                receiver.handle_directory(entry, Outcome::Committed { digest: None })
            }
            Err(failure) => receiver.handle_directory(entry, Outcome::Failed(failure)),
        });
    }

    fn finish_session(&self) {
        match self.finish() {
            Ok(()) if self.side.destination.is_detached() => {
                let text = self.side.destination.detached();
                self.transfer.end(Farewell::Storage(text));
            }
            Ok(()) => {
                let notices = self.side.destination.notices.list();
                self.transfer.measurements().observe_at_last();
                self.receiving()
                    .tell(|receiver| receiver.handle_finished(notices));
            }
            Err(error) => {
                if !self.receiving().end_if_lost() {
                    let text = self.side.destination.not_synced(&error);
                    self.transfer.end(Farewell::Storage(text));
                }
            }
        }
    }

    fn commit_file(
        &self,
        entry: &Entry,
        generation: u32,
        digest: Option<Checksum>,
    ) -> Result<(), Failure> {
        let shown = entry.path.to_string();
        let part = self.receiving().part(entry, generation)?;
        let PartKind::Partial(partial) = &part.kind else {
            return Ok(());
        };
        let failed = |error| journal_failure(&shown, &error);
        if self.receiving().copies_part() {
            // Its blocks are durable and in the journal.
            return partial.ensure_there().map_err(failed);
        }
        if self.transfer.settings.verify_written {
            read_back(self.transfer, partial.file(), entry, digest)?;
        }
        let path = self.side.destination.path_of(&entry.path);
        // Finalising syncs the data, which takes long, and a later session may take over meanwhile.
        // Only `while_owned` below excludes that, until the file has its name.
        self.side.destination.ensure_owned().map_err(failed)?;
        let directory = &**part.folder.directory();
        let finish =
            |file: &dyn StoredFile| self.side.destination.finish_file(directory, file, entry);
        let finalised = partial.finalise(finish);
        let finalised = finalised.map_err(failed)?;
        let mut kept = self
            .receiving()
            .remover()
            .keep_replaced(&[(&part.folder, &path)]);
        let kept = kept.pop().transpose()?.flatten();
        let kept = kept.as_ref();
        // The file replaces a directory later.
        let waits = self.side.replacements.awaits(&path);
        let number = waits.then(|| self.side.temporaries.fetch_add(1, Ordering::Relaxed));
        let session = self.side.destination.owner.session_number();
        let between = number.map(|number| temporary(session, number));
        let name = between.as_deref().unwrap_or(path.name());
        self.await_commands(&[(&path, entry)]).map_err(failed)?;
        announce_commit(&self.side.destination, entry, Some(&**partial.file()))?;
        let committed = self.side.destination.while_owned(|| {
            let moved = self.side.make_way(&part.folder, (path.name(), kept))?;
            let committed = finalised.commit(name);
            if let (Err(_), true, Some(kept)) = (&committed, moved, kept) {
                self.side.move_back(directory, (path.name(), kept));
            }
            Ok::<_, io::Error>(committed)
        });
        let committed = committed.map_err(failed)?;
        let committed =
            committed.map_err(|error| failure_of("keep a backup of", &shown, &error))?;
        if let Err(JournalError::Io(error)) = &committed
            && OtherSpelling::within(&error.source).is_some()
        {
            // The name is not available, so later copies must not continue this part.
            self.side.parts.discard(entry.id, generation);
        }
        let committed = committed.map_err(failed)?;
        let synced = part.folder.sync();
        let synced = synced.and_then(|()| self.side.ensure_up(&part.folder));
        synced.map_err(|error| failure_of("make durable", &shown, &error))?;
        if let (Some(digest), Ok(status)) = (digest, partial.file().status()) {
            self.side
                .destination
                .keep_digest(&path, entry, status, digest);
        }
        if waits {
            let new = (entry, &part.folder, name);
            self.side
                .replacements
                .wait(&path, new, Some(partial.file()));
        }
        let finished = committed.finish();
        finished.map_err(|error| failure_of("remove its journal", &shown, &error))
    }

    /// Makes a batch of small files durable and gives them their names.
    fn commit_staged(&self, staged: Vec<Staged>) {
        let digests = self.transfer.settings.digests;
        let results = self.commit_batch(&staged);
        let failed = !self.side.destination.is_sink && results.iter().any(Result::is_err);
        let lost = failed && self.receiving().end_if_lost();
        let told = staged.into_iter().zip(results);
        // Files do not fail on their own if the destination was lost.
        let told = told.filter(|(_, result)| !lost || result.is_ok());
        let runs = |staged: &Staged, result: &Result<(), Failure>| {
            result.is_ok() && self.runs_command_for(&staged.entry)
        };
        let (awaited, told): (Vec<_>, Vec<_>) =
            told.partition(|(staged, result)| runs(staged, result));
        let done = told.into_iter().map(|(staged, result)| {
            let outcome = match result {
                Ok(()) => Outcome::Committed {
                    digest: staged.digest.filter(|_| digests),
                },
                Err(failure) => Outcome::Failed(failure),
            };
            (staged.entry, outcome)
        });
        let done: Vec<(Entry, Outcome)> = done.collect();
        self.receiving()
            .tell(|receiver| receiver.handle_packed(done));
        for (staged, _) in awaited {
            let small = Committed::small(staged.entry, staged.digest);
            self.side.queues.commands.push(small);
        }
    }

    /// Commits a batch like `commit_staged`, without a report to the state machine.
    pub(super) fn commit_batch(&self, staged: &[Staged]) -> Vec<Result<(), Failure>> {
        let mut results = self.sync_staged(staged);
        if !self.side.destination.is_sink {
            self.name_staged(staged, &mut results);
            let mut failed = sync_folders(self.side.renames.is_slow(), staged, &mut results);
            failed.extend(sync_inodes(staged, &mut results));
            self.side.fail_what_is_down(staged, failed, &mut results);
            remove_failed(staged, &results);
        }
        results
    }

    fn sync_staged(&self, staged: &[Staged]) -> Vec<Result<(), Failure>> {
        let files: Vec<Arc<dyn StoredFile>> = staged
            .iter()
            .filter_map(|staged| staged.file.file.clone())
            .collect();
        let mut synced = sync_together(&files, &self.side.syncs).into_iter();
        let results = staged.iter().map(|staged| {
            let Some(file) = &staged.file.file else {
                return Ok(());
            };
            let synced = synced.next().unwrap_or(Ok(()));
            synced.map_err(|error| {
                failure_of("make durable", &staged.entry.path.to_string(), &error)
            })?;
            if self.transfer.settings.verify_written {
                read_back(self.transfer, file, &staged.entry, staged.digest)
            } else {
                Ok(())
            }
        });
        results.collect()
    }

    /// Renames files while no later session can take over.
    fn name_staged(&self, staged: &[Staged], results: &mut [Result<(), Failure>]) {
        let kept = keep_replaced(&self.receiving(), staged, results);
        let ready = staged.iter().zip(&*results).filter(|(_, r)| r.is_ok());
        let ready: Vec<_> = ready.map(|(s, _)| (&s.file.name, &s.entry)).collect();
        if let Err(error) = self.await_commands(&ready) {
            for (staged, result) in staged.iter().zip(results) {
                *result = Err(journal_failure(&staged.entry.path.to_string(), &error));
            }
            return;
        }
        announce_staged(&self.side.destination, staged, results);
        let renamed = self.side.destination.while_owned(|| {
            rename_all(self.side, (staged, &kept), results);
            keep_digests(self.side, staged, results);
        });
        if let Err(error) = renamed {
            for (staged, result) in staged.iter().zip(results) {
                *result = Err(journal_failure(&staged.entry.path.to_string(), &error));
            }
        }
    }

    /// True if a directory is missing at the destination and the copy only updates existing
    /// entries.
    fn is_not_made(&self, entry: &Entry) -> bool {
        if !self.transfer.settings.criteria.existing
            || !self.receiving().copies()
            || self.side.destination.is_sink
        {
            return false;
        }
        let path = self.side.destination.path_of(&entry.path);
        let found = self.side.folders.find_in_copy(Some(&path));
        found.is_err_and(|error| is_gone(&error))
    }

    pub(super) fn finish_directory(&self, entry: &Entry) -> Result<Folded, Failure> {
        let shown = entry.path.to_string();
        if let Some(stream) = &self.side.destination.stream {
            let mode = self.side.destination.stream_mode(entry.mode);
            announce_commit(&self.side.destination, entry, None)?;
            let finished = super::stream::finish(&**stream, mode, &self.side.destination.notices);
            return finished.map(|()| Folded::Done);
        }
        if self.side.destination.is_sink {
            return Ok(Folded::Done);
        }
        let path = self.side.destination.path_of(&entry.path);
        if !self.receiving().copies() && self.transfer.settings.deletion.is_some() {
            // Names that only the destination has are found later, with the list of the source's
            // names.
            let found = self.side.folders.find(Some(&path));
            return found
                .map(|_| Folded::Done)
                .map_err(|error| not_compared(&shown, &error));
        }
        if !self.receiving().copies() {
            let extra = self.side.extras.finish(&self.side.folders, entry, &path);
            return match extra.map_err(|error| not_compared(&shown, &error))? {
                Some(failure) => Err(failure),
                None => Ok(Folded::Done),
            };
        }
        let failed = |error| failure_of("finish the directory", &shown, &error);
        let mut made = self.side.folders.make(Some(&path));
        if made.as_ref().is_err_and(is_obstructed) && self.receiving().remover().replaces_kinds() {
            if let Way::Left(held) = self.receiving().remover().clear_way(&path)? {
                return Ok(Folded::Left(held));
            }
            made = self.side.folders.make(Some(&path));
        }
        let folder = made.map_err(failed)?;
        let directory = folder.directory();
        if self.side.destination.sweep(&**directory, true) {
            // Another source may have a directory of this name and need these files.
            lock(&self.side.unswept).push(path.clone());
        }
        if self.transfer.settings.asks {
            // Otherwise this copy created the directory, and it has no old files.
            self.expire_leftovers(&**directory);
        }
        let made = self.side.folders.take_made(&path);
        let finish = || {
            self.side
                .destination
                .finish_folder(&**directory, entry, made)
        };
        let set = self.side.destination.while_owned(finish);
        let changed = set
            .map_err(|error| journal_failure(&shown, &error))?
            .map_err(failed)?;
        let mended = self.side.take_differing_directory(entry) && changed;
        let synced = folder.sync().and_then(|()| self.side.ensure_up(&folder));
        synced.map_err(failed)?;
        Ok(if made {
            Folded::Done
        } else if mended {
            Folded::Mended
        } else {
            Folded::There
        })
    }

    /// Removes old leftovers of killed copies from a directory. Files that are locked or cannot be
    /// removed stay for `longhaul clean`.
    fn expire_leftovers(&self, directory: &dyn Directory) {
        let Some(age) = self.transfer.settings.expiry else {
            return;
        };
        let mut expired = 0;
        let mut count = |_: &[u8], removed: io::Result<u64>| {
            expired += u64::from(removed.is_ok());
        };
        let age = age.max(LEAST_EXPIRY);
        let _ = expire(directory, age, file_time_now(), EXPIRY_NAMES, &mut count);
        if expired > 0 {
            self.receiving()
                .tell(|receiver| receiver.outcomes_mut().count_expired(expired));
        }
    }

    /// True if an entry failed so far.
    fn have_failed(&self) -> bool {
        let failed = self
            .receiving()
            .tell(|receiver| receiver.totals().failed > 0);
        failed.unwrap_or_default()
    }

    fn finish(&self) -> io::Result<()> {
        if self.side.destination.is_sink || !self.receiving().copies() {
            return Ok(());
        }
        let anchor = self.side.folders.anchor().directory();
        let failed = self.have_failed();
        let stays = if self.transfer.settings.asks {
            self.side.destination.sweep_always(&**anchor, failed)
        } else {
            self.side.destination.sweep(&**anchor, failed)
        };
        if stays {
            self.side.parts.note_left_behind();
        }
        let unswept = std::mem::take(&mut *lock(&self.side.unswept));
        for path in unswept {
            if failed || sweep_late(self.side, &path).is_err() {
                self.side.parts.note_left_behind();
            }
        }
        self.expire_leftovers(&**anchor);
        if !self.side.folders.have_failed() && !self.side.parts.have_left_behind() {
            // Otherwise leftovers stay or may reappear after a crash, and the next session needs
            // the claim to identify their owner.
            self.side.destination.give_up();
        } else {
            let done = [
                &self.transfer.counters.done_entries,
                &self.transfer.counters.skipped_entries,
                &self.transfer.counters.failed_entries,
            ];
            let done = done.iter().map(|count| count.load(Ordering::Relaxed));
            self.side.destination.bound_kept_digests(done.sum());
        }
        self.finish_anchor()?;
        // If entries failed, their failures are the result of the copy, and the anchor stays
        // private.
        self.open_anchor()
            .or_else(|error| if failed { Ok(()) } else { Err(error) })?;
        self.side.sync_mended()?;
        self.side.folders.anchor().sync()
    }

    /// Sets the mode and time of the destination itself, after all changes in it.
    fn finish_anchor(&self) -> io::Result<()> {
        let destination = &self.side.destination;
        if !destination.keeper.keeping().anchor || destination.rename.is_some() {
            return Ok(());
        }
        let state = self.receiving().tell(|receiver| receiver.anchor().cloned());
        let Some(state) = state.flatten().filter(|state| !state.is_limit) else {
            return Ok(());
        };
        let anchor = self.side.folders.anchor().directory();
        let set = destination.while_owned(|| destination.finish_anchor(&**anchor, &state));
        // A fenced session makes no changes.
        set.unwrap_or(Ok(()))
    }

    /// Gives an anchor that this copy created the default mode of a new directory.
    fn open_anchor(&self) -> io::Result<()> {
        let destination = &self.side.destination;
        let state = self.receiving().tell(|receiver| receiver.anchor().cloned());
        let filling = state.flatten().map(|state| state.mode);
        let anchor = self.side.folders.anchor().directory();
        let set = destination.while_owned(|| destination.open_anchor(&**anchor, filling));
        // A fenced session makes no changes.
        set.unwrap_or(Ok(()))
    }
}

/// Removes leftovers of earlier sessions from a finished directory, and restores its mode and time.
fn sweep_late(side: &ReceiveSide, path: &TreePath) -> io::Result<()> {
    let folder = side.folders.find_in_copy(Some(path))?;
    let directory = folder.directory();
    let before = directory.status()?;
    if side.destination.sweep(&**directory, false) {
        side.parts.note_left_behind();
    }
    let restored = side.destination.while_owned(|| {
        let notices = &side.destination.notices;
        if directory.status()?.mode != before.mode {
            let set = directory.set_mode(before.mode);
            notices.wish(NoticeKind::ModeRefused, path, set)?;
        }
        let set = directory.set_modified(before.modified);
        notices.wish(NoticeKind::TimeRefused, path, set).map(drop)
    });
    // A fenced session makes no changes.
    restored.unwrap_or(Ok(()))?;
    folder.sync()
}

/// Minimum age of expired leftovers. A file is created before it is locked, and links have no
/// locks, so younger ones may belong to a live session.
const LEAST_EXPIRY: Duration = Duration::from_secs(1);

/// Maximum number of names that are examined for expired leftovers in one directory, so that a
/// directory of millions does not delay a single file.
const EXPIRY_NAMES: u64 = 100_000;

/// Syncs the data, then the journal. The blocks are durable if no failure is returned.
fn checkpoint(side: &ReceiveSide, file: Checkpoint) -> (Checkpoint, Option<Failure>) {
    let Some(part) = side.parts.get(file.file, file.generation) else {
        return (file, None);
    };
    let PartKind::Partial(partial) = &part.kind else {
        return (file, None);
    };
    let synced = partial.file().sync_data();
    let failure = match synced {
        Err(error) => Some(failure_of("make durable", "a part of a file", &error)),
        // A crash may lose new directories together with their content.
        Ok(()) => match part.folder.sync_name() {
            Err(error) => Some(failure_of("make durable", "its directory", &error)),
            Ok(()) => {
                let journaled = partial.append_durable(&file.blocks);
                let failed = journaled.err();
                let failed = failed.map(|error| journal_failure("a part of a file", &error));
                failed.or_else(|| {
                    let down = side.ensure_up(&part.folder).err()?;
                    Some(failure_of("make durable", "a part of a file", &down))
                })
            }
        },
    };
    (file, failure)
}

/// Announces the commits of a batch before they are made. If that fails, all of them fail.
fn announce_staged(
    destination: &Destination,
    staged: &[Staged],
    results: &mut [Result<(), Failure>],
) {
    let Some(intents) = &destination.intents else {
        return;
    };
    let intent = |staged: &Staged| {
        let directory = staged.file.folder.directory();
        let status = directory.status_of(&staged.file.temporary).ok();
        Intent {
            kind: IntentKind::Commit,
            path: staged.entry.path.clone(),
            host_path: host_path(destination, &staged.file.name),
            size: staged.entry.size(),
            inode: status.map(|status| status.inode),
        }
    };
    let ready = staged.iter().zip(&*results).filter(|(_, r)| r.is_ok());
    let list: Vec<Intent> = ready.map(|(staged, _)| intent(staged)).collect();
    if list.is_empty() {
        return;
    }
    if let Err(error) = intents.announce(&list) {
        for (staged, result) in staged.iter().zip(results) {
            if result.is_ok() {
                *result = Err(unannounced(&staged.entry.path, &error));
            }
        }
    }
}

/// Makes backups of the files that a batch replaces, unless the new file failed. Returns them by
/// position in the batch.
fn keep_replaced(
    receiving: &Receiving<'_>,
    staged: &[Staged],
    results: &mut [Result<(), Failure>],
) -> BTreeMap<usize, Kept> {
    let mut all = BTreeMap::new();
    if receiving.side.destination.backups.is_none() {
        return all;
    }
    let places = (0..staged.len()).filter(|place| results[*place].is_ok());
    let places: Vec<usize> = places.collect();
    let file = |place: &usize| &staged[*place].file;
    let names = places.iter().map(file);
    let names: Vec<_> = names.map(|file| (&file.folder, &file.name)).collect();
    for (place, kept) in places.iter().zip(receiving.remover().keep_replaced(&names)) {
        match kept {
            Ok(kept) => all.extend(kept.map(|kept| (*place, kept))),
            Err(failure) => results[*place] = Err(failure),
        }
    }
    all
}

/// Gives each file that has not failed its name. If renames are slow, as over a network,
/// directories run in parallel; within one directory the kernel serializes renames.
fn rename_all(
    side: &ReceiveSide,
    (staged, kept): (&[Staged], &BTreeMap<usize, Kept>),
    results: &mut [Result<(), Failure>],
) {
    let pace = &side.renames;
    let left = (0..staged.len()).filter(|place| results[*place].is_ok());
    let folders = by_folder(staged, left);
    let rename = |places: &Vec<usize>| rename_in_folder(side, (staged, kept), places);
    let renamed = each(&folders, pace.is_slow(), rename);
    for (places, renamed) in folders.into_iter().zip(renamed) {
        for (place, renamed) in places.into_iter().zip(renamed) {
            results[place] = renamed;
        }
    }
}

/// Gives files of one directory their names.
fn rename_in_folder(
    side: &ReceiveSide,
    (staged, kept): (&[Staged], &BTreeMap<usize, Kept>),
    places: &[usize],
) -> Vec<Result<(), Failure>> {
    let is_plain = |place: &&usize| {
        let file = &staged[**place].file;
        file.file.is_some() && !kept.contains_key(place) && !side.replacements.awaits(&file.name)
    };
    let plain: Vec<usize> = places.iter().filter(is_plain).copied().collect();
    let names = plain.iter().map(|place| &staged[*place].file);
    let names: Vec<_> = names
        .map(|file| (&*file.temporary, file.name.name()))
        .collect();
    let together = plain.first().and_then(|place| {
        let directory = staged[*place].file.folder.directory();
        directory.rename_together(&names)
    });
    let renamed = plain.into_iter().zip(together.unwrap_or_default());
    let mut renamed: BTreeMap<usize, io::Result<()>> = renamed.collect();
    let each = places.iter().map(|place| match renamed.remove(place) {
        Some(renamed) => renamed
            .map_err(|error| failure_of("write", &staged[*place].entry.path.to_string(), &error)),
        None => side
            .renames
            .time(|| rename_over(side, &staged[*place], kept.get(place))),
    });
    each.collect()
}

/// Gives a file its name, after moving an existing file out of the way if needed.
fn rename_over(side: &ReceiveSide, staged: &Staged, kept: Option<&Kept>) -> Result<(), Failure> {
    if side.replacements.awaits(&staged.file.name) {
        let StagedFile {
            folder,
            temporary,
            name,
            file,
        } = &staged.file;
        let new = (&staged.entry, folder, &**temporary);
        side.replacements.wait(name, new, file.as_ref());
        return Ok(());
    }
    let directory = &**staged.file.folder.directory();
    let name = staged.file.name.name();
    let moved = side.make_way(&staged.file.folder, (name, kept));
    let moved = moved
        .map_err(|error| failure_of("keep a backup of", &staged.entry.path.to_string(), &error))?;
    let renamed = rename_staged(side, staged);
    if let (Err(_), true, Some(kept)) = (&renamed, moved, kept) {
        side.move_back(directory, (name, kept));
    }
    renamed
}

fn rename_staged(side: &ReceiveSide, staged: &Staged) -> Result<(), Failure> {
    let StagedFile {
        folder,
        temporary,
        name,
        ..
    } = &staged.file;
    let directory = folder.directory();
    let rename = || directory.rename(temporary, &**directory, name.name());
    let mut renamed = rename();
    if let EntryKind::Symlink { target } = &staged.entry.kind {
        for _ in 0..LINK_TRIES {
            if !renamed.as_ref().is_err_and(is_gone) {
                break;
            }
            // A link cannot be locked, so a cleaner may have removed it as a leftover.
            renamed = side
                .destination
                .make_link(&**directory, temporary, (target, &staged.entry))
                .and_then(|()| rename());
        }
    }
    if let EntryKind::HardLink { target, .. } = &staged.entry.kind {
        for _ in 0..LINK_TRIES {
            if !renamed.as_ref().is_err_and(is_gone) {
                break;
            }
            // A hard link looks as old as its inode, so a cleaner may have removed it.
            renamed =
                super::links::make(side, target, (&**directory, temporary)).and_then(|()| rename());
        }
        // If the name already was the same inode, the rename did nothing.
        let _ = directory.remove_file(temporary);
    }
    renamed.map_err(|error| failure_of("write", &staged.entry.path.to_string(), &error))
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Stores digests for a later session of this copy that writes a manifest.
fn keep_digests(side: &ReceiveSide, staged: &[Staged], results: &[Result<(), Failure>]) {
    let named = staged.iter().zip(results).filter(|(_, r)| r.is_ok());
    let files: Vec<(FileState, [u8; 32])> = named
        .filter_map(|(staged, _)| {
            let digest = staged.digest.as_ref()?.digest()?;
            let status = staged.file.file.as_ref()?.status().ok()?;
            let state = state_of(&staged.file.name, &staged.entry, &status)?;
            Some((state, digest))
        })
        .collect();
    side.destination.keep_digests(&files);
}

/// Removes the temporary files of failed entries. `longhaul clean` finds any that stay.
fn remove_failed(staged: &[Staged], results: &[Result<(), Failure>]) {
    for (staged, _) in staged.iter().zip(results).filter(|(_, r)| r.is_err()) {
        let StagedFile {
            folder, temporary, ..
        } = &staged.file;
        let _ = folder.directory().remove_file(temporary);
    }
}

/// Makes the names of a batch durable, with one sync for each directory. On a disk the syncs run in
/// sequence, because the first one does the work of the others. If names are `far` away, they run
/// in parallel. Returns one entry of each directory that failed.
fn sync_folders(
    far: bool,
    staged: &[Staged],
    results: &mut [Result<(), Failure>],
) -> Vec<(usize, io::Error)> {
    let folders = by_folder(staged, 0..staged.len());
    let synced = each(&folders, far, |places| staged[places[0]].file.folder.sync());
    let mut failed = Vec::new();
    for (places, synced) in folders.into_iter().zip(synced) {
        let Err(error) = synced else { continue };
        for &place in &places {
            if results[place].is_ok() {
                let shown = staged[place].entry.path.to_string();
                results[place] = Err(failure_of("make durable", &shown, &error));
            }
        }
        failed.extend(places.first().map(|&place| (place, error)));
    }
    failed
}

/// Makes links and special files of a batch durable: without a journal, the sync of a directory
/// does not include their inodes. Each file system is synced once. Returns one entry of each that
/// failed.
fn sync_inodes(staged: &[Staged], results: &mut [Result<(), Failure>]) -> Vec<(usize, io::Error)> {
    let mut synced: Vec<(Option<u64>, io::Result<()>)> = Vec::new();
    let mut failed = Vec::new();
    for (place, result) in results.iter_mut().enumerate() {
        let StagedFile { folder, file, .. } = &staged[place].file;
        if file.is_some() || result.is_err() {
            continue;
        }
        let device = folder.device().ok();
        let known = synced.iter().position(|(other, _)| *other == device);
        let at = known.unwrap_or_else(|| {
            let directory = folder.directory();
            let done = if directory.syncs_inodes() {
                Ok(())
            } else {
                directory.sync_file_system()
            };
            synced.push((device, done));
            synced.len() - 1
        });
        if let Err(error) = &synced[at].1 {
            let shown = staged[place].entry.path.to_string();
            *result = Err(failure_of("make durable", &shown, error));
            if known.is_none() {
                failed.push((place, again(error)));
            }
        }
    }
    failed
}

/// Groups positions of a batch by directory, in the order of the batch.
pub(super) fn by_folder(staged: &[Staged], places: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
    let mut known: BTreeMap<*const Folder, usize> = BTreeMap::new();
    let mut folders: Vec<Vec<usize>> = Vec::new();
    for place in places {
        let number = known.entry(Arc::as_ptr(&staged[place].file.folder));
        let number = *number.or_insert(folders.len());
        match folders.get_mut(number) {
            Some(folder) => folder.push(place),
            None => folders.push(vec![place]),
        }
    }
    folders
}

/// Reads a file back, past the page cache if possible, and compares its digest.
fn read_back(
    transfer: &Transfer,
    file: &Arc<dyn StoredFile>,
    entry: &Entry,
    digest: Option<Checksum>,
) -> Result<(), Failure> {
    let shown = entry.path.to_string();
    let corrupt = |text| Failure::new(FailureKind::Corrupt, text);
    let failed = |error: io::Error| {
        let failure = failure_of("read back", &shown, &error);
        if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) {
            corrupt(failure.text)
        } else {
            failure
        }
    };
    file.sync_data()
        .map_err(|error| failure_of("make durable", &shown, &error))?;
    file.advise(Advice::DropCache, 0, entry.size());
    // A file that ends early is as wrong as one with other content.
    let found = match digest_of(&|| transfer.is_over(), &**file, entry.size()) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
        found => Some(found.map_err(failed)?),
    };
    match digest {
        Some(_) if digest != found => Err(corrupt(format!(
            "{shown}: what was written reads back otherwise; look for disk errors"
        ))),
        _ => Ok(()),
    }
}
