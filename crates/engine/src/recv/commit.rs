//! The one place that may call anything durable: data synced, then journal,
//! then the state machine's ledger. And the one place that gives files their
//! final names, after their data is durable.

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
use longhaul_storage::file_data::digest_of;
use longhaul_storage::journal::digests::FileState;
use longhaul_storage::journal::{JournalError, expire, temporary};
use longhaul_storage::looks::each;
use longhaul_storage::spelling::OtherSpelling;
use longhaul_storage::together::sync_together;
use longhaul_storage::{Advice, Directory, StoredFile};
use longhaul_system::queue::lock;

use super::ReceiveSide;
use super::backup::Kept;
use super::commands::Committed;
use super::filter::Unfiltered;
use super::folders::Folder;
use super::landing::{file_time_now, state_of};
use super::parts::{PartKind, journal_failure};
use super::replacing::{Way, is_obstructed};
use crate::flows::Flow;
use crate::session::{Machine, Transfer};

// tidy: long file because it is the only place that may call data durable.

/// Times that a link is made again, which somebody took for a leftover.
const LINK_TRIES: u32 = 8;

/// A small entry that was written under a temporary name.
pub(super) struct Staged {
    pub entry: Entry,
    pub file: StagedFile,
    pub digest: Option<Checksum>,
}

/// Where it was written, and what it should be called.
pub(super) struct StagedFile {
    pub folder: Arc<Folder>,
    pub temporary: Box<[u8]>,
    pub name: TreePath,
    /// None for a link, and in a sink.
    pub file: Option<Arc<dyn StoredFile>>,
}

/// How a directory ended.
pub(super) enum Folded {
    /// This copy made it, or the other end does not hear of the difference.
    Done,
    /// It was there.
    There,
    /// It was there, and its owner, mode, time or attributes were corrected.
    Mended,
    /// Something else has its name, and stays on purpose.
    Left(Held),
}

/// The failure of comparing what is at `shown` with the source's directory.
fn not_compared(shown: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(FailureKind::Differs, missing(shown)),
        _ => failure_of("compare", shown, error),
    }
}

/// What to say of an entry that only the source has.
pub(super) fn missing(shown: &str) -> String {
    format!("{shown}: is missing at the destination")
}

/// Counts the discards under way. They change their directory, whose time is
/// set by a job that comes after them in the queue and runs on another thread.
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

impl Transfer {
    /// A committer's thread.
    pub(crate) fn run_committer(self: &Arc<Transfer>, side: &ReceiveSide, flow: &Flow) {
        while let Some(job) = self.next_storage_job(side, flow) {
            flow.busy(|| self.do_storage_job(side, job));
        }
    }

    /// The thread that commits small files: one, since a batch costs the disk
    /// about the same whatever its size, and grows while the one before is
    /// under way.
    pub(crate) fn run_small_committer(self: &Arc<Transfer>, side: &ReceiveSide, flow: &Flow) {
        while let Some(staged) = side.staging.take(|| !side.verified.is_empty()) {
            let count = staged.len();
            flow.busy(|| self.commit_staged(side, staged));
            side.staging.done(count);
        }
    }

    fn next_storage_job(&self, side: &ReceiveSide, flow: &Flow) -> Option<StorageJob> {
        let mut shared = self.lock();
        loop {
            if shared.is_over() {
                return None;
            }
            if !flow.is_wanted() {
                // Whatever it was woken for is another's.
                self.storing.notify_one();
                return None;
            }
            let now = self.now();
            let Machine::Receiving(receiver) = &mut shared.machine else {
                return None;
            };
            if let Some(job) = receiver.poll_storage(now) {
                let Some(job) = side.pass_to_comparer(self.copies(), job) else {
                    continue;
                };
                if let StorageJob::Discard { .. } = job {
                    side.discarding.begin();
                }
                self.storing.notify_one();
                return Some(job);
            }
            let wait = receiver
                .poll_timeout()
                .map(|at| (at - now).max(Duration::from_millis(1)));
            shared = match wait {
                Some(wait) => {
                    shared.storing_in_time = true;
                    let waited = self.storing.wait_timeout(shared, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .storing
                    .wait(shared)
                    .unwrap_or_else(PoisonError::into_inner),
            };
            // Others may still wait in time: one that is woken for nothing is no harm.
            shared.storing_in_time = false;
        }
    }

    fn do_storage_job(&self, side: &ReceiveSide, job: StorageJob) {
        match job {
            StorageJob::Compare(_)
            | StorageJob::CompareContents(..)
            | StorageJob::Names(_)
            | StorageJob::EndNames(_)
            | StorageJob::Remove
            | StorageJob::ReadBack { .. } => {}
            job @ (StorageJob::MakeProbes(_) | StorageJob::RemoveProbes(_)) => {
                self.probe(side, job);
            }
            StorageJob::Checkpoint(files) => {
                let done: Vec<(Checkpoint, Option<Failure>)> = files
                    .into_iter()
                    .map(|file| checkpoint(side, file))
                    .collect();
                let failed = done.iter().filter(|(_, failure)| failure.is_some());
                let failed: Vec<_> = failed.map(|(c, _)| (c.file, c.generation)).collect();
                if !failed.is_empty() && self.end_if_lost(side) {
                    return;
                }
                self.tell_receiver(|receiver| receiver.handle_checkpointed(done));
                for (file, generation) in failed {
                    side.parts.leave_behind(file, generation);
                }
            }
            StorageJob::Commit {
                entry,
                generation,
                digest,
            } => self.commit_large(side, entry, generation, digest),
            StorageJob::Link(entry) => self.link(side, entry),
            StorageJob::Discard {
                file,
                generation,
                stays,
            } => {
                if stays {
                    side.parts.leave_behind(file, generation);
                } else {
                    side.parts.discard(file, generation);
                }
                side.discarding.end();
            }
            StorageJob::FinishDirectory(entry) => {
                side.discarding.wait();
                self.end_directory(side, entry);
            }
            StorageJob::Finish => {
                side.discarding.wait();
                self.give_up_replacements(side);
                self.finish_session(side);
            }
        }
    }

    fn commit_large(
        &self,
        side: &ReceiveSide,
        entry: Entry,
        generation: u32,
        digest: Option<Checksum>,
    ) {
        if self.filters(side) {
            side.filtering.push(Unfiltered::Large { entry, generation });
            return;
        }
        let result = self.commit_file(side, &entry, generation, digest);
        let (id, failed) = (entry.id, result.is_err());
        if matches!(&result, Err(failure) if failure.kind == FailureKind::Corrupt) {
            // What its journal calls durable is not: no later copy may go on with it.
            side.parts.discard(id, generation);
        } else if failed {
            if self.end_if_lost(side) {
                return;
            }
        } else {
            // Before it is known to be done: what is open when all is
            // done counts as left behind.
            drop(side.parts.take(id, generation));
            if self.runs_commands(side) {
                let large = Committed::large(entry, generation, digest);
                side.commands.push(large);
                return;
            }
        }
        self.tell_receiver(|receiver| receiver.handle_committed(id, generation, result));
        if failed {
            side.parts.leave_behind(id, generation);
        }
    }

    fn end_directory(&self, side: &ReceiveSide, entry: Entry) {
        if self.is_not_made(side, &entry) {
            self.tell_receiver(|receiver| receiver.handle_directory_left(entry, Held::Missing));
            return;
        }
        let result = self.finish_directory(side, &entry);
        if result.is_err() && self.copies() && self.end_if_lost(side) {
            return;
        }
        self.tell_receiver(|receiver| match result {
            Ok(Folded::There) => receiver.handle_directory_there(entry),
            Ok(Folded::Mended) => receiver.handle_directory_mended(entry),
            Ok(Folded::Left(held)) => receiver.handle_directory_left(entry, held),
            Ok(Folded::Done) => receiver.handle_directory_finished(entry, Ok(())),
            Err(failure) => receiver.handle_directory_finished(entry, Err(failure)),
        });
    }

    fn finish_session(&self, side: &ReceiveSide) {
        match self.finish(side) {
            Ok(()) if side.destination.is_detached() => {
                let text = side.destination.detached();
                self.end(Farewell::Storage(text));
            }
            Ok(()) => {
                let notices = side.destination.notices.list();
                self.observe_at_last();
                self.tell_receiver(|receiver| {
                    receiver.handle_notices(notices);
                    receiver.handle_finished();
                });
            }
            Err(error) => {
                if !self.end_if_lost(side) {
                    let text = side.destination.not_synced(&error);
                    self.end(Farewell::Storage(text));
                }
            }
        }
    }

    fn commit_file(
        &self,
        side: &ReceiveSide,
        entry: &Entry,
        generation: u32,
        digest: Option<Checksum>,
    ) -> Result<(), Failure> {
        let shown = entry.path.to_string();
        let part = side.part(self, entry, generation)?;
        let PartKind::Partial(partial) = &part.kind else {
            return Ok(());
        };
        if self.settings.verify_written {
            read_back(self, partial.file(), entry, digest)?;
        }
        let path = side.destination.path_of(&entry.path);
        let failed = |error| journal_failure(&shown, &error);
        // Data takes long to be durable: nobody is kept from taking over
        // meanwhile, as he is from there until the file has its name.
        side.destination.ensure_owned().map_err(failed)?;
        let directory = &**part.folder.directory();
        let finish = |file: &dyn StoredFile| side.destination.finish_file(directory, file, entry);
        let finalised = partial.finalise(finish);
        let finalised = finalised.map_err(failed)?;
        let mut kept = side.keep_replaced(self, &[(&part.folder, &path)]);
        let kept = kept.pop().transpose()?.flatten();
        let kept = kept.as_ref();
        // It takes the place of a directory later.
        let waits = side.replacements.awaits(&path);
        let number = waits.then(|| side.temporaries.fetch_add(1, Ordering::Relaxed));
        let session = side.destination.owner.session_number();
        let between = number.map(|number| temporary(session, number));
        let name = between.as_deref().unwrap_or(path.name());
        self.await_commands(side, &[(&path, entry)])
            .map_err(failed)?;
        let committed = side.destination.while_owned(|| {
            let moved = side.make_way(&part.folder, (path.name(), kept))?;
            let committed = finalised.commit(name);
            if let (Err(_), true, Some(kept)) = (&committed, moved, kept) {
                side.move_back(directory, (path.name(), kept));
            }
            Ok::<_, io::Error>(committed)
        });
        let committed = committed.map_err(failed)?;
        let committed =
            committed.map_err(|error| failure_of("keep a backup of", &shown, &error))?;
        if let Err(JournalError::Io(error)) = &committed
            && OtherSpelling::within(&error.source).is_some()
        {
            // It has no place there: no later copy may go on with it.
            side.parts.discard(entry.id, generation);
        }
        let committed = committed.map_err(failed)?;
        let synced = part.folder.sync();
        let synced = synced.and_then(|()| side.ensure_up(&part.folder));
        synced.map_err(|error| failure_of("make durable", &shown, &error))?;
        if let (Some(digest), Ok(status)) = (digest, partial.file().status()) {
            side.destination.keep_digest(&path, entry, status, digest);
        }
        if waits {
            let new = (entry, &part.folder, name);
            side.replacements.wait(&path, new, Some(partial.file()));
        }
        let finished = committed.finish();
        finished.map_err(|error| failure_of("remove its journal", &shown, &error))
    }

    /// Makes a batch of small files durable and gives them their names.
    fn commit_staged(&self, side: &ReceiveSide, staged: Vec<Staged>) {
        let digests = self.settings.digests;
        let results = self.commit_batch(side, &staged);
        let failed = !side.destination.is_sink && results.iter().any(Result::is_err);
        let lost = failed && self.end_if_lost(side);
        let told = staged.into_iter().zip(results);
        // What the loss is the reason of is no failure of a file.
        let told = told.filter(|(_, result)| !lost || result.is_ok());
        let runs = |staged: &Staged, result: &Result<(), Failure>| {
            result.is_ok() && self.runs_command_for(side, &staged.entry)
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
        self.tell_receiver(|receiver| receiver.handle_packed(done));
        for (staged, _) in awaited {
            let small = Committed::small(staged.entry, staged.digest);
            side.commands.push(small);
        }
    }

    /// The same, and tells nobody.
    pub(super) fn commit_batch(
        &self,
        side: &ReceiveSide,
        staged: &[Staged],
    ) -> Vec<Result<(), Failure>> {
        let mut results = self.sync_staged(side, staged);
        if !side.destination.is_sink {
            self.name_staged(side, staged, &mut results);
            let mut failed = sync_folders(side.renames.is_slow(), staged, &mut results);
            failed.extend(sync_inodes(staged, &mut results));
            side.fail_what_is_down(staged, failed, &mut results);
            remove_failed(staged, &results);
        }
        results
    }

    fn sync_staged(&self, side: &ReceiveSide, staged: &[Staged]) -> Vec<Result<(), Failure>> {
        let files: Vec<Arc<dyn StoredFile>> = staged
            .iter()
            .filter_map(|staged| staged.file.file.clone())
            .collect();
        let mut synced = sync_together(&files, &side.syncs).into_iter();
        let results = staged.iter().map(|staged| {
            let Some(file) = &staged.file.file else {
                return Ok(());
            };
            let synced = synced.next().unwrap_or(Ok(()));
            synced.map_err(|error| {
                failure_of("make durable", &staged.entry.path.to_string(), &error)
            })?;
            if self.settings.verify_written {
                read_back(self, file, &staged.entry, staged.digest)
            } else {
                Ok(())
            }
        });
        results.collect()
    }

    /// Renames, with no later session able to take over in between.
    fn name_staged(
        &self,
        side: &ReceiveSide,
        staged: &[Staged],
        results: &mut [Result<(), Failure>],
    ) {
        let kept = keep_replaced((self, side), staged, results);
        let ready = staged.iter().zip(&*results).filter(|(_, r)| r.is_ok());
        let ready: Vec<_> = ready.map(|(s, _)| (&s.file.name, &s.entry)).collect();
        if let Err(error) = self.await_commands(side, &ready) {
            for (staged, result) in staged.iter().zip(results) {
                *result = Err(journal_failure(&staged.entry.path.to_string(), &error));
            }
            return;
        }
        let renamed = side.destination.while_owned(|| {
            rename_all(side, (staged, &kept), results);
            keep_digests(side, staged, results);
        });
        if let Err(error) = renamed {
            for (staged, result) in staged.iter().zip(results) {
                *result = Err(journal_failure(&staged.entry.path.to_string(), &error));
            }
        }
    }

    /// Whether a directory is missing at the destination, where only what exists is updated.
    fn is_not_made(&self, side: &ReceiveSide, entry: &Entry) -> bool {
        if !self.settings.criteria.existing || !self.copies() || side.destination.is_sink {
            return false;
        }
        let path = side.destination.path_of(&entry.path);
        let found = side.folders.find_in_copy(Some(&path));
        found.is_err_and(|error| is_gone(&error))
    }

    pub(super) fn finish_directory(
        &self,
        side: &ReceiveSide,
        entry: &Entry,
    ) -> Result<Folded, Failure> {
        let shown = entry.path.to_string();
        if let Some(stream) = &side.destination.stream {
            let mode = side.destination.stream_mode(entry.mode);
            let finished = super::stream::finish(&**stream, mode, &side.destination.notices);
            return finished.map(|()| Folded::Done);
        }
        if side.destination.is_sink {
            return Ok(Folded::Done);
        }
        let path = side.destination.path_of(&entry.path);
        if !self.copies() && self.settings.deletion.is_some() {
            // What is here alone is found later, by the names that the source has.
            let found = side.folders.find(Some(&path));
            return found
                .map(|_| Folded::Done)
                .map_err(|error| not_compared(&shown, &error));
        }
        if !self.copies() {
            let extra = side.extras.finish(&side.folders, entry, &path);
            return match extra.map_err(|error| not_compared(&shown, &error))? {
                Some(failure) => Err(failure),
                None => Ok(Folded::Done),
            };
        }
        let failed = |error| failure_of("finish the directory", &shown, &error);
        let mut made = side.folders.make(Some(&path));
        if made.as_ref().is_err_and(is_obstructed) && self.replaces_kinds() {
            if let Way::Left(held) = self.clear_way(side, &path)? {
                return Ok(Folded::Left(held));
            }
            made = side.folders.make(Some(&path));
        }
        let folder = made.map_err(failed)?;
        let directory = folder.directory();
        if side.destination.sweep(&**directory, true) {
            // Another source may have a directory of this name too, and need what is there.
            lock(&side.unswept).push(path.clone());
        }
        if self.settings.asks {
            // Else it was made by this copy, and nothing in it is old.
            self.expire_leftovers(&**directory);
        }
        let made = side.folders.take_made(&path);
        let finish = || side.destination.finish_folder(&**directory, entry, made);
        let set = side.destination.while_owned(finish);
        let changed = set
            .map_err(|error| journal_failure(&shown, &error))?
            .map_err(failed)?;
        let mended = side.take_differing_directory(entry) && changed;
        let synced = folder.sync().and_then(|()| side.ensure_up(&folder));
        synced.map_err(failed)?;
        Ok(if made {
            Folded::Done
        } else if mended {
            Folded::Mended
        } else {
            Folded::There
        })
    }

    /// Removes what killed copies left long ago in a directory. What is held, or
    /// cannot be removed, stays, and is found by `longhaul clean`.
    fn expire_leftovers(&self, directory: &dyn Directory) {
        let Some(age) = self.settings.expiry else {
            return;
        };
        let mut expired = 0;
        let mut count = |_: &[u8], removed: io::Result<u64>| {
            expired += u64::from(removed.is_ok());
        };
        let age = age.max(LEAST_EXPIRY);
        let _ = expire(directory, age, file_time_now(), EXPIRY_NAMES, &mut count);
        if expired > 0 {
            self.tell_receiver(|receiver| receiver.handle_expired(expired));
        }
    }

    /// Whether an entry failed so far.
    fn have_failed(&self) -> bool {
        let failed = self.tell_receiver(|receiver| receiver.has_failed());
        failed.unwrap_or_default()
    }

    fn finish(&self, side: &ReceiveSide) -> io::Result<()> {
        if side.destination.is_sink || !self.copies() {
            return Ok(());
        }
        let anchor = side.folders.anchor().directory();
        let failed = self.have_failed();
        let stays = if self.settings.asks {
            side.destination.sweep_always(&**anchor, failed)
        } else {
            side.destination.sweep(&**anchor, failed)
        };
        if stays {
            side.parts.note_left_behind();
        }
        let unswept = std::mem::take(&mut *lock(&side.unswept));
        for path in unswept {
            if failed || sweep_late(side, &path).is_err() {
                side.parts.note_left_behind();
            }
        }
        self.expire_leftovers(&**anchor);
        if !side.folders.have_failed() && !side.parts.have_left_behind() {
            // Else there is something left, or what was removed may come back:
            // the next session finds by this one whose it is.
            side.destination.give_up();
        } else {
            let done = [
                &self.counters.done_entries,
                &self.counters.skipped_entries,
                &self.counters.failed_entries,
            ];
            let done = done.iter().map(|count| count.load(Ordering::Relaxed));
            side.destination.bound_kept_digests(done.sum());
        }
        self.finish_anchor(side)?;
        // If entries failed, they say how the copy ended, and the anchor stays closed.
        self.open_anchor(side)
            .or_else(|error| if failed { Ok(()) } else { Err(error) })?;
        side.sync_mended()?;
        side.folders.anchor().sync()
    }

    /// The destination gets its own mode and time once nothing more is done in it.
    fn finish_anchor(&self, side: &ReceiveSide) -> io::Result<()> {
        let destination = &side.destination;
        if !destination.keeper.keeping().anchor || destination.rename.is_some() {
            return Ok(());
        }
        let state = self.tell_receiver(|receiver| receiver.anchor().cloned());
        let Some(state) = state.flatten().filter(|state| !state.is_limit) else {
            return Ok(());
        };
        let anchor = side.folders.anchor().directory();
        let set = destination.while_owned(|| destination.finish_anchor(&**anchor, &state));
        // One that a later session fenced changes nothing.
        set.unwrap_or(Ok(()))
    }

    /// The destination, if this copy made it, gets the mode that a new directory has there.
    fn open_anchor(&self, side: &ReceiveSide) -> io::Result<()> {
        let destination = &side.destination;
        let state = self.tell_receiver(|receiver| receiver.anchor().cloned());
        let filling = state.flatten().map(|state| state.mode);
        let anchor = side.folders.anchor().directory();
        let set = destination.while_owned(|| destination.open_anchor(&**anchor, filling));
        // One that a later session fenced changes nothing.
        set.unwrap_or(Ok(()))
    }
}

/// Nobody has use any more for what earlier sessions left in a directory, which is done.
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
    // One that a later session fenced changes nothing.
    restored.unwrap_or(Ok(()))?;
    folder.sync()
}

/// A file is made before it is locked, and a link never is: what is younger may be a living
/// session's, however young leftovers may be.
const LEAST_EXPIRY: Duration = Duration::from_secs(1);

/// Names looked at for expired leftovers in one directory, so that a single
/// file is not held up by a directory of millions.
const EXPIRY_NAMES: u64 = 100_000;

/// Data, then journal; what comes back without a failure is durable.
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
        // Directories that were just made may be lost with what is in them.
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

/// Keeps what those replace that have not failed before; whose it is.
fn keep_replaced(
    (transfer, side): (&Transfer, &ReceiveSide),
    staged: &[Staged],
    results: &mut [Result<(), Failure>],
) -> BTreeMap<usize, Kept> {
    let mut all = BTreeMap::new();
    if side.destination.backups.is_none() {
        return all;
    }
    let places = (0..staged.len()).filter(|place| results[*place].is_ok());
    let places: Vec<usize> = places.collect();
    let file = |place: &usize| &staged[*place].file;
    let names = places.iter().map(file);
    let names: Vec<_> = names.map(|file| (&file.folder, &file.name)).collect();
    for (place, kept) in places.iter().zip(side.keep_replaced(transfer, &names)) {
        match kept {
            Ok(kept) => all.extend(kept.map(|kept| (*place, kept))),
            Err(failure) => results[*place] = Err(failure),
        }
    }
    all
}

/// Gives each its name that has not failed before. Where that takes long, as over a network,
/// directories are done at once; in one the kernel gives names one after the other.
fn rename_all(
    side: &ReceiveSide,
    (staged, kept): (&[Staged], &BTreeMap<usize, Kept>),
    results: &mut [Result<(), Failure>],
) {
    let pace = &side.renames;
    let left = (0..staged.len()).filter(|place| results[*place].is_ok());
    let folders = by_folder(staged, left);
    let rename = |places: &Vec<usize>| -> Vec<Result<(), Failure>> {
        let renamed = places.iter();
        renamed
            .map(|place| pace.time(|| rename_over(side, &staged[*place], kept.get(place))))
            .collect()
    };
    let renamed = each(&folders, pace.is_slow(), rename);
    for (places, renamed) in folders.into_iter().zip(renamed) {
        for (place, renamed) in places.into_iter().zip(renamed) {
            results[place] = renamed;
        }
    }
}

/// Gives one its name, for which what is there may have to make way.
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
            // A link has no lock: whoever removes leftovers at once may have taken it for one.
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
            // It looks as old as what it is a name of.
            renamed =
                super::links::make(side, target, (&**directory, temporary)).and_then(|()| rename());
        }
        // Where the name was that of the same inode meanwhile, nothing was renamed.
        let _ = directory.remove_file(temporary);
    }
    renamed.map_err(|error| failure_of("write", &staged.entry.path.to_string(), &error))
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// For a later session of this copy that is asked for a manifest.
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

/// Removes the temporaries of what failed. What remains is found by `clean`.
fn remove_failed(staged: &[Staged], results: &[Result<(), Failure>]) {
    for (staged, _) in staged.iter().zip(results).filter(|(_, r)| r.is_err()) {
        let StagedFile {
            folder, temporary, ..
        } = &staged.file;
        let _ = folder.directory().remove_file(temporary);
    }
}

/// Makes the names of a batch durable, each directory once: one after the other on a disk, where
/// the first sync does the others' work too; at once where names are `far` away.
/// Gives one entry of each that failed.
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

/// Makes links, special files and further names of a batch durable: without a journal the sync of
/// their directory leaves out their inodes. Each file system is synced once. Gives one entry of
/// each that failed.
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

/// Some of a batch by the directory that they are in, in the order met.
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

/// Reads a file back, past the cache where the system allows, and compares
/// its digest.
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
    // A file that ends early is as wrong as one that reads otherwise.
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
