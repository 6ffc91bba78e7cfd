//! Appends records at the end of the journal that this owner knows.

use std::io;
use std::sync::Arc;

use super::entry::{self, Entry, NO_TYPE, UnfitError};
use super::names::Key;
use super::reader::Reader;
use crate::StoredFile;

/// Number of bytes copied at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// A journal that is open for appending. Used under the gate only.
pub struct Writer {
    file: Arc<dyn StoredFile>,
    inode: u64,
    key: Key,
    /// Length of the journal in bytes, unless another owner has appended.
    length: u64,
    /// Epoch of the owners that share the file; `None` if there is one owner.
    shared: Option<u64>,
}

/// Reasons why records could not be appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// A record is invalid; no data was written.
    #[error(transparent)]
    Unfit(#[from] UnfitError),
    /// The storage failed; part of the records may have been written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Writer {
    /// Opens a journal for appending after the first `length` bytes. Later bytes are cut off.
    ///
    /// # Errors
    ///
    /// The errors of the storage.
    pub fn new(file: Arc<dyn StoredFile>, inode: u64, key: Key, length: u64) -> io::Result<Writer> {
        if file.status()?.size > length {
            file.set_length(length)?;
        }
        Ok(Writer {
            file,
            inode,
            key,
            length,
            shared: None,
        })
    }

    /// Lets other owners of this epoch append, too.
    #[must_use]
    pub fn sharing(self, epoch: u64) -> Writer {
        Writer {
            shared: Some(epoch),
            ..self
        }
    }

    /// Appends records with one write, without a sync. A writer that shares the file must first
    /// find that it [is last](Writer::is_last).
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

    /// True if no other owner has appended, except owners that share the file and their blocks.
    /// This detects fencing.
    ///
    /// # Errors
    ///
    /// The errors of `fstat` and of reading.
    pub fn is_last(&mut self) -> io::Result<bool> {
        let size = self.file.status()?.size;
        if size <= self.length {
            return Ok(size == self.length);
        }
        if let Some(epoch) = self.shared {
            return self.follow(epoch);
        }
        // GlusterFS with shards can report more bytes than were written. These are zero, and no
        // record begins with zero.
        let mut first = [0];
        let read = self.file.read_at(&mut first, self.length)?;
        Ok(read == 0 || first == [NO_TYPE])
    }

    /// Reads the records of the other owners of this epoch. False if a later owner excludes them. A
    /// record that is being written ends the reading; the next append under the gate replaces it if
    /// its writer died.
    fn follow(&mut self, epoch: u64) -> io::Result<bool> {
        let mut reader = Reader::from(&*self.file, self.length);
        while let Some(Ok(entry)) = reader.next_entry()? {
            match entry {
                Entry::Durable(_) => {}
                Entry::Shared { epoch: other } if other <= epoch => {}
                Entry::Header(_) | Entry::Owner { .. } | Entry::Shared { .. } => return Ok(false),
            }
            self.length = reader.position();
        }
        Ok(true)
    }

    /// Writes the whole content again, unchanged, and syncs it. A sync of an earlier owner may have
    /// failed. Linux then shows data that is not on the disk, and reports success for a further
    /// sync. Only data that is written again is certain to be synced.
    ///
    /// # Errors
    ///
    /// The errors of the storage.
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

    /// Returns the journal.
    pub fn file(&self) -> &Arc<dyn StoredFile> {
        &self.file
    }

    /// Returns the journal's inode.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the key from which the names are formed.
    pub fn key(&self) -> Key {
        self.key
    }
}
