//! Files, directories and journals. No code here opens a socket.
//!
//! Every durable call goes through the two traits of this crate. [`posix`] implements them for the
//! kernel. `forgetting` implements them in memory and loses all unsynced data, so that tests can
//! simulate a crash at every step. [`destination`] makes all syncs fail after one failed sync.
//!
//! A [`Directory`] is a handle. Every operation takes one name in it and never follows a symbolic
//! link of that name, so that no path can lead out of the root whose handle was opened first.
//! [`beneath`] opens a path of several names, [`listing`] lists a directory of any size in byte
//! order, [`together`] syncs many files at once, and [`fake_super`] stores privileged metadata in
//! attributes.
//!
//! - [`journal`]: records the durable parts of large files
//! - [`file_data`]: reads, writes and hashes files
//! - [`owners`]: users and groups by name and by number
//! - [`notices`]: metadata that a destination does not keep
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
#[cfg(any(test, feature = "forgetting"))]
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

/// Alignment of direct I/O in bytes: offset, length and memory are multiples of it. It is the page
/// size of most machines, and few disks have larger blocks.
pub const DIRECT_ALIGNMENT_BYTES: usize = 4096;

/// A name in a directory, as a listing gives it (`.` and `..` left out).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName {
    /// The name.
    pub name: Box<[u8]>,
    /// Kind of the entry, if the file system reports it without a further call.
    pub kind: Option<FileKind>,
}

/// Conditions for opening a file for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// The file must not exist.
    New,
    /// The file must exist.
    Existing,
    /// The file may exist; its data stay.
    Either,
}

/// Method of reading or writing a file's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataMode {
    /// Through the page cache.
    #[default]
    Buffered,
    /// `O_DIRECT` for data aligned to [`DIRECT_ALIGNMENT_BYTES`]. The rest (the tail of a file)
    /// goes through the page cache. If the file system does not support direct I/O, all data go
    /// through it.
    Direct,
    /// [`DataMode::Direct`] if the file system supports it, otherwise [`DataMode::Uncached`].
    Bypass,
    /// Through the page cache, without changing its contents. Data are dropped from it as soon as
    /// they are read. Written data go to the disk at once, and are dropped after a sync has made
    /// them durable.
    Uncached,
}

/// Advice to the kernel about a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The range will be read from front to back.
    Sequential,
    /// The range will be read soon: the kernel begins to read it, and the call does not wait.
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
    /// Offset after the last byte.
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

    /// Reads the first part of a range, as far as it is in the page cache, without waiting for a
    /// disk. Returns the number of bytes. Returns 0 also if that is unknown, or if data bypass the
    /// cache.
    fn read_cached_at(&self, _buffer: &mut [u8], _offset: u64) -> usize {
        0
    }

    /// Returns a descriptor from which the kernel can send the data; `None` if the kernel does not
    /// have them.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    ///
    /// As `pwrite`; what was written before the error is undefined.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Returns the result of `fstat`.
    ///
    /// # Errors
    ///
    /// As `fstat`.
    fn status(&self) -> io::Result<Status>;

    /// Returns access to owner, lists and extended attributes; `None` if the file has no inode of
    /// its own.
    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        None
    }

    /// True if the file has another name (a hard link), so that writes would also change the file
    /// of that name.
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

    /// Makes a hole of these bytes, which then read as zeros. The length stays. If the file system
    /// has no holes, the call has no effect. Call it only for bytes that are zeros or were never
    /// written.
    ///
    /// # Errors
    ///
    /// As `fallocate`.
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        let _ = (offset, length);
        Ok(())
    }

    /// Reserves space from the start to `length` without changing the length, if the file system
    /// supports it. In memory, only this process reserves it, as long as the file is open.
    ///
    /// # Errors
    ///
    /// If there is not enough space. A part may stay reserved until the file is removed.
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
    /// If the device reports a failure. No data written since the last success may then be called
    /// durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes data and metadata durable (`fsync`).
    ///
    /// # Errors
    ///
    /// As [`StoredFile::sync_data`].
    fn sync_all(&self) -> io::Result<()>;

    /// Returns the file system of the file, if one sync of it ([`StoredFile::sync_device`]) can
    /// replace those of many files; otherwise `None`.
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

    /// Makes data and metadata of every file of its file system durable (`syncfs`).
    ///
    /// # Errors
    ///
    /// `Unsupported` if this is not known to be faster, otherwise as the device reports. Older
    /// kernels report failed writes of data only to [`StoredFile::wait_written`].
    fn sync_device(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the first range of data at or after `offset`; `None` if only a hole follows. A file
    /// system without holes returns one range.
    ///
    /// # Errors
    ///
    /// As `lseek`.
    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>>;

    /// Advises the kernel about a range (`length` 0: to the end of the file). Failures are ignored.
    fn advise(&self, advice: Advice, start: u64, length: u64);

    /// Takes the exclusive lock of the open file (`flock`) without waiting;
    /// false where another open file holds it. It ends when this one closes.
    ///
    /// # Errors
    ///
    /// As `flock`.
    fn try_lock(&self) -> io::Result<bool>;

    /// Takes the shared lock of the open file without waiting. False if another open file holds the
    /// exclusive lock. The lock ends when this one closes.
    ///
    /// # Errors
    ///
    /// As `flock`.
    fn try_lock_shared(&self) -> io::Result<bool>;

    /// Returns the actual method. A file opened as [`DataMode::Direct`] may return
    /// [`DataMode::Buffered`] (opened as [`DataMode::Bypass`] also [`DataMode::Uncached`]) from the
    /// start, or after its first aligned read or write, which shows if direct I/O works.
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

    /// Returns access to the directory's own owner, lists and extended attributes; `None` if it has
    /// no inode of its own.
    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        None
    }

    /// The same of a name in it, not following a link.
    fn inode_of(&self, name: &[u8]) -> Option<Box<dyn Inode + '_>> {
        let _ = name;
        None
    }

    /// Returns the target of a symbolic link.
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

    /// Renames as [`Directory::rename`] does, if no entry has the new name.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if an entry has the name; `Unsupported` if the system cannot do this in one
    /// call; otherwise as `renameat2` with `RENAME_NOREPLACE`.
    fn rename_new(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        let _ = (from, target, to);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Renames several files within this directory, each as [`Directory::rename`] does, in fewer
    /// round trips. Returns their results in order. `None` if they must be renamed one by one.
    fn rename_together(&self, names: &[(&[u8], &[u8])]) -> Option<Vec<io::Result<()>>> {
        let _ = names;
        None
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

    /// Returns the result of `lstat` for a name in the directory.
    ///
    /// # Errors
    ///
    /// As `fstatat`.
    fn status_of(&self, name: &[u8]) -> io::Result<Status>;

    /// Returns the result of `fstat` for the directory itself.
    ///
    /// # Errors
    ///
    /// As `fstat`.
    fn status(&self) -> io::Result<Status>;

    /// Returns the number of the mount through which the directory was opened; `None` if it is
    /// unknown.
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

    /// Returns the current path of the directory on this host; `None` if it is unknown.
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

    /// True if [`Directory::list`] returns each name once and in byte order. It may then return
    /// some names only after others were read.
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

    /// True if [`Directory::sync`] makes links and special files in it durable, and not only their
    /// names. On a file system without a journal, only [`Directory::sync_file_system`] does so.
    fn syncs_inodes(&self) -> bool {
        true
    }

    /// Returns the same as [`Directory::status_of`]. If a file does not report its size, it is read
    /// to its end to find it.
    ///
    /// # Errors
    ///
    /// As `fstatat`, and as reading the file.
    fn content_status_of(&self, name: &[u8]) -> io::Result<Status> {
        self.status_of(name)
    }

    /// Opens a file as [`Directory::open_file`] does, and reads it to its end at once, because its
    /// reported size is wrong.
    ///
    /// # Errors
    ///
    /// As `openat`, and as reading the file.
    fn open_whole(&self, name: &[u8]) -> io::Result<Arc<dyn StoredFile>> {
        self.open_file(name, DataMode::Buffered)
    }

    /// Returns the UUID of its file system, if it has one and the kernel reports it.
    fn uuid(&self) -> Option<origin::Uuid> {
        None
    }

    /// Returns the directory for the journals and claims of sessions. `None` if this one holds
    /// them.
    fn records(&self) -> Option<Arc<dyn Directory>> {
        None
    }

    /// Returns the resolution of stored times in nanoseconds, if it is known without a file.
    fn time_unit(&self) -> Option<u32> {
        None
    }

    /// Supports [`Directory::rename`] between two handles of one implementation.
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
