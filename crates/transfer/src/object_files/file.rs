//! An object as a file.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;

use longhaul_proto::manifest::Timestamp;
use longhaul_storage::refusing::refuse_writes;
use longhaul_storage::{Advice, DataMode, DataRange, FileKind, Status, StoredFile};
use longhaul_stores::store::Object;

use super::known::{Data, Known};
use super::parts::Read;

/// Permission bits of objects whose server tells none.
const FILE_MODE: u32 = 0o644;

/// Bit of inode numbers that makes them larger than those of local file systems. The identity of a
/// file then includes its times and size.
const LARGE_INODE: u64 = 1 << 63;

/// An object as a file.
pub struct ObjectFile {
    known: Arc<Known>,
    path: Vec<u8>,
    status: Status,
    data: Data,
}

impl ObjectFile {
    /// Opens the object at a path.
    ///
    /// # Errors
    ///
    /// As [`Known::open`].
    pub fn open(known: &Arc<Known>, path: Vec<u8>) -> io::Result<ObjectFile> {
        let data = known.open(&path)?;
        let object = match &data {
            Data::Parts(parts) => parts.object(),
            Data::Whole(object, _) => object,
        };
        let status = status_of(object, &path, known.started);
        let known = Arc::clone(known);
        Ok(ObjectFile {
            known,
            path,
            status,
            data,
        })
    }
}

impl Drop for ObjectFile {
    fn drop(&mut self) {
        if let Data::Parts(parts) = &self.data {
            parts.abandon();
        }
    }
}

/// Returns the status of an object. `otherwise` is its time if the server tells none. The inode
/// number distinguishes versions, so that parts of two versions are never mixed.
pub fn status_of(object: &Object, path: &[u8], otherwise: Timestamp) -> Status {
    let modified = object.modified.map_or(otherwise, |time| Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    });
    let mut hasher = DefaultHasher::new();
    (path, &object.version).hash(&mut hasher);
    let changed = if object.version.is_some() {
        modified
    } else {
        otherwise
    };
    Status {
        inode: hasher.finish() | LARGE_INODE,
        modified,
        changed,
        ..Status::on_no_disk(
            FileKind::File,
            object.mode.unwrap_or(FILE_MODE),
            object.size.unwrap_or_default(),
        )
    }
}

impl StoredFile for ObjectFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.status.size.saturating_sub(offset);
        let count = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if count == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..count];
        match &self.data {
            Data::Parts(parts) => match parts.read(buffer, offset)? {
                Read::All => Ok(count),
                Read::Changed => {
                    // The end before the size tells the reader to look at the status again.
                    self.known.forget(&self.path);
                    Ok(0)
                }
            },
            Data::Whole(_, whole) => whole.read(buffer, offset).map(|()| count),
        }
    }

    fn status(&self) -> io::Result<Status> {
        Ok(self.status)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<DataRange>> {
        Ok((offset < self.status.size).then_some(DataRange {
            start: offset,
            end: self.status.size,
        }))
    }

    fn advise(&self, _: Advice, _: u64, _: u64) {}

    fn data_mode(&self) -> DataMode {
        DataMode::Buffered
    }

    refuse_writes!(io::ErrorKind::Unsupported);
}
