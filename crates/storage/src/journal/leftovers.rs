//! What killed runs left in a directory: seen, and removed once it is old.

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

/// What a leftover is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftoverKind {
    /// Data of a large file.
    Part,
    /// Says what of a part is durable.
    Journal(Option<Whose>),
    /// A small file that was not yet whole.
    Temporary,
}

/// What a journal reports about its file; `None` if it is torn or unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The destination's name.
    pub name: Box<[u8]>,
    /// Who copied.
    pub principal: Box<str>,
    /// The last session that had it.
    pub owner: Owner,
    /// Its part's number.
    part: u64,
}

/// A staging file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its name in the directory.
    pub name: Box<[u8]>,
    /// What it is.
    pub kind: LeftoverKind,
    /// Bytes.
    pub size: u64,
    /// When its inode last changed: a small file has its source's time before
    /// it has its name.
    pub changed: Timestamp,
    /// A living process holds it: not a leftover, but work under way. Of temporaries this is known
    /// only if their writer locks them.
    pub held: bool,
}

impl Leftover {
    /// Time since it was last written; zero where that lies in the future.
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

/// The staging files in a directory (not beneath it), in no order.
///
/// # Errors
///
/// As `getdents`.
pub fn leftovers(directory: Arc<dyn Directory>) -> io::Result<Leftovers> {
    let names = directory.list()?;
    Ok(Leftovers { directory, names })
}

/// See [`leftovers`].
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
                // Its owner was done with it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                other => return Some(other),
            }
        }
    }
}

fn open(directory: &dyn Directory, name: &[u8]) -> io::Result<Arc<dyn StoredFile>> {
    directory.create_file(name, Creation::Existing, DataMode::Buffered)
}

/// Under the gate where there is one, so that no claim mistakes a lock that is
/// tried here for a sign of life.
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

/// A link on its way to its name, or the empty directory whose name an entry took. Neither can be
/// locked.
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

/// Reads a journal without keeping its blocks.
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

/// Removes the staging files in a directory (not beneath it) that no living
/// process holds and that last changed at least `older_than` before
/// `now`. A journal and its part go together, when both are that old. Tells
/// `report` of each: its name, and the bytes it had or why it could not be
/// removed; one that fails does not stop the rest. At most `most` names are
/// looked at.
///
/// # Errors
///
/// As `getdents`.
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

/// An [`expire`] under way.
struct Expiry<'a> {
    directory: &'a dyn Directory,
    older_than: Duration,
    now: Timestamp,
    report: &'a mut dyn FnMut(&[u8], io::Result<u64>),
}

impl Expiry<'_> {
    /// The part goes first, as everywhere.
    fn journal(&mut self, key: Key) -> io::Result<()> {
        let Some(gate) = enter(self.directory, key)? else {
            return Ok(());
        };
        let parts = match whose(&**gate.file())? {
            Some(whose) => vec![key.part(whose.part)],
            // Of another version, perhaps: then any part may be its own.
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

    /// A part is its journal's business, unless that has another or is gone.
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

    /// `None` if it is held, not yet old, or no longer what has the name. The lock is on an inode,
    /// but a name is removed, which a living session may have given to another file since.
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

/// Removes a temporary name of any kind. A directory that holds something stays.
fn remove_temporary(directory: &dyn Directory, name: &[u8]) -> io::Result<()> {
    match if_there(directory.status_of(name))? {
        Some(status) if status.kind == FileKind::Directory => {
            if_there(directory.remove_directory(name)).map(drop)
        }
        _ => remove_if_there(directory, name),
    }
}

/// All parts of a key, whatever journal names them or none.
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

/// Removes what earlier sessions of a transfer left in a directory, for the session that took over
/// from them, at any age: they can no longer give anything a name. It removes the temporaries and
/// the journals, with their parts, of the sessions for whose number `is_former` is true. It also
/// removes journals without a header, which a crash tore, and parts that no journal names, because
/// a crash brought them back. What cannot be removed is left for [`expire`].
///
/// If entries failed, a journal of an earlier session may belong to one of them, and a later
/// session can resume it: `keeps` makes it stay, with its part. True if one stayed.
///
/// # Errors
///
/// As `getdents`.
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
        Found::Journal(found) if is_former(found.owner.session_number()) => {
            if keeps {
                return Ok(true);
            }
            remove_if_there(directory, &key.part(found.header.part))?;
        }
        // Whoever makes a journal writes its header before the gate opens.
        Found::Nothing => (),
        Found::Journal(_) | Found::Version(_) => return Ok(false),
    }
    remove_if_there(directory, &key.journal())?;
    Ok(false)
}

/// A part's name is never used again, and its journal is there before it.
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
