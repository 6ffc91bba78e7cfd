//! Appends records at the end that this owner knows.

use std::io;
use std::sync::Arc;

use super::entry::{self, Entry, NO_TYPE, UnfitError};
use super::names::Key;
use crate::StoredFile;

/// Bytes copied at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// A journal, open for appending. Used under the gate only.
pub struct Writer {
    file: Arc<dyn StoredFile>,
    inode: u64,
    key: Key,
    /// Where the journal ends if nobody else appended.
    length: u64,
}

/// Why records could not be appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// One is not fit for a journal; nothing was written.
    #[error(transparent)]
    Unfit(#[from] UnfitError),
    /// The storage failed; part of the records may have been written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Writer {
    /// Appends after the first `length` bytes; what follows is cut off.
    ///
    /// # Errors
    ///
    /// As the storage reports.
    pub fn new(file: Arc<dyn StoredFile>, inode: u64, key: Key, length: u64) -> io::Result<Writer> {
        if file.status()?.size > length {
            file.set_length(length)?;
        }
        Ok(Writer {
            file,
            inode,
            key,
            length,
        })
    }

    /// Appends records with one write, not synced.
    ///
    /// # Errors
    ///
    /// [`AppendError`].
    pub fn append(&mut self, entries: impl IntoIterator<Item = Entry>) -> Result<(), AppendError> {
        let mut bytes = Vec::new();
        for entry in entries {
            entry::encode(&entry, self.length + bytes.len() as u64, &mut bytes)?;
        }
        self.file.write_at(&bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Whether nobody else appended: the fence.
    ///
    /// # Errors
    ///
    /// As `fstat`, or as reading.
    pub fn is_last(&self) -> io::Result<bool> {
        let size = self.file.status()?.size;
        if size <= self.length {
            return Ok(size == self.length);
        }
        // GlusterFS with shards was seen to tell of more than anybody had written:
        // that is zero, and no record begins so.
        let mut first = [0];
        let read = self.file.read_at(&mut first, self.length)?;
        Ok(read == 0 || first == [NO_TYPE])
    }

    /// Writes everything once more, the same bytes, and syncs it. A sync of an
    /// earlier owner may have failed, after which Linux shows data that the
    /// disk does not have, and calls a further sync a success; only what is
    /// written again is surely synced.
    ///
    /// # Errors
    ///
    /// As the storage reports.
    pub fn rewrite(&self) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES.min(self.length as usize)];
        let mut offset = 0;
        while offset < self.length {
            let wanted = (self.length - offset).min(CHUNK_BYTES as u64) as usize;
            let read = self.file.read_at(&mut buffer[..wanted], offset)?;
            if read < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.file.write_at(&buffer[..wanted], offset)?;
            offset += wanted as u64;
        }
        self.file.sync_data()
    }

    /// The journal.
    pub fn file(&self) -> &Arc<dyn StoredFile> {
        &self.file
    }

    /// The journal's inode.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// What its names are made of.
    pub fn key(&self) -> Key {
        self.key
    }
}
