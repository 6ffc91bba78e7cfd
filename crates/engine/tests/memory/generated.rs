//! A source of many small files and a destination that discards them. Neither uses a disk, or
//! memory for each file.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_proto::manifest::Timestamp;
use longhaul_storage::posix::PosixDirectory;
use longhaul_storage::{
    Advice, Creation, DataMode, DataRange, Directory, FileKind, ListedName, NameList, Status,
    StoredFile,
};
use tempfile::TempDir;

/// Number of files in each directory.
const PER_DIRECTORY: u64 = 1000;
const FILE_BYTES: u64 = 100;

fn status(kind: FileKind, inode: u64) -> Status {
    let size = if kind == FileKind::File {
        FILE_BYTES
    } else {
        0
    };
    Status {
        kind,
        mode: 0o700,
        size,
        allocated: size,
        device: 1,
        inode,
        modified: Timestamp::default(),
        owner: Default::default(),
        changed: Timestamp::default(),
        names: 1,
        special: None,
    }
}

fn no<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

fn none<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotFound.into())
}

/// The source's root, or one of its directories.
pub struct Generated {
    files: u64,
    root: bool,
}

impl Generated {
    pub fn new(files: u64) -> Generated {
        Generated { files, root: true }
    }
}

struct Names {
    next: u64,
    end: u64,
    kind: FileKind,
}

impl NameList for Names {
    fn next_name(&mut self) -> io::Result<Option<ListedName>> {
        if self.next == self.end {
            return Ok(None);
        }
        self.next += 1;
        let name = format!("{:08}", self.next - 1).into_bytes().into();
        Ok(Some(ListedName {
            name,
            kind: Some(self.kind),
        }))
    }
}

/// A file with the same bytes everywhere, which discards writes.
struct Same {
    inode: u64,
    length: AtomicU64,
}

impl StoredFile for Same {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = FILE_BYTES.saturating_sub(offset) as usize;
        let count = left.min(buffer.len());
        buffer[..count].fill(7);
        Ok(count)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + data.len() as u64;
        self.length.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }
    fn status(&self) -> io::Result<Status> {
        Ok(Status {
            mode: 0o700,
            ..status(FileKind::File, self.inode)
        })
    }
    fn set_length(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn preallocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
    fn set_mode(&self, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn set_modified(&self, _: Timestamp) -> io::Result<()> {
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }
    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        let end = FILE_BYTES;
        Ok((offset < end).then_some(DataRange { start: offset, end }))
    }
    fn advise(&self, _: Advice, _: u64, _: u64) {}
    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn try_lock_shared(&self) -> io::Result<bool> {
        Ok(true)
    }
    fn data_mode(&self) -> DataMode {
        DataMode::Buffered
    }
}

impl Directory for Generated {
    fn open_directory(&self, name: &[u8]) -> io::Result<Arc<dyn Directory>> {
        let number: u64 = std::str::from_utf8(name).unwrap().parse().unwrap();
        let files = (self.files - number * PER_DIRECTORY).min(PER_DIRECTORY);
        Ok(Arc::new(Generated { files, root: false }))
    }
    fn open_file(&self, _: &[u8], _: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        Ok(Arc::new(Same {
            inode: 1,
            length: AtomicU64::new(0),
        }))
    }
    fn status_of(&self, _: &[u8]) -> io::Result<Status> {
        let kind = if self.root {
            FileKind::Directory
        } else {
            FileKind::File
        };
        Ok(status(kind, 1))
    }
    fn status(&self) -> io::Result<Status> {
        Ok(status(FileKind::Directory, 1))
    }
    fn list(&self) -> io::Result<Box<dyn NameList>> {
        let (end, kind) = if self.root {
            (self.files.div_ceil(PER_DIRECTORY), FileKind::Directory)
        } else {
            (self.files, FileKind::File)
        };
        Ok(Box::new(Names { next: 0, end, kind }))
    }
    fn make_directory(&self, _: &[u8], _: u32) -> io::Result<()> {
        no()
    }
    fn create_file(&self, _: &[u8], _: Creation, _: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        no()
    }
    fn make_symlink(&self, _: &[u8], _: &[u8]) -> io::Result<()> {
        no()
    }
    fn read_symlink(&self, _: &[u8]) -> io::Result<Box<[u8]>> {
        no()
    }
    fn rename(&self, _: &[u8], _: &dyn Directory, _: &[u8]) -> io::Result<()> {
        no()
    }
    fn remove_file(&self, _: &[u8]) -> io::Result<()> {
        no()
    }
    fn remove_directory(&self, _: &[u8]) -> io::Result<()> {
        no()
    }
    fn set_modified_of(&self, _: &[u8], _: Timestamp) -> io::Result<()> {
        no()
    }
    fn set_mode(&self, _: u32) -> io::Result<()> {
        no()
    }
    fn set_modified(&self, _: Timestamp) -> io::Result<()> {
        no()
    }
    fn sync(&self) -> io::Result<()> {
        no()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The destination. It discards all files but the two files of the session, which are on a real
/// disk: stored digests grow there, not in the heap.
pub struct Swallowing {
    session: Arc<dyn Directory>,
    place: Arc<TempDir>,
}

impl Swallowing {
    pub fn new() -> Swallowing {
        let place = Arc::new(tempfile::tempdir().unwrap());
        let session = PosixDirectory::open_root(place.path()).unwrap();
        Swallowing { session, place }
    }

    fn is_session(name: &[u8]) -> bool {
        name.ends_with(b".journal") || name.ends_with(b".part")
    }
}

impl Directory for Swallowing {
    fn open_directory(&self, _: &[u8]) -> io::Result<Arc<dyn Directory>> {
        Ok(Arc::new(Swallowing {
            session: self.session.clone(),
            place: self.place.clone(),
        }))
    }
    fn make_directory(&self, _: &[u8], _: u32) -> io::Result<()> {
        Ok(())
    }
    fn open_file(&self, name: &[u8], mode: DataMode) -> io::Result<Arc<dyn StoredFile>> {
        self.session.open_file(name, mode)
    }
    fn create_file(
        &self,
        name: &[u8],
        creation: Creation,
        mode: DataMode,
    ) -> io::Result<Arc<dyn StoredFile>> {
        if Self::is_session(name) {
            self.session.create_file(name, creation, mode)
        } else {
            Ok(Arc::new(Same {
                inode: 1,
                length: AtomicU64::new(0),
            }))
        }
    }
    fn make_symlink(&self, _: &[u8], _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn read_symlink(&self, _: &[u8]) -> io::Result<Box<[u8]>> {
        none()
    }
    fn rename(&self, _: &[u8], _: &dyn Directory, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn remove_file(&self, name: &[u8]) -> io::Result<()> {
        if Self::is_session(name) {
            self.session.remove_file(name)
        } else {
            Ok(())
        }
    }
    fn remove_directory(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn status_of(&self, name: &[u8]) -> io::Result<Status> {
        if Self::is_session(name) {
            self.session.status_of(name)
        } else if name.starts_with(b".longhaul-") {
            // A file that is being written exists by its temporary name.
            Ok(status(FileKind::File, 1))
        } else {
            // The requested entries do not exist.
            none()
        }
    }
    fn status(&self) -> io::Result<Status> {
        Ok(status(FileKind::Directory, 2))
    }
    fn set_modified_of(&self, _: &[u8], _: Timestamp) -> io::Result<()> {
        Ok(())
    }
    fn set_mode(&self, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn set_modified(&self, _: Timestamp) -> io::Result<()> {
        Ok(())
    }
    fn list(&self) -> io::Result<Box<dyn NameList>> {
        self.session.list()
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
