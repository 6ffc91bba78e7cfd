//! A source and a sink without a disk, `zero:SIZE` and `null:`, for measuring the parts between
//! them.

use std::any::Any;
use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::Timestamp;

use super::refusing::refuse_changes;
use super::{
    Advice, DataMode, DataRange, Directory, FileKind, ListedName, NameList, Status, StoredFile,
};

/// Name of the file of zeros.
pub const ZERO_NAME: &[u8] = b"zero";

/// A directory with one file of zeros, or an empty one. It rejects all changes.
struct Nowhere {
    size: Option<u64>,
}

/// A file of zeros.
struct Zeros {
    size: u64,
}

/// Returns a directory with one file, [`ZERO_NAME`], of `size` zeros.
pub fn zero_source(size: u64) -> Arc<dyn Directory> {
    Arc::new(Nowhere { size: Some(size) })
}

/// Returns an empty directory.
pub fn sink() -> Arc<dyn Directory> {
    Arc::new(Nowhere { size: None })
}

fn status(kind: FileKind, size: u64) -> Status {
    Status::on_no_disk(kind, 0o644, size)
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl StoredFile for Zeros {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.size.saturating_sub(offset);
        let count = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        buffer[..count].fill(0);
        Ok(count)
    }

    fn write_at(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        unsupported()
    }

    fn status(&self) -> io::Result<Status> {
        Ok(status(FileKind::File, self.size))
    }

    fn set_length(&self, _length: u64) -> io::Result<()> {
        unsupported()
    }

    fn preallocate(&self, _length: u64) -> io::Result<()> {
        unsupported()
    }

    fn set_mode(&self, _mode: u32) -> io::Result<()> {
        unsupported()
    }

    fn set_modified(&self, _modified: Timestamp) -> io::Result<()> {
        unsupported()
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        Ok((offset < self.size).then_some(DataRange {
            start: offset,
            end: self.size,
        }))
    }

    fn advise(&self, _advice: Advice, _start: u64, _length: u64) {}

    fn try_lock(&self) -> io::Result<bool> {
        unsupported()
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        unsupported()
    }

    fn data_mode(&self) -> DataMode {
        DataMode::Buffered
    }
}

/// A listing of at most one name.
struct OneName(Option<ListedName>);

impl NameList for OneName {
    fn next_name(&mut self) -> io::Result<Option<ListedName>> {
        Ok(self.0.take())
    }
}

impl Directory for Nowhere {
    fn open_directory(&self, _name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn open_file(&self, name: &[u8], _mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        match self.size {
            Some(size) if name == ZERO_NAME => Ok(Arc::new(Zeros { size })),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn read_symlink(&self, _name: &[u8]) -> io::Result<Box<[u8]>> {
        unsupported()
    }

    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        match self.size {
            Some(size) if name == ZERO_NAME => Ok(status(FileKind::File, size)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn status(&self) -> io::Result<Status> {
        Ok(status(FileKind::Directory, 0))
    }

    fn list(&self) -> io::Result<Box<dyn NameList>> {
        let listed = ListedName {
            name: ZERO_NAME.into(),
            kind: Some(FileKind::File),
        };
        Ok(Box::new(OneName(self.size.map(|_| listed))))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    refuse_changes!(io::ErrorKind::Unsupported);
}
