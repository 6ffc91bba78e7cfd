//! A directory that simulates superuser rights for an ordinary user. Owners, special files, special
//! permission bits, access control lists and privileged attributes are stored in extended
//! attributes that any user may set. The format is that of rsync's `--fake-super` (`rsync(1)`, and
//! the output of rsync 3.5), so that each program reads the files of the other:
//!
//! - `user.rsync.%stat`: `MODE MAJOR,MINOR USER:GROUP`, with the mode and kind in octal, if they
//!   differ from the real file's
//! - a link, device, socket or FIFO is a regular file with that attribute; its content is a link's
//!   target
//! - `user.rsync.%aacl` and `user.rsync.%dacl`: access control lists
//! - `user.rsync.NAME`: the attribute NAME of another namespace than `user`

mod file;
mod inode;
mod lists;
mod stand;

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;

use longhaul_proto::manifest::Timestamp;

use super::attributes::Inode;
use super::roots::OpenRoot;
use super::{
    Creation, DataMode, Directory, FileKind, ListedName, NameList, Special, Status, StoredFile,
};
use file::FakeFile;
use inode::FakeInode;
use stand::{
    Faked, Kind, OWNER_OF_DIRECTORY, OWNER_OF_FILE, PLAIN_BITS, STAT, look, set_mode, status_of,
};

/// Maximum length in bytes of a link's target (`PATH_MAX` without the NUL).
const MOST_TARGET_BYTES: u64 = 4095;

/// Names of a directory. The kind of a regular file is unknown, as it may represent another kind.
struct FakeNames(Box<dyn NameList>);

impl NameList for FakeNames {
    fn next_name(&mut self) -> io::Result<Option<ListedName>> {
        let next = self.0.next_name()?;
        Ok(next.map(|listed| ListedName {
            kind: listed.kind.filter(|kind| *kind != FileKind::File),
            ..listed
        }))
    }
}

/// A directory with simulated superuser rights.
pub struct FakeDirectory(Arc<dyn Directory>);

impl FakeDirectory {
    /// Wraps a directory and all beneath it if `fakes` is true.
    pub fn around_if(fakes: bool, inner: Arc<dyn Directory>) -> Arc<dyn Directory> {
        if fakes {
            FakeDirectory::around(inner)
        } else {
            inner
        }
    }

    /// Wraps a directory and all beneath it.
    pub fn around(inner: Arc<dyn Directory>) -> Arc<dyn Directory> {
        Arc::new(FakeDirectory(inner))
    }

    /// Creates a file that represents another kind.
    fn make(&self, name: &[u8], kind: Kind, (device, data): ((u32, u32), &[u8])) -> io::Result<()> {
        let file = self
            .0
            .create_file(name, Creation::New, DataMode::Buffered)?;
        let stand = || {
            let inode = file.inode().ok_or(io::ErrorKind::Unsupported)?;
            let real = inode.status()?;
            let mode = match kind {
                Kind::Symlink => PLAIN_BITS,
                _ => OWNER_OF_FILE,
            };
            let faked = Faked {
                kind,
                mode,
                device,
                owner: real.owner,
            };
            // Set first: without the attribute, the file would count as a regular one.
            inode.set(STAT, &faked.write())?;
            if data.is_empty() {
                Ok(())
            } else {
                // No later sync covers the target of a link.
                file.write_at(data, 0).and_then(|()| file.sync_all())
            }
        };
        stand().inspect_err(|_| {
            // A file that cannot be removed has a temporary name and is cleaned up later.
            let _ = self.0.remove_file(name);
        })
    }
}

/// Returns the wrapped directory of a rename's target. Either both directories are wrapped or
/// neither is.
fn inner_of(target: &dyn Directory) -> &dyn Directory {
    match target.as_any().downcast_ref::<FakeDirectory>() {
        Some(target) => &*target.0,
        None => target,
    }
}

impl Directory for FakeDirectory {
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        Ok(FakeDirectory::around(self.0.open_directory(name)?))
    }

    fn make_directory(&self, name: &[u8], mode: u32) -> io::Result<()> {
        let mode = mode & PLAIN_BITS | OWNER_OF_DIRECTORY;
        self.0.make_directory(name, mode)
    }

    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        FakeFile::of(self.0.open_file(name, mode)?)
    }

    fn open_whole(&self, name: &[u8]) -> io::Result<Arc<dyn StoredFile>> {
        FakeFile::of(self.0.open_whole(name)?)
    }

    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        mode: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>> {
        FakeFile::of(self.0.create_file(name, creation, mode)?)
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        if target.is_empty() || target.len() as u64 > MOST_TARGET_BYTES {
            Err(rustix::io::Errno::NAMETOOLONG.into())
        } else {
            self.make(name, Kind::Symlink, ((0, 0), target))
        }
    }

    fn make_special(&self, name: &[u8], special: Special) -> io::Result<()> {
        self.make(name, Kind::Special(special.kind), (special.device, b""))
    }

    fn link(&self, name: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        self.0.link(name, inner_of(target), to)
    }

    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        Some(Box::new(FakeInode(self.0.inode()?)))
    }

    fn inode_of(&self, name: &[u8]) -> Option<Box<dyn Inode + '_>> {
        Some(Box::new(FakeInode(self.0.inode_of(name)?)))
    }

    fn read_symlink(&self, name: &[u8]) -> io::Result<Box<[u8]>> {
        let (real, faked) = match self.0.inode_of(name) {
            Some(inode) => look(&*inode)?,
            None => return self.0.read_symlink(name),
        };
        if real.kind == FileKind::Symlink || faked.kind != Kind::Symlink {
            return self.0.read_symlink(name);
        }
        let file = self.0.open_file(name, DataMode::Buffered)?;
        let size = file.status()?.size;
        if size == 0 || size > MOST_TARGET_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut target = vec![0; size as usize];
        let count = file.read_at(&mut target, 0)?;
        target.truncate(count);
        Ok(target.into())
    }

    fn rename(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        self.0.rename(from, inner_of(target), to)
    }

    fn rename_new(&self, from: &[u8], target: &dyn Directory, to: &[u8]) -> io::Result<()> {
        self.0.rename_new(from, inner_of(target), to)
    }

    fn exchange(&self, one: &[u8], other: &[u8]) -> io::Result<()> {
        self.0.exchange(one, other)
    }

    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        self.0.remove_file(name)
    }

    fn remove_directory(&self, name: &[u8]) -> io::Result<()> {
        self.0.remove_directory(name)
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        match self.0.inode_of(name) {
            Some(inode) => status_of(&*inode),
            None => self.0.status_of(name),
        }
    }

    fn content_status_of(&self, name: &[u8]) -> io::Result<Status> {
        let status = self.status_of(name)?;
        match status.kind {
            FileKind::File => {
                let size = self.0.content_status_of(name)?.size;
                Ok(Status { size, ..status })
            }
            _ => Ok(status),
        }
    }

    fn status(&self) -> io::Result<Status> {
        match self.0.inode() {
            Some(inode) => status_of(&*inode),
            None => self.0.status(),
        }
    }

    fn mount(&self) -> Option<u64> {
        self.0.mount()
    }

    fn set_modified_of(&self, name: &[u8], modified: Timestamp) -> io::Result<()> {
        self.0.set_modified_of(name, modified)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        match self.0.inode() {
            Some(inode) => set_mode(&*inode, mode),
            None => self.0.set_mode(mode),
        }
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        self.0.set_modified(modified)
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        Ok(Box::new(FakeNames(self.0.list()?)))
    }

    fn lists_in_order(&self) -> bool {
        self.0.lists_in_order()
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn sync_file_system(&self) -> io::Result<()> {
        self.0.sync_file_system()
    }

    fn syncs_inodes(&self) -> bool {
        self.0.syncs_inodes()
    }

    fn uuid(&self) -> Option<super::origin::Uuid> {
        self.0.uuid()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Opens directories with simulated superuser rights.
pub struct FakeRoots(pub Arc<dyn OpenRoot>);

impl OpenRoot for FakeRoots {
    fn open_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        Ok(FakeDirectory::around(self.0.open_root(path)?))
    }

    /// Always fails, because the kernel cannot follow links that are stored as regular files.
    fn open_following(&self, _: &Path) -> io::Result<Arc<dyn Directory>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn make_root(&self, path: &Path) -> io::Result<Arc<dyn Directory>> {
        Ok(FakeDirectory::around(self.0.make_root(path)?))
    }
}

#[cfg(test)]
mod tests;
