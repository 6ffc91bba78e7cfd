//! Changes in a directory at a server that is a destination.
//!
//! Journals and locks are on this host (`records`). Files that are being stored have a record of
//! the same name there. Names of staging files without a record belong to other hosts: they are
//! neither shown nor removed.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_gridftp::Error;
use longhaul_gridftp::protocol::facts::{Entry, EntryKind};
use longhaul_gridftp::session::{Session, join};
use longhaul_storage::journal::names::{StagingName, parse};
use longhaul_storage::{Creation, DataMode, Directory, Status, StoredFile};
use longhaul_system::queue::lock;

use super::large_upload::{LargeHandle, LargeUpload};
use super::records::Records;
use super::sessions::Sessions;
use super::small_handle::SmallHandle;
use super::small_upload::SmallUpload;
use super::stored_facts::{Facts, check};
use super::uploads::Uploads;

/// Number of names about which this end sends questions. Then it lists the directory.
const SINGLE_QUESTIONS: u32 = 4;

/// State of a directory that is a destination.
pub struct Writing {
    pub uploads: Arc<Uploads>,
    /// Path of the directory at the server.
    path: Vec<u8>,
    /// Directory of this host for the records of all directories of the server.
    pub base: Arc<dyn Directory>,
    pub records: Arc<Records>,
    /// Files that are being stored, by their staging names.
    open: Mutex<HashMap<Vec<u8>, Upload>>,
    /// Directories that were made here and not yet opened. They are empty.
    made: Mutex<HashSet<Vec<u8>>>,
    /// Number of questions about names.
    questions: AtomicU32,
}

/// A file that is being stored.
#[derive(Clone)]
enum Upload {
    Small(Arc<SmallUpload>),
    Large(Arc<LargeUpload>),
}

impl Upload {
    fn facts(&self) -> Facts {
        match self {
            Upload::Small(file) => file.facts(),
            Upload::Large(file) => file.facts(),
        }
    }

    /// Returns a handle of the file with the lock of its record.
    fn handle(self, uploads: &Arc<Uploads>, record: Arc<dyn StoredFile>) -> Arc<dyn StoredFile> {
        match self {
            Upload::Small(file) => Arc::new(SmallHandle {
                file,
                uploads: Arc::clone(uploads),
                record,
            }),
            Upload::Large(file) => Arc::new(LargeHandle { file, record }),
        }
    }
}

impl Writing {
    /// Prepares changes in the directory at a path.
    pub fn new(uploads: Arc<Uploads>, base: Arc<dyn Directory>, path: &[u8]) -> Writing {
        Writing {
            uploads,
            path: path.to_vec(),
            records: Records::of(Arc::clone(&base), path),
            base,
            open: Mutex::default(),
            made: Mutex::default(),
            questions: AtomicU32::new(0),
        }
    }

    /// Prepares changes in a directory below.
    pub fn below(&self, path: &[u8]) -> Writing {
        Writing::new(Arc::clone(&self.uploads), Arc::clone(&self.base), path)
    }

    /// True if a directory was made here and is opened for the first time.
    pub fn take_made(&self, name: &[u8]) -> bool {
        lock(&self.made).remove(name)
    }

    /// True if the directory should be listed before the next question about a name.
    pub fn should_list(&self) -> bool {
        self.questions.fetch_add(1, Ordering::Relaxed) >= SINGLE_QUESTIONS
    }

    /// Returns the status of a staging file. `None` if the name is another one.
    pub fn status_of(&self, name: &[u8]) -> Option<io::Result<Status>> {
        parse(name)?;
        let status = self.records.status_of(name);
        Some(status.map(|status| {
            Status {
                size: lock(&self.open)
                    .get(name)
                    .map_or(status.size, |file| file.facts().size),
                ..status
            }
        }))
    }

    /// Returns the names of staging files of this host.
    pub fn staging_names(&self) -> io::Result<Vec<Vec<u8>>> {
        self.records.names()
    }

    fn sessions(&self) -> &Sessions {
        self.uploads.sessions()
    }

    /// Opens or creates a staging file.
    ///
    /// # Errors
    ///
    /// As `openat`, or if the session failed.
    pub fn stage(&self, name: &[u8], creation: Creation) -> io::Result<Arc<dyn StoredFile>> {
        let kind = parse(name).ok_or_else(|| unsupported("FTP cannot change a file in place"))?;
        let record = self
            .records
            .create_file(name, creation, DataMode::Buffered)?;
        if let StagingName::Journal(_) = kind {
            return Ok(record);
        }
        let mut open = lock(&self.open);
        if let Some(file) = open.get(name) {
            return Ok(file.clone().handle(&self.uploads, record));
        }
        let path = join(&self.path, name);
        let mut facts = Facts::new(path, record.status()?.inode);
        if creation != Creation::New {
            let status = |session: &mut Session| session.status(&facts.path);
            let found = self.sessions().with(status)?;
            facts.size = found.and_then(|entry| entry.size).unwrap_or_default();
        }
        let file = match kind {
            StagingName::Part(..) => {
                Upload::Large(LargeUpload::new(Arc::clone(&self.uploads), facts))
            }
            _ => Upload::Small(SmallUpload::new(facts)),
        };
        open.insert(name.to_vec(), file.clone());
        Ok(file.handle(&self.uploads, record))
    }

    /// Makes a directory. Returns its entry.
    ///
    /// # Errors
    ///
    /// If the server rejects the name.
    pub fn make(&self, name: &[u8]) -> io::Result<Entry> {
        let path = join(&self.path, name);
        self.sessions()
            .with(|session| session.make_directory(&path))?;
        lock(&self.made).insert(name.to_vec());
        Ok(Entry::new(name, EntryKind::Directory))
    }

    /// Gives files or directories other names. Returns their results in order, with the entries of
    /// files that were being stored.
    pub fn change_names(
        &self,
        target: &Writing,
        names: &[(&[u8], &[u8])],
    ) -> Vec<io::Result<Option<Entry>>> {
        let open = lock(&self.open);
        let renames = names.iter().map(|(from, to)| Rename {
            old: join(&self.path, from),
            new: join(&target.path, to),
            staged: open.get(*from).cloned(),
        });
        let renames: Vec<Rename> = renames.collect();
        drop(open);
        let mut results: Vec<Option<Result<(), String>>> = vec![None; names.len()];
        let mut is_repeated = false;
        let done = self.sessions().with(|session| {
            let is_repeated = std::mem::replace(&mut is_repeated, true);
            rename_all(session, (&renames, is_repeated), &mut results)
        });
        let lost = done.err().map(|error| error.to_string());
        let ends = results.into_iter().zip(renames).zip(names);
        ends.map(|((result, rename), (from, to))| {
            let lost = || Err(lost.clone().unwrap_or_default());
            result.unwrap_or_else(lost).map_err(io::Error::other)?;
            let Some(staged) = rename.staged else {
                return Ok(None);
            };
            match &staged {
                Upload::Small(file) => file.name(rename.new),
                Upload::Large(file) => file.name(rename.new),
            }
            lock(&self.open).remove(*from);
            // The record without its file has no meaning. A later copy removes it.
            let _ = self.records.remove_file(from);
            Ok(Some(staged.facts().entry(to)))
        })
        .collect()
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// If the server rejects it.
    pub fn remove(&self, name: &[u8]) -> io::Result<()> {
        let path = join(&self.path, name);
        let Some(kind) = parse(name) else {
            return self.sessions().with(|session| session.remove_file(&path));
        };
        if !matches!(kind, StagingName::Journal(_)) {
            // A name without a record belongs to another host.
            self.records.status_of(name)?;
            let open = lock(&self.open).remove(name);
            if let Some(Upload::Large(file)) = &open {
                file.abandon();
            }
            self.sessions().with(|session| {
                let removed = session.remove_file(&path);
                match removed {
                    // The file may never have been created at the server.
                    Err(Error::Refused { .. }) if session.status(&path)?.is_none() => Ok(()),
                    removed => removed,
                }
            })?;
        }
        self.records.remove_file(name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// If the server rejects it.
    pub fn remove_empty(&self, name: &[u8]) -> io::Result<()> {
        let path = join(&self.path, name);
        self.sessions()
            .with(|session| session.remove_directory(&path))
    }
}

/// Returns an error for a change that FTP does not have.
pub fn unsupported(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// A change of a name.
struct Rename {
    old: Vec<u8>,
    new: Vec<u8>,
    /// The file, if it is being stored.
    staged: Option<Upload>,
}

/// Renames all files that have no result yet.
fn rename_all(
    session: &mut Session,
    (renames, is_repeated): (&[Rename], bool),
    results: &mut [Option<Result<(), String>>],
) -> Result<(), Error> {
    let left: Vec<usize> = (0..renames.len())
        .filter(|index| results[*index].is_none())
        .collect();
    let commands = left.iter().flat_map(|index| {
        let Rename { old, new, .. } = &renames[*index];
        [("RNFR", old.clone()), ("RNTO", new.clone())]
    });
    let commands: Vec<_> = commands.collect();
    let replies = session.commands(&commands)?;
    for (index, pair) in left.into_iter().zip(replies.chunks(2)) {
        let [begun, ended] = pair else {
            continue;
        };
        let refused = if begun.is_intermediate() {
            check("RNTO", ended)
        } else {
            check("RNFR", begun)
        };
        // The connection may have been lost after the server had renamed the file.
        let is_done = ended.is_success() || (is_repeated && was_renamed(session, &renames[index])?);
        let refused = refused
            .err()
            .map_or_else(String::new, |error| error.to_string());
        results[index] = Some(if is_done { Ok(()) } else { Err(refused) });
    }
    Ok(())
}

/// True if a rename has taken place: only the new path exists, with the size of the file.
fn was_renamed(session: &mut Session, rename: &Rename) -> Result<bool, Error> {
    if session.status(&rename.old)?.is_some() {
        return Ok(false);
    }
    let size = rename.staged.as_ref().map(|file| file.facts().size);
    let found = session.status(&rename.new)?;
    Ok(found.is_some_and(|entry| size.is_none() || entry.size == size))
}
