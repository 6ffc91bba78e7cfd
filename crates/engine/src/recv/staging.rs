//! Small files that were written and wait for their sync: gathered over many
//! packs, because a disk commits a thousand at the price of a few.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_system::queue::lock;
use longhaul_system::shares::Seat;

use super::commit::Staged;

/// Files that wait at most, whatever the system allows: a quarter is at stake
/// when a copy is killed, beside what is on its way (SEMANTICS: 5,000 in all).
const MOST_STAGED: usize = 1024;

/// The part of the files that this process may have open that its sessions may have staged, all
/// together: they share the others with sockets and directories. Those that are written
/// directly have two each.
const PART_OF_OPEN_FILES: usize = 8;

/// Of one session at least: one is written while the other is committed.
const LEAST_STAGED: usize = 2;

/// How long a file waits for others while there is more to write.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Files between writing and sync.
pub(crate) struct Staging {
    state: Mutex<State>,
    /// There may be something to commit.
    filled: Condvar,
    /// There may be room again.
    emptied: Condvar,
    /// Open files, and the session's share of them.
    most: usize,
    seat: Arc<Seat>,
    /// How long a file waits for others while there is more to write.
    longest: Duration,
}

#[derive(Default)]
struct State {
    staged: Vec<Staged>,
    /// Since when the first of them waits.
    since: Option<Instant>,
    /// Taken and not done.
    committing: usize,
    /// Writers that have a block in hand, and may stage more.
    writing: usize,
    /// Of these, those that wait until nothing is staged.
    draining: usize,
    closed: bool,
}

/// A writer has a block in hand.
pub(crate) struct Writing<'a>(&'a Staging);

impl Staging {
    /// Of a session that has this seat.
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
    /// Files that may be open now: fewer when other sessions have begun.
    fn most(&self) -> usize {
        self.seat.files(PART_OF_OPEN_FILES, LEAST_STAGED, self.most)
    }

    /// To be held while a block is written.
    pub fn write(&self) -> Writing<'_> {
        lock(&self.state).writing += 1;
        Writing(self)
    }

    /// Files to be committed together at best: there is room for as many more
    /// while they are.
    fn batch(&self) -> usize {
        self.most() / 2
    }

    /// A file was written. Waits while too many wait for their sync.
    pub(super) fn push(&self, staged: Staged) {
        let state = lock(&self.state);
        let full = |state: &mut State| state.staged.len() + state.committing >= self.most();
        let waited = self.emptied.wait_while(state, full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let first = state.since.is_none();
        state.since.get_or_insert_with(Instant::now);
        state.staged.push(staged);
        // The first one starts the clock.
        if first || state.staged.len() >= self.batch() {
            self.filled.notify_one();
        }
    }

    /// Waits for files to commit: enough of them, or all there are when nobody
    /// writes more, or the first has waited long; none once it is closed and
    /// empty. To be followed by [`Staging::done`]. `more` says whether writers
    /// will find more to write.
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

    /// Waits until nothing is staged: too many files are open.
    pub(super) fn drain(&self) {
        let mut state = lock(&self.state);
        state.draining += 1;
        self.filled.notify_all();
        let staged = |state: &mut State| !state.staged.is_empty() || state.committing > 0;
        let waited = self.emptied.wait_while(state, staged);
        state = waited.unwrap_or_else(PoisonError::into_inner);
        state.draining -= 1;
    }

    /// This many are committed, or failed.
    pub fn done(&self, count: usize) {
        lock(&self.state).committing -= count;
        self.emptied.notify_all();
    }

    /// Waits until nobody has a block in hand.
    pub fn wait_for_writers(&self) {
        let writing = |state: &mut State| state.writing > 0;
        let waited = self.emptied.wait_while(lock(&self.state), writing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Nobody writes any more: what is there is still given out.
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
    use longhaul_system::shares::Role;

    use super::super::commit::StagedFile;
    use super::super::folders::Folders;
    use super::*;

    /// In which nothing is committed for its age.
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

    /// A writer that may open no more files, while others continue to write: what is staged is
    /// committed at once, and the writer waits until it is.
    #[test]
    fn draining_commits_what_is_staged_and_waits_for_it() {
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
        // Neither a batch, nor old, nor the last: only the drain gives it out.
        assert_eq!(staging.take(|| true).unwrap().len(), 2);
        assert!(is_drained.try_recv().is_err(), "they are not closed yet");
        staging.done(2);
        is_drained.recv().unwrap();
        writer.join().unwrap();
        assert_eq!(lock(&staging.state).draining, 0);
    }

    #[test]
    fn draining_waits_for_nothing_where_nothing_is_staged() {
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
