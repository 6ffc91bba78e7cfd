//! What the owner of a partial file can do: say what is durable, give the file
//! its name, or give it up.

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

/// Why the owner of a partial file cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A later session took the file over. This one has lost it: end it.
    #[error("a later run took this file over (this one has epoch {epoch})")]
    Fenced {
        /// The epoch of this owner.
        epoch: u64,
    },
    /// Its journal or its part has its name no more, and no later session is the reason.
    #[error(
        "its directory, or longhaul's files in it ({prefix}*), were removed meanwhile",
        prefix = String::from_utf8_lossy(RESERVED_PREFIX)
    )]
    Removed,
    /// An earlier append failed, so the journal's end is unknown, or the file
    /// was committed or abandoned. A new claim finds everything before that.
    #[error("an earlier failure stopped it; run the same command again")]
    Closed,
    /// A block is no block.
    #[error(transparent)]
    Unfit(#[from] UnfitError),
    /// The storage failed.
    #[error(transparent)]
    Io(#[from] StepError),
}

/// A partial file and its journal, as their owner has them. All threads of a
/// session share one.
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
    /// Held from an append to the end of its sync. The kernel tells a failed
    /// sync to one caller only, so two must not sync one handle at once.
    appending: Mutex<()>,
}

struct State {
    writer: Writer,
    /// The names of both files were synced.
    names_durable: bool,
    /// Holds the part's lock, the sign of life.
    shows_life: bool,
    closed: bool,
}

impl Partial {
    /// `owned` is the epoch, what was recovered, and whether the part's lock
    /// is held.
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
                closed: false,
            }),
            appending: Mutex::new(()),
        })
    }

    /// The same, taken over from these sessions.
    pub(super) fn after(self, former_sessions: Vec<u64>) -> Partial {
        Partial {
            former_sessions,
            ..self
        }
    }

    /// Session numbers of those that owned it before.
    pub fn former_sessions(&self) -> &[u64] {
        &self.former_sessions
    }

    /// This ownership's number: higher than any before it.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What was durable when the file was claimed, in order of offset, none
    /// overlapping another.
    pub fn recovered(&self) -> &[DurableBlock] {
        &self.recovered
    }

    /// As [`Partial::recovered`], and forgets it: it takes 56 bytes a block.
    pub fn take_recovered(&mut self) -> Vec<DurableBlock> {
        std::mem::take(&mut self.recovered)
    }

    /// The partial file. Its lock, which shows that the owner lives, is held
    /// until the last clone is dropped.
    pub fn file(&self) -> &Arc<dyn StoredFile> {
        &self.file
    }

    /// The name of the partial file in its directory.
    pub fn part_name(&self) -> &[u8] {
        &self.part_name
    }

    /// Whether nobody took the file over; one `fstat`. To be asked before each
    /// write, so that a fenced session stops soon; what must not go wrong is
    /// asked again under the gate.
    ///
    /// # Errors
    ///
    /// [`JournalError::Fenced`], or as `fstat`.
    pub fn ensure_owned(&self) -> Result<(), JournalError> {
        self.check(&mut self.state())
    }

    /// As [`Partial::ensure_owned`], and that the journal still has its name. Costs a further
    /// call: to be asked once something failed.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; `Io` where the directory does not answer.
    pub fn ensure_there(&self) -> Result<(), JournalError> {
        let mut state = self.state();
        self.check(&mut state)?;
        let there = name_is(&*self.directory, &self.journal_name, state.writer.inode());
        if there.map_err(doing("looking at the journal's name"))? {
            Ok(())
        } else {
            Err(self.gone(&state))
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
            // The former owner had the lock, and drops it when it sees that it
            // is fenced, or dies.
            let locked = take_lock(&*self.file);
            state.shows_life = locked.map_err(doing("locking the partial file"))?;
        }
        Ok(())
    }

    fn fenced(&self) -> JournalError {
        JournalError::Fenced { epoch: self.epoch }
    }

    /// Does something that only the owner may do, so that no session can take over before it is
    /// done. Threads of one session should take turns before they call this: a thread that finds
    /// the gate taken waits a millisecond.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; nothing was done then.
    pub fn while_owned<T>(&self, what: impl FnOnce() -> T) -> Result<T, JournalError> {
        let _gate = self.enter()?;
        self.check(&mut self.state())?;
        Ok(what())
    }

    /// Makes known that blocks are durable. Only to be called after their data
    /// was written and `file().sync_data()` succeeded. When this returns, they
    /// are found again whatever happens.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; the blocks must not be called durable then. After an
    /// error of the storage the journal is closed.
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
        // Discarded meanwhile, it would not be found again.
        self.ensure_owned()
    }

    /// Before the first record: a journal whose names may vanish keeps nothing.
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
        // Where the storage failed, nobody knows where the journal ends.
        state.closed = matches!(appended, Err(AppendError::Io(_)));
        appended.map_err(appending::<JournalError>("writing the journal"))?;
        Ok(state.writer.file().clone())
    }

    /// Lets `finish` give the file its mode and time, and makes it durable as it is.
    /// Only to be called when the whole file is written and verified.
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

    /// Removes the partial file and its journal, for a source that changed or
    /// vanished. Not synced: a crash may bring both back, and the next claim
    /// or `longhaul clean` deals with them.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; a fenced owner removes nothing.
    pub fn abandon(&self) -> Result<(), JournalError> {
        let _gate = self.enter()?;
        let mut state = self.state();
        self.check(&mut state)?;
        state.closed = true;
        for name in [&self.part_name, &self.journal_name] {
            remove_if_there(&*self.directory, name).map_err(doing("removing the partial file"))?;
        }
        Ok(())
    }

    fn enter(&self) -> Result<Gate, JournalError> {
        let gate = Gate::enter(&*self.directory, &self.journal_name, Entering::MustExist);
        let gate = match gate {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.gone(&self.state()));
            }
            other => other.map_err(doing("waiting for the journal"))?,
        };
        let state = self.state();
        if gate.inode() == state.writer.inode() {
            Ok(gate)
        } else {
            Err(self.gone(&state))
        }
    }

    /// The journal has no name any more: removed by this owner, by a later one, or by somebody
    /// who owns nothing. A later owner appends before it removes anything, which shows in the
    /// file even without its name.
    fn gone(&self, state: &State) -> JournalError {
        match (state.closed, state.writer.is_last()) {
            (true, _) => JournalError::Closed,
            (false, Ok(false)) => self.fenced(),
            (false, _) => JournalError::Removed,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whatever panicked left no step half done that a check would not see.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that lacks nothing but its name.
#[must_use = "the file has its name after `commit`"]
pub struct Finalised<'a>(&'a Partial);

impl Finalised<'_> {
    /// Gives the file its name, replacing what has the name. The name is durable after the
    /// directory's sync, and one sync may serve many files; then the caller calls
    /// [`Committed::finish`].
    ///
    /// # Errors
    ///
    /// [`JournalError`]. The final name has what it had before, unless it is
    /// the storage that failed in the rename itself.
    pub fn commit(self, final_name: &[u8]) -> Result<Committed, JournalError> {
        let Finalised(partial) = self;
        let _gate = partial.enter()?;
        let mut state = partial.state();
        partial.check(&mut state)?;
        let directory = &*partial.directory;
        let named = name_is(directory, &partial.part_name, partial.file_inode);
        if !named.map_err(doing("looking at the partial file's name"))? {
            return Err(partial.gone(&state));
        }
        let renamed = directory.rename(&partial.part_name, directory, final_name);
        let refused = |error: &io::Error| OtherSpelling::within(error).is_some();
        // Nothing was done where the name is another's; else nobody knows.
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

/// A file that has its final name, which is not yet durable.
#[must_use = "the journal stays until `finish`, to be called after the directory's sync"]
pub struct Committed {
    directory: Arc<dyn Directory>,
    journal_name: Box<[u8]>,
    /// Keeps the inode's number from being another's.
    journal: Arc<dyn StoredFile>,
    journal_inode: u64,
}

impl Committed {
    /// Removes the journal. Only to be called after a sync of the directory
    /// succeeded: a crash that undoes the rename needs the journal. Dropping
    /// this instead is safe, and leaves the journal for `longhaul clean`.
    ///
    /// # Errors
    ///
    /// As the storage reports; the file is committed nevertheless.
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
        // It may be that of the next copy to this name.
        if gate.inode() == journal_inode {
            remove_if_there(&*directory, &journal_name)?;
        }
        drop(journal);
        Ok(())
    }

    /// For a file on its own: syncs the directory, then finishes.
    ///
    /// # Errors
    ///
    /// As the storage reports. After a failed sync the journal stays.
    pub fn sync_and_finish(self) -> io::Result<()> {
        self.directory.sync()?;
        self.finish()
    }
}

/// Removes a file, and is content where there is none.
pub(super) fn remove_if_there(directory: &dyn Directory, name: &[u8]) -> io::Result<()> {
    match directory.remove_file(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
