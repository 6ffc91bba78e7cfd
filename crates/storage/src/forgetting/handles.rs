//! Open files and directories of the forgetting storage.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_proto::manifest::Timestamp;
use rustix::io::Errno;

use super::disk::{Body, Names, ROOT};
use super::pages::{PAGE_BYTES, Pages};
use super::{ForgettingStorage, system_error};
use crate::{
    Advice, Creation, DataMode, DataRange, Directory, FileKind, ListedName, NameList, Status,
    StoredFile,
};

/// Mode of a new file, because `create_file` has no mode argument.
const NEW_FILE_MODE: u32 = 0o600;

pub(super) struct OpenDirectory {
    storage: ForgettingStorage,
    inode: u64,
}

struct OpenFile {
    storage: ForgettingStorage,
    inode: u64,
    handle: u64,
    writable: bool,
    mode: DataMode,
    /// True if direct I/O was refused.
    refused: AtomicBool,
}

impl OpenDirectory {
    pub(super) fn root(storage: ForgettingStorage) -> OpenDirectory {
        let inode = ROOT;
        OpenDirectory { storage, inode }
    }

    fn open(&self, inode: u64, mode: DataMode, writable: bool) -> io::Result<Arc<dyn StoredFile>> {
        let mut disk = self.storage.lock();
        match disk.node(inode)?.kind() {
            FileKind::File => (),
            FileKind::Symlink => return Err(system_error(Errno::LOOP)),
            FileKind::Directory if writable => return Err(system_error(Errno::ISDIR)),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        disk.next_handle += 1;
        Ok(Arc::new(OpenFile {
            storage: self.storage.clone(),
            inode,
            handle: disk.next_handle,
            writable,
            mode,
            refused: AtomicBool::new(false),
        }))
    }

    fn remove(&self, name: &[u8], directory: bool) -> io::Result<()> {
        let mut disk = self.storage.lock();
        disk.check_power()?;
        let inode = disk.find(self.inode, name)?;
        match (&disk.node(inode)?.body, directory) {
            (Body::Directory(_), false) => return Err(system_error(Errno::ISDIR)),
            (Body::Directory(names), true) if !names.seen.is_empty() => {
                return Err(system_error(Errno::NOTEMPTY));
            }
            (Body::Directory(_), true) | (_, false) => (),
            (_, true) => return Err(system_error(Errno::NOTDIR)),
        }
        disk.unlink(self.inode, name)?;
        disk.step()
    }

    fn make(&self, name: &[u8], body: Body, mode: u32) -> io::Result<u64> {
        let mut disk = self.storage.lock();
        disk.check_power()?;
        let inode = disk.create(self.inode, name, body, mode)?;
        disk.step()?;
        Ok(inode)
    }
}

impl Directory for OpenDirectory {
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        let disk = self.storage.lock();
        disk.check_power()?;
        let inode = disk.find(self.inode, name)?;
        disk.names(inode)?;
        Ok(Arc::new(OpenDirectory {
            storage: self.storage.clone(),
            inode,
        }))
    }

    fn make_directory(&self, name: &[u8], mode: u32) -> io::Result<()> {
        let body = Body::Directory(Names::default());
        self.make(name, body, mode).map(drop)
    }

    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        let found = {
            let disk = self.storage.lock();
            disk.check_power()?;
            disk.find(self.inode, name)?
        };
        self.open(found, mode, false)
    }

    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        mode: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>> {
        let mut disk = self.storage.lock();
        disk.check_power()?;
        disk.names(self.inode)?;
        let there = disk.find(self.inode, name).ok();
        let inode = match (there, creation) {
            (Some(_), Creation::New) => return Err(system_error(Errno::EXIST)),
            (Some(inode), _) => inode,
            (None, Creation::Existing) => return Err(system_error(Errno::NOENT)),
            (None, _) => {
                let body = Body::File(Pages::default());
                let inode = disk.create(self.inode, name, body, NEW_FILE_MODE)?;
                disk.step()?;
                inode
            }
        };
        drop(disk);
        self.open(inode, mode, true)
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        let body = Body::Symlink(target.into());
        self.make(name, body, 0o777).map(drop)
    }

    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>> {
        let disk = self.storage.lock();
        disk.check_power()?;
        match &disk.node(disk.find(self.inode, name)?)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(system_error(Errno::INVAL)),
        }
    }

    fn rename(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        let target = target.as_any().downcast_ref::<OpenDirectory>();
        let target = target.ok_or(system_error(Errno::XDEV))?;
        let mut disk = self.storage.lock();
        disk.check_power()?;
        disk.check_rename()?;
        disk.rename((self.inode, from), (target.inode, to))?;
        disk.step()
    }

    fn rename_new(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        let there = target.status_of(to).is_ok();
        if there {
            Err(system_error(Errno::EXIST))
        } else {
            self.rename(from, target, to)
        }
    }

    fn exchange(&self, one: &[u8], other: &[u8]) -> io::Result<()> {
        let mut disk = self.storage.lock();
        disk.check_power()?;
        disk.check_rename()?;
        disk.exchange(self.inode, one, other)?;
        disk.step()
    }

    fn link(&self, name: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        let target = target.as_any().downcast_ref::<OpenDirectory>();
        let target = target.ok_or(system_error(Errno::XDEV))?;
        let mut disk = self.storage.lock();
        disk.check_power()?;
        disk.link((self.inode, name), (target.inode, to))?;
        disk.step()
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        self.remove(name, false)
    }

    fn remove_directory(&self, name: &[u8]) -> io::Result<()> {
        self.remove(name, true)
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        let disk = self.storage.lock();
        disk.check_power()?;
        disk.status(disk.find(self.inode, name)?)
    }

    fn status(&self) -> io::Result<Status> {
        let disk = self.storage.lock();
        disk.check_power()?;
        disk.status(self.inode)
    }

    fn set_modified_of(&self, name: &[u8], modified: Timestamp) -> io::Result<()> {
        let mut disk = self.storage.lock();
        disk.check_power()?;
        let inode = disk.find(self.inode, name)?;
        disk.node_mut(inode)?.metadata.modified = modified;
        disk.step()
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode(&self.storage, self.inode, mode)
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        set_modified(&self.storage, self.inode, modified)
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        let disk = self.storage.lock();
        disk.check_power()?;
        let mut listed = Vec::new();
        for (name, &inode) in disk.names(self.inode)? {
            listed.push(ListedName {
                name: name.clone(),
                kind: Some(disk.node(inode)?.kind()),
            });
        }
        // An arbitrary order, so that callers cannot depend on one.
        listed.sort_by_cached_key(|listed| twox_hash::XxHash3_64::oneshot(&listed.name));
        Ok(Box::new(Listing(listed)))
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.storage.lock();
        disk.check_power()?;
        disk.step()?;
        disk.sync_directory(self.inode)
    }

    fn sync_file_system(&self) -> io::Result<()> {
        let mut disk = self.storage.lock();
        disk.check_power()?;
        disk.step()?;
        disk.sync_all()
    }

    fn syncs_inodes(&self) -> bool {
        !self.storage.lock().lacks_journal
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Listing(Vec<ListedName>);

impl NameList for Listing {
    fn next_name(&mut self) -> io::Result<Option<ListedName>> {
        Ok(self.0.pop())
    }
}

impl OpenFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(system_error(Errno::BADF))
        }
    }

    fn check_aligned(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        if self.storage.lock().refuses_direct {
            self.refused.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let position = offset | buffer.len() as u64 | buffer.as_ptr() as u64;
        if self.mode == DataMode::Direct && !position.is_multiple_of(PAGE_BYTES) {
            return Err(system_error(Errno::INVAL));
        }
        Ok(())
    }
}

impl StoredFile for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check_aligned(buffer, offset)?;
        let disk = self.storage.lock();
        disk.check_power()?;
        Ok(disk.pages(self.inode)?.read(buffer, offset))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        self.check_aligned(data, offset)?;
        if offset.saturating_add(data.len() as u64) > i64::MAX as u64 {
            return Err(system_error(Errno::FBIG));
        }
        let mut disk = self.storage.lock();
        disk.check_power()?;
        let fitting = disk.take_room(data.len() as u64) as usize;
        disk.pages_mut(self.inode)?.write(&data[..fitting], offset);
        disk.step()?;
        if fitting < data.len() {
            return Err(system_error(Errno::NOSPC));
        }
        Ok(())
    }

    fn status(&self) -> io::Result<Status> {
        let disk = self.storage.lock();
        disk.check_power()?;
        disk.status(self.inode)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut disk = self.storage.lock();
        disk.check_power()?;
        disk.pages_mut(self.inode)?.set_length(length);
        disk.step()
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut disk = self.storage.lock();
        disk.check_power()?;
        disk.step()?;
        match disk.faults.room_bytes {
            Some(room) if room < length => Err(system_error(Errno::NOSPC)),
            _ => Ok(()),
        }
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode(&self.storage, self.inode, mode)
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        set_modified(&self.storage, self.inode, modified)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.storage.lock_to_sync();
        disk.check_power()?;
        disk.step()?;
        disk.sync_file(self.inode, false)
    }

    fn sync_all(&self) -> io::Result<()> {
        let interruption = self.storage.lock().interruption.take();
        if let Some(interruption) = interruption {
            interruption();
        }
        let mut disk = self.storage.lock();
        disk.check_power()?;
        disk.step()?;
        disk.sync_file(self.inode, true)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        let disk = self.storage.lock();
        disk.check_power()?;
        Ok(disk.pages(self.inode)?.next_data(offset))
    }

    fn advise(&self, _advice: Advice, _start: u64, _length: u64) {}

    fn try_lock(&self) -> io::Result<bool> {
        let mut disk = self.storage.lock();
        disk.check_power()?;
        let lock = disk.locks.entry(self.inode).or_default();
        Ok(lock.take(self.handle, true))
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        let mut disk = self.storage.lock();
        disk.check_power()?;
        let lock = disk.locks.entry(self.inode).or_default();
        Ok(lock.take(self.handle, false))
    }

    fn data_mode(&self) -> DataMode {
        if self.refused.load(Ordering::Relaxed) {
            DataMode::Buffered
        } else {
            self.mode
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut disk = self.storage.lock();
        if let Some(lock) = disk.locks.get_mut(&self.inode) {
            lock.release(self.handle);
        }
    }
}

fn set_mode(storage: &ForgettingStorage, inode: u64, mode: u32) -> io::Result<()> {
    let mut disk = storage.lock();
    disk.check_power()?;
    disk.node_mut(inode)?.metadata.mode = mode;
    disk.step()
}

fn set_modified(storage: &ForgettingStorage, inode: u64, modified: Timestamp) -> io::Result<()> {
    let mut disk = storage.lock();
    disk.check_power()?;
    disk.node_mut(inode)?.metadata.modified = modified;
    disk.step()
}
