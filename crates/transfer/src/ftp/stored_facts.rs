//! Size, time and mode of a file that is being stored, and the commands that set and check them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use longhaul_engine::recv::landing::file_time_now;
use longhaul_gridftp::Error;
use longhaul_gridftp::protocol::facts::{Entry, EntryKind};
use longhaul_gridftp::protocol::reply::Reply;
use longhaul_gridftp::protocol::time::FileTime;
use longhaul_gridftp::session::names::{mode_argument, modified_argument};
use longhaul_proto::manifest::Timestamp;
use longhaul_storage::{FileKind, Status};
use rustix::io::Errno;

use super::sessions::Sessions;

/// Permission bits of a file before its mode is set.
const FILE_MODE: u32 = 0o644;

/// Error of a file whose checksum at the server is another one than that of the data.
pub const OTHER_CHECKSUM: &str = "the checksum of the server is another one than that of the data";

/// Resolution of times at servers in nanoseconds.
pub const TIME_UNIT: u32 = 1_000_000_000;

/// Returns the number that stands for the inode of a path: servers tell none.
pub fn inode_of(path: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// Size, time and mode of a file that is being stored.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Path at the server.
    pub path: Vec<u8>,
    /// Inode of the record of the file. `None` once the file has its final name.
    pub inode: Option<u64>,
    pub size: u64,
    pub modified: Option<Timestamp>,
    pub mode: Option<u32>,
    /// True if the time or the mode must be sent to the server.
    pub are_changed: bool,
}

impl Facts {
    /// Describes a new file.
    pub fn new(path: Vec<u8>, inode: u64) -> Facts {
        Facts {
            path,
            inode: Some(inode),
            size: 0,
            modified: None,
            mode: None,
            are_changed: false,
        }
    }

    pub fn status(&self) -> Status {
        let modified = self.modified.unwrap_or_else(file_time_now);
        Status {
            inode: self.inode.unwrap_or_else(|| inode_of(&self.path)),
            modified,
            changed: modified,
            ..Status::on_no_disk(FileKind::File, self.mode.unwrap_or(FILE_MODE), self.size)
        }
    }

    /// Sets the time, in whole seconds.
    pub fn set_modified(&mut self, modified: Timestamp) {
        self.modified = Some(Timestamp {
            nanoseconds: 0,
            ..modified
        });
        self.are_changed = true;
    }

    pub fn set_mode(&mut self, mode: u32) {
        self.mode = Some(mode);
        self.are_changed = true;
    }

    /// Returns the commands that set the time and the mode.
    pub fn commands(&self) -> Vec<(&'static str, Vec<u8>)> {
        let time = self.modified.and_then(|time| {
            let time = FileTime {
                seconds: time.seconds,
                nanoseconds: 0,
            };
            Some(("MFMT", modified_argument(&self.path, time)?))
        });
        let mode = self.mode;
        let mode = mode.map(|mode| ("SITE", mode_argument(&self.path, mode)));
        let commands = time.into_iter().chain(mode);
        commands.filter(|_| self.are_changed).collect()
    }

    /// Returns the entry of a listing.
    pub fn entry(&self, name: &[u8]) -> Entry {
        let mut entry = Entry::new(name, EntryKind::File);
        entry.size = Some(self.size);
        entry.mode = self.mode;
        let status = self.status();
        entry.modified = Some(FileTime {
            seconds: status.modified.seconds,
            nanoseconds: 0,
        });
        entry
    }
}

/// Sets the time of a path at once. Returns the time that the server stores.
///
/// # Errors
///
/// `OPNOTSUPP` if the server refuses, or if the session failed.
pub fn set_modified(
    sessions: &Sessions,
    path: &[u8],
    modified: Timestamp,
) -> io::Result<Timestamp> {
    let mut facts = Facts::new(path.to_vec(), 0);
    facts.set_modified(modified);
    let commands = facts.commands();
    if !sessions.sets_times() || commands.is_empty() {
        return Err(Errno::OPNOTSUPP.into());
    }
    let replies = sessions.with(|session| session.commands(&commands))?;
    // Some servers set the times of files only.
    if replies.iter().all(|reply| reply.is_success()) {
        Ok(facts.modified.unwrap_or(modified))
    } else {
        Err(Errno::OPNOTSUPP.into())
    }
}

/// Checks a reply to a command of [`Facts::commands`].
///
/// # Errors
///
/// [`Error::Refused`].
pub fn check(verb: &str, reply: &Reply) -> Result<(), Error> {
    if reply.is_success() {
        return Ok(());
    }
    Err(Error::Refused {
        command: verb.to_owned(),
        code: reply.code,
        text: reply.text(),
    })
}
