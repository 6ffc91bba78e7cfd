//! Files, directories and journals. No code here opens a socket.
//!
//! Every durable call goes through the two traits of this crate, and only
//! through them. [`posix`] is the real one; `forgetting` loses whatever was
//! not synced, so that tests can crash it at every step; [`destination`] makes
//! a sync that failed fail for good.
//!
//! A [`Directory`] is a handle. Every operation takes one name in it and never
//! follows a symbolic link in that name, so that no path can lead out of the
//! root whose handle was opened first. [`beneath`] goes down several names at
//! once, [`listing`] gives a directory in byte order however large it is,
//! [`together`] syncs many files at once, [`fake_super`] keeps in attributes what only a
//! superuser may give.
//!
//! - [`journal`]: records which parts of a large file are durable
//! - [`file_data`]: how files are read, written and hashed
//! - [`owners`]: users and groups by name and by number
//! - [`notices`]: what a destination does not keep
//! - [`failure`]: errors of system calls as messages
//! - [`fan_out`]: one operation on many names

pub mod attributes;
pub mod beneath;
mod buffered;
pub mod content;
pub mod destination;
mod direct;
pub mod failure;
pub mod fake_super;
pub mod fan_out;
pub mod file_data;
pub mod following;
pub mod forgetting;
pub mod inodes;
pub mod journal;
pub mod listing;
pub mod measuring;
pub mod mounts;
pub mod nested;
pub mod notices;
pub mod origin;
pub mod owners;
pub mod posix;
pub mod refusing;
mod resolution;
pub mod roots;
pub mod spelling;
pub mod spill;
mod status;
pub mod together;
mod uncached;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use attributes::Inode;
pub use direct::lives_in_page_cache;
use longhaul_proto::manifest::Timestamp;
pub use status::{FileKind, Special, Status};

/// What offset, length and memory of direct I/O are multiples of, in bytes:
/// the page size of most machines, and hardly a disk has larger blocks.
pub const DIRECT_ALIGNMENT_BYTES: usize = 4096;

/// A name in a directory, as a listing gives it (`.` and `..` left out).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName {
    /// The name.
    pub name: Box<[u8]>,
    /// What it is, where the file system tells without a further call.
    pub kind: Option<FileKind>,
}

/// How to open a file for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// It must not exist.
    New,
    /// It must exist.
    Existing,
    /// Either; what is there stays.
    Either,
}

/// How to read or write a file's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataMode {
    /// Through the page cache.
    #[default]
    Buffered,
    /// `O_DIRECT` for what is aligned to [`DIRECT_ALIGNMENT_BYTES`]; the rest
    /// (the tail of a file) goes through the page cache. Where the file system
    /// cannot, all of it does.
    Direct,
    /// [`DataMode::Direct`] where the file system can, else
    /// [`DataMode::Uncached`].
    Bypass,
    /// Through the page cache, leaving there only what was there before. What is read is dropped
    /// at once. What is written goes to the disk at once, and is dropped when a sync has made it
    /// durable.
    Uncached,
}

/// What the kernel may be told about a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be read from front to back.
    Sequential,
    /// It will be read soon: begin with it, do not wait.
    Soon,
    /// Start writing dirty pages back, do not wait.
    StartWriteback,
    /// The pages are not needed any more.
    DropCache,
}

/// A run of data within a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// An open file.
pub trait StoredFile: Send + Sync {
    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    ///
    /// # Errors
    ///
    /// As `pread`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads the front of a range as far as it lies in the page cache, without waiting for a disk.
    /// Returns the number of bytes; 0 also if that is unknown, or if data move past the cache.
    fn read_cached_at(&self, _buffer: &mut [u8], _offset: u64) -> usize {
        0
    }

    /// What the kernel can send the data from; `None` if it does not have them.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    ///
    /// As `pwrite`; what was written before the error is undefined.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// What `fstat` tells.
    ///
    /// # Errors
    ///
    /// As `fstat`.
    fn status(&self) -> io::Result<Status>;

    /// Its owner, lists and extended attributes; `None` where it has none.
    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        None
    }

    /// Whether it has another name too (a hard link): what is written would be in whatever that
    /// is.
    ///
    /// # Errors
    ///
    /// As `fstat`.
    fn has_other_names(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Sets the length.
    ///
    /// # Errors
    ///
    /// As `ftruncate`.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes a hole of these bytes, which read as zeros then. The length stays. Does nothing if the
    /// file system has no holes: call it only where the bytes are zeros, or were never written.
    ///
    /// # Errors
    ///
    /// As `fallocate`.
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// Reserves room from the start to `length` without changing the length,
    /// where the file system can; nothing where it cannot. In memory it is promised by this
    /// process alone, as long as the file is open.
    ///
    /// # Errors
    ///
    /// Where there is no room. Part of it may be reserved then, until the file
    /// is removed.
    fn preallocate(&self, length: u64) -> io::Result<()>;

    /// Sets permission bits.
    ///
    /// # Errors
    ///
    /// As `fchmod`.
    fn set_mode(&self, mode: u32) -> io::Result<()>;

    /// Sets the time of the last change, and the access time to now.
    ///
    /// # Errors
    ///
    /// As `futimens`.
    fn set_modified(&self, modified: Timestamp) -> io::Result<()>;

    /// Makes data and length durable (`fdatasync`).
    ///
    /// # Errors
    ///
    /// Where the device reports a failure: nothing written since the last
    /// success may then be called durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes data and metadata durable (`fsync`).
    ///
    /// # Errors
    ///
    /// As [`StoredFile::sync_data`].
    fn sync_all(&self) -> io::Result<()>;

    /// The file system on which it lies, where one sync of that ([`StoredFile::sync_device`]) may
    /// stand for many files'; `None` if not.
    fn device(&self) -> Option<u64> {
        None
    }

    /// Waits for the data that the kernel is writing back, and does not start to write more. That
    /// makes no data durable.
    ///
    /// # Errors
    ///
    /// If data could not be written, as [`StoredFile::sync_data`]. Each failure is reported
    /// once.
    fn wait_written(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes data and metadata of every file of its file system durable
    /// (`syncfs`).
    ///
    /// # Errors
    ///
    /// `Unsupported` where that is not known to pay, else as the device
    /// reports; older kernels report failed writes of data to
    /// [`StoredFile::wait_written`] alone.
    fn sync_device(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The first run of data at or after `offset`; `None` if only a hole follows. A file system
    /// without holes gives one run.
    ///
    /// # Errors
    ///
    /// As `lseek`.
    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>>;

    /// Tells the kernel about a range (`length` 0: to the end of the file);
    /// never an error, it is only advice.
    fn advise(&self, advice: Advice, start: u64, length: u64);

    /// Takes the exclusive lock of the open file (`flock`) without waiting;
    /// false where another open file holds it. It ends when this one closes.
    ///
    /// # Errors
    ///
    /// As `flock`.
    fn try_lock(&self) -> io::Result<bool>;

    /// How data really moves. A file opened as [`DataMode::Direct`] may say
    /// [`DataMode::Buffered`] (as [`DataMode::Bypass`] also
    /// [`DataMode::Uncached`]) from the start, or from its first aligned read
    /// or write on, because only that proves whether direct I/O works.
    fn data_mode(&self) -> DataMode;
}

/// An open directory.
pub trait Directory: Send + Sync {
    /// Opens a directory in this one, not following a link.
    ///
    /// # Errors
    ///
    /// As `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`.
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>>;

    /// Makes a directory.
    ///
    /// # Errors
    ///
    /// As `mkdirat`.
    fn make_directory(&self, name: &[u8], mode: u32) -> io::Result<()>;

    /// Opens a regular file for reading, not following a link; a device,
    /// socket or FIFO is refused without being opened for I/O.
    ///
    /// # Errors
    ///
    /// As `openat`; `InvalidInput` for what is no regular file.
    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>>;

    /// Opens a regular file for reading and writing, not following a link. A
    /// new one has mode 0o600, until [`StoredFile::set_mode`].
    ///
    /// # Errors
    ///
    /// As `openat`; `InvalidInput` for what is no regular file.
    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        mode: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>>;

    /// Makes a symbolic link.
    ///
    /// # Errors
    ///
    /// As `symlinkat`.
    fn make_symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()>;

    /// Makes a device, socket or FIFO that only its owner can use.
    ///
    /// # Errors
    ///
    /// As `mknodat`.
    fn make_special(&self, name: &[u8], special: Special) -> io::Result<()> {
        let _ = (name, special);
        Err(rustix::io::Errno::OPNOTSUPP.into())
    }

    /// Gives what has a name in this directory another name in `target`. A link is not followed.
    ///
    /// # Errors
    ///
    /// As `linkat`.
    fn link(&self, name: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        let _ = (name, target, to);
        Err(rustix::io::Errno::OPNOTSUPP.into())
    }

    /// Its own owner, lists and extended attributes; `None` where it has none.
    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        None
    }

    /// The same of a name in it, not following a link.
    fn inode_of(&self, name: &[u8]) -> Option<Box<dyn Inode + '_>> {
        let _ = name;
        None
    }

    /// What a symbolic link holds.
    ///
    /// # Errors
    ///
    /// As `readlinkat`.
    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>>;

    /// Gives `from` in this directory the name `to` in `target`, replacing a
    /// file or link there.
    ///
    /// # Errors
    ///
    /// As `renameat`.
    fn rename(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()>;

    /// The same where nothing has the name.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` where something has the name; `Unsupported` where the system cannot do that
    /// in one call; else as `renameat2` with `RENAME_NOREPLACE`.
    fn rename_new(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        let _ = (from, target, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Exchanges what two names in this directory have, in one step.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the file system has no such call; otherwise as `renameat2` with
    /// `RENAME_EXCHANGE`.
    fn exchange(&self, one: &[u8], other: &[u8]) -> io::Result<()> {
        let _ = (one, other);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file or link.
    ///
    /// # Errors
    ///
    /// As `unlinkat`.
    fn remove_file(&self, name: &[u8]) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// As `unlinkat` with `AT_REMOVEDIR`.
    fn remove_directory(&self, name: &[u8]) -> io::Result<()>;

    /// What `lstat` reports about a name in it.
    ///
    /// # Errors
    ///
    /// As `fstatat`.
    fn status_of(&self, name: &[u8]) -> io::Result<Status>;

    /// What `fstat` reports about the directory itself.
    ///
    /// # Errors
    ///
    /// As `fstat`.
    fn status(&self) -> io::Result<Status>;

    /// The number of the mount that it was reached by; `None` if nobody tells.
    fn mount(&self) -> Option<u64> {
        None
    }

    /// Opens a regular file for another process to read.
    ///
    /// # Errors
    ///
    /// As `openat`; `Unsupported` if there is no such file in a kernel.
    fn open_descriptor(&self, name: &[u8]) -> io::Result<OwnedFd> {
        let _ = name;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Its path on this host now; `None` if nobody tells.
    fn location(&self) -> Option<PathBuf> {
        None
    }

    /// Sets the times of a name in it, as [`StoredFile::set_modified`], not following a link.
    ///
    /// # Errors
    ///
    /// As `utimensat`.
    fn set_modified_of(&self, name: &[u8], modified: Timestamp) -> io::Result<()>;

    /// Sets permission bits of the directory itself.
    ///
    /// # Errors
    ///
    /// As `fchmod`.
    fn set_mode(&self, mode: u32) -> io::Result<()>;

    /// Sets the time of the last change of the directory itself, and its access time to now.
    ///
    /// # Errors
    ///
    /// As `futimens`.
    fn set_modified(&self, modified: Timestamp) -> io::Result<()>;

    /// Its names in the order of the file system, a batch at a time.
    ///
    /// # Errors
    ///
    /// As `getdents`.
    fn list(&self) -> io::Result<Box<dyn NameList>>;

    /// Whether [`Directory::list`] gives the names in the order of their bytes,
    /// each once, and some perhaps not before others were read.
    fn lists_in_order(&self) -> bool {
        false
    }

    /// Makes its names durable (`fsync`).
    ///
    /// # Errors
    ///
    /// As `fsync`.
    fn sync(&self) -> io::Result<()>;

    /// Makes everything on its file system durable (`syncfs`).
    ///
    /// # Errors
    ///
    /// As `syncfs`; `Unsupported` if the system does not support it.
    fn sync_file_system(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether [`Directory::sync`] makes links and special files in it durable, and not their names
    /// alone. Without a journal only [`Directory::sync_file_system`] does.
    fn syncs_inodes(&self) -> bool {
        true
    }

    /// As [`Directory::status_of`], with the size of a file that does not tell it: such a one is
    /// read to its end.
    ///
    /// # Errors
    ///
    /// As `fstatat`, and as reading it.
    fn content_status_of(&self, name: &[u8]) -> io::Result<Status> {
        self.status_of(name)
    }

    /// As [`Directory::open_file`], and reads the file to its end at once: it has more or less than
    /// its size says.
    ///
    /// # Errors
    ///
    /// As `openat`, and as reading it.
    fn open_whole(&self, name: &[u8]) -> io::Result<Arc<dyn StoredFile>> {
        self.open_file(name, DataMode::Buffered)
    }

    /// The UUID of its file system, where that has one and the kernel tells it.
    fn uuid(&self) -> Option<origin::Uuid> {
        None
    }

    /// For [`Directory::rename`] between two handles of one implementation.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// The names of a directory, one after the other, with bounded memory.
pub trait NameList: Send {
    /// The next name.
    ///
    /// # Errors
    ///
    /// As `getdents`; after an error there is no further name.
    fn next_name(&mut self) -> io::Result<Option<ListedName>>;
}
