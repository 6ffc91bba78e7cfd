//! Operations of the owner of a partial file: record durable blocks, give the file its name, or
//! discard it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_proto::manifest::RESERVED_PREFIX;

use longhaul_proto::ledger::DurableBlock;

use super::doing::{StepError, appending, doing};
use super::entry::{Entry, UnfitError};
use super::gate::{Entering, Gate, name_is, take_lock};
use super::writer::{AppendError, Writer};
use crate::spelling::OtherSpelling;
use crate::{Directory, StoredFile};

/// Reasons why the owner of a partial file cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A later session took the file over. This session has lost it and must stop.
    #[error("a later run took this file over (this one has epoch {epoch})")]
    Fenced {
        /// The epoch of this owner.
        epoch: u64,
    },
    /// The journal or the part no longer has its name, and no later session is the cause.
    #[error(
        "its directory, or longhaul's files in it ({prefix}*), were removed meanwhile",
        prefix = String::from_utf8_lossy(RESERVED_PREFIX)
    )]
    Removed,
    /// An earlier append failed, so the end of the journal is unknown, or the file was committed or
    /// abandoned. A new claim finds all earlier blocks.
    #[error("an earlier failure stopped it; run the same command again")]
    Closed,
    /// A block is invalid.
    #[error(transparent)]
    Unfit(#[from] UnfitError),
    /// The storage failed.
    #[error(transparent)]
    Io(#[from] StepError),
}

/// A partial file and its journal, held by their owner. All threads of a session share one.
pub struct Partial {
    directory: Arc<dyn Directory>,
    file: Arc<dyn StoredFile>,
    file_inode: u64,
    part_name: Box<[u8]>,
    journal_name: Box<[u8]>,
    epoch: u64,
    recovered: Vec<DurableBlock>,
    former_sessions: Vec<u64>,
    state: Mutex<State>,
    /// Held from an append to the end of its sync. The kernel reports a failed sync to one caller
    /// only, so two threads must not sync one handle at the same time.
    appending: Mutex<()>,
}

struct State {
    writer: Writer,
    /// True once the names of both files were synced.
    names_durable: bool,
    /// True while this owner holds the part's lock, which shows that it is alive.
    shows_life: bool,
    /// True if other owners write other ranges of the file. They share its lock.
    shared: bool,
    closed: bool,
}

impl Partial {
    /// Creates it. `owned` holds the epoch, the recovered blocks, and true if the part's lock is
    /// held.
    pub(super) fn new(
        directory: Arc<dyn Directory>,
        writer: Writer,
        file: Arc<dyn StoredFile>,
        part_name: Box<[u8]>,
        owned: (u64, Vec<DurableBlock>, bool),
    ) -> io::Result<Partial> {
        let (epoch, recovered, shows_life) = owned;
        Ok(Partial {
            directory,
            file_inode: file.status()?.inode,
            file,
            part_name,
            journal_name: writer.key().journal(),
            epoch,
            recovered,
            former_sessions: Vec::new(),
            state: Mutex::new(State {
                writer,
                names_durable: false,
                shows_life,
                shared: false,
                closed: false,
            }),
            appending: Mutex::new(()),
        })
    }

    /// Marks the file as shared with other owners.
    pub(super) fn shared(self) -> Partial {
        self.state().shared = true;
        self
    }

    /// Sets the sessions from which the file was taken over.
    pub(super) fn after(self, former_sessions: Vec<u64>) -> Partial {
        Partial {
            former_sessions,
            ..self
        }
    }

    /// Returns the numbers of the sessions that owned the file before.
    pub fn former_sessions(&self) -> &[u64] {
        &self.former_sessions
    }

    /// Returns the number of this ownership. It is higher than all before it.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the blocks that were durable when the file was claimed, in order of offset and
    /// without overlaps.
    pub fn recovered(&self) -> &[DurableBlock] {
        &self.recovered
    }

    /// Returns [`Partial::recovered`] and frees its memory, which is 56 bytes a block.
    pub fn take_recovered(&mut self) -> Vec<DurableBlock> {
        std::mem::take(&mut self.recovered)
    }

    /// Returns the partial file. Its lock, which shows that the owner is alive, is held until the
    /// last clone is dropped.
    pub fn file(&self) -> &Arc<dyn StoredFile> {
        &self.file
    }

    /// Returns the name of the partial file in its directory.
    pub fn part_name(&self) -> &[u8] {
        &self.part_name
    }

    /// Checks with one `fstat` that no other session has taken the file over. Called before each
    /// write, so that a fenced session stops soon. Critical steps check again under the gate.
    ///
    /// # Errors
    ///
    /// [`JournalError::Fenced`], or the errors of `fstat`.
    pub fn ensure_owned(&self) -> Result<(), JournalError> {
        self.check(&mut self.state())
    }

    /// Checks as [`Partial::ensure_owned`] does, and that the journal still has its name. Needs one
    /// more system call, so it is meant for use after a failure.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; `Io` if the directory cannot be read.
    pub fn ensure_there(&self) -> Result<(), JournalError> {
        let mut state = self.state();
        self.check(&mut state)?;
        let there = name_is(&*self.directory, &self.journal_name, state.writer.inode());
        if there.map_err(doing("looking at the journal's name"))? {
            Ok(())
        } else {
            Err(self.gone(&mut state))
        }
    }

    fn check(&self, state: &mut State) -> Result<(), JournalError> {
        if state.closed {
            return Err(JournalError::Closed);
        }
        let last = state.writer.is_last();
        if !last.map_err(doing("reading the journal's status"))? {
            return Err(self.fenced());
        }
        if !state.shows_life {
            // The former owner had the lock. It releases the lock when it finds that it is fenced,
            // or dies.
            let locked = take_lock(&*self.file);
            state.shows_life = locked.map_err(doing("locking the partial file"))?;
        }
        Ok(())
    }

    fn fenced(&self) -> JournalError {
        JournalError::Fenced { epoch: self.epoch }
    }

    /// Runs `what`, which only the owner may do. No other session can take over before it ends.
    /// Threads of one session should serialise their calls: a thread that finds the gate locked
    /// waits a millisecond.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; `what` was not run then.
    pub fn while_owned<T>(&self, what: impl FnOnce() -> T) -> Result<T, JournalError> {
        let _gate = self.enter()?;
        self.check(&mut self.state())?;
        Ok(what())
    }

    /// Records that blocks are durable. Call this only after their data was written and
    /// `file().sync_data()` succeeded. When this returns, every later claim finds the blocks, even
    /// after a crash.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; the blocks must not be reported as durable then. After an error of the
    /// storage, the journal is closed.
    pub fn append_durable(&self, blocks: &[DurableBlock]) -> Result<(), JournalError> {
        let _turn = self
            .appending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.make_names_durable()?;
        let journal = self.append(blocks)?;
        if let Err(error) = journal.sync_data() {
            self.state().closed = true;
            return Err(doing("syncing the journal")(error).into());
        }
        // If the journal was discarded in the meantime, the blocks would be lost.
        self.ensure_owned()
    }

    /// Syncs the names before the first record: a journal whose name is lost is useless.
    fn make_names_durable(&self) -> Result<(), JournalError> {
        if self.state().names_durable {
            return self.ensure_owned();
        }
        self.ensure_owned()?;
        let synced = self.directory.sync();
        synced.map_err(doing("syncing the directory"))?;
        self.state().names_durable = true;
        Ok(())
    }

    fn append(&self, blocks: &[DurableBlock]) -> Result<Arc<dyn StoredFile>, JournalError> {
        let _gate = self.enter()?;
        let mut state = self.state();
        self.check(&mut state)?;
        let entries = blocks.iter().copied().map(Entry::Durable);
        let appended = state.writer.append(entries);
        // After a failure of the storage, the end of the journal is unknown.
        state.closed = matches!(appended, Err(AppendError::Io(_)));
        appended.map_err(appending::<JournalError>("writing the journal"))?;
        Ok(state.writer.file().clone())
    }

    /// Lets `finish` set the file's mode and times, and syncs the file. Call this only when the
    /// whole file is written and verified.
    ///
    /// # Errors
    ///
    /// [`JournalError`].
    pub fn finalise(
        &self,
        finish: impl FnOnce(&dyn StoredFile) -> io::Result<()>,
    ) -> Result<Finalised<'_>, JournalError> {
        self.ensure_owned()?;
        finish(&*self.file).map_err(doing("setting the file's mode and time"))?;
        let synced = self.file.sync_all();
        synced.map_err(doing("syncing the file before it gets its name"))?;
        Ok(Finalised(self))
    }

    /// Removes the partial file and its journal, if the source changed or vanished. The removal is
    /// not synced. A crash may restore both files, and the next claim or `longhaul clean` handles
    /// them. A file that others share stays.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; a fenced owner removes no files.
    pub fn abandon(&self) -> Result<(), JournalError> {
        let _gate = self.enter()?;
        let mut state = self.state();
        self.check(&mut state)?;
        state.closed = true;
        if state.shared {
            return Ok(());
        }
        for name in [&self.part_name, &self.journal_name] {
            remove_if_there(&*self.directory, name).map_err(doing("removing the partial file"))?;
        }
        Ok(())
    }

    fn enter(&self) -> Result<Gate, JournalError> {
        let gate = Gate::enter(&*self.directory, &self.journal_name, Entering::MustExist);
        let gate = match gate {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.gone(&mut self.state()));
            }
            other => other.map_err(doing("waiting for the journal"))?,
        };
        let mut state = self.state();
        if gate.inode() == state.writer.inode() {
            Ok(gate)
        } else {
            Err(self.gone(&mut state))
        }
    }

    /// Returns the error for a journal that lost its name. It was removed by this owner, by a later
    /// one, or by an unrelated process. A later owner appends to the journal before it removes
    /// anything, which is visible in the open file.
    fn gone(&self, state: &mut State) -> JournalError {
        match (state.closed, state.writer.is_last()) {
            (true, _) => JournalError::Closed,
            (false, Ok(false)) => self.fenced(),
            (false, _) => JournalError::Removed,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state inconsistent in a way that the checks would miss.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A complete file that lacks only its final name.
#[must_use = "the file has its name after `commit`"]
pub struct Finalised<'a>(&'a Partial);

impl Finalised<'_> {
    /// Gives the file its name, and replaces an existing file. The name is durable after a sync of
    /// the directory, which can serve many files. The caller then calls [`Committed::finish`].
    ///
    /// # Errors
    ///
    /// [`JournalError`]. The final name is unchanged, unless the rename itself failed in the
    /// storage.
    pub fn commit(self, final_name: &[u8]) -> Result<Committed, JournalError> {
        let Finalised(partial) = self;
        let _gate = partial.enter()?;
        let mut state = partial.state();
        partial.check(&mut state)?;
        let directory = &*partial.directory;
        let named = name_is(directory, &partial.part_name, partial.file_inode);
        if !named.map_err(doing("looking at the partial file's name"))? {
            return Err(partial.gone(&mut state));
        }
        let renamed = directory.rename(&partial.part_name, directory, final_name);
        let refused = |error: &io::Error| OtherSpelling::within(error).is_some();
        // A name conflict changes nothing. After any other error, the state of the names is
        // unknown.
        state.closed = !renamed.as_ref().is_err_and(refused);
        renamed.map_err(doing("giving the file its name"))?;
        Ok(Committed {
            directory: partial.directory.clone(),
            journal_name: partial.journal_name.clone(),
            journal: state.writer.file().clone(),
            journal_inode: state.writer.inode(),
        })
    }
}

/// A file with its final name, which is not durable yet.
#[must_use = "the journal stays until `finish`, to be called after the directory's sync"]
pub struct Committed {
    directory: Arc<dyn Directory>,
    journal_name: Box<[u8]>,
    /// Kept open so that the inode number is not reused.
    journal: Arc<dyn StoredFile>,
    journal_inode: u64,
}

impl Committed {
    /// Removes the journal. Call this only after a successful sync of the directory: a crash that
    /// undoes the rename needs the journal. Dropping the value instead is safe, and leaves the
    /// journal for `longhaul clean`.
    ///
    /// # Errors
    ///
    /// The errors of the storage. The file is committed nevertheless.
    pub fn finish(self) -> io::Result<()> {
        let Committed {
            directory,
            journal_name,
            journal,
            journal_inode,
        } = self;
        let gate = match Gate::enter(&*directory, &journal_name, Entering::MustExist) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        // The name may belong to the journal of the next copy.
        if gate.inode() == journal_inode {
            remove_if_there(&*directory, &journal_name)?;
        }
        drop(journal);
        Ok(())
    }

    /// Syncs the directory, then finishes. Meant for a single file.
    ///
    /// # Errors
    ///
    /// The errors of the storage. After a failed sync, the journal stays.
    pub fn sync_and_finish(self) -> io::Result<()> {
        self.directory.sync()?;
        self.finish()
    }
}

/// Removes a file. Succeeds if it does not exist.
pub(super) fn remove_if_there(directory: &dyn Directory, name: &[u8]) -> io::Result<()> {
    match directory.remove_file(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
