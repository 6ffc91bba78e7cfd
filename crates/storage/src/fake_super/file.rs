//! A file whose attributes define its status.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longhaul_proto::manifest::Timestamp;

use super::inode::FakeInode;
use super::stand::{set_mode, status_of};
use crate::attributes::Inode;
use crate::{Advice, DataMode, DataRange, FileKind, Status, StoredFile};

/// A file in a directory with simulated superuser rights.
pub(super) struct FakeFile(Arc<dyn StoredFile>);

impl FakeFile {
    /// Wraps a file. Fails unless it represents a regular file.
    pub fn of(inner: Arc<dyn StoredFile>) -> io::Result<Arc<dyn StoredFile>> {
        let file = FakeFile(inner);
        match file.status()?.kind {
            FileKind::File => Ok(Arc::new(file)),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl StoredFile for FakeFile {
    fn status(&self) -> io::Result<Status> {
        match self.0.inode() {
            Some(inode) => status_of(&*inode),
            None => self.0.status(),
        }
    }

    fn inode(&self) -> Option<Box<dyn Inode + '_>> {
        Some(Box::new(FakeInode(self.0.inode()?)))
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        match self.0.inode() {
            Some(inode) => set_mode(&*inode, mode),
            None => self.0.set_mode(mode),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        self.0.read_cached_at(buffer, offset)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(data, offset)
    }

    fn has_other_names(&self) -> io::Result<bool> {
        self.0.has_other_names()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.punch_hole(offset, length)
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        self.0.preallocate(length)
    }

    fn set_modified(&self, modified: Timestamp) -> io::Result<()> {
        self.0.set_modified(modified)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn device(&self) -> Option<u64> {
        self.0.device()
    }

    fn wait_written(&self) -> io::Result<()> {
        self.0.wait_written()
    }

    fn sync_device(&self) -> io::Result<()> {
        self.0.sync_device()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        self.0.next_data(offset)
    }

    fn advise(&self, advice: Advice, start: u64, length: u64) {
        self.0.advise(advice, start, length);
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.0.try_lock()
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        self.0.try_lock_shared()
    }

    fn data_mode(&self) -> DataMode {
        self.0.data_mode()
    }
}
