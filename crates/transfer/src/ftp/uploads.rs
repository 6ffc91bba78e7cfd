//! Small files on their way to a server. They are kept in memory, and stored in batches by a few
//! threads, so that the files of a batch share round trips.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use longhaul_gridftp::Error;
use longhaul_gridftp::checksum::Checksum;
use longhaul_gridftp::protocol::reply::Reply;
use longhaul_gridftp::session::Session;
use longhaul_gridftp::session::names::{checksum_argument, checksum_of, size_of};
use longhaul_gridftp::store::{Put, Source};
use longhaul_system::queue::lock;

use super::sessions::{SESSIONS, Sessions};
use super::small_upload::SmallUpload;
use super::stored_facts::{OTHER_CHECKSUM, check};

/// Maximum number of files of a batch.
const BATCH_FILES: usize = 64;

/// Size of a batch in bytes beyond which it takes no further file.
const BATCH_BYTES: usize = 8 << 20;

/// Bytes of files that wait. Beyond them, a thread that adds a file waits.
const WAITING_BYTES: usize = 64 << 20;

/// Result of asking if the server sets permission bits.
const UNKNOWN: u8 = 0;
const SETS_MODES: u8 = 1;
const REFUSES_MODES: u8 = 2;

/// Small files that wait to be stored.
pub struct Uploads {
    sessions: Arc<Sessions>,
    queue: Mutex<Queue>,
    changed: Condvar,
    modes: AtomicU8,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<SmallUpload>>,
    /// Number of bytes of the files that wait or are being stored.
    bytes: usize,
    /// Number of threads that store files.
    threads: usize,
}

/// Data of a file in memory.
struct Data<'a>(&'a [u8]);

impl Source for Data<'_> {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let rest = self.0.get(start..).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

impl Uploads {
    pub fn new(sessions: Arc<Sessions>) -> Arc<Uploads> {
        Arc::new(Uploads {
            sessions,
            queue: Mutex::default(),
            changed: Condvar::new(),
            modes: AtomicU8::new(UNKNOWN),
        })
    }

    pub fn sessions(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    /// True if the server is known to set permission bits, false if it is known to refuse.
    pub fn sets_modes(&self) -> Option<bool> {
        match self.modes.load(Ordering::Relaxed) {
            SETS_MODES => Some(true),
            REFUSES_MODES => Some(false),
            _ => None,
        }
    }

    /// Sets the mode of a path at once, and learns if the server sets modes.
    ///
    /// # Errors
    ///
    /// `OPNOTSUPP` if the server refuses, or if the session failed.
    pub fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        if self.sets_modes() == Some(false) {
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        let set = self.sessions.with(|session| {
            match session.set_mode(path, mode) {
                // A server that lacks the command needs no further attempt.
                Err(Error::Refused { code, .. }) if code != SESSION_ENDS => Ok(false),
                set => set.map(|()| true),
            }
        })?;
        if set {
            self.modes.store(SETS_MODES, Ordering::Relaxed);
            return Ok(());
        }
        // The server may refuse only this entry.
        let (unknown, refuses) = (UNKNOWN, REFUSES_MODES);
        let order = Ordering::Relaxed;
        let _ = self.modes.compare_exchange(unknown, refuses, order, order);
        Err(rustix::io::Errno::OPNOTSUPP.into())
    }

    /// Adds a file. Waits while many bytes wait. The file tells when it is stored.
    pub fn add(self: &Arc<Self>, file: Arc<SmallUpload>) {
        let bytes = file.bytes();
        let mut queue = lock(&self.queue);
        while queue.bytes >= WAITING_BYTES {
            let waited = self.changed.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
        queue.bytes += bytes;
        queue.waiting.push_back(file);
        if queue.threads >= SESSIONS {
            return;
        }
        queue.threads += 1;
        drop(queue);
        let uploads = Arc::clone(self);
        let thread = std::thread::Builder::new().name("ftp".to_owned());
        if thread.spawn(move || uploads.run()).is_err() {
            self.run();
        }
    }

    /// Stores batches until no file waits.
    fn run(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let mut batch = Vec::new();
            let mut bytes = 0;
            while batch.len() < BATCH_FILES
                && bytes < BATCH_BYTES
                && let Some(file) = queue.waiting.pop_front()
            {
                bytes += file.bytes();
                batch.push(file);
            }
            if batch.is_empty() {
                queue.threads -= 1;
                return;
            }
            drop(queue);
            self.store(&batch);
            lock(&self.queue).bytes -= bytes;
            self.changed.notify_all();
        }
    }

    /// Stores the files of a batch, and tells each its result.
    fn store(&self, batch: &[Arc<SmallUpload>]) {
        let data: Vec<Arc<[u8]>> = batch.iter().map(|file| file.data()).collect();
        let mut left: Vec<usize> = (0..batch.len()).collect();
        while !left.is_empty() {
            let mut done: Vec<(usize, Result<(), String>)> = Vec::new();
            let stored = self.sessions.with(|session| {
                done.clear();
                store_once(session, batch, (&data, &left), &mut done)
            });
            if let Err(error) = stored
                && done.len() < left.len()
            {
                // The first file without a result caused the error. The others are tried again.
                let failed = left
                    .iter()
                    .find(|one| done.iter().all(|(at, _)| at != *one));
                done.extend(failed.map(|at| (*at, Err(error.to_string()))));
            }
            for (at, result) in done {
                left.retain(|one| *one != at);
                batch[at].end(result);
            }
        }
    }
}

/// Reply code: the server ends the session.
const SESSION_ENDS: u16 = 421;

/// Stores files in one session. Adds the results of those that ended to `done`.
fn store_once(
    session: &mut Session,
    batch: &[Arc<SmallUpload>],
    (data, left): (&[Arc<[u8]>], &[usize]),
    done: &mut Vec<(usize, Result<(), String>)>,
) -> Result<(), Error> {
    let sources: Vec<Data<'_>> = left.iter().map(|at| Data(&data[*at])).collect();
    let facts: Vec<_> = left.iter().map(|at| batch[*at].facts()).collect();
    let files: Vec<Put<'_>> = facts
        .iter()
        .zip(&sources)
        .map(|(facts, source)| Put {
            path: &facts.path,
            size: source.0.len() as u64,
            present: Default::default(),
            source,
        })
        .collect();
    let mut stored = Vec::new();
    let ended = session.store(&files, &mut |index, result| match result {
        Ok(()) => stored.push(index),
        Err(error) => done.push((left[index], Err(error.to_string()))),
    });
    // The files before the one that caused an error are tried again in the next session.
    ended?;
    let kind = session.features().checksum;
    let mut commands = Vec::new();
    for index in &stored {
        let path = &facts[*index].path;
        commands.push(match kind {
            Some(kind) => ("CKSM", checksum_argument(kind, path, (0, None))),
            None => ("SIZE", path.clone()),
        });
        commands.extend(facts[*index].commands());
    }
    let mut replies = session.commands(&commands)?.into_iter();
    for index in stored {
        let bytes = sources[index].0;
        let checked = replies.next().ok_or(Error::Closed)?;
        let mut result = verify(kind, bytes, &checked);
        for (verb, _) in facts[index].commands() {
            let reply = replies.next().ok_or(Error::Closed)?;
            result = result.and_then(|()| check(verb, &reply));
        }
        done.push((left[index], result.map_err(|error| error.to_string())));
    }
    Ok(())
}

/// Compares the stored file with its data.
fn verify(
    kind: Option<longhaul_gridftp::protocol::features::ChecksumKind>,
    bytes: &[u8],
    reply: &Reply,
) -> Result<(), Error> {
    let Some(kind) = kind else {
        let size = size_of(reply)?;
        let transferred = bytes.len() as u64;
        return if size == transferred {
            Ok(())
        } else {
            Err(Error::Incomplete { transferred, size })
        };
    };
    let mut checksum = Checksum::new(kind);
    checksum.update(bytes);
    if checksum_of(kind, reply)? == checksum.finish() {
        Ok(())
    } else {
        Err(Error::Unexpected(OTHER_CHECKSUM.to_owned()))
    }
}
