//! FUSE operations, performed in the directory behind the mount.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, FileType as Kind, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};

use super::attributes::{VALID, attributes, kind, number, timespec};
use super::{MAXIMUM_REQUEST, Mirror, lock};

// tidy: long file because it implements one trait, with a function per operation.

/// Reads and writes bypass the page cache, and several may run on one file at a time.
const PAST_CACHE: FopenFlags =
    FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

fn io_error(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn answer(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Mirror {
    fn look_at(&self, path: &Path) -> Result<FileAttr, Errno> {
        Ok(attributes(&fs::symlink_metadata(path)?, self.top))
    }

    /// Looks up a name and records it for the kernel.
    fn enter(&self, parent: INodeNo, name: &OsStr, path: &Path) -> Result<FileAttr, Errno> {
        let found = self.look_at(path)?;
        lock(&self.nodes).remember(parent.0, name, found.ino.0);
        Ok(found)
    }

    fn answer_entry(&self, reply: ReplyEntry, result: Result<FileAttr, Errno>) {
        match result {
            Ok(found) => reply.entry(&VALID, &found, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    /// Creates an entry, makes the calling user its owner, and records it for the kernel.
    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(&Path) -> Result<(), Errno>,
    ) -> Result<FileAttr, Errno> {
        self.operated(|| {
            let path = self.child(parent.0, name)?;
            make(&path)?;
            give(request, &path)?;
            self.enter(parent, name, &path)
        })
    }

    fn open_file(&self, number: INodeNo, flags: OpenFlags) -> Result<u64, Errno> {
        let path = self.path(number.0)?;
        let file = rustix::fs::open(&path, usable(flags.0), Mode::empty()).map_err(io_error)?;
        self.keep(File::from(file))
    }

    fn change(&self, change: &Change, path: &Path) -> Result<(), Errno> {
        if let Some(mode) = change.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::chmod(path, mode).map_err(io_error)?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(io_error)?;
        }
        if let Some(size) = change.size {
            File::options().write(true).open(path)?.set_len(size)?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = change.times();
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(io_error)?;
        }
        Ok(())
    }

    /// Applies [`Mirror::change`] to a file that was removed but is still open.
    fn change_open(change: &Change, file: &File) -> Result<(), Errno> {
        if let Some(mode) = change.mode {
            rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777)).map_err(io_error)?;
        }
        if let Some(size) = change.size {
            file.set_len(size)?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            rustix::fs::futimens(file, &change.times()).map_err(io_error)?;
        }
        Ok(())
    }

    fn set_attributes(&self, number: INodeNo, change: &Change) -> Result<FileAttr, Errno> {
        match self.path(number.0) {
            Ok(path) => {
                self.change(change, &path)?;
                self.look_at(&path)
            }
            Err(_) => {
                let file = self.still_open(number.0)?;
                Mirror::change_open(change, &file)?;
                Ok(attributes(&file.metadata()?, self.top))
            }
        }
    }

    fn remove(
        &self,
        parent: INodeNo,
        name: &OsStr,
        remove: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), Errno> {
        self.operated(|| {
            remove(&self.child(parent.0, name)?)?;
            lock(&self.nodes).removed(parent.0, name);
            Ok(())
        })
    }

    fn rename_names(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let mut nodes = lock(&self.nodes);
        let path =
            |(parent, name): (INodeNo, &OsStr)| nodes.child(parent.0, name).ok_or(Errno::ESTALE);
        let (old, new) = (path(from)?, path(to)?);
        let bits = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        rustix::fs::renameat_with(CWD, &old, CWD, &new, bits).map_err(io_error)?;
        let (from, to) = ((from.0.0, from.1), (to.0.0, to.1));
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            nodes.exchanged(from, to);
        } else {
            nodes.renamed(from, to);
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<(u64, FileType, std::ffi::OsString)>, Errno> {
        let mut listing = vec![
            (self.top, FileType::Directory, ".".into()),
            (self.top, FileType::Directory, "..".into()),
        ];
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let number = number(entry.ino(), self.top);
            listing.push((number, kind(entry.file_type()?), entry.file_name()));
        }
        Ok(listing)
    }
}

/// Changes requested by `setattr`.
struct Change {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    accessed: Option<TimeOrNow>,
    modified: Option<TimeOrNow>,
}

impl Change {
    fn times(&self) -> Timestamps {
        Timestamps {
            last_access: timespec(self.accessed),
            last_modification: timespec(self.modified),
        }
    }
}

/// Returns the flags for opening a file behind the mount. Flags that the kernel already
/// handles are removed (creating, appending by offset), and O_DIRECT, because the buffers
/// are not aligned.
fn usable(flags: i32) -> OFlags {
    let flags = OFlags::from_bits_retain(flags as u32);
    let done = OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::DIRECT | OFlags::NOFOLLOW;
    flags.difference(done) | OFlags::CLOEXEC
}

/// Makes the calling user the owner of a new entry.
fn give(request: &Request, path: &Path) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(request.uid()), Gid::from_raw(request.gid()));
    if uid == rustix::process::geteuid() && gid == rustix::process::getegid() {
        return Ok(());
    }
    rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(io_error)
}

/// Replies with the value of an attribute, or with its length if `size` is 0.
fn answer_attribute(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Err(error) => reply.error(error),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}

/// Reads until the end of the file or of the buffer.
fn read_fully(file: &File, offset: u64, size: u32) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; size.min(MAXIMUM_REQUEST) as usize];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

impl Filesystem for Mirror {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each setting is optional: older kernels refuse some of them.
        let _ = config.set_max_write(MAXIMUM_REQUEST);
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_background(super::MAXIMUM_OUTSTANDING as u16);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let path = self.child(parent.0, name);
        let found = path.and_then(|path| self.operated(|| self.enter(parent, name, &path)));
        self.answer_entry(reply, found);
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        lock(&self.nodes).forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = match self.path(number.0) {
            Ok(path) => self.look_at(&path),
            Err(_) => self
                .still_open(number.0)
                .and_then(|file| Ok(attributes(&file.metadata()?, self.top))),
        };
        match found {
            Ok(found) => reply.attr(&VALID, &found),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change {
            mode,
            uid,
            gid,
            size,
            accessed,
            modified,
        };
        match self.set_attributes(number, &change) {
            Ok(found) => reply.attr(&VALID, &found),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self
            .path(number.0)
            .and_then(|path| Ok(fs::read_link(path)?));
        match target {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, parent, name, |path| {
            let (kind, mode) = (Kind::from_raw_mode(mode), mode & !umask & 0o7777);
            rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device.into())
                .map_err(io_error)
        });
        self.answer_entry(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, parent, name, |path| {
            let mode = Mode::from_raw_mode(mode & !umask & 0o7777);
            rustix::fs::mkdir(path, mode).map_err(io_error)
        });
        self.answer_entry(reply, made);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, parent, name, |path| {
            Ok(std::os::unix::fs::symlink(target, path)?)
        });
        self.answer_entry(reply, made);
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.operated(|| {
            let (old, new) = (self.path(number.0)?, self.child(parent.0, name)?);
            fs::hard_link(old, &new)?;
            self.enter(parent, name, &new)
        });
        self.answer_entry(reply, linked);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(
            reply,
            self.remove(parent, name, |path| fs::remove_file(path)),
        );
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(
            reply,
            self.remove(parent, name, |path| fs::remove_dir(path)),
        );
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed =
            self.operated(|| self.rename_names((parent, name), (new_parent, new_name), flags));
        answer(reply, renamed);
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.operated(|| self.open_file(number, flags)) {
            Ok(handle) => reply.opened(FileHandle(handle), PAST_CACHE),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let mut handle = 0;
        let made = self.make(request, parent, name, |path| {
            let exclusive = OFlags::from_bits_retain(flags as u32) & OFlags::EXCL;
            let flags = usable(flags) | OFlags::CREATE | exclusive | OFlags::NOFOLLOW;
            let mode = Mode::from_raw_mode(mode & !umask & 0o7777);
            let file = rustix::fs::open(path, flags, mode).map_err(io_error)?;
            handle = self.keep(File::from(file))?;
            Ok(())
        });
        match made {
            Ok(made) => {
                let handle = FileHandle(handle);
                reply.created(&VALID, &made, Generation(0), handle, PAST_CACHE);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.file(handle.0) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let read = self.paced(&self.reading, request.pid(), size.into(), || {
            read_fully(&file, offset, size)
        });
        match read {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = match self.file(handle.0) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let bytes = data.len() as u64;
        let written = self.paced(&self.writing, request.pid(), bytes, || {
            file.write_all_at(data, offset)
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.files).remove(&handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        only_data: bool,
        reply: ReplyEmpty,
    ) {
        let synced = self.operated(|| {
            let file = self.file(handle.0)?;
            if only_data {
                file.sync_data()?;
            } else {
                file.sync_all()?;
            }
            Ok(())
        });
        answer(reply, synced);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let listing = self.operated(|| self.path(number.0).and_then(|path| self.list(&path)));
        match listing {
            Ok(listing) => {
                let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
                lock(&self.listings).insert(handle, Arc::new(listing));
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        // The listing is read again from the beginning, because the directory may have
        // changed.
        if offset == 0
            && let Ok(listing) = self.path(number.0).and_then(|path| self.list(&path))
        {
            lock(&self.listings).insert(handle.0, Arc::new(listing));
        }
        let Some(listing) = lock(&self.listings).get(&handle.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        let entries = listing.iter().enumerate().skip(offset as usize);
        for (index, (number, kind, name)) in entries {
            if reply.add(INodeNo(*number), index as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.listings).remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.operated(|| {
            File::open(self.path(number.0)?)?.sync_all()?;
            Ok(())
        });
        answer(reply, synced);
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let path: Result<PathBuf, Errno> = self.path(number.0);
        match path.and_then(|path| rustix::fs::statvfs(&path).map_err(io_error)) {
            Ok(found) => reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                found.f_bsize as u32,
                found.f_namemax as u32,
                found.f_frsize as u32,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let set = self
            .path(number.0)
            .and_then(|path| rustix::fs::lsetxattr(&path, name, value, flags).map_err(io_error));
        answer(reply, set);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        // Maximum length of a value on Linux.
        let mut value = vec![0; 65_536];
        let found = self.path(number.0).and_then(|path| {
            let length = rustix::fs::lgetxattr(&path, name, &mut value[..]).map_err(io_error)?;
            value.truncate(length);
            Ok(value)
        });
        answer_attribute(reply, size, found);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let mut names = vec![0; 65_536];
        let found = self.path(number.0).and_then(|path| {
            let length = rustix::fs::llistxattr(&path, &mut names[..]).map_err(io_error)?;
            names.truncate(length);
            Ok(names)
        });
        answer_attribute(reply, size, found);
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self
            .path(number.0)
            .and_then(|path| rustix::fs::lremovexattr(&path, name).map_err(io_error));
        answer(reply, removed);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::FallocateFlags::from_bits_retain(mode as u32);
        let done = self.file(handle.0).and_then(|file| {
            rustix::fs::fallocate(&*file, flags, offset, length).map_err(io_error)
        });
        answer(reply, done);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL);
        let found = offset.and_then(|offset| {
            let to = match whence {
                libc::SEEK_DATA => rustix::fs::SeekFrom::Data(offset),
                libc::SEEK_HOLE => rustix::fs::SeekFrom::Hole(offset),
                _ => return Err(Errno::EINVAL),
            };
            // Moving the shared position is harmless: reads use explicit offsets.
            rustix::fs::seek(&*self.file(handle.0)?, to).map_err(io_error)
        });
        match found {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(error),
        }
    }
}
