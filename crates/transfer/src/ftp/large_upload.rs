//! A large file that is being stored. A session of its own sends the data as they are written. A
//! sync ends the transfer and compares what was stored since the last one.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use longhaul_gridftp::Error;
use longhaul_gridftp::checksum::Checksum;
use longhaul_gridftp::protocol::features::ChecksumKind;
use longhaul_gridftp::session::Session;
use longhaul_gridftp::store::Pieces;
use longhaul_proto::manifest::Timestamp;
use longhaul_storage::{Advice, DataMode, DataRange, Status, StoredFile};
use longhaul_system::queue::lock;
use rustix::io::Errno;

use super::as_io;
use super::file::read_directly;
use super::stored_facts::{Facts, OTHER_CHECKSUM, check};
use super::uploads::Uploads;

/// A large file that is being stored.
pub struct LargeUpload {
    uploads: Arc<Uploads>,
    state: Mutex<State>,
    /// Checksums of the data since the last sync. Locked after `state`.
    runs: Mutex<Runs>,
    /// Held during a sync.
    syncing: Mutex<()>,
    /// Signals that the transfer of a sync has ended.
    ended: Condvar,
}

struct State {
    facts: Facts,
    /// End of the data that the server has or gets.
    end: u64,
    /// True if the server has data of the file.
    exists: bool,
    /// True if the server has or gets the first byte.
    has_start: bool,
    transfer: Option<Transfer>,
    /// True while a sync ends a transfer. The next one must begin after it: the first transfer
    /// empties the file.
    is_ending: bool,
    /// Session of the last transfer.
    session: Option<Session>,
    /// Description of the error that lost data.
    failed: Option<String>,
}

/// A transfer that is running.
struct Transfer {
    pieces: Arc<Pieces>,
    thread: JoinHandle<(Option<Session>, Result<(), Error>)>,
}

/// Checksums of ranges.
#[derive(Default)]
struct Runs {
    /// Start and checksum of each range, by its end.
    by_end: BTreeMap<u64, (u64, Checksum)>,
}

impl Runs {
    /// Adds data that follow a range, or begin a new one. Ranges that they replace are forgotten.
    fn add(&mut self, kind: ChecksumKind, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let before = self.by_end.remove(&offset);
        self.by_end
            .retain(|its_end, (its_start, _)| *its_end <= offset || end <= *its_start);
        let (start, mut checksum) = before.unwrap_or_else(|| (offset, Checksum::new(kind)));
        checksum.update(data);
        self.by_end.insert(end, (start, checksum));
    }
}

impl Drop for LargeUpload {
    fn drop(&mut self) {
        if let Some(session) = lock(&self.state).session.take() {
            self.uploads.sessions().keep_for_file(session);
        }
    }
}

impl LargeUpload {
    /// Describes a file of which the server has the first bytes, up to the size in `facts`.
    pub fn new(uploads: Arc<Uploads>, facts: Facts) -> Arc<LargeUpload> {
        Arc::new(LargeUpload {
            uploads,
            state: Mutex::new(State {
                end: facts.size,
                exists: facts.size > 0,
                has_start: facts.size > 0,
                facts,
                transfer: None,
                is_ending: false,
                session: None,
                failed: None,
            }),
            runs: Mutex::default(),
            syncing: Mutex::default(),
            ended: Condvar::new(),
        })
    }

    pub fn facts(&self) -> Facts {
        lock(&self.state).facts.clone()
    }

    /// Gives the file its final path.
    pub fn name(&self, path: Vec<u8>) {
        let mut state = lock(&self.state);
        state.facts.path = path;
        state.facts.inode = None;
    }

    /// Ends the transfer without its result, because the file is removed.
    pub fn abandon(&self) {
        let mut state = lock(&self.state);
        state.failed = Some("the file was removed".to_owned());
        if let Some(transfer) = state.transfer.take() {
            transfer.pieces.close();
            transfer.pieces.end();
            drop(state);
            // The server must not create the file again after its removal.
            let _ = transfer.thread.join();
        }
    }

    /// Returns the pieces of the transfer that is running, or starts one.
    fn pieces(&self) -> io::Result<Arc<Pieces>> {
        let mut state = lock(&self.state);
        while state.is_ending {
            let waited = self.ended.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(text) = &state.failed {
            return Err(io::Error::other(text.clone()));
        }
        if let Some(transfer) = &state.transfer {
            return Ok(Arc::clone(&transfer.pieces));
        }
        let pieces = Arc::new(Pieces::new()?);
        let (sent, kept) = (Arc::clone(&pieces), state.session.take());
        let (path, is_new) = (state.facts.path.clone(), !state.exists);
        let uploads = Arc::clone(&self.uploads);
        let thread = std::thread::Builder::new().name("ftp".to_owned());
        let thread = thread.spawn(move || store(&uploads, kept, (&path, is_new), &sent))?;
        state.exists = true;
        let taken = Arc::clone(&pieces);
        state.transfer = Some(Transfer { pieces, thread });
        Ok(taken)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        loop {
            let pieces = self.pieces()?;
            if pieces.push(offset, data.to_vec()) {
                break;
            }
            let state = lock(&self.state);
            let is_running = |transfer: &Transfer| Arc::ptr_eq(&transfer.pieces, &pieces);
            if state.transfer.as_ref().is_some_and(is_running) {
                drop(state);
                // The transfer failed. A sync tells the reason.
                self.sync()?;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        let end = offset + data.len() as u64;
        let mut state = lock(&self.state);
        state.end = state.end.max(end);
        state.has_start |= offset == 0;
        state.facts.size = state.facts.size.max(end);
        drop(state);
        if let Some(kind) = self.uploads.sessions().checksum() {
            lock(&self.runs).add(kind, offset, data);
        }
        Ok(())
    }

    /// Ends the transfer, and compares what was stored with its checksums.
    fn sync(&self) -> io::Result<()> {
        let _turn = lock(&self.syncing);
        let mut state = lock(&self.state);
        let stores_in_order = self.uploads.sessions().stores_in_order();
        if stores_in_order && !state.has_start && state.failed.is_none() {
            // The transfer waits for the first byte, and keeps all data. If this process ends
            // before, the file at the server is empty, and its size shows that they are missing.
            return Ok(());
        }
        let transfer = state.transfer.take();
        if let Some(transfer) = &transfer {
            transfer.pieces.end();
            state.is_ending = true;
        }
        let runs = std::mem::take(&mut *lock(&self.runs));
        drop(state);
        let mut result = Ok(());
        if let Some(transfer) = transfer {
            let ended = transfer.thread.join();
            let (session, stored) = ended.unwrap_or((None, Err(Error::Closed)));
            let mut state = lock(&self.state);
            state.session = session;
            state.is_ending = false;
            result = stored.map_err(as_io);
            if let Err(error) = &result {
                state.failed.get_or_insert_with(|| error.to_string());
            }
            drop(state);
            self.ended.notify_all();
        }
        let result = result.and_then(|()| self.verify(runs));
        let mut state = lock(&self.state);
        if let Err(error) = &result {
            state.failed.get_or_insert_with(|| error.to_string());
        }
        match &state.failed {
            // Data of an earlier transfer are lost, too.
            Some(text) if result.is_ok() => Err(io::Error::other(text.clone())),
            _ => result,
        }
    }

    fn verify(&self, runs: Runs) -> io::Result<()> {
        let sessions = self.uploads.sessions();
        let Some(kind) = sessions.checksum() else {
            return Ok(());
        };
        let path = self.facts().path;
        for (end, (start, checksum)) in runs.by_end {
            let range = (start, Some(end));
            let found = sessions.with(|session| session.checksum(kind, &path, range))?;
            if found != checksum.finish() {
                return Err(io::Error::other(OTHER_CHECKSUM));
            }
        }
        Ok(())
    }

    /// Completes the file: its size, time and mode.
    fn complete(&self) -> io::Result<()> {
        let has_start = lock(&self.state).has_start;
        if !has_start {
            // The file begins with a hole.
            self.write(&[0], 0)?;
        }
        self.sync()?;
        let (facts, end) = {
            let state = lock(&self.state);
            (state.facts.clone(), state.end)
        };
        if end < facts.size {
            // The file ends in a hole.
            self.write(&[0], facts.size - 1)?;
            self.sync()?;
        }
        let (size, commands) = (facts.size, facts.commands());
        self.uploads.sessions().with(|session| {
            let found = session.status(&facts.path)?;
            let transferred = found.and_then(|entry| entry.size).unwrap_or_default();
            if transferred != size {
                return Err(Error::Incomplete { transferred, size });
            }
            let replies = session.commands(&commands)?;
            let mut checked = commands.iter().zip(&replies);
            checked.try_for_each(|((verb, _), reply)| check(verb, reply))
        })?;
        lock(&self.state).facts.are_changed = false;
        Ok(())
    }
}

/// Stores pieces until they end. Returns the session if it can be used again.
fn store(
    uploads: &Uploads,
    kept: Option<Session>,
    (path, is_new): (&[u8], bool),
    pieces: &Pieces,
) -> (Option<Session>, Result<(), Error>) {
    let session = match kept {
        Some(session) => Ok(session),
        None => uploads.sessions().open_for_file(),
    };
    match session {
        Ok(mut session) => {
            let stored = session.store_pieces(path, is_new, pieces);
            let is_over = stored.as_ref().is_err_and(Error::ends_session);
            ((!is_over).then_some(session), stored)
        }
        // The server may limit the number of sessions.
        Err(Error::Refused { .. }) => {
            let sessions = uploads.sessions();
            let stored = sessions.once(|session| session.store_pieces(path, is_new, pieces));
            pieces.close();
            (None, stored)
        }
        Err(error) => {
            pieces.close();
            (None, Err(error))
        }
    }
}

/// A handle of a large file that is being stored.
pub struct LargeHandle {
    pub file: Arc<LargeUpload>,
    /// Record of the file on this host, with its lock.
    pub record: Arc<dyn StoredFile>,
}

impl Drop for LargeHandle {
    /// Ends a transfer that is running, because no write follows. Data that wait are not durable,
    /// and are dropped.
    fn drop(&mut self) {
        if Arc::strong_count(&self.file) > 2 {
            return;
        }
        let mut state = lock(&self.file.state);
        if let Some(transfer) = state.transfer.take() {
            transfer.pieces.close();
            transfer.pieces.end();
            state.failed = Some("the file was closed before it was whole".to_owned());
        }
    }
}

impl StoredFile for LargeHandle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.sync()?;
        let facts = self.file.facts();
        let left = facts.size.saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX);
        let count = count.min(buffer.len());
        if count > 0 {
            let of = (&facts.path[..], facts.size);
            let sessions = self.file.uploads.sessions();
            read_directly(sessions, of, &mut buffer[..count], offset)?;
        }
        Ok(count)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.file.write(data, offset)
    }

    fn status(&self) -> io::Result<Status> {
        Ok(lock(&self.file.state).facts.status())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = lock(&self.file.state);
        if length < state.end {
            return Err(io::Error::other("FTP cannot shorten a file"));
        }
        state.facts.size = length;
        Ok(())
    }

    fn preallocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let uploads = &self.file.uploads;
        match uploads.sets_modes() {
            Some(true) => lock(&self.file.state).facts.set_mode(mode),
            Some(false) => return Err(Errno::OPNOTSUPP.into()),
            None => {
                self.file.sync()?;
                uploads.set_mode(&self.file.facts().path, mode)?;
                lock(&self.file.state).facts.mode = Some(mode);
            }
        }
        Ok(())
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        if !self.file.uploads.sessions().sets_times() {
            return Err(Errno::OPNOTSUPP.into());
        }
        lock(&self.file.state).facts.set_modified(modified);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.complete()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        let (start, end) = (offset, self.file.facts().size);
        Ok((start < end).then_some(DataRange { start, end }))
    }

    fn advise(&self, _: Advice, _: u64, _: u64) {}

    fn try_lock(&self) -> io::Result<bool> {
        self.record.try_lock()
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.record.try_lock_shared()
    }

    fn data_mode(&self) -> DataMode {
        DataMode::Buffered
    }
}
