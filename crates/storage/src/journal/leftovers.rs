//! Finds the files that interrupted runs left in a directory, and removes old ones.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::manifest::Timestamp;

use super::entry::{Entry, Owner};
use super::gate::{Entering, Gate, is_free, name_is};
use super::names::{self, Key, StagingName};
use super::partial::remove_if_there;
use super::reader::{Found, Reader, replay};
use crate::{Creation, DataMode, Directory, FileKind, NameList, Status, StoredFile};

/// Kinds of leftovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftoverKind {
    /// Data of a large file.
    Part,
    /// Record of the durable blocks of a part. `None` if it is torn or unknown.
    Journal(Option<Whose>),
    /// A small file that was not yet complete.
    Temporary,
}

/// Description of a journal's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// Name of the destination.
    pub name: Box<[u8]>,
    /// Principal that copied.
    pub principal: Box<str>,
    /// Last session that owned the file.
    pub owner: Owner,
    /// Number of the part.
    part: u64,
}

/// A staging file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Name in the directory.
    pub name: Box<[u8]>,
    /// Kind of leftover.
    pub kind: LeftoverKind,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the inode. The modification time is not usable: a small file has
    /// its source's time before it has its name.
    pub changed: Timestamp,
    /// True if a living process holds the file: it is in use, not left over. For temporaries, this
    /// is known only if their writer locks them.
    pub held: bool,
}

impl Leftover {
    /// Returns the time since the last change; zero if that lies in the future.
    pub fn age(&self, now: Timestamp) -> Duration {
        age(self.changed, now)
    }
}

fn age(changed: Timestamp, now: Timestamp) -> Duration {
    let nanoseconds =
        |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let passed = nanoseconds(now) - nanoseconds(changed);
    Duration::from_nanos(u64::try_from(passed.max(0)).unwrap_or(u64::MAX))
}

/// Returns the staging files in a directory (not beneath it), in no particular order.
///
/// # Errors
///
/// The errors of `getdents`.
pub fn leftovers(directory: Arc<dyn Directory>) -> io::Result<Leftovers> {
    let names = directory.list()?;
    Ok(Leftovers { directory, names })
}

/// Iterator over staging files; see [`leftovers`].
pub struct Leftovers {
    directory: Arc<dyn Directory>,
    names: Box<dyn NameList>,
}

impl Iterator for Leftovers {
    type Item = io::Result<Leftover>;

    fn next(&mut self) -> Option<io::Result<Leftover>> {
        loop {
            let name = match self.names.next_name() {
                Ok(listed) => listed?.name,
                Err(error) => return Some(Err(error)),
            };
            let Some(staging) = names::parse(&name) else {
                continue;
            };
            match look_at(&*self.directory, name, staging) {
                // The owner has removed or renamed the file in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                other => return Some(other),
            }
        }
    }
}

fn open(directory: &dyn Directory, name: &[u8]) -> io::Result<Arc<dyn StoredFile>> {
    directory.create_file(name, Creation::Existing, DataMode::Buffered)
}

/// Examines a leftover, under its gate if it has one, so that no claim mistakes the lock tried here
/// for a living owner.
fn look_at(
    directory: &dyn Directory,
    name: Box<[u8]>,
    staging: StagingName,
) -> io::Result<Leftover> {
    let _gate = match staging {
        StagingName::Journal(key) | StagingName::Part(key, _) => enter(directory, key)?,
        StagingName::Temporary(_) => {
            let status = directory.status_of(&name)?;
            if status.kind != FileKind::File {
                return Ok(unlocked(name, &status));
            }
            None
        }
    };
    let file = open(directory, &name)?;
    let status = file.status()?;
    let (kind, held) = match staging {
        StagingName::Part(..) => (LeftoverKind::Part, !is_free(&*file)?),
        StagingName::Temporary(_) => (LeftoverKind::Temporary, !is_free(&*file)?),
        StagingName::Journal(key) => {
            let whose = whose(&*file)?;
            let held = match &whose {
                Some(whose) => is_held(directory, &key.part(whose.part))?,
                None => false,
            };
            (LeftoverKind::Journal(whose), held)
        }
    };
    Ok(Leftover {
        name,
        kind,
        size: status.size,
        changed: status.changed,
        held,
    })
}

/// Describes a link that awaits its final name, or an empty directory whose name another entry
/// took. Neither can be locked.
fn unlocked(name: Box<[u8]>, status: &Status) -> Leftover {
    Leftover {
        name,
        kind: LeftoverKind::Temporary,
        size: status.size,
        changed: status.changed,
        held: false,
    }
}

fn enter(directory: &dyn Directory, key: Key) -> io::Result<Option<Gate>> {
    if_there(Gate::enter(directory, &key.journal(), Entering::MustExist))
}

fn is_held(directory: &dyn Directory, part: &[u8]) -> io::Result<bool> {
    match if_there(open(directory, part))? {
        Some(part) => Ok(!is_free(&*part)?),
        None => Ok(false),
    }
}

fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Reads a journal's header and last owner, without keeping its blocks.
fn whose(journal: &dyn StoredFile) -> io::Result<Option<Whose>> {
    let mut reader = Reader::new(journal);
    let Some(Ok(Entry::Header(header))) = reader.next_entry()? else {
        return Ok(None);
    };
    let mut last_owner = None;
    while let Some(Ok(entry)) = reader.next_entry()? {
        if let Entry::Owner { owner, .. } = entry {
            last_owner = Some(owner);
        }
    }
    Ok(last_owner.map(|owner| Whose {
        name: header.name,
        principal: header.principal,
        owner,
        part: header.part,
    }))
}

/// Removes the staging files in a directory (not beneath it) that no living process holds and that
/// last changed at least `older_than` before `now`. A journal and its part are removed together,
/// when both are old enough. Calls `report` for each with its name, and its size in bytes or the
/// error. A failure does not stop the others. At most `most` names are examined.
///
/// # Errors
///
/// The errors of `getdents`.
pub fn expire(
    directory: &dyn Directory,
    older_than: Duration,
    now: Timestamp,
    most: u64,
    report: &mut dyn FnMut(&[u8], io::Result<u64>),
) -> io::Result<()> {
    let mut expiry = Expiry {
        directory,
        older_than,
        now,
        report,
    };
    let mut names = directory.list()?;
    for _ in 0..most {
        let Some(listed) = names.next_name()? else {
            break;
        };
        let outcome = match names::parse(&listed.name) {
            Some(StagingName::Journal(key)) => expiry.journal(key),
            Some(StagingName::Part(key, number)) => expiry.part(key, number),
            Some(StagingName::Temporary(_)) => expiry.temporary(&listed.name),
            None => Ok(()),
        };
        if let Err(error) = outcome {
            (expiry.report)(&listed.name, Err(error));
        }
    }
    Ok(())
}

/// An [`expire`] in progress.
struct Expiry<'a> {
    directory: &'a dyn Directory,
    older_than: Duration,
    now: Timestamp,
    report: &'a mut dyn FnMut(&[u8], io::Result<u64>),
}

impl Expiry<'_> {
    /// Removes an expired journal and its parts. The parts are removed first, as everywhere.
    fn journal(&mut self, key: Key) -> io::Result<()> {
        let Some(gate) = enter(self.directory, key)? else {
            return Ok(());
        };
        let parts = match whose(&**gate.file())? {
            Some(whose) => vec![key.part(whose.part)],
            // The journal may be of another version, and any part may belong to it.
            None => parts_of(self.directory, key)?,
        };
        let mut locked = Vec::new();
        for name in parts {
            match if_there(self.lock_if_expired(&name))? {
                Some(Some(part)) => locked.push((name, part)),
                Some(None) => return Ok(()),
                None => (),
            }
        }
        let status = gate.file().status()?;
        if !self.is_old(status.changed) {
            return Ok(());
        }
        for (name, part) in locked {
            self.remove(&name, part.status()?.size)?;
        }
        self.remove(&key.journal(), status.size)
    }

    /// Removes an expired part, if its journal is missing or names another part.
    fn part(&mut self, key: Key, number: u64) -> io::Result<()> {
        let gate = enter(self.directory, key)?;
        if let Some(gate) = &gate {
            match whose(&**gate.file())? {
                Some(whose) if whose.part != number => (),
                _ => return Ok(()),
            }
        }
        self.file(&key.part(number))
    }

    fn temporary(&mut self, name: &[u8]) -> io::Result<()> {
        match if_there(self.directory.status_of(name))? {
            Some(status) if status.kind != FileKind::File => {
                if self.is_old(status.changed) {
                    remove_temporary(self.directory, name)?;
                    (self.report)(name, Ok(status.size));
                    Ok(())
                } else {
                    Ok(())
                }
            }
            _ => self.file(name),
        }
    }

    fn file(&mut self, name: &[u8]) -> io::Result<()> {
        match if_there(self.lock_if_expired(name))? {
            Some(Some(file)) => self.remove(name, file.status()?.size),
            _ => Ok(()),
        }
    }

    /// Locks an expired file. `None` if the file is in use, not old enough, or no longer has the
    /// name. The lock is on the inode, but a living session may have given the name to another file
    /// since.
    fn lock_if_expired(&self, name: &[u8]) -> io::Result<Option<Arc<dyn StoredFile>>> {
        let file = open(self.directory, name)?;
        let status = file.status()?;
        let expired = self.is_old(status.changed)
            && is_free(&*file)?
            && name_is(self.directory, name, status.inode)?;
        Ok(expired.then_some(file))
    }

    fn is_old(&self, changed: Timestamp) -> bool {
        age(changed, self.now) >= self.older_than
    }

    fn remove(&mut self, name: &[u8], size: u64) -> io::Result<()> {
        remove_if_there(self.directory, name)?;
        (self.report)(name, Ok(size));
        Ok(())
    }
}

/// Removes a temporary entry of any kind, except a directory that is not empty.
fn remove_temporary(directory: &dyn Directory, name: &[u8]) -> io::Result<()> {
    match if_there(directory.status_of(name))? {
        Some(status) if status.kind == FileKind::Directory => {
            if_there(directory.remove_directory(name)).map(drop)
        }
        _ => remove_if_there(directory, name),
    }
}

/// Returns all parts of a key, even those that no journal names.
pub(super) fn parts_of(directory: &dyn Directory, key: Key) -> io::Result<Vec<Box<[u8]>>> {
    let mut parts = Vec::new();
    let mut names = directory.list()?;
    while let Some(listed) = names.next_name()? {
        match names::parse(&listed.name) {
            Some(StagingName::Part(of, _)) if of == key => parts.push(listed.name),
            _ => (),
        }
    }
    Ok(parts)
}

/// Removes the files that earlier sessions of a transfer left in a directory, at any age.
/// Called by the session that replaced them, as they can no longer rename a file. Removes the
/// temporaries and the journals, with their parts, of the sessions for whose number `is_former` is
/// true. Also removes journals without a header, which a crash tore, and parts without a journal,
/// which a crash restored. Files that cannot be removed are left for [`expire`].
///
/// If entries failed, the journal of an earlier session may belong to one of them, and a later
/// session can resume it. If `keeps` is true, such journals stay, with their parts. Returns true if
/// one stayed.
///
/// # Errors
///
/// The errors of `getdents`.
pub fn sweep(
    directory: &dyn Directory,
    is_former: &dyn Fn(u64) -> bool,
    keeps: bool,
) -> io::Result<bool> {
    let mut names = directory.list()?;
    let mut kept = false;
    while let Some(listed) = names.next_name()? {
        match names::parse(&listed.name) {
            Some(StagingName::Journal(key)) => {
                kept |= sweep_journal(directory, key, is_former, keeps).unwrap_or(keeps);
            }
            Some(StagingName::Part(key, number)) => {
                let _ = sweep_part(directory, key, number);
            }
            Some(StagingName::Temporary(session)) if is_former(session) => {
                let _ = remove_temporary(directory, &listed.name);
            }
            Some(StagingName::Temporary(_)) | None => (),
        }
    }
    Ok(kept)
}

fn sweep_journal(
    directory: &dyn Directory,
    key: Key,
    is_former: &dyn Fn(u64) -> bool,
    keeps: bool,
) -> io::Result<bool> {
    let Some(gate) = enter(directory, key)? else {
        return Ok(false);
    };
    match replay(&**gate.file())? {
        Found::Journal(found) if found.shared => return Ok(false),
        Found::Journal(found) if is_former(found.owner.session_number()) => {
            if keeps {
                return Ok(true);
            }
            remove_if_there(directory, &key.part(found.header.part))?;
        }
        // A new journal gets its header before its gate opens, so this one was torn by a crash.
        Found::Nothing => (),
        Found::Journal(_) | Found::Version(_) => return Ok(false),
    }
    remove_if_there(directory, &key.journal())?;
    Ok(false)
}

/// Removes a part that no journal names. Part names are never reused, and a journal exists before
/// its part does.
fn sweep_part(directory: &dyn Directory, key: Key, number: u64) -> io::Result<()> {
    let gate = enter(directory, key)?;
    if let Some(gate) = &gate {
        match replay(&**gate.file())? {
            Found::Journal(found) if found.header.part != number => (),
            _ => return Ok(()),
        }
    }
    remove_if_there(directory, &key.part(number))
}
