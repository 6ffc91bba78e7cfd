//! Small files that were written and wait for their sync. They are gathered over many packs,
//! because a disk syncs a thousand files at the cost of a few.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_system::queue::lock;
use longhaul_system::seats::Seat;

use super::commit::Staged;

/// Maximum number of waiting files, independent of the system's limits. A killed copy can lose them
/// in addition to data in transit (SEMANTICS: 5,000 in all).
const MOST_STAGED: usize = 1024;

/// Divisor of this process's descriptor limit for staged files of all its sessions: sockets and
/// directories share the rest. Files that are written directly use two descriptors each.
const PART_OF_OPEN_FILES: usize = 8;

/// Minimum number of staged files of a session: one is written while the other is committed.
const LEAST_STAGED: usize = 2;

/// Longest time that a file waits for others while more data is written.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Files between writing and sync.
pub(crate) struct Staging {
    state: Mutex<State>,
    /// Signals that there may be files to commit.
    filled: Condvar,
    /// Signals that there may be room for files.
    emptied: Condvar,
    /// Maximum number of open files, limited by the session's share.
    most: usize,
    seat: Arc<Seat>,
    /// Longest time that a file waits for others while more data is written.
    longest: Duration,
}

#[derive(Default)]
struct State {
    staged: Vec<Staged>,
    /// Time since which the first staged file waits.
    since: Option<Instant>,
    /// Number of files taken and not done.
    committing: usize,
    /// Number of writers that hold a block and may stage more files.
    writing: usize,
    /// Number of writers that wait until no file is staged.
    draining: usize,
    closed: bool,
}

/// Counts a writer that holds a block.
pub(crate) struct Writing<'a>(&'a Staging);

impl Staging {
    /// Creates the staging of a session with this seat.
    pub fn of(seat: Arc<Seat>) -> Staging {
        Staging {
            state: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            most: MOST_STAGED,
            seat,
            longest: LONGEST_WAIT,
        }
    }
}

impl Staging {
    /// Returns the number of files that may be open now: fewer if other sessions have begun.
    fn most(&self) -> usize {
        self.seat.files(PART_OF_OPEN_FILES, LEAST_STAGED, self.most)
    }

    /// Counts a writer until the returned guard is dropped; hold it while a block is written.
    pub fn write(&self) -> Writing<'_> {
        lock(&self.state).writing += 1;
        Writing(self)
    }

    /// Returns the preferred number of files to commit together. The other half of the room serves
    /// writers meanwhile.
    fn batch(&self) -> usize {
        self.most() / 2
    }

    /// Stages a written file. Waits while too many files are staged or being committed.
    pub(super) fn push(&self, staged: Staged) {
        let state = lock(&self.state);
        let full = |state: &mut State| state.staged.len() + state.committing >= self.most();
        let waited = self.emptied.wait_while(state, full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let first = state.since.is_none();
        state.since.get_or_insert_with(Instant::now);
        state.staged.push(staged);
        // The first file starts the timer.
        if first || state.staged.len() >= self.batch() {
            self.filled.notify_one();
        }
    }

    /// Waits for files to commit: a full batch, all files if no writer is active, or all files when
    /// the first one has waited long. Returns `None` once it is closed and empty. Call
    /// [`Staging::done`] afterwards. `more` is true if writers will find more data.
    pub(super) fn take(&self, more: impl Fn() -> bool) -> Option<Vec<Staged>> {
        let mut state = lock(&self.state);
        loop {
            let count = state.staged.len();
            let waited = state.since.map_or(Duration::ZERO, |since| since.elapsed());
            let idle = state.closed || state.draining > 0 || state.writing == 0 && !more();
            if count > 0 && (idle || count >= self.batch() || waited >= self.longest) {
                state.committing += count;
                state.since = None;
                return Some(std::mem::take(&mut state.staged));
            }
            if state.closed {
                return None;
            }
            state = self.wait(state, (count > 0).then(|| self.longest - waited));
        }
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        longest: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match longest {
            Some(longest) => {
                let waited = self.filled.wait_timeout(state, longest);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.filled.wait(state);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        }
    }

    /// Waits until no file is staged, because too many files are open.
    pub(super) fn drain(&self) {
        let mut state = lock(&self.state);
        state.draining += 1;
        self.filled.notify_all();
        let staged = |state: &mut State| !state.staged.is_empty() || state.committing > 0;
        let waited = self.emptied.wait_while(state, staged);
        state = waited.unwrap_or_else(PoisonError::into_inner);
        state.draining -= 1;
    }

    /// Releases `count` files that were committed or failed.
    pub fn done(&self, count: usize) {
        lock(&self.state).committing -= count;
        self.emptied.notify_all();
    }

    /// Waits until no writer holds a block.
    pub fn wait_for_writers(&self) {
        let writing = |state: &mut State| state.writing > 0;
        let waited = self.emptied.wait_while(lock(&self.state), writing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends staging after the last writer; staged files are still returned.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.filled.notify_all();
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.writing -= 1;
        if state.writing == 0 {
            self.0.emptied.notify_all();
            if !state.staged.is_empty() {
                self.0.filled.notify_one();
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::channel;

    use longhaul_proto::manifest::{Entry, EntryId, EntryKind, TreePath};
    use longhaul_storage::forgetting::ForgettingStorage;
    use longhaul_system::seats::Role;

    use super::super::commit::StagedFile;
    use super::super::folders::Folders;
    use super::*;

    /// Returns a staging that does not commit files because of their age.
    fn patient() -> Arc<Staging> {
        Arc::new(Staging {
            longest: Duration::from_secs(3600),
            most: 8,
            ..Staging::of(Arc::new(Seat::take(Role::Receiving, "staging")))
        })
    }

    fn staged(folders: &Folders) -> Staged {
        let path = TreePath::new(b"file").unwrap();
        Staged {
            entry: Entry {
                id: EntryId(0),
                parent: None,
                path: path.clone(),
                kind: EntryKind::Directory,
                mode: 0o644,
                modified: Default::default(),
                owner: None,
            },
            file: StagedFile {
                folder: Arc::clone(folders.anchor()),
                temporary: Box::default(),
                name: path,
                file: None,
            },
            digest: None,
        }
    }

    /// If a writer cannot open more files, staged files are committed at once, and the writer waits
    /// for that, while other writers continue.
    #[test]
    fn draining_commits_staged_files_and_waits_for_the_commit() {
        let folders = Folders::new(ForgettingStorage::new().root(), Arc::default());
        let staging = patient();
        let _another_writer = staging.write();
        staging.push(staged(&folders));
        staging.push(staged(&folders));
        let (drained, is_drained) = channel();
        let draining = Arc::clone(&staging);
        let writer = std::thread::spawn(move || {
            let _writing = draining.write();
            draining.drain();
            drained.send(()).unwrap();
        });
        // The batch is neither full nor old, and a writer is active: only the drain releases it.
        assert_eq!(staging.take(|| true).unwrap().len(), 2);
        assert!(is_drained.try_recv().is_err(), "they are not closed yet");
        staging.done(2);
        is_drained.recv().unwrap();
        writer.join().unwrap();
        assert_eq!(lock(&staging.state).draining, 0);
    }

    #[test]
    fn draining_returns_at_once_without_staged_files() {
        patient().drain();
    }

    #[test]
    fn a_writer_waits_while_as_many_are_open_as_may_be() {
        let folders = Folders::new(ForgettingStorage::new().root(), Arc::default());
        let staging = patient();
        (0..8).for_each(|_| staging.push(staged(&folders)));
        let taken = staging.take(|| true).unwrap().len();
        assert_eq!(taken, 8);
        let (pushed, is_pushed) = channel();
        let pushing = Arc::clone(&staging);
        let writer = std::thread::spawn(move || {
            let folders = Folders::new(ForgettingStorage::new().root(), Arc::default());
            pushing.push(staged(&folders));
            pushed.send(()).unwrap();
        });
        assert!(is_pushed.try_recv().is_err(), "too many are open");
        staging.done(taken);
        is_pushed.recv().unwrap();
        writer.join().unwrap();
        staging.close();
        assert_eq!(staging.take(|| true).unwrap().len(), 1);
        staging.done(1);
        assert!(staging.take(|| true).is_none());
    }
}
